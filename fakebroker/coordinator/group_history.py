"""The history of groups of both kinds: each change of state or members, with its cause.

1. A group notes in its `Change` what a request or timer changes. The code that changes the group sets `Change.cause`
   before. Members that are added and removed within one moment are left out.
2. A moment ends at each transition of a classic group, and after each expired member of a consumer group. So one
   request or timer can make several moments.
3. When the request or timer is complete, the coordinator passes the group to `History.record`. It ends the last moment
   (`end_moment`) and gives it the timers that run. The history keeps the moments, and the group forgets its change. A
   coordinator without a history calls `discard_change`.
4. The history keeps a `RecordedMoment`. It shares ids and members with the group instead of copying them, because most
   moments are dropped unread. When it is first read, `History.of` converts it to a `Moment`.
5. `history.py` decides which moments are dropped, and which facts about them are kept. Groups that were deleted or have
   moved keep their history.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Sequence
from math import inf
from operator import attrgetter

import msgspec

from fakebroker.coordinator.consumer.member import ConsumerGroupMember, Partitions
from fakebroker.coordinator.history import BoundedHistory
from fakebroker.topic_partition import partition_names

NameOf = Callable[[bytes], str | None]
"""Returns the name of a topic by its id, also of a deleted one; None if there never was such a topic."""


class Timer(msgspec.Struct, frozen=True):
    """A running timer.

    Attributes:
        what: "join", "sync", "expected" (of expected instances, KAFKA-8397), "session of ID", "pending ID"; and in a
            consumer group "revocation of ID", "join of ID" or "sync of ID", with a member id.
        left_ms: The time until it expires.
    """

    what: str
    left_ms: float


class MemberChange(msgspec.Struct, frozen=True):
    """A member of a consumer group (KIP-848) after a change. Partitions are sorted and in Kafka's notation: "orders-0".

    Attributes:
        member_epoch: Its epoch; -2 for a static member that has left for a while.
        state: Kafka's name: STABLE, UNREVOKED_PARTITIONS, UNRELEASED_PARTITIONS, UNKNOWN.
        assigned: The partitions that it may use.
        pending_revocation: The partitions that it has to give up and has not confirmed.
        instance_id: Set for a static member.
    """

    member_id: str
    client_id: str
    member_epoch: int
    state: str
    assigned: tuple[str, ...]
    pending_revocation: tuple[str, ...]
    instance_id: str | None = None


class Moment(msgspec.Struct, frozen=True):
    """One change of a group: of its state, or of its members alone.

    Attributes:
        at_ms: The time of the change, by the brokers' clock.
        coordinator_id: The node id of the broker that coordinated the group.
        cause: Human-readable cause.
        state_from: Kafka's name of the state before; Dead if the group has just been created.
        state_to: Kafka's name of the state afterwards; equals `state_from` if only members were added or removed.
        generation_id: The generation afterwards; of a consumer group its epoch.
        leader_id: The leader afterwards.
        members: The member ids afterwards, in the order in which they were added.
        joined: The ids in `members` that are new.
        rejoined: Members whose JoinGroup was parked since the last moment, except those in `joined`.
        left: Ids that are no longer members.
        parked_joins: Members whose JoinGroup was parked at the time of the change, in order of arrival. If the change
            ended the state in which the requests waited, they are answered immediately afterwards.
        parked_syncs: Members whose SyncGroup was parked at the time of the change, in order of arrival; answered like
            `parked_joins`.
        timers: The running timers afterwards, the next to expire first. If the state changed, they include one session
            and one pending id: those that expire next. Empty if the same request or timer caused another moment after
            this one.
        assignment_epoch: The epoch of a consumer group's target assignment afterwards; None in a classic group.
        changes: The members of a consumer group whose epoch, state or partitions have changed, without those in `left`.
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
    assignment_epoch: int | None = None
    changes: tuple[MemberChange, ...] = ()

    @property
    def is_transition(self) -> bool:
        return self.state_from != self.state_to

    @property
    def size(self) -> int:
        """How many member ids and partitions the moment has, except for a few changes of members."""
        partitions = sum(len(each.assigned) + len(each.pending_revocation) for each in self.changes)
        return len(self.members) + len(self.rejoined) + len(self.parked_joins) + len(self.parked_syncs) + partitions

    def moment(self) -> "Moment":
        return self


Timers = tuple[str | float, ...]
"""See `RecordedMoment.timers`. A tuple of its own for each timer would take more time."""


