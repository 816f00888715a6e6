"""Topics, their partitions, and which broker leads each.

Knows no requests: what a request may ask for, and with which error it is refused, is the handlers' business.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from fakebroker.cluster.compacted_log import CompactedLog
from fakebroker.cluster.partition_log import PartitionLog

OFFSETS_TOPIC = "__consumer_offsets"
TRANSACTIONS_TOPIC = "__transaction_state"
NO_LEADER = -1
"""Kafka's node id for no leader."""

INTERNAL_TOPICS = (OFFSETS_TOPIC, TRANSACTIONS_TOPIC)

_LEGAL_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")


def name_fault(name: str) -> str | None:
    """Why a topic may not have this name, or None (org.apache.kafka.common.internals.Topic)."""
    if name in (".", ".."):
        return f"topic name {name!r} is reserved"
    if not _LEGAL_NAME.fullmatch(name):
        return f"topic name {name!r}: expected 1 to 249 of the characters a-z A-Z 0-9 . _ -"
    return None


@dataclass(slots=True)
class Partition:
    """One partition: its log and the brokers that hold it. `replicas[0]` is the preferred leader."""

    topic: "Topic"
    index: int
    replicas: tuple[int, ...]
    leader_id: int
    log: PartitionLog
    leader_epoch: int = 0


@dataclass(slots=True)
class Topic:
    """A topic. Its id is 16 bytes, new for each creation (KIP-516); `configs` are those it was created with."""

    name: str
    topic_id: bytes
    partitions: list[Partition]
    configs: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_internal(self) -> bool:
        return self.name in INTERNAL_TOPICS

    def partition(self, index: int) -> Partition | None:
        return self.partitions[index] if 0 <= index < len(self.partitions) else None


class Topics:
    """All topics of a cluster, in the order of their creation.

    Args:
        new_id: Makes the 16 bytes of a topic id.
        retention_bytes: How many bytes a partition keeps; -1 is all.
    """

    def __init__(self, new_id: Callable[[], bytes], retention_bytes: int) -> None:
        self._new_id = new_id
        self._retention_bytes = retention_bytes
        self._by_name: dict[str, Topic] = {}
        self._by_id: dict[bytes, Topic] = {}
        self._by_metric_name: dict[str, Topic] = {}

    def __iter__(self) -> Iterator[Topic]:
        return iter(self._by_name.values())

    def __contains__(self, name: object) -> bool:
        return name in self._by_name

    def get(self, name: str) -> Topic | None:
        return self._by_name.get(name)

    def find(self, name: str, topic_id: bytes, *, by_id: bool) -> Topic | None:
        """The topic that a request names, by its id in the versions that carry ids."""
        return self._by_id.get(topic_id) if by_id else self._by_name.get(name)

    def colliding(self, name: str) -> str | None:
        """The topic whose name differs from this one in dots and underscores alone, which metrics cannot tell apart."""
        topic = self._by_metric_name.get(_metric_name(name))
        return None if topic is None else topic.name

    def create(self, name: str, assignment: Sequence[Sequence[int]], configs: Mapping[str, str] | None = None) -> Topic:
        """Create a topic whose partition number i is on the brokers `assignment[i]`, the first of them its leader."""
        topic = Topic(name, self._new_id(), [], configs or {})
        self.grow(topic, assignment)
        self._by_name[name] = self._by_id[topic.topic_id] = self._by_metric_name[_metric_name(name)] = topic
        return topic

    def grow(self, topic: Topic, assignment: Sequence[Sequence[int]]) -> None:
        """Add the partitions of an assignment that the topic does not have yet."""
        retention_bytes = int(topic.configs.get("retention.bytes", self._retention_bytes))
        for index in range(len(topic.partitions), len(assignment)):
            log = CompactedLog() if topic.name == OFFSETS_TOPIC else PartitionLog(retention_bytes)
            replicas = tuple(assignment[index])
            topic.partitions.append(Partition(topic, index, replicas, replicas[0], log))

    def delete(self, topic: Topic) -> None:
        del self._by_name[topic.name], self._by_id[topic.topic_id]
        self._by_metric_name.pop(_metric_name(topic.name), None)


def _metric_name(name: str) -> str:
    return name.replace(".", "_")


def spread(partitions: int, replication_factor: int, node_ids: Sequence[int]) -> list[list[int]]:
    """Partitions over brokers, round-robin: partition 0 is led by the first broker, its replicas are the next ones."""
    count = len(node_ids)
    return [[node_ids[(index + step) % count] for step in range(replication_factor)] for index in range(partitions)]
