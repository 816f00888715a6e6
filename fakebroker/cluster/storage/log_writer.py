"""`LogWriter`: writes the changes of one partition's log as entries."""

from collections.abc import Callable

from fakebroker.cluster.storage.entries import OFFSET, PARTITION, Kind, Storage
from fakebroker.errors import DiskFullError
from fakebroker.protocol.records import RecordBatch

SPARE_BYTES = 1024 * 1024
"""Space that appends and requests leave free, for changes that cannot be refused: elections, expired records."""


class LogWriter:
    """Implements `fakebroker.cluster.logs.partition_log.LogStorage`.

    Args:
        storage: Where entries are written.
        topic_id: The id of the topic.
        index: The index of the partition.
        before: Called before each entry, to write the topic first if it has changed.
    """

    __slots__ = ("_before", "_key", "_storage")

    def __init__(self, storage: Storage, topic_id: bytes, index: int, before: Callable[[], None]) -> None:
        self._storage = storage
        self._key = PARTITION.pack(topic_id, index)
        self._before = before

    def append(self, batch: RecordBatch) -> None:
        self._before()
        data = batch.data
        require_space(self._storage, len(data))
        self._storage.write(Kind.BATCH, (self._key, data))

    def move_start(self, offset: int) -> None:
        self._before()
        self._storage.write(Kind.START, (self._key, OFFSET.pack(offset)))

    def truncate_to(self, offset: int) -> None:
        self._before()
        self._storage.write(Kind.TRUNCATION, (self._key, OFFSET.pack(offset)))


def has_space(storage: Storage, size_bytes: int = 0) -> bool:
    """Return whether entries of this size can be written without using the spare space."""
    return storage.reserve(size_bytes + SPARE_BYTES)


def require_space(storage: Storage, size_bytes: int = 0) -> None:
    """Check that there is space.

    Raises:
        DiskFullError: There is none.
    """
    if not has_space(storage, size_bytes):
        raise DiskFullError.of(storage.path, "the disk is full", "free space; until there is some, writes are refused")
