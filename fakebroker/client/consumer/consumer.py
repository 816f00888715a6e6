"""A Kafka consumer for trio: one task tree, no threads, no blocking calls.

Connects `ConsumerCore`, which decides what to send and what responses mean, to connections, the clock and the
application's callbacks.
"""

import base64
import inspect
import logging
import math
import re
import time
import uuid
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack

import trio

from fakebroker.client.brokers import Exchange
from fakebroker.client.consumer.consumer_core import ConsumerCore
from fakebroker.client.consumer.consumer_settings import ConsumerOptions, ConsumerSettings
from fakebroker.client.consumer.group_offsets import OffsetOperation
from fakebroker.client.consumer.outbound import Lane, OutboundRequest, RebalanceEvent
from fakebroker.client.consumer.records import ConsumerRecord
from fakebroker.client.errors import CommitFailed, GroupFailed, UnsupportedVersion
from fakebroker.client.security import PLAINTEXT, ClientSecurity
from fakebroker.client.transport import DEFAULT_CONNECT_TIMEOUT_MS, addresses
from fakebroker.client.transport_security import TransportSecurity
from fakebroker.client.trio_brokers import Alarm, TrioBrokers, check_in_trio
from fakebroker.errors import ErrorCode, WaitTimeout, check_number, one_of
from fakebroker.protocol.messages.join_group import JoinGroupRequest
from fakebroker.protocol.messages.sync_group import SyncGroupRequest
from fakebroker.topic_partition import TopicPartition, format_partitions

T = TypeVar("T")


def _new_member_id() -> str:
    """Return a random UUID as Kafka's clients write it (`Uuid.toString`)."""
    return base64.urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode()


_log = logging.getLogger(__name__)

RebalanceListener = Callable[[tuple[TopicPartition, ...]], Awaitable[object] | object]
"""A callback for partitions: a plain or async function."""

_SILENT_S = 1.0
"""Time after opening during which no warnings are logged, because the first connections are still being made."""

DEFAULT_TIMEOUT_S = 60.0
"""Kafka's default of `default.api.timeout.ms`."""


