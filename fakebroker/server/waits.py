"""Waiting for what must come, without polling: the cluster's own thread looks, each time that something has happened.

Knows how to wait, and what a group, a commit and a request are; whatever else is for `wait_until`.
"""

import threading
from collections.abc import Callable
from concurrent import futures
from dataclasses import dataclass
from typing import Generic, TypeVar, Unpack

import trio

from fakebroker.cluster.call import Call
from fakebroker.cluster.cluster import Cluster
from fakebroker.cluster.inspect.journal_filters import Filters, described
from fakebroker.coordinator.group.classic.group import Group
from fakebroker.coordinator.group.classic.states import GroupState
from fakebroker.coordinator.group.offsets import CommittedOffset
from fakebroker.errors import ConfigError, WaitTimeout
from fakebroker.server.explaining import Explaining
from fakebroker.server.journaling import Journaling
from fakebroker.server.views import GroupView, find_group, view_group

T = TypeVar("T")

_TIMEOUT_S = 10.0
_SHOWN = 20


@dataclass(frozen=True, slots=True)
class _Wish(Generic[T]):
    """What is waited for.

    Attributes:
        what: In words.
        look: What was found; None or anything else that counts as false if it has not come.
        tell: What there is instead, for a person.
    """

    what: str
    look: Callable[[], T | None]
    tell: Callable[[], str]


class _Waiter(Generic[T]):
    """One who waits. Called after each round of the cluster, in its thread; True once there is no need to any more."""

    def __init__(self, look: Callable[[], T | None]) -> None:
        self._look = look
        self.found: futures.Future[T] = futures.Future()

    def __call__(self) -> bool:
        try:
            found = self._look()
        except Exception as error:  # A predicate's own; it belongs to who waits.
            self.found.set_exception(error)
            return True
        if not found:
            return False
        self.found.set_result(found)
        return True


