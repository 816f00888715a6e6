"""Topics and their partitions, with replicas, leaders and logs; and the placement of new partitions.

Does not depend on requests: their checks and error codes are in the handlers.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from fakebroker.cluster.configs.log_config import CachedLogConfig
from fakebroker.cluster.configs.topic_configs import INTERNAL_TOPIC_CONFIGS
from fakebroker.cluster.logs.compactor import Compactor
from fakebroker.cluster.logs.partition_log import PartitionLog
from fakebroker.coordinator.consumer.subscriptions import TopicMetadata, topic_hash
from fakebroker.protocol.types import ZERO_UUID
from fakebroker.topic_partition import unify_collision_chars

OFFSETS_TOPIC = "__consumer_offsets"
TRANSACTIONS_TOPIC = "__transaction_state"
NO_LEADER = -1
"""Kafka's node id for no leader."""

INTERNAL_TOPICS = (OFFSETS_TOPIC, TRANSACTIONS_TOPIC)

Assignment = list[list[int]]
"""The replicas of each partition: node ids, the preferred leader first."""

MAX_PARTITIONS = 100_000
"""The largest number of partitions of one topic, so that one request cannot exhaust the memory."""
_MAX_FORMER_NAMES = 10_000
"""How many names of deleted topics are kept, for histories and journals, which are bounded, too."""


def partition_count_error(topic: "Topic", total: int) -> str | None:
    """Return an error message if the partitions of a topic cannot be increased to `total`, else None."""
    if topic.is_internal:
        # Kafka allows it, but its brokers use the old number of partitions until they are restarted.
        return f"topic {topic.name!r} is internal: expected another topic"
    least = len(topic.partitions) + 1
    if not least <= total <= MAX_PARTITIONS:
        return f"topic {topic.name!r} with {total} partitions: expected {least} to {MAX_PARTITIONS}"
    return None


@dataclass(slots=True)
class Partition:
    """One partition: its log and its replicas.

    Attributes:
        topic: Its topic.
        index: Its number in the topic, from 0.
        replicas: The node ids of its brokers, the preferred leader first.
        leader_id: The node id of its leader, NO_LEADER if it has none.
        last_leader_id: The node id of the current leader, or of the last one if there is none.
        log: Its records. All replicas share one log, because replication is immediate.
        leader_epoch: Incremented with each change of the leader, and when replicas are removed.
        awaits_last_leader: Whether a command left the partition without a leader, such as `BrokerHandle.stop` with
            `elect=False`. Then, of all brokers that start, only its last leader becomes its leader. The partition also
            gets a leader by a move, by an ElectLeaders request, or if its last leader is removed from the replicas.
        adding: The replicas that a reassignment in progress adds (KIP-455).
        removing: The replicas that a reassignment in progress removes, the last ones of `replicas`.
        copying: The replicas that are not in sync yet, because they still copy the log (see `ReplicaCopies`): some of
            `adding`, and of `removing` if a reassignment that added them was replaced.
    """

    topic: "Topic"
    index: int
    replicas: tuple[int, ...]
    leader_id: int
    last_leader_id: int
    log: PartitionLog
    leader_epoch: int = 0
    awaits_last_leader: bool = False
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()
    copying: tuple[int, ...] = ()

    @property
    def is_reassigning(self) -> bool:
        return bool(self.adding or self.removing)

    @property
    def target_replicas(self) -> tuple[int, ...]:
        """The replicas after the reassignment in progress; without a reassignment, all replicas."""
        return tuple(node_id for node_id in self.replicas if node_id not in self.removing)


@dataclass(slots=True)
class Topic:
    """A topic.

    Attributes:
        name: Its name.
        topic_id: Its id of 16 bytes (KIP-516); a topic that is deleted and created again has another one.
        partitions: Its partitions, by number.
        configs: The configs that were set on the topic. Replaced, not changed, when they are altered.
        log_configs: A cache of `log_config`, by node id.
        next_partition: Counts the records that commands have produced without a key, to distribute them.
        metadata_hash: A cache of its hash for consumer groups (`topic_hash`); None if it has to be computed.
    """

    name: str
    topic_id: bytes
    partitions: list[Partition]
    configs: Mapping[str, str] = field(default_factory=dict)
    log_configs: dict[int, CachedLogConfig] = field(default_factory=dict, compare=False)
    next_partition: int = 0
    metadata_hash: int | None = field(default=None, compare=False)

    @property
    def is_internal(self) -> bool:
        return self.name in INTERNAL_TOPICS

    def clone(self) -> "Topic":
        """Return an independent copy, logs included."""
        twin = replace(self, partitions=[], log_configs={}, metadata_hash=None)
        twin.partitions += [replace(each, topic=twin, log=each.log.clone()) for each in self.partitions]
        return twin

    def partition(self, index: int) -> Partition | None:
        return self.partitions[index] if 0 <= index < len(self.partitions) else None


