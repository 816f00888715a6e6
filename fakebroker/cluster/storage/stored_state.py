"""`StoredState`: the state that results from entries, and a cluster restored from it after a start."""

from collections import deque
from collections.abc import Container, Iterable
from dataclasses import replace
from typing import Any

import msgspec

from fakebroker.cluster import snapshot as snapshots
from fakebroker.cluster.cluster import Cluster
from fakebroker.cluster.configs.log_config import log_config
from fakebroker.cluster.logs.compactor import Compactor
from fakebroker.cluster.logs.partition_log import LeaderEpochs, PartitionLog
from fakebroker.cluster.logs.producer_state import RETAINED_BATCHES, Producer, Producers
from fakebroker.cluster.storage.entries import (
    OFFSET,
    PARTITION,
    Kind,
    StoredIds,
    StoredLog,
    StoredProducer,
    StoredTopic,
)
from fakebroker.cluster.storage.sections import SECTIONS
from fakebroker.cluster.topics import OFFSETS_TOPIC, TRANSACTIONS_TOPIC, Partition, Topic
from fakebroker.errors import FakebrokerError
from fakebroker.protocol.records import RecordBatch, split_batches

_ALL_BYTES = -1
"""The retention of a log while its entries are applied: what was dropped has entries of its own."""


class StoredState:
    """The state after some entries, to which `apply` adds more.

    Attributes:
        ids: Ids and counters; None if there were no entries.
        topics: The topics by id, in the order of their creation.
        sections: The contents of the sections that were stored.
    """

    def __init__(self) -> None:
        self.ids: StoredIds | None = None
        self.topics: dict[bytes, StoredTopic] = {}
        self.sections: dict[Kind, Any] = {}
        self._logs: dict[bytes, PartitionLog] = {}

    @property
    def starts(self) -> int:
        """How often the cluster was started."""
        return 0 if self.ids is None else self.ids.starts

    def log(self, topic_id: bytes, index: int) -> PartitionLog:
        """Return the log of a partition."""
        return self._log(PARTITION.pack(topic_id, index))

    def apply_all(self, entries: Iterable[tuple[int, memoryview]]) -> None:
        """Apply entries: kinds and payloads.

        Raises:
            FakebrokerError: An entry has an unknown kind, its partition does not exist, or its log ends elsewhere.
            msgspec.DecodeError: The content of an entry is malformed.
        """
        logs, size = self._logs, PARTITION.size
        for kind, payload in entries:
            if self.ids is None and kind != Kind.IDS:
                raise FakebrokerError(f"first entry of kind {kind}: expected {Kind.IDS:d}, that of ids")
            if kind != Kind.BATCH:
                self._apply(kind, payload)
                continue
            # Most entries; the other methods would take more time than the append.
            log = logs.get(bytes(payload[:size])) or self._log(bytes(payload[:size]))
            batch = RecordBatch(bytes(payload[size:]))
            if batch.base_offset != log.log_end_offset:
                raise FakebrokerError(f"batch at offset {batch.base_offset}: expected {log.log_end_offset}")
            log.append_batch(batch, batch.partition_leader_epoch, of_producer=True)

    def _apply(self, kind: int, payload: memoryview) -> None:
        match kind:
            case Kind.START | Kind.TRUNCATION | Kind.LOG | Kind.BATCHES:
                self._apply_to_log(kind, bytes(payload[: PARTITION.size]), payload[PARTITION.size :])
            case Kind.TOPIC:
                self._add(msgspec.msgpack.decode(payload, type=StoredTopic))
            case Kind.DELETED_TOPIC:
                self._delete(bytes(payload))
            case Kind.IDS:
                self.ids = msgspec.msgpack.decode(payload, type=StoredIds)
                if self.ids.starts < 1:
                    raise FakebrokerError(f"{self.ids.starts} starts: expected at least 1")
            case _ if kind in SECTIONS:
                self.sections[Kind(kind)] = msgspec.msgpack.decode(payload, type=SECTIONS[Kind(kind)].type)
            case _:
                raise FakebrokerError(f"entry of kind {kind}: expected 1 to {len(Kind)}")

    def _add(self, topic: StoredTopic) -> None:
        """Add a topic, or change it. It is the last one if it was not visible before."""
        earlier = self.topics.get(topic.topic_id)
        if earlier is not None and topic.is_visible and not earlier.is_visible:
            del self.topics[topic.topic_id]
        self.topics[topic.topic_id] = topic

    def _delete(self, topic_id: bytes) -> None:
        topic = self.topics.pop(topic_id, None)
        for index in range(0 if topic is None else len(topic.partitions)):
            self._logs.pop(PARTITION.pack(topic_id, index), None)

    def _log(self, key: bytes) -> PartitionLog:
        log = self._logs.get(key)
        if log is None:
            log = self._logs[key] = self._new_log(key)
        return log

    def _new_log(self, key: bytes) -> PartitionLog:
        topic_id, index = PARTITION.unpack(key)
        topic = self.topics.get(topic_id)
        if topic is None or index >= len(topic.partitions):
            expected = "a topic that exists" if topic is None else f"0 to {len(topic.partitions) - 1}"
            raise FakebrokerError(f"entry of partition {index} of topic {topic_id.hex()}: expected {expected}")
        return PartitionLog(_ALL_BYTES, Compactor() if topic.name in (OFFSETS_TOPIC, TRANSACTIONS_TOPIC) else None)

    def _apply_to_log(self, kind: int, key: bytes, content: memoryview) -> None:
        if kind == Kind.LOG:
            self._logs[key] = self._stored_log(key, msgspec.msgpack.decode(content, type=StoredLog))
            return
        log = self._log(key)
        if kind == Kind.BATCHES:
            for batch in split_batches(bytes(content)):
                log.append_batch(batch, batch.partition_leader_epoch)
        elif kind == Kind.START:
            log.truncate_before(OFFSET.unpack(content)[0])
        else:
            log.truncate_to(OFFSET.unpack(content)[0])

    def _stored_log(self, key: bytes, stored: StoredLog) -> PartitionLog:
        log = self._new_log(key)
        if not 0 <= stored.log_start_offset <= stored.log_end_offset:
            offsets = f"log start offset {stored.log_start_offset}, log end offset {stored.log_end_offset}"
            raise FakebrokerError(f"{offsets}: expected them in order, from 0 on")
        log.log_start_offset, log.log_end_offset = stored.log_start_offset, stored.log_end_offset
        log.epochs = LeaderEpochs(stored.epochs)
        log.producers = Producers.restored(map(_producer, stored.producers), stored.aborted)
        return log


