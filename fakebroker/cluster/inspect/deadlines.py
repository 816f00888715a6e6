"""What time alone will bring about in a cluster.

Knows where the parts of a cluster keep their timers; changes none of them. What Fetch requests wait for is not here:
clients' time is not the brokers'.
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
    "session",
    "pending_member",
    "initial_delay",
    "join",
    "sync",
    "expected",
    "offsets_expiry",
    "late_answer",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Deadline:
    """Something that will happen unless something else happens before.

    Attributes:
        at_ms: When, in the brokers' time: milliseconds since the Unix epoch.
        in_s: How many seconds of the brokers' time are left until then.
        kind: What happens.
            load: A coordinator is done with reading its log, or fails to.
            stale_lookup: FindCoordinator no longer names the old coordinator.
            session: A member is removed, for it has sent no heartbeat; or a new one, for it has waited for too long.
            pending_member: A member id is forgotten that was told with MEMBER_ID_REQUIRED and has not joined.
            initial_delay: The first round of a group ends, or goes on for members that keep coming.
            join: The join phase ends; who has not joined is removed.
            sync: Who has not sent its SyncGroup is removed.
            expected: Joins that wait for instances that are expected do so no longer; or, while none waits, an instance
                is not expected any more (KAFKA-8397).
            offsets_expiry: A coordinator looks for offsets and groups that nobody has needed for too long.
            late_answer: An answer comes that a test has delayed. Of those that wait for the same reason the next one.
        node_id: The broker where it happens; of a stale look-up the one that is named. Not told of a late answer.
        group_id: The group, if it is one group's.
        member_ids: Whom it waits for. Of an initial delay nobody, if all members are in.
        partition: The partition of __consumer_offsets, if it is one partition's.
    """

    at_ms: float
    in_s: float = 0.0
    kind: DeadlineKind
    node_id: int | None = None
    group_id: str | None = None
    member_ids: tuple[str, ...] = ()
    partition: int | None = None


def pending_deadlines(cluster: "Cluster", now_ms: float) -> list[Deadline]:
    """All that is pending, the earliest first; what is due at the same time is in the order of `SOURCES`."""
    found = [
        replace(deadline, in_s=max(0.0, (deadline.at_ms - now_ms) / 1000))
        for source in SOURCES
        for deadline in source(cluster, now_ms)
    ]
    return sorted(found, key=lambda deadline: deadline.at_ms)


# Sources: what has deadlines


def _loads(cluster: "Cluster", now_ms: float) -> Iterator[Deadline]:
    for index, (end_ms, _) in cluster.controller.loading.items():
        if end_ms != inf:
            node_id = cluster.offsets_partition(index).leader_id
            yield Deadline(at_ms=end_ms, kind="load", node_id=node_id, partition=index)


def _stale_lookups(cluster: "Cluster", now_ms: float) -> Iterator[Deadline]:
    for index, (node_id, until_ms) in cluster.controller.stale.items():
        if now_ms < until_ms:
            yield Deadline(at_ms=until_ms, kind="stale_lookup", node_id=node_id, partition=index)


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
    """A group's timers, in the order in which they run out at the same time (`rebalance.expire_next_timer`)."""
    for member in group.members.values():
        if not _outlives_its_session(group, member):
            yield "session", member.deadline_ms, (member.member_id,)
    for member_id, deadline_ms in group.pending_members.items():
        yield "pending_member", deadline_ms, (member_id,)
    if not group.is_held:  # Else it stays in its state even if the time is up.
        missing = [member_id for member_id in group.members if member_id not in group.parked_joins]
        kind: DeadlineKind = "initial_delay" if group.is_initial_rebalance else "join"
        yield kind, group.join_deadline_ms, (*missing, *group.pending_members)
        yield "sync", group.sync_deadline_ms, tuple(group.awaiting_sync)
    missing = [instance.member_id for instance in expected_instances(group).missing]
    yield "expected", group.extension.deadline_ms, tuple(missing)


def _outlives_its_session(group: Group, member: Member) -> bool:
    """Whether the end of its session changes nothing: it is owed an answer (`rebalance.expire_session`)."""
    is_parked = member.member_id in group.parked_joins or member.member_id in group.parked_syncs
    return group.is_sync_held(member.member_id) or (is_parked and not member.is_new)


def _expiry_looks(cluster: "Cluster", now_ms: float) -> Iterator[Deadline]:
    for broker in cluster.brokers.values():
        for partition in broker.coordinator.led_partitions():
            if partition.scheduled_ms != inf:
                at_ms, index = partition.scheduled_ms, partition.partition
                yield Deadline(at_ms=at_ms, kind="offsets_expiry", node_id=broker.node_id, partition=index)


def _late_answers(cluster: "Cluster", now_ms: float) -> Iterator[Deadline]:
    for at_ms in (cluster.sync_delays.next_deadline(), cluster.faults.next_deadline()):
        if at_ms is not None:
            yield Deadline(at_ms=at_ms, kind="late_answer")


SOURCES: tuple[Callable[["Cluster", float], Iterator[Deadline]], ...] = (
    _loads,
    _stale_lookups,
    _group_timers,
    _expiry_looks,
    _late_answers,
)
"""Which parts of a cluster have deadlines; another part that gets some gets a function here."""
