"""Pending deadlines of a cluster: events that happen when the brokers' clock reaches a time.

The events of groups are forecast from their timers: the functions of the coordinator run on a copy of the group. The
forecast assumes that members send heartbeats and no other requests. A timer that another timer prevents is left out;
example: the join timer removes a member before its session expires. Waiting Fetch requests are left out, too, because
their deadlines use the clients' clock.
"""

from collections.abc import Callable, Collection, Iterable, Iterator
from copy import copy
from heapq import nsmallest
from itertools import islice
from math import ceil, inf
from typing import TYPE_CHECKING, Literal

import msgspec

from fakebroker.cluster.call import Call
from fakebroker.cluster.inspect.base import View
from fakebroker.cluster.inspect.phrases import counted, listed
from fakebroker.cluster.inspect.timelines import short_names
from fakebroker.cluster.inspect.views import member_names
from fakebroker.cluster.topics import OFFSETS_TOPIC
from fakebroker.coordinator.classic.group import Group, Member
from fakebroker.coordinator.classic.rebalance import expire_next_timer
from fakebroker.coordinator.classic.states import COMPLETING_REBALANCE, DEAD, EMPTY, PREPARING_REBALANCE, GroupState
from fakebroker.coordinator.committed_offsets import (
    Expiration,
    next_expiration,
    next_expiration_of_consumer_group,
)
from fakebroker.coordinator.consumer.group import ConsumerGroup
from fakebroker.coordinator.consumer.migration import is_downgraded_without
from fakebroker.coordinator.consumer.states import ConsumerGroupState
from fakebroker.coordinator.context import OwnContext
from fakebroker.coordinator.snapshot_dict import SnapshotDict
from fakebroker.coordinator.transaction.transaction import ONGOING, PREPARED
from fakebroker.errors import ErrorCode

if TYPE_CHECKING:
    from fakebroker.cluster.broker import BrokerNode
    from fakebroker.cluster.cluster import Cluster

# What the timers of a group do if its members send heartbeats and no other requests


GroupTimer = Literal["session", "pending_member", "initial_delay", "join", "sync", "expected"]

_MAX_STEPS = 1_000
"""Timers beyond this number of expiries are left out. Each pending id has one; join timers may start again."""


class Expiry(msgspec.Struct, frozen=True, kw_only=True):
    """The expiry of a timer of a group, and its effect.

    Attributes:
        kind: The timer; see `Deadline.kind`.
        at_ms: When it expires, by the brokers' clock, in milliseconds since the Unix epoch.
        member_ids: The members that the timer waits for, or removes.
        needs_silence: Whether it expires only if the member sends no request until then: its requests restart the
            session. Other timers expire although members send heartbeats.
        removes: The members, pending ids and expected instances that are removed then.
        state_before: The state until then.
        state: The state afterwards.
        generation_id: The generation afterwards.
        members: The number of members afterwards.
        restarts_ms: When the same timer expires next, if it starts again; else infinite.
    """

    kind: GroupTimer
    at_ms: float
    member_ids: tuple[str, ...]
    needs_silence: bool = False
    removes: tuple[str, ...]
    state_before: GroupState
    state: GroupState
    generation_id: int
    members: int
    restarts_ms: float = inf


def expiries(
    group: Group, removal_ms: Callable[[Group], float], sessions_of: Collection[str] | None = None
) -> Iterator[Expiry]:
    """Yield the expiries of the running timers of a group. Those with the same time are in the order of their effect.

    A session is included if the member is removed when it expires, given that the other members send heartbeats.

    Args:
        group: The group.
        removal_ms: Returns when the group is removed if it stays Empty; infinite if never.
        sessions_of: The members whose sessions are included; None for all. This saves time in large groups.
    """
    members = group.members.values() if sessions_of is None else (group.members[each] for each in sessions_of)
    sessions = [member for member in members if is_session_running(group, member)]
    sessions.sort(key=lambda member: member.deadline_ms)
    others = _other_timers(group)
    if not others:
        yield from (_session_expiry(group, member.member_id, member.deadline_ms) for member in sessions)
        return
    copied = _Copy(group, removal_ms)
    for member in sessions:
        yield from (each for each in copied.expire(member.deadline_ms) if _key(each) in others)
        found = copied.group.members.get(member.member_id)
        if found and found.deadline_ms == member.deadline_ms and is_session_running(copied.group, found):
            yield _session_expiry(copied.group, member.member_id, member.deadline_ms)
    last_ms = max(at_ms for _, at_ms, _ in others)
    yield from (each for each in copied.expire(last_ms, is_included=True) if _key(each) in others)


