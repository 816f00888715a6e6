"""`FirstUse`: a fresh cluster creates its internal topics when clients need them, which takes time in Kafka.

FindCoordinator gets COORDINATOR_NOT_AVAILABLE at first, until the topic exists. Then it returns the leaders. They
answer NOT_COORDINATOR until they load their partitions, and COORDINATOR_LOAD_IN_PROGRESS until they have loaded them.
Each topic is created by itself. A broker also has no producer ids when it is first asked for one. Measured with Apache
Kafka 4.0.2 and 4.2.2, with one broker and with three. After a deletion, clients use a topic for the first time again.
Does not depend on `Cluster` or requests.
"""

from collections.abc import Callable, Mapping
from math import inf
from typing import Any, Literal

from fakebroker.cluster.broker import BrokerNode
from fakebroker.cluster.replication.coordinator_moves import CoordinatorMoves
from fakebroker.cluster.topics import NO_LEADER, Topic, Topics
from fakebroker.coordinator.timers import Rank, TimedValue, TimerQueue

FirstUseMode = Literal["ready", "kafka"]
"""What clients notice of the first use: nothing, or what they notice of Kafka."""

CREATION_MS = 50.0
"""From the first look-up until the topic exists. In Kafka mostly 30 to 130 ms."""

ELECTION_MS = 200.0
"""From then until the leaders load their partitions. In Kafka 70 to 700 ms, on a busy machine 2 s."""

LOADING_MS = 20.0
"""How long they load. In Kafka mostly up to 20 ms; a producer with a transactional id can wait for 500 ms."""

PRODUCER_IDS_MS = 40.0
"""From a broker's first request for a producer id until it has some. In Kafka 30 to 60 ms."""


class FirstUse:
    """The internal topics that have no coordinators yet.

    Args:
        topics: The topics of the cluster.
        brokers: The brokers of the cluster, by node id.
        moves: The moves of coordinators, by the names of their internal topics.
        create: Creates an internal topic.
        can_create: Returns whether there are as many brokers as an internal topic needs.
        queue: The timers of the cluster.

    Attributes:
        mode: What clients notice, from the next `begin` on.
        due_ms: When the next step of each internal topic without coordinators is due, by its name: its creation or, if
            it exists, the election. Infinite until a client needs the topic.
    """

    def __init__(
        self,
        topics: Topics,
        brokers: Mapping[int, BrokerNode],
        moves: Mapping[str, CoordinatorMoves[Any]],
        create: Callable[[str], Topic],
        can_create: Callable[[str], bool],
        queue: TimerQueue[Any],
    ) -> None:
        self.mode: FirstUseMode = "ready"
        self.due_ms: dict[str, float] = {}
        self._topics, self._brokers, self._moves = topics, brokers, moves
        self._create, self._can_create = create, can_create
        self._producer_ids_ms: dict[int, float] = {}
        self._timer = TimedValue("first use of internal topics")
        self._timers = queue.service(Rank.FIRST_USE, self._take_steps)

    def _schedule(self) -> None:
        self._timers.set(self._timer, min(self.due_ms.values(), default=inf))

    def begin(self, now_ms: float) -> None:
        """Begin with the topics that exist: they have coordinators, others do not."""
        self.due_ms.clear()
        self._producer_ids_ms.clear()
        for name, moves in self._moves.items():
            moves.is_started = True
            if name not in self._topics and (self.mode == "kafka" or not self._can_create(name)):
                self._wait(name, inf, now_ms)
        self._schedule()

    def exists(self, name: str, now_ms: float) -> bool:
        """Return whether an internal topic exists, for a client that needs it. If not, it will be created."""
        if name not in self.due_ms or name in self._topics:
            return True
        if not self._can_create(name):
            return False
        if self.mode == "ready":
            self.finish(name, now_ms)
            return True
        self.due_ms[name] = min(self.due_ms[name], now_ms + CREATION_MS)
        self._schedule()
        return False

    def created(self, name: str, now_ms: float) -> None:
        """Note that an internal topic was created, whose leaders coordinate it, and that they may have to wait."""
        if name in self.due_ms and self.mode == "ready":
            del self.due_ms[name]
            self._schedule()
            self._moves[name].is_started = True
        elif name in self.due_ms:
            self._wait(name, now_ms + ELECTION_MS, now_ms)

    def deleted(self, name: str, now_ms: float) -> None:
        """Note that an internal topic will be deleted: its coordinators resign, until a client needs it again."""
        self._wait(name, inf, now_ms)
        self._moves[name].clear()

    def finish(self, name: str, now_ms: float) -> None:
        """Create an internal topic with its coordinators at once, for a command that needs them."""
        if name in self.due_ms:
            if name not in self._topics:
                self._create(name)
            if name in self.due_ms:
                self._load(name, now_ms)
                self._moves[name].finish_loading(now_ms)

    def has_producer_ids(self, node_id: int, now_ms: float) -> bool:
        """Return whether a broker has producer ids, for a client that needs one. If not, it gets some."""
        return self.mode == "ready" or self._producer_ids_ms.setdefault(node_id, now_ms + PRODUCER_IDS_MS) <= now_ms

    def _take_steps(self, timer: object, due_ms: float, now_ms: float) -> None:
        """Take the steps that are due, each at its time. The controller ends loads that are due then."""
        for name, at_ms in list(self.due_ms.items()):
            if at_ms <= now_ms and name not in self._topics:
                self._create(name)
                self._wait(name, at_ms + ELECTION_MS, now_ms)
            if self.due_ms[name] <= now_ms:
                self._load(name, self.due_ms[name] + LOADING_MS)
        self._schedule()

    def _wait(self, name: str, due_ms: float, now_ms: float) -> None:
        """Let no broker coordinate a topic until its next step."""
        self.due_ms[name] = due_ms
        self._schedule()
        moves = self._moves[name]
        moves.is_started = False
        for broker in self._brokers.values():
            moves.resign_all(broker, now_ms)

    def _load(self, name: str, until_ms: float) -> None:
        """Let the leaders of a topic load its partitions, and then coordinate them."""
        del self.due_ms[name]
        self._schedule()
        topic, moves = self._topics.get(name), self._moves[name]
        assert topic is not None
        moves.is_started = True
        for partition in topic.partitions:
            if partition.leader_id != NO_LEADER:
                moves.start_loading(partition, until_ms)
