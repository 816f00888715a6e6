"""The groups of the offsets partitions that one broker leads: made, loaded, stored, dropped, and looked at in time.

What requests do to them is `coordinator`'s. Input in, effects out: no wire formats, sockets, clocks or random numbers.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from math import inf

from fakebroker.coordinator.group import records as log
from fakebroker.coordinator.group.api import Answer, BatchResult, CoordinatorConfig, JoinResult, SyncResult
from fakebroker.coordinator.group.batch_join.batch import Seat
from fakebroker.coordinator.group.classic.group import DEAD, EMPTY, STABLE, Group
from fakebroker.coordinator.group.classic.member import Member
from fakebroker.coordinator.group.classic.rebalance import refuse_all, start_rebalance
from fakebroker.coordinator.group.classic.timers import fire_earliest_timer
from fakebroker.coordinator.group.expiry import expired_records
from fakebroker.coordinator.group.history import Note, forget
from fakebroker.coordinator.group.holds import NO_WISHES, Wishes, script_for
from fakebroker.coordinator.group.records import Append, GroupRecord, GroupValue, OffsetRecord, Record
from fakebroker.coordinator.runtime.partitions import LedPartition, Partitions
from fakebroker.coordinator.runtime.placement import partition_for
from fakebroker.coordinator.runtime.timer_queue import Wakeups
from fakebroker.errors import ErrorCode


class Groups:
    """All groups of the offsets partitions one broker leads; what a `Coordinator` stands on."""

    def __init__(
        self,
        config: CoordinatorConfig,
        new_uuid: Callable[[], str],
        append: Append = lambda partition, records: ErrorCode.NONE,
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

    def leads(self, partition: int) -> bool:
        """Whether the groups of an offsets partition are served here."""
        return not self._partitions.error(partition)

    def led_partitions(self) -> Collection[LedPartition]:
        """The offsets partitions whose groups are served here."""
        return self._partitions.all_led()

    # Groups

    def _groups_of(self, partition: int) -> list[Group]:
        return [group for group in self._groups.values() if group.partition == partition]

    def _create_group(self, group_id: str, now_ms: float, *, has_members: bool = False) -> Group:
        state = STABLE if has_members else EMPTY
        partition, stores = self._partition_for(group_id), (self._store, self._store_expected)
        group = Group(group_id, partition, self.config, self._answer, *stores, now_ms, state)
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

    def _answer(self, token: object, result: JoinResult | SyncResult | BatchResult) -> None:
        if isinstance(token, Seat) and isinstance(result, JoinResult):
            batch = token.batch
            batch.results[token.index] = result
            if batch.is_complete:
                self._answer(batch.token, batch.result())
        elif token is not None:
            self.answers.append((token, result))

    # The log

    def _store(self, group: Group) -> ErrorCode:
        return self._store_value(group, log.group_value(group))

    def _store_expected(self, group: Group) -> ErrorCode:
        return self._store_value(group, group.stored or log.new_group_value(group))

    def _store_value(self, group: Group, value: GroupValue) -> ErrorCode:
        error = self._append(group.partition, (log.group_record(group, value),))
        if not error:
            group.stored = value
        return error

    def _append_all(self, partition: int, records: Sequence[Record]) -> ErrorCode:
        return self._append(partition, tuple(records)) if records else ErrorCode.NONE

    def _apply(self, records: Iterable[OffsetRecord]) -> None:
        for record in records:
            self._groups[record.group_id].offsets.apply(record.topic, record.partition, record.value)

    # Changes without a request

    def apply(self, group: Group, procedure: Callable[[Group, float], object], now_ms: float) -> None:
        """Lets a procedure change a group without a request for it."""
        procedure(group, now_ms)
        group.deadline_ms = group.earliest_deadline()
        self._settle(group, now_ms)

    # Time

    def tick(self, now_ms: float) -> None:
        """Lets all timers run out that are due, in order of their deadlines across all groups and partitions.

        Of those with the same deadline, the one that has had timers for longest comes first; inside a group see
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

    def resume_session(self, group: Group, member: Member, deadline_ms: float) -> None:
        """Lets a session end again that somebody has kept, and says when."""
        member.keeper, member.deadline_ms = None, deadline_ms
        group.deadline_ms = min(group.deadline_ms, deadline_ms)
        self._schedule(group)

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
