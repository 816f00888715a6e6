"""Scripted members and two brokers in virtual time, and the events that the members record.

One broker at a time coordinates the group "g", from a log that both share; the other one answers NOT_COORDINATOR.
Coordinators are looked up at broker 1. Unlike `fakebroker.replay.simulation`, the class of the coordinators can be
replaced by one that breaks a promise.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import Any

from fakebroker.client.member import requests
from fakebroker.client.member.effects import GroupRequest, GroupResponse
from fakebroker.coordinator.config import CoordinatorConfig
from fakebroker.coordinator.consumer.config import ConsumerGroupConfig
from fakebroker.coordinator.group_coordinator import Coordinator
from fakebroker.coordinator.records import Record
from fakebroker.errors import ErrorCode
from fakebroker.replay.members.events import Event
from fakebroker.replay.members.scripted_member import ScriptedMember
from fakebroker.replay.script.script import Act, Action, Script
from tests.support.coordinator.consumer_group_harness import FakeTopics
from tests.support.coordinator.coordinator_adapter import CoordinatorAdapter, Respond
from tests.support.virtual_time import SimulatedConnection, VirtualTime

PARTITIONS = {"orders": 4, "payments": 2}
SESSION_MS, REBALANCE_MS = 6_000, 9_000
HEARTBEAT_MS = 1_500
"""Heartbeat interval of all members; with the protocol `consumer` the coordinators have it, and `SESSION_MS`."""
_TOPICS = FakeTopics(**PARTITIONS)
_OFFSETS_PARTITION = 0
DELAYS_MS = (1.0, 2.0, 20.0)
_BROKERS = (1, 2)


def script(name: str, *acts: tuple[float, Action] | tuple[float, Action, float], **more: Any) -> Script:
    """Return the script of a member.

    Args:
        name: The member's name.
        acts: Time in seconds, action, and optionally a duration in seconds. If the first action is not "start", the
            member starts at once.
        more: Other fields of the script.
    """
    script_acts = tuple(Act(each[0] * 1000.0, each[1], each[2] * 1000.0 if len(each) > 2 else 0.0) for each in acts)
    if not script_acts or script_acts[0].action != "start":
        script_acts = (Act(0.0, "start"), *script_acts)
    plain = Script(
        "all",
        "g",
        name,
        None,
        tuple(PARTITIONS),
        "range",
        SESSION_MS,
        REBALANCE_MS,
        HEARTBEAT_MS,
        2_000,
        100.0,
        script_acts,
    )
    return plain._replace(**more)


@dataclass(eq=False)
class _Client:
    """A member, and its connection to a broker, the coordinator according to its last look-up."""

    member: ScriptedMember
    connection: SimulatedConnection[GroupRequest, GroupResponse] | None = None
    node_id: int = -1

    def disconnect(self) -> None:
        if self.connection is not None:
            self.connection.close()
            self.connection = None


class ScriptedGroup(VirtualTime):
    """Members that follow their scripts, and brokers 1 and 2. Broker 1 is the first coordinator.

    Nothing happens until `run`. Times in scripts are relative to the virtual time at first, `START_MS`. The topics are
    those in `PARTITIONS`. The initial rebalance delay is 1 s, and there is one offsets partition. In the events, all
    requests of members have version 9.

    Args:
        scripts: Their scripts.
        coordinator_class: The class of both brokers' coordinators.
        seed: The seed of delays and losses.
        delays_ms: How long a request, a response or a look-up may take.

    Attributes:
        events: The events recorded so far.
        find_coordinator: Returns the node id in the next response to FindCoordinator; by default the coordinator's.
    """

    def __init__(
        self,
        scripts: Sequence[Script],
        coordinator_class: type[Coordinator] = Coordinator,
        seed: int = 0,
        delays_ms: Sequence[float] = DELAYS_MS,
    ) -> None:
        super().__init__(seed)
        self._delays_ms = delays_ms
        self.events: list[Event] = []
        self.find_coordinator: Callable[[], int] = lambda: self._coordinator_id
        self._coordinator_id = 1
        self._log: list[Record] = []
        ids = count(1)
        consumer = ConsumerGroupConfig(
            topics=_TOPICS, session_timeout_ms=SESSION_MS, heartbeat_interval_ms=HEARTBEAT_MS
        )
        config = CoordinatorConfig(
            group_initial_rebalance_delay_ms=1_000, offsets_topic_num_partitions=1, consumer=consumer
        )
        self._coordinators = {
            node_id: coordinator_class(config, lambda: f"{next(ids):032}", self._append) for node_id in _BROKERS
        }
        self._coordinators[1].lead(_OFFSETS_PARTITION, self.now_ms)
        self._clients = [_Client(ScriptedMember(each, self.now_ms, self._record)) for each in scripts]
        for client in self._clients:
            self._follow(client)

    def _record(self, event: Event) -> None:
        """Record an event. For a request without a response, `until_us` is the time of the loss."""
        self.events.append(event._replace(until_us=round(self.now_ms * 1000)) if event.missing else event)

    def _append(self, _: int, records: Sequence[Record]) -> ErrorCode:
        self._log.extend(records)
        return ErrorCode.NONE

    # Events

    def move_coordinator(self) -> None:
        """Make the other broker the coordinator."""
        self._coordinators[self._coordinator_id].resign(_OFFSETS_PARTITION, self.now_ms)
        self._follow_coordinator(self._coordinator_id)
        self._coordinator_id = _BROKERS[self._coordinator_id % len(_BROKERS)]
        self._coordinators[self._coordinator_id].start_loading(_OFFSETS_PARTITION)
        self._coordinators[self._coordinator_id].finish_loading(_OFFSETS_PARTITION, self._log, self.now_ms)
        self._follow_coordinator(self._coordinator_id)

    def share_coordinator(self) -> None:
        """Let both brokers serve the group, from one coordinator."""
        self._coordinators[2] = self._coordinators[1]

    def disconnect(self, index: int) -> None:
        """Break a member's connection; the member notices at once."""
        client = self._clients[index]
        client.disconnect()
        client.member.connection_lost(self.now_ms)
        self._follow(client)

    def repeat_requests(self, index: int, from_ms: float, again_ms: float) -> None:
        """Let a member send a heartbeat, a commit and an OffsetFetch of an earlier time, as a restored process does.

        It ignores the responses.
        """
        client = self._clients[index]

        def repeat(old: Sequence[GroupRequest]) -> None:
            for request in old:
                client.member._send_own(request, self.now_ms)
            self._follow(client)

        def store() -> None:
            member = client.member.member
            old = (
                member.heartbeat_request(),
                requests.offset_commit(member.identity, member.positions),
                requests.offset_fetch(member.identity, member.assigned, as_member=True),
            )
            self.call_in(again_ms - from_ms, lambda: repeat(old))

        self.call_in(from_ms, store)

    # Members

    def _follow(self, client: _Client) -> None:
        """Perform the effects that a member requested in a call, and schedule its next deadline."""
        member = client.member
        if member.take_disconnect():
            client.disconnect()
        if (since_ms := member.take_discovery()) is not None:
            self._look_up(client, since_ms)
        if (topics := member.take_metadata()) is not None:
            counts = {topic: PARTITIONS[topic] for topic in topics[0]}
            ids = {topic: found.topic_id for topic in counts if (found := _TOPICS.named(topic)) is not None}
            self._call_later(client, lambda: member.metadata(counts, ids, self.now_ms))
        if (request := member.take_request()) is not None and member.node_id < 0:
            # It leaves before it has found its coordinator.
            self.call_in(0, lambda: self._call(client, lambda: member.connection_lost(self.now_ms)))
        elif request is not None:
            member.sent(9, self.now_ms)
            if client.node_id != member.node_id:  # A suspended member may have learned of the coordinator late.
                client.disconnect()
            if client.connection is None:
                client.node_id = member.node_id
                handle = partial(self._handle, member.node_id, member.script.member)
                client.connection = SimulatedConnection(self, handle, self._delays_ms)
            client.connection.send(
                request, lambda response: self._call(client, lambda: member.answered(response, self.now_ms))
            )
        self.call_at_deadline(
            client, member.next_deadline(), lambda: self._call(client, lambda: member.tick(self.now_ms))
        )

    def _call(self, client: _Client, call: Callable[[], None]) -> None:
        call()
        self._follow(client)

    def _call_later(self, client: _Client, call: Callable[[], None]) -> None:
        self.call_in(self.random.choice(self._delays_ms), lambda: self._call(client, call))

    def _look_up(self, client: _Client, since_ms: float) -> None:
        sent_ms = self.now_ms

        def answer() -> None:
            node_id = self.find_coordinator()
            self.events.append(
                Event(
                    scheduled_us=round(since_ms * 1000),
                    sent_us=round(sent_ms * 1000),
                    latency_us=round((self.now_ms - since_ms) * 1000),
                    api="FindCoordinator",
                    version=6,
                    broker=1,
                    group="g",
                    error=0,
                    lookups=1,
                    found=[("g", node_id, 0, client.member.is_rejoining)],
                )
            )
            if client.connection is not None and node_id != client.member.node_id:
                client.disconnect()
                client.member.connection_lost(self.now_ms)
            client.member.discovered(node_id, f"b{node_id}", 9092, self.now_ms)

        self._call_later(client, answer)

    # Brokers

    def _handle(self, node_id: int, client_id: str, request: GroupRequest, respond: Respond) -> None:
        CoordinatorAdapter(self._coordinators[node_id]).handle(request, client_id, respond, self.now_ms)
        self._follow_coordinator(node_id)

    def _follow_coordinator(self, node_id: int) -> None:
        """Send the responses that a coordinator has completed, and schedule its next deadline."""
        coordinator = self._coordinators[node_id]
        CoordinatorAdapter(coordinator).send_responses()
        self.call_at_deadline(
            coordinator, coordinator.queue.next_deadline(), lambda: self._expire_timers(node_id, coordinator)
        )

    def _expire_timers(self, node_id: int, coordinator: Coordinator) -> None:
        coordinator.queue.run(self.now_ms)
        self._follow_coordinator(node_id)