def is_session_running(group: Group, member: Member) -> bool:
    """Return whether a member is removed when its session expires, unless it sends a request before.

    While an answer to a member is pending, its session does not matter (`rebalance.expire_session`). The session of a
    new member is a timer that its requests do not restart; see `_other_timers`.
    """
    if member.is_new or member.deadline_ms == inf or group.is_sync_held(member.member_id):
        return False
    parked = (group.parked_joins, group.parked_syncs, group.extension.waiting_joins)
    return not any(member.member_id in each for each in parked)


_Key = tuple[GroupTimer, float, str]
"""A timer: its kind, its deadline, and the member if it is the timer of one."""


def _key(expiry: Expiry) -> _Key:
    is_of_member = expiry.kind in ("session", "pending_member")
    return expiry.kind, expiry.at_ms, expiry.member_ids[0] if is_of_member else ""


def _other_timers(group: Group) -> set[_Key]:
    """Return the running timers, except for sessions that heartbeats extend."""
    timers: list[_Key] = [
        ("session", each.deadline_ms, each.member_id) for each in group.members.values() if each.is_new
    ]
    timers += (("pending_member", deadline_ms, member_id) for member_id, deadline_ms in group.pending_members.items())
    timers.append(("initial_delay" if group.is_initial_rebalance else "join", group.join_deadline_ms, ""))
    timers.append(("sync", group.sync_deadline_ms, ""))
    timers.append(("expected", group.extension.deadline_ms, ""))
    return {timer for timer in timers if timer[1] < inf}


def _session_expiry(group: Group, member_id: str, at_ms: float) -> Expiry:
    """Return the effect of an expiring session, as `rebalance.expire_session` has it. The member is not parked."""
    if group.repeating_members:  # Rare: whether there is a common protocol is known only afterwards.
        copied = _Copy(group, lambda _: inf)
        copied.resume_session(member_id)
        return msgspec.structs.replace(next(copied.expire(at_ms, is_included=True)), needs_silence=True)
    left = len(group.members) - 1
    is_held = group.controls is not None and PREPARING_REBALANCE in group.controls.held_states
    if group.state is PREPARING_REBALANCE:
        is_delayed = group.config.is_before_kip_848 and group.is_initial_rebalance
        is_complete = len(group.parked_joins) == left and not group.pending_members and not is_delayed
    else:
        is_complete = not left
    state, generation_id = PREPARING_REBALANCE, group.generation_id
    if is_complete and not is_held:
        state, generation_id = COMPLETING_REBALANCE if left else EMPTY, generation_id + 1
    return Expiry(
        kind="session",
        at_ms=at_ms,
        member_ids=(member_id,),
        needs_silence=True,
        removes=(member_id,),
        state_before=group.state,
        state=state,
        generation_id=generation_id,
        members=left,
    )


_NOBODY = OwnContext(9, "", "")
"""The context of the parked requests of a copy, which nobody waits for."""


