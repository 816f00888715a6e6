"""The methods of `FakeCluster` that wait: for states, generations, members, commits, requests, transactions."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar, Unpack, overload

from fakebroker.cluster.call import Call
from fakebroker.cluster.cluster import Cluster
from fakebroker.cluster.inspect.journal_filters import Filters
from fakebroker.cluster.inspect.transaction_views import (
    TransactionView,
)
from fakebroker.cluster.inspect.views import (
    GroupView,
)
from fakebroker.coordinator.group.offsets import CommittedOffset
from fakebroker.server.waits.polling import Polled
from fakebroker.server.waits.waits import DEFAULT_TIMEOUT_S, Waits

T = TypeVar("T")


class ClusterWaits:
    """Waits for changes of a cluster, blocking or, as `..._async`, in a task of trio or asyncio.

    Attributes:
        waits: The conditions and waits behind these methods.
    """

    waits: Waits

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
    def wait_for_state(
        self,
        group_id: str,
        state: str,
        *,
        members: int | None = None,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        polling: None = None,
    ) -> GroupView: ...

    @overload
    def wait_for_state(
        self,
        group_id: str,
        state: str,
        *,
        members: int | None = None,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        polling: Sequence[Any],
    ) -> Polled[GroupView]: ...

    def wait_for_state(
        self,
        group_id: str,
        state: str,
        *,
        members: int | None = None,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        polling: Sequence[Any] | None = None,
    ) -> GroupView | Polled[GroupView]:
        """Wait until a group is in a state, or has been since the call, however short.

        With `polling`, a wait for "Stable" lasts until the consumers have received the partitions assigned to them, but
        at most 2 s longer.

        Args:
            group_id: The group, which need not exist yet.
            state: The state, such as "Stable", or of a consumer group (KIP-848) "Assigning" or "Reconciling"; "Dead"
                for a group that does not exist.
            members: Number of members that the group must have while it is in the state; None for any number.
            timeout_s: Maximum wait in wall-clock seconds.
            polling: Consumers to poll meanwhile.

        Returns:
            The group when it was in the state; with `polling`, a `Polled` with it and the records. If a single request
            or timer started and ended the state, then state, generation, leader and member ids are those of the state,
            and everything else is as it was after that request or timer. A member that it removed has only its id.

        Raises:
            WaitTimeout: The group did not reach the state in time.
            ConfigError: There is no such state, or the group id is not a string.
        """
        condition = self.waits.group_in_state(group_id, state, members)
        return self.waits.wait(condition, timeout_s, polling)

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
    def wait_for_generation(
        self, group_id: str, *, above: int, timeout_s: float = DEFAULT_TIMEOUT_S, polling: None = None
    ) -> GroupView: ...

    @overload
    def wait_for_generation(
        self, group_id: str, *, above: int, timeout_s: float = DEFAULT_TIMEOUT_S, polling: Sequence[Any]
    ) -> Polled[GroupView]: ...

    def wait_for_generation(
        self, group_id: str, *, above: int, timeout_s: float = DEFAULT_TIMEOUT_S, polling: Sequence[Any] | None = None
    ) -> GroupView | Polled[GroupView]:
        """Wait until a group's generation is above a number, in any state, or has been since the call.

        Args:
            group_id: The group, which need not exist yet.
            above: A generation id; of a consumer group (KIP-848), a group epoch.
            timeout_s: Maximum wait in wall-clock seconds.
            polling: Consumers to poll meanwhile.

        Returns:
            The group at that moment, as in `wait_for_state`; with `polling`, a `Polled` with it and the records.

        Raises:
            WaitTimeout: The group did not reach a higher generation in time.
            ConfigError: The generation is not an integer, or the group id is not a string.
        """
        condition = self.waits.group_past_generation(group_id, above)
        return self.waits.wait(condition, timeout_s, polling)

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
    def wait_for_member(
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
    def wait_for_member(
        self,
        group_id: str,
        member: str,
        state: str | None = None,
        *,
        above: int | None = None,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        polling: Sequence[Any],
    ) -> Polled[GroupView]: ...

    def wait_for_member(
        self,
        group_id: str,
        member: str,
        state: str | None = None,
        *,
        above: int | None = None,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        polling: Sequence[Any] | None = None,
    ) -> GroupView | Polled[GroupView]:
        """Wait until a member of a consumer group (KIP-848) is in a state or epoch, or has been since the call.

        Args:
            group_id: The group, which need not exist yet.
            member: Member id, instance id or client id.
            state: The state: "STABLE", "UNREVOKED_PARTITIONS" (it has to give up partitions) or "UNRELEASED_PARTITIONS"
                (it waits for partitions of others). None: any state.
            above: A member epoch, which that of the member must exceed. None: any epoch.
            timeout_s: Maximum wait in wall-clock seconds.
            polling: Consumers to poll meanwhile.

        Returns:
            The group at that moment, as in `wait_for_state`; with `polling`, a `Polled` with it and the records.

        Raises:
            WaitTimeout: The member did not reach the state or epoch in time.
            ConfigError: There is no such state, the epoch is not an integer, or an id is not a string.
        """
        condition = self.waits.member(group_id, member, state, above=above)
        return self.waits.wait(condition, timeout_s, polling)

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
    def wait_for_transaction(
        self,
        transactional_id: str,
        state: str | None = None,
        *,
        pending_state: str | None = None,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        polling: None = None,
    ) -> TransactionView: ...

    @overload
    def wait_for_transaction(
        self,
        transactional_id: str,
        state: str | None = None,
        *,
        pending_state: str | None = None,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        polling: Sequence[Any],
    ) -> Polled[TransactionView]: ...

    def wait_for_transaction(
        self,
        transactional_id: str,
        state: str | None = None,
        *,
        pending_state: str | None = None,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        polling: Sequence[Any] | None = None,
    ) -> TransactionView | Polled[TransactionView]:
        """Wait until a transactional id is in a state, or has been since the call, however short.

        Args:
            transactional_id: The transactional id, which need not exist yet.
            state: The state, such as "CompleteCommit"; "Dead" for an id that does not exist. None: any state.
            pending_state: The next state that must be pending, such as "PrepareCommit" while it is held, or
                "CompleteCommit" while markers are missing. Only the present is looked at then.
            timeout_s: Maximum wait in wall-clock seconds.
            polling: Consumers to poll meanwhile.

        Returns:
            The id when it was in the state; with `polling`, a `Polled` with it and the records. If the state has ended
            since, then state, producer and partitions are those of the state, and everything else is the present.

        Raises:
            WaitTimeout: The id did not reach the state in time.
            ConfigError: There is no such state, no state is given, or the id is not a string.
        """
        condition = self.waits.transaction_in_state(transactional_id, state, pending_state)
        return self.waits.wait(condition, timeout_s, polling)

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
    def wait_for_commit(
        self,
        group_id: str,
        partition: str,
        *,
        at_least: int,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        polling: None = None,
    ) -> CommittedOffset: ...

    @overload
    def wait_for_commit(
        self,
        group_id: str,
        partition: str,
        *,
        at_least: int,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        polling: Sequence[Any],
    ) -> Polled[CommittedOffset]: ...

    def wait_for_commit(
        self,
        group_id: str,
        partition: str,
        *,
        at_least: int,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        polling: Sequence[Any] | None = None,
    ) -> CommittedOffset | Polled[CommittedOffset]:
        """Wait until a group has committed an offset of a partition, or had since the call.

        Args:
            group_id: The group, which need not exist yet.
            partition: Topic and partition, such as "orders-0".
            at_least: The offset to reach, or exceed.
            timeout_s: Maximum wait in wall-clock seconds.
            polling: Consumers to poll meanwhile.

        Returns:
            The committed offset at that moment; with `polling`, a `Polled` with it and the records.

        Raises:
            WaitTimeout: The offset was not reached in time.
            ConfigError: The partition is malformed, or the group id is not a string.
        """
        condition = self.waits.committed(group_id, partition, at_least)
        return self.waits.wait(condition, timeout_s, polling)

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
    def wait_for_request(
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
    def wait_for_request(
        self,
        api: str | None = None,
        client_id: str | None = None,
        *,
        count: int = 1,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        polling: Sequence[Any],
        **filters: Unpack[Filters],
    ) -> Polled[list[Call]]: ...

    def wait_for_request(
        self,
        api: str | None = None,
        client_id: str | None = None,
        *,
        count: int = 1,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        polling: Sequence[Any] | None = None,
        **filters: Unpack[Filters],
    ) -> list[Call] | Polled[list[Call]]:
        """Wait until the brokers have received matching requests, including those that the journal already has.

        Args:
            api: API by Kafka's name, such as "JoinGroup"; None for any.
            client_id: The client; None for any.
            count: Number of requests; to wait for one more, pass `len(cluster.requests(...)) + 1`.
            timeout_s: Maximum wait in wall-clock seconds.
            polling: Consumers to poll meanwhile.
            filters: Further filters, all of which must match, as in `requests`: `group`, `member`, `broker`,
                `connection`, `error`, `instance_id`, `transactional_id`, `producer_id`, `topic`, `partition`,
                `version`, `fault`, `since` (which excludes older requests).

        Returns:
            All matching requests, oldest first, also those that the journal has dropped since the call; the response to
            some may be pending. With `polling`, a `Polled` with them and the records.

        Raises:
            WaitTimeout: There were fewer matching requests before the timeout.
            ConfigError: An API, broker, error or filter is unknown; the count is below 1; or no journal is kept.
        """
        condition = self.waits.requested(api, {"client_id": client_id, **filters}, count)
        return self.waits.wait(condition, timeout_s, polling)

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
        condition = self.waits.requested(api, {"client_id": client_id, **filters}, count)
        return await self.waits.wait_async(condition, timeout_s, polling)
