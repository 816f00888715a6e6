"""Putting groups there that no client has made: written to the log, loaded from it, and brought to their state.

Knows no sockets and no tables.
"""

from collections.abc import Iterable

from fakebroker.cluster.cluster import Cluster
from fakebroker.cluster.group_seed import GroupSeed, SeedPlan
from fakebroker.cluster.topics import Partition
from fakebroker.coordinator.group import controls
from fakebroker.coordinator.group.classic.states import GroupState
from fakebroker.coordinator.group.persistence import replay
from fakebroker.coordinator.group.records import Record
from fakebroker.errors import ConfigError


def seed_groups(cluster: Cluster, seeds: Iterable[GroupSeed], now_ms: float) -> None:
    """Put groups there: one batch for each partition of __consumer_offsets, and then whatever brings them to a state.

    Raises:
        ConfigError: A seed cannot be, or there is such a group already; then nothing has happened.
    """
    planned = [SeedPlan(cluster, seed) for seed in seeds]
    taken: dict[str, None] = {}
    for plan in planned:
        if plan.group_id in taken:
            raise ConfigError(f"group {plan.group_id!r}: it is seeded twice")
        taken[plan.group_id] = None
    batches: dict[int, list[Record]] = {}
    for plan in planned:
        batches.setdefault(plan.partition.index, []).extend(plan.records(now_ms))
    cluster.now_ms = now_ms
    for index, records in batches.items():
        _load(cluster, cluster.offsets_partition(index), records, now_ms)
    for plan in planned:
        _finish(cluster, plan, now_ms)


def _load(cluster: Cluster, partition: Partition, records: list[Record], now_ms: float) -> None:
    """Write records, and let the coordinator read them, if there is one; one that is loading yet reads them anyway."""
    cluster.append_records(partition, records)
    broker = cluster.leader_of(partition)
    if broker is not None and not broker.coordinator.error_for(records[0].group_id):
        broker.coordinator.add_groups(replay(records), now_ms)


def _finish(cluster: Cluster, plan: SeedPlan, now_ms: float) -> None:
    """Bring a group from what is in the log to its state, as clients and administrators would."""
    if plan.state in (GroupState.STABLE, GroupState.EMPTY):
        return
    broker = cluster.leader_of(plan.partition)
    assert broker is not None, "the plan has seen to it"
    coordinator = broker.coordinator
    if plan.state is GroupState.DEAD:
        coordinator.delete_group(plan.group_id, now_ms, lambda error: None)
        return
    group = controls.group_of(coordinator, plan.group_id)
    controls.force_rebalance(coordinator, group, now_ms)
    if plan.state is GroupState.COMPLETING_REBALANCE:
        controls.rejoin_all(coordinator, group, now_ms)
