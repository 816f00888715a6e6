"""The state of one consumer group, which changes only by records (`ConsumerGroup.replay`).

The same records are read from the log after a failover, so a group never has state that is not stored, except timers.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from itertools import chain
from math import inf
from operator import itemgetter

from msgspec.structs import replace

from fakebroker.coordinator.consumer.member import (
    ALL_IN_MEMBER_EPOCH,
    FREE,
    LEAVING_EPOCH,
    ClassicMemberMetadata,
    ConsumerGroupMember,
    HeartbeatError,
    Partitions,
)
from fakebroker.coordinator.consumer.records import partitions_in
from fakebroker.coordinator.consumer.states import UNKNOWN, UNREVOKED_PARTITIONS, ConsumerGroupState, MemberState
from fakebroker.coordinator.consumer.subscriptions import ResolvedRegex, Subscriptions, decrement
from fakebroker.coordinator.group_history import Change, ChangedGroup, RecordedMoment, Timers
from fakebroker.coordinator.history import DEAD
from fakebroker.coordinator.offset_store import OffsetStore
from fakebroker.coordinator.records import KeyedRecord
from fakebroker.coordinator.snapshot_dict import SnapshotDict
from fakebroker.errors import ErrorCode
from fakebroker.protocol.messages.consumer_group_records import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMetadataKey,
)

UPGRADED = "upgrade of a classic group"
"""The cause of the first moment of a consumer group that was a classic one."""


def is_visible(before: ConsumerGroupMember | None, after: ConsumerGroupMember) -> bool:
    """Return whether a change of a member concerns its epoch, state or partitions."""
    return before is None or (
        (before.member_epoch, before.state) != (after.member_epoch, after.state)
        or before.assigned != after.assigned
        or before.pending_revocation != after.pending_revocation
    )


_STATES = {state.value: state for state in MemberState}

NO_ASSIGNMENT_EPOCH = -1
"""The assignment epoch of a group whose target assignment was deleted."""


class ConsumerGroup(ChangedGroup):
    """One consumer group (Kafka's `ConsumerGroup`). Also an entry of the timer queue.

    Attributes:
        partition: The partition of `__consumer_offsets` that the group belongs to.
        release: The release of Kafka whose behavior the group has.
        group_epoch: Rises when a member is added, removed or changes its subscription, or when topics change.
        metadata_hash: The hash of the subscribed topics when the group epoch last rose.
        assignment_epoch: The group epoch for which the target assignment was computed.
        target_timestamp_ms: When it was computed; 0 if that is not known, or does not matter, as without members.
        members: By member id, in the order in which they were added.
        static_members: Member ids by instance id.
        target: The target assignment, by member id.
        subscriptions: What the members subscribe to.
        unresolved: The regular expressions that are resolved in a step after the request in progress.
        votes: The number of members that name each assignor, without zeros.
        classic_count: The number of members that use the classic protocol.
        classic_protocols: The number of them that support each protocol, without zeros.
        has_subscribed_topics_record: Whether the log has a record of the subscribed topics (key version 4), as before
            4.1. It is to be deleted.
        metadata_version: The version of the topics (`TopicImage.version`) for which `metadata_hash` is known to be
            right; -1 after loading.
        offsets: The committed offsets.
        session_deadlines: When each member's session expires, by member id.
        keepers: Functions of members whose sessions are suspended, by member id: a simulation adds the heartbeats of
            these members later. One function is called with the group id before other timers of the group expire. It
            then calls `Groups.resume_consumer_session` for all of these members.
        rebalance_deadlines: For members that have to give up partitions: the deadline, and the member epoch for which
            the deadline holds.
        join_deadlines: For classic members that have to rejoin: the deadline of the JoinGroup.
        sync_deadlines: For classic members that have joined: the deadline of the SyncGroup.
        is_dead: Whether it was deleted, or is no longer coordinated here.
        state_since_ms: When the state changed last; 0 before the first moment of the history.
        unacknowledged: The partitions that members have reported during a hold, by member id. They count when the hold
            ends.
        pending_change: The changes by the request or timer in progress; None if there are none yet. See `change`.
        deadline_ms: A lower bound of all deadlines.
        scheduled_ms, timer_number: See `TimerEntry`.
    """

    def __init__(self, group_id: str, partition: int, release: tuple[int, ...]) -> None:
        self.group_id = group_id
        self.partition = partition
        self.release = release
        self.group_epoch = self.assignment_epoch = 1 if release >= (4, 3) else 0  # KAFKA-20268
        self.metadata_hash = 0
        self.target_timestamp_ms = 0
        self.members: SnapshotDict[ConsumerGroupMember] = SnapshotDict()
        self.static_members: dict[str, str] = {}
        self.target: dict[str, Partitions] = {}
        self.subscriptions = Subscriptions()
        self.unresolved: Collection[str] = ()
        self.votes: Counter[str] = Counter()
        self.classic_count = 0
        self.classic_protocols: Counter[str] = Counter()
        self.has_subscribed_topics_record = False
        self.metadata_version = -1
        self.offsets = OffsetStore()
        self.session_deadlines: dict[str, float] = {}
        self.keepers: dict[str, Callable[[str], None]] = {}
        self.rebalance_deadlines: dict[str, tuple[float, int]] = {}
        self.join_deadlines: dict[str, float] = {}
        self.sync_deadlines: dict[str, float] = {}
        self.is_dead = False
        self.state_since_ms = 0.0
        self.unacknowledged: dict[str, Partitions] = {}
        self.pending_change: Change | None = None
        self.deadline_ms = inf
        self.scheduled_ms = inf
        self.timer_number = 0
        self._partition_epochs: dict[bytes, dict[int, int]] = {}
        # How many members have not reached the target assignment; None if they have to be counted again.
        self._behind: int | None = None
        # State, group epoch and assignment epoch in the last moment of the history.
        self._last_moment: tuple[str, int, int] = DEAD, 0, 0

    # Reading

    @property
    def state(self) -> ConsumerGroupState:
        """The state, derived from members and epochs."""
        if not self.members:
            return ConsumerGroupState.EMPTY
        if self.group_epoch > self.assignment_epoch:
            return ConsumerGroupState.ASSIGNING
        if self._behind is None:
            self._behind = sum(not each.is_reconciled_to(self.assignment_epoch) for each in self.members.values())
        return ConsumerGroupState.RECONCILING if self._behind else ConsumerGroupState.STABLE

    def static_member(self, instance_id: str) -> ConsumerGroupMember | None:
        """Return the member with an instance id, or None.

        Raises:
            HeartbeatError: UNKNOWN_MEMBER_ID: the member has taken another instance id, and left. As in Kafka, its
                first instance id still leads to its member id (`ConsumerGroup.staticMember`); not since 4.4.
        """
        member_id = self.static_members.get(instance_id)
        if member_id is None:
            return None
        if member_id not in self.members:
            raise HeartbeatError(
                ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of group {self.group_id}."
            )
        return self.members[member_id]

    def partition_epoch(self, topic_id: bytes, index: int) -> int:
        """Return the epoch of the member that has a partition, or still has to give it up; -1 if it is free."""
        return self._partition_epochs.get(topic_id, {}).get(index, FREE)

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether a member is subscribed to a topic."""
        return topic in self.subscriptions

    def next_target_ms(self, interval_ms: int) -> float:
        """Return when the next target may be computed, if targets are at least an interval apart (KIP-1263)."""
        return self.target_timestamp_ms + interval_ms if self.target_timestamp_ms and interval_ms else -inf

    def check_commit(self, epoch: int, member_id: str) -> ErrorCode:
        """Return the error of an OffsetCommit, or NONE (`ConsumerGroup.validateOffsetCommit`).

        An older epoch of the member is accepted here since 4.3; `check_older_commit` then checks the partitions.

        Args:
            epoch: The member epoch; negative if a client that is not a member commits, which needs an empty group.
            member_id: The member, or "".
        """
        if epoch < 0 and not self.members:
            return ErrorCode.NONE
        member = self.members.get(member_id)
        if member is not None and epoch < member.member_epoch and self.release >= (4, 3):
            return ErrorCode.NONE
        return self._check_member(epoch, member_id)

    def check_older_commit(self, epoch: int, member_id: str, partitions: Iterable[tuple[bytes, int]]) -> ErrorCode:
        """Return the error of a commit that `check_commit` has accepted, or NONE (KIP-1251).

        A member that commits in an older epoch must have each partition, or still have to give it up, and must have got
        it in that epoch or before.
        """
        member = self.members.get(member_id)
        if member is None or epoch >= member.member_epoch:
            return ErrorCode.NONE
        for topic_id, index in partitions:
            got_in = member.assignment_epoch(topic_id, index)
            if got_in is None or epoch < got_in:
                return _stale(member)
        return ErrorCode.NONE

    def check_transactional_commit(self, epoch: int, member_id: str, instance_id: str | None) -> ErrorCode:
        """Return the error of a TxnOffsetCommit, or NONE, as `check_commit`. Without any identity it is accepted."""
        is_anonymous = epoch == -1 and not member_id and instance_id is None
        return ErrorCode.NONE if is_anonymous else self.check_commit(epoch, member_id)

    def check_fetch(self, epoch: int, member_id: str | None) -> ErrorCode:
        """Return the error of an OffsetFetch, or NONE. One without member id and epoch is accepted."""
        if member_id is None:
            # Kafka looks for the member null, which its map does not allow.
            return ErrorCode.NONE if epoch < 0 else ErrorCode.UNKNOWN_SERVER_ERROR
        return self._check_member(epoch, member_id)

    def _check_member(self, epoch: int, member_id: str) -> ErrorCode:
        member = self.members.get(member_id)
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        return ErrorCode.NONE if epoch == member.member_epoch else _stale(member)

    # Changing

    def retry_timers(self, member_id: str, now_ms: float, retry_ms: float) -> None:
        """Let the timers of a member that are due now end at another time, because they had no effect."""
        for deadlines in (self.session_deadlines, self.join_deadlines, self.sync_deadlines):
            if deadlines.get(member_id, inf) <= now_ms:
                deadlines[member_id] = retry_ms
        due_ms, epoch = self.rebalance_deadlines.get(member_id, (inf, 0))
        if due_ms <= now_ms:
            self.rebalance_deadlines[member_id] = retry_ms, epoch

    def replay(self, record: KeyedRecord) -> None:
        """Apply a record that is in the log (Kafka's `GroupMetadataManager.replay`).

        Raises:
            RuntimeError: The record contradicts the state: a partition would have two owners.
        """
        value = record.value
        match record.key:
            case ConsumerGroupCurrentMemberAssignmentKey(member_id=member_id):
                self._replay_current_assignment(member_id, value)
            case ConsumerGroupMemberMetadataKey(member_id=member_id):
                self._replay_subscription(member_id, value)
            case ConsumerGroupTargetAssignmentMemberKey(member_id=member_id):
                if value is None:
                    self.target.pop(member_id, None)
                else:
                    self.target[member_id] = partitions_in(value.topic_partitions)
            case ConsumerGroupTargetAssignmentMetadataKey():
                self.assignment_epoch = NO_ASSIGNMENT_EPOCH if value is None else value.assignment_epoch
                self.target_timestamp_ms = 0 if value is None else value.assignment_timestamp
                self._behind = None
            case ConsumerGroupMetadataKey():
                if value is not None:
                    self.group_epoch, self.metadata_hash = value.epoch, value.metadata_hash
            case ConsumerGroupRegularExpressionKey(regular_expression=regex):
                if value is None:
                    self.subscriptions.resolved.pop(regex, None)
                else:
                    found = ResolvedRegex(frozenset(value.topics), value.version, value.timestamp)
                    self.subscriptions.resolved[regex] = found
            case ConsumerGroupPartitionMetadataKey():
                self.has_subscribed_topics_record = value is not None

    def _replay_current_assignment(
        self, member_id: str, value: ConsumerGroupCurrentMemberAssignmentValue | None
    ) -> None:
        member = self.members.get(member_id)
        if value is None:
            if member is not None:
                self._put(
                    ConsumerGroupMember(member_id=member_id, instance_id=member.instance_id, member_epoch=LEAVING_EPOCH)
                )
            return
        older_epochs = {
            (topic.topic_id, index): epoch
            for topic in (*value.assigned_partitions, *value.partitions_pending_revocation)
            for index, epoch in zip(topic.partitions, topic.assignment_epochs or (), strict=False)
            if epoch != value.member_epoch
        }
        self._put(
            replace(
                member or ConsumerGroupMember(member_id=member_id),
                member_epoch=value.member_epoch,
                previous_epoch=value.previous_member_epoch,
                state=_STATES.get(value.state, UNKNOWN),
                assigned=partitions_in(value.assigned_partitions),
                pending_revocation=partitions_in(value.partitions_pending_revocation),
                older_epochs=older_epochs or ALL_IN_MEMBER_EPOCH,
            )
        )

    def _replay_subscription(self, member_id: str, value: ConsumerGroupMemberMetadataValue | None) -> None:
        if value is not None:
            member = self.members.get(member_id) or ConsumerGroupMember(member_id=member_id)
            classic = value.classic_member_metadata
            self._put(
                replace(
                    member,
                    instance_id=value.instance_id,
                    rack_id=value.rack_id,
                    client_id=value.client_id,
                    client_host=value.client_host,
                    subscribed_topic_names=frozenset(value.subscribed_topic_names),
                    subscribed_topic_regex=value.subscribed_topic_regex or "",
                    rebalance_timeout_ms=value.rebalance_timeout_ms,
                    server_assignor=value.server_assignor,
                    classic=None
                    if classic is None
                    else ClassicMemberMetadata(
                        classic.session_timeout_ms,
                        tuple((each.name, each.metadata) for each in classic.supported_protocols),
                    ),
                )
            )
        elif member_id in self.members:
            member = self.members.pop(member_id)
            self.change.before.setdefault(member_id, member)
            self._uncount(member)
            # Not if the member was replaced by another one with its instance id.
            if member.instance_id is not None and self.static_members.get(member.instance_id) == member_id:
                del self.static_members[member.instance_id]
            self.unacknowledged.pop(member_id, None)
            for deadlines in (self.session_deadlines, self.join_deadlines, self.sync_deadlines):
                deadlines.pop(member_id, None)
            self.keepers.pop(member_id, None)
            self.rebalance_deadlines.pop(member_id, None)

    def _put(self, member: ConsumerGroupMember) -> None:
        former = self.members.get(member.member_id)
        self.change.before.setdefault(member.member_id, former)
        if former is not None:
            self._uncount(former)
        self.members[member.member_id] = member
        self.subscriptions.add(member)
        if self._behind is not None:
            self._behind += not member.is_reconciled_to(self.assignment_epoch)
        if member.server_assignor is not None:
            self.votes[member.server_assignor] += 1
        if member.classic is not None:
            self.classic_count += 1
            self.classic_protocols.update(name for name, _ in member.classic.protocols)
        if former is not None and former.instance_id not in (None, member.instance_id) and self.release >= (4, 4):
            self.static_members.pop(former.instance_id, None)  # KAFKA-20747
        if member.instance_id is not None:
            self.static_members[member.instance_id] = member.member_id
        for partitions in (member.assigned, member.pending_revocation):
            self._own(partitions, member)

    def _own(self, partitions: Partitions, member: ConsumerGroupMember) -> None:
        for topic_id, indexes in partitions.items():
            epochs = self._partition_epochs.setdefault(topic_id, {})
            for index in indexes:
                if index in epochs:
                    owner = f"a member in epoch {epochs[index]}"
                    raise RuntimeError(f"group {self.group_id!r}: {topic_id.hex()}-{index} already has {owner}")
                epochs[index] = member.member_epoch

    def _uncount(self, member: ConsumerGroupMember) -> None:
        self.subscriptions.remove(member)
        if self._behind is not None:
            self._behind -= not member.is_reconciled_to(self.assignment_epoch)
        if member.server_assignor is not None:
            decrement(self.votes, member.server_assignor)
        if member.classic is not None:
            self.classic_count -= 1
            for name, _ in member.classic.protocols:
                decrement(self.classic_protocols, name)
        for partitions in (member.assigned, member.pending_revocation):
            for topic_id, indexes in partitions.items():
                epochs = self._partition_epochs[topic_id]
                for index in indexes:
                    del epochs[index]
                if not epochs:
                    del self._partition_epochs[topic_id]

    # History

    def record_end(self, cause: str, now_ms: float) -> None:
        """Add the last moment to the change: the group was deleted, or is no longer coordinated here."""
        self.change.cause, self.is_dead = cause, True
        self.end_moment(now_ms)

    def continue_history(self, state: str, since_ms: float, members: Collection[str]) -> None:
        """Continue the history of the classic group that this group replaces.

        Args:
            state: The state of the classic group.
            since_ms: Since when it was in that state.
            members: Its member ids.
        """
        self._last_moment, self.state_since_ms = (state, 0, 0), since_ms
        self.change.known = members

    def leave_history(self) -> None:
        """Record nothing more: a classic group has replaced this group and continues its history."""
        self.is_dead, self._last_moment = True, (DEAD, 0, 0)
        self.forget_change()

    def end_moment(self, now_ms: float) -> None:
        """Add a moment to the change if state, epochs or members have changed since the last one."""
        if self.is_dead and self._last_moment[0] == DEAD:
            return
        change, is_dead = self.change, self.is_dead
        numbers = (DEAD if is_dead else self.state.value), self.group_epoch, self.assignment_epoch
        members = () if is_dead else self.members.snapshot()
        now = {member_id: self.members.get(member_id) for member_id in change.before}
        before = change.before
        changed = (
            [] if is_dead else [each for each in now.values() if each and is_visible(before[each.member_id], each)]
        )
        joined = tuple(
            each.member_id for each in changed if before[each.member_id] is None and each.member_id not in change.known
        )
        left = tuple(self.members) if is_dead else tuple(each for each in before if before[each] and not now[each])
        if numbers[1:] != self._last_moment[1:] or changed or left or is_dead:
            partitions = sum(map(_partition_count, changed))
            change.moments.append(
                RecordedMoment(
                    at_ms=now_ms,
                    cause=change.cause,
                    state_from=self._last_moment[0],
                    state_to=numbers[0],
                    generation_id=self.group_epoch,
                    leader_id=None,
                    members=members,
                    joined=joined,
                    rejoined=(),
                    left=left,
                    parked_joins=(),
                    parked_syncs=(),
                    size=len(members) + partitions,
                    assignment_epoch=self.assignment_epoch,
                    changed=changed,
                )
            )
            if numbers[0] != self._last_moment[0]:
                self.state_since_ms = now_ms
            self._last_moment = numbers
        before.clear()
        change.known = ()

    def timers(self, *, with_members: bool) -> Timers:
        """Return the timers of each kind that expire next; sessions if `with_members` is true."""
        timers: Timers = ()
        for what, deadlines in (("join of ", self.join_deadlines), ("sync of ", self.sync_deadlines)):
            if deadlines:
                member_id = min(deadlines, key=deadlines.__getitem__)
                timers += what, member_id, deadlines[member_id]
        if self.rebalance_deadlines:
            member_id = min(self.rebalance_deadlines, key=self.rebalance_deadlines.__getitem__)
            timers += "revocation of ", member_id, self.rebalance_deadlines[member_id][0]
        if with_members and self.session_deadlines:
            member_id = min(self.session_deadlines, key=self.session_deadlines.__getitem__)
            timers += "session of ", member_id, self.session_deadlines[member_id]
        return timers

    # Timers

    def arm_session(self, member_id: str, deadline_ms: float) -> None:
        """Set when the session of a member expires."""
        self.session_deadlines[member_id] = deadline_ms
        self.deadline_ms = min(self.deadline_ms, deadline_ms)

    def arm_rebalance(self, member: ConsumerGroupMember, now_ms: float) -> None:
        """Start the rebalance timer of a member that has to give up partitions, else stop it."""
        if member.state is UNREVOKED_PARTITIONS:
            deadline_ms = now_ms + member.rebalance_timeout_ms
            self.rebalance_deadlines[member.member_id] = deadline_ms, member.member_epoch
            self.deadline_ms = min(self.deadline_ms, deadline_ms)
        else:
            self.rebalance_deadlines.pop(member.member_id, None)

    def arm_join(self, member: ConsumerGroupMember, now_ms: float) -> None:
        """Start the join timer of a classic member, which has to rejoin, unless it runs."""
        deadline_ms = self.join_deadlines.setdefault(member.member_id, now_ms + member.rebalance_timeout_ms)
        self.deadline_ms = min(self.deadline_ms, deadline_ms)

    def arm_sync(self, member_id: str, deadline_ms: float) -> None:
        """Start the sync timer of a classic member that has joined, and stop its join timer."""
        self.join_deadlines.pop(member_id, None)
        self.sync_deadlines[member_id] = deadline_ms
        self.deadline_ms = min(self.deadline_ms, deadline_ms)

    def earliest_deadline(self) -> float:
        """Return the earliest deadline of all members, infinite without one."""
        timers = (self.join_deadlines, self.sync_deadlines)
        rebalances = (deadline_ms for deadline_ms, _ in self.rebalance_deadlines.values())
        sessions = self._unsuspended_sessions().values()
        return min(chain(sessions, *(each.values() for each in timers), rebalances), default=inf)

    def _unsuspended_sessions(self) -> Mapping[str, float]:
        """Return when sessions expire, without those that are suspended."""
        if not self.keepers:
            return self.session_deadlines
        return {each: at_ms for each, at_ms in self.session_deadlines.items() if each not in self.keepers}

    def expired_members(self, now_ms: float) -> dict[str, str]:
        """Return the members that are to be removed now in order of their deadlines, by member id, each with the cause.

        A rebalance timer that was started in another epoch of its member is only stopped.
        """
        timers = (
            (self._unsuspended_sessions(), "session of {} expired"),
            (self.join_deadlines, "{} did not rejoin in time"),
            (self.sync_deadlines, "{} did not sync in time"),
        )
        due = [
            (deadline_ms, member_id, cause)
            for deadlines, cause in timers
            for member_id, deadline_ms in deadlines.items()
            if deadline_ms <= now_ms
        ]
        for member_id, (deadline_ms, epoch) in [*self.rebalance_deadlines.items()]:
            if deadline_ms <= now_ms and self.members[member_id].member_epoch == epoch:
                due.append((deadline_ms, member_id, "{} did not give up partitions in time"))
            elif deadline_ms <= now_ms:
                del self.rebalance_deadlines[member_id]
        expired: dict[str, str] = {}
        for _, member_id, cause in sorted(due, key=itemgetter(0)):
            expired.setdefault(member_id, cause.format(member_id))
        return expired


def _stale(member: ConsumerGroupMember) -> ErrorCode:
    return ErrorCode.STALE_MEMBER_EPOCH if member.classic is None else ErrorCode.ILLEGAL_GENERATION


def _partition_count(member: ConsumerGroupMember) -> int:
    return sum(map(len, member.assigned.values())) + sum(map(len, member.pending_revocation.values()))
