"""States of members and groups over time, as observed by the members. Does not depend on Spark.

A member has one of four states: `gone`, `waiting` for an assignment, `assigned`, or `unknown`. It becomes unknown if it
is assigned and gets no response for its session timeout.

A group has the first of these states that applies:

- `empty`: it has no members.
- `rebalancing`: from the first JoinGroup of a generation until all members that joined have an assignment.
- `stable`: at least one member is assigned.
- `unknown`: at least one member is unknown.
- `rebalancing`: all members are waiting.

The coordinator may see another state, for example if the group also has members that are not part of the replay.

With the consumer protocol (KIP-848), a generation is a group epoch. A rebalance begins when the first
ConsumerGroupHeartbeat is sent whose response has the epoch. It ends with the last response by which a member reaches
the epoch, or gets another partition in this epoch.

All functions work on the events of many groups at once, sorted by group or member and time. Times are in microseconds.
"""

from typing import NamedTuple

import numpy as np

from fakebroker.errors import ErrorCode
from fakebroker.replay.report.columns import MOST, NULL, Bools, Columns, Ints, begin_of, is_first, last_of

MEMBER_STATES = ("assigned", "waiting", "unknown", "gone")
ASSIGNED, WAITING, UNKNOWN, GONE = range(4)

GROUP_STATES = ("stable", "rebalancing", "unknown", "empty")
STABLE, REBALANCING, GROUP_UNKNOWN, EMPTY = range(4)

_MEMBERSHIP_ENDS = (
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.FENCED_INSTANCE_ID,
    ErrorCode.FENCED_MEMBER_EPOCH,
)
"""Errors after which a member has lost its partitions."""

_UNCHANGED = -1


class Generations(NamedTuple):
    """The generations of groups, sorted by group and generation.

    Attributes:
        group: Code of the group.
        began_us: When the first request to join the generation was sent.
        ended_us: When the last member that joined had its assignment; `NULL` if no member got one.
        over_us: `ended_us`. If it is `NULL`: when the next generation began, or the end of the replay.
    """

    group: Ints
    began_us: Ints
    ended_us: Ints
    over_us: Ints

    @property
    def length_us(self) -> Ints:
        """Duration of each rebalance; `NULL` if no member got an assignment."""
        return np.where(self.ended_us == NULL, NULL, self.ended_us - self.began_us)


class States(NamedTuple):
    """States of members or groups, sorted by member or group and time.

    Attributes:
        of: Code of the member or group.
        at_us: When the state began.
        until_us: When the next state began, or the end of the replay.
        state: The state. It may be the same as before.
        before: The state before.
        owned: Number of partitions that a member may use; 0 for groups.
    """

    of: Ints
    at_us: Ints
    until_us: Ints
    state: Ints
    before: Ints
    owned: Ints


def generations_of(events: Columns, end_us: int) -> Generations:
    """Return the rebalances.

    Args:
        events: The events.
        end_us: The end of the replay.
    """
    accepted = events.is_request & (events.error == 0) & (events.member >= 0) & (events.group >= 0)
    classic = _classic(events, np.flatnonzero(accepted & events.is_api("JoinGroup", "SyncGroup")))
    consumer = _consumer(
        events, np.flatnonzero(accepted & events.is_api("ConsumerGroupHeartbeat") & (events.epoch >= 0))
    )
    group, number, began_us, ended_us = _by_generation(
        *(np.concatenate(columns) for columns in zip(classic, consumer, strict=True))
    )
    joined = began_us != MOST
    group, number, began_us, ended_us = group[joined], number[joined], began_us[joined], ended_us[joined]
    next_us = np.append(began_us[1:], end_us)[: len(group)]
    next_us[last_of(is_first(group))] = end_us
    return Generations(group, began_us, ended_us, np.where(ended_us == NULL, next_us, ended_us))


