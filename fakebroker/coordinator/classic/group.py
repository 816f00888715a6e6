"""The state of one classic group (members, parked requests, deadlines), with methods that keep it consistent.

The functions in `rebalance.py` decide what requests and timers do. Does not depend on other groups, on the coordinator,
or on what a request's context is.
"""

import struct
from collections import Counter
from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from math import inf
from operator import attrgetter
from typing import Any, NamedTuple, TypeVar

from fakebroker.coordinator.classic.extension import NO_EXTENSION, GroupExtension
from fakebroker.coordinator.classic.states import (
    COMPLETING_REBALANCE,
    CONSUMER_PROTOCOL_TYPE,
    DEAD,
    EMPTY,
    PREPARING_REBALANCE,
    TRANSITIONS,
    GroupState,
)
from fakebroker.coordinator.config import CoordinatorConfig
from fakebroker.coordinator.context import RequestContext
from fakebroker.coordinator.group_controls import GroupControls
from fakebroker.coordinator.group_history import Change, ChangedGroup, RecordedMoment, Timers
from fakebroker.coordinator.offset_store import OffsetStore
from fakebroker.coordinator.partitions import Append, java_string_hash
from fakebroker.coordinator.records import Record
from fakebroker.coordinator.snapshot_dict import NO_ENTRIES, SnapshotDict
from fakebroker.errors import ErrorCode
from fakebroker.protocol.messages.consumer_offsets import GroupMetadataValue
from fakebroker.protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
    JoinGroupResponseMember,
)
from fakebroker.protocol.messages.sync_group import SyncGroupResponse
from fakebroker.protocol.schema import Message
from fakebroker.utf8 import decode_utf8

# Equal values of members and groups are kept once: most groups of a cluster have the same subscriptions. They must not
# be modified.


T = TypeVar("T")

_MOST_KEPT = 1_000
"""Number of values that are kept for later ones: those used last."""
_MOST_BYTES = 1_000
"""Larger values of members are rarely equal, and not shared."""


def shared_protocols(protocols: "Protocols") -> "Protocols":
    """Return equal protocols that were passed before, or these."""
    is_large = sum(len(metadata) for _, metadata in protocols) > _MOST_BYTES
    return protocols if is_large else _shared(protocols)


def shared_assignment(assignment: bytes) -> bytes:
    """Return an equal assignment that was passed before, or this one."""
    return assignment if len(assignment) > _MOST_BYTES else _shared(assignment)


def shared_text(text: str) -> str:
    """Return an equal text that was passed before, or this one."""
    return _shared(text)


def shared_timeouts(timeouts_ms: tuple[int, int]) -> tuple[int, int]:
    """Return a pair of equal numbers that was passed before, or this one."""
    return _shared(timeouts_ms)


def shared_topics(topics: frozenset[str]) -> frozenset[str]:
    """Return an equal set of topics that was passed before, or this one."""
    return _shared(topics)


@lru_cache(_MOST_KEPT)
def shared_counts(items: tuple[tuple[str, int], ...]) -> Mapping[str, int]:
    """Return the mapping with these items."""
    return dict(items)


@lru_cache(_MOST_KEPT)
def _equal(value: Any) -> Any:
    return value


def _shared(value: T) -> T:
    found: T = _equal(value)
    return found


# The topics that a consumer subscribes to, parsed from its JoinGroup metadata. They decide which committed offsets may
# be deleted; all other metadata is opaque to a coordinator. Clients have a stricter parser,
# `protocol/consumer_protocol.py`.


_VERSION_AND_COUNT = struct.Struct(">hi")
_STRING_LENGTH = struct.Struct(">h")
_BYTES_LENGTH = struct.Struct(">i")


