"""`StateWriter`: writes the changes of a cluster's state as entries."""

from collections.abc import Callable

from fakebroker.cluster.cluster import Cluster
from fakebroker.cluster.storage.entries import Kind, Storage, StoredIds, StoredPartition, StoredTopic, encode
from fakebroker.cluster.storage.guarded_handlers import GuardedHandlers
from fakebroker.cluster.storage.log_writer import LogWriter, has_space, require_space
from fakebroker.cluster.storage.sections import SECTIONS
from fakebroker.cluster.topics import Topic


class StateWriter:
    """Writes the changes of one cluster. Implements `ClusterStorage` and `TopicStorage`.

    Changes of logs are written at once, before they are made; those of topics before the next change of a log; all
    others by `write_changes`, which is called before responses are sent.

    Args:
        cluster: The cluster. Everything that it has is recorded by the first `write_changes`, except logs: a stored
            state is restored between.
        storage: Where entries are written.
        starts: How often the cluster was started before.

    Attributes:
        sections_may_differ: Whether a request or command may have changed a section since the last `write_changes`.
        was_replaced: Whether all topics were replaced. Nothing is written then, until a checkpoint has the new state
            and `resume` is called, because entries of both states cannot be told apart.
    """

    def __init__(self, cluster: Cluster, storage: Storage, starts: int) -> None:
        self._cluster = cluster
        self._storage = storage
        self._starts = starts
        self._ids: StoredIds | None = None
        self._sections: dict[Kind, bytes] = {}
        self._changed: dict[bytes, Topic] = {}
        self.sections_may_differ = True
        self.was_replaced = False
        cluster.storage = cluster.topics.storage = self
        cluster.handlers = GuardedHandlers(self)
        self._attach_all()

    # ClusterStorage

    def has_space(self) -> bool:
        """Return whether changes can be stored."""
        return has_space(self._storage)

    def require_space(self, size_bytes: int = 0) -> None:
        """Check that changes can be stored, and batches of this size.

        Raises:
            DiskFullError: They cannot, because the disk is full.
        """
        require_space(self._storage, size_bytes)

    # TopicStorage

    def attach(self, topic: Topic) -> None:
        if self.was_replaced:
            return
        for partition in topic.partitions:
            if partition.log.storage is None:
                partition.log.storage = LogWriter(self._storage, topic.topic_id, partition.index, self._write_topics)
        self._changed[topic.topic_id] = topic

    def changed(self, topic: Topic) -> None:
        if topic.partitions[0].log.storage is not None:
            self._changed[topic.topic_id] = topic

    def deleted(self, topic: Topic) -> None:
        for partition in topic.partitions:
            partition.log.storage = None
        self._changed.pop(topic.topic_id, None)
        if not self.was_replaced:
            self._storage.write(Kind.DELETED_TOPIC, (topic.topic_id,))

    def replaced(self) -> None:
        self._changed.clear()
        if self._ids is None:  # By the stored state, after a start: what follows continues it.
            self._attach_all()
        else:
            self.was_replaced = True

    def resume(self) -> None:
        """Continue after a checkpoint of the state that has replaced the earlier one."""
        self.was_replaced, self.sections_may_differ = False, True
        self._attach_all()

    def _attach_all(self) -> None:
        for topic in self._cluster.topics.all():
            self.attach(topic)

    # Writing

    def write_changes(self) -> None:
        """Write the topics and sections that have changed."""
        if self.was_replaced:
            return
        self._write_topics()
        ids = self._current_ids()
        if ids != self._ids:
            self._ids = ids
            self._storage.write(Kind.IDS, (encode(ids),))
        if self.sections_may_differ:
            self.sections_may_differ = False
            for kind, section in SECTIONS.items():
                encoded = encode(section.read(self._cluster))
                if encoded != self._sections.get(kind):
                    self._sections[kind] = encoded
                    self._storage.write(kind, (encoded,))

    def write_all(self, write: Callable[[Kind, bytes], object]) -> None:
        """Write all topics and sections, for a checkpoint."""
        write(Kind.IDS, encode(self._current_ids()))
        for kind, section in SECTIONS.items():
            write(kind, encode(section.read(self._cluster)))
        for topic in self._cluster.topics.all():
            write(Kind.TOPIC, self._encoded(topic))

    def _write_topics(self) -> None:
        if self._changed:
            changed, self._changed = self._changed, {}
            for topic in changed.values():
                self._storage.write(Kind.TOPIC, (self._encoded(topic),))

    def _current_ids(self) -> StoredIds:
        cluster = self._cluster
        return StoredIds(
            cluster.cluster_id,
            self._starts + 1,
            cluster.next_producer_id,
            cluster.placed_topics,
        )

    def _encoded(self, topic: Topic) -> bytes:
        partitions = [
            StoredPartition(each.replicas, each.leader_epoch, each.adding, each.removing, each.copying)
            for each in topic.partitions
        ]
        is_visible = topic.name in self._cluster.topics
        return encode(StoredTopic(topic.topic_id, topic.name, is_visible, dict(topic.configs), partitions))
