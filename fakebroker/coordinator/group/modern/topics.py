"""The topics of the cluster, as consumer groups see them, and the hash by which a group notices their changes."""

from collections.abc import Iterable
from typing import NamedTuple, Protocol
from zlib import adler32, crc32


class TopicMetadata(NamedTuple):
    """A topic: its id of 16 bytes, its name, and its number of partitions."""

    topic_id: bytes
    name: str
    partition_count: int


class TopicImage(Protocol):
    """The topics of the cluster.

    Attributes:
        version: Rises whenever a topic is created or deleted or gets partitions.
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

    def name_of(self, topic_id: bytes) -> str | None:
        return None


NO_TOPICS = _NoTopics()


def metadata_hash(names: Iterable[str], topics: TopicImage) -> int:
    """Return a hash of the topics with these names, 64 bits, signed; 0 if there are none.

    It changes with the topics' ids and their numbers of partitions (KIP-1101). Kafka's hash also has the racks of
    replicas, and is another function (XXH3), so the numbers in the log differ from Kafka's. Two checksums take less
    time to import than `hashlib`.
    """
    found = [metadata for name in sorted(names) if (metadata := topics.named(name)) is not None]
    if not found:
        return 0
    data = repr(found).encode()
    return (crc32(data) << 32 | adler32(data)) - 2**63
