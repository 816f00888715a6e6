"""The history of groups: each change of state or members, with its cause. Bounded in size.

A group collects the changes by a request or timer in its `Change`. When the request or timer is complete, the
coordinator passes the group to `History.record`, which keeps a `RecordedMoment` of each. Most are dropped unread, so
they are converted to `Moment`s when they are read. Groups that were deleted or have moved keep their history.
"""

from collections import deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from itertools import islice
from math import inf
from operator import attrgetter
from typing import Protocol

DEAD = "Dead"
"""The state of a group that does not exist."""

MAX_MOMENTS_OF_A_GROUP = 256
"""Maximum number of moments that are kept of one group."""
MAX_MOMENTS = 20_000
"""Maximum number of moments that are kept in all."""
MAX_IDS_OF_A_GROUP = 250_000
"""Maximum number of member ids in the kept moments of one group: each moment lists the members that it has found."""
MAX_IDS = 2_000_000
"""Maximum number of member ids in all kept moments. They take 8 bytes each."""
MAX_GROUPS_WITHOUT_MOMENTS = 20_000
"""Maximum number of groups without a kept moment of which the number of dropped moments is known."""


@dataclass(frozen=True, slots=True)
class Timer:
    """A running timer.

    Attributes:
        what: "join", "sync", "expected" (of expected instances, KAFKA-8397), "session of ID" or "pending ID" with a
            member id.
        left_ms: The time until it expires.
    """

    what: str
    left_ms: float


@dataclass(frozen=True, slots=True)
class Moment:
    """One change of a group: of its state, or of its members alone.

    Attributes:
        at_ms: The time of the change, by the brokers' clock.
        coordinator_id: The node id of the broker that coordinated the group.
        cause: Human-readable cause.
        state_from: Kafka's name of the state before; Dead if the group has just been created.
        state_to: Kafka's name of the state afterwards; equals `state_from` if only members were added or removed.
        generation_id: The generation afterwards.
        leader_id: The leader afterwards.
        members: The member ids afterwards, in the order in which they were added.
        joined: The ids in `members` that are new.
        rejoined: Members whose JoinGroup was parked since the last moment, except those in `joined`.
        left: Ids that are no longer members.
        parked_joins: Members whose JoinGroup was parked at the time of the change, in order of arrival. If the change
            ended the state in which the requests waited, they are answered immediately afterwards.
        parked_syncs: The same for SyncGroup.
        timers: The running timers afterwards, the next to expire first. If the state changed, they include one session
            and one pending id: those that expire next. Empty if the same request or timer caused another moment after
            this one.
    """

    at_ms: float
    coordinator_id: int
    cause: str
    state_from: str
    state_to: str
    generation_id: int
    leader_id: str | None
    members: tuple[str, ...]
    joined: tuple[str, ...]
    rejoined: tuple[str, ...]
    left: tuple[str, ...]
    parked_joins: tuple[str, ...]
    parked_syncs: tuple[str, ...]
    timers: tuple[Timer, ...] = ()

    @property
    def is_transition(self) -> bool:
        return self.state_from != self.state_to

    @property
    def size(self) -> int:
        """How many member ids the moment has, except for a few changes."""
        return len(self.members) + len(self.rejoined) + len(self.parked_joins) + len(self.parked_syncs)


Timers = tuple[str | float, ...]
"""See `RecordedMoment.timers`. A tuple of its own for each timer would take more time."""


@dataclass(slots=True)
class RecordedMoment:
    """A moment that was not read yet: its attributes are those of `Moment`, but ids and timers are not copied.

    Attributes:
        members, parked_joins, parked_syncs: Snapshots of the ids (`SnapshotDict`).
        size: See `Moment.size`.
        coordinator_id: Set by the history.
        timers: Set by the history. For each timer its name or the beginning of it, the member id that follows, if any,
            and its deadline, infinite if it is not running.
    """

    at_ms: float
    cause: str
    state_from: str
    state_to: str
    generation_id: int
    leader_id: str | None
    members: Collection[str]
    joined: tuple[str, ...]
    rejoined: tuple[str, ...]
    left: tuple[str, ...]
    parked_joins: Collection[str]
    parked_syncs: Collection[str]
    size: int
    coordinator_id: int = -1
    timers: Timers = ()

    @property
    def is_transition(self) -> bool:
        return self.state_from != self.state_to

    def moment(self) -> Moment:
        """Return the moment."""
        return Moment(
            at_ms=self.at_ms,
            coordinator_id=self.coordinator_id,
            cause=self.cause,
            state_from=self.state_from,
            state_to=self.state_to,
            generation_id=self.generation_id,
            leader_id=self.leader_id,
            members=tuple(self.members),
            joined=self.joined,
            rejoined=self.rejoined,
            left=self.left,
            parked_joins=tuple(self.parked_joins),
            parked_syncs=tuple(self.parked_syncs),
            timers=_running(self.timers, self.at_ms),
        )


