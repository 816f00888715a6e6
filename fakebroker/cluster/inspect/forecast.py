"""What the timers of a group do if its members send heartbeats and no other requests.

The rules of the timers are those of the coordinator: its functions run on a copy of the group. A timer that another
one prevents, such as the session of a member that the join timer removes before, is left out.
"""

from collections.abc import Callable, Collection, Iterator
from copy import copy
from dataclasses import replace
from math import inf
from typing import Literal

import msgspec

from fakebroker.coordinator.batch_join.batch_join_extension import BatchJoinExtension, expected_instances
from fakebroker.coordinator.batch_join.expected_instances import ExpectedInstances
from fakebroker.coordinator.classic.group import Group, Member
from fakebroker.coordinator.classic.rebalance import expire_next_timer
from fakebroker.coordinator.classic.states import COMPLETING_REBALANCE, EMPTY, PREPARING_REBALANCE, GroupState
from fakebroker.coordinator.snapshot_dict import SnapshotDict
from fakebroker.errors import ErrorCode

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


class _Copy:
    """A copy of a group, whose members send heartbeats, and the time up to which its timers have expired."""

    def __init__(self, original: Group, removal_ms: Callable[[Group], float]) -> None:
        self._removal_ms = removal_ms
        self.group = group = copy(original)
        group.context = original.context._replace(send=_drop, append=_succeed)
        group.members = SnapshotDict((member_id, copy(member)) for member_id, member in original.members.items())
        group.static_members = dict(original.static_members)
        group.pending_members = dict(original.pending_members)
        group.parked_joins = SnapshotDict((member_id, None) for member_id in original.parked_joins)
        group.parked_syncs = SnapshotDict((member_id, None) for member_id in original.parked_syncs)
        group.awaiting_sync = dict(original.awaiting_sync)
        group.protocol_counts = dict(original.protocol_counts)
        group.controls = copy(original.controls)
        group.pending_change = None
        if isinstance(original.extension, BatchJoinExtension):
            group.extension = extension = BatchJoinExtension(group)
            expected = original.extension.expected
            waiting = {member_id: replace(join, token=None) for member_id, join in expected.waiting.items()}
            extension.expected = ExpectedInstances(dict(expected.instances), waiting, expected.waiting_deadline_ms)
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
    return "expected", tuple(instance.member_id for instance in expected_instances(group).missing)


def _ids(group: Group) -> dict[str, None]:
    expected = (instance.member_id for instance in expected_instances(group).instances.values())
    return dict.fromkeys((*group.members, *group.pending_members, *expected))


def _succeed(*arguments: object) -> ErrorCode:
    """Append nothing."""
    return ErrorCode.NONE


def _drop(*arguments: object) -> None:
    """Ignore a response, or a call for suspended sessions."""
