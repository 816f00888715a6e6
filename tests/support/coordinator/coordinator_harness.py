"""A coordinator under test: one call per request, a manual clock, and invariants that are checked after every step."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from msgspec.structs import replace

from fakebroker.coordinator import controls
from fakebroker.coordinator.classic.group import Group
from fakebroker.coordinator.classic.states import GroupState
from fakebroker.coordinator.config import CoordinatorConfig
from fakebroker.coordinator.context import RequestContext
from fakebroker.coordinator.group_controls import GroupControls
from fakebroker.coordinator.group_coordinator import Coordinator
from fakebroker.coordinator.group_history import History, Moment, discard_change
from fakebroker.coordinator.invariants import StepChecker, check
from fakebroker.coordinator.partitions import partition_for
from fakebroker.coordinator.records import KeyedRecord, Record, TransactionEnd
from fakebroker.coordinator.timers import TimerQueue
from fakebroker.errors import ErrorCode
from fakebroker.proposals.batch_join.batch import BatchContext
from fakebroker.proposals.batch_join.batch_join_extension import BatchJoinExtension, expected_instances
from fakebroker.proposals.batch_join.join_batch import join_batch
from fakebroker.proposals.batch_join.messages import (
    BatchJoinGroupRequest,
    BatchJoinGroupRequestMember,
    BatchJoinGroupResponse,
)
from fakebroker.protocol.consumer_protocol import encode_subscription
from fakebroker.protocol.messages.consumer_offsets import GroupMetadataKey
from fakebroker.protocol.messages.heartbeat import HeartbeatRequest
from fakebroker.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from fakebroker.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from fakebroker.protocol.schema import Message, replaced
from tests.support.coordinator import commits
from tests.support.coordinator.group_messages import assigned, identities, join_response, leave_errors, offered

START_MS = 1_700_000_000_000.0
SESSION_MS = 10_000
REBALANCE_MS = 60_000
DELAY_MS = 3_000
_BATCH, _NULL_NAME = 10, 7
"""The versions of JoinGroup with many members, and with a protocol name that may be null."""
_MAX_STOPS = 1_000  # A rebalance timeout of 0 gives a deadline each millisecond.

Protocols = tuple[tuple[str, bytes], ...]


def protocols(*names: str, metadata: bytes = encode_subscription(["t"])) -> Protocols:
    """Return protocols that all have the same metadata; by default a subscription to topic "t"."""
    return tuple((name, metadata) for name in names)


RANGE = protocols("range")


def expected_member(instance_id: str | None, member_id: str = "") -> BatchJoinGroupRequestMember:
    """Return a member of a batch that is only registered as expected (KAFKA-8397)."""
    return BatchJoinGroupRequestMember(member_id=member_id, group_instance_id=instance_id, protocols=[])


def joining_member(
    member_id: str = "", instance_id: str | None = None, protocols: Protocols = RANGE
) -> BatchJoinGroupRequestMember:
    """Return a member of a batch that joins (KAFKA-8397)."""
    return BatchJoinGroupRequestMember(member_id=member_id, group_instance_id=instance_id, protocols=offered(protocols))


@dataclass(eq=False)
class SentRequest:
    """A JoinGroup, batch JoinGroup or SyncGroup that was sent. This object is the context of the request.

    Attributes:
        result: The response; None until the request is answered. Its protocol name is None if there is none, in each
            version.
        delivered: What the members of a batch were answered, one by one; without those that no group has seen.
    """

    api_version: int
    client_id: str = "client"
    client_host: str = "/127.0.0.1"
    may_describe: None = None
    result: JoinGroupResponse | BatchJoinGroupResponse | SyncGroupResponse | None = None
    delivered: list[JoinGroupResponse] = field(default_factory=list)

    def receive(self, response: Message) -> None:
        """Set the result."""
        assert self.result is None, "answered twice"
        assert isinstance(response, JoinGroupResponse | BatchJoinGroupResponse | SyncGroupResponse)
        if isinstance(response, JoinGroupResponse) and not response.protocol_name:
            assert response.protocol_name == (None if self.api_version >= _NULL_NAME else ""), "not of this version"
            response = replaced(response, protocol_name=None)
        self.result = response

    @property
    def is_parked(self) -> bool:
        """Whether the request is not answered yet."""
        return self.result is None

    @property
    def error(self) -> ErrorCode:
        assert self.result is not None, "still parked"
        assert not isinstance(self.result, BatchJoinGroupResponse), "a batch has an error for each member"
        return ErrorCode(self.result.error_code)

    @property
    def joined(self) -> JoinGroupResponse:
        assert isinstance(self.result, JoinGroupResponse), "not answered, or not a join"
        return self.result

    @property
    def synced(self) -> SyncGroupResponse:
        assert isinstance(self.result, SyncGroupResponse), "not answered, or not a sync"
        return self.result

    @property
    def batch(self) -> BatchJoinGroupResponse:
        assert isinstance(self.result, BatchJoinGroupResponse), "not answered, or not a batch"
        return self.result

    @property
    def errors(self) -> list[ErrorCode]:
        """The errors of the members of a batch."""
        return [ErrorCode(each.error_code) for each in self.batch.member_join_response_list]

    @property
    def member_ids(self) -> list[str]:
        """The ids of the members of a batch."""
        return [each.member.member_id for each in self.batch.member_join_response_list]

    @property
    def generation_id(self) -> int:
        """The generation that the members of a batch have joined."""
        return self.batch.generation_id

    @property
    def joins(self) -> list[JoinGroupResponse]:
        """What the members of a batch would have been answered one by one."""
        batch = self.batch
        generation = batch.generation_id, batch.protocol_type, batch.protocol_name, batch.leader
        return [
            join_response(error, member_id=member_id)
            if error
            else join_response(error, *generation, member_id, batch.members if member_id == batch.leader else ())
            for error, member_id in zip(self.errors, self.member_ids, strict=True)
        ]


class ObservedBatchJoins(BatchJoinExtension):
    """Batch joins, with a record of what the members of each batch are answered (`SentRequest.delivered`)."""

    def deliver(
        self, context: RequestContext, response: Message, send: Callable[[RequestContext, Message], None]
    ) -> None:
        if isinstance(context, BatchContext) and isinstance(context.batch.context, SentRequest):
            assert isinstance(response, JoinGroupResponse)
            context.batch.context.delivered.append(response)
        super().deliver(context, response, send)


class CoordinatorHarness:
    """One coordinator that leads every offsets partition, and its log. There are no groups at first.

    Methods use the group "g" by default. Requests are sent at `now_ms`, which is `START_MS` at first and changes only
    in `advance` and `advance_in_one_tick`. Member ids end in uuid1, uuid2 and so on. After each request the invariants
    of all groups are checked.

    Args:
        history: Records the changes of groups, if given. The coordinators are brokers 1, 2, ... in order of creation.
        config: Fields of `CoordinatorConfig`. The defaults are Kafka's newest, such as an initial rebalance delay of
            `DELAY_MS`, but batch joins (KAFKA-8397) are enabled.

    Attributes:
        coordinator: The current coordinator; `fail_over` replaces it.
        answered: Joins and syncs in the order in which they were answered.
        batches: The appended batches, each with its offsets partition.
        append_error: The error of all appends, if set.
        refused_partition: The offsets partition whose appends get NOT_COORDINATOR, if set.
        controls: Manual settings of rebalances, by group id.
        after_step: Called after every step.
    """

    def __init__(self, history: History | None = None, **config: Any) -> None:
        self.config = CoordinatorConfig(**{"extension": ObservedBatchJoins} | config)
        self.controls: dict[str, GroupControls] = {}
        self.history = history
        self._uuid_numbers = count(1)
        self._broker_ids = count(1)
        self.now_ms = START_MS
        self.answered: list[SentRequest] = []
        self.batches: list[tuple[int, tuple[Record, ...]]] = []
        self.append_error = ErrorCode.NONE
        self.refused_partition: int | None = None
        self.after_step: Callable[[], object] = lambda: None
        self._step_checker = StepChecker()
        self.coordinator = self.new_coordinator()
        for partition in self.partitions:
            self.coordinator.lead(partition, self.now_ms)

    def new_coordinator(self, queue: TimerQueue[Any] | None = None) -> Coordinator:
        """Return another coordinator that appends to the same log and leads no partition; its timers may be shared."""
        broker_id, history = next(self._broker_ids), self.history
        return Coordinator(
            self.config,
            lambda: f"uuid{next(self._uuid_numbers)}",
            self._append,
            self.controls,
            discard_change
            if history is None
            else lambda group, now_ms: history.record(group, now_ms, coordinator_id=broker_id),
            queue,
            broker_id,
        )

    @property
    def partitions(self) -> range:
        """All offsets partitions."""
        return range(self.config.offsets_topic_num_partitions)

    # The log

    def _append(self, partition: int, records: tuple[Record, ...]) -> ErrorCode:
        assert records, "nothing to append"
        if partition == self.refused_partition:
            return ErrorCode.NOT_COORDINATOR
        if not self.append_error:
            self.batches.append((partition, records))
        return self.append_error

    def records(self, partition: int) -> list[Record]:
        """Return the log of an offsets partition."""
        return [record for index, batch in self.batches if index == partition for record in batch]

    @property
    def last_group_record(self) -> KeyedRecord:
        """The last record of the log, which must be a group record."""
        record = self.batches[-1][1][-1]
        assert not isinstance(record, TransactionEnd)
        assert isinstance(record.key, GroupMetadataKey)
        return record

    def fail_over(self, while_loading: Callable[[], object] = lambda: None, **config: Any) -> None:
        """Replace the coordinator by a new one, which loads the log.

        Args:
            while_loading: Called while all partitions are being loaded.
            config: Settings of the new coordinator that differ.
        """
        for partition in self.partitions:
            self.coordinator.resign(partition, self.now_ms)
        self._distribute_answers()
        self.config = replace(self.config, **config)
        self.coordinator = self.new_coordinator()
        for partition in self.partitions:
            self.coordinator.start_loading(partition)
        after_step, self.after_step = self.after_step, lambda: None
        while_loading()
        self.after_step = after_step
        for partition in self.partitions:
            self.coordinator.finish_loading(partition, self.records(partition), self.now_ms)
        self.settle()

    def _distribute_answers(self) -> None:
        answers, self.coordinator.answers = self.coordinator.answers, []
        for sent, response in answers:
            assert isinstance(sent, SentRequest)
            sent.receive(response)
            self.answered.append(sent)

    def settle(self) -> None:
        """End a step: set the results of answered requests and check the invariants of every group.

        Call this after a direct call of `coordinator`; the methods of the harness that send requests call it.
        """
        self._distribute_answers()
        for group in self.coordinator.groups.classic.values():
            check(group)
            self._step_checker.check_step(group)
        self.after_step()

    # Groups

    def group(self, group_id: str = "g") -> Group:
        """Return a group, which has to exist."""
        group = self.coordinator.groups.classic.get(group_id)
        assert group is not None, "no such group"
        return group

    def state(self, group_id: str = "g") -> str:
        """Return Kafka's name of the state of a group, or "-" without a group."""
        group = self.coordinator.groups.classic.get(group_id)
        return "-" if group is None else group.state.value

    def moments(self, group_id: str = "g") -> list[Moment]:
        """Return the history of a group."""
        assert self.history is not None
        return list(self.history.of(group_id))

    def expected_instance_ids(self, group_id: str = "g") -> list[str]:
        """Return the expected instances of a group (KAFKA-8397)."""
        return list(expected_instances(self.group(group_id)).instances)

    def waiting_member_ids(self, group_id: str = "g") -> list[str]:
        """Return the members whose joins wait for expected instances (KAFKA-8397)."""
        return list(expected_instances(self.group(group_id)).waiting)

    # Time

    def advance(self, duration_ms: float) -> None:
        """Advance the clock, and stop at the deadlines in between to expire timers."""
        end_ms, queue = self.now_ms + duration_ms, self.coordinator.queue
        for _ in range(_MAX_STOPS):
            due_ms = queue.next_deadline()
            if due_ms is None or due_ms > end_ms:
                self.now_ms = end_ms
                return
            self.now_ms = max(self.now_ms, due_ms)
            queue.run(self.now_ms)
            self.settle()
        self.advance_in_one_tick(end_ms - self.now_ms)

    def advance_in_one_tick(self, duration_ms: float) -> None:
        """Advance the clock with a single tick at the end."""
        self.now_ms += duration_ms
        self.coordinator.queue.run(self.now_ms)
        self.settle()

    # Requests

    def join(self, member_id: str = "", **options: Any) -> SentRequest:
        """Send a JoinGroup and return it, parked or answered.

        Without `two_step`, a dynamic member joins with one request, in version 3. Else the version is the newest, or 8
        with `skip=False`: then a static leader that returns gets no `skip_assignment`. Other options: `instance_id`
        (for a static member), `client_id`, `client_host`, `session_ms`, `rebalance_ms`, `protocol_type`, `protocols`
        and `group_id`.
        """
        instance_id, skip = options.pop("instance_id", None), options.pop("skip", True)
        is_one_step = not options.pop("two_step", False) and instance_id is None
        sent = SentRequest(3 if is_one_step else 9 if skip else 8)
        sent.client_id = options.pop("client_id", sent.client_id)
        sent.client_host = options.pop("client_host", sent.client_host)
        request = JoinGroupRequest(
            group_id=options.pop("group_id", "g"),
            member_id=member_id,
            group_instance_id=instance_id,
            session_timeout_ms=options.pop("session_ms", SESSION_MS),
            rebalance_timeout_ms=options.pop("rebalance_ms", REBALANCE_MS),
            protocol_type=options.pop("protocol_type", "consumer"),
            protocols=offered(options.pop("protocols", RANGE)),
        )
        assert not options, options
        self.coordinator.join_group(request, sent, self.now_ms)
        self.settle()
        return sent

    def request_member_id(self, **options: Any) -> str:
        """Send the first JoinGroup of a dynamic member; return the member id, which is pending then (KIP-394)."""
        sent = self.join(two_step=True, **options)
        assert sent.error is ErrorCode.MEMBER_ID_REQUIRED
        return sent.joined.member_id

    def join_batch(self, *members: BatchJoinGroupRequestMember, **options: Any) -> SentRequest:
        """Send a JoinGroup for many members (KAFKA-8397) and return it, parked or answered."""
        sent = SentRequest(_BATCH, options.pop("client_id", "batcher"))
        request = BatchJoinGroupRequest(
            group_id=options.pop("group_id", "g"),
            session_timeout_ms=options.pop("session_ms", SESSION_MS),
            rebalance_timeout_ms=options.pop("rebalance_ms", REBALANCE_MS),
            protocol_type=options.pop("protocol_type", "consumer"),
            join_group_members=list(members),
        )
        assert not options, options
        join_batch(self.coordinator, request, sent, self.now_ms)
        self.settle()
        return sent

    def register(self, *instance_ids: str, **options: Any) -> list[str]:
        """Register expected instances (KAFKA-8397); return the member ids that are reserved for them."""
        sent = self.join_batch(*map(expected_member, instance_ids), **options)
        assert sent.errors == [ErrorCode.NONE] * len(instance_ids)
        return sent.member_ids

    def sync(
        self, member_id: str, generation_id: int, assignments: Iterable[tuple[str, bytes]] = (), **options: Any
    ) -> SentRequest:
        """Send a SyncGroup and return it, parked or answered."""
        sent = SentRequest(5)
        request = SyncGroupRequest(
            group_id=options.pop("group_id", "g"),
            generation_id=generation_id,
            member_id=member_id,
            group_instance_id=options.pop("instance_id", None),
            protocol_type=options.pop("protocol_type", None),
            protocol_name=options.pop("protocol_name", None),
            assignments=assigned(assignments),
        )
        assert not options, options
        self.coordinator.sync_group(request, sent, self.now_ms)
        self.settle()
        return sent

    def heartbeat(
        self, member_id: str, generation_id: int, instance_id: str | None = None, group_id: str = "g"
    ) -> ErrorCode:
        """Send a Heartbeat; return its error."""
        request = HeartbeatRequest(
            group_id=group_id, generation_id=generation_id, member_id=member_id, group_instance_id=instance_id
        )
        error = self.coordinator.heartbeat(request, self.now_ms)
        self.settle()
        return error

    def leave(self, *members: tuple[str, str | None], group_id: str = "g") -> list[ErrorCode]:
        """Send a LeaveGroup of members, given as (member id, instance id); return the error of each."""
        error, errors = leave_errors(self.coordinator.leave_group(group_id, identities(members), self.now_ms))
        assert error is ErrorCode.NONE
        self.settle()
        return errors

    def commit(
        self,
        member_id: str = "",
        generation_id: int = -1,
        instance_id: str | None = None,
        group_id: str = "g",
        offset: int = 1,
        topic: str = "t",
        partition: int = 0,
        metadata: str = "",
        **fields: Any,
    ) -> ErrorCode:
        """Commit one offset; by default not as a member. Return its error. Fields are those of `commits.commit`."""
        (error,) = commits.commit(
            *(self.coordinator, [(topic, partition, offset, metadata)], self.now_ms, generation_id, member_id),
            group_id=group_id,
            instance_id=instance_id,
            **fields,
        )
        self.settle()
        return error

    def commit_in_transaction(
        self,
        producer_id: int = 0,
        offset: int = 1,
        partition: int = 0,
        group_id: str = "g",
        member_id: str = "",
        generation_id: int = -1,
        instance_id: str | None = None,
    ) -> ErrorCode:
        """Send a TxnOffsetCommit with one offset for the topic "t"; by default not as a member. Return its error."""
        (error,) = commits.commit_in_transaction(
            *(self.coordinator, [("t", partition, offset)], self.now_ms, generation_id, member_id),
            group_id=group_id,
            instance_id=instance_id,
            producer_id=producer_id,
        )
        self.settle()
        return error

    def end_transaction(self, producer_id: int = 0, *, is_commit: bool = True, group_id: str = "g") -> ErrorCode:
        """Write a marker to the offsets partition of a group; return the error."""
        partition = partition_for(group_id, self.config.offsets_topic_num_partitions)
        end = TransactionEnd(producer_id, 0, is_commit, 0)
        error = self.coordinator.offsets.end_transaction(partition, end)
        self.settle()
        return error

    def committed(self, topic: str = "t", partition: int = 0, group_id: str = "g") -> int | None:
        """Return the committed offset, or `None`."""
        error, offsets = self.coordinator.offsets.fetch(group_id, [(topic, partition)])
        assert error is ErrorCode.NONE
        ((_, _, committed),) = offsets
        return None if committed is None else committed.offset

    def delete_group(self, group_id: str = "g") -> ErrorCode:
        """Send a DeleteGroups; return the error of the group."""
        error = self.coordinator.delete_groups([group_id], self.now_ms)[group_id]
        self.settle()
        return error

    def delete_offsets(self, *partitions: tuple[str, int], group_id: str = "g") -> tuple[ErrorCode, list[ErrorCode]]:
        """Send an OffsetDelete; return the error of the group, and the error of each partition."""
        return self.coordinator.offsets.delete(group_id, partitions)

    # Manual control of rebalances

    def hold(self, state: GroupState, group_id: str = "g") -> None:
        """Hold a group in a state; the group need not exist."""
        controls.hold(self.coordinator, group_id, self.controls.setdefault(group_id, GroupControls()), state)
        self.settle()

    def release(self, group_id: str = "g") -> None:
        """End all holds of a group."""
        self.controls[group_id].held_states.clear()
        controls.release(self.coordinator, self.group(group_id), self.now_ms)
        self.settle()

    def force_rebalance(self) -> None:
        """Start a rebalance."""
        controls.force_rebalance(self.coordinator, self.group(), self.now_ms)
        self.settle()

    def evict(self, name: str) -> None:
        """Remove a member as an administrator does."""
        controls.evict(self.coordinator, self.group(), name, self.now_ms)
        self.settle()

    def expire(self, name: str) -> None:
        """Expire the session of a member."""
        controls.expire(self.coordinator, self.group(), name, self.now_ms)
        self.settle()

    def fence(self, instance_id: str) -> None:
        """Replace a static member."""
        controls.fence(self.coordinator, self.group(), instance_id, self.now_ms)
        self.settle()

    def choose_leader(self, name: str) -> None:
        """Choose the leader of the next generation."""
        controls.choose_leader(self.group(), self.controls.setdefault("g", GroupControls()), name)
        self.settle()

    # Groups with members

    def create_completing_group(self, size: int = 2, static: Sequence[str] = (), **options: Any) -> list[str]:
        """Create a group in CompletingRebalance, with dynamic members and then static ones.

        Args:
            size: The number of dynamic members.
            static: The instance ids of the static members.
            options: Options of `join` for all of them.

        Returns:
            The member ids in the order in which they joined: the leader is the first.
        """
        sent = [self.join(**options) for _ in range(size)]
        sent += [self.join(instance_id=instance_id, **options) for instance_id in static]
        group_id = options.get("group_id", "g")
        while self.state(group_id) == "PreparingRebalance":
            self.advance(DELAY_MS)
        assert self.state(group_id) == "CompletingRebalance"
        return [each.joined.member_id for each in sent]

    def sync_all(self, member_ids: Iterable[str], group_id: str = "g") -> None:
        """Send the SyncGroup of every member, the leader's last; each member is assigned its id as bytes."""
        group = self.group(group_id)
        ids = sorted(member_ids, key=lambda member_id: member_id == group.leader_id)
        for member_id in ids:
            assignments = [(i, i.encode()) for i in ids] if member_id == group.leader_id else []
            self.sync(member_id, group.generation_id, assignments, group_id=group_id)
        assert group.state.value == "Stable"

    def create_stable_group(self, size: int = 2, static: Sequence[str] = (), **options: Any) -> list[str]:
        """Create a Stable group: as `create_completing_group`, and then all members sync. Return the member ids."""
        member_ids = self.create_completing_group(size, static, **options)
        self.sync_all(member_ids, options.get("group_id", "g"))
        return member_ids