def parse_subscribed_topics(metadata: bytes) -> tuple[str, ...] | None:
    """Return the topics of a `ConsumerProtocolSubscription`, or `None` if `metadata` is not one.

    The bytes are parsed as version 0 (topics, nullable user data), regardless of the version that they state: all later
    versions start with these fields (Kafka's `ClassicGroup.computeSubscribedTopics`).
    """
    try:
        _, count = _VERSION_AND_COUNT.unpack_from(metadata)
        position = _VERSION_AND_COUNT.size
        topics = []
        for _ in range(count):
            (length,) = _STRING_LENGTH.unpack_from(metadata, position)
            start = position + _STRING_LENGTH.size
            position = start + length
            if length < 0 or position > len(metadata):
                return None
            topics.append(decode_utf8(metadata[start:position]))
        (length,) = _BYTES_LENGTH.unpack_from(metadata, position)
    except struct.error:
        return None
    user_data_end = position + _BYTES_LENGTH.size + max(length, 0)
    return tuple(topics) if count >= 0 and user_data_end <= len(metadata) else None


# The protocol of a generation: elected by the members, with ties resolved as on a Java broker.


_INITIAL_CAPACITY = 16  # java.util.HashMap


def java_hash_map_order(names: Iterable[str]) -> list[str]:
    """Return distinct names in the iteration order of a `java.util.HashMap` into which they are inserted in this order.

    They are ordered by the index of their bucket, and within a bucket by insertion.
    """
    keys = list(dict.fromkeys(names))
    capacity = _INITIAL_CAPACITY
    while len(keys) > capacity * 3 // 4:
        capacity *= 2

    def bucket(name: str) -> int:
        unsigned = java_string_hash(name) & 0xFFFF_FFFF
        return (unsigned ^ unsigned >> 16) & (capacity - 1)

    return sorted(keys, key=bucket)


def most_voted(votes: Iterable[str]) -> str:
    """Return the name with the most votes; of a tie, the first in `java_hash_map_order` (Kafka's `selectProtocol`)."""
    counts = Counter(votes)
    return max(java_hash_map_order(counts), key=counts.__getitem__)


# Protocols of members, and responses that have no generation


Protocols = tuple[tuple[str, bytes], ...]
"""Pairs of name and metadata, in order of preference."""


def protocols_of(request: JoinGroupRequest) -> Protocols:
    """Return the protocols of a request as values, since a group keeps nothing of a request itself."""
    return tuple([(protocol.name, protocol.metadata) for protocol in request.protocols])


def null_protocol_name(context: RequestContext) -> str | None:
    """Return the protocol name of a JoinGroup response without a protocol: null since version 7, "" before."""
    return None if context.api_version >= 7 else ""


def join_error(context: RequestContext, error: ErrorCode, member_id: str = "") -> JoinGroupResponse:
    """Return the JoinGroup response with an error."""
    return JoinGroupResponse(
        error_code=error, protocol_name=null_protocol_name(context), leader="", member_id=member_id, members=[]
    )


def sync_error(error: ErrorCode) -> SyncGroupResponse:
    """Return the SyncGroup response with an error."""
    return SyncGroupResponse(error_code=error, assignment=b"")


# Members and groups


class HeldSync(NamedTuple):
    """The SyncGroup of the leader, which waits until the group is released: its assignments by member id."""

    member_id: str
    assignments: dict[str, bytes]
    context: RequestContext


@dataclass(slots=True, eq=False, kw_only=True)
class Member:
    """One member (Kafka's `ClassicGroupMember`).

    Set protocols with `Group.update` and the deadline with `Group.arm_session`, which also update the group.

    Attributes:
        instance_id: Set for a static member (KIP-345).
        protocols: Pairs of name and metadata, in order of preference.
        is_new: Whether the member was added in the rebalance in progress. A new member is removed at its deadline even
            if its join is parked.
        deadline_ms: When the session expires; for a new member, when the wait for its first generation ends. Infinite
            if the session has expired while an answer to the member was pending; the answer restarts the session.
        keeper: Set while the session is suspended, because a simulation adds the member's heartbeats later. Called with
            the group id before a timer of the group expires; the keeper then calls `Groups.resume_session` for
            the members of the group.
        assignment: The last assignment by a leader. Cleared if a rebalance starts in CompletingRebalance.
    """

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocols: Protocols
    is_new: bool
    deadline_ms: float = inf
    keeper: Callable[[str], None] | None = None
    assignment: bytes = b""

    @property
    def session_ends_ms(self) -> float:
        """When the session expires; infinite while it is suspended."""
        return self.deadline_ms if self.keeper is None else inf

    def metadata_for(self, protocol_name: str) -> bytes:
        """Return the metadata of the first protocol with this name, which the member must support."""
        for name, metadata in self.protocols:
            if name == protocol_name:
                return metadata
        raise LookupError(protocol_name)

    def supports(self, names: Container[str]) -> bool:
        """Return whether the member supports one of the protocols."""
        return any(name in names for name, _ in self.protocols)

    def vote(self, candidates: Container[str]) -> str:
        """Return the member's most preferred protocol in `candidates`."""
        return next(name for name, _ in self.protocols if name in candidates)


