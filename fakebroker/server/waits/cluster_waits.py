"""The methods of `FakeCluster` that wait: for states, generations, members, commits, requests, transactions."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar, Unpack, overload

from fakebroker.cluster.call import Call
from fakebroker.cluster.cluster import Cluster
from fakebroker.cluster.inspect.journal_queries import Filters
from fakebroker.cluster.inspect.transaction_views import TransactionView
from fakebroker.cluster.inspect.views import GroupView
from fakebroker.coordinator.offset_store import CommittedOffset
from fakebroker.server.waits.blocking_waits import DEFAULT_TIMEOUT_S, BlockingWaits, WaitKind
from fakebroker.server.waits.polling import Polled
from fakebroker.server.waits.waits import Waits

T = TypeVar("T")


class ClusterWaits(BlockingWaits):
    """Waits for changes of a cluster in this process: the waits of `BlockingWaits`, and `wait_until` for a predicate.

    Each wait also has an `..._async` method, which waits in a task of trio or asyncio.

    Attributes:
        waits: The conditions and waits behind these methods.
    """

    waits: Waits

    def _wait_for(
        self, kind: WaitKind, arguments: Mapping[str, Any], timeout_s: float, polling: Sequence[Any] | None
    ) -> Any:
        return self.waits.wait(self.waits.condition(kind, arguments), timeout_s, polling)

    @overload
    def wait_until(
        self,
        what: str,
        predicate: Callable[[Cluster], T | None],
        *,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        polling: None = None,
    ) -> T: ...

    @overload
    def wait_until(
        self,
        what: str,
        predicate: Callable[[Cluster], T | None],
        *,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        polling: Sequence[Any],
    ) -> Polled[T]: ...

    def wait_until(
        self,
        what: str,
        predicate: Callable[[Cluster], T | None],
        *,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        polling: Sequence[Any] | None = None,
    ) -> T | Polled[T]:
        """Wait until a predicate on the cluster returns a true value.

        Args:
            what: Describes the condition in error messages.
            predicate: Evaluated in the cluster's thread after each change, or after several that arrived together, and
                whenever consumers have been polled. It must be fast and change nothing, but may use consumers, such as
                `lambda _: len(consumer.assignment()) == 6`, and methods of the `FakeCluster`, such as
                `lambda _: len(fake_cluster.records("orders")) == 5`. Its argument is the `Cluster` inside.
            timeout_s: Maximum wait in wall-clock seconds.
            polling: Consumers to poll meanwhile.

        Returns:
            The first true value; with `polling`, a `Polled` with it and the records.

        Raises:
            WaitTimeout: The predicate did not return a true value in time.
            ClusterStopped: The cluster stopped meanwhile.
            PollError: A consumer failed.
            ConfigError: The cluster is not running, the calling thread is the cluster's thread, or an entry of
                `polling` cannot be polled. The other blocking waits raise these four errors in these cases, too.
        """
        condition = self.waits.holds(what, predicate)
        return self.waits.wait(condition, timeout_s, polling)

    @overload
    async def wait_until_async(
        self,
        what: str,
        predicate: Callable[[Cluster], T | None],
        *,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        polling: None = None,
    ) -> T: ...

    @overload
    async def wait_until_async(
        self,
        what: str,
        predicate: Callable[[Cluster], T | None],
        *,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        polling: Sequence[Any],
    ) -> Polled[T]: ...

    async def wait_until_async(
        self,
        what: str,
        predicate: Callable[[Cluster], T | None],
        *,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        polling: Sequence[Any] | None = None,
    ) -> T | Polled[T]:
        """Wait like `wait_until`, in a task of trio or asyncio."""
        condition = self.waits.holds(what, predicate)
        return await self.waits.wait_async(condition, timeout_s, polling)

    @overload
    async def wait_for_state_async(
        self,
        group_id: str,
        state: str,
        *,
        members: int | None = None,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        polling: None = None,
    ) -> GroupView: ...

    @overload
    async def wait_for_state_async(
        self,
        group_id: str,
        state: str,
        *,
        members: int | None = None,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        polling: Sequence[Any],
    ) -> Polled[GroupView]: ...

    async def wait_for_state_async(
        self,
        group_id: str,
        state: str,
        *,
        members: int | None = None,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        polling: Sequence[Any] | None = None,
    ) -> GroupView | Polled[GroupView]:
        """Wait like `wait_for_state`, in a task of trio or asyncio."""
        condition = self.waits.group_in_state(group_id, state, members)
        return await self.waits.wait_async(condition, timeout_s, polling)

    @overload
    async def wait_for_generation_async(
        self, group_id: str, *, above: int, timeout_s: float = DEFAULT_TIMEOUT_S, polling: None = None
    ) -> GroupView: ...

    @overload
    async def wait_for_generation_async(
        self, group_id: str, *, above: int, timeout_s: float = DEFAULT_TIMEOUT_S, polling: Sequence[Any]
    ) -> Polled[GroupView]: ...

    async def wait_for_generation_async(
        self, group_id: str, *, above: int, timeout_s: float = DEFAULT_TIMEOUT_S, polling: Sequence[Any] | None = None
    ) -> GroupView | Polled[GroupView]:
        """Wait like `wait_for_generation`, in a task of trio or asyncio."""
        condition = self.waits.group_past_generation(group_id, above)
        return await self.waits.wait_async(condition, timeout_s, polling)

    @overload
    async def wait_for_member_async(
        self,
        group_id: str,
        member: str,
        state: str | None = None,
        *,
        above: int | None = None,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        polling: None = None,
    ) -> GroupView: ...

    @overload
    async def wait_for_member_async(
        self,
        group_id: str,
        member: str,
        state: str | None = None,
        *,
        above: int | None = None,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        polling: Sequence[Any],
    ) -> Polled[GroupView]: ...

    async def wait_for_member_async(
        self,
        group_id: str,
        member: str,
        state: str | None = None,
        *,
        above: int | None = None,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        polling: Sequence[Any] | None = None,
    ) -> GroupView | Polled[GroupView]:
        """Wait like `wait_for_member`, in a task of trio or asyncio."""
        condition = self.waits.member(group_id, member, state, above=above)
        return await self.waits.wait_async(condition, timeout_s, polling)

    @overload
    async def wait_for_transaction_async(
        self,
        transactional_id: str,
        state: str | None = None,
        *,
        pending_state: str | None = None,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        polling: None = None,
    ) -> TransactionView: ...

    @overload
    async def wait_for_transaction_async(
        self,
        transactional_id: str,
        state: str | None = None,
        *,
        pending_state: str | None = None,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        polling: Sequence[Any],
    ) -> Polled[TransactionView]: ...

    async def wait_for_transaction_async(
        self,
        transactional_id: str,
        state: str | None = None,
        *,
        pending_state: str | None = None,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        polling: Sequence[Any] | None = None,
    ) -> TransactionView | Polled[TransactionView]:
        """Wait like `wait_for_transaction`, in a task of trio or asyncio."""
        condition = self.waits.transaction_in_state(transactional_id, state, pending_state)
        return await self.waits.wait_async(condition, timeout_s, polling)

    @overload
    async def wait_for_commit_async(
        self,
        group_id: str,
        partition: str,
        *,
        at_least: int,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        polling: None = None,
    ) -> CommittedOffset: ...

    @overload
    async def wait_for_commit_async(
        self,
        group_id: str,
        partition: str,
        *,
        at_least: int,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        polling: Sequence[Any],
    ) -> Polled[CommittedOffset]: ...

    async def wait_for_commit_async(
        self,
        group_id: str,
        partition: str,
        *,
        at_least: int,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        polling: Sequence[Any] | None = None,
    ) -> CommittedOffset | Polled[CommittedOffset]:
        """Wait like `wait_for_commit`, in a task of trio or asyncio."""
        condition = self.waits.committed(group_id, partition, at_least)
        return await self.waits.wait_async(condition, timeout_s, polling)

    @overload
    async def wait_for_request_async(
        self,
        api: str | None = None,
        client_id: str | None = None,
        *,
        count: int = 1,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        polling: None = None,
        **filters: Unpack[Filters],
    ) -> list[Call]: ...

    @overload
    async def wait_for_request_async(
        self,
        api: str | None = None,
        client_id: str | None = None,
        *,
        count: int = 1,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        polling: Sequence[Any],
        **filters: Unpack[Filters],
    ) -> Polled[list[Call]]: ...

    async def wait_for_request_async(
        self,
        api: str | None = None,
        client_id: str | None = None,
        *,
        count: int = 1,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        polling: Sequence[Any] | None = None,
        **filters: Unpack[Filters],
    ) -> list[Call] | Polled[list[Call]]:
        """Wait like `wait_for_request`, in a task of trio or asyncio."""
        condition = self.waits.requested(api, client_id=client_id, count=count, **filters)
        return await self.waits.wait_async(condition, timeout_s, polling)