def _classic(events: Columns, rows: Ints) -> tuple[Ints, Ints, Ints, Ints]:
    """Return group, generation, and when it began and ended, from accepted JoinGroups and SyncGroups.

    A member that joins a complete generation, such as a static member that returns (KIP-345), only gets the current
    state and is not part of the rebalance. The same holds for the members of a group that starts again at generation 1,
    because the replay has seen this generation before.
    """
    is_sync = events.is_api("SyncGroup")[rows]
    rows = rows[
        np.lexsort((is_sync, events.sent_us[rows], events.member[rows], events.generation[rows], events.group[rows]))
    ]
    is_sync = events.is_api("SyncGroup")[rows]
    group, number, member = events.group[rows], events.generation[rows], events.member[rows]
    sent_us, done_us = events.sent_us[rows], events.done_us[rows]
    if not len(rows):
        return group, number, sent_us, done_us
    of_generation, of_member = is_first(group, number), is_first(group, number, member)
    generation, first = np.cumsum(of_generation) - 1, np.flatnonzero(of_generation)
    completed_us = np.minimum.reduceat(np.where(is_sync, done_us, MOST), first)[generation]
    # The last JoinGroup that the member has sent before its SyncGroup.
    join = np.maximum.accumulate(np.where(is_sync, -1, np.arange(len(rows))))
    joined_us = np.where(join >= begin_of(of_member), sent_us[join], MOST)
    takes_part = is_sync & (joined_us <= completed_us)
    synced_us = np.minimum.reduceat(np.where(takes_part, done_us, MOST), np.flatnonzero(of_member))
    ended_us = np.maximum.reduceat(
        np.where(synced_us == MOST, NULL, synced_us), np.flatnonzero(of_generation[of_member])
    )
    began_us = np.minimum.reduceat(np.where(is_sync, MOST, sent_us), first)
    return group[first], number[first], began_us, ended_us


def _consumer(events: Columns, rows: Ints) -> tuple[Ints, Ints, Ints, Ints]:
    """Return group, epoch, and when its rebalance began and ended, from accepted ConsumerGroupHeartbeats."""
    rows = rows[np.lexsort((events.sent_us[rows], events.member[rows], events.group[rows]))]
    group, member, number = events.group[rows], events.member[rows], events.generation[rows]
    by_epoch = np.lexsort((number, member, group))
    reaches = np.zeros(len(rows), np.bool_)
    reaches[by_epoch[is_first(group[by_epoch], member[by_epoch], number[by_epoch])]] = True
    sent_us, done_us = events.sent_us[rows], events.done_us[rows]
    counts = reaches | _gains(events, rows, is_first(group, member))
    began_us, ended_us = np.where(reaches, sent_us, MOST), np.where(counts, done_us, NULL)
    return _by_generation(group, number, began_us, ended_us)


def _gains(events: Columns, rows: Ints, of_member: Bools) -> Bools:
    """Return which responses assign a partition that the member's last assignment before has not.

    Args:
        events: The events.
        rows: The heartbeats by member and time.
        of_member: Which of them are the first ones of a member.
    """
    gains = np.zeros(len(rows), np.bool_)
    listed = np.flatnonzero(events.assigned_size[rows] != NULL)
    if not len(listed):
        return gains
    member = np.cumsum(of_member)[listed]
    former = np.where(is_first(member), -1, np.arange(len(listed)) - 1)
    index, partition = events.assigned(rows[listed])
    most = int(partition.max(initial=0)) + 1
    is_new = ~np.isin(former[index] * most + partition, index * most + partition)
    gains[listed[index[is_new | (former[index] < 0)]]] = True
    return gains


def _by_generation(group: Ints, number: Ints, began_us: Ints, ended_us: Ints) -> tuple[Ints, Ints, Ints, Ints]:
    """Return one row for each group and generation: the earliest beginning and the latest end."""
    order = np.lexsort((number, group))
    group, number = group[order], number[order]
    first = np.flatnonzero(is_first(group, number))
    if not len(first):
        return group, number, began_us, ended_us
    return (
        group[first],
        number[first],
        np.minimum.reduceat(began_us[order], first),
        np.maximum.reduceat(ended_us[order], first),
    )


