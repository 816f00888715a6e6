"""Waiting for conditions: of a cluster in this process, or in another one (`fakebroker.control.Client`).

`WaitingCluster` has the methods. `_waiting` is one wait as a generator. It yields what the calling thread or task has
to do next: run something where the cluster is, pause, or poll the consumers. A `Watch` evaluates the condition where
the cluster is. `LocalWatch` does so in the cluster's thread after each change, and sees states that last only a
moment.
"""

import threading
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, Protocol, TypeVar, cast

import trio

from fakebroker.cluster.handles.cluster import ClusterHandle, description_of
from fakebroker.cluster.handles.conditions import (
    DEFAULT_TIMEOUT_S,
    Condition,
    Found,
    HandleCondition,
    Predicate,
    found_at,
    handle_conditions,
    has_predicates,
)
from fakebroker.cluster.handles.definition import Owner, named_arguments
from fakebroker.cluster.handles.group import GroupHandle
from fakebroker.cluster.handles.local import Instant, Local
from fakebroker.cluster.handles.transaction import TransactionHandle
from fakebroker.cluster.inspect.views import BrokerView, GroupView
from fakebroker.coordinator.classic.states import GroupState
from fakebroker.coordinator.history import Recorded
from fakebroker.errors import ClusterStopped, ConditionNotMet, ConfigError, FakebrokerError, WaitTimeout, check_number
from fakebroker.server.clock import ManualClock
from fakebroker.server.event_loops import LoopEvent, checkpoint, run_in_thread
from fakebroker.server.lifecycle import ClusterServer
from fakebroker.server.polling import SETTLE_S, ConsumerPoller, Polling, collecting, have_received
from fakebroker.server.seed_tables import Seeds, seeds_from

T = TypeVar("T")

_IDLE_S = 0.005
"""How long to wait for a change before consumers that had no records are polled again."""
_NOT_RECEIVED = "It has held, but these consumers have not received the partitions that the group has assigned to them:"
_SAMPLE_S = 0.02
"""How long to wait for a change before a predicate is called again."""


def now_s() -> float:
    # Libraries that freeze the time of tests replace `time.monotonic`.
    return time.clock_gettime(time.CLOCK_MONOTONIC)


class Watch(Protocol):
    """One pending wait, where the cluster is. A condition with predicates cannot be evaluated there.

    Attributes:
        found: What the condition has found, as soon as it has held. With predicates, the caller sets it.
        error: Why the wait cannot go on.
        changes: How often the cluster has changed. It is counted for conditions with predicates only.
    """

    found: Found | None
    error: Exception | None
    changes: int

    def begin(self) -> None:
        """Evaluate the condition, and again after each change. Called by `WaitOwner.call`."""
        ...

    def pause(self, changes: int, timeout_s: float) -> None:
        """Return when the condition has held, when `self.changes` is no longer `changes`, or at the timeout."""
        ...

    async def pause_async(self, changes: int, timeout_s: float) -> None:
        """Wait like `pause`, in a task."""
        ...

    def state(self, *, has_timed_out: bool = True) -> str:
        """Return the actual state, as text. Called by `WaitOwner.call`."""
        ...

    def close(self) -> None:
        """End the wait. May be called more than once, in any thread, also if `begin` has not been called yet."""
        ...


class WaitOwner(Owner, Protocol):
    """What runs the methods of handles, and waits.

    `wait` and `wait_async` are for handles that wait themselves (`handles.faults.WaitingOwner`).
    """

    def wait(self, condition: Condition[T], timeout_s: float) -> T:
        return WaitingCluster(self).wait(condition, timeout_s)

    async def wait_async(self, condition: Condition[T], timeout_s: float) -> T:
        return await WaitingCluster(self).wait_async(condition, timeout_s)

    def real(self, name: str) -> str:
        """Return the name that clients use for a topic, a group or a transactional id."""
        return name

    def own(self, real: str) -> str:
        """Return the name in handles and views for a name that clients use."""
        return real

    def watch(self, condition: Condition[Any]) -> Watch:
        """Return a wait that has not begun."""
        ...

    def look(self, leaves: Sequence[HandleCondition[Any]]) -> list[Found | None]:
        """Return what conditions find in one moment, the present; called by `call`."""
        ...

    def call(self, step: Callable[[], T]) -> T:
        """Run a step where it may use the cluster."""
        ...

    async def call_async(self, step: Callable[[], T]) -> T:
        """Run a step like `call`, without blocking the calling task's thread."""
        ...


