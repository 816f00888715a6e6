"""A coordinator in one's hand: short calls, a clock to move, and the invariants checked after every step."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from itertools import count
from typing import Any, TypeVar, TypeVarTuple

from fakebroker.coordinator.group.api import JoinGroup, JoinResult, OffsetToCommit, SyncGroup, SyncResult
from fakebroker.coordinator.group.batch_join.batch import BatchResult
from fakebroker.coordinator.group.batch_join.batch_join_extension import BatchJoinExtension
from fakebroker.coordinator.group.classic.group import Group
from fakebroker.coordinator.group.config import CoordinatorConfig
from fakebroker.coordinator.group.coordinator import Coordinator
from fakebroker.coordinator.group.invariants import StepChecker, check
from fakebroker.coordinator.group.records import Record
from fakebroker.errors import ErrorCode
from fakebroker.protocol.consumer_protocol import encode_subscription

START_MS = 1_700_000_000_000.0
SESSION_MS = 10_000
REBALANCE_MS = 60_000
DELAY_MS = 3_000


def protocols(*names: str, metadata: bytes = encode_subscription(["t"])) -> tuple[tuple[str, bytes], ...]:
    return tuple((name, metadata) for name in names)


RANGE = protocols("range")

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


def result_of(request: Callable[[*Ts, Callable[[T], None]], None], *arguments: *Ts) -> T:
    """The result of a request that calls back with it before it returns."""
    results: list[T] = []
    request(*arguments, results.append)
    (result,) = results
    return result


@dataclass(eq=False)
class Call:
    """A JoinGroup or SyncGroup that was sent; it is its own token."""

    result: JoinResult | SyncResult | BatchResult | None = None

    @property
    def is_parked(self) -> bool:
        return self.result is None

    @property
    def error(self) -> ErrorCode:
        assert self.result is not None, "still parked"
        assert not isinstance(self.result, BatchResult), "a batch has an error for each"
        return self.result.error

    @property
    def joined(self) -> JoinResult:
        assert isinstance(self.result, JoinResult), "not answered, or not a join"
        return self.result

    @property
    def synced(self) -> SyncResult:
        assert isinstance(self.result, SyncResult), "not answered, or not a sync"
        return self.result


class CoordinatorHarness:
    """One coordinator that leads every partition, and its log. Methods default to the group "g".

    `answered` has the joins and syncs that were answered, in that order; `batches` what was appended, with the
    partition of each batch. Appends fail while `append_error` is set. `settled` is called after every step.
    """

    def __init__(self, **config: Any) -> None:
        self._numbers = count(1)
        self.config = CoordinatorConfig(**{"extension": BatchJoinExtension} | config)
        self.coordinator = self.new_coordinator()
        self.now_ms = START_MS
        self.history = StepChecker()
        self.answered: list[Call] = []
        self.batches: list[tuple[int, tuple[Record, ...]]] = []
        self.append_error = ErrorCode.NONE
        self.settled: Callable[[], object] = lambda: None
        for partition in self.partitions:
            self.coordinator.lead(partition, self.now_ms)

    def new_coordinator(self) -> Coordinator:
        """One more that writes to the same log; it leads nothing yet."""
        return Coordinator(self.config, lambda: f"uuid{next(self._numbers)}", self._append)

    @property
    def partitions(self) -> range:
        return range(self.config.offsets_topic_num_partitions)

    # The log

    def _append(self, partition: int, records: tuple[Record, ...], done: Callable[[ErrorCode], None]) -> None:
        assert records, "nothing to append"
        if not self.append_error:
            self.batches.append((partition, records))
        done(self.append_error)

    def records(self, partition: int) -> list[Record]:
        return [record for index, batch in self.batches if index == partition for record in batch]

    def hand_over(self, while_loading: Callable[[], object] = lambda: None, **config: Any) -> None:
        """Another coordinator, maybe with other settings, takes over all that is in the log."""
        for partition in self.partitions:
            self.coordinator.resign(partition, self.now_ms)
        self.distribute()
        self.config = replace(self.config, **config)
        self.coordinator = self.new_coordinator()
        for partition in self.partitions:
            self.coordinator.start_loading(partition)
        settled, self.settled = self.settled, lambda: None
        while_loading()
        self.settled = settled
        for partition in self.partitions:
            self.coordinator.finish_loading(partition, self.records(partition), self.now_ms)
        self.settle()

    def distribute(self) -> None:
        """Hands answers to their calls."""
        answers, self.coordinator.answers = self.coordinator.answers, []
        for token, result in answers:
            assert isinstance(token, Call)
            assert token.result is None, "answered twice"
            assert isinstance(result, JoinResult | SyncResult | BatchResult)
            token.result = result
            self.answered.append(token)

    def settle(self) -> None:
        """Hands answers to their calls and checks every group."""
        self.distribute()
        for group in self.coordinator.groups():
            check(group)
            self.history.check_step(group)
        self.settled()

    def group(self, group_id: str = "g") -> Group:
        group = self.coordinator.group(group_id)
        assert group is not None, "no such group"
        return group

    def state(self, group_id: str = "g") -> str:
        group = self.coordinator.group(group_id)
        return "-" if group is None else group.state.value

    # Time

    def advance(self, duration_ms: float) -> None:
        """Moves the clock, stopping at every deadline on the way."""
        end_ms = self.now_ms + duration_ms
        while (deadline_ms := self.coordinator.next_deadline()) is not None and deadline_ms <= end_ms:
            self.now_ms = max(self.now_ms, deadline_ms)
            self.coordinator.tick(self.now_ms)
            self.settle()
        self.now_ms = end_ms

    def advance_at_once(self, duration_ms: float) -> None:
        """Moves the clock with a single tick at the end."""
        self.now_ms += duration_ms
        self.coordinator.tick(self.now_ms)
        self.settle()

    # Requests

    def join(self, member_id: str = "", **options: Any) -> Call:
        """A JoinGroup as a client of version 3 sends it, unless `two_step` or `skip` say otherwise."""
        call = Call()
        request = JoinGroup(
            member_id=member_id,
            instance_id=options.pop("instance_id", None),
            client_id=options.pop("client_id", "client"),
            client_host=options.pop("client_host", "/127.0.0.1"),
            session_timeout_ms=options.pop("session_ms", SESSION_MS),
            rebalance_timeout_ms=options.pop("rebalance_ms", REBALANCE_MS),
            protocol_type=options.pop("protocol_type", "consumer"),
            protocols=options.pop("protocols", RANGE),
            requires_member_id=options.pop("two_step", False),
            supports_skip_assignment=options.pop("skip", True),
        )
        self.coordinator.join_group(options.pop("group_id", "g"), request, call, self.now_ms)
        assert not options, options
        self.settle()
        return call

    def pend(self, **options: Any) -> str:
        """The id that a dynamic member is told to join with."""
        call = self.join(two_step=True, **options)
        assert call.error is ErrorCode.MEMBER_ID_REQUIRED
        return call.joined.member_id

    def sync(
        self, member_id: str, generation_id: int, assignments: Iterable[tuple[str, bytes]] = (), **options: Any
    ) -> Call:
        call = Call()
        request = SyncGroup(
            generation_id=generation_id,
            member_id=member_id,
            instance_id=options.pop("instance_id", None),
            protocol_type=options.pop("protocol_type", None),
            protocol_name=options.pop("protocol_name", None),
            assignments=tuple(assignments),
        )
        self.coordinator.sync_group(options.pop("group_id", "g"), request, call, self.now_ms)
        assert not options, options
        self.settle()
        return call

    def heartbeat(
        self, member_id: str, generation_id: int, instance_id: str | None = None, group_id: str = "g"
    ) -> ErrorCode:
        error = self.coordinator.heartbeat(group_id, generation_id, member_id, instance_id, self.now_ms)
        self.settle()
        return error

    def leave(self, *members: tuple[str, str | None], group_id: str = "g") -> list[ErrorCode]:
        error, errors = result_of(self.coordinator.leave_group, group_id, members, self.now_ms)
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
        **fields: Any,
    ) -> ErrorCode:
        wanted = OffsetToCommit(topic=topic, partition=partition, offset=offset, **fields)
        errors = result_of(
            self.coordinator.commit_offsets, group_id, generation_id, member_id, instance_id, [wanted], self.now_ms
        )
        self.settle()
        return errors[0]

    def committed(self, topic: str = "t", partition: int = 0, group_id: str = "g") -> int | None:
        """The committed offset, or `None`."""
        error, offsets = self.coordinator.fetch_offsets(group_id, [(topic, partition)], self.now_ms)
        assert error is ErrorCode.NONE
        ((_, _, committed),) = offsets
        return None if committed is None else committed.offset

    # Whole groups

    def complete(self, size: int = 2, static: tuple[str, ...] = (), **options: Any) -> list[str]:
        """A new group with `size` dynamic members, then one for each instance id, up to CompletingRebalance.

        Returns:
            The member ids in the order they joined, so the leader's is the first.
        """
        calls = [self.join(**options) for _ in range(size)]
        calls += [self.join(instance_id=instance_id, **options) for instance_id in static]
        group_id = options.get("group_id", "g")
        while self.state(group_id) == "PreparingRebalance":
            self.advance(DELAY_MS)
        assert self.state(group_id) == "CompletingRebalance"
        return [call.joined.member_id for call in calls]

    def sync_all(self, member_ids: Iterable[str], group_id: str = "g") -> None:
        """Every member syncs, the leader last; each is assigned its own id as bytes."""
        group = self.group(group_id)
        ids = sorted(member_ids, key=lambda member_id: member_id == group.leader_id)
        for member_id in ids:
            assignments = [(i, i.encode()) for i in ids] if member_id == group.leader_id else []
            self.sync(member_id, group.generation_id, assignments, group_id=group_id)
        assert group.state.value == "Stable"

    def stable(self, size: int = 2, static: tuple[str, ...] = (), **options: Any) -> list[str]:
        """As `complete`, but up to Stable."""
        member_ids = self.complete(size, static, **options)
        self.sync_all(member_ids, options.get("group_id", "g"))
        return member_ids
