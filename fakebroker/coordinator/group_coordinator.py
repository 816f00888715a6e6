"""The group coordinator of one broker: the requests and timers of all groups in the offsets partitions that it leads.

`Coordinator` finds the group of a request, rejects requests for groups of other coordinators, and calls `classic`
and `consumer`. Requests for offsets are in `committed_offsets.py`. Does not depend on the bytes of messages, sockets,
clocks or random numbers.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import chain
from typing import Any

from fakebroker.coordinator.classic.group import join_error, sync_error
from fakebroker.coordinator.classic.rebalance import expire_next_timer, join, leave, left, reject_request, sync
from fakebroker.coordinator.classic.states import EMPTY, PREPARING_REBALANCE
from fakebroker.coordinator.committed_offsets import CommittedOffsets
from fakebroker.coordinator.config import CoordinatorConfig
from fakebroker.coordinator.consumer.group import ConsumerGroup
from fakebroker.coordinator.consumer.heartbeat import check_request
from fakebroker.coordinator.consumer.member import HeartbeatError
from fakebroker.coordinator.context import OwnContext, RequestContext
from fakebroker.coordinator.group_controls import NO_CONTROLS, GroupControls
from fakebroker.coordinator.group_history import ChangedGroup, discard_change
from fakebroker.coordinator.groups import AnyGroup, Groups
from fakebroker.coordinator.partitions import Append, LedPartition, Partitions
from fakebroker.coordinator.pending_offsets import PartitionedPendingOffsets
from fakebroker.coordinator.persistence import replay
from fakebroker.coordinator.records import Record
from fakebroker.coordinator.timers import Rank, TimerQueue
from fakebroker.errors import ErrorCode
from fakebroker.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from fakebroker.protocol.messages.heartbeat import HeartbeatRequest
from fakebroker.protocol.messages.join_group import JoinGroupRequest
from fakebroker.protocol.messages.leave_group import LeaveGroupResponse, MemberIdentity
from fakebroker.protocol.messages.sync_group import SyncGroupRequest
from fakebroker.protocol.schema import Message

# Globals are faster than attributes of enumerations, which matters in `heartbeat`.
_NONE = ErrorCode.NONE
_REBALANCE_IN_PROGRESS = ErrorCode.REBALANCE_IN_PROGRESS

_OTHER_TIMERS = 3
"""The timers of a group that are not of a member: the join, the sync and the extension's."""


def append_nowhere(partition: int, records: tuple[Record, ...]) -> ErrorCode:
    """Drop the records, for a coordinator whose groups need not survive a failover."""
    return _NONE


