"""Sockets: one readiness loop for all listeners and connections of a cluster.

trio owns start, stop, timers and cancellation; this loop owns the bytes. One task waits until the poller has something,
then reads, handles and writes every ready socket without awaiting: a task per connection would cost more than all the
rest. Nothing awaits between reading a frame and changing the state, so there is no lock.

Knows frames and calls; not what any request means.
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
from fakebroker.server.network_faults import Detours
from fakebroker.server.poller import READ, WRITE, best_poller

T = TypeVar("T")

logger = logging.getLogger("fakebroker")

READ_BYTES = 64 * 1024
MAX_EVENTS = 256
MAX_TURNS = 32
MAX_FRAMES_AT_ONCE = 32
_AT_ONCE = range(MAX_FRAMES_AT_ONCE)
MAX_WAITING_FRAMES = 100

DEFAULT_MAX_UNSENT_BYTES = 64 * 1024 * 1024
DEFAULT_PARTIAL_FRAME_TIMEOUT_MS = 30_000


class Reactor:
    """The server of one cluster.

    Args:
        cluster: What answers.
        clock: The brokers' time. Clients' waits are measured in real time, whatever this is.
        max_unsent_bytes: A client that has this much left unread is closed.
        partial_frame_timeout_ms: A client that stops in the middle of a frame is closed after so long.

    Attributes:
        wire_clock: The clients' time.
        detours: What connections and answers that do not take the straight way go through.
        linger_s: How long to wait for the next request, after one, before other tasks of the thread have their turn.
        watchers: Are called each time that something has happened, until they return True.
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
        self.detours = Detours(self)
        self.linger_s = 0.0
        self.watchers: list[Callable[[], bool]] = []
        self.connections: dict[int, Connection] = {}
        self._listeners: dict[int, tuple[socket.socket, BrokerNode]] = {}
        self._poller = best_poller()
        self._max_request_bytes = cluster.config.number("socket.request.max.bytes")
        self._dirty: list[Connection] = []
        self._resumable: deque[Connection] = deque()
        self._partial: dict[Connection, float] = {}
        self._connections_made = 0
        self._is_accepting = True
        self._sleep = trio.CancelScope()

    def listen(self, broker: BrokerNode, listener: socket.socket) -> None:
        """Take connections for a broker from a bound and listening socket."""
        listener.setblocking(False)
        self._listeners[listener.fileno()] = (listener, broker)
        self._poller.register(listener.fileno(), READ)

    def cut_off(self, broker: BrokerNode) -> None:
        """Close a broker's port and every connection to it."""
        self.close_port(broker)
        self.detours.reach.pop(broker.node_id, None)
        for connection in [each for each in self.connections.values() if each.broker is broker]:
            self.close(connection)

    def close_port(self, broker: BrokerNode) -> None:
        """Take no further connections for a broker."""
        for fd, (listener, owner) in list(self._listeners.items()):
            if owner is broker:
                self._poller.unregister(fd)
                listener.close()
                del self._listeners[fd]

    async def run(self) -> None:
        """Serve until cancelled; then close every socket."""
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
        """Run something between two requests that may change the cluster, then do what follows from it."""
        result = function()
        self._tick()
        # What is due may be due sooner now. Where it is not, nobody is woken: there is more asking than changing.
        due_at = trio.current_time() + (0 if self._resumable else self._seconds_to_sleep())
        if due_at < self._sleep.deadline:
            self._sleep.deadline = due_at
        return result

    def _seconds_to_sleep(self) -> float:
        """Until something is due: for the brokers by their clock, on the wire by real time."""
        waits = [self.clock.seconds_until(self.cluster.next_deadline())]
        waits.append(self.wire_clock.seconds_until(self.cluster.purgatory.next_deadline()))
        waits.append(self.wire_clock.seconds_until(self.detours.next_deadline()))
        if self._partial:
            waits.append(self.wire_clock.seconds_until(next(iter(self._partial.values()))))
        return min(waits)

    def _turn(self) -> None:
        """Handle what is ready, a bounded number of times, and what is due."""
        for turn in range(MAX_TURNS):
            events = self._poller.poll(self.linger_s if turn else 0, MAX_EVENTS)
            if not events and not self._resumable:
                break
            self._handle_events(events)
            if self._resumable:
                self._resume()
            if self.watchers:
                self._look()
        if self._seconds_to_sleep() <= 0:
            self._tick()

    def _tick(self) -> None:
        """Do what is due."""
        now_ms = self.wire_clock.now_ms()
        self.cluster.tick(self.clock.now_ms(), now_ms)
        self.detours.run(now_ms)
        self._deliver()
        self._flush()
        while self._partial:
            connection, deadline_ms = next(iter(self._partial.items()))
            if deadline_ms > now_ms:
                break
            self.close(connection, f"stopped for {self.partial_frame_timeout_ms / 1000:g} s in the middle of a request")
        if self.watchers:
            self._look()

    def _look(self) -> None:
        """Let those look who wait for something."""
        # None of them looks while another does, even if that one asks the cluster something.
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
                self.send(connection)
        # Together: a client that is busy with the first answer need not be woken for the next.
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
            except OSError:  # It is gone again already.
                sock.close()
                continue
            self._connections_made += 1
            self.connections[sock.fileno()] = connection
            connection.interest = READ
            self._poller.register(sock.fileno(), READ)
            self.detours.greet(connection)

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
        if len(frames) == 1 and connection.owed is None and not connection.waiting:
            self._handle(connection, frames[0], now_ms, wire_ms)
        elif frames:
            connection.waiting.extend(frames)
            self._take(connection, now_ms, wire_ms)

    def _watch_partial(self, connection: Connection, wire_ms: float) -> None:
        self._partial.pop(connection, None)
        if connection.frames.held_bytes:
            self._partial[connection] = wire_ms + self.partial_frame_timeout_ms

    def _resume(self) -> None:
        """Take up what connections have asked before: they were owed an answer, or had had their share of the time."""
        now_ms, wire_ms = self.clock.now_ms(), self.wire_clock.now_ms()
        for _ in range(len(self._resumable)):
            connection = self._resumable.popleft()
            connection.is_resumable = False
            self._take(connection, now_ms, wire_ms)
        self._flush()

    def _take(self, connection: Connection, now_ms: float, wire_ms: float) -> None:
        """Handle the frames of a connection, until it is owed an answer, or others should have their share."""
        waiting = connection.waiting
        for _ in _AT_ONCE:
            if not waiting or connection.owed is not None or connection.is_closed:
                break
            self._handle(connection, waiting.popleft(), now_ms, wire_ms)
        if waiting or not connection.interest & READ:
            self._set_interest(connection)
            if connection.owed is None:
                self.take_later(connection)

    def _handle(self, connection: Connection, frame: bytes, now_ms: float, wire_ms: float) -> None:
        """Handle one request, and send what it sets free."""
        try:
            call = read_call(connection, frame)
        except ProtocolError as error:
            self.close(connection, str(error))
            return
        try:
            if self.cluster.handle(call, now_ms, wire_ms):
                self._write(connection, call)
            else:
                connection.owed = call
        except Exception:  # A fault of ours costs the connection that met it, nothing else.
            logger.exception("%r failed", call)
            self.close(connection, "of an error in fakebroker, shown above")
        if self.cluster.answered:
            self._deliver()

    def take_later(self, connection: Connection) -> None:
        if not connection.is_resumable and not connection.is_closed:
            connection.is_resumable = True
            self._resumable.append(connection)

    def _deliver(self) -> None:
        """Hand the answers that are known to their connections; those may then have more to ask."""
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
            connection.owed = None
            if call.response is not None:
                self._write(connection, call)
            if call.fault is not None:
                self.detours.follow_up(connection, call.fault)
            if connection.waiting:
                self.take_later(connection)

    def _write(self, connection: Connection, call: Call) -> None:
        try:
            frame = response_frame(call.response, call.response_version, call.correlation_id)
        except ProtocolError:
            logger.exception("%r got an answer that its version cannot carry", call)
            self.close(connection, "of an error in fakebroker, shown above")
            return
        if call.fault is not None:
            frame = self.cluster.faults.corrupted(call.fault, frame)
        if self.detours.reach and connection.broker.node_id in self.detours.reach:
            self.detours.carry(connection, frame)
            return
        if connection.unsent:
            connection.unsent += frame
        else:
            connection.unsent = frame
        if not connection.is_dirty:
            connection.is_dirty = True
            self._dirty.append(connection)

    def _flush(self) -> None:
        """Send what is new."""
        while self._dirty:
            connection = self._dirty.pop()
            connection.is_dirty = False
            if not connection.is_closed:
                self.send(connection)

    def send(self, connection: Connection) -> None:
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
        if len(connection.waiting) < MAX_WAITING_FRAMES:
            interest |= READ
        if interest != connection.interest:
            connection.interest = interest
            self._poller.modify(connection.socket.fileno(), interest)

    def close(self, connection: Connection, why: str | None = None) -> None:
        """End a connection; what the cluster still has of it is answered into the void."""
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
        """Close every connection and every port."""
        for connection in list(self.connections.values()):
            self.close(connection)
        for listener, _ in self._listeners.values():
            listener.close()
        self._listeners.clear()
        self._poller.close()