V = TypeVar("V")

NONE = ErrorCode.NONE
_DEADLINE, _REBALANCE_TIMEOUT = attrgetter("deadline_ms"), attrgetter("rebalance_timeout_ms")


class GroupContext(NamedTuple):
    """What all groups of a coordinator share.

    Attributes:
        config: The settings.
        send: Called with the context of a request and its response, to answer it.
        append: Appends records to an offsets partition.
    """

    config: CoordinatorConfig
    send: Callable[[RequestContext, Message], None]
    append: Append[Record]


class Group(ChangedGroup):
    """One classic group (Kafka's `ClassicGroup`). Between requests and timers, the rules in `invariants` hold.

    A cluster can have a million groups, so dictionaries without entries are shared (`NO_ENTRIES`).

    Attributes:
        partition: The partition of `__consumer_offsets` that the group belongs to.
        state_since_ms: Time of the last transition.
        generation_id: Never decreases.
        protocol_type: `None` until a member is added (a "simple" group). Kept when all members have left.
        protocol_name: The protocol of the generation; `None` without one.
        leader_id: `None` exactly if there are no members. A lost leader is succeeded by the member that was added
            first; a static member that was replaced counts as added at its replacement.
        members: By member id, in the order in which they were added.
        protocol_counts: The number of members that support a protocol, for each protocol with at least one. As in
            Kafka, a member that names a protocol twice is counted twice.
        subscribed_topics: Union of the members' subscriptions in this generation; `None` if unknown.
        deadline_ms: A lower bound of all deadlines of the group. Requests lower it; only timers raise it.
        scheduled_ms, timer_number: When the coordinator checks the group's timers next; see `TimerEntry`.
        stored_generation_id: The generation of the last stored value of the group; -1 if it was never stored.
        extension: The protocol extension of the group.
        is_initial_rebalance: Whether this is the first rebalance of an empty group, which is delayed even if all
            members have joined.
        static_members: Member ids by instance id.
        pending_members: Ids returned with MEMBER_ID_REQUIRED that have not joined yet, with the deadline of each.
        parked_joins: The contexts of JoinGroup requests by member id, in order of arrival. They are answered at the
            end of the join phase.
        parked_syncs: The contexts of SyncGroup requests by member id, in order of arrival. They are answered at the
            leader's SyncGroup.
        awaiting_sync: Member ids that have not sent a SyncGroup in this generation.
        repeating_members: The number of members that name a protocol twice.
        new_member_added: Whether a member was added during an initial delay. As in Kafka, it is reset only when an
            initial delay expires and is extended.
        initial_delay_ms: The current delay of an initial rebalance.
        initial_remaining_ms: How much longer an initial rebalance may be delayed after the current delay.
        join_deadline_ms: When the join timer expires; infinite if it is not running.
        sync_deadline_ms: When the sync timer expires; infinite if it is not running.
        stored: The last stored value of a group with an extension, without the extension's tagged fields; else `None`.
        controls: The manual settings of the group's rebalances, or None.
        is_overdue: Whether the timer of the state has expired while the group was held in the state (`controls`).
        held_sync: The leader's SyncGroup, while the group is held in CompletingRebalance.
        pending_change: The changes by the request or timer in progress; None if there are none yet. See `change`.
        is_being_stored: Whether its first join is in progress, and the new group is not in the log yet.
    """

    __slots__ = (
        "awaiting_sync",
        "context",
        "controls",
        "deadline_ms",
        "extension",
        "generation_id",
        "held_sync",
        "initial_delay_ms",
        "initial_remaining_ms",
        "is_being_stored",
        "is_initial_rebalance",
        "is_overdue",
        "join_deadline_ms",
        "leader_id",
        "members",
        "new_member_added",
        "offsets",
        "parked_joins",
        "parked_syncs",
        "partition",
        "pending_members",
        "protocol_counts",
        "protocol_name",
        "protocol_type",
        "repeating_members",
        "scheduled_ms",
        "state",
        "state_since_ms",
        "static_members",
        "stored",
        "stored_generation_id",
        "subscribed_topics",
        "sync_deadline_ms",
        "timer_number",
    )

    def __init__(
        self,
        group_id: str,
        partition: int,
        context: GroupContext,
        state_since_ms: float,
        state: GroupState = EMPTY,
    ) -> None:
        self.group_id = group_id
        self.partition = partition
        self.context = context
        self.state_since_ms = state_since_ms
        self.state = state
        self.generation_id = 0
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        self.leader_id: str | None = None
        self.members: SnapshotDict[Member] = SnapshotDict()
        self.protocol_counts: Mapping[str, int] = NO_ENTRIES
        self.subscribed_topics: frozenset[str] | None = None
        self.offsets = OffsetStore()
        self.deadline_ms = inf
        self.scheduled_ms = inf
        self.timer_number = 0
        self.stored_generation_id = -1
        self.is_initial_rebalance = False
        self.pending_members: dict[str, float] = NO_ENTRIES
        self.parked_joins: SnapshotDict[RequestContext] = NO_ENTRIES
        self.parked_syncs: SnapshotDict[RequestContext] = NO_ENTRIES
        self.awaiting_sync: dict[str, None] = NO_ENTRIES
        self.new_member_added = False
        self.join_deadline_ms = inf
        self.sync_deadline_ms = inf
        self.pending_change: Change | None = None
        self.extension: GroupExtension = NO_EXTENSION
        self.static_members: dict[str, str] = NO_ENTRIES
        self.repeating_members = 0
        self.initial_delay_ms = self.initial_remaining_ms = 0
        self.stored: GroupMetadataValue | None = None
        self.controls: GroupControls | None = None
        self.is_overdue = False
        self.held_sync: HeldSync | None = None
        self.is_being_stored = False

    @property
    def config(self) -> CoordinatorConfig:
        return self.context.config

    def append(self, records: tuple[Record, ...]) -> ErrorCode:
        """Append records to the offsets partition of the group: all, or none. Return NONE or the error."""
        return self.context.append(self.partition, records)

    # State

    def transition_to(self, state: GroupState, now_ms: float) -> None:
        """Set the state. Only this method changes the state of an existing group.

        Raises:
            RuntimeError: `TRANSITIONS` does not have the transition.
        """
        if state not in TRANSITIONS[self.state]:
            raise RuntimeError(f"group {self.group_id!r}: no transition from {self.state.value} to {state.value}")
        previous_state, self.state = self.state, state
        self.state_since_ms = now_ms
        self.is_initial_rebalance = state is PREPARING_REBALANCE and previous_state is EMPTY
        self._add_moment(previous_state, now_ms)

    @property
    def does_new_member_extend_delay(self) -> bool:
        """Whether a new member extends the initial delay; before KIP-848 only in the first generation."""
        is_first = self.generation_id == 0 or not self.config.is_before_kip_848
        return self.is_initial_rebalance and is_first

    @property
    def have_all_joined(self) -> bool:
        """Whether the joins of all members are parked and no id is pending."""
        return len(self.parked_joins) == len(self.members) and not self.pending_members

    @property
    def is_held(self) -> bool:
        """Whether the group is held in its current state by `controls`."""
        return self.controls is not None and self.state in self.controls.held_states

    # History

    def record_creation(self, cause: str, now_ms: float) -> None:
        """Add the creation of the group to its change; called once, when the group has its first contents."""
        self.change.cause = cause
        self._add_moment(DEAD, now_ms)

    def record_conversion(self, cause: str, former: Enum, members: Collection[str], now_ms: float) -> None:
        """Record that the group has replaced a consumer group (KIP-848). It continues the consumer group's history.

        Args:
            cause: Why the group was replaced.
            former: The state of the consumer group.
            members: The member ids that it had.
            now_ms: The time.
        """
        change = self.change
        change.cause = cause
        change.joined = [member_id for member_id in self.members if member_id not in members]
        change.left = [member_id for member_id in members if member_id not in self.members]
        self._add_moment(former, now_ms)

    def end_moment(self, now_ms: float) -> None:
        """Add a moment to the change for members that were added, parked or removed without a transition."""
        change = self.pending_change
        if change is not None and (change.joined or change.rejoined or change.left):
            self._add_moment(self.state, now_ms)

    def _add_moment(self, state_from: Enum, now_ms: float) -> None:
        change = self.change
        joined, rejoined, left = change.joined, change.rejoined, change.left
        if joined and left:
            # A member that was added and removed within one moment is left out (a static replacement that is reverted).
            joined, left = _without(joined, left), _without(left, joined)
        if joined and rejoined:
            rejoined = _without(rejoined, joined)
        members = self.members.snapshot()
        parked_joins = self.parked_joins.snapshot() if self.parked_joins else ()
        parked_syncs = self.parked_syncs.snapshot() if self.parked_syncs else ()
        if self.state is DEAD:
            members, left = (), list(self.members)
        moment = RecordedMoment(
            now_ms,
            change.cause,
            state_from._value_,  # `value` is a property in Python.
            self.state._value_,
            self.generation_id,
            self.leader_id,
            members,
            tuple(joined),
            tuple(rejoined),
            tuple(left),
            parked_joins,
            parked_syncs,
            len(members) + len(rejoined) + len(parked_joins) + len(parked_syncs),
        )
        change.moments.append(moment)
        change.joined, change.rejoined, change.left = [], [], []

    def timers(self, *, with_members: bool) -> Timers:
        """Return the timers; `with_members` adds the session and the pending id that expire next."""
        if self.state is DEAD:
            return ()
        timers: Timers = "join", "", self.join_deadline_ms, "sync", "", self.sync_deadline_ms
        if self.extension.deadline_ms < inf:
            timers += self.extension.timer_name, "", self.extension.deadline_ms
        if with_members and self.members:
            member = min(self.members.values(), key=_DEADLINE)
            timers += "session of ", member.member_id, member.deadline_ms
        if with_members and self.pending_members:
            member_id = min(self.pending_members, key=self.pending_members.__getitem__)
            timers += "pending ", member_id, self.pending_members[member_id]
        return timers

    # Checks

    def check_member(self, member_id: str, instance_id: str | None) -> ErrorCode:
        """Return NONE, UNKNOWN_MEMBER_ID or FENCED_INSTANCE_ID. A static member may omit its instance id."""
        if instance_id is not None:
            current_id = self.static_members.get(instance_id)
            if current_id is not None and current_id != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
            if current_id is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
        return NONE if member_id in self.members else ErrorCode.UNKNOWN_MEMBER_ID

    def heartbeat_fault(self, member_id: str, instance_id: str | None) -> ErrorCode:
        """Return the error of a Heartbeat that is not from a member in the current generation."""
        if not self.group_id:
            return ErrorCode.INVALID_GROUP_ID
        return self.check_member(member_id, instance_id) or ErrorCode.ILLEGAL_GENERATION

    def check_commit(self, generation_id: int, member_id: str, instance_id: str | None) -> ErrorCode:
        """Return the error of an OffsetCommit, or NONE (Kafka's `ClassicGroup.validateOffsetCommit`)."""
        if generation_id < 0 and self.state is EMPTY:
            return NONE
        # Also rejects a commit without a member id: no member has the id "".
        if error := self.check_member(member_id, instance_id):
            return error
        if generation_id != self.generation_id:
            return ErrorCode.ILLEGAL_GENERATION
        return ErrorCode.REBALANCE_IN_PROGRESS if self.state is COMPLETING_REBALANCE else NONE

    def check_transactional_commit(self, generation_id: int, member_id: str, instance_id: str | None) -> ErrorCode:
        """Return the error of a TxnOffsetCommit, or NONE.

        Unlike an OffsetCommit, it is accepted in each state, and in each state without the identity of a member.
        """
        has_identity = generation_id >= 0 or bool(member_id) or instance_id is not None
        if not has_identity or (generation_id < 0 and self.state is EMPTY):
            return NONE
        if error := self.check_member(member_id, instance_id):
            return error
        return NONE if generation_id == self.generation_id else ErrorCode.ILLEGAL_GENERATION

    def has_room_for(self, member_id: str) -> bool:
        """Whether `group.max.size` allows this member to join (Kafka's `acceptJoiningMember`).

        In PreparingRebalance the parked joins are counted, in other states the members. So if a group is too large, the
        last members to rejoin are rejected. Places that the extension reserves are counted; pending ids are not.
        """
        reserved_places = len(self.extension.reserved_places)
        places = self.config.group_max_size - reserved_places
        if self.state is EMPTY and not self.members:
            return not reserved_places or places > 0
        if self.state is PREPARING_REBALANCE:
            return member_id in self.parked_joins or len(self.parked_joins) < places
        return member_id in self.members or len(self.members) < places

    def supports(self, protocol_type: str, protocols: Sequence[JoinGroupRequestProtocol]) -> bool:
        """Whether a member with these protocols can join: at least one of them must be supported by all members."""
        if self.state is EMPTY and not self.members:
            return bool(protocol_type and protocols)
        if protocol_type == self.protocol_type:
            for protocol in protocols:
                if self.protocol_counts.get(protocol.name, 0) == len(self.members):
                    return True
        return False

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether a member is subscribed to a topic. If unknown: True in a consumer group, False in other groups."""
        if self.subscribed_topics is None:
            return self.protocol_type == CONSUMER_PROTOCOL_TYPE
        return topic in self.subscribed_topics

    # Members

    def add(self, member: Member, protocol_type: str) -> None:
        """Add a member, whose id may have been pending. The first member sets the protocol type of the group."""
        member.protocols = shared_protocols(member.protocols)
        member.client_id, member.client_host = shared_text(member.client_id), shared_text(member.client_host)
        timeouts_ms = member.rebalance_timeout_ms, member.session_timeout_ms
        member.rebalance_timeout_ms, member.session_timeout_ms = shared_timeouts(timeouts_ms)
        if not self.members:
            self.protocol_type = shared_text(protocol_type)
            self.leader_id = member.member_id
        self.pending_members = _without_key(self.pending_members, member.member_id)
        if member.instance_id is not None:
            self.static_members = _with_entry(self.static_members, member.instance_id, member.member_id)
        self.members[member.member_id] = member
        self.change.joined.append(member.member_id)
        self._count_protocols(member, 1)

    def update(self, member: Member, protocols: Protocols, rebalance_timeout_ms: int, session_timeout_ms: int) -> None:
        """Set protocols and timeouts of a member."""
        if protocols != member.protocols:
            self._count_protocols(member, -1)
            member.protocols = shared_protocols(protocols)
            self._count_protocols(member, 1)
        timeouts_ms = rebalance_timeout_ms, session_timeout_ms
        if timeouts_ms != (member.rebalance_timeout_ms, member.session_timeout_ms):
            member.rebalance_timeout_ms, member.session_timeout_ms = shared_timeouts(timeouts_ms)

    def remove(self, member_id: str) -> None:
        """Remove a member or a pending id. A parked join gets UNKNOWN_MEMBER_ID; a parked sync is never answered."""
        self.refuse_join(member_id, ErrorCode.UNKNOWN_MEMBER_ID)
        self.parked_syncs.pop(member_id, None)
        self.take_held_sync(member_id)
        self.awaiting_sync.pop(member_id, None)
        self.pending_members = _without_key(self.pending_members, member_id)
        member = self.members.pop(member_id) if member_id in self.members else None
        if member is None:
            return
        self.change.left.append(member_id)
        self._count_protocols(member, -1)
        if member.instance_id is not None:
            del self.static_members[member.instance_id]
        if self.leader_id == member_id:
            self.leader_id = next(iter(self.members), None)

    def replace_static_member(self, instance_id: str, new_member_id: str) -> Member:
        """Give a static member a new id. Parked requests of the old id get FENCED_INSTANCE_ID (KIP-345).

        If the old id has not sent its SyncGroup, it stays in `awaiting_sync`, as in Kafka's `ClassicGroup`.
        """
        old_member_id = self.static_members[instance_id]
        self.refuse_join(old_member_id, ErrorCode.FENCED_INSTANCE_ID, answered_id=old_member_id)
        self.answer_sync(old_member_id, sync_error(ErrorCode.FENCED_INSTANCE_ID))
        member: Member = self.members.pop(old_member_id)
        member.member_id = new_member_id
        member.is_new = False
        self.members[new_member_id] = member
        self.change.left.append(old_member_id)
        self.change.joined.append(new_member_id)
        self.static_members = _with_entry(self.static_members, instance_id, new_member_id)
        if self.leader_id == old_member_id:
            self.leader_id = new_member_id
        return member

    def _count_protocols(self, member: Member, change: int) -> None:
        if len(member.protocols) > 1 and len(dict(member.protocols)) < len(member.protocols):
            self.repeating_members += change
        counts = dict(self.protocol_counts)
        for name, _ in member.protocols:
            count = counts[name] = counts.get(name, 0) + change
            if not count:
                del counts[name]
        self.protocol_counts = shared_counts(tuple(counts.items()))

    # Generations

    def select_protocol(self) -> str | None:
        """Return the elected protocol: each member votes for its most preferred one that all members support.

        None if there is none, which is possible only if a member has named a protocol twice (see `protocol_counts`).
        """
        candidates = [name for name, count in self.protocol_counts.items() if count == len(self.members)]
        if self.repeating_members and not self._is_supported_by_all(candidates):
            return None
        if len(candidates) == 1:
            return candidates[0]
        elected = most_voted(member.vote(candidates) for member in self.members.values())
        return None if self.repeating_members and not self._is_supported_by_all([elected]) else elected

    def _is_supported_by_all(self, names: Sequence[str]) -> bool:
        return all(member.supports(names) for member in self.members.values())

    def compute_subscribed_topics(self) -> frozenset[str] | None:
        """Return the topics of all members; `None` if they cannot be parsed or the group is not a consumer group."""
        if self.protocol_type != CONSUMER_PROTOCOL_TYPE:
            return None
        name = self.protocol_name or ""
        topics: set[str] = set()
        # Most members of a group have the same metadata.
        for metadata in {member.metadata_for(name) for member in self.members.values()}:
            parsed = parse_subscribed_topics(metadata)
            if parsed is None:
                return None
            topics.update(parsed)
        return shared_topics(frozenset(topics))

    # Answers

    def join_response(self, context: RequestContext, member_id: str, *, with_members: bool) -> JoinGroupResponse:
        """Return the JoinGroup response of a member of the current generation; the leader's has all members."""
        name = self.protocol_name or ""
        return JoinGroupResponse(
            error_code=NONE,
            generation_id=self.generation_id,
            protocol_type=self.protocol_type,
            protocol_name=name or null_protocol_name(context),
            leader=self.leader_id or "",
            member_id=member_id,
            members=[
                JoinGroupResponseMember(
                    member_id=member.member_id,
                    group_instance_id=member.instance_id,
                    metadata=member.metadata_for(name),
                )
                for member in self.members.values()
            ]
            if with_members
            else [],
        )

    def answer(self, context: RequestContext, response: JoinGroupResponse | SyncGroupResponse) -> None:
        """Answer a JoinGroup or SyncGroup. If the request was parked, the caller has removed it."""
        self.extension.deliver(context, response, self.context.send)

    def park_join(self, member_id: str, context: RequestContext) -> None:
        """Park a join until the join phase ends. As in Kafka, an older join of the member is dropped unanswered."""
        if member_id in self.parked_joins:
            self.extension.supersede(self.parked_joins.pop(member_id))
        if not self.parked_joins:
            self.parked_joins = SnapshotDict()
        self.parked_joins[member_id] = context
        self.change.rejoined.append(member_id)

    def park_sync(self, member_id: str, context: RequestContext) -> None:
        """Park a sync until the leader has synced. As in Kafka, an older sync of the member is dropped unanswered."""
        if not self.parked_syncs:
            self.parked_syncs = SnapshotDict()
        elif member_id in self.parked_syncs:
            del self.parked_syncs[member_id]
        self.parked_syncs[member_id] = context

    def answer_joins(self) -> None:
        """Answer all parked joins with the generation that has begun, in order of arrival."""
        for member_id, context in list(self.parked_joins.items()):
            del self.parked_joins[member_id]
            self.answer(context, self.join_response(context, member_id, with_members=member_id == self.leader_id))
        self.parked_joins = NO_ENTRIES

    def refuse_join(self, member_id: str, error: ErrorCode, answered_id: str = "") -> None:
        """Answer the parked join of a member with an error and a member id.

        Has no effect if no join of the member is parked.
        """
        if member_id in self.parked_joins:
            context = self.parked_joins.pop(member_id)
            self.answer(context, join_error(context, error, answered_id))
            self.parked_joins = self.parked_joins or NO_ENTRIES

    def answer_sync(self, member_id: str, response: SyncGroupResponse) -> None:
        """Answer the parked sync and the held sync of a member.

        Has no effect if no sync of the member is parked or held.
        """
        if member_id in self.parked_syncs:
            self.answer(self.parked_syncs.pop(member_id), response)
            self.parked_syncs = self.parked_syncs or NO_ENTRIES
        if held := self.take_held_sync(member_id):
            self.answer(held.context, response)

    def is_sync_held(self, member_id: str) -> bool:
        """Whether the sync of this member, the leader, is held."""
        return self.held_sync is not None and self.held_sync.member_id == member_id

    def take_held_sync(self, member_id: str) -> "HeldSync | None":
        """Remove and return the held sync; None if there is no held sync of this member."""
        if not self.is_sync_held(member_id):
            return None
        held, self.held_sync = self.held_sync, None
        return held

    # Timers

    def rebalance_timeout_ms(self) -> int:
        """Return the largest rebalance timeout of the members; at least 1 ms, so that no timer expires as it starts."""
        timeout_ms: int = max([1, *map(_REBALANCE_TIMEOUT, self.members.values())])
        return timeout_ms

    def arm_session(self, member: Member, timeout_ms: float, now_ms: float) -> None:
        """Start or restart the session of a member."""
        member.deadline_ms = deadline_ms = now_ms + timeout_ms
        if deadline_ms < self.deadline_ms and member.keeper is None:
            self.deadline_ms = deadline_ms

    def arm_pending(self, member_id: str, timeout_ms: float, now_ms: float) -> None:
        """Add a pending id, and start its timer."""
        self.pending_members = _with_entry(self.pending_members, member_id, now_ms + timeout_ms)
        self.deadline_ms = min(self.deadline_ms, now_ms + timeout_ms)

    def arm_join(self, timeout_ms: float, now_ms: float) -> None:
        """Start or restart the join timer."""
        self.join_deadline_ms = now_ms + timeout_ms
        self.deadline_ms = min(self.deadline_ms, self.join_deadline_ms)

    def arm_sync(self, timeout_ms: float, now_ms: float) -> None:
        """Start or restart the sync timer."""
        self.sync_deadline_ms = now_ms + timeout_ms
        self.deadline_ms = min(self.deadline_ms, self.sync_deadline_ms)

    def earliest_deadline(self) -> float:
        """Return the earliest deadline of all timers of the group; infinite if no timer is running."""
        return min(
            self.join_deadline_ms,
            self.sync_deadline_ms,
            min(self.pending_members.values(), default=inf),
            min((member.session_ends_ms for member in self.members.values()), default=inf),
            self.extension.deadline_ms,
        )


def _without(ids: Sequence[str], others: Sequence[str]) -> list[str]:
    excluded = frozenset(others)
    return [member_id for member_id in ids if member_id not in excluded]


def _with_entry(entries: dict[str, V], key: str, value: V) -> dict[str, V]:
    """Add an entry to a dict that is not shared, or return a new dict with it."""
    if not entries:
        return {key: value}
    entries[key] = value
    return entries


def _without_key(entries: dict[str, V], key: str) -> dict[str, V]:
    """Remove a key, and return the dict, or the shared one if it is empty now."""
    entries.pop(key, None)
    return entries or NO_ENTRIES
