"""One member of the swarm: a sans-IO group member with a clock, a connection to its coordinator, and a pen.

Knows sockets and events; what to send and when is the member's business alone.
"""

import math
import time
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import trio

from fakebroker.client.connection import BrokerUnreachable, Connection, ConnectionLost
from fakebroker.client.effects import Discover, FetchMetadata, GroupRequest, GroupResponse, Send
from fakebroker.client.member import Member, MemberSettings, MemberState
from fakebroker.client.reactions import error_in
from fakebroker.client.subscription import decode_assignment
from fakebroker.errors import ErrorCode, ProtocolError
from fakebroker.protocol.messages.heartbeat import HeartbeatRequest
from fakebroker.protocol.messages.join_group import JoinGroupResponse
from fakebroker.protocol.messages.leave_group import LeaveGroupResponse
from fakebroker.protocol.messages.offset_commit import OffsetCommitRequest
from fakebroker.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from fakebroker.protocol.registry import api_of
from fakebroker.replay.bootstrap import Address
from fakebroker.replay.events import Event

_FAREWELL_S = 5.0
"""How long the last answers are waited for after a member has left."""

_NO_CONNECTION = -1
"""In place of a version: the request was not sent, as there was no connection."""


class Script(NamedTuple):
    """What one member is to do: a row of the scripts.

    Attributes:
        member: Its name in this replay, and its `client.id`; the id that the coordinator gives it is another.
        arrive_ms: When it starts, from the start of the replay.
        leave_ms: When it leaves, from the start of the replay.
    """

    group: str
    member: str
    arrive_ms: float
    leave_ms: float
    topics: tuple[str, ...]
    assignor: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    heartbeat_interval_ms: int
    commit_interval_ms: int


class Clock:
    """Milliseconds since the Unix epoch that never go back: the machine's time at the start, then trio's clock."""

    def __init__(self) -> None:
        self._offset_s = time.time() - trio.current_time()

    def now_ms(self) -> float:
        return (trio.current_time() + self._offset_s) * 1000

    def now_us(self) -> int:
        return round(self.now_ms() * 1000)

    def on_trio(self, moment_ms: float) -> float:
        """The same moment on trio's clock."""
        return moment_ms / 1000 - self._offset_s


class Lookups(Protocol):
    """Who finds coordinators and partition counts for the players of a task (lookup.py)."""

    def discover(self, player: "Player", scheduled_ms: float) -> None: ...

    def fetch_metadata(self, player: "Player", topics: tuple[str, ...], scheduled_ms: float) -> None: ...