class _Copy:
    """A copy of a group, whose members send heartbeats, and the time up to which its timers have expired."""

    def __init__(self, original: Group, removal_ms: Callable[[Group], float]) -> None:
        self._removal_ms = removal_ms
        self.group = group = copy(original)
        group.context = original.context._replace(send=_drop, append=_succeed)
        group.members = SnapshotDict((member_id, copy(member)) for member_id, member in original.members.items())
        group.static_members = dict(original.static_members)
        group.pending_members = dict(original.pending_members)
        group.parked_joins = SnapshotDict((member_id, _NOBODY) for member_id in original.parked_joins)
        group.parked_syncs = SnapshotDict((member_id, _NOBODY) for member_id in original.parked_syncs)
        group.awaiting_sync = dict(original.awaiting_sync)
        group.protocol_counts = dict(original.protocol_counts)
        group.controls = copy(original.controls)
        group.pending_change = None
        group.extension = original.extension.copied(group)
        self._steps_left = _MAX_STEPS + len(group.pending_members)
        self._suspend_sessions()
        # Found once for each step, because groups can have thousands of members.
        self._deadline_ms = group.earliest_deadline()

    def _suspend_sessions(self) -> None:
        for member in self.group.members.values():
            if member.keeper is None and not member.is_new:
                member.keeper = _drop

    def resume_session(self, member_id: str) -> None:
        """Let the session of a member expire."""
        self.group.members[member_id].keeper = None
        self._deadline_ms = self.group.earliest_deadline()

    def expire(self, until_ms: float, *, is_included: bool = False) -> Iterator[Expiry]:
        """Expire the timers whose deadlines are before a time, or at it, and yield those that have an effect."""
        while self._steps_left:
            deadline_ms = self._deadline_ms
            if deadline_ms > until_ms or (deadline_ms == until_ms and not is_included):
                return
            if self.group.state is EMPTY and deadline_ms > self._removal_ms(self.group):
                return
            self._steps_left -= 1
            expiry = self._step()
            if expiry is not None:
                yield expiry

    def _step(self) -> Expiry | None:
        group, at_ms = self.group, self._deadline_ms
        kind, member_ids = _next_timer(group, at_ms)
        before = self._contents()
        state_before, ids_before = group.state, _ids(group)
        is_initial = group.is_initial_rebalance
        expire_next_timer(group, at_ms)
        group.pending_change = None
        self._suspend_sessions()
        self._deadline_ms = group.earliest_deadline()
        is_restarted = kind in ("join", "initial_delay") and group.state is state_before
        if before == self._contents() and (group.is_held or not is_restarted):
            return None
        ids = _ids(group)
        return Expiry(
            kind=kind,
            at_ms=at_ms,
            member_ids=member_ids,
            removes=tuple(each for each in ids_before if each not in ids),
            state_before=state_before,
            state=group.state,
            generation_id=group.generation_id,
            members=len(group.members),
            restarts_ms=group.join_deadline_ms if is_restarted and is_initial == group.is_initial_rebalance else inf,
        )

    def _contents(self) -> tuple[object, ...]:
        return self.group.state, self.group.generation_id, len(self.group.members), len(_ids(self.group))


def _next_timer(group: Group, at_ms: float) -> tuple[GroupTimer, tuple[str, ...]]:
    """Return the timer that expires next, in the order of `rebalance.expire_next_timer`, and its members."""
    for member in group.members.values():
        if member.session_ends_ms == at_ms:
            return "session", (member.member_id,)
    for member_id, deadline_ms in group.pending_members.items():
        if deadline_ms == at_ms:
            return "pending_member", (member_id,)
    if group.join_deadline_ms == at_ms:
        missing = [member_id for member_id in group.members if member_id not in group.parked_joins]
        return "initial_delay" if group.is_initial_rebalance else "join", (*missing, *group.pending_members)
    if group.sync_deadline_ms == at_ms:
        return "sync", tuple(group.awaiting_sync)
    return "expected", group.extension.awaited()


def _ids(group: Group) -> dict[str, None]:
    reserved = (place.member_id for place in group.extension.reserved_places)
    return dict.fromkeys((*group.members, *group.pending_members, *reserved))


def _succeed(*arguments: object) -> ErrorCode:
    """Append nothing."""
    return ErrorCode.NONE


def _drop(*arguments: object) -> None:
    """Ignore a response, or a call for suspended sessions."""


# Deadlines


DeadlineKind = Literal[
    "first_use",
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
    "revocation",
    "offsets_removal",
    "offsets_expiry",
    "late_request",
    "late_answer",
    "throttle",
    "transaction_timeout",
    "transaction_end",
    "transaction_attempt",
    "transactional_id_expiry",
]

_MAX_OF_A_GROUP = 20


