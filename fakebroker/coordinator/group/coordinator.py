"""The group coordinator of one broker: all groups of the offsets partitions it leads.

Finds the group, refuses what is not its own, and lets the group's procedures do the rest. Input in, effects out: no
wire formats, versions, sockets, clocks or random numbers. What groups there are, and their time, is `groups`' business.
"""

from collections.abc import Sequence

from fakebroker.coordinator.group import committing, records as log
from fakebroker.coordinator.group.api import BatchJoin, JoinGroup, JoinResult, OffsetToCommit, SyncGroup, SyncResult
from fakebroker.coordinator.group.batch_join import gathering
from fakebroker.coordinator.group.batch_join.batch import Batch
from fakebroker.coordinator.group.classic import join as joining, leave, sync
from fakebroker.coordinator.group.classic.group import CONSUMER_PROTOCOL_TYPE, EMPTY, PREPARING_REBALANCE, Group
from fakebroker.coordinator.group.groups import Groups
from fakebroker.coordinator.group.offsets import CommittedOffset
from fakebroker.errors import ErrorCode

# The heartbeat's answers and its one state, as globals: cheaper than attributes of their enumerations.
_NONE = ErrorCode.NONE
_REBALANCE_IN_PROGRESS = ErrorCode.REBALANCE_IN_PROGRESS


