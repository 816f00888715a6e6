"""`Brokers` for tasks of trio: connections are streams, and tasks can wait for answers."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import trio

from fakebroker.client.brokers import MAX_IN_FLIGHT, REQUEST_TIMEOUT_MS, Brokers, Exchange, Link
from fakebroker.client.stream_transport import StreamTransport
from fakebroker.client.transport import DEFAULT_CONNECT_TIMEOUT_MS, addresses
from fakebroker.client.transport_security import TransportSecurity
from fakebroker.errors import FakebrokerError
from fakebroker.protocol.schema import Message


def check_in_trio(client: str) -> None:
    """Check that a client is opened in a trio loop, because its connections are trio tasks.

    Args:
        client: The client, for the error message.

    Raises:
        FakebrokerError: It is opened under asyncio, or outside of a loop.
    """
    if not trio.lowlevel.in_trio_run():
        raise FakebrokerError(f"{client} was opened outside of trio: expected a loop of trio.run, not one of asyncio")


class Alarm:
    """Calls a function at a deadline, which may move.

    Args:
        now_ms: Returns the time in milliseconds.
        next_deadline: Returns the deadline; infinite for none.
        tick: Called at the deadline.
    """

    def __init__(
        self, now_ms: Callable[[], float], next_deadline: Callable[[], float], tick: Callable[[], object]
    ) -> None:
        self._now_ms, self._next_deadline, self._tick = now_ms, next_deadline, tick
        self._due_ms = math.inf
        self._is_earlier = trio.Event()

    def reschedule(self) -> None:
        """Consider that the deadline may be earlier now."""
        if self._next_deadline() < self._due_ms:
            self._is_earlier.set()

    async def run(self) -> None:
        """Run until canceled."""
        while True:
            self._is_earlier = trio.Event()
            self._due_ms = self._next_deadline()
            # Not until a point in trio's time: rounded, it may be one at which nothing is due yet. A simulated clock
            # would stay at that point forever.
            with trio.move_on_after(max(0.0, (self._due_ms - self._now_ms()) / 1000)) as scope:
                await self._is_earlier.wait()
            if scope.cancelled_caught:
                self._tick()


class TrioBrokers(Brokers):
    """The brokers of a cluster, for tasks.

    Args:
        bootstrap_servers: The brokers known initially; see `transport.addresses`.
        client_id: The client id in each request.
        nursery: Runs the connections' tasks; when it is cancelled, the connections are closed.
        request_timeout_ms: A connection whose oldest request has no response for this time is closed.
        connect_timeout_ms: Maximum duration of connecting to one broker.
        serial_lanes: Lanes with one request at a time.
        security: How connections are encrypted and authenticated; None for neither.

    Raises:
        ConfigError: `bootstrap_servers` is malformed.
    """

    def __init__(
        self,
        bootstrap_servers: str | Sequence[str],
        client_id: str,
        nursery: trio.Nursery,
        *,
        request_timeout_ms: float = REQUEST_TIMEOUT_MS,
        connect_timeout_ms: float = DEFAULT_CONNECT_TIMEOUT_MS,
        serial_lanes: Sequence[str] = (),
        security: TransportSecurity | None = None,
    ) -> None:
        transport = StreamTransport(client_id, nursery, connect_timeout_ms=connect_timeout_ms, security=security)
        super().__init__(
            transport,
            lambda: trio.current_time() * 1000,
            client_id,
            addresses(bootstrap_servers),
            request_timeout_ms=request_timeout_ms,
            max_in_flight=MAX_IN_FLIGHT,
            serial_lanes=serial_lanes,
        )
        self._alarm = Alarm(self._now_ms, self.next_deadline, lambda: self.tick(self._now_ms()))
        nursery.start_soon(self._alarm.run)

    def _begin(self, exchange: Exchange) -> None:
        super()._begin(exchange)
        self._alarm.reschedule()

    def _flush(self, link: Link) -> None:
        super()._flush(link)
        self._alarm.reschedule()

    async def reach_any(self) -> None:
        """Wait until there is a connection to any broker.

        Raises:
            BrokerUnreachable: No broker can be reached; the message contains the reason for each.
            AuthenticationFailed: A broker has refused this client; no further one is tried.
        """
        (exchange,) = await self.exchanges(self.reach, lambda ended: True)
        if exchange.failure is not None:
            raise exchange.failure

    async def request(self, request: Message, node_id: int | None = None) -> Any:
        """Send a request and return its response. A cancelled wait does not affect the connection.

        Args:
            request: The request in the layout of its newest version.
            node_id: The broker; None for any broker.

        Returns:
            The response, in the layout of its newest version. It may be shared and must not be changed.

        Raises:
            BrokerUnreachable: The broker cannot be reached; for any broker, none can.
            AuthenticationFailed: The broker has refused this client.
            ConnectionLost: The connection was lost, or there was no response in time.
            UnsupportedVersion: No common version supports what the request needs.
            ProtocolError: The common version cannot express it.
        """
        (exchange,) = await self.exchanges(lambda done: self.send(request, done, node_id=node_id), lambda ended: True)
        if exchange.failure is not None:
            raise exchange.failure
        return exchange.response

    async def exchanges(
        self, send: Callable[[Callable[[Exchange], None]], object], is_complete: Callable[[list[Exchange]], bool]
    ) -> list[Exchange]:
        """Send requests, and wait until they have ended.

        Args:
            send: Sends the requests, with the given function as `done`.
            is_complete: Returns whether these are all.
        """
        ended: list[Exchange] = []
        has_ended = trio.Event()

        def done(exchange: Exchange) -> None:
            ended.append(exchange)
            if is_complete(ended):
                has_ended.set()

        send(done)
        await has_ended.wait()
        return ended