def member_states_of(events: Columns, end_us: int) -> States:
    """Return the states of all members.

    Args:
        events: The events.
        end_us: The end of the replay.
    """
    member, at_us, turn, *changes = _marks(events, end_us)
    order = np.lexsort((turn, at_us, member))  # stable: of simultaneous changes, the last one counts
    member, at_us, turn = member[order], at_us[order], turn[order]
    first = is_first(member)
    begin = begin_of(first)
    known = []
    for change in changes:
        values = change[order]
        latest = np.maximum.accumulate(np.where(values != _UNCHANGED, np.arange(len(values)), 0))
        known.append(np.where(latest >= begin, values[latest], _UNCHANGED))
    present, assigned, owned, silent = known
    state = np.select([present == 0, assigned == 0, silent == 1], [GONE, WAITING, UNKNOWN], ASSIGNED)
    last = last_of(is_first(member, at_us, turn))
    return _states(member[last], at_us[last], state[last], np.maximum(owned, 0)[last], GONE, end_us)


def group_states_of(events: Columns, generations: Generations, members: States, end_us: int) -> States:
    """Return the states of all groups, from their generations and the states of their members."""
    changed = members.state != members.before
    group_of = events.group_of[members.of[changed]]
    state, before = members.state[changed], members.before[changed]
    count, none = len(generations.group), np.zeros(len(state), np.int64)
    group = np.concatenate([generations.group, generations.group, group_of])
    at_us = np.concatenate([generations.began_us, generations.over_us, members.at_us[changed]])
    order = np.lexsort((at_us, group))
    group, at_us = group[order], at_us[order]
    first = is_first(group)
    begin = begin_of(first)

    def total(of_generations: int, of_members: Ints) -> Ints:
        steps = np.concatenate(
            [np.full(count, of_generations), np.full(count, -of_generations), of_members.astype(np.int64)]
        )[order]
        sums = np.cumsum(steps)
        return np.asarray(sums - sums[begin] + steps[begin])

    rebalances = total(1, none)
    present = total(0, 1 * (state != GONE) - (before != GONE))
    assigned = total(0, 1 * (state == ASSIGNED) - (before == ASSIGNED))
    unknown = total(0, 1 * (state == UNKNOWN) - (before == UNKNOWN))
    found = np.select(
        [present <= 0, rebalances > 0, assigned > 0, unknown > 0],
        [EMPTY, REBALANCING, STABLE, GROUP_UNKNOWN],
        REBALANCING,
    )
    last = last_of(is_first(group, at_us))
    return _states(group[last], at_us[last], found[last], np.zeros(int(last.sum()), np.int64), EMPTY, end_us)


def unassigned_us_of(events: Columns, members: States, groups: States) -> Ints:
    """Return, for each group with scripts, how long no member had a partition while the group had members.

    The times of all partitions of a group are added up.
    """
    size = events.scripted_groups
    present_us, owned_us = np.zeros(len(events.groups), np.int64), np.zeros(len(events.groups), np.int64)
    there = groups.state != EMPTY
    np.add.at(present_us, groups.of[there], (groups.until_us - groups.at_us)[there])
    uses = (members.state == ASSIGNED) & (members.owned > 0) & (events.group_of[members.of] >= 0)
    np.add.at(owned_us, events.group_of[members.of[uses]], (members.owned * (members.until_us - members.at_us))[uses])
    unassigned_us = np.maximum(events.partitions_of * present_us[:size] - owned_us[:size], 0)
    return np.where(events.partitions_of > 0, unassigned_us, 0)


def _states(of: Ints, at_us: Ints, state: Ints, owned: Ints, initial: int, end_us: int) -> States:
    first = is_first(of)
    before = np.concatenate([[initial], state[:-1]])[: len(state)]
    before[first] = initial
    until_us = np.append(at_us[1:], end_us)[: len(at_us)]
    until_us[last_of(first)] = end_us
    return States(of, at_us, until_us, state, before, owned)


