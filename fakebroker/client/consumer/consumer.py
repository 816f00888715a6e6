"""A consumer for trio: one task tree, no threads, nothing that blocks. The thin side of `Consumption`.

Knows connections, clocks and callbacks; what to ask when, and what an answer means, is `Consumption`'s business.
"""

import inspect
import math
import re
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack

import trio

from fakebroker.client.connection import BrokerUnreachable, Connection, ConnectionLost, UnsupportedVersion
from fakebroker.client.consumer.asks import Ask, Happening, Lane
from fakebroker.client.consumer.consumer_errors import CommitFailed, GroupFailed
from fakebroker.client.consumer.consumer_settings import ConsumerOptions, ConsumerSettings
from fakebroker.client.consumer.consumption import Consumption
from fakebroker.client.consumer.decoding import ConsumerRecord
from fakebroker.client.consumer.group_offsets import Ticket
from fakebroker.client.member.assignors import TopicPartition
from fakebroker.client.pool import BrokerPool, addresses
from fakebroker.errors import ErrorCode, WaitTimeout
from fakebroker.protocol.messages.join_group import JoinGroupRequest
from fakebroker.protocol.messages.sync_group import SyncGroupRequest

T = TypeVar("T")

Listener = Callable[[tuple[TopicPartition, ...]], Awaitable[object] | object]
"""Called with partitions; a plain function or an async one."""

DEFAULT_TIMEOUT_S = 60.0
"""Kafka's default of `default.api.timeout.ms`."""

_PARKED = (JoinGroupRequest, SyncGroupRequest)


