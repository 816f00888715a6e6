"""Clusters whose state is stored in memory, and what a restored cluster must have in common with the first one."""

from collections.abc import Sequence
from itertools import count
from math import inf
from typing import Any

from fakebroker.cluster.cluster import Cluster
from fakebroker.cluster.logs.partition_log import PartitionLog
from fakebroker.cluster.snapshot import take
from fakebroker.cluster.storage import checkpoint
from fakebroker.cluster.storage.state_writer import StateWriter
from fakebroker.cluster.storage.stored_state import StoredState, restore
from tests.support.cluster.cluster_harness import ClusterHarness

Entry = tuple[int, bytes]


class MemoryStorage:
    """A `Storage` that keeps entries in memory.

    Attributes:
        entries: The entries.
        free_bytes: How much can be written. What is not reserved must not be.
    """

    def __init__(self) -> None:
        self.path = "/memory"
        self.entries: list[Entry] = []
        self.free_bytes: float = inf

    def reserve(self, size_bytes: int) -> bool:
        return size_bytes <= self.free_bytes

    def write(self, kind: int, parts: Sequence[bytes | memoryview]) -> None:
        payload = b"".join(parts)
        self.free_bytes -= len(payload)
        assert self.free_bytes >= 0, (kind, len(payload))
        self.entries.append((kind, payload))

    def replace(self, cluster: Cluster, writer: StateWriter) -> None:
        """Replace all entries by a checkpoint."""
        self.entries = []
        checkpoint.write(checkpoint.collect(cluster, writer), self.write)


def stored(harness: ClusterHarness) -> tuple[MemoryStorage, StateWriter]:
    """Store the state of a cluster from now on."""
    storage = MemoryStorage()
    writer = StateWriter(harness.cluster, storage, 0)
    writer.write_changes()
    return storage, writer


def continued(storage: MemoryStorage, **arguments: Any) -> tuple[ClusterHarness, StateWriter]:
    """Return a new cluster that continues with a stored state, as after a start (`Persistence.attach`).

    Args:
        storage: The storage.
        arguments: Further arguments as for `ClusterHarness`.
    """
    state = StoredState()
    state.apply_all((kind, memoryview(payload)) for kind, payload in storage.entries)
    harness = ClusterHarness({}, **arguments)
    ids = count(state.starts << 64)  # Unlike in other harnesses, ids do not repeat.
    harness.cluster.new_id = lambda: next(ids).to_bytes(16, "big")
    harness.cluster.topics.offsets_topic.topic_id = bytes(16)
    writer = StateWriter(harness.cluster, storage, state.starts)
    restore(harness.cluster, state, harness.now_ms)
    return harness, writer


def restored(entries: Sequence[Entry], **arguments: Any) -> ClusterHarness:
    """Return a new cluster with the state of these entries, and further arguments as for `ClusterHarness`."""
    storage = MemoryStorage()
    storage.entries += entries
    return continued(storage, **arguments)[0]


def durable(cluster: Cluster) -> dict[str, Any]:
    """Return what a restored cluster has, too, except leader epochs. Log contents are bytes."""
    snapshot = take(cluster)
    return {
        "cluster_id": snapshot.cluster_id,
        "configs": (snapshot.broker_configs, {each.node_id: each.configs for each in snapshot.brokers.values()}),
        "resource_configs": snapshot.resource_configs,
        "quotas": snapshot.quotas,
        "features": snapshot.features,
        "acls": None if snapshot.acls is None else list(snapshot.acls),
        "scram": snapshot.credentials.scram_iterations(),
        "counters": (snapshot.placed_topics, snapshot.next_producer_id, snapshot.offsets_topic_is_used),
        "topics": [
            (
                topic.name,
                topic.topic_id,
                dict(topic.configs),
                [
                    (each.replicas, each.adding, each.removing, each.copying, contents_of(each.log))
                    for each in topic.partitions
                ],
            )
            for topic in snapshot.topics
        ],
        "groups": {
            group.group_id: (group.generation_id, list(group.members), list(group.offsets))
            for broker in cluster.brokers.values()
            for group in broker.coordinator.groups.classic.values()
        },
    }


def leader_epochs(cluster: Cluster) -> list[int]:
    """Return the leader epochs of all partitions."""
    return [partition.leader_epoch for topic in cluster.topics.all() for partition in topic.partitions]


def contents_of(log: PartitionLog) -> tuple[Any, ...]:
    """Return what a log has: offsets, batches, leader epochs, producers and aborted transactions."""
    return (
        (log.log_start_offset, log.log_end_offset, log.last_stable_offset),
        log.read(log.log_start_offset, 2**31),
        list(log.epochs),
        list(log.producers.all()),
        log.producers.aborted_in(0, log.log_end_offset),
    )
