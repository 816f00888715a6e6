"""The waits that a cluster in this process and one in another process (`fakebroker.control.Client`) have in common."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, Literal, Unpack, overload

from fakebroker.cluster.call import Call
from fakebroker.cluster.inspect.journal_queries import Filters
from fakebroker.cluster.inspect.transaction_views import TransactionView
from fakebroker.cluster.inspect.views import GroupView
from fakebroker.coordinator.offset_store import CommittedOffset
from fakebroker.server.waits.polling import Polled

DEFAULT_TIMEOUT_S = 10.0

WaitKind = Literal["state", "generation", "member", "transaction", "commit", "request"]
"""What a wait is for: the last part of its path in the HTTP API."""


class BlockingWaits(ABC):
    """Waits for changes of a cluster, which block the calling thread."""

    @abstractmethod
    def _wait_for(
        self, kind: WaitKind, arguments: Mapping[str, Any], timeout_s: float, polling: Sequence[Any] | None
    ) -> Any:
        """Wait, and return the result; with `polling`, a `Polled` with it.

        Args:
            kind: What the wait is for.
            arguments: The arguments of the method, except `timeout_s` and `polling`.
            timeout_s: Maximum wait in wall-clock seconds.
            polling: Consumers to poll meanwhile.
        """

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
            or timer started and ended the state, then state, generation, leader and member ids are as in the state, and
            everything else is as it was after that request or timer. A member that was removed then has only its id.

        Raises:
            WaitTimeout: The group did not reach the state in time.
            ConfigError: There is no such state, or the group id is not a string.
        """
        given = {"group_id": group_id, "state": state, "members": members}
        found: GroupView | Polled[GroupView] = self._wait_for("state", given, timeout_s, polling)
        return found

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
        given = {"group_id": group_id, "above": above}
        found: GroupView | Polled[GroupView] = self._wait_for("generation", given, timeout_s, polling)
        return found

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
            above: The epoch that the member's epoch must exceed. None: any epoch.
            timeout_s: Maximum wait in wall-clock seconds.
            polling: Consumers to poll meanwhile.

        Returns:
            The group at that moment, as in `wait_for_state`; with `polling`, a `Polled` with it and the records.

        Raises:
            WaitTimeout: The member did not reach the state or epoch in time.
            ConfigError: There is no such state, the epoch is not an integer, or an id is not a string.
        """
        given = {"group_id": group_id, "member": member, "state": state, "above": above}
        found: GroupView | Polled[GroupView] = self._wait_for("member", given, timeout_s, polling)
        return found

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
            since, then state, producer and partitions are as in the state, and everything else is current.

        Raises:
            WaitTimeout: The id did not reach the state in time.
            ConfigError: There is no such state, no state is given, or the id is not a string.
        """
        given = {"transactional_id": transactional_id, "state": state, "pending_state": pending_state}
        found: TransactionView | Polled[TransactionView] = self._wait_for("transaction", given, timeout_s, polling)
        return found

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
        given = {"group_id": group_id, "partition": partition, "at_least": at_least}
        found: CommittedOffset | Polled[CommittedOffset] = self._wait_for("commit", given, timeout_s, polling)
        return found

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
            filters: Further filters; requests must match all of them. See `Filters`; `since` excludes older requests.

        Returns:
            All matching requests, oldest first, also those that the journal has dropped since the call; the response to
            some may be pending. With `polling`, a `Polled` with them and the records.

        Raises:
            WaitTimeout: There were fewer matching requests before the timeout.
            ConfigError: An API, broker, error or filter is unknown; the count is below 1; or no journal is kept.
        """
        given = {"api": api, "client_id": client_id, "count": count, **filters}
        found: list[Call] | Polled[list[Call]] = self._wait_for("request", given, timeout_s, polling)
        return found