class TopicStorage(Protocol):
    """Where topics are recorded, so that they survive the process."""

    def attach(self, topic: Topic) -> None:
        """Record a topic that is new or has new partitions, and from now on the changes of its logs."""
        ...

    def changed(self, topic: Topic) -> None:
        """Record a change of a topic, unless it was deleted."""
        ...

    def deleted(self, topic: Topic) -> None:
        """Record the deletion of a topic. Its logs are not recorded any more."""
        ...

    def replaced(self) -> None:
        """Record that all topics, with their logs, were replaced."""
        ...


class Topics:
    """All topics of a cluster, in the order of their creation.

    __consumer_offsets exists from the start, so that groups have coordinators. As in Kafka, clients do not see it
    before it is used: then it is created by `show_offsets_topic`, or with another number of partitions by `create`.

    Args:
        new_id: Returns the 16 bytes of a new topic id.
        is_up: Returns whether a broker is up, by node id.

    Attributes:
        offsets_topic: The topic __consumer_offsets; set by the first call of `create_offsets_topic`.
        offsets_topic_is_used: Whether clients see __consumer_offsets. Otherwise iteration, `get` and `find` omit it.
        version: Rises with each change of a topic: creation, new partitions, other replicas, deletion.
        created_version: The version when clients saw a new topic last.
        on_change: Called with the name of a topic that was created, got partitions, or was deleted; None if nothing is.
        storage: Where topics are recorded; None if they are not.
    """

    def __init__(self, new_id: Callable[[], bytes], is_up: Callable[[int], bool]) -> None:
        self._new_id = new_id
        self._is_up = is_up
        self._by_name: dict[str, Topic] = {}
        self._by_id: dict[bytes, Topic] = {}
        self._by_metric_name: dict[str, Topic] = {}
        self._former_names: dict[bytes, str] = {}
        self.offsets_topic: Topic
        self.offsets_topic_is_used = False
        self.version = 0
        self.created_version = 0
        self.on_change: Callable[[str], None] | None = None
        self.storage: TopicStorage | None = None

    def __iter__(self) -> Iterator[Topic]:
        return iter(self._by_name.values())

    def all(self) -> Iterator[Topic]:
        """Yield all topics, also __consumer_offsets before it is used."""
        if not self.offsets_topic_is_used:
            yield self.offsets_topic
        yield from self

    def __contains__(self, name: object) -> bool:
        return name in self._by_name

    def get(self, name: str) -> Topic | None:
        return self._by_name.get(name)

    def find(self, name: str, topic_id: bytes, *, by_id: bool) -> Topic | None:
        """Return the topic with this id if `by_id` is true, else the topic with this name."""
        return self._by_id.get(topic_id) if by_id else self._by_name.get(name)

    def name_of(self, topic_id: bytes) -> str | None:
        """Return the name of the topic with an id."""
        topic = self._by_id.get(topic_id)
        return None if topic is None else topic.name

    def id_of(self, name: str) -> bytes:
        """Return the id of the topic with a name; zeros if there is none."""
        topic = self._by_name.get(name)
        return ZERO_UUID if topic is None else topic.topic_id

    def past_or_present_name_of(self, topic_id: bytes) -> str | None:
        """Return the name of the topic with an id, also if it is one of the last that were deleted."""
        return self.name_of(topic_id) or self._former_names.get(topic_id)

    def led_by(self, node_id: int) -> list[Partition]:
        """Return the partitions that a broker leads, or with NO_LEADER those without a leader."""
        return [each for topic in self.all() for each in topic.partitions if each.leader_id == node_id]

    def offsets_partition(self, index: int) -> Partition:
        """Return a partition of __consumer_offsets."""
        return self.offsets_topic.partitions[index]

    def colliding(self, name: str) -> str | None:
        """Return the name of an existing topic that differs from `name` at most in dots and underscores.

        Kafka rejects the name of such a new topic, because the names of its metrics would collide.
        """
        topic = self._by_metric_name.get(unify_collision_chars(name))
        return None if topic is None else topic.name

    def create(self, name: str, assignment: Sequence[Sequence[int]], configs: Mapping[str, str] | None = None) -> Topic:
        """Create a topic. Partition i has the replicas `assignment[i]`; the first one that is up is its leader."""
        topic = self._new_topic(name, assignment, configs)
        self._show(topic)
        if name == OFFSETS_TOPIC:
            if self.storage is not None:
                self.storage.deleted(self.offsets_topic)
            self.offsets_topic, self.offsets_topic_is_used = topic, True
        self._changed(topic)
        self.created_version = self.version
        return topic

    def create_offsets_topic(self, assignment: Sequence[Sequence[int]]) -> None:
        """Create __consumer_offsets, which clients do not see yet."""
        self.offsets_topic = self._new_topic(OFFSETS_TOPIC, assignment)

    def show_offsets_topic(self) -> None:
        """Let clients see __consumer_offsets from now on."""
        if not self.offsets_topic_is_used:
            self.offsets_topic_is_used = True
            self._show(self.offsets_topic)
            self.version += 1
            self.created_version = self.version
            self.record(self.offsets_topic)

    def _new_topic(
        self, name: str, assignment: Sequence[Sequence[int]], configs: Mapping[str, str] | None = None
    ) -> Topic:
        topic = Topic(name, self._new_id(), [], configs or INTERNAL_TOPIC_CONFIGS.get(name, {}))
        self.grow(topic, assignment)
        return topic

    def _show(self, topic: Topic) -> None:
        self._by_name[topic.name] = self._by_id[topic.topic_id] = topic
        self._by_metric_name[unify_collision_chars(topic.name)] = topic

    def grow(self, topic: Topic, assignment: Sequence[Sequence[int]]) -> None:
        """Add a partition to a topic for each list of replicas in the assignment."""
        for index, replicas in enumerate(assignment, len(topic.partitions)):
            log = PartitionLog(compactor=Compactor() if topic.name in (OFFSETS_TOPIC, TRANSACTIONS_TOPIC) else None)
            leader_id = next(filter(self._is_up, replicas), NO_LEADER)
            topic.partitions.append(Partition(topic, index, tuple(replicas), leader_id, leader_id, log))
        topic.metadata_hash = None
        if self.storage is not None:
            self.storage.attach(topic)
        if topic.name in self._by_name:
            self._changed(topic)

    def set_replicas(self, partition: Partition, replicas: Sequence[int]) -> None:
        """Change the replicas of a partition."""
        partition.replicas, partition.topic.metadata_hash = tuple(replicas), None
        self.version += 1
        self.record(partition.topic)

    def record(self, topic: Topic) -> None:
        """Record that the configs of a topic, or replicas, leaders or reassignments of its partitions, were changed."""
        if self.storage is not None:
            self.storage.changed(topic)

    def _changed(self, topic: Topic) -> None:
        self.version += 1
        if self.on_change is not None:
            self.on_change(topic.name)

    def clones(self) -> list[Topic]:
        """Return independent copies of all topics, logs included."""
        return [topic.clone() for topic in self.all()]

    def replace_all(self, topics: Sequence[Topic], *, offsets_topic_is_used: bool) -> None:
        """Replace all topics, __consumer_offsets included."""
        self.version += 1
        self.created_version = self.version
        for topic in self._by_id.values():
            self._remember(topic)
        self._by_name, self._by_id, self._by_metric_name = {}, {}, {}
        self.offsets_topic_is_used = offsets_topic_is_used
        for topic in topics:
            if topic.name == OFFSETS_TOPIC:
                self.offsets_topic = topic
            if offsets_topic_is_used or topic.name != OFFSETS_TOPIC:
                self._show(topic)
        if self.storage is not None:
            self.storage.replaced()

    def _remember(self, topic: Topic) -> None:
        """Keep the name of a topic that is removed."""
        if len(self._former_names) == _MAX_FORMER_NAMES:
            del self._former_names[next(iter(self._former_names))]
        self._former_names[topic.topic_id] = topic.name

    def delete(self, topic: Topic) -> None:
        self._remember(topic)
        del self._by_name[topic.name], self._by_id[topic.topic_id]
        self._by_metric_name.pop(unify_collision_chars(topic.name), None)
        if topic.name == OFFSETS_TOPIC:
            self.offsets_topic_is_used = False
        if self.storage is not None:
            self.storage.deleted(topic)
        self._changed(topic)


class ClusterTopics:
    """The topics of a cluster, as its group coordinators see them (`TopicImage`).

    Args:
        topics: The topics.
        rack_of: Returns the rack of a broker, by node id; None if it has none.
    """

    def __init__(self, topics: Topics, rack_of: Callable[[int], str | None]) -> None:
        self._topics = topics
        self._rack_of = rack_of

    @property
    def version(self) -> int:
        return self._topics.version

    @property
    def created_version(self) -> int:
        return self._topics.created_version

    def names(self) -> list[str]:
        return [topic.name for topic in self._topics]

    def named(self, name: str) -> TopicMetadata | None:
        topic = self._topics.get(name)
        return None if topic is None else TopicMetadata(topic.topic_id, name, len(topic.partitions))

    def hash_of(self, name: str) -> int:
        topic = self._topics.get(name)
        assert topic is not None, name
        if topic.metadata_hash is None:
            racks = (filter(None, map(self._rack_of, partition.replicas)) for partition in topic.partitions)
            topic.metadata_hash = topic_hash(TopicMetadata(topic.topic_id, name, len(topic.partitions)), racks)
        return topic.metadata_hash

    def name_of(self, topic_id: bytes) -> str | None:
        return self._topics.name_of(topic_id)
