"""The readiness loop for all listeners and connections of a cluster.

trio owns start, stop, timers and cancellation; this loop owns the sockets. One task waits until the poller reports
ready sockets, then reads, handles and writes all of them without awaiting: a task per connection would cost more than
all the rest. Nothing awaits between reading a frame and changing the state, so there is no lock.

Does not depend on what requests mean.
"""

import errno
import logging
import socket
from collections import deque
from collections.abc import Callable, Iterable
from typing import TypeVar

import trio

from fakebroker.cluster.broker import BrokerNode
from fakebroker.cluster.call import Call, read_call
from fakebroker.cluster.cluster import Cluster
from fakebroker.errors import ProtocolError
from fakebroker.protocol.frames import response_frame
from fakebroker.server.clock import Clock
from fakebroker.server.connection import Connection
from fakebroker.server.network_faults import Action, NetworkFaults
from fakebroker.server.poller import READ, WRITE, best_poller

T = TypeVar("T")

logger = logging.getLogger("fakebroker")

READ_BYTES = 64 * 1024
MAX_EVENTS = 256
MAX_TURNS = 8
"""Between two passes of other tasks of the loop, such as HTTP control. A turn takes a millisecond under load."""
MAX_FRAMES_AT_ONCE = 32
_AT_ONCE = range(MAX_FRAMES_AT_ONCE)
MAX_QUEUED_FRAMES = 100

DEFAULT_MAX_UNSENT_BYTES = 64 * 1024 * 1024
DEFAULT_PARTIAL_FRAME_TIMEOUT_MS = 30_000


