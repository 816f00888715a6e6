"""The group coordinator of one broker: all groups of the offsets partitions it leads.

Finds the group, refuses what is not its own, lets the group's procedures do the rest, and keeps the time. Input in,
effects out: no wire formats, versions, sockets, clocks or random numbers.
"""

from collections.abc import Callable, Collection, Sequence
from heapq import heappop, heappush
from itertools import count
from math import inf

from fakebroker.coordinator import joining, leaving, syncing
from fakebroker.coordinator.group import CONSUMER_PROTOCOL_TYPE, DEAD, EMPTY, PREPARING_REBALANCE, Group
from fakebroker.coordinator.offsets import CommittedOffset
from fakebroker.coordinator.placement import java_string_length, partition_for
from fakebroker.coordinator.rebalance import fire_earliest_timer
from fakebroker.coordinator.types import (
    Answer,
    CoordinatorConfig,
    JoinGroup,
    JoinResult,
    OffsetToCommit,
    SyncGroup,
    SyncResult,
)
from fakebroker.errors import ErrorCode

# The heartbeat's answers and its one state, as globals: cheaper than attributes of their enumerations.
_NONE = ErrorCode.NONE
_REBALANCE_IN_PROGRESS = ErrorCode.REBALANCE_IN_PROGRESS


class Coordinator:
    """All groups of the offsets partitions one broker leads.

    Joins and syncs are answered through `answers`, those that are answered at once too, so that there is one order: a
    token is handed back with its answer, and the caller drains the list. Every other request returns its answer.

    Time only enters through `now_ms`. Timers run in `tick` alone: a caller that wants a request to see what is due
    before it, ticks first. A timer that runs late takes effect, and arms what follows, at the time of that tick, as it
    would on a broker that was busy.
    """

    def __init__(self, config: CoordinatorConfig, new_uuid: Callable[[], str]) -> None:
        """Starts without any partition.

        Args:
            new_uuid: Returns what a new member id ends in; never the same twice.
        """
        self.config = config
        self._new_uuid = new_uuid
        self.answers: list[Answer] = []
        self._groups: dict[str, Group] = {}
        self._led_partitions: dict[int, None] = {}
        self._wakeups: list[tuple[float, int, Group]] = []
        self._wakeup_numbers = count()

    # Partitions

    def lead(self, partition: int, now_ms: float) -> None:
        """Becomes the coordinator of the groups of an offsets partition, which starts out without any.

        This is where its log will be replayed; each change that must be in it is made in a method marked "Persisted".
        """
        self._led_partitions[partition] = None

    def resign(self, partition: int, now_ms: float) -> None:
        """Hands over the groups of an offsets partition: they are dropped, whoever is parked gets NOT_COORDINATOR."""
        self._led_partitions.pop(partition, None)
        for group in [group for group in self._groups.values() if group.partition == partition]:
            for member_id in list(group.parked_joins):
                group.answer_join(member_id, JoinResult(ErrorCode.NOT_COORDINATOR, member_id=member_id))
            for member_id in list(group.parked_syncs):
                group.answer_sync(member_id, SyncResult(ErrorCode.NOT_COORDINATOR))
            self._drop(group, now_ms)

    def error_for(self, group_id: str) -> ErrorCode:
        """NONE, or NOT_COORDINATOR if the group's partition is not led here."""
        partition = partition_for(group_id, self.config.offsets_topic_num_partitions)
        return _NONE if partition in self._led_partitions else ErrorCode.NOT_COORDINATOR

    def group(self, group_id: str) -> Group | None:
        return self._groups.get(group_id)

    def groups(self) -> Collection[Group]:
        """All groups, in the order they were created."""
        return self._groups.values()

    # Membership

    def join_group(self, group_id: str, request: JoinGroup, token: object, now_ms: float) -> None:
        """Answers, now or later, through `answers`."""
        if refusal := self._refuse_join(group_id, request):
            self._answer(token, refusal)
            return
        group = self._groups.get(group_id) or self._create_group(group_id, now_ms)
        joining.join(group, request, token, now_ms, self._new_uuid)
        self._schedule(group)

    def sync_group(self, group_id: str, request: SyncGroup, token: object, now_ms: float) -> None:
        """Answers, now or later, through `answers`."""
        group = self._groups.get(group_id) if group_id else None
        if group is None:
            self._answer(token, SyncResult(self._error_without_group(group_id)))
            return
        syncing.sync(group, request, token, now_ms)
        self._schedule(group)

    def heartbeat(
        self, group_id: str, generation_id: int, member_id: str, instance_id: str | None, now_ms: float
    ) -> ErrorCode:
        """Keeps a member's session alive: two look-ups and one number stored. Faults are told apart afterwards."""
        group = self._groups.get(group_id)
        if group is None:
            return self._error_without_group(group_id)
        member = group.members.get(member_id)
        if (
            member is None
            or generation_id != group.generation_id
            or (instance_id is not None and instance_id != member.instance_id)
        ):
            return self._heartbeat_fault(group, member_id, instance_id)
        deadline_ms = member.deadline_ms = now_ms + member.session_timeout_ms
        if deadline_ms < group.wakeup_ms:  # A session timeout that a join has shortened.
            group.deadline_ms = deadline_ms
            self._schedule(group)
        return _REBALANCE_IN_PROGRESS if group.state is PREPARING_REBALANCE else _NONE

    def leave_group(
        self, group_id: str, members: Sequence[tuple[str, str | None]], now_ms: float
    ) -> tuple[ErrorCode, list[ErrorCode]]:
        """Removes members, given as (member id or "", instance id).

        Returns:
            An error of the whole request and no codes; or NONE and one code for each member, in order.
        """
        if error := self._refuse(group_id):
            return error, []
        group = self._groups.get(group_id)
        if group is None:
            return _NONE, [ErrorCode.UNKNOWN_MEMBER_ID] * len(members)
        errors = leaving.leave(group, members, now_ms)
        self._schedule(group)
        return _NONE, errors

    # Offsets. "" is a legal group id here.

    def commit_offsets(
        self,
        group_id: str,
        generation_id: int,
        member_id: str,
        instance_id: str | None,
        offsets: Sequence[OffsetToCommit],
        now_ms: float,
    ) -> list[ErrorCode]:
        """Commits offsets, those with too long metadata excepted.

        Returns:
            One code for each offset, in order; an error of the whole request is repeated for each. GROUP_ID_NOT_FOUND
            stands for a missing group that a member of a generation commits to.
        """
        group = self._groups.get(group_id)
        if group is not None:
            error = group.check_commit(generation_id, member_id, instance_id)
        else:
            error = self.error_for(group_id) or (_NONE if generation_id < 0 else ErrorCode.GROUP_ID_NOT_FOUND)
        if error:
            return [error] * len(offsets)
        group = group or self._create_group(group_id, now_ms)
        if member := group.members.get(member_id):
            group.arm_session(member, member.session_timeout_ms, now_ms)
            self._schedule(group)
        return [self._commit(group, offset, now_ms) for offset in offsets]

    def _commit(self, group: Group, wanted: OffsetToCommit, now_ms: float) -> ErrorCode:
        metadata = wanted.metadata or ""
        if java_string_length(metadata) > self.config.offset_metadata_max_bytes:
            return ErrorCode.OFFSET_METADATA_TOO_LARGE
        committed = CommittedOffset(
            offset=wanted.offset,
            leader_epoch=wanted.leader_epoch,
            metadata=metadata,
            commit_timestamp_ms=int(now_ms) if wanted.commit_timestamp_ms is None else wanted.commit_timestamp_ms,
            expire_timestamp_ms=wanted.expire_timestamp_ms,
        )
        group.offsets.put(wanted.topic, wanted.partition, committed)
        return _NONE

    def fetch_offsets(
        self, group_id: str, partitions: Sequence[tuple[str, int]] | None, now_ms: float
    ) -> tuple[ErrorCode, list[tuple[str, int, CommittedOffset | None]]]:
        """Committed offsets of `partitions` in the order asked for, or of all that have one, topic by topic.

        Topics need not exist, and neither need the group: it then has no offsets.
        """
        group = self._groups.get(group_id)
        if group is None and (error := self.error_for(group_id)):
            return error, []
        if partitions is None:
            return _NONE, list(group.offsets) if group is not None else []
        if group is None:
            return _NONE, [(topic, index, None) for topic, index in partitions]
        return _NONE, [(topic, index, group.offsets.get(topic, index)) for topic, index in partitions]

    def delete_offsets(self, group_id: str, partitions: Sequence[tuple[str, int]]) -> tuple[ErrorCode, list[ErrorCode]]:
        """Deletes committed offsets of topics the group is not subscribed to (OffsetDelete).

        Returns:
            An error of the whole request and no codes; or NONE and one code for each partition, in order.
        """
        group = self._groups.get(group_id)
        if error := self._refuse(group_id):
            return error, []
        if group is None:
            return ErrorCode.GROUP_ID_NOT_FOUND, []
        if group.state is not EMPTY and group.protocol_type != CONSUMER_PROTOCOL_TYPE:
            return ErrorCode.NON_EMPTY_GROUP, []
        return _NONE, [self._delete_offset(group, topic, partition) for topic, partition in partitions]

    def _delete_offset(self, group: Group, topic: str, partition: int) -> ErrorCode:
        if group.is_subscribed_to(topic):
            return ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
        group.offsets.remove(topic, partition)
        return _NONE

    def delete_topic_offsets(self, topic: str) -> None:
        """Forgets what any group committed to a topic that is being deleted."""
        for group in self._groups.values():
            group.offsets.remove_topic(topic)

    # Groups

    def delete_group(self, group_id: str, now_ms: float) -> ErrorCode:
        """Deletes a group without members. Persisted: a tombstone for each of its offsets and for the group."""
        group = self._groups.get(group_id)
        if group is None:
            return self.error_for(group_id) or ErrorCode.GROUP_ID_NOT_FOUND
        if group.state is not EMPTY:
            return ErrorCode.NON_EMPTY_GROUP
        self._drop(group, now_ms)
        return _NONE

    def _create_group(self, group_id: str, now_ms: float) -> Group:
        """Persisted if a join creates it: an empty group's record. What a commit creates, its offsets bring back."""
        partition = partition_for(group_id, self.config.offsets_topic_num_partitions)
        group = Group(group_id, partition, self.config, self._answer, now_ms)
        self._groups[group_id] = group
        return group

    def _drop(self, group: Group, now_ms: float) -> None:
        del self._groups[group.group_id]
        group.transition_to(DEAD, now_ms)
        group.wakeup_ms = inf

    def _answer(self, token: object, result: JoinResult | SyncResult) -> None:
        self.answers.append((token, result))

    # Refusals

    def _refuse(self, group_id: str) -> ErrorCode:
        return self.error_for(group_id) if group_id else ErrorCode.INVALID_GROUP_ID

    def _refuse_join(self, group_id: str, request: JoinGroup) -> JoinResult | None:
        config = self.config
        if not group_id:
            return JoinResult(ErrorCode.INVALID_GROUP_ID, member_id=request.member_id)
        if not config.group_min_session_timeout_ms <= request.session_timeout_ms <= config.group_max_session_timeout_ms:
            return JoinResult(ErrorCode.INVALID_SESSION_TIMEOUT, member_id=request.member_id)
        if group_id in self._groups:
            return None
        if error := self.error_for(group_id):
            return JoinResult(error)
        return JoinResult(ErrorCode.UNKNOWN_MEMBER_ID, member_id=request.member_id) if request.member_id else None

    def _error_without_group(self, group_id: str) -> ErrorCode:
        return self._refuse(group_id) or ErrorCode.UNKNOWN_MEMBER_ID

    def _heartbeat_fault(self, group: Group, member_id: str, instance_id: str | None) -> ErrorCode:
        if not group.group_id:
            return ErrorCode.INVALID_GROUP_ID
        return group.check_member(member_id, instance_id) or ErrorCode.ILLEGAL_GENERATION

    # Time

    def tick(self, now_ms: float) -> None:
        """Lets all timers run out that are due, in order of their deadlines across all groups.

        Between groups with the same deadline, the one whose wake-up was noted first comes first; inside a group see
        `fire_earliest_timer`.
        """
        while self._wakeups and self._wakeups[0][0] <= now_ms:
            wakeup_ms, _, group = heappop(self._wakeups)
            if wakeup_ms != group.wakeup_ms:
                continue  # An earlier wake-up has taken its place, or the group is gone.
            group.wakeup_ms = inf
            if group.earliest_deadline() == wakeup_ms:
                fire_earliest_timer(group, now_ms)
            group.deadline_ms = group.earliest_deadline()
            self._schedule(group)

    def next_deadline(self) -> float | None:
        """When to tick next, or `None` without timers. May be early, as sessions are extended silently; never late."""
        return self._wakeups[0][0] if self._wakeups else None

    def _schedule(self, group: Group) -> None:
        """Notes when to look at the group's timers, unless that is noted already or an earlier time is."""
        if group.deadline_ms < group.wakeup_ms:
            group.wakeup_ms = group.deadline_ms
            heappush(self._wakeups, (group.wakeup_ms, next(self._wakeup_numbers), group))