class Coordinator:
    """All groups of the offsets partitions that one broker leads. It starts without any partition.

    Methods return the response to a request, or the values for it. Only `join_group` and `sync_group` add the response
    to the list `answers`, because the request may be parked. A response that is known at once is added, too, so that
    all responses stay in order. The caller empties the list. A journal shares requests and responses: the coordinator
    keeps values, never a request, a response or a list in them.

    `now_ms` is the only source of the time. Timers expire when the queue runs; a caller that wants timers to expire
    before a request runs it first. A timer that expires late takes effect at the time of that run, as on a busy broker.
    All methods are called in one thread.

    Args:
        config: The settings. Can be replaced later (`configure`): the new settings apply to new groups and to checks of
            requests (session timeouts, sizes of metadata), while existing groups keep theirs.
        new_uuid: Returns the last part of a new member id; unique.
        append: Appends a batch to the log of an offsets partition.
        controls: The manual settings of rebalances, by group id.
        on_change: Called with a group and `now_ms` after each request or timer that may have changed the group. It has
            to call the group's `forget_change`.
        queue: The queue of its timers. None creates one.
        node_id: The node id of its broker.

    Attributes:
        queue: The queue of its timers. Groups and partitions with the same deadline expire in the order in which they
            first had a timer; for timers of one group see `expire_next_timer`.
        partitions: The offsets partitions that it leads or loads.
        groups: The groups of both kinds. Changes that no request causes are made there.
        offsets: The committed offsets, and the requests that commit, fetch and delete them.
        answers: Responses that the caller has not taken yet, each with the context of its request.
    """

    def __init__(
        self,
        config: CoordinatorConfig,
        new_uuid: Callable[[], str],
        append: Append[Record] = append_nowhere,
        controls: Mapping[str, GroupControls] = NO_CONTROLS,
        on_change: Callable[[ChangedGroup, float], None] = discard_change,
        queue: TimerQueue[Any] | None = None,
        node_id: int = 0,
    ) -> None:
        self.config = config
        self.new_uuid = new_uuid
        self.answers: list[tuple[RequestContext, Message]] = []
        self.queue: TimerQueue[Any] = TimerQueue() if queue is None else queue
        self.partitions = Partitions(config.offsets_topic_num_partitions)
        self._append = append
        self._pending = PartitionedPendingOffsets()
        timers = self.queue.service(Rank.GROUPS, self._expire, node_id)
        self.groups = Groups(
            self.partitions, append, timers, config, new_uuid, self.answer, self._pending, controls, on_change
        )
        self.offsets = CommittedOffsets(self.partitions, append, self.groups, config, self._pending)
        self._classic = self.groups.classic  # An attribute less in `heartbeat`.

    def configure(self, config: CoordinatorConfig) -> None:
        """Replace the settings."""
        self.config = self.offsets.config = config
        self.groups.configure(config)

    # Partitions

    def set_partition_count(self, partition_count: int) -> None:
        """Change the number of offsets partitions. The coordinator must not lead or load any."""
        self.partitions.count = partition_count

    def lead(self, partition: int, now_ms: float) -> None:
        """Lead an offsets partition without groups."""
        self.partitions.lead(partition, now_ms)

    def start_loading(self, partition: int) -> None:
        """Mark an offsets partition as being loaded: its requests get COORDINATOR_LOAD_IN_PROGRESS.

        Raises:
            RuntimeError: The partition is led.
        """
        self.partitions.start_loading(partition)

    def finish_loading(self, partition: int, records: Iterable[Record], now_ms: float) -> None:
        """Lead a partition that was being loaded, with the groups in its log; see `Groups.add_loaded`.

        Args:
            records: The log, oldest record first. If iterating over it raises an error, the coordinator is unchanged.

        Raises:
            RuntimeError: The partition is not being loaded.
        """
        loaded = replay(records, partition, self.config.consumer.release)
        self.partitions.end_loading(partition)
        self.partitions.lead(partition, now_ms)
        self._pending.load(partition, loaded.pending)
        self.groups.add_loaded(loaded, now_ms)

    def fail_loading(self, partition: int) -> None:
        """Stop loading a partition: its requests get NOT_COORDINATOR until it is loaded again or led.

        Raises:
            RuntimeError: The partition is not being loaded.
        """
        self.partitions.end_loading(partition)

    def resign(self, partition: int, now_ms: float) -> None:
        """Stop leading or loading a partition: drop its groups, and answer waiting requests with NOT_COORDINATOR."""
        self.partitions.resign(partition)
        self.groups.unload(partition, now_ms)

    def error_for(self, group_id: str) -> ErrorCode:
        """Return NONE if the partition of a group is led here, else NOT_COORDINATOR or COORDINATOR_LOAD_IN_PROGRESS."""
        return self.partitions.error_for(group_id)

    @property
    def is_loading(self) -> bool:
        """Whether an offsets partition is being loaded, so that not all groups are known."""
        return self.partitions.is_loading

    def leads(self, partition: int) -> bool:
        """Whether an offsets partition is led here."""
        return partition in self.partitions.led

    def led_partition(self, partition: int) -> LedPartition | None:
        """Return an offsets partition, or None if it is not led here."""
        return self.partitions.led.get(partition)

    def led_indexes(self) -> Collection[int]:
        """Return the indexes of the offsets partitions that are led here."""
        return self.partitions.led

    def answer(self, context: RequestContext, response: Message) -> None:
        """Add the response to a JoinGroup or SyncGroup to `answers`, unless a command has made the request."""
        if not isinstance(context, OwnContext):
            self.answers.append((context, response))

    # Membership

    def join_group(self, request: JoinGroupRequest, context: RequestContext, now_ms: float) -> None:
        """Handle a JoinGroup; the response comes through `answers`, at once or when the join phase ends."""
        group_id = request.group_id
        group = self._classic.get(group_id)
        former = self.groups.consumer.get(group_id) if group is None else None
        error = self.error_for(group_id) if group is None else _NONE
        exists = group is not None or (former is not None and bool(former.members))
        if rejection := reject_request(request, context, self.config, error, exists=exists):
            self.answer(context, rejection)
            if former is not None and rejection.error_code is ErrorCode.UNKNOWN_MEMBER_ID:
                self.groups.forget_empty(former, now_ms)
        elif former is not None and former.members:
            response = self.groups.consumer.join(former, request, context, now_ms)
            self.groups.changed(former, now_ms)
            self.answer(context, response)
            self._resolve(former, context.may_describe, now_ms)
        elif group is not None:
            if not group.extension.join(request, context, now_ms, self.new_uuid):
                join(group, request, context, now_ms, self.new_uuid)
            self.groups.changed(group, now_ms)
        else:
            group = self.groups.create(group_id, now_ms)
            if former is None:
                group.record_creation("first JoinGroup", now_ms)
            else:
                group.record_conversion("first JoinGroup", former.state, (), now_ms)
            if former is not None and (error := self.groups.replace_consumer_group(former, group, now_ms)):
                self.answer(context, join_error(context, error))
            else:
                group.is_being_stored = not self.config.is_before_kip_848
                join(group, request, context, now_ms, self.new_uuid)
                self.groups.store_first(group, now_ms)
            self.groups.changed(group, now_ms)

    def sync_group(self, request: SyncGroupRequest, context: RequestContext, now_ms: float) -> None:
        """Handle a SyncGroup; the response comes through `answers`, at once, or when the leader has synced."""
        group_id = request.group_id
        group = self._classic.get(group_id) if group_id else None
        if group is not None:
            sync(group, request, context, now_ms)
            self.groups.changed(group, now_ms)
        elif (consumer_group := self.groups.consumer.get(group_id)) is not None:
            response = self.groups.consumer.sync(consumer_group, request, now_ms)
            self.groups.schedule(consumer_group)
            self.answer(context, response)
        else:
            error = self._error_without_group(group_id)
            if self.config.is_before_kip_848 and error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                # Older clients do not expect COORDINATOR_LOAD_IN_PROGRESS here. This error makes them rejoin.
                error = _REBALANCE_IN_PROGRESS
            self.answer(context, sync_error(error))

    def heartbeat(self, request: HeartbeatRequest, now_ms: float) -> ErrorCode:
        """Extend a member's session, and return NONE or REBALANCE_IN_PROGRESS. A faulty request only gets its error.

        This is the most frequent request, so the common path is short. `Group.heartbeat_fault` finds the error.
        """
        group = self._classic.get(request.group_id)
        if group is None:
            return self._heartbeat_without_classic_group(request, now_ms)
        member, instance_id = group.members.get(request.member_id), request.group_instance_id
        if (
            member is None
            or request.generation_id != group.generation_id
            or (instance_id is not None and instance_id != member.instance_id)
        ):
            return group.heartbeat_fault(request.member_id, instance_id)
        deadline_ms = member.deadline_ms = now_ms + member.session_timeout_ms
        if deadline_ms < group.deadline_ms:  # A join has shortened the session timeout, or the member is new.
            group.deadline_ms = deadline_ms
            self.groups.schedule(group)
        return _REBALANCE_IN_PROGRESS if group.state is PREPARING_REBALANCE else _NONE

    def _heartbeat_without_classic_group(self, request: HeartbeatRequest, now_ms: float) -> ErrorCode:
        if (group := self.groups.consumer.get(request.group_id)) is not None:
            error = self.groups.consumer.beat(group, request, now_ms)
            self.groups.schedule(group)
            return error
        error = self._error_without_group(request.group_id)
        return _NONE if error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS else error

    def leave_group(self, group_id: str, members: Sequence[MemberIdentity], now_ms: float) -> LeaveGroupResponse:
        """Remove members from a group. The response has an error for each member, or one for the whole request."""
        group = self._classic.get(group_id)
        if error := self._group_error(group_id):
            return LeaveGroupResponse(error_code=error)
        if (consumer_group := self.groups.consumer.get(group_id)) is not None:
            response = self.groups.consumer.leave(consumer_group, members, now_ms)
            self.groups.changed(consumer_group, now_ms)
        elif group is None:
            return LeaveGroupResponse(members=[left(each, ErrorCode.UNKNOWN_MEMBER_ID) for each in members])
        else:
            response = leave(group, members, now_ms)
            self.groups.changed(group, now_ms)
        return response

    def consumer_group_heartbeat(
        self, request: ConsumerGroupHeartbeatRequest, context: RequestContext, now_ms: float
    ) -> ConsumerGroupHeartbeatResponse:
        """Handle a ConsumerGroupHeartbeat."""
        if (response := self.groups.consumer.extend_session(request, context, now_ms)) is not None:
            return response
        group_id, config = request.group_id, self.config.consumer
        try:
            # Before 4.1, the coordinator of the group checks requests; other brokers reject all of them.
            if config.release < (4, 1) and (error := self.error_for(group_id)):
                return ConsumerGroupHeartbeatResponse(error_code=error)
            check_request(request, context.api_version, config.assignors)
            if error := self.error_for(group_id):
                return ConsumerGroupHeartbeatResponse(error_code=error)
            group, classic = self.groups.consumer.get(group_id), self._classic.get(group_id)
            first: tuple[Record, ...] = ()
            if group is None:
                group, first = self.groups.new_consumer_group(request, classic, now_ms)
        except HeartbeatError as fault:
            return ConsumerGroupHeartbeatResponse(error_code=fault.error, error_message=fault.message)
        response = self.groups.consumer.heartbeat(group, request, context, now_ms, first)
        if first and not response.error_code and classic is not None:
            self.groups.forget_classic(classic, now_ms)
        self.groups.changed(group, now_ms)
        self.groups.schedule_offset_expiry(group.partition, now_ms)
        self._resolve(group, context.may_describe, now_ms)
        return response

    def _resolve(self, group: ConsumerGroup, may_describe: Callable[[str], bool] | None, now_ms: float) -> None:
        """Resolve the regular expressions that a request has left unresolved, in a separate step after the request."""
        if group.unresolved:
            self.groups.consumer.resolve(group, may_describe, now_ms)
            self.groups.changed(group, now_ms)

    # Deleting groups

    def delete_groups(self, group_ids: Collection[str], now_ms: float) -> Mapping[str, ErrorCode]:
        """Delete groups and their offsets; return NONE or the error for each.

        A group must have no members, and no joins that its extension holds back. The groups of an offsets partition are
        deleted in one batch. If the append fails, all groups of the partition get its error, even groups that have an
        error of their own (`GroupCoordinatorService.deleteGroups`). Before KIP-848, each group has its own batch, and
        is deleted even if the append fails.

        Args:
            group_ids: The groups, each once.
            now_ms: The time.
        """
        errors = {group_id: self._error_of_deletion(group_id) for group_id in group_ids}
        batches: dict[object, list[str]] = {}
        for group_id in group_ids:
            key = group_id if self.config.is_before_kip_848 else self.partitions.partition_for(group_id)
            batches.setdefault(key, []).append(group_id)
        for batch in batches.values():
            deleted = [self.groups[group_id] for group_id in batch if not errors[group_id]]
            if not deleted:
                continue
            records = tuple(chain.from_iterable(self.offsets.tombstones(group) for group in deleted))
            partition = deleted[0].partition
            if error := self.groups.error_of_tombstones(self._append(partition, records), partition):
                errors |= dict.fromkeys(batch, error)
                continue
            for group in deleted:
                self.groups.drop(group, "DeleteGroups", now_ms)
        return errors

    def _error_of_deletion(self, group_id: str) -> ErrorCode:
        group = self._classic.get(group_id)
        if group is None:
            if (consumer_group := self.groups.consumer.get(group_id)) is not None:
                return ErrorCode.NON_EMPTY_GROUP if consumer_group.members else _NONE
            return self.error_for(group_id) or ErrorCode.GROUP_ID_NOT_FOUND
        return _NONE if group.state is EMPTY and not group.extension.waiting_joins else ErrorCode.NON_EMPTY_GROUP

    # Errors of requests for groups that do not exist

    def _group_error(self, group_id: str) -> ErrorCode:
        return self.error_for(group_id) if group_id else ErrorCode.INVALID_GROUP_ID

    def _error_without_group(self, group_id: str) -> ErrorCode:
        return self._group_error(group_id) or ErrorCode.UNKNOWN_MEMBER_ID

    # Time

    def _expire(self, entry: AnyGroup | LedPartition, deadline_ms: float, now_ms: float) -> None:
        if isinstance(entry, LedPartition):
            self.offsets.expire(entry.partition, now_ms)
        elif isinstance(entry, ConsumerGroup):
            if self.groups.consumer.get(entry.group_id) is entry:
                self.groups.consumer.expire(entry, now_ms)
                self.groups.changed(entry, now_ms)
        else:
            # All that is due at this time, each timer once: a timer that starts again at once is the queue's to count.
            for _ in range(len(entry.members) + len(entry.pending_members) + _OTHER_TIMERS):
                if entry.earliest_deadline() != deadline_ms:  # Nothing is left, or a session was extended.
                    break
                expire_next_timer(entry, now_ms)
                self.groups.changed(entry, now_ms)
            self.groups.changed_by_timer(entry, now_ms)
