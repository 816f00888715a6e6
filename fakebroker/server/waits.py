"""Waits for conditions of a cluster. Conditions are evaluated in the cluster's thread after each change, not polled.

Timeouts are wall-clock seconds, also with a manual clock.
"""

from collections.abc import Callable, Mapping
from concurrent import futures
from dataclasses import dataclass
from typing import Generic, TypeVar

import trio

from fakebroker.cluster.call import Call
from fakebroker.cluster.cluster import Cluster
from fakebroker.cluster.inspect.explain import explain
from fakebroker.cluster.inspect.journal_filters import described
from fakebroker.cluster.inspect.journal_queries import view_journal
from fakebroker.cluster.inspect.views import GroupView, find_group, timeline_of, view_group
from fakebroker.coordinator.group.classic.group import Group
from fakebroker.coordinator.group.classic.states import GroupState
from fakebroker.coordinator.group.offsets import CommittedOffset
from fakebroker.errors import ConfigError, WaitTimeout, check_integer, check_number, one_of
from fakebroker.server.lifecycle import ClusterServer
from fakebroker.topic_partition import format_partitions, parse_partition

T = TypeVar("T")

DEFAULT_TIMEOUT_S = 10.0
_SHOWN = 20
"""Maximum number of groups, or of requests, in the error of a wait."""


@dataclass(frozen=True, slots=True)
class Condition(Generic[T]):
    """A condition of a cluster.

    Attributes:
        description: Describes the condition in errors: "group g in Stable".
        evaluate: Returns the result of the wait, or a false value while the condition does not hold. Called in the
            cluster's thread.
        describe_state: Returns the current state as text, for errors. Called in the waiting thread.
    """

    description: str
    evaluate: Callable[[], T | None]
    describe_state: Callable[[], str]


class _Waiter(Generic[T]):
    """One pending wait. Calling it evaluates the condition; it returns True when the wait is over."""

    def __init__(self, evaluate: Callable[[], T | None]) -> None:
        self._evaluate = evaluate
        self.result: futures.Future[T] = futures.Future()

    def __call__(self) -> bool:
        try:
            found = self._evaluate()
        except Exception as error:  # Raised by a predicate of the user: the wait raises it.
            self.result.set_exception(error)
            return True
        if not found:
            return False
        self.result.set_result(found)
        return True


