"""The committed offsets of one group, and when an offset expires. `Group.check_commit` has checked the commits."""

import struct
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import ClassVar

import msgspec

from fakebroker.protocol.messages.consumer_offsets import OffsetCommitValue
from fakebroker.topic_partition import TopicPartition


class CommittedOffset(msgspec.Struct, frozen=True):
    """The committed offset of a group for one partition (Kafka's `OffsetAndMetadata`). Not modified.

    Attributes:
        offset: As committed; any number, including -1.
        commit_timestamp_ms: When it was committed, by the coordinator's clock.
        leader_epoch: -1 if unknown.
        expire_timestamp_ms: When the offset expires; `None` to apply the retention of the broker.
    """

    offset: int
    commit_timestamp_ms: int
    leader_epoch: int = -1
    metadata: str = ""
    expire_timestamp_ms: int | None = None

    def value(self) -> OffsetCommitValue:
        """Return the value of a record with the offset."""
        return OffsetCommitValue(
            offset=self.offset,
            leader_epoch=self.leader_epoch,
            metadata=self.metadata,
            commit_timestamp=self.commit_timestamp_ms,
            expire_timestamp=NO_TIMESTAMP if self.expire_timestamp_ms is None else self.expire_timestamp_ms,
        )

    def is_expired(self, now_ms: float, retention_ms: int, empty_since_ms: float | None) -> bool:
        """Whether the offset has expired (KIP-211).

        Args:
            now_ms: The time.
            retention_ms: How long an offset without `expire_timestamp_ms` is kept, from its commit or from
                `empty_since_ms`.
            empty_since_ms: When the group became Empty; None if it is not Empty, or never had members.
        """
        return now_ms >= self.expires_ms(retention_ms, empty_since_ms)

    def expires_ms(self, retention_ms: int, empty_since_ms: float | None) -> float:
        """Return when the offset expires, in milliseconds. For the arguments see `is_expired`."""
        if self.expire_timestamp_ms is not None:
            return self.expire_timestamp_ms
        return (self.commit_timestamp_ms if empty_since_ms is None else empty_since_ms) + retention_ms


_ENTRY = struct.Struct(">qiq")  # The offset and the leader epoch as in Kafka's protocol, then the commit timestamp.
_MOST_SHARED = 16
"""The number of offsets up to which groups with the same partitions share an index."""
_MOST_INDEXES = 10_000
"""The number of shared indexes that are kept for later groups: those used last."""
_NO_POSITIONS: Mapping[int, int] = MappingProxyType({})
_NO_DETAILS: dict[int, tuple[str, int]] = {}
NO_TIMESTAMP = -1
"""The expire timestamp of an offset to which the retention of the broker applies."""
_PLAIN = "", NO_TIMESTAMP


class _Index:
    """The position of each partition in the entries of a group, by topic, both in the order of their first commit."""

    __slots__ = ("by_topic", "count", "places")

    def __init__(self, places: tuple[TopicPartition, ...]) -> None:
        self.places = places  # By position, if the index is shared.
        self.by_topic: dict[str, dict[int, int]] = {}
        self.count = 0
        for number, place in enumerate(places):
            self.add(*place, number * _ENTRY.size)

    def add(self, topic: str, partition: int, position: int) -> None:
        self.count += 1
        self.by_topic.setdefault(topic, {})[partition] = position

    def remove(self, topic: str, partition: int) -> None:
        self.count -= 1
        by_partition = self.by_topic[topic]
        del by_partition[partition]
        if not by_partition:
            del self.by_topic[topic]


_shared_index = lru_cache(_MOST_INDEXES)(_Index)
_NO_INDEX = _Index(())