class Deadline(View, frozen=True, kw_only=True):
    """An event that happens at a time, unless another event prevents it.

    An event of a group happens if the members of the group send heartbeats and no other requests. Heartbeats do not
    move it. An event with `restarts_with_requests` happens if the member itself sends no request until then.

    Attributes:
        at_ms: The time by the brokers' clock, in milliseconds since the Unix epoch.
        in_s: Seconds until then, by the brokers' clock.
        kind: What happens.
            first_use: An internal topic is created, or its leaders begin to load it (`first_use="kafka"`).
            load: A coordinator finishes reading its log, or fails to.
            stale_lookup: FindCoordinator stops returning the old coordinator.
            preferred_election: Preferred leaders are elected automatically (`auto.leader.rebalance.enable`).
            replica_copy: A replica that a throttled reassignment adds gets in sync.
            session: A member is removed because its session expires; a new member, because its JoinGroup has been
                parked for too long.
            pending_member: A member id returned with MEMBER_ID_REQUIRED is removed because no join has used it.
            initial_delay: The initial rebalance delay ends: the rebalance completes, or waits longer if members have
                joined meanwhile.
            join: The join phase ends; dynamic members that have not rejoined are removed. In a consumer group
                (KIP-848), a member of the classic protocol is removed.
            sync: Members that have not sent a SyncGroup are removed.
            expected: Joins stop waiting for expected instances; or, if no join waits, an instance is no longer expected
                (KAFKA-8397).
            revocation: A member of a consumer group (KIP-848) is removed because it has not given up partitions.
            offsets_removal: Expired offsets of a group are removed, and the group if nothing of it is left.
            offsets_expiry: A coordinator checks for expired offsets and groups.
            late_request: A broker handles a request that a fault delays.
            late_answer: A delayed response is sent: to a SyncGroup (`delay_sync`), or one that a fault delays.
            throttle: A connection of a client that exceeded a quota is read again.
            transaction_timeout: An open transaction is aborted.
            transaction_end: A coordinator tries again to store the end of a transaction.
            transaction_attempt: A marker, or the verification of a Produce request, is tried again.
            transactional_id_expiry: A transactional id is removed because it was not used.
        node_id: The broker where it happens; for a stale lookup, the broker that it returns. None for elections.
        group_id: The group, if it affects one group.
        transactional_id: The transactional id, if it affects one.
        member_ids: The members that the deadline waits for or removes, or that a delayed request names; none if all
            members have joined.
        partition: The partition of __consumer_offsets or, as `text` says, of __transaction_state, if it affects one.
        removes: The members, pending ids and expected instances of the group that are removed then.
        state: The state of the group afterwards, if it changes.
        restarts_with_requests: Whether each request of the member, such as a heartbeat, starts the timer again.
        text: A sentence on what happens then.
    """

    at_ms: float
    in_s: float = 0.0
    kind: DeadlineKind
    node_id: int | None = None
    group_id: str | None = None
    transactional_id: str | None = None
    member_ids: tuple[str, ...] = ()
    partition: int | None = None
    removes: tuple[str, ...] = ()
    state: str | None = None
    restarts_with_requests: bool = False
    text: str = ""


def pending_deadlines(
    cluster: "Cluster", now_ms: float, first: int | None = None, until_ms: float = inf
) -> list[Deadline]:
    """Return the pending deadlines, earliest first; those at the same time are in the order of `SOURCES`.

    Args:
        cluster: The cluster.
        now_ms: The time by the brokers' clock, in milliseconds since the Unix epoch.
        first: The maximum number of deadlines, which saves time; of several groups at the same time, any can be left
            out. None for all deadlines.
        until_ms: The time of the last deadline.
    """
    others = (deadline for source in SOURCES for deadline in source(cluster, now_ms))
    timers = (*_group_deadlines(cluster, first, until_ms), *_transaction_deadlines(cluster, first, until_ms))
    deadlines = [each for each in (*timers, *others) if each.at_ms <= until_ms]
    return _sorted(deadlines, now_ms)[:first]


def _group_deadlines(cluster: "Cluster", first: int | None, until_ms: float) -> list[Deadline]:
    """Return the deadlines of all groups; or, in the order of their lower bounds, of as many groups as necessary."""
    groups = [(group, broker) for broker in cluster.brokers.values() for group in broker.coordinator.groups]
    if first is None and until_ms == inf:
        return [deadline for group, broker in groups for deadline in _timers_of(group, broker)]
    bounds_ms = [_bound_ms(group, broker) for group, broker in groups]
    found: dict[int, list[Deadline]] = {}
    times_ms: list[float] = []
    for at in sorted(range(len(groups)), key=bounds_ms.__getitem__):
        if bounds_ms[at] > until_ms or (len(times_ms) == first and bounds_ms[at] >= times_ms[-1]):
            break
        found[at] = list(_timers_of(*groups[at]))
        if first is not None:
            times_ms = nsmallest(first, [*times_ms, *(each.at_ms for each in found[at])])
    return [deadline for at in sorted(found) for deadline in found[at]]


