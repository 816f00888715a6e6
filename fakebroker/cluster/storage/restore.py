"""Restore a cluster from stored entries, after a start."""

from collections.abc import Container
from dataclasses import replace

from fakebroker.cluster import snapshot as snapshots
from fakebroker.cluster.cluster import Cluster
from fakebroker.cluster.configs.log_config import log_config
from fakebroker.cluster.storage.entries import StoredTopic
from fakebroker.cluster.storage.sections import SECTIONS
from fakebroker.cluster.storage.stored_state import StoredState
from fakebroker.cluster.topics import Partition, Topic
from fakebroker.errors import FakebrokerError


def restore(cluster: Cluster, stored: StoredState, now_ms: float) -> None:
    """Restore a new cluster, without topics, to a stored state, with all brokers up.

    Leaders are elected again, under new leader epochs. Groups and transactions are loaded from their logs, as after a
    failover.

    Args:
        cluster: The cluster. It may have more brokers than the stored one.
        stored: The state, of which at least the ids are known.
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
