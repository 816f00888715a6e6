"""`LogWriter`: writes the changes of one partition's log as entries."""

from fakebroker.cluster.storage.entries import OFFSET, PARTITION, Kind
from fakebroker.cluster.storage.entry_writer import EntryWriter
from fakebroker.protocol.records import RecordBatch


class LogWriter:
    """Implements `fakebroker.cluster.logs.partition_log.LogStorage`.

    Args:
        entries: Writes the entries.
        topic_id: The id of the topic.
        index: The index of the partition.
    """

    __slots__ = ("_entries", "_key")

    def __init__(self, entries: EntryWriter, topic_id: bytes, index: int) -> None:
        self._entries = entries
        self._key = PARTITION.pack(topic_id, index)

    def append(self, batch: RecordBatch) -> None:
        self._entries.append(Kind.BATCH, self._key, batch.data)

    def move_start(self, offset: int) -> None:
        self._entries.write(Kind.START, self._key, OFFSET.pack(offset))

    def truncate_to(self, offset: int) -> None:
        self._entries.write(Kind.TRUNCATION, self._key, OFFSET.pack(offset))