def _timers_of(group: Group | ConsumerGroup, broker: "BrokerNode") -> Iterator[Deadline]:
    """Return the deadlines of a group of either kind."""
    if isinstance(group, ConsumerGroup):
        return _deadlines_of_consumer_group(group, broker)
    return _deadlines_of(group, broker)


def _bound_ms(group: Group | ConsumerGroup, broker: "BrokerNode") -> float:
    """Return a lower bound of the deadlines of a group."""
    partition = broker.coordinator.led_partition(group.partition)
    return min(group.deadline_ms, inf if partition is None else partition.scheduled_ms)


def _sorted(deadlines: Iterable[Deadline], now_ms: float) -> list[Deadline]:
    timed = [msgspec.structs.replace(each, in_s=max(0.0, (each.at_ms - now_ms) / 1000)) for each in deadlines]
    return sorted(timed, key=lambda deadline: deadline.at_ms)


# Sources of deadlines


def _first_uses(cluster: "Cluster", now_ms: float) -> Iterator[Deadline]:
    for topic, due_ms in cluster.first_use.due_ms.items():
        if due_ms != inf:
            exists = topic in cluster.topics
            text = f"The leaders of {topic} begin to load it." if exists else f"{topic} is created."
            yield Deadline(at_ms=due_ms, kind="first_use", text=text)


def _loads(cluster: "Cluster", now_ms: float) -> Iterator[Deadline]:
    for topic, moves in cluster.controller.moves.items():
        for index, (end_ms, fails) in moves.loading.items():
            if end_ms != inf:
                node_id = moves.partition(index).leader_id
                what = "fails to load" if fails else "has loaded"
                text = f"Broker {node_id} {what} {topic}-{index}."
                yield Deadline(at_ms=end_ms, kind="load", node_id=node_id, partition=index, text=text)


def _stale_lookups(cluster: "Cluster", now_ms: float) -> Iterator[Deadline]:
    for topic, moves in cluster.controller.moves.items():
        for index, (node_id, until_ms) in moves.stale.items():
            if now_ms < until_ms:
                text = f"FindCoordinator stops returning broker {node_id}, the old coordinator, for {topic}-{index}."
                yield Deadline(at_ms=until_ms, kind="stale_lookup", node_id=node_id, partition=index, text=text)


def _preferred_election(cluster: "Cluster", now_ms: float) -> Iterator[Deadline]:
    if cluster.controller.balance_due_ms is not None:
        text = "Preferred leaders are elected."
        yield Deadline(at_ms=cluster.controller.balance_due_ms, kind="preferred_election", text=text)


def _replica_copies(cluster: "Cluster", now_ms: float) -> Iterator[Deadline]:
    for replica in cluster.controller.copies:
        if replica.end_ms != inf:
            text = f"A replica that a reassignment adds on broker {replica.node_id} gets in sync."
            yield Deadline(at_ms=replica.end_ms, kind="replica_copy", node_id=replica.node_id, text=text)


def deadlines_of(cluster: "Cluster", group_id: str, now_ms: float) -> list[Deadline]:
    """Return up to 20 deadlines of a group, earliest first. The end of the delay of a request or response is one."""
    broker = cluster.coordinator_of(group_id)
    group = broker.coordinator.groups.classic.get(group_id) if broker else None
    deadlines = list(_deadlines_of(group, broker, _first_sessions(group))) if broker and group else []
    if broker and (consumer_group := broker.coordinator.groups.consumer.get(group_id)):
        deadlines += _deadlines_of_consumer_group(consumer_group, broker)
    delayed = (*_delayed_requests(cluster, now_ms), *_delayed_responses(cluster, now_ms))
    return _sorted([*deadlines, *(each for each in delayed if each.group_id == group_id)], now_ms)[:_MAX_OF_A_GROUP]


def _first_sessions(group: Group) -> list[str]:
    """Return the members whose sessions expire first."""
    sessions = (
        (each.deadline_ms, each.member_id) for each in group.members.values() if is_session_running(group, each)
    )
    return [member_id for _, member_id in nsmallest(_MAX_OF_A_GROUP, sessions)]


