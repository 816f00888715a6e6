"""The group coordinator of one broker: the requests and timers of all groups in the offsets partitions that it leads.

`Coordinator` finds the group of a request, rejects requests for groups of other coordinators, and runs the procedures
in `classic`. Does not depend on wire formats, API versions, sockets, clocks or random numbers.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from math import inf
from typing import TypeVar

from fakebroker.coordinator.group import offset_requests
from fakebroker.coordinator.group.api import (
    Answer,
    ItemResults,
    JoinGroup,
    JoinResult,
    OffsetToCommit,
    SyncGroup,
    SyncResult,
)
from fakebroker.coordinator.group.classic import join
from fakebroker.coordinator.group.classic.extension import NO_EXTENSION
from fakebroker.coordinator.group.classic.group import Group, GroupContext
from fakebroker.coordinator.group.classic.leave import leave
from fakebroker.coordinator.group.classic.member import Member
from fakebroker.coordinator.group.classic.rebalance import (
    complete_join_phase,
    expire_next_timer,
    reject_waiting,
    start_rebalance,
)
from fakebroker.coordinator.group.classic.states import CONSUMER_PROTOCOL_TYPE, DEAD, EMPTY, PREPARING_REBALANCE, STABLE
from fakebroker.coordinator.group.classic.sync import sync
from fakebroker.coordinator.group.config import CoordinatorConfig
from fakebroker.coordinator.group.group_controls import NO_CONTROLS, GroupControls
from fakebroker.coordinator.group.history import ChangedGroup, discard_change
from fakebroker.coordinator.group.modern import requests
from fakebroker.coordinator.group.modern.errors import HeartbeatError
from fakebroker.coordinator.group.modern.group import ConsumerGroup
from fakebroker.coordinator.group.modern.groups import ConsumerGroups
from fakebroker.coordinator.group.modern.heartbeat import tombstones as consumer_group_tombstones
from fakebroker.coordinator.group.modern.member import ConsumerGroupMember
from fakebroker.coordinator.group.modern.migration import conversion
from fakebroker.coordinator.group.modern.records import GroupEpochRecord
from fakebroker.coordinator.group.modern.requests import ConsumerGroupHeartbeat, HeartbeatResult
from fakebroker.coordinator.group.offsets import CommittedOffset, OffsetStore
from fakebroker.coordinator.group.pending_offsets import PendingOffset, PendingOffsets
from fakebroker.coordinator.group.persistence import LoadedGroups, replay, restore, store, store_new, tombstones
from fakebroker.coordinator.group.records import (
    GroupRecord,
    GroupValue,
    OffsetRecord,
    PendingOffsetRecord,
    Procedure,
    Record,
    TransactionEnd,
)
from fakebroker.coordinator.runtime.partitions import LedPartition
from fakebroker.coordinator.runtime.runtime import Append, CoordinatorRuntime
from fakebroker.errors import ErrorCode
from fakebroker.topic_partition import TopicPartition

T = TypeVar("T")

# Globals are faster than attributes of enumerations, which matters in `heartbeat`.
_NONE = ErrorCode.NONE
_REBALANCE_IN_PROGRESS = ErrorCode.REBALANCE_IN_PROGRESS


def append_nowhere(partition: int, records: tuple[Record, ...], done: Callable[[ErrorCode], None]) -> None:
    """Drop the records, for a coordinator whose groups need not survive a failover."""
    done(_NONE)


class Coordinator:
    """All groups of the offsets partitions that one broker leads. It starts without any partition.

    Results are returned in three ways. The results of joins and syncs are added to the list `answers`, which the caller
    empties. This includes results that are known at once, so that all answers are in one order. Other methods that may
    append records call `done` with the result: before they return, or later if an append is pending. Heartbeats and
    offset fetches never wait; their methods return the result.

    While an append is pending, other requests and timers that may change groups of the same offsets partition wait, and
    run in order when it completes. A waiting request is handled with the `now_ms` of its call.

    `now_ms` is the only source of the time. Timers expire only in `tick`; a caller that wants timers to expire before
    a request calls `tick` first. A timer that expires late takes effect at the `now_ms` of that `tick`, as on a busy
    broker. All methods are called in one thread.

    Args:
        config: The settings. Can be replaced later (`configure`): the new settings apply to new groups and to checks of
            requests (session timeouts, sizes of metadata), while existing groups keep theirs.
        new_uuid: Returns the last part of a new member id; unique.
        append: Appends a batch to the log of an offsets partition.
        controls: The manual settings of rebalances, by group id.
        on_change: Called with a group and `now_ms` after each request or timer that may have changed the group. It has
            to call `forget_change` of the group.

    Attributes:
        consumer_groups: The groups of the consumer rebalance protocol (KIP-848); all other groups are classic. A group
            id belongs to one group of either kind.
        answers: Answers that the caller has not taken yet, as pairs of token and result. Requests whose token is None
            are not answered.
    """

    def __init__(
        self,
        config: CoordinatorConfig,
        new_uuid: Callable[[], str],
        append: Append[Record] = append_nowhere,
        controls: Mapping[str, GroupControls] = NO_CONTROLS,
        on_change: Callable[[ChangedGroup, float], None] = discard_change,
    ) -> None:
        self.consumer_groups = ConsumerGroups(config.consumer, new_uuid, self._downgrade, controls)
        self.config = config
        self.new_uuid = new_uuid
        self.answers: list[Answer] = []
        self._context = GroupContext(config, self.answer)
        self._controls = controls
        self._on_change = on_change
        self._groups: dict[str, Group] = {}
        # By offsets partition; only those with pending offsets.
        self._pending: dict[int, PendingOffsets] = {}
        self._runtime: CoordinatorRuntime[Record, Group | ConsumerGroup] = CoordinatorRuntime(
            config.offsets_topic_num_partitions, append, self._expire
        )

    def configure(self, config: CoordinatorConfig) -> None:
        """Replace the settings."""
        self.config = config
        self._context = GroupContext(config, self.answer)
        self.consumer_groups.config = config.consumer

    # Partitions

    def set_partition_count(self, partition_count: int) -> None:
        """Change the number of offsets partitions. The coordinator must not lead or load any."""
        self._runtime.partition_count = partition_count

    def lead(self, partition: int, now_ms: float) -> None:
        """Lead an offsets partition without groups."""
        self._runtime.lead(partition, now_ms)

    def start_loading(self, partition: int) -> None:
        """Mark an offsets partition as being loaded: its requests get COORDINATOR_LOAD_IN_PROGRESS.

        Raises:
            RuntimeError: The partition is led.
        """
        self._runtime.start_loading(partition)

    def finish_loading(self, partition: int, records: Iterable[Record], now_ms: float) -> None:
        """Lead a partition that was being loaded, with the groups in its log. All sessions start over.

        A group with more members than `group.max.size` rebalances at once.

        Args:
            records: The log, oldest record first. If iterating over it raises an error, the coordinator is unchanged.

        Raises:
            RuntimeError: The partition is not being loaded.
        """
        loaded = replay(records, partition)
        self._runtime.finish_loading(partition, now_ms)
        if loaded.pending:
            self._pending[partition] = loaded.pending
        self.add_groups(loaded.groups, now_ms)
        self.add_consumer_groups(loaded.consumer_groups.values(), now_ms)

    def add_groups(self, groups: LoadedGroups, now_ms: float) -> None:
        """Add groups that were read from the log of a partition that is led here."""
        for group_id, (value, offsets) in groups.items():
            self.submit(group_id, partial(self._add_group, group_id, value, offsets, now_ms))

    def add_consumer_groups(self, groups: Iterable[ConsumerGroup], now_ms: float) -> None:
        """Add consumer groups that were read from the log of a partition that is led here."""
        for group in groups:
            self._runtime.submit_to(group.partition, partial(self._add_consumer_group, group, now_ms))

    def _add_group(self, group_id: str, value: GroupValue, offsets: OffsetStore, now_ms: float) -> None:
        group = self.create_group(group_id, now_ms, has_members=bool(value.members))
        restore(group, value, offsets, now_ms)
        self.run(group, _rebalance_if_too_large(group, now_ms), now_ms)

    def fail_loading(self, partition: int) -> None:
        """Stop loading a partition: its requests get NOT_COORDINATOR until it is loaded again or led.

        Raises:
            RuntimeError: The partition is not being loaded.
        """
        self._runtime.fail_loading(partition)

    def resign(self, partition: int, now_ms: float) -> None:
        """Stop leading or loading a partition: drop its groups, and answer waiting requests with NOT_COORDINATOR."""
        self._runtime.resign(partition, partial(self._unload, partition, now_ms))

    def _unload(self, partition: int, now_ms: float) -> None:
        for group in self._groups_of(partition):
            self.drop_group(group, "its coordinator resigned", now_ms)
            reject_waiting(group, ErrorCode.NOT_COORDINATOR)
        for consumer_group in self.consumer_groups.of_partition(partition):
            self.drop_consumer_group(consumer_group, "its coordinator resigned", now_ms)

    def error_for(self, group_id: str) -> ErrorCode:
        """Return NONE if the partition of a group is led here, else NOT_COORDINATOR or COORDINATOR_LOAD_IN_PROGRESS."""
        return self._runtime.error_for(group_id)

    @property
    def is_loading(self) -> bool:
        """Whether an offsets partition is being loaded, so that not all groups are known."""
        return self._runtime.is_loading

    def leads(self, partition: int) -> bool:
        """Whether an offsets partition is led here."""
        return self._runtime.led_partition(partition) is not None

    def led_partition(self, partition: int) -> LedPartition | None:
        """Return an offsets partition, or None if it is not led here."""
        return self._runtime.led_partition(partition)

    def led_partitions(self) -> Collection[LedPartition]:
        """Return the offsets partitions that are led here."""
        return self._runtime.led_partitions()

    def led_indexes(self) -> Collection[int]:
        """Return the indexes of the offsets partitions that are led here."""
        return [led.partition for led in self._runtime.led_partitions()]

    # Groups

    def group(self, group_id: str) -> Group | None:
        """Return a classic group, or None if it does not exist here."""
        return self._groups.get(group_id)

    def has_group(self, group_id: str) -> bool:
        """Whether a group of either kind exists here."""
        return group_id in self._groups or group_id in self.consumer_groups

    def any_group(self, group_id: str) -> Group | ConsumerGroup | None:
        """Return a group of either kind, or None if it does not exist here."""
        return self._groups.get(group_id) or self.consumer_groups.get(group_id)

    def all_groups(self) -> Iterator[Group | ConsumerGroup]:
        """Iterate over all groups: classic groups, then consumer groups."""
        return chain(self._groups.values(), self.consumer_groups)

    def groups(self) -> Collection[Group]:
        """Return all classic groups, in the order of their creation."""
        return self._groups.values()

    def _groups_of(self, partition: int) -> list[Group]:
        return [group for group in self._groups.values() if group.partition == partition]

    def _offset_store(self, group_id: str) -> OffsetStore | None:
        """Return the offsets of a group of either kind."""
        group = self.any_group(group_id)
        return None if group is None else group.offsets

    def create_group(self, group_id: str, now_ms: float, *, has_members: bool = False) -> Group:
        """Add a group without contents, in state Stable if it will have members, else Empty.

        The caller sets the contents and then calls `Group.record_creation`.
        """
        group = self._new_group(group_id, now_ms, has_members=has_members)
        self._groups[group_id] = group
        led = self._runtime.led_partition(group.partition)
        assert led is not None, f"group {group_id!r}: its partition is not led"
        self._schedule_offset_expiry(led, now_ms)
        return group

    def _new_group(self, group_id: str, now_ms: float, *, has_members: bool) -> Group:
        partition = self._runtime.partition_for(group_id)
        group = Group(group_id, partition, self._context, now_ms, STABLE if has_members else EMPTY)
        if (extension := self.config.extension(group)) is not NO_EXTENSION:
            group.extension = extension
        if (controls := self._controls.get(group_id)) is not None:
            group.controls = controls
        return group

    def drop_group(self, group: Group, cause: str, now_ms: float) -> None:
        """Remove a group with its pending offsets; its state becomes Dead."""
        self._drop_pending(group)
        del self._groups[group.group_id]
        group.change.cause = cause
        group.transition_to(DEAD, now_ms)
        self._on_change(group, now_ms)
        group.deadline_ms = group.scheduled_ms = inf

    def _drop_pending(self, group: Group | ConsumerGroup) -> None:
        if (pending := self._pending.get(group.partition)) is not None:
            pending.drop_group(group.group_id)
            self._forget_pending(group.partition)

    def _forget_classic_group(self, group: Group, now_ms: float) -> None:
        """Remove a classic group without a trace in the history: a consumer group continues it."""
        del self._groups[group.group_id]
        group.transition_to(DEAD, now_ms)
        group.forget_change()
        group.deadline_ms = group.scheduled_ms = inf

    def _forget_consumer_group(self, group: ConsumerGroup, now_ms: float) -> None:
        """Remove a consumer group without a trace in the history: a classic group continues it."""
        self._on_change(group, now_ms)
        self.consumer_groups.drop(group)
        group.leave_history()

    def answer(self, token: object, result: object) -> None:
        """Add the answer to a JoinGroup or SyncGroup to `answers`."""
        if token is not None:
            self.answers.append((token, result))

    # Changes

    def submit(self, group_id: str, operation: Callable[[], None]) -> None:
        """Run an operation on a group: now, or after the operations on its partition that wait for an append."""
        self._runtime.submit(group_id, operation)

    def run(
        self, group: Group, procedure: Procedure[T], now_ms: float, done: Callable[[T], None] | None = None
    ) -> None:
        """Run a procedure that changes a group; `done` is called with its result, at once or later."""
        if not self._runtime.run(group.partition, procedure, partial(self._complete, group, now_ms, done)):
            group.deadline_ms = group.earliest_deadline()
            self._schedule(group)

    def _complete(self, group: Group, now_ms: float, done: Callable[[T], None] | None, result: T) -> None:
        self._on_change(group, now_ms)
        self._schedule(group)
        if done is not None:
            done(result)

    def apply(self, group: Group, procedure: Callable[[Group, float], Procedure[object]], now_ms: float) -> None:
        """Run a procedure that was not caused by a request. The procedure is skipped if the group is Dead by then."""

        def operation() -> None:
            if group.state is not DEAD:
                self.run(group, _then_update_deadline(group, procedure(group, now_ms)), now_ms)

        self._runtime.submit_to(group.partition, operation)

    # Membership

    def join_group(self, group_id: str, request: JoinGroup, token: object, now_ms: float) -> None:
        """Handle a JoinGroup; the answer comes through `answers`, at once or later."""
        if self._runtime.is_busy:
            self.submit(group_id, partial(self._join_group, group_id, request, token, now_ms))
        else:
            self._join_group(group_id, request, token, now_ms)

    def _join_group(self, group_id: str, request: JoinGroup, token: object, now_ms: float) -> None:
        group = self._groups.get(group_id)
        former = self.consumer_groups.get(group_id) if group is None else None
        error = self.error_for(group_id) if group is None else _NONE
        exists = group is not None or (former is not None and bool(former.members))
        if rejection := join.reject_request(group_id, request, self.config, error, exists=exists):
            self.answer(token, rejection)
        elif former is not None and former.members:
            procedure = self.consumer_groups.join(former, request, now_ms)
            self._run_consumer_group(former, procedure, now_ms, partial(self.answer, token))
        elif group is not None:
            extended = group.extension.join(request, token, now_ms, self.new_uuid)
            self.run(group, extended or join.join(group, request, token, now_ms, self.new_uuid), now_ms)
        else:
            group = self.create_group(group_id, now_ms)
            if former is None:
                group.record_creation("first JoinGroup", now_ms)
            else:
                group.record_conversion("first JoinGroup", former.state, (), now_ms)
            first_join = self.run_first_join(group, join.join(group, request, token, now_ms, self.new_uuid), now_ms)
            if former is not None:
                first_join = self._replace(former, group, first_join, token, now_ms)
            self.run(group, first_join, now_ms)

    def _replace(
        self, former: ConsumerGroup, group: Group, first_join: Procedure[None], token: object, now_ms: float
    ) -> Procedure[None]:
        """Replace a consumer group without members by a new classic group; its offsets stay."""
        if error := (yield tuple(consumer_group_tombstones(former))):
            self.answer(token, JoinResult(error))
            self._forget_classic_group(group, now_ms)
            return
        self._forget_consumer_group(former, now_ms)
        group.offsets = former.offsets
        yield from first_join

    def run_first_join(self, group: Group, procedure: Procedure[None], now_ms: float) -> Procedure[None]:
        """Run the first join of a group, then store the new group, even if the join was rejected.

        If the procedure answers the join, the answer does not wait for the append, as in Kafka. If the append fails,
        parked joins get its error and the group is dropped. Without an initial delay, the join phase ends after the
        append.
        """
        group.is_being_stored = not self.config.is_before_kip_848
        yield from procedure
        group.is_being_stored = False
        if self.config.is_before_kip_848:
            return
        if group.stored_generation_id >= 0:  # By the extension.
            error = _NONE
        elif error := (yield from store_new(group)):
            for member_id in list(group.parked_joins):
                group.answer_join(member_id, JoinResult(error))
            self.drop_group(group, f"it could not be stored: {error.name}", now_ms)
            return
        if group.join_deadline_ms <= now_ms:
            yield from complete_join_phase(group, now_ms)

    def sync_group(self, group_id: str, request: SyncGroup, token: object, now_ms: float) -> None:
        """Handle a SyncGroup; the answer comes through `answers`, at once or later."""
        if self._runtime.is_busy:
            self.submit(group_id, partial(self._sync_group, group_id, request, token, now_ms))
        else:
            self._sync_group(group_id, request, token, now_ms)

    def _sync_group(self, group_id: str, request: SyncGroup, token: object, now_ms: float) -> None:
        group = self._groups.get(group_id) if group_id else None
        if group is None and (consumer_group := self.consumer_groups.get(group_id)) is not None:
            result = self.consumer_groups.sync(consumer_group, request, now_ms)
            self._schedule(consumer_group)
            self.answer(token, result)
        elif group is None:
            error = self._error_without_group(group_id)
            if self.config.is_before_kip_848 and error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                # Older clients do not expect COORDINATOR_LOAD_IN_PROGRESS here. This error makes them rejoin.
                error = _REBALANCE_IN_PROGRESS
            self.answer(token, SyncResult(error))
        else:
            self.run(group, sync(group, request, token, now_ms), now_ms)

    def heartbeat(
        self, group_id: str, generation_id: int, member_id: str, instance_id: str | None, now_ms: float
    ) -> ErrorCode:
        """Extend a member's session and return NONE or REBALANCE_IN_PROGRESS, or the error of a faulty request.

        This is the most frequent request, so the common path is short. `Group.heartbeat_fault` finds the error.
        """
        group = self._groups.get(group_id)
        if group is None:
            return self._heartbeat_without_classic_group(group_id, generation_id, member_id, instance_id, now_ms)
        members = group.members
        if members.__class__ is Member:  # The usual case; a call of its `get` would take longer.
            member = members if members.member_id == member_id else None
        else:
            member = members.get(member_id)
        if (
            member is None
            or generation_id != group.generation_id
            or (instance_id is not None and instance_id != member.instance_id)
        ):
            return group.heartbeat_fault(member_id, instance_id)
        deadline_ms = member.deadline_ms = now_ms + member.session_timeout_ms
        if deadline_ms < group.scheduled_ms:  # A join has shortened the session timeout.
            group.deadline_ms = deadline_ms
            self._schedule(group)
        return _REBALANCE_IN_PROGRESS if group.state is PREPARING_REBALANCE else _NONE

    def _heartbeat_without_classic_group(
        self, group_id: str, generation_id: int, member_id: str, instance_id: str | None, now_ms: float
    ) -> ErrorCode:
        if (group := self.consumer_groups.get(group_id)) is not None:
            error = self.consumer_groups.beat(group, generation_id, member_id, instance_id, now_ms)
            self._schedule(group)
            return error
        error = self._error_without_group(group_id)
        return _NONE if error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS else error

    def leave_group(
        self,
        group_id: str,
        members: Sequence[tuple[str, str | None]],
        now_ms: float,
        done: Callable[[ItemResults], None],
    ) -> None:
        """Remove members from a group.

        Args:
            group_id: The group.
            members: Pairs of member id, or "", and instance id.
            now_ms: The time.
            done: Called with the result, see `ItemResults`.
        """
        self.submit(group_id, partial(self._leave_group, group_id, members, now_ms, done))

    def _leave_group(
        self,
        group_id: str,
        members: Sequence[tuple[str, str | None]],
        now_ms: float,
        done: Callable[[ItemResults], None],
    ) -> None:
        group = self._groups.get(group_id)
        if error := self._group_error(group_id):
            done((error, []))
        elif (consumer_group := self.consumer_groups.get(group_id)) is not None:
            procedure = self.consumer_groups.leave(consumer_group, members, now_ms)
            self._run_consumer_group(consumer_group, procedure, now_ms, done)
        elif group is None:
            done((_NONE, [ErrorCode.UNKNOWN_MEMBER_ID] * len(members)))
        else:
            self.run(group, leave(group, members, now_ms), now_ms, done)

    # Consumer groups (KIP-848)

    def consumer_group_heartbeat(
        self, request: ConsumerGroupHeartbeat, now_ms: float, done: Callable[[HeartbeatResult], None]
    ) -> None:
        """Handle a ConsumerGroupHeartbeat; `done` is called with the result."""
        try:
            requests.check(request, self.config.consumer.assignors)
        except HeartbeatError as error:
            done(HeartbeatResult(error.error, error.message))
            return
        self.submit(request.group_id, partial(self._consumer_group_heartbeat, request, now_ms, done))

    def extend_consumer_session(
        self,
        group_id: str,
        member_id: str,
        member_epoch: int,
        instance_id: str | None,
        client: tuple[str, str],
        now_ms: float,
    ) -> int | None:
        """Handle a ConsumerGroupHeartbeat that reports nothing new, if it changes nothing but the session.

        See `ConsumerGroups.extend_session`. If an append is pending, other requests may have to be handled before.
        """
        if self._runtime.is_busy:
            return None
        return self.consumer_groups.extend_session(group_id, member_id, member_epoch, instance_id, client, now_ms)

    def _consumer_group_heartbeat(
        self, request: ConsumerGroupHeartbeat, now_ms: float, done: Callable[[HeartbeatResult], None]
    ) -> None:
        group_id = request.group_id
        if error := self.error_for(group_id):
            done(HeartbeatResult(error))
            return
        group, classic = self.consumer_groups.get(group_id), self._groups.get(group_id)
        first: tuple[Record, ...] = ()
        if group is None:
            try:
                group, first = self._new_consumer_group(request, classic, now_ms)
            except HeartbeatError as fault:
                done(HeartbeatResult(fault.error, fault.message))
                return

        def handle() -> Procedure[HeartbeatResult]:
            result = yield from self.consumer_groups.heartbeat(group, request, now_ms, first)
            if first and not result.error and classic is not None:
                self._forget_classic_group(classic, now_ms)
            return result

        def complete(result: HeartbeatResult) -> None:
            if (led := self._runtime.led_partition(group.partition)) is not None:
                self._schedule_offset_expiry(led, now_ms)
            done(result)
            if regexes := result.regexes_to_resolve:
                resolution = self.consumer_groups.resolve(group, regexes, request.may_describe, now_ms)
                run = partial(self._run_consumer_group, group, resolution, now_ms, lambda result: None)
                self._runtime.submit_to(group.partition, run)

        self._run_consumer_group(group, handle(), now_ms, complete)

    def _new_consumer_group(
        self, request: ConsumerGroupHeartbeat, classic: Group | None, now_ms: float
    ) -> tuple[ConsumerGroup, tuple[Record, ...]]:
        """Return a consumer group that a heartbeat creates, and records to append before those of the heartbeat.

        Args:
            request: The request.
            classic: The classic group that the new one replaces. If it has members, it is upgraded.
            now_ms: The time.

        Raises:
            HeartbeatError: The heartbeat does not create the group.
        """
        group_id, partition = request.group_id, self._runtime.partition_for(request.group_id)
        if not request.is_joining:
            raise HeartbeatError(ErrorCode.GROUP_ID_NOT_FOUND, _not_found(request, exists=classic is not None))
        group = ConsumerGroup(group_id, partition)
        if classic is None:
            return group, ()
        if classic.state is EMPTY and not classic.extension.waiting_joins:
            group.offsets = classic.offsets
            group.continue_history(classic.state.value, classic.state_since_ms, ())
            return group, (GroupRecord(group_id, None),)
        conversion.check_upgrade(classic, self.config.consumer)
        # Also if the upgrade fails, as in Kafka: the members join again, or their sessions expire.
        reject_waiting(classic, _REBALANCE_IN_PROGRESS)
        for member in classic.members.values():
            if member.deadline_ms == inf:
                classic.arm_session(member, member.session_timeout_ms, now_ms)
        self._schedule(classic)
        group, records = conversion.upgrade(classic, partition, self.config.consumer.topics)
        return group, (GroupRecord(group_id, None), *records)

    def _downgrade(
        self,
        former: ConsumerGroup,
        members: Sequence[ConsumerGroupMember],
        records: Sequence[Record],
        now_ms: float,
        *,
        renamed: Mapping[str, str],
        rebalances: bool,
        cause: str,
    ) -> Procedure[ErrorCode]:
        """Replace a consumer group by a classic group; see `Downgrade`."""
        group = self._new_group(former.group_id, now_ms, has_members=True)
        try:
            conversion.downgrade(group, former, members, self.config.consumer.topics, renamed)
        except HeartbeatError as fault:
            return fault.error
        if error := (yield from store(group, records)):
            return error
        before = former.state, former.members.snapshot()
        self._forget_consumer_group(former, now_ms)
        self._groups[group.group_id] = group
        for member in group.members.values():
            group.arm_session(member, member.session_timeout_ms, now_ms)
        group.record_conversion(f"{cause}: the consumer group becomes a classic group", *before, now_ms)
        if rebalances:
            yield from start_rebalance(group, now_ms)
        self._on_change(group, now_ms)
        self._schedule(group)
        return _NONE

    def _run_consumer_group(
        self, group: ConsumerGroup, procedure: Procedure[T], now_ms: float, done: Callable[[T], None]
    ) -> None:
        def complete(result: T) -> None:
            self._on_change(group, now_ms)
            self._schedule(group)
            done(result)

        self._runtime.run(group.partition, procedure, complete)

    def apply_to_consumer_group(
        self, group: ConsumerGroup, procedure: Callable[[], Procedure[None]], now_ms: float
    ) -> None:
        """Run a procedure that was not caused by a request. It is skipped if the group is gone by then."""

        def operation() -> None:
            if self.consumer_groups.get(group.group_id) is group:
                self._run_consumer_group(group, procedure(), now_ms, lambda result: None)

        self._runtime.submit_to(group.partition, operation)

    def _add_consumer_group(self, group: ConsumerGroup, now_ms: float) -> None:
        self.consumer_groups.add(group, now_ms)
        self._on_change(group, now_ms)
        self._schedule(group)
        led = self._runtime.led_partition(group.partition)
        assert led is not None, f"group {group.group_id!r}: its partition is not led"
        self._schedule_offset_expiry(led, now_ms)

    def drop_consumer_group(self, group: ConsumerGroup, cause: str, now_ms: float) -> None:
        """Remove a consumer group with its pending offsets."""
        self._drop_pending(group)
        self.consumer_groups.drop(group)
        group.record_end(cause, now_ms)
        self._on_change(group, now_ms)

    # Offsets. OffsetCommit and OffsetFetch accept the group id "".

    def commit_offsets(
        self,
        group_id: str,
        generation_id: int,
        member_id: str,
        instance_id: str | None,
        offsets: Sequence[OffsetToCommit],
        now_ms: float,
        done: Callable[[list[ErrorCode]], None],
    ) -> None:
        """Commit offsets, except those whose metadata is too long.

        Args:
            group_id: The group.
            generation_id: The generation of the member; negative if a client that is not a member commits.
            member_id: The member, or "".
            instance_id: The instance id of a static member.
            offsets: The offsets, by partition.
            now_ms: The time.
            done: Called with one error code for each offset, in order. An error of the whole request is repeated for
                each. If the group does not exist and a generation is given, the error is GROUP_ID_NOT_FOUND, or
                ILLEGAL_GENERATION before KIP-848.
        """
        if self._runtime.is_busy:
            arguments = group_id, generation_id, member_id, instance_id, offsets, now_ms, done
            self.submit(group_id, partial(self._commit_offsets, *arguments))
        else:
            self._commit_offsets(group_id, generation_id, member_id, instance_id, offsets, now_ms, done)

    def _commit_offsets(
        self,
        group_id: str,
        generation_id: int,
        member_id: str,
        instance_id: str | None,
        offsets: Sequence[OffsetToCommit],
        now_ms: float,
        done: Callable[[list[ErrorCode]], None],
    ) -> None:
        group = self._groups.get(group_id)
        consumer_group = self.consumer_groups.get(group_id) if group is None else None
        if group is not None:
            error = group.check_commit(generation_id, member_id, instance_id)
        elif consumer_group is not None:
            error = consumer_group.check_commit(generation_id, member_id)
        else:
            not_found = ErrorCode.ILLEGAL_GENERATION if self.config.is_before_kip_848 else ErrorCode.GROUP_ID_NOT_FOUND
            error = self.error_for(group_id) or (_NONE if generation_id < 0 else not_found)
        if error:
            done([error] * len(offsets))
            return
        if group is not None and (member := group.members.get(member_id)):
            group.arm_session(member, member.session_timeout_ms, now_ms)
            self._schedule(group)
        if group is None and consumer_group is None and self.config.is_before_kip_848:
            # Before the offsets are checked and stored: the group stays even if no offset is.
            group = self._create_simple_group(group_id, "first OffsetCommit", now_ms)
        errors, records = offset_requests.commit(group_id, offsets, self.config, now_ms)

        def complete(error: ErrorCode) -> None:
            if error:
                done([error] * len(offsets))
                return
            if records and self._offset_store(group_id) is None:
                self._create_simple_group(group_id, "first OffsetCommit", now_ms)
            self._apply_records(records)
            done(errors)

        if records:
            partition = self._runtime.partition_for(group_id) if group is None else group.partition
            self._runtime.append(partition, records, complete)
        else:
            complete(_NONE)

    def _create_simple_group(self, group_id: str, cause: str, now_ms: float) -> Group:
        """Create a group for the offsets of a client that is not a member."""
        group = self.create_group(group_id, now_ms)
        group.record_creation(cause, now_ms)
        self._on_change(group, now_ms)
        return group

    def fetch_offsets(
        self, group_id: str, partitions: Sequence[tuple[str, int]] | None, now_ms: float
    ) -> tuple[ErrorCode, list[tuple[str, int, CommittedOffset | None]]]:
        """Return the committed offsets of a group; a group that does not exist has none.

        Args:
            group_id: The group.
            partitions: Topics, which need not exist, and partitions. None for all that have a committed offset.
            now_ms: The time.

        Returns:
            NONE and (topic, partition, offset or None), in the order of `partitions` or topic by topic; or an error of
            the whole request and an empty list.
        """
        error, offsets = self.offsets_of(group_id)
        return (error, []) if error else (_NONE, offset_requests.fetch(offsets, partitions))

    def offsets_of(self, group_id: str) -> tuple[ErrorCode, OffsetStore | None]:
        """Return NONE and the offsets of a group, None if it does not exist; or an error as `fetch_offsets` does."""
        offsets = self._offset_store(group_id)
        return (self.error_for(group_id), None) if offsets is None else (_NONE, offsets)

    def is_consumer(self, group_id: str, member_id: str) -> bool:
        """Whether a member uses the consumer protocol, so that it needs versions of requests with member epochs."""
        group = self.consumer_groups.get(group_id)
        member = None if group is None else group.members.get(member_id)
        return member is not None and member.classic is None

    def check_fetch(self, group_id: str, member_id: str | None, member_epoch: int) -> ErrorCode:
        """Return the error of an OffsetFetch with a member id and epoch, or NONE; only consumer groups check them."""
        group = self.consumer_groups.get(group_id)
        return _NONE if group is None else group.check_fetch(member_epoch, member_id)

    def delete_offsets(
        self, group_id: str, partitions: Sequence[tuple[str, int]], done: Callable[[ItemResults], None]
    ) -> None:
        """Delete committed offsets of topics that the group is not subscribed to (OffsetDelete).

        Args:
            group_id: The group.
            partitions: Topics and partitions.
            done: Called with the result, see `ItemResults`.
        """
        self.submit(group_id, partial(self._delete_offsets, group_id, partitions, done))

    def _delete_offsets(
        self, group_id: str, partitions: Sequence[tuple[str, int]], done: Callable[[ItemResults], None]
    ) -> None:
        group = self.any_group(group_id) if group_id else None
        if group is None:
            done((self._group_error(group_id) or ErrorCode.GROUP_ID_NOT_FOUND, []))
            return
        if isinstance(group, Group) and group.state is not EMPTY and group.protocol_type != CONSUMER_PROTOCOL_TYPE:
            done((ErrorCode.NON_EMPTY_GROUP, []))
            return
        errors, records = offset_requests.delete(group, partitions, self.unstable_partitions(group_id))
        self._append_offsets(group.partition, records, lambda error: done((error, [] if error else errors)))

    def delete_topic_offsets(self, topic: str) -> None:
        """Delete the committed offsets of a topic that is being deleted, in one batch for each offsets partition."""
        for partition in dict.fromkeys(group.partition for group in self.all_groups()):
            self._runtime.submit_to(partition, partial(self._delete_topic_offsets, partition, topic))

    def _delete_topic_offsets(self, partition: int, topic: str) -> None:
        groups: list[Group | ConsumerGroup] = [
            *self._groups_of(partition),
            *self.consumer_groups.of_partition(partition),
        ]
        records = tuple(
            record
            for group in groups
            for record in offset_requests.delete_topic(group, topic, self.unstable_partitions(group.group_id))
        )
        self._append_offsets(partition, records, lambda error: None)

    def _append_offsets(
        self, partition: int, records: tuple[OffsetRecord, ...], done: Callable[[ErrorCode], None]
    ) -> None:
        """Append offset records and apply them, all or none."""

        def complete(error: ErrorCode) -> None:
            error = self._error_of_tombstones(error, partition)
            if not error:
                self._apply_records(records)
            done(error)

        if records:
            self._runtime.append(partition, records, complete)
        else:
            done(_NONE)

    def _apply_records(self, records: Sequence[OffsetRecord]) -> None:
        for record in records:
            if (offsets := self._offset_store(record.group_id)) is not None:
                offsets.apply(record.topic, record.partition, record.value)
        if self._pending and records:
            partition = self._runtime.partition_for(records[0].group_id)
            if (pending := self._pending.get(partition)) is not None:
                for record in records:
                    pending.apply(record)
                self._forget_pending(partition)

    # Offsets of transactions

    def commit_pending_offsets(
        self,
        group_id: str,
        generation_id: int,
        member_id: str,
        instance_id: str | None,
        producer_id: int,
        epoch: int,
        offsets: Sequence[OffsetToCommit],
        now_ms: float,
        done: Callable[[list[ErrorCode]], None],
    ) -> None:
        """Commit offsets in a transaction: they are stored when it is committed (TxnOffsetCommit).

        Args:
            group_id: The group, which is created if it does not exist and no generation is given.
            generation_id: The generation of the member; negative if none is given.
            member_id: The member, or "".
            instance_id: The instance id of a static member.
            producer_id: The producer, to whose transaction the group's offsets partition was added.
            epoch: The producer epoch.
            offsets: The offsets, by partition.
            now_ms: The time.
            done: Called with one error code for each offset, in order. An error of the whole request is repeated.
        """
        arguments = group_id, generation_id, member_id, instance_id, producer_id, epoch, offsets, now_ms, done
        self.submit(group_id, partial(self._commit_pending_offsets, *arguments))

    def _commit_pending_offsets(
        self,
        group_id: str,
        generation_id: int,
        member_id: str,
        instance_id: str | None,
        producer_id: int,
        epoch: int,
        offsets: Sequence[OffsetToCommit],
        now_ms: float,
        done: Callable[[list[ErrorCode]], None],
    ) -> None:
        group = self._groups.get(group_id)
        error = self._group_error(group_id) if group is None or not group_id else _NONE
        consumer_group = self.consumer_groups.get(group_id) if group is None else None
        if group is None and consumer_group is None and not error and self.config.is_before_kip_848:
            group = self._create_simple_group(group_id, "first TxnOffsetCommit", now_ms)
        if group is not None:
            error = error or group.check_transactional_commit(generation_id, member_id, instance_id)
        elif consumer_group is not None:
            error = error or consumer_group.check_transactional_commit(generation_id, member_id, instance_id)
        elif generation_id >= 0:
            error = error or ErrorCode.ILLEGAL_GENERATION
        if error:
            done([error] * len(offsets))
            return
        errors, records = offset_requests.commit(group_id, offsets, self.config, now_ms)
        pending = tuple(
            PendingOffsetRecord(group_id, record.topic, record.partition, record.value, producer_id, epoch)
            for record in records
            if record.value is not None
        )
        partition = self._runtime.partition_for(group_id)

        def complete(error: ErrorCode) -> None:
            if error:
                done([error] * len(offsets))
                return
            if pending and self._offset_store(group_id) is None:
                self._create_simple_group(group_id, "first TxnOffsetCommit", now_ms)
            for record in pending:
                self._pending.setdefault(partition, PendingOffsets()).add(record)
            done(errors)

        if pending:
            self._runtime.append(partition, pending, complete)
        else:
            complete(_NONE)

    def end_transaction(self, partition: int, end: TransactionEnd, done: Callable[[ErrorCode], None]) -> None:
        """Append the end of a transaction to an offsets partition, then store its offsets or drop them.

        Args:
            partition: The offsets partition.
            end: The record.
            done: Called with NONE or the error: NOT_COORDINATOR if the partition is not led here, else that of the log.
        """
        self._runtime.submit_to(partition, partial(self._end_transaction, partition, end, done))

    def _end_transaction(self, partition: int, end: TransactionEnd, done: Callable[[ErrorCode], None]) -> None:
        def complete(error: ErrorCode) -> None:
            pending = self._pending.get(partition)
            if not error and pending is not None:
                for record in pending.end(end.producer_id, is_commit=end.is_commit):
                    if (offsets := self._offset_store(record.group_id)) is not None:
                        offsets.apply(record.topic, record.partition, record.value)
                self._forget_pending(partition)
            done(error)

        self._runtime.append(partition, (end,), complete)

    def unstable_partitions(self, group_id: str) -> Collection[TopicPartition]:
        """Return the partitions for which a group has offsets of open transactions (KIP-447)."""
        pending = self._pending.get(self._runtime.partition_for(group_id)) if self._pending else None
        return () if pending is None else pending.partitions_of(group_id)

    def pending_offsets(self, group_id: str) -> list[PendingOffset]:
        """Return the offsets of open transactions of a group."""
        pending = self._pending.get(self._runtime.partition_for(group_id))
        return [] if pending is None else list(pending.of_group(group_id))

    @property
    def has_pending_offsets(self) -> bool:
        """Whether any group has offsets of open transactions."""
        return bool(self._pending)

    def _forget_pending(self, partition: int) -> None:
        if not self._pending[partition]:
            del self._pending[partition]

    # Deleting groups

    def delete_group(self, group_id: str, now_ms: float, done: Callable[[ErrorCode], None]) -> None:
        """Delete a group, like `delete_groups`; `done` is called with NONE or the error."""
        self.delete_groups([group_id], now_ms, lambda errors: done(errors[group_id]))

    def delete_groups(
        self, group_ids: Collection[str], now_ms: float, done: Callable[[Mapping[str, ErrorCode]], None]
    ) -> None:
        """Delete groups and their offsets. They must have no members, and no joins that their extensions hold back.

        The groups of an offsets partition are deleted in one batch. If the append fails, all results of the partition
        are its error, also those of groups that could not have been deleted (`GroupCoordinatorService.deleteGroups`).
        Before KIP-848, each group has its own batch, and is deleted even if the append fails.

        Args:
            group_ids: The groups, each once.
            now_ms: The time.
            done: Called with NONE or the error for each group.
        """
        errors: dict[str, ErrorCode] = {}

        def complete(some: Mapping[str, ErrorCode]) -> None:
            errors.update(some)
            if len(errors) == len(group_ids):
                done(errors)

        batches: dict[object, list[str]] = {}
        for group_id in group_ids:
            key = group_id if self.config.is_before_kip_848 else self._runtime.partition_for(group_id)
            batches.setdefault(key, []).append(group_id)
        for batch in batches.values():
            self.submit(batch[0], partial(self._delete_groups, batch, now_ms, complete))

    def _delete_groups(
        self, group_ids: Sequence[str], now_ms: float, done: Callable[[Mapping[str, ErrorCode]], None]
    ) -> None:
        errors = {group_id: self._error_of_deletion(group_id) for group_id in group_ids}
        deleted = [
            self._groups.get(group_id) or self.consumer_groups[group_id]
            for group_id, error in errors.items()
            if not error
        ]

        def complete(error: ErrorCode) -> None:
            if error := self._error_of_tombstones(error, deleted[0].partition):
                done(dict.fromkeys(group_ids, error))
                return
            for group in deleted:
                if isinstance(group, ConsumerGroup):
                    self.drop_consumer_group(group, "DeleteGroups", now_ms)
                else:
                    self.drop_group(group, "DeleteGroups", now_ms)
            done(errors)

        records = tuple(
            record for group in deleted for record in tombstones(group, self.unstable_partitions(group.group_id))
        )
        if records:
            self._runtime.append(deleted[0].partition, records, complete)
        else:
            done(errors)

    def _error_of_tombstones(self, error: ErrorCode, partition: int) -> ErrorCode:
        """Return the error of appending tombstones. Before KIP-848, coordinators ignore it unless they have resigned.

        Source: `kafka.coordinator.group.GroupMetadataManager.cleanupGroupMetadata`.
        """
        return _NONE if self.config.is_before_kip_848 and self.leads(partition) else error

    def _error_of_deletion(self, group_id: str) -> ErrorCode:
        group = self._groups.get(group_id)
        if group is None:
            if (consumer_group := self.consumer_groups.get(group_id)) is not None:
                return ErrorCode.NON_EMPTY_GROUP if consumer_group.members else _NONE
            return self.error_for(group_id) or ErrorCode.GROUP_ID_NOT_FOUND
        return _NONE if group.state is EMPTY and not group.extension.waiting_joins else ErrorCode.NON_EMPTY_GROUP

    # Errors of requests for groups that do not exist

    def _group_error(self, group_id: str) -> ErrorCode:
        return self.error_for(group_id) if group_id else ErrorCode.INVALID_GROUP_ID

    def _error_without_group(self, group_id: str) -> ErrorCode:
        return self._group_error(group_id) or ErrorCode.UNKNOWN_MEMBER_ID

    # Time

    def tick(self, now_ms: float) -> None:
        """Expire all timers that are due, in order of their deadlines, across all groups and partitions.

        Groups and partitions with the same deadline expire in the order in which they first had a timer. For timers of
        one group, see `expire_next_timer`.
        """
        self._runtime.tick(now_ms)

    def next_deadline(self) -> float | None:
        """Return when to call `tick` next, or None without timers. Never late; early if a session was extended."""
        return self._runtime.next_deadline()

    def resume_session(self, group: Group, member: Member, deadline_ms: float) -> None:
        """Resume the suspended session of a member (`Member.keeper`), which then expires at `deadline_ms`."""
        member.keeper, member.deadline_ms = None, deadline_ms
        group.deadline_ms = min(group.deadline_ms, deadline_ms)
        self._schedule(group)

    def resume_consumer_session(self, group: ConsumerGroup, member_id: str, deadline_ms: float) -> None:
        """Resume the suspended session of a member (`ConsumerGroup.keepers`), which then expires at `deadline_ms`."""
        del group.keepers[member_id]
        group.arm_session(member_id, deadline_ms)
        self._schedule(group)

    def _schedule(self, group: Group | ConsumerGroup) -> None:
        """Schedule the group at its next deadline, unless it is scheduled earlier."""
        if group.deadline_ms < group.scheduled_ms:
            self._runtime.schedule(group, group.deadline_ms)

    def _expire(self, entry: Group | ConsumerGroup | LedPartition, deadline_ms: float, now_ms: float) -> None:
        if isinstance(entry, LedPartition):
            self._expire_offsets(entry, now_ms)
        elif isinstance(entry, ConsumerGroup):
            if self.consumer_groups.get(entry.group_id) is entry:
                self._run_consumer_group(entry, self.consumer_groups.expire(entry, now_ms), now_ms, lambda result: None)
        else:
            is_due = entry.earliest_deadline() == deadline_ms
            procedure = expire_next_timer(entry, now_ms) if is_due else _nothing()
            self.run(entry, _then_update_deadline(entry, procedure), now_ms)

    def _expire_offsets(self, partition: LedPartition, now_ms: float) -> None:
        """Delete the expired offsets and groups of a partition in one batch. If this fails, the next check retries."""
        classic, modern = self._groups_of(partition.partition), self.consumer_groups.of_partition(partition.partition)
        expired = [
            *(
                offset_requests.expired_records(each, now_ms, self.unstable_partitions(each.group_id))
                for each in classic
            ),
            *(self._expired_of_consumer_group(each, now_ms) for each in modern),
        ]
        records = tuple(chain.from_iterable(expired))

        def complete(error: ErrorCode) -> None:
            if not self._error_of_tombstones(error, partition.partition):
                self._apply_records([record for record in records if isinstance(record, OffsetRecord)])
                for record in records:
                    if isinstance(record, GroupRecord):
                        self.drop_group(self._groups[record.group_id], "its offsets expired", now_ms)
                    elif isinstance(record, GroupEpochRecord):
                        self.drop_consumer_group(self.consumer_groups[record.group_id], "its offsets expired", now_ms)
            if self._groups_of(partition.partition) or self.consumer_groups.of_partition(partition.partition):
                self._schedule_offset_expiry(partition, now_ms)

        if records:
            self._runtime.append(partition.partition, records, complete)
        else:
            complete(_NONE)

    def _expired_of_consumer_group(self, group: ConsumerGroup, now_ms: float) -> list[Record]:
        return offset_requests.expired_records_of_consumer_group(
            group, now_ms, self.config.offsets_retention_ms, self.unstable_partitions(group.group_id)
        )

    def _schedule_offset_expiry(self, partition: LedPartition, now_ms: float) -> None:
        """Schedule the next check for expired offsets, unless one is scheduled."""
        if partition.scheduled_ms == inf:
            interval_ms = self.config.offsets_retention_check_interval_ms
            self._runtime.schedule(partition, partition.interval_end_ms(interval_ms, now_ms))


def _not_found(request: ConsumerGroupHeartbeat, *, exists: bool) -> str:
    """Return the message for a heartbeat to a group that is not a consumer group."""
    if exists:
        return f"Group {request.group_id} is not a consumer group."
    return f"{'Group' if request.is_leaving else 'Consumer group'} {request.group_id} not found."


def _nothing() -> Procedure[None]:
    yield from ()


def _then_update_deadline(group: Group, procedure: Procedure[object]) -> Procedure[None]:
    yield from procedure
    group.deadline_ms = group.earliest_deadline()


def _rebalance_if_too_large(group: Group, now_ms: float) -> Procedure[None]:
    if len(group.members) > group.config.group_max_size:
        group.change.cause = "loaded with more members than it may have"
        yield from start_rebalance(group, now_ms)