def _producer(stored: StoredProducer) -> Producer:
    return Producer(
        stored.producer_id,
        stored.epoch,
        stored.last_timestamp_ms,
        stored.last_offset,
        deque(stored.batches, RETAINED_BATCHES),
        stored.coordinator_epoch,
        stored.transaction_offset,
    )


def restore(cluster: Cluster, stored: StoredState, now_ms: float) -> None:
    """Restore a new cluster, without topics, to a stored state, with all brokers up.

    Leaders are elected again, under new leader epochs. Groups and transactions are loaded from their logs, as after a
    failover.

    Args:
        cluster: The cluster. It may have more brokers than the stored one.
        stored: The state. At least its ids must be known.
        now_ms: The brokers' time in milliseconds.

    Raises:
        ConfigError: The cluster lacks a stored broker.
    """
    ids = stored.ids
    assert ids is not None
    cluster.cluster_id = ids.cluster_id
    cluster.placement.placed_topics = ids.placed_topics
    cluster.next_producer_id = ids.next_producer_id
    for kind, content in stored.sections.items():
        SECTIONS[kind].restore(cluster, content)
    topics = [_topic(each, stored, cluster.brokers) for each in stored.topics.values()]
    is_used = all(each.is_visible for each in stored.topics.values())
    snapshot = replace(snapshots.take(cluster), topics=topics, offsets_topic_is_used=is_used)
    snapshots.restore(cluster, snapshot, now_ms)
    for topic in cluster.topics:
        for partition in () if topic.is_internal else topic.partitions:
            config = log_config(cluster, cluster.brokers[partition.leader_id], topic)
            if config.is_compacted:  # Records that were dropped before the start must not count for the retention.
                partition.log.compact(now_ms, config.min_compaction_lag_ms, config.delete_retention_ms)
            partition.log.retain(config.keep_bytes)


def _topic(stored: StoredTopic, state: StoredState, node_ids: Container[int]) -> Topic:
    """Return a topic with its logs. The first in-sync replica of each partition is its leader.

    Raises:
        FakebrokerError: A replica is on an unknown broker.
    """
    topic = Topic(stored.name, stored.topic_id, [], stored.configs)
    for index, each in enumerate(stored.partitions):
        if any(node_id not in node_ids for node_id in each.replicas):
            raise FakebrokerError(f"replicas of {stored.name}-{index}: {each.replicas}: expected stored brokers")
        leader_id = next(node_id for node_id in each.replicas if node_id not in each.copying)
        topic.partitions.append(
            Partition(
                topic,
                index,
                each.replicas,
                leader_id,
                leader_id,
                state.log(topic.topic_id, index),
                leader_epoch=each.leader_epoch + 1,
                adding=each.adding,
                removing=each.removing,
                copying=each.copying,
            )
        )
    return topic