def _deadlines_of(group: Group, broker: "BrokerNode", sessions_of: Collection[str] | None = None) -> Iterator[Deadline]:
    yield from timers_of(group, broker, sessions_of)
    if removal := offsets_removal(group, broker):
        yield removal


def timers_of(group: Group, broker: "BrokerNode", sessions_of: Collection[str] | None = None) -> Iterator[Deadline]:
    """Return the deadlines of a group's timers. Those at the same time are in the order of their effect.

    Args:
        group: The group.
        broker: Its coordinator.
        sessions_of: The members whose sessions are included; None for all.
    """

    def removal_ms(copied: Group) -> float:
        removal = offsets_removal(copied, broker)
        return removal.at_ms if removal and removal.state else inf

    names: dict[str, str] | None = None
    for expiry in expiries(group, removal_ms, sessions_of):
        if names is None:
            names = short_names([*group.members, *group.pending_members])
        yield Deadline(
            at_ms=expiry.at_ms,
            kind=expiry.kind,
            node_id=broker.node_id,
            group_id=group.group_id,
            member_ids=expiry.member_ids,
            removes=expiry.removes,
            state=expiry.state.value if expiry.state is not expiry.state_before else None,
            restarts_with_requests=expiry.needs_silence,
            text=_text_of(expiry, group, names),
        )


def _offsets_expiry_checks(cluster: "Cluster", now_ms: float) -> Iterator[Deadline]:
    for broker in cluster.brokers.values():
        for partition in broker.coordinator.partitions.led.values():
            if partition.scheduled_ms != inf:
                index = partition.partition
                yield Deadline(
                    at_ms=partition.scheduled_ms,
                    kind="offsets_expiry",
                    node_id=broker.node_id,
                    partition=index,
                    text=f"Broker {broker.node_id} checks {OFFSETS_TOPIC}-{index} for expired offsets and groups.",
                )


def offsets_removal(group: Group | ConsumerGroup, broker: "BrokerNode") -> Deadline | None:
    """Return when offsets of a group are removed next, or the group itself, if it stays as it is; None if never."""
    partition = broker.coordinator.led_partition(group.partition)
    if partition is None or partition.scheduled_ms == inf:
        return None
    config = broker.coordinator.config if isinstance(group, ConsumerGroup) else group.config
    first_ms = partition.scheduled_ms
    interval_ms = config.offsets_retention_check_interval_ms

    def check_after(time_ms: float) -> float:
        return first_ms + max(0, ceil((time_ms - first_ms) / interval_ms)) * interval_ms

    pending = broker.coordinator.offsets.unstable_partitions(group.group_id)

    def next_after(time_ms: float) -> Expiration | None:
        if isinstance(group, ConsumerGroup):
            return next_expiration_of_consumer_group(group, time_ms, config.offsets_retention_ms, pending)
        return next_expiration(group, time_ms, pending)

    expiry = next_after(first_ms if isinstance(group, ConsumerGroup) else check_after(group.state_since_ms))
    if expiry is None:
        return None
    at_ms = check_after(expiry.at_ms)
    # With the offsets that expire later, but before the check.
    expiry = next_after(at_ms) or expiry
    offsets = counted(expiry.offsets, "committed offset")
    if expiry.removes_group:
        text = f"The group is removed{f' with {offsets}' * bool(expiry.offsets)}, unless it is used before."
    else:
        text = f"{offsets} of the group are removed because of their age, unless they are committed again."
    return Deadline(
        at_ms=at_ms,
        kind="offsets_removal",
        node_id=broker.node_id,
        group_id=group.group_id,
        state=DEAD.value if expiry.removes_group else None,
        text=text,
    )


