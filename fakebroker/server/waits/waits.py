"""Waits for conditions of a cluster. Conditions are evaluated in the cluster's thread after changes, not polled.

Meanwhile the Kafka consumers of a test can be polled. Timeouts are wall-clock seconds, also with a manual clock.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent import futures
from functools import partial
from typing import Any, Generic, TypeVar, overload

from fakebroker.cluster.call import Call
from fakebroker.cluster.cluster import Cluster
from fakebroker.cluster.commands.definition import check_type
from fakebroker.cluster.inspect.phrases import counted
from fakebroker.cluster.inspect.transaction_views import STATES, TransactionView
from fakebroker.cluster.inspect.views import GroupView
from fakebroker.coordinator.classic.states import GroupState
from fakebroker.coordinator.consumer.states import ConsumerGroupState, MemberState
from fakebroker.coordinator.history import DEAD
from fakebroker.coordinator.offset_store import CommittedOffset
from fakebroker.errors import (
    ClusterStopped,
    ConfigError,
    WaitTimeout,
    check_integer,
    check_number,
    one_of,
)
from fakebroker.server.event_loops import LoopEvent, checkpoint, run_in_thread
from fakebroker.server.lifecycle import ClusterServer
from fakebroker.server.waits.blocking_waits import WaitKind
from fakebroker.server.waits.conditions import (
    CommitCondition,
    Condition,
    GroupCondition,
    MemberCondition,
    PredicateCondition,
    RequestCondition,
    TransactionCondition,
)
from fakebroker.server.waits.polling import SETTLE_S, Assignments, ConsumerPoller, Polled, collecting
from fakebroker.topic_partition import parse_partition

T = TypeVar("T")

_IDLE_S = 0.005
"""How long to wait for the condition before consumers that had no records are polled again."""


class _Waiter(Generic[T]):
    """One pending wait. Calling it evaluates the condition; it returns True when the wait is over.

    Attributes:
        condition: The condition.
        result: The first result, or the error.
        settled: The result when polled consumers have received what made the condition hold.
    """

    def __init__(self, condition: Condition[T]) -> None:
        self.condition = condition
        self.result: futures.Future[T] = futures.Future()
        self.settled: T | None = None

    def __call__(self) -> bool:
        if self.result.done():
            return True
        try:
            found = self.condition.evaluate()
        except Exception as error:  # Raised by a predicate of the user: the wait raises it.
            self.result.set_exception(error)
            return True
        if not found:
            return False
        self.result.set_result(found)
        return True

    @property
    def is_fulfilled(self) -> bool:
        """Whether the condition has held."""
        return self.result.done() and self.result.exception() is None

    def settle(self, assignments: Assignments) -> bool:
        """Return whether polled consumers, which have these partitions, have received what fulfilled the condition."""
        if not self.condition.is_settled(assignments):
            return False
        self.settled = self.condition.latest(self.result.result())
        return True

    def fail(self) -> None:
        """End the wait because the cluster has stopped, unless the condition holds."""
        if not self():
            text = f"the cluster stopped during a wait for {self.condition.description}"
            self.result.set_exception(ClusterStopped(f"{text}\n{self.condition.describe_state()}"))


class Waits:
    """Creates conditions of one cluster, and waits for them.

    Args:
        server: Runs the cluster.
    """

    def __init__(self, server: ClusterServer) -> None:
        self._server = server
        self._cluster = server.cluster
        self._pending: list[_Waiter[Any]] = []
        server.on_stop.append(self._fail_all)

    # Conditions

    def condition(self, kind: WaitKind, arguments: Mapping[str, Any]) -> Condition[Any]:
        """Return the condition of a wait.

        Args:
            kind: What the wait is for.
            arguments: The arguments of the wait's method of `BlockingWaits`, except the timeout and `polling`. For a
                group or a transactional id, also `seen_changes`.

        Raises:
            ConfigError: An argument is invalid.
        """
        conditions: Mapping[WaitKind, Callable[..., Condition[Any]]] = {
            "state": self.group_in_state,
            "generation": self.group_past_generation,
            "member": self.member,
            "transaction": self.transaction_in_state,
            "commit": self.committed,
            "request": self.requested,
        }
        return conditions[kind](**arguments)

    def holds(self, what: str, predicate: Callable[[Cluster], T | None]) -> Condition[T]:
        """Return the condition that a predicate returns a true value; `what` describes it."""
        return PredicateCondition(self._cluster, self._server.now_ms, what, predicate)

    def group_in_state(
        self, group_id: str, state: str, members: int | None = None, *, seen_changes: int | None = None
    ) -> Condition[GroupView]:
        """Return the condition that a group is in a state, and has this number of members unless it is None.

        Args:
            group_id: The group.
            state: Kafka's name of the state.
            members: The number of members, or None.
            seen_changes: See `GroupCondition`.

        Raises:
            ConfigError: There is no such state, the id is not a string, or a number is not an integer >= 0.
        """
        if members is not None:
            check_integer("members", members, least=0)
        states = dict.fromkeys(each.value for each in (*GroupState, *ConsumerGroupState))
        if state not in states:
            raise ConfigError.of("state", state, one_of(states, state))
        return self._group(
            group_id,
            f"in {state}" + ("" if members is None else f" with {counted(members, 'member')}"),
            lambda name, _, size: name == state and members in (None, size),
            seen_changes,
            is_stable=state == GroupState.STABLE.value,
        )

    def group_past_generation(
        self, group_id: str, above: int, *, seen_changes: int | None = None
    ) -> Condition[GroupView]:
        """Return the condition that a group's generation is above a number.

        Args:
            group_id: The group.
            above: The number.
            seen_changes: See `GroupCondition`.

        Raises:
            ConfigError: The id is not a string, or a number is not an integer, or out of range.
        """
        check_integer("above", above, least=-1)
        return self._group(
            group_id,
            f"in a generation above {above}",
            lambda name, generation_id, _: name != GroupState.DEAD.value and generation_id > above,
            seen_changes,
        )

    def member(
        self,
        group_id: str,
        member: str,
        state: str | None = None,
        *,
        above: int | None = None,
        seen_changes: int | None = None,
    ) -> Condition[GroupView]:
        """Return the condition that a member of a consumer group (KIP-848) is in a state or in an epoch.

        Args:
            group_id: The group.
            member: Member id, instance id or client id.
            state: Kafka's name of the state; None for any.
            above: The member epoch must be above this number; None for any.
            seen_changes: See `GroupCondition`.

        Raises:
            ConfigError: There is no such state, an id is not a string, or a number is not an integer, or out of range.
        """
        for name, value in (("group_id", group_id), ("member", member)):
            check_type(name, value, str, "a string")
        states = [each.name for each in MemberState]
        if state is not None and state not in states:
            raise ConfigError.of("state", state, one_of(states, state))
        if above is not None:
            check_integer("above", above, least=-1)
        if seen_changes is not None:
            check_integer("seen_changes", seen_changes, least=0)
        return MemberCondition(
            self._cluster, self._server.now_ms, group_id, member, state, above, seen_changes=seen_changes
        )

    def _group(
        self,
        group_id: str,
        description: str,
        holds: Callable[[str, int, int], bool],
        seen_changes: int | None,
        *,
        is_stable: bool = False,
    ) -> Condition[GroupView]:
        check_type("group_id", group_id, str, "a string")
        if seen_changes is not None:
            check_integer("seen_changes", seen_changes, least=0)
        return GroupCondition(
            self._cluster,
            self._server.now_ms,
            group_id,
            description,
            holds,
            seen_changes=seen_changes,
            is_stable=is_stable,
        )

    def transaction_in_state(
        self,
        transactional_id: str,
        state: str | None = None,
        pending_state: str | None = None,
        *,
        seen_changes: int | None = None,
    ) -> Condition[TransactionView]:
        """Return the condition that a transactional id is in a state, with a pending next state unless that is None.

        Args:
            transactional_id: The transactional id.
            state: Kafka's name of the state; None for any.
            pending_state: Kafka's name of the next state, or None.
            seen_changes: See `HistoryCondition`.

        Raises:
            ConfigError: There is no such state, none is given, the id is not a string, or a number is not an integer
                >= 0.
        """
        check_type("transactional_id", transactional_id, str, "a string")
        if state is None and pending_state is None:
            raise ConfigError.missing("state", f"{one_of((*STATES, DEAD))}, or pending_state")
        for name, value in (("state", state), ("pending_state", pending_state)):
            if value is not None and value not in (*STATES, DEAD):
                raise ConfigError.of(name, value, one_of((*STATES, DEAD), value))
        if seen_changes is not None:
            check_integer("seen_changes", seen_changes, least=0)
        return TransactionCondition(
            self._cluster, self._server.now_ms, transactional_id, state, pending_state, seen_changes=seen_changes
        )

    def committed(self, group_id: str, partition: str, at_least: int) -> Condition[CommittedOffset]:
        """Return the condition that the committed offset of a partition is at least a number.

        Raises:
            ConfigError: The id is not a string, the partition is malformed, or the offset is not an integer >= 0.
        """
        check_type("group_id", group_id, str, "a string")
        check_integer("at_least", at_least, least=0)
        return CommitCondition(self._cluster, self._server.now_ms, group_id, parse_partition(partition), at_least)

    def requested(self, api: str | None = None, *, count: int = 1, **filters: object) -> Condition[list[Call]]:
        """Return the condition that the journal has a number of matching requests; see `JournalQueries.requests`.

        Raises:
            ConfigError: There is no such API, broker, error or filter, or the count is below 1; or no journal is kept.
        """
        check_integer("count", count, least=1)
        return self._server.run(lambda: RequestCondition(self._cluster, api, filters, count))

    # Waiting

    @overload
    def wait(self, condition: Condition[T], timeout_s: float, polling: None = None) -> T: ...

    @overload
    def wait(self, condition: Condition[T], timeout_s: float, polling: Sequence[Any] | None) -> T | Polled[T]: ...

    def wait(self, condition: Condition[T], timeout_s: float, polling: Sequence[Any] | None = None) -> T | Polled[T]:
        """Block the calling thread until a condition holds.

        Args:
            condition: The condition.
            timeout_s: Maximum wait in wall-clock seconds.
            polling: Consumers to poll meanwhile, in the calling thread; see `ConsumerPoller`.

        Returns:
            The first true value that `condition.evaluate` returned; with `polling` also what the consumers have read.

        Raises:
            WaitTimeout: The condition did not hold in time.
            ClusterStopped: The cluster stopped during the wait.
            PollError: A consumer failed.
            ConfigError: The cluster is not running, the calling thread is the cluster's, the timeout is negative, or
                an entry of `polling` cannot be polled.
        """
        check_number("timeout_s", timeout_s, least=0)
        if self._server.is_running and self._server.is_cluster_thread:
            raise ConfigError(f"waiting for {condition.description} in the cluster's thread: expected an _async method")
        poller = None if polling is None else ConsumerPoller(polling, is_async=False)
        waiter = _Waiter(condition)
        with collecting(poller):
            self._server.run(lambda: self._begin(waiter))
            try:
                if poller is None:
                    futures.wait([waiter.result], timeout_s)
                else:
                    self._poll(waiter, poller, timeout_s)
            finally:
                self._server.run(lambda: self._end(waiter))
            if not waiter.result.done():
                raise self._server.run(lambda: self._timeout(condition, timeout_s))
            value = waiter.settled or waiter.result.result()
        return value if poller is None else Polled(value, poller.records)

    def _poll(self, waiter: _Waiter[Any], poller: ConsumerPoller, timeout_s: float) -> None:
        """Poll consumers until the condition holds, and then until they have received their partitions."""
        is_over = waiter.result.done
        until_s = time.monotonic() + timeout_s
        while not is_over():
            read = len(poller.records)
            poller.poll(is_over)
            if waiter.condition.depends_on_clients:
                self._server.run(waiter)
            if is_over() or time.monotonic() >= until_s:
                break
            if len(poller.records) == read:
                futures.wait([waiter.result], _IDLE_S)
        until_s = time.monotonic() + SETTLE_S
        while waiter.is_fulfilled and time.monotonic() < until_s:
            if self._server.run(partial(waiter.settle, poller.assignments())):
                break
            poller.poll(lambda: False)
            time.sleep(_IDLE_S)

    @overload
    async def wait_async(self, condition: Condition[T], timeout_s: float, polling: None = None) -> T: ...

    @overload
    async def wait_async(
        self, condition: Condition[T], timeout_s: float, polling: Sequence[Any] | None
    ) -> T | Polled[T]: ...

    async def wait_async(
        self, condition: Condition[T], timeout_s: float, polling: Sequence[Any] | None = None
    ) -> T | Polled[T]:
        """Wait until a condition holds, like `wait`, in a task of trio or asyncio, in any thread.

        Consumers with coroutines are polled in the calling task. Each consumer without coroutines has its own thread.
        """
        check_number("timeout_s", timeout_s, least=0)
        poller = None if polling is None else ConsumerPoller(polling, is_async=True)
        waiter = _Waiter(condition)
        with collecting(poller):
            try:
                await self._server.run_async(lambda: self._begin(waiter))
                if waiter.result.done():
                    await checkpoint()  # Lets other tasks run, and allows cancellation, in a loop of waits.
                if poller is not None:
                    await self._poll_async(waiter, poller, timeout_s)
                elif not waiter.result.done():
                    await _event_of(waiter).wait(timeout_s)
            finally:
                self._server.run_soon(lambda: self._end(waiter))
                if poller is not None:
                    await run_in_thread(poller.close)
            if not waiter.result.done():
                raise await self._server.run_async(lambda: self._timeout(condition, timeout_s))
            value = waiter.settled or waiter.result.result()
        return value if poller is None else Polled(value, poller.records)

    async def _poll_async(self, waiter: _Waiter[Any], poller: ConsumerPoller, timeout_s: float) -> None:
        """Poll like `_poll`."""
        is_over, event = waiter.result.done, _event_of(waiter)
        until_s = time.monotonic() + timeout_s
        while not is_over():
            read = len(poller.records)
            await poller.poll_async(is_over)
            if waiter.condition.depends_on_clients:
                await self._server.run_async(waiter)
            if is_over() or time.monotonic() >= until_s:
                break
            if len(poller.records) == read:
                await event.wait(_IDLE_S)
        until_s = time.monotonic() + SETTLE_S
        while waiter.is_fulfilled and time.monotonic() < until_s:
            if await self._server.run_async(partial(waiter.settle, poller.assignments())):
                break
            await poller.poll_async(lambda: False)
            await LoopEvent().wait(_IDLE_S)

    # In the cluster's thread

    def _begin(self, waiter: _Waiter[Any]) -> None:
        condition = waiter.condition
        condition.begin()
        if waiter() or not self._server.is_running:
            condition.end()
            if not waiter.result.done():
                raise ConfigError(f"waiting for {condition.description}: expected a running cluster")
            return
        self._pending.append(waiter)
        self._server.reactor.watchers.append(waiter)
        if condition.observes_requests:
            self._server.reactor.observers.append(condition.observe)

    def _timeout(self, condition: Condition[Any], timeout_s: float) -> WaitTimeout:
        """Return the error of a wait whose condition was not met."""
        refusals = self._server.refusals.text()
        state = condition.describe_state() + (f"\n\n{refusals}" if refusals else "")
        return WaitTimeout.of(condition.description, timeout_s, state, condition.changes())

    def _end(self, waiter: _Waiter[Any]) -> None:
        if waiter not in self._pending:  # It was over at once, or canceled before it began.
            return
        self._pending.remove(waiter)
        waiter.condition.end()
        watchers, observers = self._server.reactor.watchers, self._server.reactor.observers
        if waiter in watchers:
            watchers.remove(waiter)
        if waiter.condition.observes_requests:
            observers.remove(waiter.condition.observe)

    def _fail_all(self) -> None:
        """Fail the pending waits, because the cluster has stopped."""
        for waiter in tuple(self._pending):
            waiter.fail()


def _event_of(waiter: _Waiter[Any]) -> LoopEvent:
    """Return an event that is set when a wait is over."""
    event = LoopEvent()
    waiter.result.add_done_callback(lambda _: event.set())
    return event
