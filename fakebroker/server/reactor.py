"""The event loop for the sockets of a cluster: reads requests, writes responses.

It is one trio task, which waits until the poller reports ready sockets, and then reads, handles and writes all of them
without awaiting. A trio task per connection would cost more CPU time than all other work. Nothing awaits between
reading a frame and changing the cluster, so no locks are needed.

Does not depend on the meaning of requests: `RequestPath.handle` handles them.
"""

import logging
import socket
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import trio

from fakebroker.cluster.broker import BrokerNode
from fakebroker.cluster.call import Call, read_call
from fakebroker.cluster.cluster import Cluster
from fakebroker.cluster.configs.settings import MAX_REQUEST_BYTES, QUEUED_MAX_BYTES, QUEUED_MAX_REQUESTS
from fakebroker.cluster.handles.environment import no_tls_error
from fakebroker.cluster.listeners import Listener
from fakebroker.cluster.quotas import KIP_219
from fakebroker.coordinator.timers import Rank, TimedValue, Timers
from fakebroker.errors import DataDirectoryError, FakebrokerError, ProtocolError, TransportError
from fakebroker.protocol.frames import encoded_response_frame, response_frame, response_parts
from fakebroker.server.clock import Clock
from fakebroker.server.connections.acceptor import Acceptor
from fakebroker.server.connections.authenticator import Authenticator
from fakebroker.server.connections.connection import Blocked, Connection, UnsentResponse
from fakebroker.server.connections.connection_limits import ConnectionLimits
from fakebroker.server.connections.incomplete_requests import IncompleteRequests
from fakebroker.server.connections.network_faults import Action, DelayedAction, NetworkFaults
from fakebroker.server.connections.refusals import Refusals
from fakebroker.server.connections.response_times import ResponseTimes
from fakebroker.server.poller import READ, WRITE, best_poller
from fakebroker.server.response_frames import count_unsent, shortened_frame

if TYPE_CHECKING:  # Few clusters need them.
    from fakebroker.server.persistence import Persistence
    from fakebroker.server.tls.tls_listeners import TlsListeners

T = TypeVar("T")

logger = logging.getLogger("fakebroker")

READ_BYTES = 64 * 1024
MAX_READ_BYTES = 1024 * 1024
"""How many bytes are read at once while the rest of a large request is missing."""
MAX_EVENTS = 256
"""Maximum number of ready sockets per poll."""
MAX_TURNS = 8
"""Polls before other trio tasks, such as the control API, can run. Under load a poll and its work take 1 ms."""
PART_BYTES = 4 * 1024 * 1024
"""How many bytes of records one request may read before other connections get their turn: 4096 small records, or fewer
large ones (see `ReadMeter`). It takes about 10 ms."""
MAX_FRAMES_AT_ONCE = 32
"""Maximum number of queued requests of one connection that are handled before other connections get their turn."""
_AT_ONCE = range(MAX_FRAMES_AT_ONCE)

WITH_RECORDS = "Fetch"
"""The API whose responses have record batches."""
MAX_PARTS = 1024
"""Maximum number of buffers that are sent with one system call (IOV_MAX)."""

DEFAULT_MAX_UNSENT_BYTES = 64 * 1024 * 1024
DEFAULT_PARTIAL_FRAME_TIMEOUT_MS = 30_000