class Consumer:
    """Reads topics, alone or as a member of a group. Use it as an async context manager, from one task.

    Between polls background tasks send heartbeats and fetch records ahead. Callbacks run in `poll`, in `unsubscribe`
    and when the context is left. Why polls return no records, for example because a topic does not exist or brokers
    cannot be reached, is raised once (see `poll`) and then logged as a warning.

    Args:
        bootstrap_servers: "HOST:PORT", several separated by commas, or a list of them.
        security: How connections are encrypted and authenticated.
        settings: See `ConsumerSettings`.

    Raises:
        ConfigError: A setting is invalid, or a file of `security` cannot be read.
        FakebrokerError: On entering the context: the caller does not run in trio.
    """

    def __init__(
        self,
        bootstrap_servers: str | Sequence[str],
        *,
        security: ClientSecurity = PLAINTEXT,
        **settings: Unpack[ConsumerOptions],
    ) -> None:
        addresses(bootstrap_servers)
        for name in settings:
            if name not in ConsumerOptions.__annotations__:
                expected = one_of(ConsumerOptions.__annotations__, name)
                raise TypeError(f"Consumer() got an unexpected keyword argument {name!r}: expected {expected}")
        self._security = TransportSecurity(security)
        self._bootstrap_servers = bootstrap_servers
        self._settings = ConsumerSettings(**settings)
        self._core = ConsumerCore(self._settings, _new_member_id)
        self._listeners: dict[RebalanceEvent, RebalanceListener | None] = {}
        self._is_polling = False
        self._changed = trio.Event()
        self._alarm = Alarm(
            self._now_ms, lambda: self._core.next_deadline() or math.inf, lambda: self._call(self._core.tick)
        )
        self._pending: dict[OutboundRequest, Exchange] = {}
        self._epoch_s = self._opened_s = 0.0
        self._logged = ""
        self._nursery: trio.Nursery | None = None
        self._nursery_manager: AbstractAsyncContextManager[trio.Nursery]
        self._brokers: TrioBrokers

    async def __aenter__(self) -> Self:
        check_in_trio("the consumer")
        if self._epoch_s:
            raise trio.ClosedResourceError("the consumer was opened before and cannot be reopened: create another one")
        # Monotonic time since the Unix epoch: the system clock at the start, trio's clock from then on.
        self._opened_s = time.time()
        self._epoch_s = self._opened_s - trio.current_time()
        self._nursery_manager = trio.open_nursery()
        nursery, is_open = await self._nursery_manager.__aenter__(), trio.Event()
        nursery.start_soon(self._run_tasks, is_open)
        with trio.CancelScope(shield=True):
            await is_open.wait()
        return self

    async def _run_tasks(self, is_open: trio.Event) -> None:
        """Run the background tasks; shielded, because leaving the group after a cancellation needs them."""
        with trio.CancelScope(shield=True) as self._tasks_scope:
            async with trio.open_nursery() as self._nursery:
                self._brokers = TrioBrokers(
                    self._bootstrap_servers,
                    self._settings.client_id,
                    self._nursery,
                    request_timeout_ms=self._settings.request_timeout_ms,
                    # Connecting includes the response to ApiVersions.
                    connect_timeout_ms=min(DEFAULT_CONNECT_TIMEOUT_MS, self._settings.request_timeout_ms),
                    serial_lanes=[Lane.GROUP.value],  # Brokers process the requests of a connection in order.
                    security=self._security,
                )
                self._nursery.start_soon(self._alarm.run)
                is_open.set()
        self._nursery = None

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            with trio.move_on_after(self._settings.close_timeout_ms / 1000, shield=True):
                await self._close(commits=error is None)
        finally:
            self._tasks_scope.cancel()
            # The error is not passed, because the nursery would wrap it in an exception group.
            await self._nursery_manager.__aexit__(None, None, None)

    async def _close(self, *, commits: bool) -> None:
        """Leave the group, and wait for the responses to commits and to leaving."""
        try:
            await self._leave(commits=commits)
        finally:
            await self._wait_for_commits()
            while any(outbound.lane is Lane.GROUP for outbound in self._pending):
                await self._changed.wait()
            self._brokers.close()

    # Subscriptions

    def subscribe(
        self,
        topics: Iterable[str] | re.Pattern[str],
        *,
        on_assigned: RebalanceListener | None = None,
        on_revoked: RebalanceListener | None = None,
        on_lost: RebalanceListener | None = None,
    ) -> None:
        """Subscribe to topics as a group member, replacing an earlier subscription. The next `poll` joins the group.

        Args:
            topics: Names, or a compiled pattern that must match whole names of existing or future topics. A pattern
                does not match Kafka's internal topics. With the consumer protocol the broker matches it, in the syntax
                of RE2.
            on_assigned: Called with the newly assigned partitions after each rebalance, even if there are none.
            on_revoked: Called with partitions before they are revoked; commits within the call are accepted.
            on_lost: Called with partitions lost because the consumer was removed from the group; other members may own
                them already.

        Raises:
            InvalidSubscription: There is no group id, partitions are assigned, or a topic is invalid.
        """
        self._call(self._core.subscribe, topics)
        self._listeners = {
            RebalanceEvent.ASSIGNED: on_assigned,
            RebalanceEvent.REVOKED: on_revoked,
            RebalanceEvent.LOST: on_lost,
        }

    def assign(self, partitions: Mapping[TopicPartition, int] | Iterable[TopicPartition]) -> None:
        """Read these partitions without a group, replacing an earlier assignment.

        Args:
            partitions: Partitions, or start offsets by partition. Without a start offset, reading starts at the offset
                committed for the group id. If none is committed, it starts as `auto_offset_reset` says.

        Raises:
            InvalidSubscription: Topics are subscribed to, or a partition is invalid.
            ConfigError: An offset is invalid.
        """
        self._call(self._core.assign, partitions)

    async def unsubscribe(self) -> None:
        """Leave the group, and stop reading."""
        await self._leave(commits=True)

    async def _leave(self, *, commits: bool) -> None:
        try:
            if self._core.member.assigned and self._core.member.is_in_generation:
                await self._call_back(RebalanceEvent.REVOKED, self._core.member.assigned)
            # Commits retried after leaving would be rejected. Half of the timeout remains for closing.
            with trio.move_on_after(self._settings.close_timeout_ms / 2000):
                await self._wait_for_commits()
        finally:
            self._call(lambda now_ms: self._core.unsubscribe(now_ms, commits=commits))
            self._listeners = {}

    # Polling

    async def poll(self, timeout: float) -> list[ConsumerRecord]:
        """Return records as soon as there are any.

        The records of the previous poll count as consumed with this call.

        Args:
            timeout: How long to wait for records, in seconds; 0 returns those already fetched.

        Returns:
            At most `max_poll_records` records, in order within each partition; none after the timeout.

        Raises:
            ConfigError: The timeout is negative or not finite.
            EmptySubscription: Nothing is subscribed to or assigned.
            InitialOffsetUnknown: No offset is committed, and there is no reset policy.
            OffsetOutOfRange: A position is outside of the log, and there is no reset policy.
            RecordsUnreadable: Records are damaged; the next poll fetches them again.
            GroupFailed: The coordinator rejected this consumer. The next poll joins again; with the consumer protocol,
                it raises the error again, because such errors last.
            BrokerRefused: A broker rejected a topic or partition. If there are no records within the timeout, also
                once for each topic or partition that does not exist.
            BrokerUnreachable: No connection could be made since the consumer was opened, and there are no records
                within the timeout. Missing responses and later outages are logged only: they may be failovers.
            AuthenticationFailed: A broker has refused this consumer since the last poll, or its certificate is not
                valid. The consumer tries again.
            UnsupportedVersion: A broker is too old for a request.
        """
        check_number("timeout", timeout, least=0)
        if self._is_polling:
            raise trio.BusyResourceError("another task polls this consumer")
        self._is_polling = True
        try:
            return await self._poll(trio.current_time() + timeout)
        finally:
            self._is_polling = False

    async def _poll(self, until_s: float) -> list[ConsumerRecord]:
        while True:
            self._call(self._core.begin_poll)
            await self._run_callbacks()
            records = self._call(self._core.take_records)
            if records or trio.current_time() >= until_s:
                await trio.lowlevel.checkpoint()
                if not records:
                    self._check_progress()
                return records
            self._core.suspend_poll_timeout()
            try:
                await self._wait_for_change(until_s)
            finally:
                self._call(self._core.restart_poll_timeout)

    def _check_progress(self) -> None:
        """Raise or log why a poll returns no records."""
        self._core.check_progress(self._now_ms())
        causes = self._core.why_waiting()
        if causes != self._logged and self._now_ms() >= (self._opened_s + _SILENT_S) * 1000:
            self._logged = causes
            if causes:
                _log.warning("consumer %s: no records%s", self._settings.client_id, causes)

    async def _run_callbacks(self) -> None:
        while self._core.callbacks:
            event, partitions = self._core.callbacks.popleft()
            await self._call_back(event, partitions)
        self._call(self._core.callbacks_done)

    async def _call_back(self, event: RebalanceEvent, partitions: tuple[TopicPartition, ...]) -> None:
        if (listener := self._listeners.get(event)) is not None:
            result = listener(partitions)
            if inspect.isawaitable(result):
                await result

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Continue reading a partition at this offset.

        Raises:
            PartitionsNotAssigned: The partition is not assigned to this consumer.
            ConfigError: The offset is invalid.
        """
        self._call(self._core.seek, partition, offset)

    async def position(self, partition: TopicPartition, *, timeout: float = DEFAULT_TIMEOUT_S) -> int:
        """Return the offset of the next record; waits until it is known.

        Args:
            partition: The partition.
            timeout: How long to wait, in seconds.

        Raises:
            PartitionsNotAssigned: The partition is not assigned to this consumer.
            InitialOffsetUnknown: No offset is committed, and there is no reset policy.
            WaitTimeout: The position was not known in time.
        """
        return await self._wait_for(
            f"position of {format_partitions([partition])}", lambda: self._core.position(partition), timeout
        )

    async def assignment(self, *, timeout: float = DEFAULT_TIMEOUT_S) -> tuple[TopicPartition, ...]:
        """Return the assigned partitions; joins the group if necessary, and waits until they are known.

        Args:
            timeout: How long to wait, in seconds.

        Raises:
            EmptySubscription: Nothing is subscribed to or assigned.
            GroupFailed: The coordinator rejected this consumer.
            WaitTimeout: The partitions were not known in time.
        """

        def known() -> tuple[TopicPartition, ...] | None:
            self._call(self._core.ensure_joined)
            return self._core.assigned if self._core.is_assigned else None

        return await self._wait_for("assignment", known, timeout)

    # Offsets

    async def commit(
        self,
        offsets: Mapping[TopicPartition, int] | None = None,
        *,
        wait: bool = True,
        timeout: float = DEFAULT_TIMEOUT_S,
    ) -> None:
        """Commit the current positions: everything that `poll` has returned.

        Args:
            offsets: Offsets to commit instead: for each partition the offset of the next record to read.
            wait: Wait for the response. Otherwise errors are not reported.
            timeout: How long to wait, in seconds, retries included.

        Raises:
            EmptySubscription: Nothing is subscribed to or assigned.
            PartitionsNotAssigned: A partition is not assigned to this consumer.
            CommitFailed: The coordinator rejected the commit, it timed out, or the consumer is not in a generation.
            ConfigError: There is no group id, or an offset is invalid.
        """
        operation = self._call(self._core.commit, offsets)
        if operation is None or not wait:
            await trio.lowlevel.checkpoint()
            return
        await self._completed(operation, timeout)
        if operation.error is not ErrorCode.NONE:
            error = operation.error or ErrorCode.REQUEST_TIMED_OUT
            raise CommitFailed(error, self._settings.group_id or "", self._why(error))

    async def committed(
        self,
        partitions: Iterable[TopicPartition] | None = None,
        *,
        timeout: float = DEFAULT_TIMEOUT_S,
    ) -> dict[TopicPartition, int | None]:
        """Return the committed offsets of partitions, by default of the assigned ones.

        Args:
            partitions: The partitions.
            timeout: How long to wait, in seconds, retries included.

        Returns:
            For each partition its committed offset, or None.

        Raises:
            EmptySubscription: Nothing is subscribed to or assigned.
            GroupFailed: The coordinator returned an error, or the look-up timed out.
        """
        wanted = self._core.assigned if partitions is None else tuple(partitions)
        operation: OffsetOperation = self._call(self._core.committed, wanted)
        await self._completed(operation, timeout)
        if operation.error is not ErrorCode.NONE:
            error = operation.error or ErrorCode.REQUEST_TIMED_OUT
            message = f"committed offsets of group {self._settings.group_id!r}: {error.name}{self._why(error)}"
            raise GroupFailed(error, message)
        return {place: offset if offset >= 0 else None for place, offset in operation.offsets.items()}

    async def _wait_for_commits(self) -> None:
        while self._core.is_committing:
            await self._changed.wait()

    async def _completed(self, operation: OffsetOperation, timeout: float) -> None:
        try:
            check_number("timeout", timeout, least=0)
            with trio.move_on_after(timeout):
                while operation.error is None:
                    await self._changed.wait()
        finally:
            self._core.cancel(operation)

    def _why(self, error: ErrorCode) -> str:
        return self._core.why_waiting() if error is ErrorCode.REQUEST_TIMED_OUT else ""

    # Waiting, and driving the core

    async def _wait_for(self, what: str, evaluate: Callable[[], T | None], timeout: float) -> T:
        check_number("timeout", timeout, least=0)
        until_s = trio.current_time() + timeout
        while (found := evaluate()) is None:
            if trio.current_time() >= until_s:
                raise WaitTimeout(f"{what}: not known after {timeout:g} s{self._core.why_waiting()}")
            await self._wait_for_change(until_s)
        await trio.lowlevel.checkpoint()
        return found

    async def _wait_for_change(self, until_s: float) -> None:
        with trio.move_on_at(until_s):
            await self._changed.wait()

    def _now_ms(self) -> float:
        return (trio.current_time() + self._epoch_s) * 1000

    def _call(self, method: Callable[..., T], *arguments: Any) -> T:
        """Call a method of the core with the current time, then send its requests and wake waiting tasks.

        All methods of the core that need the time are called with this method.
        """
        if self._nursery is None:
            raise trio.ClosedResourceError("the consumer is not open: use it in `async with`")
        try:
            return method(*arguments, self._now_ms())
        finally:
            self._carry_out()

    def _carry_out(self) -> None:
        core = self._core
        for outbound in [each for each in self._pending if not core.needs(each)]:
            self._brokers.cancel(self._pending.pop(outbound))
        requests, core.outbound = core.outbound, []
        for outbound in requests:
            if core.needs(outbound):
                self._send(outbound)
        self._alarm.reschedule()
        self._changed.set()
        self._changed = trio.Event()

    def _send(self, outbound: OutboundRequest) -> None:
        """Send a request; its response or failure goes to the core."""

        def done(exchange: Exchange) -> None:
            del self._pending[outbound]
            if exchange.sent_ms < math.inf:
                self._core.connected()
            match exchange.failure:
                case None:
                    self._call(self._core.answered, outbound, exchange.response)
                case UnsupportedVersion() as error:
                    self._call(self._core.unsupported, outbound, error)
                case error:
                    self._call(self._core.unanswered, outbound, error)

        is_parked = isinstance(outbound.request, (JoinGroupRequest, SyncGroupRequest))
        self._pending[outbound] = self._brokers.send(
            outbound.request, done, node_id=outbound.node_id, lane=outbound.lane.value, is_parked=is_parked
        )
