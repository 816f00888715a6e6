"""`StateWriter`: writes the changes of a cluster's state as entries."""

from collections.abc import Callable

from fakebroker.cluster.cluster import Cluster
from fakebroker.cluster.storage.entries import (
    OFFSET,
    PARTITION,
    Kind,
    Storage,
    StoredIds,
    StoredPartition,
    StoredTopic,
    encode,
)
from fakebroker.cluster.storage.entry_writer import EntryWriter
from fakebroker.cluster.storage.guarded_handlers import GuardedHandlers
from fakebroker.cluster.storage.sections import SECTIONS
from fakebroker.cluster.topics import Topic
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


class StateWriter:
    """Writes the changes of one cluster. Implements `ClusterStorage` and `TopicStorage`.

    A change of a log is written at once, before it is made. A changed topic is written before the next change of a log,
    or by `write_changes`. A changed section is written by `write_changes`, which is called before responses are sent.

    When the disk is full, requests and commands that change the state are refused: no response claims their changes.
    Changes that cannot be refused, such as the election of a leader, are written later (see `EntryWriter`).

    Args:
        cluster: The cluster. The first `write_changes` writes all its topics and sections, but no logs. Logs are
            empty then, or were restored from the stored state.
        storage: Where entries are written.
        starts: How often the cluster was started before.

    Attributes:
        sections_may_differ: Whether a request or command may have changed a section since the last `write_changes`.
        was_replaced: Whether all topics were replaced, as by a reset. Until a checkpoint has the new state and `resume`
            is called, nothing is written: entries of the old and the new state could not be told apart.
    """

    def __init__(self, cluster: Cluster, storage: Storage, starts: int) -> None:
        self._cluster = cluster
        self._entries = EntryWriter(storage, self._encoded)
        self._starts = starts
        self._ids: StoredIds | None = None
        self._sections: dict[Kind, bytes] = {}
        self.sections_may_differ = True
        self.was_replaced = False
        cluster.storage = cluster.topics.storage = self
        cluster.requests.handlers = GuardedHandlers(self)
        if not starts:  # The ids are the first entry, so that a crash never leaves other entries without ids.
            self._entries.write_section(Kind.IDS, encode(self._current_ids()))
        self._attach_all()

    # ClusterStorage

    def claim(self, growth_bytes: int = 0, log_bytes: int = 0) -> bool:
        """Claim space for a change of topics and sections. Return False if there is none; see `EntryWriter.claim`."""
        if not self._entries.claim(growth_bytes, log_bytes):
            return False
        self.sections_may_differ = True
        return True

    def require_space(self, growth_bytes: int = 0, log_bytes: int = 0) -> None:
        """Like `claim`, but raise an error.

        Raises:
            DiskFullError: There is no space.
        """
        if not self.claim(growth_bytes, log_bytes):
            raise self._entries.full()

    # TopicStorage

    def attach(self, topic: Topic) -> None:
        if self.was_replaced:
            return
        for partition in topic.partitions:
            if partition.log.storage is None:
                partition.log.storage = LogWriter(self._entries, topic.topic_id, partition.index)
        self._entries.topic_changed(topic)

    def changed(self, topic: Topic) -> None:
        if topic.partitions[0].log.storage is not None:
            self._entries.topic_changed(topic)

    def deleted(self, topic: Topic) -> None:
        for partition in topic.partitions:
            partition.log.storage = None
        if not self.was_replaced:
            self._entries.topic_deleted(topic.topic_id)

    def replaced(self) -> None:
        self._entries.forget_topics()
        if self._ids is None:  # A start has restored the stored state. The next entries continue it.
            self._attach_all()
        else:
            self.was_replaced = True

    def resume(self) -> None:
        """Continue after all topics were replaced and a checkpoint has the new state."""
        self.was_replaced, self.sections_may_differ = False, True
        self._attach_all()

    def _attach_all(self) -> None:
        for topic in self._cluster.topics.all():
            self.attach(topic)

    # Writing

    @property
    def is_behind(self) -> bool:
        """Whether changes are not written yet. If it is true after `write_changes`, the disk is full."""
        return self._entries.is_behind or self.sections_may_differ

    def write_changes(self) -> None:
        """Write the topics and sections that have changed, as far as there is space."""
        if self.was_replaced:
            return
        self._entries.catch_up()
        ids = self._current_ids()
        if ids != self._ids and self._entries.write_section(Kind.IDS, encode(ids)):
            self._ids = ids
        if self.sections_may_differ:
            self.sections_may_differ = False
            for kind, section in SECTIONS.items():
                encoded = encode(section.read(self._cluster))
                if encoded == self._sections.get(kind):
                    continue
                if self._entries.write_section(kind, encoded):
                    self._sections[kind] = encoded
                else:
                    self.sections_may_differ = True
        self._entries.release_claims()

    def write_all(self, write: Callable[[Kind, bytes], object]) -> None:
        """Write all topics and sections, for a checkpoint."""
        write(Kind.IDS, encode(self._current_ids()))
        for kind, section in SECTIONS.items():
            write(kind, encode(section.read(self._cluster)))
        for topic in self._cluster.topics.all():
            write(Kind.TOPIC, self._encoded(topic))

    def _current_ids(self) -> StoredIds:
        cluster = self._cluster
        return StoredIds(
            cluster.cluster_id,
            self._starts + 1,
            cluster.next_producer_id,
            cluster.placement.placed_topics,
        )

    def _encoded(self, topic: Topic) -> bytes:
        partitions = [
            StoredPartition(each.replicas, each.leader_epoch, each.adding, each.removing, each.copying)
            for each in topic.partitions
        ]
        is_visible = topic.name in self._cluster.topics
        return encode(StoredTopic(topic.topic_id, topic.name, is_visible, dict(topic.configs), partitions))