class Reactor:
    """Serves the brokers of one cluster.

    Args:
        cluster: Handles the requests.
        clock: The brokers' clock. Timeouts of connections are wall-clock time.
        max_unsent_bytes: A connection with more unsent bytes than this is closed.
        partial_frame_timeout_ms: A connection that stops in the middle of a frame is closed after this time.

    Attributes:
        wire_clock: The clients' clock.
        network_faults: Injected latency, throttling and disconnects.
        linger_s: How long to poll for the next request, after one, before other tasks of the thread may run.
        watchers: Called after each change until they return True.
    """

    def __init__(
        self,
        cluster: Cluster,
        clock: Clock,
        *,
        max_unsent_bytes: int = DEFAULT_MAX_UNSENT_BYTES,
        partial_frame_timeout_ms: float = DEFAULT_PARTIAL_FRAME_TIMEOUT_MS,
    ) -> None:
        self.cluster = cluster
        self.clock = clock
        self.wire_clock = clock.wire
        self.max_unsent_bytes = max_unsent_bytes
        self.partial_frame_timeout_ms = partial_frame_timeout_ms
        self.network_faults = NetworkFaults()
        self.linger_s = 0.0
        self.watchers: list[Callable[[], bool]] = []
        self.connections: dict[int, Connection] = {}
        self._listeners: dict[int, tuple[socket.socket, BrokerNode]] = {}
        self._poller = best_poller()
        self._max_request_bytes = cluster.config.number("socket.request.max.bytes")
        self._dirty: list[Connection] = []
        self._resumable: deque[Connection] = deque()
        # Connections that stopped within a frame. All have the same timeout, so the first one is due first.
        self._partial: dict[Connection, float] = {}
        self._connections_made = 0
        self._is_accepting = True
        self._sleep = trio.CancelScope()

    def listen(self, broker: BrokerNode, listener: socket.socket) -> None:
        """Accept connections for a broker from a bound and listening socket."""
        listener.setblocking(False)
        self._listeners[listener.fileno()] = (listener, broker)
        self._poller.register(listener.fileno(), READ)

    def disconnect(self, broker: BrokerNode) -> None:
        """Close a broker's listener and every connection to it, and reset its network conditions."""
        self.close_listener(broker)
        self.network_faults.conditions.pop(broker.node_id, None)
        for connection in [each for each in self.connections.values() if each.broker is broker]:
            self.close(connection)

    def close_listener(self, broker: BrokerNode) -> None:
        """Accept no further connections for a broker."""
        for fd, (listener, owner) in list(self._listeners.items()):
            if owner is broker:
                self._poller.unregister(fd)
                listener.close()
                del self._listeners[fd]

    async def run(self) -> None:
        """Serve until canceled; then close every socket."""
        try:
            while True:
                with trio.move_on_after(self._seconds_to_sleep()) as self._sleep:
                    if self._resumable:
                        await trio.lowlevel.checkpoint()
                    else:
                        await trio.lowlevel.wait_readable(self._poller.fileno())
                self._turn()
        finally:
            self.stop()

    def apply(self, function: Callable[[], T]) -> T:
        """Run a function that may change the cluster between two requests, then everything that is due."""
        result = function()
        self._tick()
        # The next deadline may be earlier now. Otherwise the loop is not woken: most calls change nothing.
        due_at = trio.current_time() + (0 if self._resumable else self._seconds_to_sleep())
        if due_at < self._sleep.deadline:
            self._sleep.deadline = due_at
        return result

    def _seconds_to_sleep(self) -> float:
        """Return the time to the next deadline: those of brokers by their clock, those of connections by real time."""
        waits = [self.clock.seconds_until(self.cluster.next_deadline())]
        waits.append(self.wire_clock.seconds_until(self.cluster.purgatory.next_deadline()))
        waits.append(self.wire_clock.seconds_until(self.network_faults.next_deadline()))
        if self._partial:
            waits.append(self.wire_clock.seconds_until(next(iter(self._partial.values()))))
        return min(waits)

    def _turn(self) -> None:
        """Handle ready sockets, a bounded number of times, and everything that is due."""
        for turn in range(MAX_TURNS):
            events = self._poller.poll(self.linger_s if turn else 0, MAX_EVENTS)
            if not events and not self._resumable:
                break
            self._handle_events(events)
            if self._resumable:
                self._resume()
            if self.watchers:
                self._call_watchers()
        if self._seconds_to_sleep() <= 0:
            self._tick()

    def _tick(self) -> None:
        """Run everything that is due."""
        now_ms = self.wire_clock.now_ms()
        self.cluster.tick(self.clock.now_ms(), now_ms)
        for connection, action, frame in self.network_faults.due(now_ms):
            self._perform(connection, action, frame)
        self._deliver()
        self._flush()
        while self._partial:
            connection, deadline_ms = next(iter(self._partial.items()))
            if deadline_ms > now_ms:
                break
            self.close(connection, f"stopped for {self.partial_frame_timeout_ms / 1000:g} s in the middle of a request")
        if self.watchers:
            self._call_watchers()

    def _perform(self, connection: Connection, action: Action, frame: bytearray) -> None:
        """Carry out a delayed action of the network faults."""
        if action is Action.UNBLOCK:
            connection.pending = None
            self._handle_later(connection)
            return
        connection.unsent += frame
        self._send(connection)
        if action is Action.HANG_UP:
            self.close(connection)

    def _call_watchers(self) -> None:
        # They are not called recursively if one of them calls into the cluster.
        watchers, self.watchers = self.watchers, []
        self.watchers += [watcher for watcher in watchers if not watcher()]

    def _handle_events(self, events: Iterable[tuple[int, int]]) -> None:
        now_ms, wire_ms = self.clock.now_ms(), self.wire_clock.now_ms()
        for fd, event in events:
            connection = self.connections.get(fd)
            if connection is None:
                if fd in self._listeners:
                    self._accept(*self._listeners[fd])
                continue
            if event & ~WRITE:
                self._read(connection, now_ms, wire_ms)
            if event & WRITE and not connection.is_closed:
                self._send(connection)
        # All at once: a client that is busy with the first response need not be woken for the next.
        self._flush()

    def _accept(self, listener: socket.socket, broker: BrokerNode) -> None:
        for _ in range(MAX_EVENTS):
            try:
                sock, _ = listener.accept()
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno in (errno.EMFILE, errno.ENFILE):
                    self._pause_accepting(error)
                return
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            try:
                connection = Connection(sock, broker, self._connections_made, self._max_request_bytes)
            except OSError:  # The client has closed it already.
                sock.close()
                continue
            self._connections_made += 1
            self.connections[sock.fileno()] = connection
            connection.interest = READ
            self._poller.register(sock.fileno(), READ)
            if self.network_faults.conditions:
                self.network_faults.accept(connection, self.wire_clock.now_ms())

    def _pause_accepting(self, error: OSError) -> None:
        logger.warning("no further connections until one closes: %s (raise the limit of open files)", error.strerror)
        self._is_accepting = False
        for fd in self._listeners:
            self._poller.modify(fd, 0)

    def _resume_accepting(self) -> None:
        self._is_accepting = True
        for fd in self._listeners:
            self._poller.modify(fd, READ)

    def _read(self, connection: Connection, now_ms: float, wire_ms: float) -> None:
        try:
            data = connection.socket.recv(READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self.close(connection)
            return
        try:
            frames = connection.frames.feed(data)
        except ProtocolError as error:
            self.close(connection, str(error))
            return
        if connection.frames.held_bytes or self._partial:
            self._watch_partial(connection, wire_ms)
        if len(frames) == 1 and connection.pending is None and not connection.queued:
            self._handle(connection, frames[0], now_ms, wire_ms)
        elif frames:
            connection.queued.extend(frames)
            self._handle_queued(connection, now_ms, wire_ms)

    def _watch_partial(self, connection: Connection, wire_ms: float) -> None:
        self._partial.pop(connection, None)
        if connection.frames.held_bytes:
            self._partial[connection] = wire_ms + self.partial_frame_timeout_ms

    def _resume(self) -> None:
        """Handle queued frames of connections that are no longer blocked, or have used up their share of a turn."""
        now_ms, wire_ms = self.clock.now_ms(), self.wire_clock.now_ms()
        for _ in range(len(self._resumable)):
            connection = self._resumable.popleft()
            connection.is_resumable = False
            self._handle_queued(connection, now_ms, wire_ms)
        self._flush()

    def _handle_queued(self, connection: Connection, now_ms: float, wire_ms: float) -> None:
        """Handle queued frames of a connection until one is pending, or its share of the turn is used up."""
        queued = connection.queued
        for _ in _AT_ONCE:
            if not queued or connection.pending is not None or connection.is_closed:
                break
            self._handle(connection, queued.popleft(), now_ms, wire_ms)
        if queued or not connection.interest & READ:
            self._set_interest(connection)
            if connection.pending is None:
                self._handle_later(connection)

    def _handle(self, connection: Connection, frame: bytes, now_ms: float, wire_ms: float) -> None:
        """Handle one request, and deliver the responses that it completes."""
        try:
            call = read_call(connection, frame)
        except ProtocolError as error:
            self.close(connection, str(error))
            return
        try:
            if self.cluster.handle(call, now_ms, wire_ms):
                self._write(connection, call)
            else:
                connection.pending = call
        except Exception:  # A bug in a handler costs only the connection of the request.
            logger.exception("%r failed", call)
            self.close(connection, "of an error in fakebroker, shown above")
        if self.cluster.answered:
            self._deliver()

    def _handle_later(self, connection: Connection) -> None:
        if not connection.is_resumable and not connection.is_closed:
            connection.is_resumable = True
            self._resumable.append(connection)

    def _deliver(self) -> None:
        """Write the completed responses to their connections, whose queued frames can then be handled."""
        cluster = self.cluster
        answered, cluster.answered = cluster.answered, []
        for call in answered:
            connection = call.peer
            assert isinstance(connection, Connection)
            if connection.is_closed:
                continue
            if call.closes_connection:
                self.close(connection, f"{call!r} failed, and it asked for no answer")
                continue
            connection.pending = None
            if call.response is not None:
                self._write(connection, call)
            if call.fault is not None:
                self.network_faults.after_response(connection, call.fault, self.wire_clock.now_ms())
            if connection.queued:
                self._handle_later(connection)

    def _write(self, connection: Connection, call: Call) -> None:
        try:
            frame = response_frame(call.response, call.response_version, call.correlation_id)
        except ProtocolError:
            logger.exception("%r got an answer that its version cannot carry", call)
            self.close(connection, "of an error in fakebroker, shown above")
            return
        if call.fault is not None:
            frame = self.cluster.faults.corrupted(call.fault, frame)
        conditions = self.network_faults.conditions
        if conditions and connection.broker.node_id in conditions:
            self.network_faults.delay(connection, frame, self.wire_clock.now_ms())
            return
        if connection.unsent:
            connection.unsent += frame
        else:
            connection.unsent = frame
        if not connection.is_dirty:
            connection.is_dirty = True
            self._dirty.append(connection)

    def _flush(self) -> None:
        """Send new responses."""
        while self._dirty:
            connection = self._dirty.pop()
            connection.is_dirty = False
            if not connection.is_closed:
                self._send(connection)

    def _send(self, connection: Connection) -> None:
        unsent = connection.unsent
        try:
            sent = connection.socket.send(unsent)
        except BlockingIOError:
            sent = 0
        except OSError:
            self.close(connection)
            return
        if sent == len(unsent):
            connection.unsent = bytearray()
            if connection.interest & WRITE:
                self._set_interest(connection)
            return
        del unsent[:sent]
        if len(unsent) > self.max_unsent_bytes:
            self.close(connection, f"left {len(unsent)} bytes unread, the limit is {self.max_unsent_bytes}")
        else:
            self._set_interest(connection)

    def _set_interest(self, connection: Connection) -> None:
        if connection.is_closed:
            return
        interest = WRITE if connection.unsent else 0
        if len(connection.queued) < MAX_QUEUED_FRAMES:
            interest |= READ
        if interest != connection.interest:
            connection.interest = interest
            self._poller.modify(connection.socket.fileno(), interest)

    def close(self, connection: Connection, why: str | None = None) -> None:
        """Close a connection. Responses to requests that are still parked in the cluster are dropped."""
        if connection.is_closed:
            return
        if why is not None:
            logger.warning("%r closed: %s", connection, why)
        connection.is_closed = True
        connection.memo_call = None
        fd = connection.socket.fileno()
        self._poller.unregister(fd)
        del self.connections[fd]
        self._partial.pop(connection, None)
        self.cluster.forget(connection)
        connection.socket.close()
        if not self._is_accepting:
            self._resume_accepting()

    def stop(self) -> None:
        """Close every connection and every listener."""
        for connection in list(self.connections.values()):
            self.close(connection)
        for listener, _ in self._listeners.values():
            listener.close()
        self._listeners.clear()
        self._poller.close()
