"""The topics of the cluster, as consumer groups see them, and the hash by which a group notices their changes."""

from collections.abc import Iterable
from struct import pack
from typing import NamedTuple, Protocol

from fakebroker.assignment import java_order
from fakebroker.coordinator.group.modern.subscription.xxh3 import xxh3


class TopicMetadata(NamedTuple):
    """A topic: its id of 16 bytes, its name, and its number of partitions."""

    topic_id: bytes
    name: str
    partition_count: int


class TopicImage(Protocol):
    """The topics of the cluster.

    Attributes:
        version: Rises whenever a topic is created or deleted, or gets partitions or other replicas.
        created_version: The version when a topic was created last.
    """

    @property
    def version(self) -> int: ...

    @property
    def created_version(self) -> int: ...

    def names(self) -> Iterable[str]:
        """Return the names of all topics."""

    def named(self, name: str) -> TopicMetadata | None:
        """Return a topic, or None if there is none with this name now."""

    def hash_of(self, name: str) -> int:
        """Return the hash of a topic that exists (see `topic_hash`)."""

    def name_of(self, topic_id: bytes) -> str | None:
        """Return the name of a topic, or None if there is none with this id now."""


class _NoTopics:
    """A cluster without topics."""

    version = 0
    created_version = 0

    def names(self) -> Iterable[str]:
        return ()

    def named(self, name: str) -> TopicMetadata | None:
        return None

    def hash_of(self, name: str) -> int:
        raise KeyError(name)

    def name_of(self, topic_id: bytes) -> str | None:
        return None


NO_TOPICS = _NoTopics()


def metadata_hash(names: Iterable[str], topics: TopicImage) -> int:
    """Return a hash of the topics with these names, 64 bits, signed; 0 if there are none.

    Source: `ModernGroup.computeMetadataHash`, `Utils.computeGroupHash`.
    """
    hashes = [topics.hash_of(name) for name in sorted(names) if topics.named(name) is not None]
    if not hashes:
        return 0
    hash_ = xxh3(pack(f"<{len(hashes)}Q", *hashes))
    return hash_ - (hash_ >> 63 << 64)


def topic_hash(topic: TopicMetadata, racks: Iterable[Iterable[str]]) -> int:
    """Return the hash of one topic, from 0 to 2**64 - 1 (`Utils.computeTopicHash`).

    Args:
        topic: The topic.
        racks: For each partition, the racks of its replicas; without those of replicas that have none.
    """
    data = bytearray((_HASH_VERSION,))
    data += topic.topic_id[7::-1] + topic.topic_id[:7:-1]
    data += _string(topic.name) + _int(topic.partition_count)
    for index, each in enumerate(racks):
        data += _int(index)
        for rack in sorted(each, key=java_order):
            encoded = _string(rack)
            data += encoded[-_INT_SIZE:] + encoded
    return xxh3(bytes(data))


_HASH_VERSION, _INT_SIZE = 0, 4


def _int(value: int) -> bytes:
    return value.to_bytes(_INT_SIZE, "little")


def _string(text: str) -> bytes:
    """Encode a text as hash4j's `putString` does: its characters, then their number."""
    characters = text.encode("utf-16-le")
    return characters + _int(len(characters) // 2)