class Player:
    """Plays one script.

    One request is on its way at a time, the next ones wait in their order. A broker would make them wait all the same:
    it takes nothing from a connection that it owes an answer on.

    Args:
        script: What to do.
        start_ms: When the replay starts.
        nursery: Where its connection is read.
        record: Takes each event.
    """

    def __init__(
        self,
        script: Script,
        start_ms: float,
        clock: Clock,
        nursery: trio.Nursery,
        lookups: Lookups,
        record: Callable[[Event], None],
    ) -> None:
        self.script = script
        self.member = Member(
            MemberSettings(
                group_id=script.group,
                client_id=script.member,
                topics=tuple(script.topics),
                assignor=script.assignor,
                session_timeout_ms=script.session_timeout_ms,
                rebalance_timeout_ms=script.rebalance_timeout_ms,
                heartbeat_interval_ms=script.heartbeat_interval_ms,
                commit_interval_ms=script.commit_interval_ms,
            )
        )
        self._start_ms = start_ms
        self._clock, self._nursery, self._lookups, self._record = clock, nursery, lookups, record
        self._broker = -1
        self._address: Address = ("", 0)
        self._connection: Connection | None = None
        self._connected_to: Address = ("", 0)
        self._put, self._queue = trio.open_memory_channel[tuple[int, Send]](math.inf)
        self._searches = 0  # what was queued before the last search for a coordinator is not sent any more
        self._exchanging = trio.CancelScope()
        self._waits_until_ms = math.inf
        self._woken = trio.Event()

    @property
    def is_joined(self) -> bool:
        return self.member.state is MemberState.PART_OF_GROUP

    async def play(self) -> None:
        """Start when the script says so, play, leave, and wait a while for the last answers."""
        await trio.sleep_until(self._clock.on_trio(self._start_ms + self.script.arrive_ms))
        leave_ms = self._start_ms + self.script.leave_ms
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._send_in_order)
            self.tell(self.member.start)
            while self._clock.now_ms() < leave_ms:
                self._woken = trio.Event()
                self._waits_until_ms = min(self.member.next_deadline() or math.inf, leave_ms)
                with trio.move_on_at(self._clock.on_trio(self._waits_until_ms)):
                    await self._woken.wait()
                self.tell(self.member.tick)
            self.tell(self.member.leave)
            self._put.close()
            nursery.cancel_scope.deadline = trio.current_time() + _FAREWELL_S
        await self._hang_up()

    def tell(self, step: Callable[..., None], *news: Any) -> None:
        """Give the member something to react to, with the time, and carry out what it wants."""
        step(*news, self._clock.now_ms())
        effects, self.member.effects = self.member.effects, []
        for effect in effects:
            match effect:
                case Send():
                    self._put.send_nowait((self._searches, effect))
                case Discover():
                    self._searches += 1
                    self._exchanging.cancel()
                    self._lookups.discover(self, effect.scheduled_ms)
                case FetchMetadata():
                    self._lookups.fetch_metadata(self, effect.topics, effect.scheduled_ms)
        if (self.member.next_deadline() or math.inf) < self._waits_until_ms:
            self._woken.set()

    def discovered(self, node_id: int, host: str, port: int) -> None:
        """The coordinator of the member's group is this broker."""
        self._broker, self._address = node_id, (host, port)
        self.tell(self.member.discovered, node_id, host, port)

    async def _send_in_order(self) -> None:
        async for search, send in self._queue:
            if search == self._searches:
                await self._exchange(send)

    async def _exchange(self, send: Send) -> None:
        """Send a request and give the member the answer; or tell it that there will be none."""
        sent_us, version, response = self._clock.now_us(), _NO_CONNECTION, None
        with trio.CancelScope() as self._exchanging:
            try:
                connection = await self._connect()
                version = connection.version_for(type(send.request))
                response = await connection.request(send.request)
            except (BrokerUnreachable, ConnectionLost):
                self._connection = None
            finally:
                self._record(self._event(send, sent_us, version, response))
        if response is not None:
            self.tell(self.member.answered, send.request, response)
        elif self._exchanging.cancelled_caught:
            await self._hang_up()
        else:
            self.tell(self.member.connection_lost)

    async def _connect(self) -> Connection:
        """The connection to the coordinator, a new one if there is none or if it is another broker now."""
        if self._connection is None or self._connected_to != self._address:
            await self._hang_up()
            self._connected_to = self._address
            self._connection = await Connection.open(*self._address, self.script.member, self._nursery)
        return self._connection

    async def _hang_up(self) -> None:
        if self._connection is not None:
            connection, self._connection = self._connection, None
            await connection.aclose()

    def _event(self, send: Send, sent_us: int, version: int, response: GroupResponse | None) -> Event:
        scheduled_us = round(send.scheduled_ms * 1000)
        error = None if response is None else _error_in(response)
        return Event(
            scheduled_us=scheduled_us,
            sent_us=sent_us,
            latency_us=None if response is None else self._clock.now_us() - scheduled_us,
            api=api_of(send.request).name,
            version=version,
            broker=self._broker,
            group=self.script.group,
            member=self.script.member,
            generation=_generation(send.request, response, error),
            error=error,
            assigned=_assigned(response, error),
        )


def _error_in(response: GroupResponse) -> int:
    if isinstance(response, LeaveGroupResponse):
        return next((member.error_code for member in response.members if member.error_code), response.error_code)
    return error_in(response)


def _generation(request: GroupRequest, response: GroupResponse | None, error: int | None) -> int | None:
    match request:
        case SyncGroupRequest() | HeartbeatRequest():
            return request.generation_id
        case OffsetCommitRequest():
            return request.generation_id_or_member_epoch
    return response.generation_id if isinstance(response, JoinGroupResponse) and error == ErrorCode.NONE else None


def _assigned(response: GroupResponse | None, error: int | None) -> list[str] | None:
    """What a SyncGroup brought; `None` for bytes that are no assignment, too."""
    if not isinstance(response, SyncGroupResponse) or error != ErrorCode.NONE:
        return None
    try:
        return [f"{topic}-{partition}" for topic, partition in decode_assignment(response.assignment)]
    except ProtocolError:
        return None