class RecordedMoment(msgspec.Struct):
    """A moment that was not read yet. It has the attributes of `Moment`, but ids and timers are not copied.

    Attributes:
        members, parked_joins, parked_syncs: Snapshots of the ids (`SnapshotDict`).
        size: See `Moment.size`.
        coordinator_id: Set by the history.
        timers: Set by the history. Three entries for each timer: its name or the beginning of its name, the member id
            that completes the name or "", and the deadline. The deadline of a timer that does not run is infinite.
        changed: The members of `Moment.changes`.
        name_of: Set by the history.
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
    assignment_epoch: int | None = None
    changed: Sequence[ConsumerGroupMember] = ()
    name_of: NameOf | None = None

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
            assignment_epoch=self.assignment_epoch,
            changes=tuple(_member_change(member, self.name_of or _no_name) for member in self.changed),
        )


def _no_name(topic_id: bytes) -> str | None:
    return None


def _member_change(member: ConsumerGroupMember, name_of: NameOf) -> MemberChange:
    return MemberChange(
        member_id=member.member_id,
        client_id=member.client_id,
        member_epoch=member.member_epoch,
        state=member.state.name,
        assigned=_named(member.assigned, name_of),
        pending_revocation=_named(member.pending_revocation, name_of),
        instance_id=member.instance_id,
    )


def _named(partitions: Partitions, name_of: NameOf) -> tuple[str, ...]:
    named = ((name_of(topic_id) or topic_id.hex(), index) for topic_id in partitions for index in partitions[topic_id])
    return partition_names(sorted(named))


def _running(timers: Timers, now_ms: float) -> tuple[Timer, ...]:
    rows = zip(timers[::3], timers[1::3], map(float, timers[2::3]), strict=True)
    running = [Timer(f"{what}{member_id}", deadline_ms - now_ms) for what, member_id, deadline_ms in rows]
    return tuple(sorted([timer for timer in running if timer.left_ms < inf], key=attrgetter("left_ms")))


class Change(msgspec.Struct):
    """What the request or timer in progress has changed in a group since its last moment.

    Attributes:
        cause: Set before the first change.
        joined: Ids of members that were added to a classic group.
        rejoined: Ids of members whose JoinGroup was parked.
        left: Ids of members that were removed.
        before: Members of a consumer group that were added, replaced or removed, as they were before, by member id;
            None for members that were not in the group.
        known: Member ids of the classic group that a consumer group has just replaced.
        moments: The moments that are complete, oldest first.
    """

    cause: str = ""
    joined: list[str] = msgspec.field(default_factory=list)
    rejoined: list[str] = msgspec.field(default_factory=list)
    left: list[str] = msgspec.field(default_factory=list)
    before: dict[str, ConsumerGroupMember | None] = msgspec.field(default_factory=dict)
    known: Collection[str] = ()
    moments: list[RecordedMoment] = msgspec.field(default_factory=list)


class ChangedGroup(ABC):
    """The part of a group of either kind that its history needs.

    Attributes:
        group_id: The group.
        pending_change: The changes by the request or timer in progress; None if there are none yet.
    """

    __slots__ = "group_id", "pending_change"
    group_id: str
    pending_change: Change | None

    @property
    def change(self) -> Change:
        """The changes by the request or timer in progress. Created when needed, because most groups do not change."""
        if self.pending_change is None:
            self.pending_change = Change()
        return self.pending_change

    def forget_change(self) -> None:
        """Clear `pending_change`."""
        self.pending_change = None

    @abstractmethod
    def end_moment(self, now_ms: float) -> None:
        """Add a moment for the changes since the last moment. Has no effect without changes."""

    @abstractmethod
    def timers(self, *, with_members: bool) -> Timers:
        """Return `RecordedMoment.timers`; `with_members` adds the next session and the next pending id to expire."""


def discard_change(group: ChangedGroup, now_ms: float) -> None:
    """Drop the change of a group, for a coordinator without a history."""
    group.forget_change()


class History(BoundedHistory[RecordedMoment, Moment]):
    """The newest moments of all groups, and how many were dropped.

    The size of a moment is its number of member ids, and of the partitions of members that have changed.

    Attributes:
        name_of: Names the topics of partitions.
    """

    name_of: NameOf = staticmethod(_no_name)

    def record(self, group: ChangedGroup, now_ms: float, coordinator_id: int) -> None:
        """Record the change of a group after a request or timer, and clear it."""
        change = group.pending_change
        if change is None:
            return
        group.end_moment(now_ms)
        moments = change.moments
        if moments:
            moments[-1].timers = group.timers(with_members=moments[-1].is_transition)
            for moment in moments:
                moment.coordinator_id = coordinator_id
                moment.name_of = self.name_of
            self.keep(group.group_id, moments)
        group.forget_change()