def _deadlines_of_consumer_group(group: ConsumerGroup, broker: "BrokerNode") -> Iterator[Deadline]:
    """Yield when members are removed: by their sessions, or because they have not done what the group waits for."""
    names = member_names(group)
    revocations = {
        member_id: at_ms
        for member_id, (at_ms, epoch) in group.rebalance_deadlines.items()
        if group.members[member_id].member_epoch == epoch
    }
    removals: tuple[tuple[DeadlineKind, dict[str, float], str], ...] = (
        ("session", group.session_deadlines, "If {} sends no heartbeat, its session expires: it is removed"),
        ("revocation", revocations, "{} is removed if it has not given up partitions"),
        ("join", group.join_deadlines, "{} is removed if it has not rejoined"),
        ("sync", group.sync_deadlines, "{} is removed if it has not sent a SyncGroup"),
    )
    for kind, deadlines, text in removals:
        for member_id, at_ms in deadlines.items():
            state = _state_without(group, member_id, broker)
            yield Deadline(
                at_ms=at_ms,
                kind=kind,
                node_id=broker.node_id,
                group_id=group.group_id,
                member_ids=(member_id,),
                removes=(member_id,),
                state=state if state != group.state.value else None,
                restarts_with_requests=kind == "session",
                text=f"{text.format(names[member_id])}, and {_CONSEQUENCES[state]}.",
            )
    if removal := offsets_removal(group, broker):
        yield removal


_CONSEQUENCES = {
    ConsumerGroupState.EMPTY.value: "the group becomes Empty",
    ConsumerGroupState.ASSIGNING.value: "the next heartbeat of another member runs the assignor",
    PREPARING_REBALANCE.value: "the group becomes a classic group, which rebalances",
}
"""The sentence on what follows from a removal, by the state of the group afterwards."""


def _state_without(group: ConsumerGroup, member_id: str, broker: "BrokerNode") -> str:
    """Return the state of a consumer group after the removal of a member."""
    if is_downgraded_without(group, [member_id], broker.coordinator.config.consumer):
        return PREPARING_REBALANCE.value
    return ConsumerGroupState.ASSIGNING.value if len(group.members) > 1 else ConsumerGroupState.EMPTY.value


def _delayed_requests(cluster: "Cluster", now_ms: float) -> Iterator[Deadline]:
    for at_ms, call in cluster.faults.delayed_requests():
        text = f"Broker {call.node_id} handles {described(call)}, which a fault delays."
        yield _delayed("late_request", at_ms, call, text)


def _delayed_responses(cluster: "Cluster", now_ms: float) -> Iterator[Deadline]:
    for delayed, cause in (
        (cluster.sync_delays.delayed(), "delay_sync"),
        (cluster.faults.delayed_responses(), "a fault"),
    ):
        for at_ms, call in delayed:
            if at_ms != inf:
                text = f"Broker {call.node_id} sends the response to {described(call)}, which {cause} delays."
                yield _delayed("late_answer", at_ms, call, text)


def _delayed(kind: Literal["late_request", "late_answer"], at_ms: float, call: Call, text: str) -> Deadline:
    group_id = call.group_ids[0] if len(call.group_ids) == 1 else None
    members = call.member_ids
    return Deadline(at_ms=at_ms, kind=kind, node_id=call.node_id, group_id=group_id, member_ids=members, text=text)


def delays_of(cluster: "Cluster", concerns: Callable[[Call], bool]) -> Iterator[tuple[float, Call, str]]:
    """Yield delayed requests and responses: when the delay ends, the call, and how to begin a sentence.

    The time is in milliseconds; infinite for a response that `delay_sync` delays until `release_sync`.

    Args:
        cluster: The cluster.
        concerns: Selects the calls, such as the calls of a group.
    """
    for at_ms, call in cluster.faults.delayed_requests():
        if concerns(call):
            yield at_ms, call, f"A fault delays {described(call)}: broker {call.node_id} handles it"
    for delayed, cause in (
        (cluster.sync_delays.delayed(), "delay_sync()"),
        (cluster.faults.delayed_responses(), "A fault"),
    ):
        for at_ms, call in delayed:
            if concerns(call):
                yield at_ms, call, f"{cause} delays the response to {described(call)}: broker {call.node_id} sends it"


def described(call: Call) -> str:
    """Return a request with its sender, such as "the JoinGroup of app-1"."""
    names = list(short_names(call.member_ids).values()) or [f"client {call.client_id}"]
    return f"the {call.api.name} of {listed(names)}"


def _throttles(cluster: "Cluster", now_ms: float) -> Iterator[Deadline]:
    for (node_id, client_id), until_ms in cluster.quotas.throttled.items():
        if now_ms < until_ms:
            text = f"Broker {node_id} reads requests of client {client_id} again, which has exceeded a quota."
            yield Deadline(at_ms=until_ms, kind="throttle", node_id=node_id, text=text)


