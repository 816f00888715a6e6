"""What a cluster is at one moment, kept so that it can be that again.

Record batches are shared between a cluster and its snapshots, since nobody changes them; everything else is copied.
Knows no sockets: which connections and ports that costs is the caller's business.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from fakebroker.cluster.cluster import Broker, Cluster
from fakebroker.cluster.emulation import Dialect
from fakebroker.cluster.logs.offsets_topic import read_records
from fakebroker.cluster.topics import NO_LEADER, OFFSETS_TOPIC, Partition, Topic
from fakebroker.coordinator.group.records import OffsetRecord, Record
from fakebroker.errors import ConfigError


@dataclass(frozen=True, slots=True, eq=False)
class Snapshot:
    """A cluster at one moment; to be given to `restore`, as often as one likes, and not to be looked into.

    Attributes:
        brokers: As they were; their coordinators and fetch sessions do not count.
        topics: Clones that nobody else has.
        records: What the partitions of __consumer_offsets say, by their number; read when it is needed first.
    """

    cluster_id: str
    brokers: Mapping[int, Broker]
    broker_configs: Mapping[str, str]
    topics: list[Topic]
    placed_topics: int
    next_producer_id: int
    offsets_topic_is_used: bool
    records: dict[int, list[Record]] = field(default_factory=dict)


def take(cluster: Cluster) -> Snapshot:
    """Keep what a cluster is now."""
    return Snapshot(
        cluster_id=cluster.cluster_id,
        brokers={node_id: replace(broker) for node_id, broker in cluster.brokers.items()},
        broker_configs=cluster.broker_configs,
        topics=cluster.topics.clones(),
        placed_topics=cluster.placed_topics,
        next_producer_id=cluster.next_producer_id,
        offsets_topic_is_used=cluster.offsets_topic_is_used,
    )


def check(cluster: Cluster, snapshot: Snapshot) -> None:
    """Raises ConfigError if a snapshot is another cluster's."""
    if snapshot.cluster_id != cluster.cluster_id:
        raise ConfigError(f"snapshot of cluster {snapshot.cluster_id}: expected one of cluster {cluster.cluster_id}")


def restore(cluster: Cluster, snapshot: Snapshot, now_ms: float) -> None:
    """Let a cluster be again what it was.

    Whoever waits for an answer gets one. Groups come back as loaded from their log, whatever leader their partition of
    __consumer_offsets had: rounds under way do not, and sessions start anew. Time, ids, and the ids of producers do not
    go back, and nor do leader epochs of partitions that clients may know.
    """
    _let_go(cluster, now_ms)
    cluster.brokers = {node_id: _restored(cluster, broker) for node_id, broker in snapshot.brokers.items()}
    cluster.broker_configs = snapshot.broker_configs
    cluster.placed_topics = snapshot.placed_topics
    cluster.next_producer_id = max(cluster.next_producer_id, snapshot.next_producer_id)
    cluster.offsets_topic_is_used = snapshot.offsets_topic_is_used
    topics = [topic.clone() for topic in snapshot.topics]
    for topic in topics:
        known = cluster.topics.find("", topic.topic_id, by_id=True)
        for partition, former in zip(topic.partitions, known.partitions if known else (), strict=False):
            partition.leader_epoch = _leader_epoch(partition, former)
    cluster.topics.replace_all(topics)
    _load(cluster, snapshot, now_ms)


def start_over(cluster: Cluster, fresh: Cluster, now_ms: float) -> None:
    """Let a cluster be as one that has just been made: nothing of what happened is known, and ids begin anew."""
    restore(cluster, take(fresh), now_ms)
    cluster.next_producer_id = fresh.next_producer_id
    cluster.new_id = fresh.new_id
    cluster.journal, cluster.history = fresh.journal, fresh.history
    cluster.faults.start_over(fresh.faults)


def _leader_epoch(partition: Partition, former: Partition) -> int:
    """That of the snapshot, or a new one if there has been another since: clients ignore one older than they know."""
    if former.leader_epoch == partition.leader_epoch:
        return partition.leader_epoch
    return max(former.leader_epoch, partition.leader_epoch) + 1


def _let_go(cluster: Cluster, now_ms: float) -> None:
    """Answer everybody who waits, and end holds, delays and faults."""
    cluster.group_controls.clear()
    cluster.faults.rules.clear()
    for broker in cluster.brokers.values():
        for index in dict.fromkeys(group.partition for group in broker.coordinator.groups()):
            broker.coordinator.resign(index, now_ms)
    cluster.settle(now_ms)
    for call, response in cluster.sync_delays.release_all():
        cluster.answer(call, response, now_ms)
    for topic in cluster.topics:
        for partition in topic.partitions:
            cluster.purgatory.release(partition)  # They are read anew, from what is there then.
    for state in (cluster.controller.loading, cluster.controller.stale, cluster.controller.zombies):
        state.clear()


def _restored(cluster: Cluster, kept: Broker) -> Broker:
    """A broker as it was: the one that there is, which connections know, or a new one in the place of one removed."""
    fresh = cluster.new_broker(kept.node_id, Dialect(kept.release, kept.versions))
    broker = cluster.brokers.get(kept.node_id) or replace(kept)
    for name in ("release", "versions", "coordinator", "fetch_sessions"):
        setattr(broker, name, getattr(fresh, name))
    broker.up, broker.configs = kept.up, kept.configs
    return broker


def _load(cluster: Cluster, snapshot: Snapshot, now_ms: float) -> None:
    """Let the coordinators read the partitions of __consumer_offsets that their brokers lead."""
    offsets_topic = cluster.topics.get(OFFSETS_TOPIC)
    assert offsets_topic is not None
    for partition in offsets_topic.partitions:
        if partition.leader_id == NO_LEADER:
            continue
        index = partition.index
        if index not in snapshot.records:
            snapshot.records[index] = _newest(read_records(partition.log, index))
        coordinator = cluster.brokers[partition.leader_id].coordinator
        coordinator.start_loading(index)
        coordinator.finish_loading(index, snapshot.records[index], now_ms)


def _newest(records: list[Record]) -> list[Record]:
    """Of each group and offset the last record; nothing else counts for who reads them all."""
    newest: dict[tuple[str, str, int], Record] = {}
    for record in records:
        topic, index = (record.topic, record.partition) if isinstance(record, OffsetRecord) else ("", -1)
        key = (record.group_id, topic, index)
        newest.pop(key, None)
        newest[key] = record
    return list(newest.values())