class Reactor:
    """Serves the brokers of one cluster. While `run` runs, use it only in the cluster's thread.

    Args:
        cluster: Handles the requests.
        clock: The brokers' clock. Timeouts of connections are in real time.
        refusals: Counts the connections that the brokers close.
        persistence: Stores changes of the cluster before they are answered; None if they are not stored.
        max_unsent_bytes: A connection with more unsent bytes than this is closed.
        partial_frame_timeout_ms: A connection that has sent an incomplete frame is closed after this time without
            further bytes.
        tls_listeners: Certificates and settings of the listeners with TLS; None if there are none.

    Attributes:
        wire_clock: Real time.
        network_faults: Injected latency, throttling and disconnects.
        linger_s: How long to wait for more requests after some were handled, before other trio tasks can run.
        watchers: Functions that are called after changes until they return True: once for all requests of a poll.
        observers: Functions that are called after each request.
        connections: Open connections by file descriptor.
        response_times: Measures the times until responses are sent, while it is on.
    """

    def __init__(
        self,
        cluster: Cluster,
        clock: Clock,
        refusals: Refusals,
        persistence: "Persistence | None" = None,
        *,
        max_unsent_bytes: int = DEFAULT_MAX_UNSENT_BYTES,
        partial_frame_timeout_ms: float = DEFAULT_PARTIAL_FRAME_TIMEOUT_MS,
        tls_listeners: "TlsListeners | None" = None,
    ) -> None:
        self.cluster = cluster
        self.clock = clock
        self.wire_clock = clock.wire
        self._persistence = persistence
        self._storage_error: DataDirectoryError | None = None
        self.max_unsent_bytes = max_unsent_bytes
        self._tls_listeners = tls_listeners
        self.network_faults = NetworkFaults(cluster.wire_timers, self._perform)
        self.linger_s = 0.0
        self.watchers: list[Callable[[], bool]] = []
        self.observers: list[Callable[[], None]] = []
        self.connections: dict[int, Connection] = {}
        self.response_times = ResponseTimes()
        self._refusals = refusals
        self._poller = best_poller()
        self._max_request_bytes = cluster.config.number(MAX_REQUEST_BYTES)
        self._max_queued = cluster.config.number(QUEUED_MAX_REQUESTS)
        self._limits = ConnectionLimits(cluster, self._close_idle)
        self._incomplete = IncompleteRequests(
            partial_frame_timeout_ms,
            cluster.config.number(QUEUED_MAX_BYTES),
            self._set_interest,
            cluster.wire_timers,
            self.close,
        )
        self._authenticator = Authenticator(cluster, self)
        self._acceptor = Acceptor(self._poller, self._limits, self._max_request_bytes, cluster.wire_timers)
        self._dirty: list[Connection] = []
        self._resumable: deque[Connection] = deque()
        # Connections that quotas mute or close, with the responses that are delayed, by the brokers' time.
        self._muted: Timers[TimedValue[tuple[Connection, Call | None]]] = cluster.timers.service(
            Rank.QUOTAS, self._unmute
        )
        self._sleep = trio.CancelScope()
        cluster.faults.actions.log = _log_error
        cluster.part_bytes = PART_BYTES
        if tls_listeners is not None:
            cluster.check_listener_configs = tls_listeners.check

    def listen(self, broker: BrokerNode, listener: Listener, sock: socket.socket) -> None:
        """Accept connections to a broker's listener from a listening socket, which the reactor closes later."""
        self._acceptor.listen(broker, listener, sock)

    def disconnect(self, broker: BrokerNode) -> None:
        """Close a broker's listeners and every connection to it, and reset its network conditions."""
        self.close_listeners(broker)
        self.network_faults.conditions.pop(broker.node_id, None)
        for connection in [each for each in self.connections.values() if each.broker is broker]:
            self.close(connection)

    def close_listeners(self, broker: BrokerNode) -> None:
        """Close the listeners of a broker; its connections remain."""
        self._acceptor.close(broker)

    async def run(self) -> None:
        """Serve until canceled; then close every socket."""
        try:
            if self.cluster.has_new_broker_configs:
                self._apply_broker_configs()
            while True:
                with trio.move_on_after(self._seconds_to_sleep()) as self._sleep:
                    if self._resumable or self.cluster.requests.unfinished:
                        await trio.lowlevel.checkpoint()
                    else:
                        await trio.lowlevel.wait_readable(self._poller.fileno())
                self._check_storage()
                self._turn()
        finally:
            self.stop()

    def renew_certificates(self, *, expired: bool) -> None:
        """Give listeners new certificates; see `Environment.renew_certificates`."""
        if self._tls_listeners is None:
            raise no_tls_error()
        self._tls_listeners.renew(self.cluster.brokers.values(), expired=expired)

    def apply(self, function: Callable[[], T]) -> T:
        """Run a function that may change the cluster, then handle what is due. Called between two requests."""
        result = function()
        if self._persistence is not None:
            self._persistence.note_command()
        self._tick()
        # Wake the loop only if the next deadline is earlier now: most functions change nothing.
        due_at = trio.current_time() + (
            0 if self._resumable or self.cluster.requests.unfinished else self._seconds_to_sleep()
        )
        if due_at < self._sleep.deadline:
            self._sleep.deadline = due_at
        return result

    def _seconds_to_sleep(self) -> float:
        """Return the real seconds until something is due, by either clock."""
        wait_s = self.wire_clock.seconds_until(self.cluster.wire_timers.next_deadline())
        if self._persistence is not None:
            wait_s = min(wait_s, self.wire_clock.seconds_until(self._persistence.next_sync_ms))
        return min(wait_s, self.clock.seconds_until(self.cluster.timers.next_deadline()))

    def _turn(self) -> None:
        """Handle ready sockets, at most `MAX_TURNS` times, and what is due."""
        for turn in range(MAX_TURNS):
            events = self._poller.poll(self.linger_s if turn else 0, MAX_EVENTS)
            if not events and not self._resumable and not self.cluster.requests.unfinished:
                break
            self._handle_events(events)
            if self._resumable:
                self._resume()
            if self.cluster.requests.unfinished:
                self._continue_request()
            if self.cluster.has_new_broker_configs:
                self._apply_broker_configs()
            if self.watchers:
                self._call_watchers()
        if self._seconds_to_sleep() <= 0:
            self._tick()

    def _tick(self) -> None:
        """Handle what is due: timers of the cluster and of connections, by either clock."""
        now_ms = self.wire_clock.now_ms()
        self.cluster.tick(self.clock.now_ms(), now_ms)
        self._deliver()
        self._flush()
        if self._persistence is not None:
            self._persistence.sync(now_ms)
        if self.cluster.has_new_broker_configs:
            self._apply_broker_configs()
        if self.watchers:
            self._call_watchers()

    def _close_idle(self, now_ms: float) -> None:
        for connection in self._limits.idle(self.connections.values(), now_ms):
            logger.info("%r closed: idle (connections.max.idle.ms)", connection)  # as in Kafka: no warning
            self.close(connection)

    def _perform(self, delayed: DelayedAction) -> None:
        """Perform a delayed action of the network faults."""
        connection, action, frame, response = delayed
        if action is Action.UNBLOCK:
            connection.pending = None
            self._handle_later(connection)
            return
        connection.unsent += frame
        if response is not None:
            connection.unsent_responses.append(response)
        self._send(connection)
        if action is Action.HANG_UP:
            self.close(connection)

    def send_answer(self, connection: Connection, answer: bytearray, wire_ms: float) -> None:
        """Send the answer to a message of an authentication."""
        if connection.broker.node_id in self.network_faults.conditions:
            self.network_faults.delay(connection, answer, wire_ms)
        else:
            self._perform(DelayedAction(connection, Action.SEND, answer, None))

    def hang_up(self, connection: Connection, answer: bytearray, due_ms: float, why: str) -> None:
        """Send a last answer and close a connection at a time, without reading from it."""
        self._refusals.add(why)
        connection.queued.clear()
        self._incomplete.deadlines.pop(connection, None)
        self.network_faults.hang_up(connection, answer, due_ms)
        self._set_interest(connection)

    def _call_watchers(self) -> None:
        # Emptied first: a watcher that calls into the cluster must not call the watchers recursively.
        watchers, self.watchers = self.watchers, []
        self.watchers += [watcher for watcher in watchers if not watcher()]

    def _handle_events(self, events: Iterable[tuple[int, int]]) -> None:
        now_ms, wire_ms = self.clock.now_ms(), self.wire_clock.now_ms()
        for fd, event in events:
            connection = self.connections.get(fd)
            if connection is None:
                if fd in self._acceptor:
                    for accepted in self._acceptor.accept(fd, wire_ms):
                        self._add(accepted, wire_ms)
                continue
            if event & ~WRITE:
                self._read(connection, now_ms, wire_ms)
            if event & WRITE and not connection.is_closed:
                connection.active_ms = wire_ms
                self._send(connection)
        # Send all responses together, so that a client is not woken by each of them.
        self._flush()

    def _add(self, connection: Connection, wire_ms: float) -> None:
        """Serve a new connection, unless a limit forbids it."""
        fd = connection.socket.fileno()
        self.connections[fd] = connection
        connection.interest = READ
        self._poller.register(fd, READ)
        refusal = self._limits.opened(connection, wire_ms)
        if refusal is not None:
            logger.info("%r closed: %s", connection, refusal)
            self._refusals.add(refusal)
            self.close(connection)
            return
        self._close_excess(connection.broker)
        if connection.listener.has_tls:
            assert self._tls_listeners is not None
            listener = self._tls_listeners.of(connection.broker, connection.listener)
            connection.start_tls(listener, partial(self._set_interest, connection))
        if connection.listener.has_sasl:
            self._authenticator.require(connection)
        if self.network_faults.conditions:
            self.network_faults.accept(connection, wire_ms)
            self._set_interest(connection)
        if self.cluster.quotas.limits:
            self._limit_connections(connection)

    def _close_excess(self, broker: BrokerNode) -> None:
        """Close the connections of a broker beyond its limit."""
        for connection in self._limits.excess(broker, self.connections.values()):
            self.close(connection, "max.connections is exceeded, and it was the least recently used")

    def _apply_broker_configs(self) -> None:
        """Apply changed configs of brokers to their connections. Limits of new ones are looked up when they come."""
        self.cluster.has_new_broker_configs = False
        if self._tls_listeners is not None:
            self._tls_listeners.reload(self.cluster.brokers.values())
        for broker in self.cluster.brokers.values():
            self._close_excess(broker)

    def _limit_connections(self, connection: Connection) -> None:
        """Serve no requests of a new connection that exceeds a quota of its address, and close it later."""
        now_ms = self.clock.now_ms()
        throttle_ms = self.cluster.quotas.connection_throttle_ms(
            connection.broker.node_id, connection.client_host, now_ms
        )
        if throttle_ms:
            connection.pending = Blocked.HANGING_UP
            self._muted.schedule(TimedValue((connection, None)), now_ms + throttle_ms)

    def _read(self, connection: Connection, now_ms: float, wire_ms: float) -> None:
        size_bytes = READ_BYTES
        if connection.frames.held_bytes:
            size_bytes = min(max(READ_BYTES, connection.frames.missing_bytes), MAX_READ_BYTES)
        try:
            data = connection.socket.recv(size_bytes)
        except BlockingIOError:
            if connection.tls is not None:
                self._incomplete.watch(connection, wire_ms)  # The handshake, or a record that is not complete.
            return
        except OSError as error:
            self.close(connection, str(error) if isinstance(error, TransportError) else None)
            return
        if not data:
            self.close(connection)
            return
        try:
            frames = connection.frames.feed(data)
        except ProtocolError as error:
            self._authenticator.refuse_frame(connection, str(error), wire_ms)
            return
        if connection.frames.held_bytes or self._incomplete.deadlines:
            self._incomplete.watch(connection, wire_ms, has_completed=bool(frames))
        if len(frames) == 1 and connection.pending is None and not connection.queued:
            self._handle(connection, frames[0], now_ms, wire_ms)
        elif frames:
            connection.queued.extend(frames)
            self._handle_queued(connection, now_ms, wire_ms)

    def _resume(self) -> None:
        """Handle queued frames of connections that were blocked, or had more queued than `MAX_FRAMES_AT_ONCE`."""
        now_ms, wire_ms = self.clock.now_ms(), self.wire_clock.now_ms()
        for _ in range(len(self._resumable)):
            connection = self._resumable.popleft()
            connection.is_resumable = False
            self._handle_queued(connection, now_ms, wire_ms)
        self._flush()

    def _continue_request(self) -> None:
        """Handle the next part of a request that takes long. Between its parts, other requests are handled."""
        self.cluster.requests.continue_next(self.clock.now_ms(), self.wire_clock.now_ms())
        self._check_storage()
        self._deliver()
        for observer in self.observers:
            observer()
        self._flush()

    def _handle_queued(self, connection: Connection, now_ms: float, wire_ms: float) -> None:
        """Handle queued frames of a connection, at most `MAX_FRAMES_AT_ONCE`, until a response is pending."""
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
        """Handle one request, and write all responses that it completes."""
        if connection.authentication is not None and self._authenticator.receive(connection, frame, now_ms, wire_ms):
            return
        try:
            call = read_call(connection, frame)
        except ProtocolError as error:
            self.close(connection, str(error))
            return
        connection.read_ms = wire_ms
        try:
            if self.cluster.requests.handle(call, now_ms, wire_ms):
                if call.throttle_ms:
                    self._mute(connection, call)
                else:
                    self._write(connection, call)
            else:
                connection.pending = call
                if self.cluster.faults.actions:
                    self.cluster.faults.actions.run()
        except Exception:  # A bug in a handler closes only the connection of the request.
            self._check_storage()
            logger.exception("%r failed", call)
            self.close(connection, "internal error (see the traceback above)")
        if self.cluster.requests.answered:
            self._deliver()
        if self.observers:
            for observer in self.observers:
                observer()

    def _handle_later(self, connection: Connection) -> None:
        if not connection.is_resumable and not connection.is_closed:
            connection.is_resumable = True
            self._resumable.append(connection)

    def _deliver(self) -> None:
        """Write the completed responses, and let their connections handle queued frames."""
        cluster = self.cluster
        if cluster.disconnected:
            self._disconnect_peers()
        if cluster.faults.actions.is_running:
            return  # Called by a command that is an action. The caller of the actions delivers the responses.
        answered, cluster.requests.answered = cluster.requests.answered, []
        for call in answered:
            connection = call.peer
            assert isinstance(connection, Connection)
            if connection.is_closed:
                count_unsent(self.cluster.journal, call)
                continue
            if call.closes_connection:
                # As in Kafka: a Produce with acks=0 has no response that could contain the error.
                self.close(connection, f"{call!r}: {call.closing_reason or 'failed, and it has no response'}")
                continue
            connection.pending = None
            if call.throttle_ms:
                self._mute(connection, call)
            elif call.response is not None:
                self._write(connection, call)
            else:
                cluster.journal.add_response(call, 0)
            if call.fault is not None:
                self.network_faults.after_response(connection, call.fault, self.wire_clock.now_ms())
            if connection.queued:
                self._handle_later(connection)

    def _disconnect_peers(self) -> None:
        """Close the connections that the cluster breaks."""
        peers, self.cluster.disconnected[:] = self.cluster.disconnected[:], []
        for connection in peers:
            assert isinstance(connection, Connection)
            if not connection.is_closed:
                self.close(connection, "the session of its consumer has expired")

    def _mute(self, connection: Connection, call: Call) -> None:
        """Write a response and handle no further requests for its throttle time (KIP-219), or first delay it."""
        is_delayed = call.broker.release < KIP_219
        if call.response is not None and not is_delayed:
            self._write(connection, call)
        connection.pending = Blocked.THROTTLED
        timer = TimedValue((connection, call if is_delayed else None))
        self._muted.schedule(timer, self.clock.now_ms() + call.throttle_ms)

    def _unmute(self, timer: TimedValue[tuple[Connection, Call | None]], due_ms: float, now_ms: float) -> None:
        connection, delayed = timer.value
        if connection.is_closed:
            return
        if connection.pending is Blocked.HANGING_UP:
            self.close(connection)
            return
        if delayed is not None and delayed.response is not None:
            self._write(connection, delayed)
        if connection.pending is Blocked.THROTTLED:
            connection.pending = None
            self._handle_later(connection)

    def _write(self, connection: Connection, call: Call) -> None:
        if call.api.name == WITH_RECORDS and self._has_sent_records(connection, call):
            return
        try:
            if call.body is None:
                frame = response_frame(call.response, call.response_version, call.correlation_id)
            else:
                frame = encoded_response_frame(call.api.response, call.body, call.response_version, call.correlation_id)
        except ProtocolError:
            shortened = shortened_frame(call)
            if shortened is None:
                self.close(connection, f"{call!r}: internal error (see the traceback above)")
                return
            frame = shortened
        if len(frame) >= self.cluster.journal.min_response_bytes or call.kept is not None:
            self.cluster.journal.add_response(call, len(frame))
        if call.fault is not None:
            frame = self.cluster.faults.corrupted(call.fault, frame)
        response: UnsentResponse | None = None
        if self.response_times.is_on:
            response = (call.api.name, connection.read_ms, len(frame))
        conditions = self.network_faults.conditions
        if conditions and connection.broker.node_id in conditions:
            self.network_faults.delay(connection, frame, self.wire_clock.now_ms(), response)
            return
        if response is not None:
            connection.unsent_responses.append(response)
        if connection.unsent:
            connection.unsent += frame
        else:
            connection.unsent = frame
        if not connection.is_dirty:
            connection.is_dirty = True
            self._dirty.append(connection)

    def _has_sent_records(self, connection: Connection, call: Call) -> bool:
        """Send the response to a Fetch at once, without copying its records. Return False if it has to wait."""
        if call.fault is not None or connection.unsent or self.network_faults.conditions:
            return False
        try:
            parts = response_parts(call.response, call.response_version, call.correlation_id)
        except ProtocolError:
            return False
        if len(parts) == 1:
            return False
        if self._persistence is not None:
            self._store()
        size_bytes = sum(map(len, parts))
        self.cluster.journal.add_response(call, size_bytes)
        if self.response_times.is_on:
            connection.unsent_responses.append((call.api.name, connection.read_ms, size_bytes))
        try:
            sent = connection.socket.sendmsg(parts[:MAX_PARTS])
        except BlockingIOError:
            sent = 0
        except OSError:
            self.close(connection)
            return True
        if connection.unsent_responses:
            self.response_times.record(connection.unsent_responses, sent, self.wire_clock.now_ms())
        if sent < size_bytes:
            for part in parts:
                connection.unsent += memoryview(part)[sent:]
                sent = max(0, sent - len(part))
            self._wait_for_socket(connection)
        return True

    def _flush(self) -> None:
        """Send the responses that were written since the last call, after all changes are stored."""
        if self._persistence is not None:
            self._store()
        while self._dirty:
            connection = self._dirty.pop()
            connection.is_dirty = False
            if not connection.is_closed:
                self._send_unsent(connection)

    def _store(self) -> None:
        """Store all changes, so that responses may tell of them. If the disk fails, the reactor ends unanswered.

        Raises:
            DataDirectoryError: The disk has failed.
        """
        assert self._persistence is not None
        try:
            self._persistence.flush(self.wire_clock.now_ms())
        except DataDirectoryError as error:
            self._storage_error = error
            self._sleep.deadline = trio.current_time()
            raise

    def _check_storage(self) -> None:
        """After a failure of the disk, raise its error again."""
        if self._storage_error is not None:
            raise self._storage_error

    def _send(self, connection: Connection) -> None:
        """Send the unsent bytes of a connection, after all changes are stored."""
        if self._persistence is not None:
            self._store()
        self._send_unsent(connection)

    def _send_unsent(self, connection: Connection) -> None:
        unsent = connection.unsent
        try:
            sent = connection.socket.send(unsent)
        except BlockingIOError:
            sent = 0
        except OSError:
            self.close(connection)
            return
        if connection.unsent_responses:
            self.response_times.record(connection.unsent_responses, sent, self.wire_clock.now_ms())
        if sent == len(unsent):
            connection.unsent = bytearray()
            if connection.interest & WRITE:
                self._set_interest(connection)
            return
        del unsent[:sent]
        self._wait_for_socket(connection)

    def _wait_for_socket(self, connection: Connection) -> None:
        """Send the unsent bytes when the socket accepts more, unless there are too many."""
        if len(connection.unsent) > self.max_unsent_bytes:
            self.close(connection, f"{len(connection.unsent)} unsent bytes, the limit is {self.max_unsent_bytes}")
        else:
            self._set_interest(connection)

    def _set_interest(self, connection: Connection) -> None:
        if connection.is_closed:
            return
        tls = connection.tls
        interest = WRITE if connection.unsent or (tls is not None and tls.has_unsent) else 0
        if (
            len(connection.queued) < self._max_queued
            and connection.pending is not Blocked.HANGING_UP
            and not self._incomplete.is_waiting(connection)
        ):
            interest |= READ
        if tls is not None and not tls.is_established and isinstance(connection.pending, Blocked):
            interest &= ~READ  # A broker that does not accept connections does not answer a handshake either.
        if interest != connection.interest:
            connection.interest = interest
            self._poller.modify(connection.socket.fileno(), interest)

    def close(self, connection: Connection, why: str | None = None) -> None:
        """Close a connection. Responses that are pending in the cluster are dropped when they complete.

        Args:
            connection: The connection.
            why: The reason to log; None if the client closed it, or the broker stops.
        """
        if connection.is_closed:
            return
        if why is not None:
            logger.warning("%r closed: %s", connection, why)
            self._refusals.add(why)
        connection.is_closed = True
        connection.release_memory()
        fd = connection.socket.fileno()
        self._poller.unregister(fd)
        del self.connections[fd]
        self._limits.closed(connection)
        self._incomplete.closed(connection, self.wire_clock.now_ms())
        self.cluster.forget(connection)
        connection.close_socket()
        self._acceptor.resume()

    def stop(self) -> None:
        """Close all connections and listeners."""
        for connection in list(self.connections.values()):
            self.close(connection)
        self._acceptor.stop()
        self._poller.close()


def _log_error(text: str, error: Exception) -> None:
    """Log an error of an action, without a traceback if it is a mistake of the user."""
    logger.error("action failed: %s", text, exc_info=None if isinstance(error, FakebrokerError) else error)
