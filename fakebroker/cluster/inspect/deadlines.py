"""Pending deadlines of a cluster: events that happen when the brokers' clock reaches a time.

Waiting Fetch requests are not included, because their deadlines use the clients' clock.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from math import inf
from typing import TYPE_CHECKING, Literal

from fakebroker.coordinator.group.batch_join.batch_join_extension import expected_instances
from fakebroker.coordinator.group.classic.group import Group
from fakebroker.coordinator.group.classic.member import Member

if TYPE_CHECKING:
    from fakebroker.cluster.cluster import Cluster

DeadlineKind = Literal[
    "load",
    "stale_lookup",
    "preferred_election",
    "replica_copy",
    "session",
    "pending_member",
    "initial_delay",
    "join",
    "sync",
    "expected",
    "offsets_expiry",
    "late_answer",
    "throttle",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Deadline:
    """An event that happens at a time, unless another event prevents it.

    Attributes:
        at_ms: The time by the brokers' clock, in milliseconds since the Unix epoch.
        in_s: Seconds until then, by the brokers' clock.
        kind: What happens.
            load: A coordinator finishes reading its log, or fails to.
            stale_lookup: FindCoordinator stops returning the old coordinator.
            preferred_election: Preferred leaders are elected automatically (`auto.leader.rebalance.enable`).
            replica_copy: A replica that a throttled reassignment adds gets in sync.
            session: A member is removed because its session expires; a new member, because its JoinGroup has been
                parked for too long.
            pending_member: A member id returned with MEMBER_ID_REQUIRED is removed because no join has used it.
            initial_delay: The initial rebalance delay ends: the rebalance completes, or waits longer if members have
                joined meanwhile.
            join: The join phase ends; dynamic members that have not rejoined are removed.
            sync: Members that have not sent a SyncGroup are removed.
            expected: Joins stop waiting for expected instances; or, if no join waits, an instance is no longer expected
                (KAFKA-8397).
            offsets_expiry: A coordinator checks for expired offsets and groups.
            late_answer: A delayed response is sent: the next one to a SyncGroup, or the next one that a fault delays.
            throttle: A connection of a client that exceeded a quota is read again.
        node_id: The broker where it happens; for a stale lookup, the broker that it returns. None for late
            answers and elections.
        group_id: The group, if it affects one group.
        member_ids: The members that the deadline waits for or removes; none if all members have joined.
        partition: The partition of __consumer_offsets, if it affects one partition.
    """

    at_ms: float
    in_s: float = 0.0
    kind: DeadlineKind
    node_id: int | None = None
    group_id: str | None = None
    member_ids: tuple[str, ...] = ()
    partition: int | None = None


def pending_deadlines(cluster: "Cluster", now_ms: float) -> list[Deadline]:
    """Return all pending deadlines, earliest first; those at the same time are in the order of `SOURCES`."""
    deadlines = [
        replace(deadline, in_s=max(0.0, (deadline.at_ms - now_ms) / 1000))
        for source in SOURCES
        for deadline in source(cluster, now_ms)
    ]
    return sorted(deadlines, key=lambda deadline: deadline.at_ms)


# Sources of deadlines


def _loads(cluster: "Cluster", now_ms: float) -> Iterator[Deadline]:
    for index, (end_ms, _) in cluster.controller.loading.items():
        if end_ms != inf:
            node_id = cluster.offsets_partition(index).leader_id
            yield Deadline(at_ms=end_ms, kind="load", node_id=node_id, partition=index)


def _stale_lookups(cluster: "Cluster", now_ms: float) -> Iterator[Deadline]:
    for index, (node_id, until_ms) in cluster.controller.stale.items():
        if now_ms < until_ms:
            yield Deadline(at_ms=until_ms, kind="stale_lookup", node_id=node_id, partition=index)


def _preferred_election(cluster: "Cluster", now_ms: float) -> Iterator[Deadline]:
    if cluster.controller.balance_due_ms is not None:
        yield Deadline(at_ms=cluster.controller.balance_due_ms, kind="preferred_election")


def _replica_copies(cluster: "Cluster", now_ms: float) -> Iterator[Deadline]:
    for copy in cluster.controller.copies:
        if copy.end_ms != inf:
            yield Deadline(at_ms=copy.end_ms, kind="replica_copy", node_id=copy.node_id)


def _group_timers(cluster: "Cluster", now_ms: float) -> Iterator[Deadline]:
    for broker in cluster.brokers.values():
        for group in broker.coordinator.groups():
            for kind, at_ms, member_ids in _timers_of(group):
                if at_ms != inf:
                    yield Deadline(
                        at_ms=at_ms,
                        kind=kind,
                        node_id=broker.node_id,
                        group_id=group.group_id,
                        member_ids=member_ids,
                    )


def _timers_of(group: Group) -> Iterator[tuple[DeadlineKind, float, tuple[str, ...]]]:
    """Yield kind, time and members of each timer. Ties are in the order of `rebalance.expire_next_timer`."""
    for member in group.members.values():
        if not _outlives_its_session(group, member):
            yield "session", member.deadline_ms, (member.member_id,)
    for member_id, deadline_ms in group.pending_members.items():
        yield "pending_member", deadline_ms, (member_id,)
    if not group.is_held:  # A held group stays in its state even if a timer expires.
        missing = [member_id for member_id in group.members if member_id not in group.parked_joins]
        kind: DeadlineKind = "initial_delay" if group.is_initial_rebalance else "join"
        yield kind, group.join_deadline_ms, (*missing, *group.pending_members)
        yield "sync", group.sync_deadline_ms, tuple(group.awaiting_sync)
    missing = [instance.member_id for instance in expected_instances(group).missing]
    yield "expected", group.extension.deadline_ms, tuple(missing)


def _outlives_its_session(group: Group, member: Member) -> bool:
    """Return whether a member stays when its session ends, because a response is pending (`expire_session`)."""
    is_parked = member.member_id in group.parked_joins or member.member_id in group.parked_syncs
    return group.is_sync_held(member.member_id) or (is_parked and not member.is_new)


def _offsets_expiry_checks(cluster: "Cluster", now_ms: float) -> Iterator[Deadline]:
    for broker in cluster.brokers.values():
        for partition in broker.coordinator.led_partitions():
            if partition.scheduled_ms != inf:
                at_ms, index = partition.scheduled_ms, partition.partition
                yield Deadline(at_ms=at_ms, kind="offsets_expiry", node_id=broker.node_id, partition=index)


def _delayed_responses(cluster: "Cluster", now_ms: float) -> Iterator[Deadline]:
    for at_ms in (cluster.sync_delays.next_deadline(), cluster.faults.next_deadline()):
        if at_ms is not None:
            yield Deadline(at_ms=at_ms, kind="late_answer")


def _throttles(cluster: "Cluster", now_ms: float) -> Iterator[Deadline]:
    for (node_id, _), until_ms in cluster.quotas.throttled.items():
        if now_ms < until_ms:
            yield Deadline(at_ms=until_ms, kind="throttle", node_id=node_id)


SOURCES: tuple[Callable[["Cluster", float], Iterator[Deadline]], ...] = (
    _loads,
    _stale_lookups,
    _preferred_election,
    _replica_copies,
    _group_timers,
    _offsets_expiry_checks,
    _delayed_responses,
    _throttles,
)
"""One function for each part of a cluster that has deadlines."""