class OffsetStore(msgspec.Struct, eq=False, gc=False):
    """Committed offsets by topic and partition, both in the order of their first commit.

    A cluster can have a million groups, and most of them have offsets for the same few partitions. So an offset is an
    entry of 20 bytes, and groups share the index of the partitions. A group with many offsets has an index of its own.
    The garbage collector does not track stores, because a store has no references to groups.

    Attributes:
        entries: The entries. The first `WIRE_BYTES` bytes of each are the offset and the leader epoch as in Kafka's
            protocol.
        details: The metadata and the expire timestamp, or -1, of the offsets that have one of them, by position.
    """

    WIRE_BYTES: ClassVar[int] = 12

    _index: _Index = _NO_INDEX
    entries: bytes | bytearray = b""
    details: dict[int, tuple[str, int]] = msgspec.field(default_factory=lambda: _NO_DETAILS)

    def _clear(self) -> None:
        self._index = _NO_INDEX
        self.entries = b""
        self.details = _NO_DETAILS

    def __iter__(self) -> Iterator[tuple[str, int, CommittedOffset]]:
        """Yield (topic, partition, committed offset); the partitions of one topic follow each other."""
        for topic, by_partition in self._index.by_topic.items():
            for partition, position in by_partition.items():
                yield topic, partition, self._at(position)

    def get(self, topic: str, partition: int) -> CommittedOffset | None:
        position = self.positions_of(topic).get(partition)
        return None if position is None else self._at(position)

    def positions_of(self, topic: str) -> Mapping[int, int]:
        """Return the positions of the offsets of a topic in `entries`, by partition."""
        return self._index.by_topic.get(topic, _NO_POSITIONS)

    def partitions_of(self, topic: str) -> Iterable[int]:
        """Return the partitions of a topic that have a committed offset."""
        return self.positions_of(topic)

    def apply(self, topic: str, partition: int, value: OffsetCommitValue | None) -> None:
        """Apply the value of a record: store the offset, or delete it if there is none."""
        position = self.positions_of(topic).get(partition)
        if value is None:
            if position is not None:
                self._delete(topic, partition, position)
            return
        entry = _ENTRY.pack(value.offset, value.leader_epoch, value.commit_timestamp)
        if position is None:
            position = self._add(topic, partition)
        if isinstance(self.entries, bytearray):
            self.entries[position : position + _ENTRY.size] = entry
        else:
            self.entries = self.entries[:position] + entry + self.entries[position + _ENTRY.size :]
        if value.metadata or value.expire_timestamp != NO_TIMESTAMP:
            self.details = self.details or {}
            self.details[position] = value.metadata, value.expire_timestamp
        elif self.details:
            self._forget_details(position)

    def _at(self, position: int) -> CommittedOffset:
        offset, leader_epoch, timestamp_ms = _ENTRY.unpack_from(self.entries, position)
        metadata, expire_timestamp = self.details.get(position, _PLAIN)
        return CommittedOffset(
            offset=offset,
            leader_epoch=leader_epoch,
            metadata=metadata,
            commit_timestamp_ms=timestamp_ms,
            expire_timestamp_ms=None if expire_timestamp == NO_TIMESTAMP else expire_timestamp,
        )

    def _add(self, topic: str, partition: int) -> int:
        """Add a partition, and return the position of its entry: the end of the entries."""
        position = len(self.entries)
        if position < _MOST_SHARED * _ENTRY.size:
            self._index = _shared_index((*self._index.places, (topic, partition)))
        else:
            if not isinstance(self.entries, bytearray):
                self.entries, self._index = bytearray(self.entries), _Index(self._index.places)
            self._index.add(topic, partition, position)
        return position

    def _delete(self, topic: str, partition: int, position: int) -> None:
        index = self._index
        if isinstance(self.entries, bytearray) and 2 * index.count * _ENTRY.size > len(self.entries):
            index.remove(topic, partition)  # The entry stays, and is not used any more.
            self._forget_details(position)
            return
        kept = [(name, number, each) for name, number, each in self if (name, number) != (topic, partition)]
        self._clear()
        for name, number, each in kept:
            self.apply(name, number, each.value())

    def _forget_details(self, position: int) -> None:
        if self.details.pop(position, None) is not None:
            self.details = self.details or _NO_DETAILS
