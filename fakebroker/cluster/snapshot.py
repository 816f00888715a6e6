"""Take a snapshot of a cluster, restore it, and reset a cluster.

Record batches are shared between a cluster and its snapshots, because they are never modified; everything else is
copied. Does not depend on connections and ports, which the server restores.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from msgspec.structs import astuple

from fakebroker.cluster.broker import BrokerNode
from fakebroker.cluster.cluster import Cluster
from fakebroker.cluster.emulation import EmulatedRelease
from fakebroker.cluster.features import Features
from fakebroker.cluster.logs.coordinator_records import read_records
from fakebroker.cluster.quotas import Entity
from fakebroker.cluster.topics import NO_LEADER, Partition, Topic
from fakebroker.coordinator.records import CoordinatorRecord, Record
from fakebroker.errors import ConfigError
from fakebroker.protocol.messages.consumer_offsets import GroupMetadataKey, OffsetCommitKey
from fakebroker.security.acls import AclStore
from fakebroker.security.credentials import Credentials


@dataclass(frozen=True, slots=True, eq=False)
class Snapshot:
    """The state of a cluster at one moment. Opaque to users; can be restored more than once.

    Attributes:
        cluster_id: Id of the cluster. Only this cluster can restore the snapshot.
        brokers: The brokers by node id; their coordinators and fetch sessions are not used.
        broker_configs: The cluster-wide dynamic configs of brokers.
        resource_configs: The configs of groups and of subscriptions of client metrics.
        quotas: The quotas of clients.
        features: A copy of the finalized features.
        topics: Copies of the topics.
        placed_topics: See `ReplicaPlacement`.
        next_producer_id: See `Cluster`.
        offsets_topic_is_used: See `Topics`.
        acls: A copy of the ACLs; None without an authorizer.
        credentials: A copy of the users.
        proposed: What the groups of a proposal have saved.
        records: A cache of the records of each partition of __consumer_offsets, filled by the first `restore`.
    """

    cluster_id: str
    brokers: Mapping[int, BrokerNode]
    broker_configs: Mapping[str, str]
    resource_configs: Mapping[tuple[int, str], Mapping[str, str]]
    quotas: Mapping[Entity, Mapping[str, float]]
    features: Features
    topics: list[Topic]
    placed_topics: int
    next_producer_id: int
    offsets_topic_is_used: bool
    acls: AclStore | None
    credentials: Credentials
    proposed: object = None
    records: dict[int, list[Record]] = field(default_factory=dict)


def take(cluster: Cluster) -> Snapshot:
    """Take a snapshot of a cluster."""
    return Snapshot(
        cluster_id=cluster.cluster_id,
        brokers={node_id: replace(broker) for node_id, broker in cluster.brokers.items()},
        broker_configs=cluster.broker_configs,
        resource_configs=cluster.resource_configs,
        quotas=cluster.quotas.limits,
        features=cluster.features.copy(),
        topics=cluster.topics.clones(),
        placed_topics=cluster.placement.placed_topics,
        next_producer_id=cluster.next_producer_id,
        offsets_topic_is_used=cluster.topics.offsets_topic_is_used,
        acls=None if cluster.acls is None else cluster.acls.copy(),
        credentials=cluster.credentials.copy(),
        proposed=None if cluster.proposed is None else cluster.proposed.saved(),
    )


def check(cluster: Cluster, snapshot: Snapshot) -> None:
    """Raise ConfigError if a snapshot belongs to another cluster."""
    if snapshot.cluster_id != cluster.cluster_id:
        raise ConfigError.of(
            "cluster_id", snapshot.cluster_id, f"{cluster.cluster_id!r}, this cluster", where="snapshot"
        )


def stored_bytes(cluster: Cluster, snapshot: Snapshot) -> int:
    """Return the size of what is stored of the topics of a snapshot, at most, with their records and configs."""
    size_bytes = 0
    for topic in snapshot.topics:
        size_bytes += len(topic.name) + sum(len(name) + len(value) for name, value in topic.configs.items())
        size_bytes += sum(each.log.size_bytes + cluster.partition_bytes for each in topic.partitions)
    return size_bytes


def restore(cluster: Cluster, snapshot: Snapshot, now_ms: float) -> None:
    """Restore a cluster to the state of a snapshot.

    Pending requests are answered. Groups are loaded from their log: rebalances in progress are lost, and sessions start
    again. Time, ids and producer ids are not set back. Leader epochs that have changed since the snapshot are
    incremented (`_leader_epoch`).
    """
    _release_all(cluster, now_ms)
    if cluster.proposed is not None:
        cluster.proposed.restore(snapshot.proposed)
    brokers = {node_id: _restored(cluster, broker) for node_id, broker in snapshot.brokers.items()}
    if list(brokers) != list(cluster.brokers):
        cluster.brokers.clear()
        cluster.brokers.update(brokers)
    cluster.broker_configs = snapshot.broker_configs
    cluster.has_new_broker_configs = True
    cluster.resource_configs = snapshot.resource_configs
    cluster.quotas.restore(snapshot.quotas)
    cluster.features.restore(snapshot.features)
    cluster.credentials = snapshot.credentials.copy()
    cluster.acls = None if snapshot.acls is None else snapshot.acls.copy()
    cluster.placement.placed_topics = snapshot.placed_topics
    cluster.next_producer_id = max(cluster.next_producer_id, snapshot.next_producer_id)
    topics = [topic.clone() for topic in snapshot.topics]
    formers = {topic.topic_id: topic.partitions for topic in cluster.topics.all()}
    for topic in topics:
        for partition, former in zip(topic.partitions, formers.get(topic.topic_id, ()), strict=False):
            partition.leader_epoch = _leader_epoch(partition, former)
    cluster.topics.replace_all(topics, offsets_topic_is_used=snapshot.offsets_topic_is_used)
    cluster.log_manager.schedule(now_ms)
    cluster.controller.schedule_balance(now_ms)
    for topic in topics:
        for partition in topic.partitions:
            cluster.controller.copies.keep(partition)
    cluster.controller.copies.reschedule(now_ms)
    _load(cluster, snapshot, now_ms)
    cluster.first_use.begin(now_ms)


def start_over(cluster: Cluster, fresh: Cluster, now_ms: float) -> None:
    """Reset a cluster to the state of the new cluster `fresh`, including its ids, journal, history and faults."""
    restore(cluster, take(fresh), now_ms)
    cluster.next_producer_id = fresh.next_producer_id
    cluster.new_id = fresh.new_id
    cluster.journal, cluster.history = fresh.journal, fresh.history
    cluster.history.name_of = cluster.topics.past_or_present_name_of
    cluster.transactions.history = fresh.transactions.history
    cluster.faults.reset(fresh.faults)
    cluster.append_failures.by_id.clear()
    for broker in cluster.brokers.values():
        broker.stops += 1  # All connections are closed.


def _leader_epoch(partition: Partition, former: Partition) -> int:
    """Return the leader epoch of a restored partition.

    If it changed since the snapshot, it must be newer than any that clients know, because they ignore older ones.
    """
    if former.leader_epoch == partition.leader_epoch:
        return partition.leader_epoch
    return max(former.leader_epoch, partition.leader_epoch) + 1


def _release_all(cluster: Cluster, now_ms: float) -> None:
    """Answer pending requests, and remove holds, delays, faults, pending loads and stale leaders."""
    cluster.group_controls.clear()
    cluster.transactions.holds.clear()
    cluster.transactions.held_markers.clear()
    cluster.faults.active.clear()
    cluster.append_failures.active.clear()
    for broker in cluster.brokers.values():
        for index in list(broker.coordinator.led_indexes()):
            broker.coordinator.resign(index, now_ms)
        cluster.transactions.moves.resign_all(broker, now_ms)
    if cluster.proposed is not None:
        cluster.proposed.resign_all(now_ms)
    cluster.requests.settle(now_ms)
    cluster.transactions.give_up()
    for call, response in cluster.sync_delays.release_all():
        cluster.requests.answer(call, response, now_ms)
    for topic in cluster.topics.all():
        for partition in topic.partitions:
            cluster.purgatory.release(partition)  # The next tick reads the restored logs.
    for moves in cluster.controller.moves.values():
        moves.clear()
    cluster.controller.forget_balance()
    cluster.controller.copies.clear()


def _restored(cluster: Cluster, kept: BrokerNode) -> BrokerNode:
    """Restore a broker in place, because connections refer to it, or recreate one that was removed."""
    fresh = cluster.new_broker(kept.node_id, EmulatedRelease(kept.release, kept.versions, kept.apis))
    broker = cluster.brokers.get(kept.node_id) or replace(kept)
    for name in ("release", "versions", "coordinator", "transaction_coordinator", "fetch_sessions", "apis", "proposed"):
        setattr(broker, name, getattr(fresh, name))
    broker.stops += broker.up and not kept.up
    broker.up, broker.rack, broker.configs = kept.up, kept.rack, kept.configs
    broker.log_levels, broker.registered = kept.log_levels, kept.registered
    broker.registered_as_controller = kept.registered_as_controller
    return broker


def _load(cluster: Cluster, snapshot: Snapshot, now_ms: float) -> None:
    """Load all partitions of the internal topics into the coordinators of their leaders, immediately."""
    partitions = cluster.topics.offsets_topic.partitions
    for broker in cluster.brokers.values():
        broker.coordinator.set_partition_count(len(partitions))
    for partition in partitions:
        if partition.leader_id == NO_LEADER:
            continue
        index = partition.index
        if index not in snapshot.records:
            snapshot.records[index] = _newest(read_records(partition.log, index))
        coordinator = cluster.brokers[partition.leader_id].groups
        coordinator.start_loading(index)
        coordinator.finish_loading(index, snapshot.records[index], now_ms)
    cluster.transactions.load()


def _newest(records: list[Record]) -> list[Record]:
    """Return the last record of each group and each offset, in the order of the log; older ones have no effect.

    With transactions they may have: then all records are returned.
    """
    newest: dict[tuple[Any, ...], Record] = {}
    for record in records:
        if type(record) is not CoordinatorRecord or type(record.key) not in (GroupMetadataKey, OffsetCommitKey):
            return records
        key = astuple(record.key)
        newest.pop(key, None)
        newest[key] = record
    return list(newest.values())
