"""What groups went through: each change of state and of members, with its cause. Bounded, and plain data.

A group collects what a request or a timer changes in its `Step`; the coordinator hands the step over when it is done.
Changes nothing in any group, and outlives them: a group that was deleted or has moved keeps its history.
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from math import inf
from operator import attrgetter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fakebroker.coordinator.group.classic.group import Group

DEAD = "Dead"
"""The state of a group that is not there."""

MAX_MOMENTS_OF_A_GROUP = 256
MAX_MOMENTS = 20_000


@dataclass(frozen=True, slots=True)
class Timer:
    """A timer that runs.

    Attributes:
        what: "join", "sync", "expected" of instances that are (KAFKA-8397), or whose it is: "session of" or "pending"
            with a member id.
        left_ms: How long until it runs out.
    """

    what: str
    left_ms: float


@dataclass(frozen=True, slots=True)
class Moment:
    """One change of a group: of its state, or of its members alone.

    Attributes:
        at_ms: When, by the brokers' clock.
        coordinator_id: The node id of the broker that coordinated the group.
        cause: What did it, in words.
        state_from: Kafka's name of the state before; Dead for a group that has just been made.
        state_to: Of the state after; the same, if only members came or went.
        members: The member ids after it, in the order in which they were added.
        joined: Of those, the ones that are new.
        rejoined: Members whose JoinGroup is parked since the last moment.
        left: Ids that are members no more.
        parked_joins: Whose JoinGroup was waiting for its answer, in order of arrival; those of the state that was left
            are answered with it.
        parked_syncs: The same of SyncGroup.
        timers: What ran afterwards, the next to run out first. Of sessions, and of pending ids, the one that is next,
            and only where the state changed. Empty where a request or a timer did still more to the group at once.
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
class Step:
    """What one request or timer has done to a group so far.

    Attributes:
        cause: Is set before the first change.
        joined: Members added since the last moment; `rejoined` and `left` likewise.
        moments: The transitions, oldest first: of each `Moment` the fields that are known by then.
    """

    cause: str = ""
    joined: list[str] = field(default_factory=list)
    rejoined: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    moments: list[dict[str, Any]] = field(default_factory=list)

    def close_moment(self, group: "Group", state_from: str, now_ms: float) -> None:
        """Ends a moment: what changes from here on belongs to the next."""
        # Who came and went within one moment, as a replacement that is taken back does, is not told.
        joined = tuple(member_id for member_id in self.joined if member_id not in self.left)
        left = tuple(member_id for member_id in self.left if member_id not in self.joined)
        members = tuple(group.members)
        state_to = group.state.value
        if state_to == DEAD:
            members, left = (), members
        self.moments.append(
            {
                "at_ms": now_ms,
                "cause": self.cause,
                "state_from": state_from,
                "state_to": state_to,
                "generation_id": group.generation_id,
                "leader_id": group.leader_id,
                "members": members,
                "joined": joined,
                "rejoined": tuple(member_id for member_id in self.rejoined if member_id not in joined),
                "left": left,
                "parked_joins": tuple(group.parked_joins),
                "parked_syncs": tuple(group.parked_syncs),
            }
        )
        self._forget_members()

    def clear(self) -> None:
        self.cause = ""
        self.moments.clear()
        self._forget_members()

    def _forget_members(self) -> None:
        self.joined.clear()
        self.rejoined.clear()
        self.left.clear()


def _timers(group: "Group", now_ms: float, *, with_members: bool) -> tuple[Timer, ...]:
    """The timers of a group, the next to run out first; those of members take a look at each of them."""
    if group.state.value == DEAD:
        return ()
    deadlines = [("join", group.join_deadline_ms), ("sync", group.sync_deadline_ms)]
    deadlines.append(("expected", group.expected.deadline_ms()))
    if with_members and group.members:
        member = min(group.members.values(), key=attrgetter("deadline_ms"))
        deadlines.append((f"session of {member.member_id}", member.deadline_ms))
    if with_members and group.pending_members:
        member_id = min(group.pending_members, key=group.pending_members.__getitem__)
        deadlines.append((f"pending {member_id}", group.pending_members[member_id]))
    running = [Timer(what, deadline_ms - now_ms) for what, deadline_ms in deadlines if deadline_ms < inf]
    return tuple(sorted(running, key=attrgetter("left_ms")))


Note = Callable[["Group", float], None]
"""Takes over the step of a group that is done, at this time, and clears it."""


def forget(group: "Group", now_ms: float) -> None:
    """The `Note` of a coordinator whose groups have no history."""
    group.step.clear()


class History:
    """The newest moments of all groups.

    Args:
        max_moments_of_a_group: How many are kept of one group.
        max_moments: How many are kept in all. Over it, the group that has been quiet for longest loses its oldest.

    Attributes:
        listeners: Are told of a group's id and of its new moments, oldest first.
    """

    def __init__(self, max_moments_of_a_group: int = MAX_MOMENTS_OF_A_GROUP, max_moments: int = MAX_MOMENTS) -> None:
        self.max_moments_of_a_group = max_moments_of_a_group
        self.max_moments = max_moments
        self.listeners: list[Callable[[str, Sequence[Moment]], None]] = []
        self._count = 0
        self._moments: dict[str, deque[Moment]] = {}  # The group that has been quiet for longest comes first.

    def note(self, group: "Group", now_ms: float, coordinator_id: int) -> None:
        """Takes over the step of a group that is done, and clears it."""
        step = group.step
        if step.joined or step.rejoined or step.left:
            step.close_moment(group, group.state.value, now_ms)
        if step.moments:
            self._keep(group, now_ms, coordinator_id)
        step.clear()

    def _keep(self, group: "Group", now_ms: float, coordinator_id: int) -> None:
        step = group.step
        moments = self._moments[group.group_id] = self._moments.pop(group.group_id, deque())
        last = step.moments.pop()
        new = [Moment(**moment, coordinator_id=coordinator_id) for moment in step.moments]
        timers = _timers(group, now_ms, with_members=last["state_from"] != last["state_to"])
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
        if not self._moments[group_id]:
            del self._moments[group_id]

    def of(self, group_id: str) -> tuple[Moment, ...]:
        """What is kept of a group, oldest first; nothing of one that never was."""
        return tuple(self._moments.get(group_id, ()))

    def group_ids(self, count: int) -> list[str]:
        """The groups that something happened to last, so many of them, the newest first."""
        return list(islice(reversed(self._moments), count))

    def __len__(self) -> int:
        return self._count