def _running(timers: Timers, now_ms: float) -> tuple[Timer, ...]:
    rows = zip(timers[::3], timers[1::3], map(float, timers[2::3]), strict=True)
    running = [Timer(f"{what}{member_id}", deadline_ms - now_ms) for what, member_id, deadline_ms in rows]
    return tuple(sorted([timer for timer in running if timer.left_ms < inf], key=attrgetter("left_ms")))


@dataclass(frozen=True, slots=True)
class DroppedMoments:
    """The moments of a group that are no longer in its history, because the history is limited.

    Attributes:
        count: How many are known to be dropped.
        until_ms: When the last of them was recorded, by the brokers' clock; None if there is none.
        is_exact: Whether no others were dropped. Numbers are only kept for a limited number of groups.
    """

    count: int = 0
    until_ms: float | None = None
    is_exact: bool = True

    def __bool__(self) -> bool:
        """Whether moments were dropped, or may have been."""
        return self.count > 0 or not self.is_exact

    def __str__(self) -> str:
        """Return a clause such as "3 earlier changes were dropped"; "" if none were."""
        changes = f"{self.count} earlier change{'s were' if self.count != 1 else ' was'} dropped"
        if self.is_exact:
            return f"{changes} from the history" if self.count else ""
        return f"{changes} from the history, or more" if self.count else "earlier changes may have been dropped"


NOTHING_DROPPED = DroppedMoments()


@dataclass(slots=True)
class Change:
    """The changes of a group by the request or timer in progress.

    Attributes:
        cause: Set by the procedure before the first change.
        joined: Ids of members that were added since the last moment.
        rejoined: Ids of members whose JoinGroup was parked since the last moment.
        left: Ids of members that were removed since the last moment.
        moments: The complete moments, oldest first.
    """

    cause: str = ""
    joined: list[str] = field(default_factory=list)
    rejoined: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    moments: list[RecordedMoment] = field(default_factory=list)

    def clear_members(self) -> None:
        self.joined.clear()
        self.rejoined.clear()
        self.left.clear()


class ChangedGroup(Protocol):
    """The part of a group that a history uses."""

    group_id: str
    pending_change: Change | None

    def end_moment(self, now_ms: float) -> None:
        """Add a moment to `change` for members that were added, parked or removed."""

    def timers(self, *, with_members: bool) -> Timers:
        """Return `RecordedMoment.timers`; `with_members` adds sessions and pending ids."""


def discard_change(group: ChangedGroup, now_ms: float) -> None:
    """Drop the change of a group, for a coordinator without a history."""
    group.pending_change = None


@dataclass(slots=True)
class _GroupHistory:
    """The history of one group: its kept moments, how many member ids they have, and what was dropped."""

    moments: deque[Moment | RecordedMoment]
    dropped: int
    dropped_until_ms: float | None
    is_exact: bool
    ids: int = 0

    def read(self) -> tuple[Moment, ...]:
        """Return the moments, each of which is converted once."""
        read = tuple(each if isinstance(each, Moment) else each.moment() for each in self.moments)
        self.moments = deque(read)
        return read