class Waits:
    """Creates conditions of one cluster, and waits for them.

    Args:
        server: Runs the cluster.
    """

    def __init__(self, server: ClusterServer) -> None:
        self._server = server
        self._cluster = server.cluster

    # Conditions

    def holds(self, description: str, predicate: Callable[[Cluster], T | None]) -> Condition[T]:
        """Return the condition that a predicate returns a true value."""

        def timelines() -> str:
            group_ids = self._cluster.history.group_ids(_SHOWN)
            return "\n".join(self._timeline(group_id) for group_id in group_ids)

        return Condition(description, lambda: predicate(self._cluster), timelines)

    def group_in_state(self, group_id: str, state: str, members: int | None) -> Condition[GroupView]:
        """Return the condition that a group is in a state, and has this number of members unless it is None.

        Raises:
            ConfigError: There is no such state, or the number is not an integer >= 0.
        """
        if members is not None:
            check_integer("members", members, least=0)
        states = [each.value for each in GroupState]
        if state not in states:
            raise ConfigError.of("state", state, one_of(states, state))

        def holds(group: Group | None) -> bool:
            if group is None:
                return state == GroupState.DEAD.value and not members
            return group.state.value == state and members in (None, len(group.members))

        return self._group(group_id, f"in {state}" + ("" if members is None else f" with {members} members"), holds)

    def group_past_generation(self, group_id: str, generation: int) -> Condition[GroupView]:
        """Return the condition that a group's generation is above a number.

        Raises:
            ConfigError: The number is not an integer.
        """
        check_integer("above", generation)
        return self._group(
            group_id,
            f"in a generation above {generation}",
            lambda group: group is not None and group.generation_id > generation,
        )

    def _group(self, group_id: str, description: str, holds: Callable[[Group | None], bool]) -> Condition[GroupView]:
        def evaluate() -> GroupView | None:
            if not holds(find_group(self._cluster, group_id)):
                return None
            return view_group(self._cluster, group_id, self._server.now_ms())

        return Condition(f"group {group_id} {description}", evaluate, lambda: self._explanation(group_id))

    def committed(self, group_id: str, partition: str, at_least: int) -> Condition[CommittedOffset]:
        """Return the condition that the committed offset of a partition is at least a number.

        Raises:
            ConfigError: The partition is malformed, or the offset is not an integer.
        """
        check_integer("at_least", at_least)
        topic, index = parse_partition(partition)

        def find() -> CommittedOffset | None:
            group = find_group(self._cluster, group_id)
            return group.offsets.get(topic, index) if group else None

        def evaluate() -> CommittedOffset | None:
            found = find()
            return found if found is not None and found.offset >= at_least else None

        def describe_state() -> str:
            found = find()
            return f"committed: {'nothing' if found is None else found.offset}\n{self._explanation(group_id)}"

        description = f"group {group_id} with at least {at_least} committed for {format_partitions([(topic, index)])}"
        return Condition(description, evaluate, describe_state)

    def requested(self, api: str | None, filters: Mapping[str, object], count: int) -> Condition[list[Call]]:
        """Return the condition that the journal has a number of matching requests; see `JournalQueries.requests`.

        Raises:
            ConfigError: There is no such API, broker, error or filter, or the count is below 1; or no journal is kept.
        """
        check_integer("count", count, least=1)
        matches = self._server.run(lambda: view_journal(self._cluster)).matcher(api, filters)
        journal = self._cluster.journal
        # Calls are numbered in the order in which they were added to the journal. The journal drops the oldest ones.
        seen = journal.dropped
        unanswered: list[tuple[int, Call]] = []
        found: list[tuple[int, Call]] = []

        def evaluate() -> list[Call] | None:
            # Test only new calls, and calls without a response so far, because a filter may match the response.
            nonlocal seen, unanswered
            calls = tuple(journal)
            first = max(seen, journal.dropped)
            candidates = [*unanswered, *enumerate(calls[first - journal.dropped :], first)]
            unanswered, seen = [], journal.added
            for numbered in candidates:
                if matches(numbered[1]):
                    found.append(numbered)
                elif numbered[1].answered_ms is None:
                    unanswered.append(numbered)
            return [call for _, call in sorted(found, key=lambda each: each[0])] if len(found) >= count else None

        def describe_state() -> str:
            return f"received: {len(found)}; {self._server.run(lambda: view_journal(self._cluster)).report(_SHOWN)}"

        return Condition(f"{count} of {described(api, filters)}", evaluate, describe_state)

    def _timeline(self, group_id: str) -> str:
        return str(self._server.run(lambda: timeline_of(self._cluster, group_id, self._server.now_ms())))

    def _explanation(self, group_id: str) -> str:
        text = self._server.run(lambda: explain(self._cluster, group_id, self._server.now_ms()))
        return f"{text}\n\n{self._timeline(group_id)}"

    # Waiting

    def wait(self, condition: Condition[T], timeout_s: float) -> T:
        """Block the calling thread until a condition holds.

        Args:
            condition: The condition.
            timeout_s: Maximum wait in wall-clock seconds.

        Returns:
            The first true value that `condition.evaluate` returned.

        Raises:
            WaitTimeout: The condition did not hold in time.
            ConfigError: The cluster is not running, the calling thread is the cluster's, or the timeout is negative.
        """
        check_number("timeout_s", timeout_s, least=0)
        if self._server.is_running and self._server.is_cluster_thread:
            raise ConfigError(f"waiting for {condition.description} in the cluster's thread: expected an _async method")
        waiter = self._begin(condition)
        try:
            futures.wait([waiter.result], timeout_s)
        finally:
            self._end(waiter)
        return self._result(waiter, condition, timeout_s)

    async def wait_async(self, condition: Condition[T], timeout_s: float) -> T:
        """Wait until a condition holds, like `wait`, in a trio task of any thread."""
        check_number("timeout_s", timeout_s, least=0)
        waiter = self._begin(condition)
        if waiter.result.done():
            await trio.lowlevel.checkpoint()  # Lets other tasks run, and allows cancellation, in a loop of waits.
        else:
            await self._until_done(waiter, timeout_s)
        return self._result(waiter, condition, timeout_s)

    async def _until_done(self, waiter: _Waiter[T], timeout_s: float) -> None:
        done, token = trio.Event(), trio.lowlevel.current_trio_token()
        waiter.result.add_done_callback(lambda _: token.run_sync_soon(done.set))
        try:
            with trio.move_on_after(timeout_s):
                await done.wait()
        finally:
            self._end(waiter)

    def _begin(self, condition: Condition[T]) -> _Waiter[T]:
        waiter = _Waiter(condition.evaluate)

        def begin() -> None:
            if waiter():
                return
            if not self._server.is_running:
                raise ConfigError(f"waiting for {condition.description}: expected a running cluster")
            self._server.reactor.watchers.append(waiter)

        self._server.run(begin)
        return waiter

    def _end(self, waiter: _Waiter[T]) -> None:
        def end() -> None:
            watchers = self._server.reactor.watchers
            if waiter in watchers:
                watchers.remove(waiter)

        if not waiter.result.done():
            self._server.run(end)

    def _result(self, waiter: _Waiter[T], condition: Condition[T], timeout_s: float) -> T:
        if not waiter.result.done():
            raise WaitTimeout(
                f"not reached within {timeout_s:g} s: {condition.description}\n{condition.describe_state()}"
            )
        return waiter.result.result()
