"""The group coordinator of one broker: all groups of the offsets partitions it leads.

Finds the group, refuses what is not its own, lets the group's procedures do the rest, and keeps the time. Input in,
effects out: no wire formats, versions, sockets, clocks or random numbers.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from math import inf

from fakebroker.coordinator import committing, joining, leaving, log, syncing
from fakebroker.coordinator.expiry import expired_records
from fakebroker.coordinator.group import CONSUMER_PROTOCOL_TYPE, DEAD, EMPTY, PREPARING_REBALANCE, STABLE, Group
from fakebroker.coordinator.history import Note, forget
from fakebroker.coordinator.log import Append, GroupRecord, OffsetRecord, Record
from fakebroker.coordinator.offsets import CommittedOffset
from fakebroker.coordinator.partitions import LedPartition, Partitions
from fakebroker.coordinator.placement import partition_for
from fakebroker.coordinator.rebalance import fire_earliest_timer, refuse_all, start_rebalance
from fakebroker.coordinator.script import NO_WISHES, Wishes, script_for
from fakebroker.coordinator.types import (
    Answer,
    CoordinatorConfig,
    JoinGroup,
    JoinResult,
    OffsetToCommit,
    SyncGroup,
    SyncResult,
)
from fakebroker.coordinator.wakeups import Wakeups
from fakebroker.errors import ErrorCode

# The heartbeat's answers and its one state, as globals: cheaper than attributes of their enumerations.
_NONE = ErrorCode.NONE
_REBALANCE_IN_PROGRESS = ErrorCode.REBALANCE_IN_PROGRESS


class Coordinator:
    """All groups of the offsets partitions one broker leads.

    Joins and syncs are answered through `answers`, those that are answered at once too, so that there is one order: a
    token is handed back with its answer, and the caller drains the list; nobody, whose token is None, gets none. Every
    other request returns its answer.

    Time only enters through `now_ms`. Timers run in `tick` alone: a caller that wants a request to see what is due
    before it, ticks first. A timer that runs late takes effect, and arms what follows, at the time of that tick, as it
    would on a broker that was busy.
    """

    def __init__(
        self,
        config: CoordinatorConfig,
        new_uuid: Callable[[], str],
        append: Append = lambda partition, records: _NONE,
        wishes: Mapping[str, Wishes] = NO_WISHES,
        note: Note = forget,
    ) -> None:
        """Starts without any partition.

        Args:
            new_uuid: Returns what a new member id ends in; never the same twice.
            append: Writes one batch to the log of an offsets partition, before what it says takes effect or is
                answered. By default nothing is kept.
            wishes: By group id what somebody outside wants of its rebalances.
            note: Is told of a group after each request or timer that may have changed it.
        """
        self.config = config
        self._new_uuid = new_uuid
        self._append = append
        self._note = note
        self._wishes = wishes
        self.answers: list[Answer] = []
        self._groups: dict[str, Group] = {}
        self._partitions = Partitions()
        self._wakeups: Wakeups[Group | LedPartition] = Wakeups()

    # Partitions

    def lead(self, partition: int, now_ms: float) -> None:
        """Becomes the coordinator of the groups of an offsets partition, which starts out without any."""
        self._partitions.lead(partition, now_ms)

    def start_loading(self, partition: int) -> None:
        """Will lead an offsets partition once its log is read: until then COORDINATOR_LOAD_IN_PROGRESS."""
        self._partitions.start_loading(partition)

    def finish_loading(self, partition: int, records: Iterable[Record], now_ms: float) -> None:
        """Leads the partition with the groups that its log holds, oldest record first. All sessions start anew.

        A group that has too many members rebalances at once. Should `records` raise, nothing has happened.
        """
        loaded = log.replay(records)
        self._partitions.end_loading(partition)
        self._partitions.lead(partition, now_ms)
        self.add_groups(loaded, now_ms)

    def add_groups(self, groups: log.LoadedGroups, now_ms: float) -> None:
        """Takes up groups that the log of a partition led here holds."""
        for group_id, (value, offsets) in groups.items():
            group = self._create_group(group_id, now_ms, has_members=bool(value.members))
            log.restore(group, value, offsets, now_ms)
            if len(group.members) > self.config.group_max_size:
                group.step.cause = "loaded with more members than it may have"
                start_rebalance(group, now_ms)
            self._settle(group, now_ms)

    def fail_loading(self, partition: int) -> None:
        """Gives up loading: NOT_COORDINATOR until the partition is loaded again or led."""
        self._partitions.end_loading(partition)

    def resign(self, partition: int, now_ms: float) -> None:
        """Hands over the groups of an offsets partition: they are dropped, whoever is parked gets NOT_COORDINATOR."""
        for group in self._groups_of(partition):
            self._drop(group, "its coordinator resigned", now_ms)
            refuse_all(group, ErrorCode.NOT_COORDINATOR)
        self._partitions.resign(partition)

    def error_for(self, group_id: str) -> ErrorCode:
        """NONE if the group's partition is led here; else NOT_COORDINATOR or COORDINATOR_LOAD_IN_PROGRESS."""
        return self._partitions.error(self._partition_for(group_id))

    def _partition_for(self, group_id: str) -> int:
        return partition_for(group_id, self.config.offsets_topic_num_partitions)

    def group(self, group_id: str) -> Group | None:
        return self._groups.get(group_id)

    def groups(self) -> Collection[Group]:
        """All groups, in the order they were created."""
        return self._groups.values()

    @property
    def is_loading(self) -> bool:
        """Whether some offsets partition is being loaded, whose groups are not known yet."""
        return self._partitions.is_loading

    def led_partitions(self) -> Collection[LedPartition]:
        """The offsets partitions whose groups are served here."""
        return self._partitions.all_led()

    # Membership

    def join_group(self, group_id: str, request: JoinGroup, token: object, now_ms: float) -> None:
        """Answers, now or later, through `answers`."""
        group = self._groups.get(group_id)
        error = self.error_for(group_id) if group is None else _NONE
        if refusal := joining.refuse(group_id, request, self.config, error, is_there=group is not None):
            self._answer(token, refusal)
            return
        if group is not None:
            joining.join(group, request, token, now_ms, self._new_uuid)
        else:
            group = self._create_group(group_id, now_ms)
            group.begin("first JoinGroup", now_ms)
            joining.join(group, request, token, now_ms, self._new_uuid)
            self._store_new_group(group, now_ms)
        self._settle(group, now_ms)

    def _store_new_group(self, group: Group, now_ms: float) -> None:
        """Stores that a join has created the group, whatever became of that join; only a parked one waits for it."""
        if self.config.is_before_kip_848:
            return
        if error := self._append(group.partition, (log.new_group_record(group),)):
            for member_id in list(group.parked_joins):
                group.answer_join(member_id, JoinResult(error))
            self._drop(group, f"it could not be stored: {error.name}", now_ms)

    def sync_group(self, group_id: str, request: SyncGroup, token: object, now_ms: float) -> None:
        """Answers, now or later, through `answers`."""
        group = self._groups.get(group_id) if group_id else None
        if group is None:
            error = self._error_without_group(group_id)
            if self.config.is_before_kip_848 and error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                error = _REBALANCE_IN_PROGRESS  # which clients of that time can do something about
            self._answer(token, SyncResult(error))
            return
        syncing.sync(group, request, token, now_ms)
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
        outcome = leaving.leave(group, members, now_ms)
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
        """Deletes a group without members, and its offsets."""
        group = self._groups.get(group_id)
        if group is None:
            return self.error_for(group_id) or ErrorCode.GROUP_ID_NOT_FOUND
        if group.state is not EMPTY:
            return ErrorCode.NON_EMPTY_GROUP
        if error := self._append(group.partition, log.tombstones(group)):
            return error
        self._drop(group, "DeleteGroups", now_ms)
        return _NONE

    def _groups_of(self, partition: int) -> list[Group]:
        return [group for group in self._groups.values() if group.partition == partition]

    def _create_group(self, group_id: str, now_ms: float, *, has_members: bool = False) -> Group:
        state = STABLE if has_members else EMPTY
        group = Group(group_id, self._partition_for(group_id), self.config, self._answer, self._store, now_ms, state)
        group.script = script_for(self._wishes.get(group_id))
        self._groups[group_id] = group
        self._schedule_expiry(self._partitions.led(group.partition), now_ms)
        return group

    def _drop(self, group: Group, cause: str, now_ms: float) -> None:
        del self._groups[group.group_id]
        group.step.cause = cause
        group.transition_to(DEAD, now_ms)
        self._note(group, now_ms)
        group.deadline_ms = group.wakeup_ms = inf

    def _answer(self, token: object, result: JoinResult | SyncResult) -> None:
        if token is not None:
            self.answers.append((token, result))

    # The log

    def _store(self, group: Group) -> ErrorCode:
        return self._append(group.partition, (log.group_record(group),))

    def _append_all(self, partition: int, records: Sequence[Record]) -> ErrorCode:
        return self._append(partition, tuple(records)) if records else _NONE

    def _apply(self, records: Iterable[OffsetRecord]) -> None:
        for record in records:
            self._groups[record.group_id].offsets.apply(record.topic, record.partition, record.value)

    # Refusals

    def _refuse(self, group_id: str) -> ErrorCode:
        return self.error_for(group_id) if group_id else ErrorCode.INVALID_GROUP_ID

    def _error_without_group(self, group_id: str) -> ErrorCode:
        return self._refuse(group_id) or ErrorCode.UNKNOWN_MEMBER_ID

    def apply(self, group: Group, procedure: Callable[[Group, float], object], now_ms: float) -> None:
        """Lets a procedure change a group without a request for it."""
        procedure(group, now_ms)
        group.deadline_ms = group.earliest_deadline()
        self._settle(group, now_ms)

    # Time

    def tick(self, now_ms: float) -> None:
        """Lets all timers run out that are due, in order of their deadlines across all groups and partitions.

        Between those with the same deadline, the one whose wake-up was noted first comes first; inside a group see
        `fire_earliest_timer`.
        """
        for due, wakeup_ms in self._wakeups.due(now_ms):
            if isinstance(due, LedPartition):
                self._expire(due, now_ms)
                continue
            if due.earliest_deadline() == wakeup_ms:
                fire_earliest_timer(due, now_ms)
            due.deadline_ms = due.earliest_deadline()
            self._settle(due, now_ms)

    def next_deadline(self) -> float | None:
        """When to tick next, or `None` without timers. May be early, as sessions are extended silently; never late."""
        return self._wakeups.next_ms()

    def _settle(self, group: Group, now_ms: float) -> None:
        """Ends what a request or a timer does to a group."""
        self._note(group, now_ms)
        self._schedule(group)

    def _schedule(self, group: Group) -> None:
        """Notes when to look at the group's timers, unless that is noted already or an earlier time is."""
        self._wakeups.note(group, group.deadline_ms)

    def _expire(self, partition: LedPartition, now_ms: float) -> None:
        """Deletes what has expired, in one batch; if that cannot be stored, the next look will find it again."""
        records = [record for group in self._groups_of(partition.index) for record in expired_records(group, now_ms)]
        if not self._append_all(partition.index, records):
            self._apply(record for record in records if isinstance(record, OffsetRecord))
            for record in records:
                if isinstance(record, GroupRecord):
                    self._drop(self._groups[record.group_id], "its offsets expired", now_ms)
        if self._groups_of(partition.index):
            self._schedule_expiry(partition, now_ms)

    def _schedule_expiry(self, partition: LedPartition, now_ms: float) -> None:
        """Notes when to look for expired offsets, unless that is noted already."""
        if partition.wakeup_ms == inf:
            interval_ms = self.config.offsets_retention_check_interval_ms
            self._wakeups.note(partition, partition.next_look_ms(interval_ms, now_ms))