def _marks(events: Columns, end_us: int) -> list[Ints]:
    """Return changes of members' states: member, time, turn, present, assigned, owned, silent.

    `turn` orders simultaneous changes, and `owned` is the number of partitions that the member may use.
    """
    by_member = events.member >= 0
    asks = events.is_request & by_member
    beats = events.is_api("ConsumerGroupHeartbeat")
    is_join = events.is_api("JoinGroup")
    joins = is_join | (beats & (events.epoch == 0))
    leaves = events.is_api("LeaveGroup") | (beats & (events.epoch < 0) & (events.epoch != NULL))
    keeps = np.append(events.keeps, np.zeros(len(events.group_of) - len(events.keeps), np.bool_))
    parts = []

    def mark(
        rows: Ints, at_us: Ints, turn: int, present: Ints | int, assigned: Ints | int, owned: Ints | int, silent: int
    ) -> None:
        values = (np.broadcast_to(each, len(rows)) for each in (turn, present, assigned, owned, silent))
        parts.append([events.member[rows], at_us[rows], *values])

    rows = np.flatnonzero(events.is_act & by_member & events.is_api("start", "leave", "migrate", "crash"))
    mark(rows, events.sent_us, 2, 1 * events.is_api("start")[rows], 0, 0, 0)
    rows = np.flatnonzero(asks & (joins | leaves))
    kept = np.where(is_join[rows] & keeps[events.member[rows]], _UNCHANGED, 0)
    mark(rows, events.sent_us, 2, 1 * joins[rows], kept, kept, _UNCHANGED)
    is_new = (events.assigned_size != NULL) | (events.epoch == NULL) | (events.epoch == 0)
    is_assigned = (events.error == 0) & (events.is_api("SyncGroup") | (beats & (events.epoch >= 0)))
    rows = np.flatnonzero(asks & is_assigned & is_new)
    mark(rows, events.done_us, 0, _UNCHANGED, 1, np.maximum(events.assigned_size[rows], 0), _UNCHANGED)
    rows = np.flatnonzero(asks & np.isin(events.error, _MEMBERSHIP_ENDS))
    mark(rows, events.done_us, 1, _UNCHANGED, 0, 0, _UNCHANGED)
    for member, at_us, turn, silent in _silences(events, end_us):
        unchanged = np.full(len(member), _UNCHANGED)
        parts.append(
            [member, at_us, np.full(len(member), turn), unchanged, unchanged, unchanged, np.full(len(member), silent)]
        )
    return [np.concatenate(columns) for columns in zip(*parts, strict=True)]


def _silences(events: Columns, end_us: int) -> list[tuple[Ints, Ints, int, int]]:
    """Return where the silences of members begin and end: members, times, turn, and whether it is silent from then on.

    A member is silent from its session timeout after a response until the next response, or until the end. A row of
    folded heartbeats may end after others that begin later.
    """
    rows = np.flatnonzero(
        events.is_request & (events.done_us != NULL) & (events.member >= 0) & (events.member < len(events.scripts))
    )
    member = events.member[rows]
    from_us = np.where(events.count[rows] > 1, events.sent_us[rows], events.done_us[rows])
    heard_us = np.maximum(events.done_us[rows], events.until_us[rows])
    order = np.lexsort((from_us, member))
    member, from_us, heard_us = member[order], from_us[order], heard_us[order]
    if not len(rows):
        return []
    first = is_first(member)
    since_us, number = int(heard_us.min()), np.cumsum(first)
    length_us = int(heard_us.max()) - since_us + 1
    heard_us = np.maximum.accumulate(heard_us - since_us + number * length_us) - number * length_us + since_us
    next_us = np.append(from_us[1:], end_us + 1)
    next_us[last_of(first)] = end_us + 1
    timeout_us = events.timeout_us[member]
    is_silent = next_us - heard_us > timeout_us
    begins, ends = is_silent & (heard_us + timeout_us <= end_us), is_silent & (next_us <= end_us)
    return [
        (member[begins], (heard_us + timeout_us)[begins], 2, 1),
        (member[ends], next_us[ends], 0, 0),
    ]
