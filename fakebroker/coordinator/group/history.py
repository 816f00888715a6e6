"""The history of groups: each change of state or members, with its cause. Bounded in size.

A group collects the changes by a request or timer in its `Change`. When the request or timer is complete, the
coordinator passes the group to `History.record`. Groups that were deleted or have moved keep their history.
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Protocol

DEAD = "Dead"
"""The state of a group that does not exist."""

MAX_MOMENTS_OF_A_GROUP = 256
MAX_MOMENTS = 20_000


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


@dataclass(slots=True)
class Change:
    """The changes of a group by the request or timer in progress.

    Attributes:
        cause: Set by the procedure before the first change.
        joined: Ids of members that were added since the last moment.
        rejoined: Ids of members whose JoinGroup was parked since the last moment.
        left: Ids of members that were removed since the last moment.
        moments: The fields of each complete `Moment`, oldest first, without `coordinator_id` and `timers`.
    """

    cause: str = ""
    joined: list[str] = field(default_factory=list)
    rejoined: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    moments: list[dict[str, Any]] = field(default_factory=list)

    @property
    def has_members(self) -> bool:
        """Whether members were added, parked or removed since the last moment."""
        return bool(self.joined or self.rejoined or self.left)

    def clear_members(self) -> None:
        self.joined.clear()
        self.rejoined.clear()
        self.left.clear()

    def clear(self) -> None:
        self.cause = ""
        self.moments.clear()
        self.clear_members()


class ChangedGroup(Protocol):
    """The part of a group that a history uses."""

    group_id: str
    change: Change

    def end_moment(self, now_ms: float) -> None:
        """Add a moment to `change` for members that were added, parked or removed."""

    def timers(self, now_ms: float, *, with_members: bool) -> tuple[Timer, ...]:
        """Return the running timers, the next to expire first."""


def discard_change(group: ChangedGroup, now_ms: float) -> None:
    """Drop the change of a group, for a coordinator without a history."""
    group.change.clear()


class History:
    """The newest moments of all groups.

    Args:
        max_moments_of_a_group: The number of moments that are kept of one group.
        max_moments: The number of moments that are kept in all. Above it, the oldest moment of the group that has not
            changed for longest is dropped.

    Attributes:
        listeners: Called with the id of a group and its new moments, oldest first, after each request or timer that has
            changed the group.
    """

    def __init__(self, max_moments_of_a_group: int = MAX_MOMENTS_OF_A_GROUP, max_moments: int = MAX_MOMENTS) -> None:
        self.max_moments_of_a_group = max_moments_of_a_group
        self.max_moments = max_moments
        self.listeners: list[Callable[[str, Sequence[Moment]], None]] = []
        self._count = 0
        self._moments: dict[str, deque[Moment]] = {}  # The group without changes for longest comes first.
        self._dropped: dict[str, int] = {}

    def record(self, group: ChangedGroup, now_ms: float, coordinator_id: int) -> None:
        """Record the change of a group after a request or timer, and clear it."""
        change = group.change
        if change.has_members:
            group.end_moment(now_ms)
        if change.moments:
            self._keep(group, now_ms, coordinator_id)
        change.clear()

    def _keep(self, group: ChangedGroup, now_ms: float, coordinator_id: int) -> None:
        change = group.change
        moments = self._moments[group.group_id] = self._moments.pop(group.group_id, deque())
        last = change.moments.pop()
        new = [Moment(**moment, coordinator_id=coordinator_id) for moment in change.moments]
        timers = group.timers(now_ms, with_members=last["state_from"] != last["state_to"])
        new.append(Moment(**last, coordinator_id=coordinator_id, timers=timers))
        moments.extend(new)
        for listener in self.listeners:
            listener(group.group_id, new)
        self._count += len(new)
        while len(moments) > self.max_moments_of_a_group:
            self._drop_oldest(group.group_id)
        while self._count > self.max_moments:
            self._drop_oldest(next(iter(self._moments)))

    def _drop_oldest(self, group_id: str) -> None:
        self._moments[group_id].popleft()
        self._count -= 1
        self._dropped[group_id] = self._dropped.get(group_id, 0) + 1
        if not self._moments[group_id]:
            del self._moments[group_id], self._dropped[group_id]

    def of(self, group_id: str) -> tuple[Moment, ...]:
        """Return the kept moments of a group, oldest first. An unknown group has none."""
        return tuple(self._moments.get(group_id, ()))

    def count_of(self, group_id: str) -> int:
        """Return how many moments of a group were recorded; it starts again if all of them were dropped."""
        return len(self._moments.get(group_id, ())) + self._dropped.get(group_id, 0)

    def since(self, group_id: str, count: int) -> tuple[Moment, ...]:
        """Return the kept moments of a group that were recorded when `count_of` was at least this, oldest first."""
        recorded = self.count_of(group_id)
        new = recorded - count if count <= recorded else recorded
        moments = self.of(group_id)
        return moments[-new:] if new else ()

    def group_ids(self, count: int) -> list[str]:
        """Return the groups that changed last, at most `count`, the newest first."""
        return list(islice(reversed(self._moments), count))

    def __len__(self) -> int:
        return self._count
