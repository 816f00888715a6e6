"""Subscriptions and assignments in the bytes of the classic protocol (Kafka's `ConsumerProtocol`).

`protocol/consumer_protocol.py` does the same for clients, and this package must not import it. Bytes after the last
field are ignored, and versions above 3 are read as 3, as in Kafka.
"""

import struct
from collections.abc import Mapping

import msgspec

from fakebroker.coordinator.group.modern.member import Partitions
from fakebroker.coordinator.group.modern.subscription.topics import TopicImage
from fakebroker.utf8 import decode_utf8

_INT16, _INT32 = struct.Struct(">h"), struct.Struct(">i")
_NEWEST_VERSION = 3


class MalformedProtocolError(Exception):
    """Bytes that are not a subscription or an assignment.

    Attributes:
        is_schema_error: Whether Kafka finds this itself (`SchemaException`): the bytes end early, or the version is
            negative. Other faults are unexpected in Kafka.
    """

    def __init__(self, message: str, *, is_schema_error: bool) -> None:
        super().__init__(message)
        self.is_schema_error = is_schema_error


class EmbeddedSubscription(msgspec.Struct, frozen=True):
    """The metadata of a member: its topics, the partitions that it owns, and its rack, if it has one."""

    topics: tuple[str, ...]
    owned: Mapping[str, tuple[int, ...]]
    rack_id: str | None


class EmbeddedAssignment(msgspec.Struct, frozen=True):
    """The assignment of a member; user data are those of an assignor that is not Kafka's."""

    partitions: Mapping[str, tuple[int, ...]]
    user_data: bytes


def parse_subscription(data: bytes) -> EmbeddedSubscription:
    """Parse the metadata of a member.

    Raises:
        MalformedProtocolError: The bytes are not a subscription.
    """
    reader = _Reader(data)
    version = reader.version()
    topics = tuple(reader.text() for _ in range(reader.count()))
    reader.nullable_bytes()
    owned = reader.partitions() if version >= 1 else {}
    if version >= 2:
        reader.int32()  # The generation in which the member owned them.
    return EmbeddedSubscription(topics, owned, (reader.nullable_text() or None) if version >= 3 else None)


def parse_assignment(data: bytes) -> EmbeddedAssignment:
    """Parse the assignment of a member.

    Raises:
        MalformedProtocolError: The bytes are not an assignment.
    """
    reader = _Reader(data)
    reader.version()
    return EmbeddedAssignment(reader.partitions(), reader.nullable_bytes())


def encode_assignment(partitions: Partitions, topics: TopicImage, metadata: bytes) -> bytes:
    """Encode an assignment, without partitions of topics that do not exist now.

    Args:
        partitions: The partitions.
        topics: The topics of the cluster.
        metadata: The metadata of the member: the assignment has its version.

    Raises:
        MalformedProtocolError: The metadata has no valid version.
    """
    version = _Reader(metadata).version()
    named = [(name, sorted(indexes)) for topic_id, indexes in partitions.items() if (name := topics.name_of(topic_id))]
    parts = [_INT16.pack(version), _INT32.pack(len(named))]
    for name, indexes in named:
        encoded = name.encode()
        parts += [_INT16.pack(len(encoded)), encoded, struct.pack(f">{1 + len(indexes)}i", len(indexes), *indexes)]
    return b"".join([*parts, _INT32.pack(-1)])


def with_topic_ids(partitions: Mapping[str, tuple[int, ...]], topics: TopicImage) -> Partitions:
    """Return partitions by topic id, without those of topics that do not exist."""
    found = ((topics.named(name), indexes) for name, indexes in partitions.items() if indexes)
    return {topic.topic_id: frozenset(indexes) for topic, indexes in found if topic is not None}


class _Reader:
    """Reads values one after another."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    def version(self) -> int:
        version = self._number(_INT16)
        if version < 0:
            raise MalformedProtocolError(f"version={version}: expected at least 0", is_schema_error=True)
        return min(version, _NEWEST_VERSION)

    def int32(self) -> int:
        return self._number(_INT32)

    def count(self) -> int:
        """Return the length of an array."""
        count = self.int32()
        if not 0 <= count <= len(self._data) - self._position:
            raise MalformedProtocolError(f"an array of {count} elements", is_schema_error=False)
        return count

    def text(self) -> str:
        text = self.nullable_text()
        if text is None:
            raise MalformedProtocolError("a name is null", is_schema_error=False)
        return text

    def nullable_text(self) -> str | None:
        length = self._number(_INT16)
        return None if length < 0 else decode_utf8(self._bytes(length))

    def nullable_bytes(self) -> bytes:
        """Return bytes; none if they are null."""
        return self._bytes(max(self.int32(), 0))

    def partitions(self) -> dict[str, tuple[int, ...]]:
        return {self.text(): tuple(self.int32() for _ in range(self.count())) for _ in range(self.count())}

    def _number(self, layout: struct.Struct) -> int:
        try:
            (number,) = layout.unpack_from(self._data, self._position)
        except struct.error:
            raise MalformedProtocolError(f"{len(self._data)} bytes end too early", is_schema_error=True) from None
        self._position += layout.size
        return int(number)

    def _bytes(self, length: int) -> bytes:
        start, self._position = self._position, self._position + length
        if self._position > len(self._data):
            raise MalformedProtocolError(f"{length} bytes at {start} end too early", is_schema_error=False)
        return self._data[start : self._position]