class Waiting(Explaining, Journaling):
    """Waiting for the cluster. Timeouts are in seconds of real time, whatever the brokers' clock is.

    A method blocks its caller's thread, which must not be the one that the cluster runs in; what ends in `_async` does
    the same in a trio task. `WaitTimeout` shows what there was instead.
    """

    def wait_until(self, what: str, predicate: Callable[[Cluster], T | None], *, timeout_s: float = _TIMEOUT_S) -> T:
        """Wait until something holds.

        Args:
            what: What is waited for, in words, for the error.
            predicate: Looks at the cluster itself, in its thread, each time that something has happened: it has to be
                quick, and to change nothing.
            timeout_s: How long to wait.

        Returns:
            What the predicate returned, which is the first that counts as true.

        Raises:
            WaitTimeout: It never held.
        """
        return self._wait(self._wish(what, predicate), timeout_s)

    async def wait_until_async(
        self, what: str, predicate: Callable[[Cluster], T | None], *, timeout_s: float = _TIMEOUT_S
    ) -> T:
        """`wait_until`, in a trio task."""
        return await self._wait_async(self._wish(what, predicate), timeout_s)

    def wait_for_state(
        self, group_id: str, state: str, *, members: int | None = None, timeout_s: float = _TIMEOUT_S
    ) -> GroupView:
        """Wait until a group is in a state.

        Args:
            group_id: The group.
            state: Kafka's name of it, such as "Stable"; "Dead" is a group that is not there.
            members: How many members it has then, if that matters.
            timeout_s: How long to wait.

        Returns:
            The group at that moment.

        Raises:
            WaitTimeout: It never was.
            ConfigError: There is no such state.
        """
        return self._wait(self._state_wish(group_id, state, members), timeout_s)

    async def wait_for_state_async(
        self, group_id: str, state: str, *, members: int | None = None, timeout_s: float = _TIMEOUT_S
    ) -> GroupView:
        """`wait_for_state`, in a trio task."""
        return await self._wait_async(self._state_wish(group_id, state, members), timeout_s)

    def wait_for_generation(self, group_id: str, *, above: int, timeout_s: float = _TIMEOUT_S) -> GroupView:
        """Wait until a group's generation is above a number; the group may be in any state then.

        Returns:
            The group at that moment.

        Raises:
            WaitTimeout: It never was.
        """
        return self._wait(self._generation_wish(group_id, above), timeout_s)

    async def wait_for_generation_async(self, group_id: str, *, above: int, timeout_s: float = _TIMEOUT_S) -> GroupView:
        """`wait_for_generation`, in a trio task."""
        return await self._wait_async(self._generation_wish(group_id, above), timeout_s)

    def wait_for_commit(
        self, group_id: str, partition: str, *, at_least: int, timeout_s: float = _TIMEOUT_S
    ) -> CommittedOffset:
        """Wait until a group has committed an offset.

        Args:
            group_id: The group.
            partition: Topic and number, such as "orders-0".
            at_least: The offset, or a higher one.
            timeout_s: How long to wait.

        Returns:
            What is committed at that moment.

        Raises:
            WaitTimeout: It never did.
            ConfigError: The partition is none.
        """
        return self._wait(self._commit_wish(group_id, partition, at_least), timeout_s)

    async def wait_for_commit_async(
        self, group_id: str, partition: str, *, at_least: int, timeout_s: float = _TIMEOUT_S
    ) -> CommittedOffset:
        """`wait_for_commit`, in a trio task."""
        return await self._wait_async(self._commit_wish(group_id, partition, at_least), timeout_s)

    def wait_for_request(
        self,
        api: str | None = None,
        client_id: str | None = None,
        *,
        count: int = 1,
        timeout_s: float = _TIMEOUT_S,
        **filters: Unpack[Filters],
    ) -> list[Call]:
        """Wait until requests have come. Those that the journal has already count as well.

        Args:
            api: Of this API, by Kafka's name, such as "JoinGroup".
            client_id: Of this client.
            count: How many; to wait for another one, `cluster.count(...) + 1`.
            timeout_s: How long to wait.
            filters: Which are all of this; see `Filters`. `since` makes older ones not count.

        Returns:
            They and all others of that kind, oldest first; they may not be answered yet.

        Raises:
            WaitTimeout: They never came.
            ConfigError: There is no such API, broker, error or filter, or the count is below 1; or no journal is kept.
        """
        return self._wait(self._request_wish(api, {"client_id": client_id, **filters}, count), timeout_s)

    async def wait_for_request_async(
        self,
        api: str | None = None,
        client_id: str | None = None,
        *,
        count: int = 1,
        timeout_s: float = _TIMEOUT_S,
        **filters: Unpack[Filters],
    ) -> list[Call]:
        """`wait_for_request`, in a trio task."""
        return await self._wait_async(self._request_wish(api, {"client_id": client_id, **filters}, count), timeout_s)

    # What is waited for

    def _wish(self, what: str, predicate: Callable[[Cluster], T | None]) -> _Wish[T]:
        def tell() -> str:
            return "\n".join(str(self.timeline(group_id)) for group_id in self.cluster.history.group_ids(_SHOWN))

        return _Wish(what, lambda: predicate(self.cluster), tell)

    def _group_wish(self, group_id: str, what: str, holds: Callable[[Group | None], bool]) -> _Wish[GroupView]:
        def look() -> GroupView | None:
            if not holds(find_group(self.cluster, group_id)):
                return None
            return view_group(self.cluster, group_id, self.clock.now_ms())

        return _Wish(f"group {group_id} {what}", look, lambda: self._told(group_id))

    def _state_wish(self, group_id: str, state: str, members: int | None) -> _Wish[GroupView]:
        states = [each.value for each in GroupState]
        if state not in states:
            raise ConfigError(f"state {state!r}: expected one of {', '.join(states)}")

        def holds(group: Group | None) -> bool:
            if group is None:
                return state == GroupState.DEAD.value and not members
            return group.state.value == state and members in (None, len(group.members))

        return self._group_wish(
            group_id, f"in {state}" + ("" if members is None else f" with {members} members"), holds
        )

    def _generation_wish(self, group_id: str, above: int) -> _Wish[GroupView]:
        return self._group_wish(
            group_id,
            f"in a generation above {above}",
            lambda group: group is not None and group.generation_id > above,
        )

    def _commit_wish(self, group_id: str, partition: str, at_least: int) -> _Wish[CommittedOffset]:
        topic, _, index = partition.rpartition("-")
        if not (topic and index.isascii() and index.isdigit()):
            raise ConfigError(f'partition {partition!r}: expected a topic and a number, such as "orders-0"')

        def committed() -> CommittedOffset | None:
            group = find_group(self.cluster, group_id)
            return group.offsets.get(topic, int(index)) if group else None

        def look() -> CommittedOffset | None:
            found = committed()
            return found if found is not None and found.offset >= at_least else None

        def tell() -> str:
            found = committed()
            return f"committed: {'nothing' if found is None else found.offset}\n{self._told(group_id)}"

        return _Wish(f"group {group_id} with at least {at_least} committed for {partition}", look, tell)

    def _request_wish(self, api: str | None, filters: dict[str, object], count: int) -> _Wish[list[Call]]:
        if count < 1:
            raise ConfigError(f"count={count}: expected 1 or more")
        matches = self.journal_view().matcher(api, filters)
        journal = self.cluster.journal
        seen = journal.dropped
        owed: list[tuple[int, Call]] = []
        found: list[tuple[int, Call]] = []

        def look() -> list[Call] | None:
            # Only those are looked at that are new, or whose answer may be what is meant.
            nonlocal seen, owed
            calls = tuple(journal)
            first = max(seen, journal.dropped)
            new = enumerate(calls[first - journal.dropped :], first)
            asked, owed, seen = [*owed, *new], [], journal.added
            for numbered in asked:
                if matches(numbered[1]):
                    found.append(numbered)
                elif numbered[1].answered_ms is None:
                    owed.append(numbered)
            return [call for _, call in sorted(found, key=lambda each: each[0])] if len(found) >= count else None

        def tell() -> str:
            return f"came: {len(found)}; {self.journal_view().report(_SHOWN)}"

        return _Wish(f"{count} of {described(api, filters)}", look, tell)

    def _told(self, group_id: str) -> str:
        return f"{self.explain(group_id)}\n\n{self.timeline(group_id)}"

    # Waiting

    def _wait(self, wish: _Wish[T], timeout_s: float) -> T:
        if self._token is not None and self._home == threading.get_ident():
            raise ConfigError(f"waiting for {wish.what}: this thread is the cluster's own; await what ends in _async")
        waiter = self._begin(wish)
        try:
            futures.wait([waiter.found], timeout_s)
        finally:
            self._end(waiter)
        return self._result(waiter, wish, timeout_s)

    async def _wait_async(self, wish: _Wish[T], timeout_s: float) -> T:
        waiter = self._begin(wish)
        if waiter.found.done():
            await trio.lowlevel.checkpoint()  # Who waits again and again leaves time for others, and can be canceled.
        else:
            await self._until_found(waiter, timeout_s)
        return self._result(waiter, wish, timeout_s)

    async def _until_found(self, waiter: _Waiter[T], timeout_s: float) -> None:
        has_come, token = trio.Event(), trio.lowlevel.current_trio_token()
        waiter.found.add_done_callback(lambda _: token.run_sync_soon(has_come.set))
        try:
            with trio.move_on_after(timeout_s):
                await has_come.wait()
        finally:
            self._end(waiter)

    def _begin(self, wish: _Wish[T]) -> _Waiter[T]:
        waiter = _Waiter(wish.look)

        def begin() -> None:
            if waiter():
                return
            if self._token is None:
                raise ConfigError(f"waiting for {wish.what}: the cluster does not run, so nothing more will come")
            self._reactor.watchers.append(waiter)

        self._call(begin)
        return waiter

    def _end(self, waiter: _Waiter[T]) -> None:
        def end() -> None:
            if waiter in self._reactor.watchers:
                self._reactor.watchers.remove(waiter)

        if not waiter.found.done():
            self._call(end)

    def _result(self, waiter: _Waiter[T], wish: _Wish[T], timeout_s: float) -> T:
        if not waiter.found.done():
            raise WaitTimeout(f"never came, within {timeout_s:g} s: {wish.what}\n{wish.tell()}")
        return waiter.found.result()