class Consumer:
    """Reads topics, alone or as a member of a group. Use it as an async context manager, from one task.

    Between polls its own tasks send heartbeats and fetch ahead. Callbacks run in `poll`, `unsubscribe` and on leaving.

    Args:
        bootstrap_servers: HOST:PORT, or several with commas, or a list of such.
        settings: See `ConsumerSettings`.

    Raises:
        ConfigError: A setting makes no sense.
    """

    def __init__(self, bootstrap_servers: str | Sequence[str], **settings: Unpack[ConsumerOptions]) -> None:
        addresses(bootstrap_servers)
        self._bootstrap_servers = bootstrap_servers
        self._settings = ConsumerSettings(**settings)
        self._core = Consumption(self._settings)
        self._listeners: dict[Happening, Listener | None] = {}
        self._is_polling = False
        self._news, self._woken = trio.Event(), trio.Event()
        self._wakes_ms = math.inf
        self._put, self._group_asks = trio.open_memory_channel[Ask](math.inf)
        self._exchanging: tuple[Ask, trio.CancelScope] | None = None
        self._has_parted = trio.Event()
        self._epoch_s = 0.0
        self._nursery: trio.Nursery | None = None
        self._manager: AbstractAsyncContextManager[trio.Nursery]
        self._pool: BrokerPool

    async def __aenter__(self) -> Self:
        if self._epoch_s:
            raise trio.ClosedResourceError("the consumer has been opened before: make another one")
        # Time since the Unix epoch that never goes back: the machine's at the start, then trio's.
        self._epoch_s = time.time() - trio.current_time()
        self._manager = trio.open_nursery()
        nursery, is_open = await self._manager.__aenter__(), trio.Event()
        nursery.start_soon(self._work, is_open)
        with trio.CancelScope(shield=True):
            await is_open.wait()
        return self

    async def _work(self, is_open: trio.Event) -> None:
        """All that goes on behind the application's back; when that is cancelled, there is the group to be left yet."""
        with trio.CancelScope(shield=True) as self._working:
            async with trio.open_nursery() as self._nursery:
                self._pool = BrokerPool(self._bootstrap_servers, self._settings.client_id, self._nursery)
                self._nursery.start_soon(self._keep_time)
                self._nursery.start_soon(self._ask_coordinator)
                is_open.set()
        self._nursery = None

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            with trio.move_on_after(self._settings.close_timeout_ms / 1000, shield=True):
                await self._part(commits=error is None)
        finally:
            self._working.cancel()
            await self._manager.__aexit__(None, None, None)  # It is told of no error: it would wrap it.

    async def _part(self, *, commits: bool) -> None:
        """Leave, and wait until the coordinator has been told, and has taken what was committed."""
        try:
            await self._leave(commits=commits)
        finally:
            await self._commits_answered()
            self._put.close()
            await self._has_parted.wait()
            await self._pool.aclose()

    # What to read

    def subscribe(
        self,
        topics: Iterable[str] | re.Pattern[str],
        *,
        on_assigned: Listener | None = None,
        on_revoked: Listener | None = None,
        on_lost: Listener | None = None,
    ) -> None:
        """Read topics as a member of the group; another call changes them. The next `poll` joins.

        Args:
            topics: Names; or a compiled pattern that whole names match, of topics that are there or come later. Kafka's
                own topics are read only by their names.
            on_assigned: Called with what has come when a generation is entered, also when that is nothing.
            on_revoked: Called with what is about to go. A commit in it is accepted.
            on_lost: Called with what is gone, as the group went on without this consumer; others may have it already.

        Raises:
            InvalidSubscription: There is no group id, or partitions are assigned, or it is no topic or pattern.
        """
        self._tell(self._core.subscribe, topics)
        self._listeners = {Happening.ASSIGNED: on_assigned, Happening.REVOKED: on_revoked, Happening.LOST: on_lost}

    def assign(self, partitions: Mapping[TopicPartition, int] | Iterable[TopicPartition]) -> None:
        """Read these partitions alone, without a group; another call changes them.

        Args:
            partitions: Partitions, or each with the offset to begin at. Without, it begins at what is committed for the
                group id, where there is one, or else as `auto_offset_reset` says.

        Raises:
            InvalidSubscription: Topics are subscribed to, or it is no name of a topic.
        """
        self._tell(self._core.assign, partitions)

    async def unsubscribe(self) -> None:
        """Leave the group, and read nothing any more."""
        await self._leave(commits=True)

    async def _leave(self, *, commits: bool) -> None:
        try:
            if self._core.member.assigned and self._core.member.is_in_generation:
                await self._call_back(Happening.REVOKED, self._core.member.assigned)
            # What is tried again after the member has left is refused; half of the time is for the rest of closing.
            with trio.move_on_after(self._settings.close_timeout_ms / 2000):
                await self._commits_answered()
        finally:
            self._tell(lambda now_ms: self._core.unsubscribe(now_ms, commits=commits))
            self._listeners = {}

    # Reading

    async def poll(self, timeout: float) -> list[ConsumerRecord]:
        """What there is, as soon as there is something.

        What the poll before gave counts as consumed with this call.

        Args:
            timeout: How many seconds to wait for it; 0 takes what has come.

        Returns:
            At most `max_poll_records` records, in order within each partition; none if the time is over.

        Raises:
            EmptySubscription: There is nothing to read.
            InitialOffsetUnknown: Nothing is committed, and there is no reset policy.
            OffsetOutOfRange: A position is outside of the log, and there is no reset policy.
            RecordsUnreadable: What came is damaged; the next poll asks again.
            GroupFailed: The coordinator does not take this consumer; the next poll tries again.
            BrokerRefused: A broker refuses a topic or partition.
        """
        if self._is_polling:
            raise trio.BusyResourceError("another task polls this consumer")
        self._is_polling = True
        try:
            return await self._poll(trio.current_time() + timeout)
        finally:
            self._is_polling = False

    async def _poll(self, until_s: float) -> list[ConsumerRecord]:
        while True:
            self._tell(self._core.polled)
            await self._run_callbacks()
            records = self._tell(self._core.take)
            if records or trio.current_time() >= until_s:
                await trio.lowlevel.checkpoint()
                return records
            self._core.waits()
            try:
                await self._wait_for_news(until_s)
            finally:
                self._tell(self._core.waits_no_more)

    async def _run_callbacks(self) -> None:
        while self._core.callbacks:
            happening, partitions = self._core.callbacks.popleft()
            await self._call_back(happening, partitions)
        self._tell(self._core.called_back)

    async def _call_back(self, happening: Happening, partitions: tuple[TopicPartition, ...]) -> None:
        if (listener := self._listeners.get(happening)) is not None:
            result = listener(partitions)
            if inspect.isawaitable(result):
                await result

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Go on at this offset.

        Raises:
            PartitionsNotAssigned: The partition is not this consumer's.
        """
        self._tell(self._core.seek, partition, offset)

    async def position(self, partition: TopicPartition, *, timeout: float = DEFAULT_TIMEOUT_S) -> int:
        """The offset of the record that comes next; waits until it is known.

        Raises:
            PartitionsNotAssigned: The partition is not this consumer's.
            InitialOffsetUnknown: Nothing is committed, and there is no reset policy.
            WaitTimeout: It was not known in time.
        """
        return await self._wait_for(f"position of {partition}", lambda: self._core.position(partition), timeout)

    async def assignment(self, *, timeout: float = DEFAULT_TIMEOUT_S) -> tuple[TopicPartition, ...]:
        """The partitions that it has; waits until they are known.

        Raises:
            EmptySubscription: Nothing is subscribed to or assigned.
            GroupFailed: The coordinator does not take this consumer.
            WaitTimeout: They were not known in time.
        """

        def known() -> tuple[TopicPartition, ...] | None:
            self._tell(self._core.joined)
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
        """Commit where the application stands: behind everything that `poll` has given.

        Args:
            offsets: What to commit in place of that: for each partition the offset of the record that comes next.
            wait: Wait for the answer. Else it is sent, and nobody hears what comes of it.
            timeout: How many seconds it may take, retries included.

        Raises:
            EmptySubscription: Nothing is subscribed to or assigned.
            PartitionsNotAssigned: A partition is not this consumer's.
            CommitFailed: The coordinator does not take it, or there is no generation to commit in.
        """
        ticket = self._tell(self._core.commit, offsets)
        if ticket is None or not wait:
            await trio.lowlevel.checkpoint()
            return
        await self._settled(ticket, timeout)
        if ticket.error is not ErrorCode.NONE:
            raise CommitFailed(ticket.error or ErrorCode.REQUEST_TIMED_OUT, self._settings.group_id or "")

    async def committed(
        self,
        partitions: Iterable[TopicPartition] | None = None,
        *,
        timeout: float = DEFAULT_TIMEOUT_S,
    ) -> dict[TopicPartition, int | None]:
        """What the group has committed for these partitions, or for all that this consumer has; None is nothing.

        Raises:
            EmptySubscription: Nothing is subscribed to or assigned.
            GroupFailed: The coordinator does not tell.
        """
        wanted = self._core.assigned if partitions is None else tuple(partitions)
        ticket: Ticket = self._tell(self._core.committed, wanted)
        await self._settled(ticket, timeout)
        if ticket.error is not ErrorCode.NONE:
            error = ticket.error or ErrorCode.REQUEST_TIMED_OUT
            raise GroupFailed(error, f"committed offsets of group {self._settings.group_id!r}: {error.name}")
        return {place: offset if offset >= 0 else None for place, offset in ticket.offsets.items()}

    async def _commits_answered(self) -> None:
        while self._core.is_committing:
            await self._news.wait()

    async def _settled(self, ticket: Ticket, timeout: float) -> None:
        try:
            with trio.move_on_after(timeout):
                while ticket.error is None:
                    await self._news.wait()
        finally:
            self._core.give_up(ticket)

    # Waiting and telling

    async def _wait_for(self, what: str, look: Callable[[], T | None], timeout: float) -> T:
        until_s = trio.current_time() + timeout
        while (found := look()) is None:
            if trio.current_time() >= until_s:
                raise WaitTimeout(f"{what}: not known after {timeout:g} s")
            await self._wait_for_news(until_s)
        await trio.lowlevel.checkpoint()
        return found

    async def _wait_for_news(self, until_s: float) -> None:
        with trio.move_on_at(until_s):
            await self._news.wait()

    def _now_ms(self) -> float:
        return (trio.current_time() + self._epoch_s) * 1000

    def _tell(self, step: Callable[..., T], *news: Any) -> T:
        """Give the core something to react to, with the time, and see to what it wants."""
        if self._nursery is None:
            raise trio.ClosedResourceError("the consumer is not open: use it in `async with`")
        try:
            return step(*news, self._now_ms())
        finally:
            self._see_to_it(self._nursery)

    def _see_to_it(self, nursery: trio.Nursery) -> None:
        core = self._core
        while core.addresses:
            node_id, (host, port) = core.addresses.popitem()
            self._pool.learn(node_id, host, port)
        asks, core.asks = core.asks, []
        for ask in asks:
            if ask.lane is Lane.GROUP:
                self._put.send_nowait(ask)
            else:
                nursery.start_soon(self._exchange, ask)
        if self._exchanging is not None and not core.wants(self._exchanging[0]):
            self._exchanging[1].cancel()
        if (core.next_deadline() or math.inf) < self._wakes_ms:
            self._woken.set()
        self._news.set()
        self._news = trio.Event()

    async def _keep_time(self) -> None:
        while True:
            self._woken = trio.Event()
            self._wakes_ms = self._core.next_deadline() or math.inf
            with trio.move_on_at(self._wakes_ms / 1000 - self._epoch_s):
                await self._woken.wait()
            self._tell(self._core.tick)

    async def _ask_coordinator(self) -> None:
        """One request at a time, in their order; a broker would make the next one wait all the same."""
        async for ask in self._group_asks:
            if self._core.wants(ask):
                with trio.CancelScope() as scope:
                    self._exchanging = ask, scope
                    await self._exchange(ask)
                self._exchanging = None
        self._has_parted.set()

    async def _exchange(self, ask: Ask) -> None:
        """Send a request and give the core the answer, or tell it that there will be none."""
        timeout_s = math.inf if isinstance(ask.request, _PARKED) else self._settings.request_timeout_ms / 1000
        connection, response = None, None
        try:
            with trio.move_on_after(timeout_s):
                connection = await self._connection(ask)
                response = await connection.request(ask.request)
        except (BrokerUnreachable, ConnectionLost):
            pass
        except UnsupportedVersion as error:
            self._tell(self._core.refused, ask, error)
            return
        finally:
            if response is None and connection is not None:  # what else is asked on it would wait behind this
                with trio.CancelScope(shield=True):
                    await connection.aclose()
        if response is not None:
            self._tell(self._core.answered, ask, response)
        else:
            self._tell(self._core.unanswered, ask)

    async def _connection(self, ask: Ask) -> Connection:
        return await (self._pool.any() if ask.to is None else self._pool.to(ask.to, lane=ask.lane.value))
