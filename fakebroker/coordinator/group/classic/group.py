"""One classic consumer group: its states, members and deadlines, and the changes that keep them consistent.

The bookkeeping below the procedures (`rebalance`, `joining`, `syncing`, `leaving`). Knows nothing of other groups, of
partitions, or of who holds the tokens it answers.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from math import inf
from typing import TYPE_CHECKING

from fakebroker.coordinator.group.api import CoordinatorConfig, JoinedMember, JoinGroup, JoinResult, SyncResult
from fakebroker.coordinator.group.batch_join.batch import drop
from fakebroker.coordinator.group.batch_join.expectations import Expectations
from fakebroker.coordinator.group.classic.member import Member
from fakebroker.coordinator.group.classic.protocol_selection import most_voted
from fakebroker.coordinator.group.classic.subscription import parse_subscribed_topics
from fakebroker.coordinator.group.history import Step
from fakebroker.coordinator.group.holds import Script, take_held_sync
from fakebroker.coordinator.group.offsets import OffsetStore
from fakebroker.errors import ErrorCode

if TYPE_CHECKING:
    from fakebroker.coordinator.group.records import GroupValue

CONSUMER_PROTOCOL_TYPE = "consumer"

NONE = ErrorCode.NONE


class GroupState(Enum):
    """The states of a classic group (Kafka's `ClassicGroupState`), named as Kafka names them to clients.

    In every state a member that the group does not know, or knows only as pending, gets UNKNOWN_MEMBER_ID; a member id
    that is not the current one of its instance id FENCED_INSTANCE_ID; a wrong generation ILLEGAL_GENERATION. Below is
    what a request without such a fault gets. "Told its id" is MEMBER_ID_REQUIRED, which never changes the state. A
    group that somebody holds in PREPARING_REBALANCE or COMPLETING_REBALANCE does not complete that (`script`).

    EMPTY: No members. Also the state of a group that only keeps offsets.
        JoinGroup: a new member is parked and the first round starts; a dynamic one may be told its id first.
        SyncGroup, Heartbeat: UNKNOWN_MEMBER_ID. LeaveGroup: the same, but a pending id is forgotten.
        OffsetCommit: accepted without a generation.
        Out: a member is added -> PREPARING_REBALANCE; the group is deleted, has expired or is handed over, or its
        creation could not be stored -> DEAD.
    PREPARING_REBALANCE: Waiting for the members to join. The generation is still the last one.
        JoinGroup: parked (a new dynamic member may be told its id first, and is then waited for). Heartbeat and
        SyncGroup: REBALANCE_IN_PROGRESS. LeaveGroup: removed. OffsetCommit: accepted.
        Out: all members and pending ids are in, or the time is up -> COMPLETING_REBALANCE, or EMPTY without members;
        handed over -> DEAD, parked joins get NOT_COORDINATOR.
    COMPLETING_REBALANCE: A new generation waits for its leader to assign.
        JoinGroup: a known member with unchanged protocols is answered at once; any other join that adds or changes a
        member starts a new round. SyncGroup: parked; the leader's ends the state. Heartbeat: NONE. LeaveGroup: removed,
        and a new round. OffsetCommit: REBALANCE_IN_PROGRESS.
        Out: the leader assigned -> STABLE; a member is added, changed, gone, or did not sync in time ->
        PREPARING_REBALANCE, parked syncs get REBALANCE_IN_PROGRESS; what the leader assigned could not be stored -> the
        same, they get the error of storing; handed over -> DEAD, they get NOT_COORDINATOR.
    STABLE: Every member can have its assignment.
        JoinGroup: a follower with unchanged protocols is answered at once, and so is a replaced static member as
        long as the group would choose the same protocol; any other join that adds or changes a member, and any join of
        the leader, starts a new round. SyncGroup: the stored assignment. Heartbeat: NONE. LeaveGroup: removed, and a
        new round. OffsetCommit: accepted.
        Out: as said, or a member's session ends, or one did not sync in time, or the group was loaded with more members
        than it may have -> PREPARING_REBALANCE; handed over -> DEAD.
    DEAD: Gone. Whoever still holds the object must not use it; clients never meet it. No way out.
    """

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


EMPTY = GroupState.EMPTY
PREPARING_REBALANCE = GroupState.PREPARING_REBALANCE
COMPLETING_REBALANCE = GroupState.COMPLETING_REBALANCE
STABLE = GroupState.STABLE
DEAD = GroupState.DEAD

TRANSITIONS: Mapping[GroupState, tuple[GroupState, ...]] = {
    EMPTY: (PREPARING_REBALANCE, DEAD),
    PREPARING_REBALANCE: (COMPLETING_REBALANCE, EMPTY, DEAD),
    COMPLETING_REBALANCE: (STABLE, PREPARING_REBALANCE, DEAD),
    STABLE: (PREPARING_REBALANCE, DEAD),
    DEAD: (),
}


@dataclass(slots=True, eq=False)
class Group:
    """One classic group (Kafka's `ClassicGroup`).

    Attributes:
        partition: The partition of `__consumer_offsets` the group belongs to.
        answer: Takes a token and the answer to it.
        store: Writes the group as it is now to the log; NONE, or why it is not there, as clients are told.
        store_expected: The same, but only of who is expected now; all else stays in the log as it is.
        state_since_ms: Time of the last transition.
        generation_id: Never goes back.
        protocol_type: `None` until a member is added (a "simple" group). Outlives the members.
        leader_id: Set exactly while there are members. Whenever any member could follow a lost leader, the one that was
            added first does; a static member that was replaced counts as added then.
        members: By id, in the order they were added.
        static_members: Member id by instance id.
        pending_members: Ids told with MEMBER_ID_REQUIRED that have not joined yet, with the deadline of each.
        parked_joins: Tokens of joins to be answered when the round completes, by member id, in order of arrival.
        parked_syncs: Tokens of syncs to be answered with the leader's, by member id, in order of arrival.
        awaiting_sync: Ids that have not sent a SyncGroup of this generation.
        protocol_counts: How many members support each protocol; only protocols that somebody supports.
        subscribed_topics: Union of the members' subscriptions in this generation; `None` if unknown.
        new_member_added: A member came during an initial delay since its timer last ran.
        initial_delay_ms: The wait under way in an initial rebalance.
        initial_remaining_ms: How much more an initial rebalance may wait.
        deadline_ms: No timer of the group runs out earlier. Only the coordinator raises it.
        wakeup_ms, wakeup_number: When the coordinator will next look at the group's timers; see `Wakeups`.
        expected: Who is to become a member, and whose joins wait for that (KAFKA-8397).
        stored: The group as the log has it, but for who is expected; `None` if there is no record of it.
        step: What the request or timer under way has changed.
        script: What somebody outside wants of the rebalances, if anybody does.
    """

    group_id: str
    partition: int
    config: CoordinatorConfig
    answer: Callable[[object, JoinResult | SyncResult], None]
    store: Callable[["Group"], ErrorCode]
    store_expected: Callable[["Group"], ErrorCode]
    state_since_ms: float
    state: GroupState = EMPTY
    previous_state: GroupState = DEAD
    generation_id: int = 0
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader_id: str | None = None
    members: dict[str, Member] = field(default_factory=dict)
    static_members: dict[str, str] = field(default_factory=dict)
    pending_members: dict[str, float] = field(default_factory=dict)
    parked_joins: dict[str, object] = field(default_factory=dict)
    parked_syncs: dict[str, object] = field(default_factory=dict)
    awaiting_sync: dict[str, None] = field(default_factory=dict)
    protocol_counts: dict[str, int] = field(default_factory=dict)
    subscribed_topics: frozenset[str] | None = None
    offsets: OffsetStore = field(default_factory=OffsetStore)
    new_member_added: bool = False
    initial_delay_ms: int = 0
    initial_remaining_ms: int = 0
    join_deadline_ms: float = inf
    sync_deadline_ms: float = inf
    deadline_ms: float = inf
    wakeup_ms: float = inf
    wakeup_number: int = 0
    expected: Expectations = field(default_factory=Expectations)
    stored: "GroupValue | None" = None
    script: Script | None = None
    step: Step = field(default_factory=Step)

    # State

    def transition_to(self, state: GroupState, now_ms: float) -> None:
        """The one place that writes the `state` of a group that is there."""
        if state not in TRANSITIONS[self.state]:
            raise RuntimeError(f"group {self.group_id!r}: no transition from {self.state.value} to {state.value}")
        self.previous_state = self.state
        self.state = state
        self.state_since_ms = now_ms
        self.step.close_moment(self, self.previous_state.value, now_ms)

    def begin(self, cause: str, now_ms: float) -> None:
        """Is called once, when a group that has just been made has what it begins with."""
        self.step.cause = cause
        self.step.close_moment(self, DEAD.value, now_ms)

    @property
    def is_initial_rebalance(self) -> bool:
        """The round under way is the first of an empty group: it waits out its delay even if everybody is in."""
        return self.state is PREPARING_REBALANCE and self.previous_state is EMPTY

    @property
    def is_extended_by_a_new_member(self) -> bool:
        """Whether a new member prolongs the initial delay; before KIP-848 it did so for the first generation alone."""
        is_first = self.generation_id == 0 or not self.config.is_before_kip_848
        return self.is_initial_rebalance and is_first

    @property
    def has_everyone_joined(self) -> bool:
        return len(self.parked_joins) == len(self.members) and not self.pending_members

    # Checks

    def check_member(self, member_id: str, instance_id: str | None) -> ErrorCode:
        """NONE, UNKNOWN_MEMBER_ID or FENCED_INSTANCE_ID. A static member may omit its instance id."""
        if instance_id is not None:
            current_id = self.static_members.get(instance_id)
            if current_id is not None and current_id != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
            if current_id is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
        return NONE if member_id in self.members else ErrorCode.UNKNOWN_MEMBER_ID

    def heartbeat_fault(self, member_id: str, instance_id: str | None) -> ErrorCode:
        """Why a Heartbeat is not that of a member in the current generation."""
        if not self.group_id:
            return ErrorCode.INVALID_GROUP_ID
        return self.check_member(member_id, instance_id) or ErrorCode.ILLEGAL_GENERATION

    def check_commit(self, generation_id: int, member_id: str, instance_id: str | None) -> ErrorCode:
        """Whether an OffsetCommit is accepted (Kafka's `ClassicGroup.validateOffsetCommit`)."""
        if generation_id < 0 and self.state is EMPTY:
            return NONE
        # A commit without any identity ends here too: no member has the id "".
        if error := self.check_member(member_id, instance_id):
            return error
        if generation_id != self.generation_id:
            return ErrorCode.ILLEGAL_GENERATION
        return ErrorCode.REBALANCE_IN_PROGRESS if self.state is COMPLETING_REBALANCE else NONE

    def has_room_for(self, member_id: str) -> bool:
        """Whether `group.max.size` lets this member join (Kafka's `acceptJoiningMember`); pending ids do not count.

        While members join, the places go to those whose joins are parked: so the last ones of a group that is too large
        are the ones turned away. Who is expected has a place.
        """
        places = self.config.group_max_size - len(self.expected.instances)
        if self.state is EMPTY and not self.members:
            return not self.expected.instances or places > 0
        if self.state is PREPARING_REBALANCE:
            return member_id in self.parked_joins or len(self.parked_joins) < places
        return member_id in self.members or len(self.members) < places

    def supports(self, protocol_type: str, protocols: tuple[tuple[str, bytes], ...]) -> bool:
        """Whether somebody with these protocols can be a member: one of them is supported by all members there are."""
        if self.state is EMPTY and not self.members:
            return bool(protocol_type and protocols)
        return protocol_type == self.protocol_type and any(
            self.protocol_counts.get(name, 0) == len(self.members) for name, _ in protocols
        )

    def is_subscribed_to(self, topic: str) -> bool:
        """Unknown subscriptions count as all topics in a consumer group, as none in any other."""
        if self.subscribed_topics is None:
            return self.protocol_type == CONSUMER_PROTOCOL_TYPE
        return topic in self.subscribed_topics

    # Members

    def add(self, member: Member, protocol_type: str) -> None:
        """Adds a member, which may have been pending. The first one decides the group's protocol type."""
        if not self.members:
            self.protocol_type = protocol_type
            self.leader_id = member.member_id
        self.pending_members.pop(member.member_id, None)
        if member.instance_id is not None:
            self.static_members[member.instance_id] = member.member_id
        self.members[member.member_id] = member
        self.step.joined.append(member.member_id)
        self._count_protocols(member, 1)

    def update(self, member: Member, request: JoinGroup | Member) -> None:
        """Takes over what a member that joins again may change, or what it was before."""
        self._count_protocols(member, -1)
        member.protocols = request.protocols
        self._count_protocols(member, 1)
        member.rebalance_timeout_ms = request.rebalance_timeout_ms
        member.session_timeout_ms = request.session_timeout_ms

    def remove(self, member_id: str) -> None:
        """Forgets a member or a pending id. A parked join gets UNKNOWN_MEMBER_ID, a parked sync is never answered."""
        self.answer_join(member_id, JoinResult(ErrorCode.UNKNOWN_MEMBER_ID))
        self.parked_syncs.pop(member_id, None)
        take_held_sync(self, member_id)
        self.awaiting_sync.pop(member_id, None)
        self.pending_members.pop(member_id, None)
        member = self.members.pop(member_id, None)
        if member is None:
            return
        self.step.left.append(member_id)
        self._count_protocols(member, -1)
        if member.instance_id is not None:
            del self.static_members[member.instance_id]
        if self.leader_id == member_id:
            self.leader_id = next(iter(self.members), None)

    def replace_static_member(self, instance_id: str, new_member_id: str) -> Member:
        """Gives a static member a new id; whoever still waits under the old one is fenced (KIP-345).

        An old id that has not sent its SyncGroup goes on being awaited, as in Kafka's `ClassicGroup`.
        """
        old_member_id = self.static_members[instance_id]
        self.answer_join(old_member_id, JoinResult(ErrorCode.FENCED_INSTANCE_ID, member_id=old_member_id))
        self.answer_sync(old_member_id, SyncResult(ErrorCode.FENCED_INSTANCE_ID))
        member = self.members.pop(old_member_id)
        member.member_id = new_member_id
        member.is_new = False
        self.members[new_member_id] = member
        self.step.left.append(old_member_id)
        self.step.joined.append(new_member_id)
        self.static_members[instance_id] = new_member_id
        if self.leader_id == old_member_id:
            self.leader_id = new_member_id
        return member

    def _count_protocols(self, member: Member, change: int) -> None:
        for name in dict.fromkeys(name for name, _ in member.protocols):
            count = self.protocol_counts[name] = self.protocol_counts.get(name, 0) + change
            if not count:
                del self.protocol_counts[name]

    # Generations

    def select_protocol(self) -> str:
        """The protocol the members would choose now; each votes for its favorite among those that all support."""
        candidates = [name for name, count in self.protocol_counts.items() if count == len(self.members)]
        return most_voted(member.vote(candidates) for member in self.members.values())

    def compute_subscribed_topics(self) -> frozenset[str] | None:
        """Union of the members' subscriptions; `None` if one cannot be read or this is not a consumer group."""
        if self.protocol_type != CONSUMER_PROTOCOL_TYPE:
            return None
        topics: list[str] = []
        for member in self.joined_members():
            parsed = parse_subscribed_topics(member.metadata)
            if parsed is None:
                return None
            topics += parsed
        return frozenset(topics)

    def joined_members(self) -> tuple[JoinedMember, ...]:
        """The members as the leader of this generation is told of them."""
        name = self.protocol_name or ""
        return tuple(JoinedMember(m.member_id, m.instance_id, m.metadata_for(name)) for m in self.members.values())

    def join_result(self, member_id: str, *, with_members: bool) -> JoinResult:
        """What a member that has joined the current generation is told."""
        return JoinResult(
            NONE,
            self.generation_id,
            self.protocol_type,
            self.protocol_name,
            self.leader_id or "",
            member_id,
            self.joined_members() if with_members else (),
        )

    # Answers

    def park_join(self, member_id: str, token: object) -> None:
        """An older parked join of the same member is dropped: Kafka never answers it, but in a batch others need it."""
        drop(self.parked_joins.pop(member_id, None), self.answer)
        self.parked_joins[member_id] = token
        self.step.rejoined.append(member_id)

    def park_sync(self, member_id: str, token: object) -> None:
        """An older parked sync of the same member is dropped: Kafka never answers it."""
        self.parked_syncs.pop(member_id, None)
        self.parked_syncs[member_id] = token

    def answer_join(self, member_id: str, result: JoinResult) -> None:
        """Answers the member's parked join, if there is one."""
        if member_id in self.parked_joins:
            self.answer(self.parked_joins.pop(member_id), result)

    def answer_sync(self, member_id: str, result: SyncResult) -> None:
        """Answers the member's parked sync, or the leader's that is held, if there is one."""
        if member_id in self.parked_syncs:
            self.answer(self.parked_syncs.pop(member_id), result)
        for _, token in take_held_sync(self, member_id):
            self.answer(token, result)

    # Timers

    def rebalance_timeout_ms(self) -> int:
        """The largest rebalance timeout of the members. At least 1 ms, so that no timer runs out as it is armed."""
        return max([1, *(member.rebalance_timeout_ms for member in self.members.values())])

    def arm_session(self, member: Member, timeout_ms: float, now_ms: float) -> None:
        member.deadline_ms = now_ms + timeout_ms
        self.deadline_ms = min(self.deadline_ms, member.session_ends_ms)

    def arm_pending(self, member_id: str, timeout_ms: float, now_ms: float) -> None:
        self.pending_members[member_id] = now_ms + timeout_ms
        self.deadline_ms = min(self.deadline_ms, now_ms + timeout_ms)

    def arm_join(self, timeout_ms: float, now_ms: float) -> None:
        self.join_deadline_ms = now_ms + timeout_ms
        self.deadline_ms = min(self.deadline_ms, self.join_deadline_ms)

    def arm_sync(self, timeout_ms: float, now_ms: float) -> None:
        self.sync_deadline_ms = now_ms + timeout_ms
        self.deadline_ms = min(self.deadline_ms, self.sync_deadline_ms)

    def earliest_deadline(self) -> float:
        """When the first of the group's timers runs out; infinite without timers."""
        return min(
            self.join_deadline_ms,
            self.sync_deadline_ms,
            min(self.pending_members.values(), default=inf),
            min((member.session_ends_ms for member in self.members.values()), default=inf),
            self.expected.deadline_ms(),
        )