class LocalOwner(Local, WaitOwner):
    """The owner of handles of a cluster over TCP in this process.

    Args:
        server: Runs the cluster.
        options: As for `Local`.
    """

    def __init__(self, server: ClusterServer, **options: Any) -> None:
        super().__init__(server.cluster, server, **options)
        self.server = server
        self.watches: list[LocalWatch] = []
        server.on_stop.append(self._stop)

    def perform(self, handle: Any, definition: Any, arguments: dict[str, Any]) -> Any:
        if definition.kind == "view" and definition.result in (BrokerView, list[BrokerView]):
            self.server.check_started()  # Brokers have no ports before.
        return super().perform(handle, definition, arguments)

    def watch(self, condition: Condition[Any]) -> "LocalWatch":
        return LocalWatch(self, condition)

    def look(self, leaves: Sequence[HandleCondition[Any]]) -> list[Found | None]:
        at = Instant(self)
        return [leaf.found(at) for leaf in leaves]

    def call(self, step: Callable[[], T]) -> T:
        return self.server.run(step)

    async def call_async(self, step: Callable[[], T]) -> T:
        return await self.server.run_async(step)

    def _stop(self) -> None:
        for watch in tuple(self.watches):
            watch.stop()


class LocalWatch:
    """A pending wait for a condition of a cluster in this process. `begin` and `stop` run in the cluster's thread.

    Without predicates, it evaluates the condition. With predicates, it tells the waiting thread of changes.

    Attributes:
        condition: The condition.
        found, error, changes: As in `Watch`.
    """

    def __init__(self, owner: LocalOwner, condition: Condition[Any]) -> None:
        self.condition = condition
        self.found: Found | None = None
        self.error: Exception | None = None
        self.changes = 0
        self._owner, self._server, self._cluster = owner, owner.server, owner.cluster
        self._has_predicates = has_predicates(condition)
        self._memory: dict[int, Any] = {}
        self._notify: Callable[[], None] = lambda: None
        self._begun_ms = owner.now_ms()
        leaves = handle_conditions(condition)
        self._groups = {each.key["group_id"] for each in leaves if each.definition.handle is GroupHandle}
        self._ids = {each.key["transactional_id"] for each in leaves if each.definition.handle is TransactionHandle}
        self._looks_after_requests = any(each.definition.after_requests for each in leaves)
        self._is_closed = False
        self._histories: list[Any] = []  # of groups and of transactional ids, while it listens to them

    def begin(self) -> None:
        """Evaluate the condition, and again after each change.

        Raises:
            ConfigError: The cluster is not running, and the condition does not hold.
        """
        if self._is_closed or (not self._has_predicates and self._evaluate(Instant(self._owner, self._memory))):
            return
        if not self._server.is_running:
            raise ConfigError(f"waiting for {self.condition}: expected a running cluster")
        self._owner.watches.append(self)
        self._server.reactor.watchers.append(self._on_change)
        if not self._has_predicates:
            self._listen()
            if self._looks_after_requests:
                self._server.reactor.observers.append(self._on_request)

    def _listen(self) -> None:
        """Listen to the histories, which have states that last only a moment."""
        self._histories = [self._cluster.history, self._cluster.transactions.history]
        for history, listener in zip(self._histories, (self._on_group, self._on_transaction), strict=True):
            history.listeners.append(listener)

    def _stop_listening(self) -> None:
        for history, listener in zip(self._histories, (self._on_group, self._on_transaction), strict=False):
            history.listeners.remove(listener)
        self._histories = []

    def _on_group(self, group_id: str, moments: Sequence[Recorded[Any]]) -> None:
        if group_id in self._groups:
            for each in moments:
                self._evaluate(Instant(self._owner, self._memory, group=(group_id, each.moment())))

    def _on_transaction(self, transactional_id: str, moments: Sequence[Recorded[Any]]) -> None:
        if transactional_id in self._ids:
            for each in moments:
                self._evaluate(Instant(self._owner, self._memory, transaction=(transactional_id, each.moment())))

    def _on_request(self) -> None:
        self._evaluate(Instant(self._owner, self._memory))

    def _on_change(self) -> bool:
        """Evaluate the condition, or count a change. The reactor calls it no more after it has returned True."""
        if self._has_predicates:
            self.changes += 1
            self._notify()
            return self._is_closed
        if self._histories and self._histories[0] is not self._cluster.history:  # The cluster was reset.
            self._stop_listening()
            self._listen()
        return self._is_closed or self._evaluate(Instant(self._owner, self._memory))

    def _evaluate(self, at: Instant) -> bool:
        """Evaluate the condition, unless the wait is over. Return whether it is over."""
        if self.found is None and self.error is None:
            try:
                self.found = found_at(self.condition, at)
            except Exception as error:  # The waiting thread raises it.
                self.error = error
            if self.found is not None or self.error is not None:
                self._notify()
        return self.found is not None or self.error is not None

    def stop(self) -> None:
        """End the wait because the cluster has stopped, unless the condition holds."""
        if self._has_predicates or not self._evaluate(Instant(self._owner, self._memory)):
            state = self.state(has_timed_out=False)
            self.error = ClusterStopped(f"the cluster stopped during a wait for {self.condition}\n{state}")
            self._notify()

    def close(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            self._server.run_soon(self._end)  # It runs after `begin`, if that is on its way to the cluster's thread.

    def _end(self) -> None:
        self._stop_listening()
        if self in self._owner.watches:
            self._owner.watches.remove(self)
            watchers, observers = self._server.reactor.watchers, self._server.reactor.observers
            if self._on_change in watchers:
                watchers.remove(self._on_change)
            if self._on_request in observers:
                observers.remove(self._on_request)

    def _is_over(self, changes: int) -> bool:
        return self.found is not None or self.error is not None or self.changes != changes

    def pause(self, changes: int, timeout_s: float) -> None:
        event = threading.Event()
        self._notify = event.set
        if not self._is_over(changes):  # It may have been over before `_notify` was set.
            event.wait(timeout_s)

    async def pause_async(self, changes: int, timeout_s: float) -> None:
        event = LoopEvent()
        self._notify = event.set
        if not self._is_over(changes):
            await event.wait(timeout_s)

    def state(self, *, has_timed_out: bool = True) -> str:
        texts = [description_of(self.condition, Instant(self._owner))]
        is_manual = isinstance(self._server.clock, ManualClock)
        if has_timed_out and is_manual and self._server.now_ms() == self._begun_ms:
            texts.append("The brokers' clock is manual, and stood still during the wait; `advance` moves it.")
        texts.append(self._server.closed_connections())
        return "\n\n".join(filter(None, texts))


# One wait, in steps


class _Call(NamedTuple):
    """Run a step where it may use the cluster."""

    step: Callable[[], Any]


class _Pause(NamedTuple):
    """Wait for a change."""

    watch: Watch
    changes: int
    timeout_s: float


class _Rest(NamedTuple):
    """Let other threads and tasks run, also when nothing changes."""


class _Poll(NamedTuple):
    """Poll each consumer once, as long as the wait is not over."""

    is_over: Callable[[], bool]


_Steps = Generator[_Call | _Pause | _Rest | _Poll, Any, T]


def _waiting(
    owner: WaitOwner, condition: Condition[Any], watch: Watch, timeout_s: float, poller: ConsumerPoller | None
) -> _Steps[Any]:
    """Wait for a condition, and return its finding.

    Raises:
        WaitTimeout: The condition has not held in time.
        ClusterStopped: The cluster stopped.
    """
    until_s = now_s() + timeout_s
    calls_predicates = has_predicates(condition)
    yield _Call(watch.begin)
    has_polled = poller is None
    while True:
        is_last = has_polled and now_s() >= until_s
        changes = watch.changes
        if calls_predicates and watch.error is None:
            watch.found = yield from _evaluated_here(owner, condition)
        if watch.found is not None:
            found = watch.found.value
            if poller is None:
                return found
            value, has_settled = yield from _settled(owner, condition, poller, found, until_s)
            if has_settled:
                return value
            state = yield _Call(watch.state)
            raise WaitTimeout.of(str(condition), timeout_s, f"{state}\n\n{_NOT_RECEIVED}\n{poller.assignments_text()}")
        if watch.error is not None:
            raise watch.error
        if is_last:
            raise WaitTimeout.of(str(condition), timeout_s, (yield _Call(watch.state)))
        if poller is not None:
            had_records = yield _Poll(lambda: watch.found is not None)
            has_polled = True
            idle_s = 0.0 if had_records else _IDLE_S
        else:
            idle_s = _SAMPLE_S if calls_predicates else timeout_s
        yield _Pause(watch, changes, max(0.0, min(until_s - now_s(), idle_s)))


def _settled(
    owner: WaitOwner, condition: Condition[Any], poller: ConsumerPoller, found: Any, until_s: float
) -> _Steps[tuple[Any, bool]]:
    """After a condition that a group is Stable, poll the consumers until they have their partitions.

    Returns:
        The condition's finding then, or `found` if it does not hold any more. And whether they have their partitions.
    """
    if not any(map(_is_stable, handle_conditions(condition))):
        return found, True
    late_s = now_s() + SETTLE_S
    until_s = max(until_s, late_s)
    while not (yield from _have_partitions(owner, condition, poller, is_late=now_s() >= late_s)):
        if now_s() >= until_s:
            return found, False
        yield _Poll(lambda: False)
        yield _Rest()
    now = yield from _evaluated_here(owner, condition)
    return found if now is None else now.value, True


def _evaluated_here(owner: WaitOwner, condition: Condition[Any]) -> _Steps[Found | None]:
    """Evaluate a condition in the present, with its predicates, and return its finding.

    The other conditions are evaluated before and after the predicates. The whole condition has to hold both times.
    """
    predicates = [each for each in condition.leaves() if isinstance(each, Predicate)]
    in_cluster = handle_conditions(condition)
    found: dict[int, Found | None] = {}
    if in_cluster:
        found.update(zip(map(id, in_cluster), (yield _Call(lambda: owner.look(in_cluster))), strict=True))
    found.update((id(each), each.found()) for each in predicates)
    result = condition.evaluate(lambda leaf: found[id(leaf)])
    if result is None or not predicates or not in_cluster:
        return result
    found.update(zip(map(id, in_cluster), (yield _Call(lambda: owner.look(in_cluster))), strict=True))
    return condition.evaluate(lambda leaf: found[id(leaf)])


def _is_stable(leaf: HandleCondition[Any]) -> bool:
    """Return whether a condition says that a group is Stable, so that its members receive assignments."""
    name, stable = leaf.definition.name, GroupState.STABLE.value
    return name == "group.stable" or (name == "group.state" and leaf.arguments.get("state") == stable)


def _have_partitions(
    owner: WaitOwner, condition: Condition[Any], poller: ConsumerPoller, *, is_late: bool
) -> _Steps[bool]:
    """Return whether the polled consumers have the partitions that the groups of a condition have assigned to them.

    If they are late, neither groups that rebalance again nor consumers without a member id are waited for: the former
    may wait for members that nobody polls, the latter may belong to no group.
    """
    assignments = [
        each._replace(partitions=frozenset((owner.own(topic), index) for topic, index in each.partitions))
        for each in poller.assignments()
        if each.member_id or not is_late
    ]
    for leaf in handle_conditions(condition):
        if _is_stable(leaf):
            handle = GroupHandle(owner, leaf.key["group_id"])
            view: GroupView = yield _Call(handle.describe)
            if is_late and view.state != GroupState.STABLE.value:
                continue
            topics = {topic for member in view.members for topic in member.subscribed_topics or ()}
            exist = [ClusterHandle(owner).topic(topic).exists() for topic in topics]
            found = yield _Call(lambda: owner.look(cast("list[HandleCondition[Any]]", exist)))  # noqa: B023  # called now
            if not have_received(view, assignments, has_topics=any(each is not None for each in found)):
                return False
    return True


class WaitingCluster(ClusterHandle):
    """A cluster that can be waited for, in this or another process."""

    _owner: WaitOwner

    def name(self, name: str) -> str:
        """Return the name that the application has to use for a topic, a group or a transactional id.

        It is the same name, except on a `KafkaCluster` with a prefix. So a test that uses `name` runs on both.

        Args:
            name: The name in handles, such as "orders".
        """
        return self._owner.real(name)

    @named_arguments
    def wait(
        self,
        condition: Condition[T],
        timeout_s: float = DEFAULT_TIMEOUT_S,
        *,
        polling: Polling | Sequence[Any] | None = None,
    ) -> T:
        """Wait until a condition holds: `cluster.wait(cluster.group("billing").stable(members=2))`.

        A condition of a group or a transactional id is also fulfilled by a state that has lasted only a moment since
        the call. `a & b` waits for one moment in which both hold.

        Args:
            condition: The condition.
            timeout_s: Maximum wait in wall-clock seconds, under any clock.
            polling: Consumers to poll meanwhile: a list, or a `Polling`, which keeps the records. After a
                condition that a group is Stable, they are polled until each has the partitions that the group has
                assigned to it.

        Returns:
            What the condition has found: a view for one condition, a flat tuple for `a & b & c`, None for `a | b` and
            `~a`, also within a tuple.

        Raises:
            WaitTimeout: The condition has not held in time. The message describes the actual state.
            ClusterStopped: The cluster stopped meanwhile.
            PollError: A consumer failed.
            FakebrokerError: The caller is a task of an event loop, which the wait would block.
            ConfigError: The cluster is not running, or an argument is invalid.
        """
        _refuse_in_loop("wait")
        return cast(T, self._wait(condition, "timeout_s", timeout_s, polling))

    @named_arguments
    async def wait_async(
        self,
        condition: Condition[T],
        timeout_s: float = DEFAULT_TIMEOUT_S,
        *,
        polling: Polling | Sequence[Any] | None = None,
    ) -> T:
        """Wait like `wait`, in a task of trio or asyncio. Consumers without coroutines each have a thread."""
        return cast(T, await self._wait_async(condition, "timeout_s", timeout_s, polling))

    @named_arguments
    def stays(self, condition: Condition[Any], for_s: float, *, polling: Polling | Sequence[Any] | None = None) -> None:
        """Wait for some time, and require that a condition holds in every moment of it.

        `cluster.stays(~cluster.topic("dlq").has(1), for_s=0.3)`. Predicates are called after changes of the cluster and
        every 20 ms, so that what happens between two calls is not seen.

        Args:
            condition: The condition.
            for_s: The time in wall-clock seconds, under any clock.
            polling: Consumers to poll meanwhile, as for `wait`.

        Raises:
            ConditionNotMet: The condition did not hold in a moment. The message describes the state.
            ClusterStopped, PollError, FakebrokerError, ConfigError: As for `wait`.
        """
        _refuse_in_loop("stays")
        try:
            self._wait(~_checked(condition), "for_s", for_s, polling)
        except WaitTimeout:
            return
        raise self._owner.call(lambda: self._not_met(condition, for_s))

    @named_arguments
    async def stays_async(
        self, condition: Condition[Any], for_s: float, *, polling: Polling | Sequence[Any] | None = None
    ) -> None:
        """Wait like `stays`, in a task of trio or asyncio."""
        try:
            await self._wait_async(~_checked(condition), "for_s", for_s, polling)
        except WaitTimeout:
            return
        raise await self._owner.call_async(lambda: self._not_met(condition, for_s))

    def _not_met(self, condition: Condition[Any], for_s: float) -> ConditionNotMet:
        return condition_not_met(condition, for_s, self._owner.watch(condition))

    def _wait(
        self, condition: Condition[Any], field: str, timeout_s: float, polling: Polling | Sequence[Any] | None
    ) -> Any:
        check_number(field, timeout_s, least=0)
        poller = None if polling is None else ConsumerPoller(polling, is_async=False)
        watch = self._owner.watch(_checked(condition))
        steps = _waiting(self._owner, condition, watch, timeout_s, poller)
        answer: Any = None
        with collecting(poller):
            try:
                while True:
                    step = steps.send(answer)
                    if isinstance(step, _Call):
                        answer = self._owner.call(step.step)
                    elif isinstance(step, _Pause):
                        step.watch.pause(step.changes, step.timeout_s)
                    elif isinstance(step, _Rest):
                        threading.Event().wait(_IDLE_S)
                    else:
                        assert poller is not None
                        read = len(poller.records)
                        poller.poll(step.is_over)
                        answer = len(poller.records) > read
            except StopIteration as end:
                return end.value
            finally:
                watch.close()

    async def _wait_async(
        self, condition: Condition[Any], field: str, timeout_s: float, polling: Polling | Sequence[Any] | None
    ) -> Any:
        check_number(field, timeout_s, least=0)
        poller = None if polling is None else ConsumerPoller(polling, is_async=True)
        watch = self._owner.watch(_checked(condition))
        steps = _waiting(self._owner, condition, watch, timeout_s, poller)
        answer: Any = None
        with collecting(poller):
            try:
                await checkpoint()  # Lets other tasks run, and allows cancellation, in a loop of waits.
                while True:
                    step = steps.send(answer)
                    if isinstance(step, _Call):
                        answer = await self._owner.call_async(step.step)
                    elif isinstance(step, _Pause):
                        await step.watch.pause_async(step.changes, step.timeout_s)
                    elif isinstance(step, _Rest):
                        await LoopEvent().wait(_IDLE_S)
                    else:
                        assert poller is not None
                        read = len(poller.records)
                        await poller.poll_async(step.is_over)
                        answer = len(poller.records) > read
            except StopIteration as end:
                return end.value
            finally:
                watch.close()
                if poller is not None:
                    await run_in_thread(poller.close)

    @named_arguments
    def holds(self, condition: Condition[Any]) -> bool:
        """Return whether a condition holds now: `assert cluster.holds(cluster.group("billing").stable())`.

        Args:
            condition: The condition. Its predicates are called in this thread.

        Raises:
            ConfigError: It is not a condition.
        """
        steps, answer = _evaluated_here(self._owner, _checked(condition)), None
        while True:
            try:
                step = steps.send(answer)
            except StopIteration as end:
                return end.value is not None
            assert isinstance(step, _Call)
            answer = self._owner.call(step.step)

    def seed_groups(self, groups: Seeds) -> None:
        """Create many groups at once. If one of them cannot be created, none is.

        Args:
            groups: Seeds, or mappings with their fields; or a table (pandas.DataFrame, pyarrow.Table) or the path of a
                Parquet file. Each row is about a group, and has a committed offset, a member, both or neither. Columns:
                `group_id`; `topic`, `partition`, and `offset` or `lag`; `client_id` and `instance_id` of a member; and
                `topics`, `members` (a number), `generation`, `state`, `protocol`, `type` as in a
                `fakebroker.GroupSeed`.

        Raises:
            ConfigError: A group exists, or a value or column is invalid; or the file is missing, or pyarrow is not
                installed.
        """
        super().seed_groups(seeds_from(groups))


def _checked(condition: Condition[Any]) -> Condition[Any]:
    if not isinstance(condition, Condition):
        expected = "a condition, such as cluster.group('billing').stable(), or predicate(what, function)"
        raise ConfigError.of("condition", condition, expected)
    return condition


def condition_not_met(condition: Condition[Any], for_s: float, watch: Watch) -> ConditionNotMet:
    """Return the error of `stays`. Must be called where the cluster is, like `Watch.state`."""
    return ConditionNotMet(f"it did not hold for {for_s:g} s: {condition}\n{watch.state(has_timed_out=False)}")


def _refuse_in_loop(name: str) -> None:
    """Refuse to block an event loop: its other tasks could not go on, such as clients for which the wait is.

    Raises:
        FakebrokerError: The caller is a task of trio or asyncio.
    """
    is_in_task = trio.lowlevel.in_trio_task()
    if not is_in_task:
        import asyncio  # not at the top: see event_loops.py

        # There is no task in code that uses Playwright's sync API, though it runs in the loop of Playwright.
        with suppress(RuntimeError):  # There is no loop.
            is_in_task = asyncio.current_task() is not None
    if is_in_task:
        raise FakebrokerError(f"{name}() would block the event loop of the calling task: use {name}_async()")