class History:
    """The newest moments of all groups, and how many were dropped.

    Above a limit of one group, its oldest moments are dropped; above a limit of all groups, the oldest moments of the
    group that has not changed for longest. The newest moment of a group is dropped only by the latter.

    Args:
        max_moments_of_a_group: The number of moments that are kept of one group.
        max_moments: The number of moments that are kept in all.
        max_ids_of_a_group: The number of member ids in the kept moments of one group.
        max_ids: The number of member ids in all kept moments.
        max_groups_without_moments: The number of groups without kept moments whose numbers of dropped moments are kept.

    Attributes:
        listeners: Called with the id of a group and its new moments, oldest first, after each request or timer that has
            changed the group.
        dropped: How many moments were dropped in all.
    """

    def __init__(
        self,
        max_moments_of_a_group: int = MAX_MOMENTS_OF_A_GROUP,
        max_moments: int = MAX_MOMENTS,
        max_ids_of_a_group: int = MAX_IDS_OF_A_GROUP,
        max_ids: int = MAX_IDS,
        max_groups_without_moments: int = MAX_GROUPS_WITHOUT_MOMENTS,
    ) -> None:
        self.max_moments_of_a_group, self.max_moments = max_moments_of_a_group, max_moments
        self.max_ids_of_a_group, self.max_ids = max_ids_of_a_group, max_ids
        self.max_groups_without_moments = max_groups_without_moments
        self.listeners: list[Callable[[str, Sequence[RecordedMoment]], None]] = []
        self.dropped = 0
        self._count = self._ids = 0
        self._groups: dict[str, _GroupHistory] = {}  # The group without changes for longest comes first.
        self._without_moments: dict[str, DroppedMoments] = {}  # The group whose last moment was dropped first.
        self._unknown = NOTHING_DROPPED  # Of groups in neither of them.

    def record(self, group: ChangedGroup, now_ms: float, coordinator_id: int) -> None:
        """Record the change of a group after a request or timer, and clear it."""
        change = group.pending_change
        if change is None:
            return
        if change.joined or change.rejoined or change.left:
            group.end_moment(now_ms)
        if change.moments:
            self._keep(group, change.moments, coordinator_id)
        group.pending_change = None

    def _keep(self, group: ChangedGroup, moments: list[RecordedMoment], coordinator_id: int) -> None:
        group_id = group.group_id
        kept = self._groups.pop(group_id, None)
        if kept is None:
            dropped = self._without_moments.pop(group_id, self._unknown)
            kept = _GroupHistory(deque(), dropped.count, dropped.until_ms, dropped.is_exact)
        self._groups[group_id] = kept
        moments[-1].timers = group.timers(with_members=moments[-1].is_transition)
        for moment in moments:
            moment.coordinator_id = coordinator_id
            size = moment.size
            kept.ids += size
            self._ids += size
        kept.moments += moments
        self._count += len(moments)
        for listener in self.listeners:
            listener(group_id, moments)
        while len(kept.moments) > self.max_moments_of_a_group or (
            kept.ids > self.max_ids_of_a_group and len(kept.moments) > 1
        ):
            self._drop_oldest(group_id)
        while self._count > self.max_moments or self._ids > self.max_ids:
            self._drop_oldest(next(iter(self._groups)))

    def _drop_oldest(self, group_id: str) -> None:
        kept = self._groups[group_id]
        moment = kept.moments.popleft()
        kept.ids -= moment.size
        self._ids -= moment.size
        self._count -= 1
        self.dropped += 1
        kept.dropped += 1
        kept.dropped_until_ms = moment.at_ms
        if kept.moments:
            return
        self._without_moments[group_id] = self.dropped_of(group_id)
        del self._groups[group_id]
        if len(self._without_moments) > self.max_groups_without_moments:
            forgotten = self._without_moments.pop(next(iter(self._without_moments)))
            until_ms = max(forgotten.until_ms or 0.0, self._unknown.until_ms or 0.0)
            self._unknown = DroppedMoments(0, until_ms, is_exact=False)

    def of(self, group_id: str) -> tuple[Moment, ...]:
        """Return the kept moments of a group, oldest first. An unknown group has none."""
        kept = self._groups.get(group_id)
        return () if kept is None else kept.read()

    def dropped_of(self, group_id: str) -> DroppedMoments:
        """Return which moments of a group are no longer kept."""
        kept = self._groups.get(group_id)
        if kept is None:
            return self._without_moments.get(group_id, self._unknown)
        return DroppedMoments(kept.dropped, kept.dropped_until_ms, kept.is_exact)

    def count_of(self, group_id: str) -> int:
        """Return how many moments of a group were recorded, as far as is known; see `DroppedMoments.is_exact`."""
        kept = self._groups.get(group_id)
        return (0 if kept is None else len(kept.moments)) + self.dropped_of(group_id).count

    def since(self, group_id: str, count: int) -> tuple[Moment, ...]:
        """Return the kept moments of a group that were recorded when `count_of` was at least this, oldest first."""
        recorded = self.count_of(group_id)
        new = recorded - count if count <= recorded else recorded
        moments = self.of(group_id)
        return moments[-new:] if new else ()

    def is_complete_since(self, group_id: str, count: int) -> bool:
        """Return whether `since` returns all moments, and none of them was dropped."""
        dropped = self.dropped_of(group_id)
        return dropped.count <= count and (dropped.is_exact or self.count_of(group_id) >= count)

    def group_ids(self, count: int) -> list[str]:
        """Return the groups that changed last, at most `count`, the newest first."""
        return list(islice(reversed(self._groups), count))

    def __len__(self) -> int:
        return self._count