def _transaction_deadlines(cluster: "Cluster", first: int | None, until_ms: float) -> Iterator[Deadline]:
    """Yield the deadlines of transactional ids: of each coordinator all until a time, or the first ones."""
    for broker in cluster.brokers.values():
        for transaction, at_ms in islice(broker.transaction_coordinator.timers(), first):
            if at_ms > until_ms:
                break
            name, value = transaction.transactional_id, transaction.value
            kind: DeadlineKind = "transactional_id_expiry"
            text = f"Transactional id {name} expires, unless it is used before."
            if value.state is ONGOING:
                kind = "transaction_timeout"
                text = f"The transaction of {name} is aborted, unless it ends before: its timeout has passed."
            elif value.state in PREPARED:
                kind, text = "transaction_end", f"The end of the transaction of {name} is stored again."
            yield Deadline(at_ms=at_ms, kind=kind, node_id=broker.node_id, transactional_id=name, text=text)


def _transaction_attempts(cluster: "Cluster", now_ms: float) -> Iterator[Deadline]:
    if (attempt_ms := cluster.transactions.next_attempt()) is not None:
        text = "A marker, or the verification of a Produce request, is tried again."
        yield Deadline(at_ms=attempt_ms, kind="transaction_attempt", text=text)


SOURCES: tuple[Callable[["Cluster", float], Iterator[Deadline]], ...] = (
    _first_uses,
    _loads,
    _stale_lookups,
    _preferred_election,
    _replica_copies,
    _offsets_expiry_checks,
    _delayed_requests,
    _delayed_responses,
    _throttles,
    _transaction_attempts,
)
"""One function for each part of a cluster that has deadlines, except for groups and transactional ids."""


# Sentences on timers of groups


def _text_of(expiry: Expiry, group: Group, names: dict[str, str]) -> str:
    removed = listed(names.get(member_id, member_id) for member_id in expiry.removes)
    is_one = len(expiry.removes) == 1
    then = _outcome(expiry)
    match expiry.kind:
        case "session" if expiry.needs_silence:
            return f"If {removed} sends no request, its session expires: it is removed, and {then}."
        case "session":
            return f"The JoinGroup of {removed}, a new member, has waited for too long: it is removed, and {then}."
        case "pending_member":
            then = "" if expiry.state is expiry.state_before else f", and {then}"
            return f"If {removed} does not join with the member id that it was assigned, the id is removed{then}."
        case "initial_delay" if expiry.restarts_ms != inf:
            longer = f"{(expiry.restarts_ms - expiry.at_ms) / 1000:.1f} s"
            return f"The initial rebalance delay is extended by {longer}, because a member has joined during it."
        case "initial_delay":
            return f"The initial rebalance delay ends: {then}."
        case "join":
            if expiry.restarts_ms != inf:
                static = listed(names.get(each, each) for each in expiry.member_ids if each not in expiry.removes)
                then = f"the join timer starts again, because none of the static members {static} has rejoined"
            unless = f"{'is' if is_one else 'are'} removed unless {'it rejoins' if is_one else 'they rejoin'}"
            gone = f"{removed} {unless} (heartbeats do not prevent that), and " if removed else ""
            return f"The join timer expires: {gone}{then}."
        case "sync":
            unless = "is removed unless it sends" if is_one else "are removed unless they send"
            return f"The sync timer expires: {removed} {unless} a SyncGroup, and {then}."
        case "expected":
            return group.extension.explain_expiry(expiry.removes, then)


def _outcome(expiry: Expiry) -> str:
    """Return what a timer does to the state of a group, as a clause."""
    members = counted(expiry.members, "member")
    if expiry.state is COMPLETING_REBALANCE:
        return f"generation {expiry.generation_id} starts with {members}"
    if expiry.state is EMPTY:
        return "the group becomes Empty" if expiry.state_before is not EMPTY else "the group stays Empty"
    if expiry.state is PREPARING_REBALANCE and expiry.state_before is not PREPARING_REBALANCE:
        others = "other member" if expiry.members == 1 else f"other {members}"
        return f"a rebalance starts with the {others}" if expiry.removes else f"a rebalance of {members} starts"
    return f"the group stays in {expiry.state.value} with {members}"
