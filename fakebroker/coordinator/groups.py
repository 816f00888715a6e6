"""The classic and consumer groups of one coordinator: how they are created, changed, replaced and removed."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from math import inf
from typing import Any

from fakebroker.coordinator.classic.group import Group, GroupContext, Member
from fakebroker.coordinator.classic.rebalance import complete_join_phase, reject_waiting, start_rebalance
from fakebroker.coordinator.classic.states import DEAD, EMPTY, STABLE
from fakebroker.coordinator.config import CoordinatorConfig
from fakebroker.coordinator.consumer import migration
from fakebroker.coordinator.consumer.group import ConsumerGroup
from fakebroker.coordinator.consumer.groups import ConsumerGroups
from fakebroker.coordinator.consumer.heartbeat import is_joining, is_leaving, tombstones as consumer_group_tombstones
from fakebroker.coordinator.consumer.member import ConsumerGroupMember, HeartbeatError
from fakebroker.coordinator.context import RequestContext
from fakebroker.coordinator.group_controls import GroupControls
from fakebroker.coordinator.group_history import ChangedGroup
from fakebroker.coordinator.offset_store import OffsetStore
from fakebroker.coordinator.partitions import Append, Partitions
from fakebroker.coordinator.pending_offsets import PartitionedPendingOffsets
from fakebroker.coordinator.persistence import LoadedPartition, restore, store, store_new
from fakebroker.coordinator.records import Record, group_tombstone
from fakebroker.coordinator.timers import Timers
from fakebroker.errors import ErrorCode
from fakebroker.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from fakebroker.protocol.schema import Message

AnyGroup = Group | ConsumerGroup

_NONE = ErrorCode.NONE


class Groups:
    """The groups of the offsets partitions that one broker leads. A group id belongs to one group of either kind.

    Args:
        partitions: The offsets partitions.
        append: Appends records to an offsets partition.
        timers: The timers of groups, and of the offsets partitions.
        config: The settings of new groups.
        new_uuid: Returns the last part of a new member id; unique.
        answer: Called with the context of a JoinGroup or SyncGroup and its response.
        pending: The offsets of open transactions. When a group is dropped, its offsets here are dropped, too.
        controls: The manual settings of rebalances, by group id.
        on_change: Called with a group and `now_ms` after each request or timer that may have changed the group.

    Attributes:
        classic: The classic groups by id, in the order of their creation. Changed only here.
        consumer: The groups of the consumer rebalance protocol (KIP-848).
    """

    def __init__(
        self,
        partitions: Partitions,
        append: Append[Record],
        timers: Timers[Any],
        config: CoordinatorConfig,
        new_uuid: Callable[[], str],
        answer: Callable[[RequestContext, Message], None],
        pending: PartitionedPendingOffsets,
        controls: Mapping[str, GroupControls],
        on_change: Callable[[ChangedGroup, float], None],
    ) -> None:
        self.classic: dict[str, Group] = {}
        self.consumer = ConsumerGroups(config.consumer, new_uuid, append, self._downgrade, controls)
        self._partitions = partitions
        self._timers = timers
        self._config = config
        self._context = GroupContext(config, answer, append)
        self._pending = pending
        self._controls = controls
        self._on_change = on_change
        self._forgotten_offsets: dict[str, OffsetStore] = {}

    def configure(self, config: CoordinatorConfig) -> None:
        """Replace the settings. Classic groups that exist keep theirs."""
        self._config = config
        self._context = self._context._replace(config=config)
        self.consumer.config = config.consumer

    # Groups of either kind

    def get(self, group_id: str) -> AnyGroup | None:
        """Return a group of either kind, or None if it does not exist here."""
        return self.classic.get(group_id) or self.consumer.get(group_id)

    def __getitem__(self, group_id: str) -> AnyGroup:
        return self.classic.get(group_id) or self.consumer[group_id]

    def __contains__(self, group_id: object) -> bool:
        return group_id in self.classic or group_id in self.consumer

    def __iter__(self) -> Iterator[AnyGroup]:
        """Iterate over all groups: classic groups, then consumer groups."""
        return chain(self.classic.values(), self.consumer)

    def of_partition(self, partition: int) -> list[AnyGroup]:
        """Return the groups of an offsets partition, in the same order."""
        return [group for group in self if group.partition == partition]

    def offsets_of(self, group_id: str) -> OffsetStore | None:
        """Return the committed offsets of a group, or None if it does not exist here."""
        group = self.get(group_id)
        return None if group is None else group.offsets

    # New groups

    def create(self, group_id: str, now_ms: float, *, has_members: bool = False) -> Group:
        """Add a classic group without contents, in state Stable if it will have members, else Empty.

        The caller sets the contents and then calls `Group.record_creation`.
        """
        group = self.classic[group_id] = self._new(group_id, now_ms, has_members=has_members)
        self.schedule_offset_expiry(group.partition, now_ms)
        return group

    def _new(self, group_id: str, now_ms: float, *, has_members: bool) -> Group:
        partition = self._partitions.partition_for(group_id)
        group = Group(group_id, partition, self._context, now_ms, STABLE if has_members else EMPTY)
        group.extension = self._config.extension(group)
        group.controls = self._controls.get(group_id)
        group.offsets = self._forgotten_offsets.pop(group_id, group.offsets)
        return group

    def create_simple(self, group_id: str, cause: str, now_ms: float) -> Group:
        """Create a group for the offsets of a client that is not a member."""
        group = self.create(group_id, now_ms)
        group.record_creation(cause, now_ms)
        self._on_change(group, now_ms)
        return group

    def add_loaded(self, loaded: LoadedPartition, now_ms: float) -> None:
        """Add the groups that were read from the log of a partition that is led here. All sessions start over.

        A group with more members than `group.max.size` rebalances at once.
        """
        for group_id, (value, offsets) in loaded.groups.items():
            group = self.create(group_id, now_ms, has_members=bool(value.members))
            restore(group, value, offsets, now_ms)
            if len(group.members) > group.config.group_max_size:
                group.change.cause = "loaded with more members than it may have"
                start_rebalance(group, now_ms)
            self.changed(group, now_ms)
        for consumer_group in loaded.consumer_groups.values():
            self.consumer.add(consumer_group, now_ms)
            self.changed(consumer_group, now_ms)
            self.schedule_offset_expiry(consumer_group.partition, now_ms)

    def store_first(self, group: Group, now_ms: float) -> None:
        """Store a new group after its first join, even if the join was rejected.

        Before the join, the caller has set `Group.is_being_stored`. An answer to the join does not wait for the append,
        as in Kafka. If the append fails, parked joins get its error and the group is dropped. Without an initial delay,
        the join phase ends after the append. Before KIP-848, only the assignment is stored.
        """
        group.is_being_stored = False
        if self._config.is_before_kip_848:
            return
        if group.stored_generation_id < 0 and (error := store_new(group)):  # Else the extension has stored it.
            for member_id in list(group.parked_joins):
                group.refuse_join(member_id, error)
            self.drop(group, f"it could not be stored: {error.name}", now_ms)
        elif group.join_deadline_ms <= now_ms:
            complete_join_phase(group, now_ms)

    # Dropped groups

    def drop(self, group: AnyGroup, cause: str, now_ms: float) -> None:
        """Remove a group with its pending offsets. The state of a classic group becomes Dead."""
        self._pending.drop_group(group)
        if isinstance(group, ConsumerGroup):
            self.consumer.drop(group)
            group.record_end(cause, now_ms)
            self._on_change(group, now_ms)
            return
        del self.classic[group.group_id]
        group.change.cause = cause
        group.transition_to(DEAD, now_ms)
        self._on_change(group, now_ms)
        group.deadline_ms = group.scheduled_ms = inf

    def forget_empty(self, group: ConsumerGroup, now_ms: float) -> None:
        """Drop a consumer group without members. Its records stay in the log, and a new group gets its offsets.

        In Kafka, a JoinGroup with a member id has this effect: it deletes the group in order to create a classic group.
        Then it finds that the member is unknown, and does not create the group
        (`GroupMetadataManager.classicGroupJoinToClassicGroup`).
        """
        self.drop(group, "JoinGroup of an unknown member", now_ms)
        self._forgotten_offsets[group.group_id] = group.offsets

    def unload(self, partition: int, now_ms: float) -> None:
        """Drop the groups of a partition that is not led here any more, and reject their waiting requests."""
        for group_id in [*self._forgotten_offsets]:
            if self._partitions.partition_for(group_id) == partition:
                del self._forgotten_offsets[group_id]
        for group in self.of_partition(partition):
            self.drop(group, "its coordinator resigned", now_ms)
            if isinstance(group, Group):
                reject_waiting(group, ErrorCode.NOT_COORDINATOR)

    def error_of_tombstones(self, error: ErrorCode, partition: int) -> ErrorCode:
        """Return the error of appending tombstones.

        Before KIP-848, the result is NONE while the coordinator leads the partition: it ignores the error.

        Source: `kafka.coordinator.group.GroupMetadataManager.cleanupGroupMetadata`.
        """
        is_led = partition in self._partitions.led
        return _NONE if self._config.is_before_kip_848 and is_led else error

    # Groups that replace a group of the other kind

    def new_consumer_group(
        self, request: ConsumerGroupHeartbeatRequest, classic: Group | None, now_ms: float
    ) -> tuple[ConsumerGroup, tuple[Record, ...]]:
        """Return a consumer group that a heartbeat creates, and records to append before the heartbeat's own records.

        Args:
            request: The request.
            classic: The classic group that the new one replaces. If it has members, it is upgraded.
            now_ms: The time.

        Raises:
            HeartbeatError: The heartbeat does not create the group.
        """
        group_id, partition = request.group_id, self._partitions.partition_for(request.group_id)
        if not is_joining(request):
            raise HeartbeatError(ErrorCode.GROUP_ID_NOT_FOUND, _not_found(request, exists=classic is not None))
        group = ConsumerGroup(group_id, partition, self._config.consumer.release)
        if classic is None:
            group.offsets = self._forgotten_offsets.get(group_id, group.offsets)
            return group, ()
        if classic.state is EMPTY and not classic.extension.waiting_joins:
            group.offsets = classic.offsets
            group.continue_history(classic.state.value, classic.state_since_ms, ())
            return group, (group_tombstone(group_id),)
        migration.check_upgrade(classic, self._config.consumer)
        # Also if the upgrade fails, as in Kafka: the members join again, or their sessions expire.
        reject_waiting(classic, ErrorCode.REBALANCE_IN_PROGRESS)
        for member in classic.members.values():
            if member.deadline_ms == inf:
                classic.arm_session(member, member.session_timeout_ms, now_ms)
        self.schedule(classic)
        group, records = migration.upgrade(classic, partition, self._config.consumer)
        return group, (group_tombstone(group_id), *records)

    def replace_consumer_group(self, former: ConsumerGroup, group: Group, now_ms: float) -> ErrorCode:
        """Replace a consumer group without members by a new classic group; its offsets stay. Return NONE or the error.

        After an error, the consumer group stays.
        """
        if error := group.append(tuple(consumer_group_tombstones(former))):
            self.forget_classic(group, now_ms)
            return error
        self._forget_consumer(former, now_ms)
        group.offsets = former.offsets
        return _NONE

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
    ) -> ErrorCode:
        """Replace a consumer group by a classic group; see `Downgrade`."""
        group = self._new(former.group_id, now_ms, has_members=True)
        try:
            migration.downgrade(group, former, members, self._config.consumer.topics, renamed)
        except HeartbeatError as fault:
            return fault.error
        if error := store(group, records):
            return error
        before = former.state, former.members.snapshot()
        self._forget_consumer(former, now_ms)
        self.classic[group.group_id] = group
        for member in group.members.values():
            group.arm_session(member, member.session_timeout_ms, now_ms)
        group.record_conversion(f"{cause}: the consumer group becomes a classic group", *before, now_ms)
        if rebalances:
            start_rebalance(group, now_ms)
        self.changed(group, now_ms)
        return _NONE

    def forget_classic(self, group: Group, now_ms: float) -> None:
        """Remove a classic group without a trace in the history: a consumer group continues it."""
        del self.classic[group.group_id]
        group.transition_to(DEAD, now_ms)
        group.forget_change()
        group.deadline_ms = group.scheduled_ms = inf

    def _forget_consumer(self, group: ConsumerGroup, now_ms: float) -> None:
        """Remove a consumer group without a trace in the history: a classic group continues it."""
        self._on_change(group, now_ms)
        self.consumer.drop(group)
        group.leave_history()

    # Changes

    def changed(self, group: AnyGroup, now_ms: float) -> None:
        """Complete a request or timer: report the change of the group, and schedule the group's next timer."""
        if group.pending_change is not None:
            self._on_change(group, now_ms)
        self.schedule(group)

    def changed_by_timer(self, group: Group, now_ms: float) -> None:
        """Like `changed`, for a timer or request that may have changed the deadlines of several members."""
        group.deadline_ms = group.earliest_deadline()
        self.changed(group, now_ms)

    # Timers

    def schedule(self, group: AnyGroup) -> None:
        """Schedule a group at its next deadline, unless it is scheduled earlier."""
        self._timers.schedule(group, group.deadline_ms)

    def schedule_offset_expiry(self, partition: int, now_ms: float) -> None:
        """Schedule the next check for expired offsets of a partition, unless one is scheduled or it is not led here."""
        led = self._partitions.led.get(partition)
        if led is not None and led.scheduled_ms == inf:
            interval_ms = self._config.offsets_retention_check_interval_ms
            self._timers.schedule(led, led.interval_end_ms(interval_ms, now_ms))

    def resume_session(self, group: Group, member: Member, deadline_ms: float) -> None:
        """Resume the suspended session of a member (`Member.keeper`), which then expires at `deadline_ms`."""
        member.keeper, member.deadline_ms = None, deadline_ms
        group.deadline_ms = min(group.deadline_ms, deadline_ms)
        self.schedule(group)

    def resume_consumer_session(self, group: ConsumerGroup, member_id: str, deadline_ms: float) -> None:
        """Resume the suspended session of a member (`ConsumerGroup.keepers`), which then expires at `deadline_ms`."""
        del group.keepers[member_id]
        group.arm_session(member_id, deadline_ms)
        self.schedule(group)


def _not_found(request: ConsumerGroupHeartbeatRequest, *, exists: bool) -> str:
    """Return the message for a heartbeat to a group that is not a consumer group."""
    if exists:
        return f"Group {request.group_id} is not a consumer group."
    return f"{'Group' if is_leaving(request) else 'Consumer group'} {request.group_id} not found."