class Coordinator(Groups):
    """All groups of the offsets partitions one broker leads.

    Joins and syncs are answered through `answers`, those that are answered at once too, so that there is one order: a
    token is handed back with its answer, and the caller drains the list; nobody, whose token is None, gets none. Every
    other request returns its answer.

    Time only enters through `now_ms`. Timers run in `tick` alone: a caller that wants a request to see what is due
    before it, ticks first. A timer that runs late takes effect, and arms what follows, at the time of that tick, as it
    would on a broker that was busy.
    """

    # Membership

    def join_group(self, group_id: str, request: JoinGroup, token: object, now_ms: float) -> None:
        """Answers, now or later, through `answers`."""
        group = self._groups.get(group_id)
        error = self.error_for(group_id) if group is None else _NONE
        if refusal := joining.refuse(group_id, request, self.config, error, is_there=group is not None):
            self._answer(token, refusal)
            return
        if group is not None:
            join = gathering.join if group.expected.instances else joining.join
            join(group, request, token, now_ms, self._new_uuid)
        else:
            group = self._create_group(group_id, now_ms)
            group.begin("first JoinGroup", now_ms)
            joining.join(group, request, token, now_ms, self._new_uuid)
            self._store_new_group(group, now_ms)
        self._settle(group, now_ms)

    def _store_new_group(self, group: Group, now_ms: float) -> None:
        """Stores that a join has created the group, whatever became of that join; only a parked one waits for it."""
        if self.config.is_before_kip_848 or group.stored is not None:
            return
        if error := self._store_value(group, log.new_group_value(group)):
            for member_id in list(group.parked_joins):
                group.answer_join(member_id, JoinResult(error))
            self._drop(group, f"it could not be stored: {error.name}", now_ms)

    def join_batch(self, group_id: str, request: BatchJoin, token: object, now_ms: float) -> None:
        """Answers, now or later, through `answers`: once all that join have their results (KAFKA-8397)."""
        batch = Batch(token, request.members)
        group = self._groups.get(group_id)
        error = ErrorCode.INVALID_GROUP_ID if not group_id else self.error_for(group_id) if group is None else _NONE
        passed = gathering.refuse(batch, request, self.config, error, is_there=group is not None)
        if not passed:
            self._answer(token, batch.result())
            return
        is_new = group is None
        if group is None:
            group = self._create_group(group_id, now_ms)
            group.begin("first JoinGroup", now_ms)
        expected = [(seat, member) for seat, member in passed if not member.protocols]
        if error := gathering.register(group, expected, request.rebalance_timeout_ms, now_ms, self._new_uuid):
            for seat, member in passed:
                self._answer(seat, JoinResult(error, member_id=member.member_id))
            if is_new:
                self._drop(group, f"it could not be stored: {error.name}", now_ms)
            return
        joining = [(seat, member) for seat, member in passed if member.protocols]
        gathering.join_batch(group, request, joining, now_ms, self._new_uuid)
        if is_new:
            self._store_new_group(group, now_ms)
        self._settle(group, now_ms)

    def sync_group(self, group_id: str, request: SyncGroup, token: object, now_ms: float) -> None:
        """Answers, now or later, through `answers`."""
        group = self._groups.get(group_id) if group_id else None
        if group is None:
            error = self._error_without_group(group_id)
            if self.config.is_before_kip_848 and error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                error = _REBALANCE_IN_PROGRESS  # which clients of that time can do something about
            self._answer(token, SyncResult(error))
            return
        sync.sync(group, request, token, now_ms)
        self._settle(group, now_ms)

    def heartbeat(
        self, group_id: str, generation_id: int, member_id: str, instance_id: str | None, now_ms: float
    ) -> ErrorCode:
        """Keeps a member's session alive: two look-ups and one number stored. Faults are told apart afterwards."""
        group = self._groups.get(group_id)
        if group is None:
            error = self._error_without_group(group_id)
            return _NONE if error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS else error
        member = group.members.get(member_id)
        if (
            member is None
            or generation_id != group.generation_id
            or (instance_id is not None and instance_id != member.instance_id)
        ):
            return group.heartbeat_fault(member_id, instance_id)
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
        outcome = leave.leave(group, members, now_ms)
        self._settle(group, now_ms)
        return outcome

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
            not_found = ErrorCode.ILLEGAL_GENERATION if self.config.is_before_kip_848 else ErrorCode.GROUP_ID_NOT_FOUND
            error = self.error_for(group_id) or (_NONE if generation_id < 0 else not_found)
        if error:
            return [error] * len(offsets)
        if group is not None and (member := group.members.get(member_id)):
            group.arm_session(member, member.session_timeout_ms, now_ms)
            self._schedule(group)
        errors, records = committing.commit(group_id, offsets, self.config, now_ms)
        partition = self._partition_for(group_id) if group is None else group.partition
        if error := self._append_all(partition, records):
            return [error] * len(offsets)
        if group is None:
            group = self._create_group(group_id, now_ms)
            group.begin("first OffsetCommit", now_ms)
            self._note(group, now_ms)
        self._apply(records)
        return errors

    def fetch_offsets(
        self, group_id: str, partitions: Sequence[tuple[str, int]] | None, now_ms: float
    ) -> tuple[ErrorCode, list[tuple[str, int, CommittedOffset | None]]]:
        """Committed offsets of `partitions` in the order asked for, or of all that have one, topic by topic.

        Topics need not exist, and neither need the group: it then has no offsets.
        """
        group = self._groups.get(group_id)
        if group is None and (error := self.error_for(group_id)):
            return error, []
        return _NONE, committing.fetch(group, partitions)

    def delete_offsets(self, group_id: str, partitions: Sequence[tuple[str, int]]) -> tuple[ErrorCode, list[ErrorCode]]:
        """Deletes committed offsets of topics the group is not subscribed to (OffsetDelete).

        Returns:
            An error of the whole request and no codes; or NONE and one code for each partition, in order.
        """
        group = self._groups.get(group_id) if group_id else None
        if group is None:
            return self._refuse(group_id) or ErrorCode.GROUP_ID_NOT_FOUND, []
        if group.state is not EMPTY and group.protocol_type != CONSUMER_PROTOCOL_TYPE:
            return ErrorCode.NON_EMPTY_GROUP, []
        errors, records = committing.delete(group, partitions)
        if error := self._append_all(group.partition, records):
            return error, []
        self._apply(records)
        return _NONE, errors

    def delete_topic_offsets(self, topic: str) -> None:
        """Forgets what any group committed to a topic that is being deleted; one batch for each offsets partition."""
        for partition in dict.fromkeys(group.partition for group in self._groups.values()):
            records = committing.delete_topic(self._groups_of(partition), topic)
            if not self._append_all(partition, records):
                self._apply(records)

    # Groups

    def delete_group(self, group_id: str, now_ms: float) -> ErrorCode:
        """Deletes a group without members, and its offsets; a join that waits is as good as a member."""
        group = self._groups.get(group_id)
        if group is None:
            return self.error_for(group_id) or ErrorCode.GROUP_ID_NOT_FOUND
        if group.state is not EMPTY or group.expected.waiting:
            return ErrorCode.NON_EMPTY_GROUP
        if error := self._append(group.partition, log.tombstones(group)):
            return error
        self._drop(group, "DeleteGroups", now_ms)
        return _NONE

    # Refusals

    def _refuse(self, group_id: str) -> ErrorCode:
        return self.error_for(group_id) if group_id else ErrorCode.INVALID_GROUP_ID

    def _error_without_group(self, group_id: str) -> ErrorCode:
        return self._refuse(group_id) or ErrorCode.UNKNOWN_MEMBER_ID
