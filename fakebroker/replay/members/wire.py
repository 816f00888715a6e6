"""Connections by the ten thousand: nonblocking sockets behind one poller, driven by one thread's loop.

Knows sockets and how two sides agree on versions; not what is sent. Who uses a link is never called from inside of
`send` or `connect`: what goes wrong there is told at the end of the turn.
"""

import errno
import os
import socket
import time
from typing import Any

from fakebroker.client.connection import DEFAULT_CONNECT_TIMEOUT_MS
from fakebroker.errors import ErrorCode, FakebrokerError, ProtocolError
from fakebroker.open_files import file_limit
from fakebroker.protocol.frames import read_response, request_frame
from fakebroker.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from fakebroker.protocol.schema import Message, Versions
from fakebroker.replay.members.bootstrap import CLIENT_ID, Address
from fakebroker.replay.members.link import Link, Memo, Spoken, User
from fakebroker.server.poller import READ, WRITE, best_poller

_MAX_EVENTS = 256
_READ_BYTES = 64 * 1024
_NO_MORE_FILES = (errno.EMFILE, errno.ENFILE)

_NO_KAFKA = "at {address} nobody speaks Kafka's protocol in the clear (a listener for TLS or another service?): {why}"


class Wire:
    """All connections of one loop.

    Args:
        connect_timeout_ms: How long connecting and agreeing on versions may take together, in real time.
    """

    def __init__(self, connect_timeout_ms: float = DEFAULT_CONNECT_TIMEOUT_MS) -> None:
        self._connect_timeout_s = connect_timeout_ms / 1000
        self._poller = best_poller()
        self._links: dict[int, Link] = {}
        self._deadlines: dict[Link, float] = {}  # of those that are not open yet, in order
        self._turns = 0
        self._dirty: list[Link] = []
        self._opened: list[Link] = []
        self._lost: list[tuple[Link, str]] = []
        self._spoken: dict[Address, Spoken] = {}  # agreed on once a broker, for as long as no connection to it is lost
        self._resolved: dict[Address, list[tuple[int, Any]]] = {}

    def connect(self, address: Address, user: User, *, is_shared: bool = False) -> Link:
        """A connection that is being made; the user is told when it is open, or lost.

        Args:
            address: Host and port.
            user: The first user.
            is_shared: Whether there will be more, whose requests are to go out together.

        Raises:
            FakebrokerError: This machine has no further files or ports for it.
        """
        link = Link(address, user, is_shared=is_shared)
        self._deadlines[link] = time.monotonic() + self._connect_timeout_s
        try:
            link.ways = list(self._resolve(address))
        except OSError as error:
            self.lose(link, error.strerror or str(error))
            return link
        self._go_next_way(link, "its name has no address")
        return link

    def send(
        self, link: Link, request: Message, version: int, client_id: str, user: User, memo: Memo | None = None
    ) -> None:
        """Send a request over an open link.

        Args:
            link: One that may be lost meanwhile; its users are about to be told then.
            request: In its newest shape.
            version: As the link's `version_for` says.
            client_id: What the broker is told.
            user: Who gets the answer.
            memo: Remembers the bytes of a request that repeats itself.

        Raises:
            ProtocolError: The version cannot carry the request.
        """
        if link.is_closed:
            return
        frame = link.frame(request, version, client_id, user, memo)
        if not link.is_shared and not link.unsent:
            self._write(link, frame)
            return
        link.unsent += frame
        if not link.is_dirty:
            link.is_dirty = True
            self._dirty.append(link)

    def lose(self, link: Link, why: str) -> None:
        """It is over, and not because its users wanted it; they are told."""
        if link.is_closed:
            return
        if link.asked_version >= 0 and link.spoken is None:
            why = _NO_KAFKA.format(address=f"{link.address[0]}:{link.address[1]}", why=why)
        self._spoken.pop(link.address, None)
        self._close(link)
        self._lost.append((link, why))

    def let_go(self, link: Link, user: User) -> None:
        """A user is done with a link: what it is still owed is dropped. The last one closes it."""
        link.forget(user)
        if not link.users and not link.is_closed:
            self._close(link)

    def turn(self, timeout_s: float) -> None:
        """Wait for something to happen, and let users know of it."""
        if self._deadlines:
            timeout_s = min(timeout_s, max(0.0, next(iter(self._deadlines.values())) - time.monotonic()))
        if self._lost or self._opened or self._dirty:
            timeout_s = 0.0
        self._turns += 1
        links = self._links
        for fd, event in self._poller.poll(timeout_s, _MAX_EVENTS):
            link = links.get(fd)
            if link is None:
                continue  # closed by what happened earlier in this turn
            if link.is_connecting:
                if link.begun_in_turn != self._turns:  # else the event was for another socket of that number
                    self._connected(link)
                continue
            if event & ~WRITE:
                self._read(link)
            if event & WRITE and not link.is_closed:
                self._write(link, b"")
        self._settle()

    def close(self) -> None:
        """Close all connections; nobody is told."""
        for link in list(self._links.values()):
            self._close(link)
        self._poller.close()

    def _settle(self) -> None:
        """What is left over at the end of a turn: late connections, news for users, bytes that wait for company."""
        while self._deadlines:
            link, deadline_s = next(iter(self._deadlines.items()))
            if deadline_s > time.monotonic():
                break
            self.lose(link, f"no connection with versions agreed on after {self._connect_timeout_s * 1000:g} ms")
        opened, self._opened = self._opened, []
        for link in opened:
            for user in list(link.users):
                user.opened(link)
        lost, self._lost = self._lost, []
        for link, why in lost:
            for user in list(link.users):
                user.lost(link, why)
        dirty, self._dirty = self._dirty, []
        for link in dirty:
            link.is_dirty = False
            if not link.is_closed:
                self._write(link, b"")

    def _resolve(self, address: Address) -> list[tuple[int, Any]]:
        if address not in self._resolved:
            found = socket.getaddrinfo(*address, type=socket.SOCK_STREAM)
            self._resolved[address] = [(family, socket_address) for family, _, _, _, socket_address in found]
        return self._resolved[address]

    def _go_next_way(self, link: Link, why: str) -> None:
        """Try the next of a host's addresses; without one the link is lost."""
        while link.ways:
            family, socket_address = link.ways.pop(0)
            try:
                sock = socket.socket(family, socket.SOCK_STREAM)
            except OSError as error:
                raise self._exhausted(link.address, error) from None
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            code = sock.connect_ex(socket_address)
            if code in (0, errno.EINPROGRESS):
                link.socket, link.begun_in_turn = sock, self._turns
                self._links[sock.fileno()] = link
                self._poller.register(sock.fileno(), WRITE)
                return
            sock.close()
            if code == errno.EADDRNOTAVAIL:
                raise self._exhausted(link.address, OSError(code, os.strerror(code)))
            why = os.strerror(code)
        self._resolved.pop(link.address, None)
        self.lose(link, why)

    def _exhausted(self, address: Address, error: OSError) -> FakebrokerError:
        what = f"no further connection to {address[0]}:{address[1]} beside the {len(self._links):,} that are open"
        if error.errno in _NO_MORE_FILES:
            return FakebrokerError(f"{what}: the limit of open files is {file_limit():,}; raise it with `ulimit -n`")
        return FakebrokerError(
            f"{what}: {error.strerror}; each needs a local port of its own (see net.ipv4.ip_local_port_range), lanes "
            "need fewer"
        )

    def _connected(self, link: Link) -> None:
        assert link.socket is not None
        code = link.socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            self._drop_socket(link)
            self._go_next_way(link, os.strerror(code))
            return
        link.is_connecting = False
        self._poller.modify(link.socket.fileno(), READ)
        link.spoken = self._spoken.get(link.address)
        if link.spoken is None:
            self._ask_versions(link, ApiVersionsRequest.VERSIONS.last)
        else:
            self._open(link)

    def _ask_versions(self, link: Link, version: int) -> None:
        link.asked_version = version
        question = ApiVersionsRequest(client_software_name="fakebroker", client_software_version="unknown")
        self._write(link, request_frame(question, version, 0, CLIENT_ID))

    def _told_versions(self, link: Link, frame: bytes) -> None:
        """The broker's versions; one that does not know ours of the question answers in version 0 (KIP-511).

        Raises:
            ProtocolError: It does not tell.
        """
        asked = link.asked_version
        is_refusal = int.from_bytes(frame[4:6], "big", signed=True) == ErrorCode.UNSUPPORTED_VERSION
        _, told = read_response(ApiVersionsResponse, 0 if is_refusal else asked, frame)
        if is_refusal and asked > 0:
            known = {api.api_key: api.max_version for api in told.api_keys}
            self._ask_versions(link, max(0, min(known.get(ApiVersionsRequest.API_KEY, 0), asked - 1)))
            return
        if told.error_code:
            raise ProtocolError(f"ApiVersions was answered {ErrorCode(told.error_code).name}")
        spoken = Spoken({api.api_key: Versions(api.min_version, api.max_version) for api in told.api_keys})
        link.spoken = self._spoken[link.address] = spoken
        self._open(link)

    def _open(self, link: Link) -> None:
        del self._deadlines[link]
        self._opened.append(link)

    def _read(self, link: Link) -> None:
        assert link.socket is not None
        try:
            data = link.socket.recv(_READ_BYTES)
        except BlockingIOError:
            return
        except OSError as error:
            self.lose(link, error.strerror or str(error))
            return
        if not data:
            self.lose(link, "the broker has closed the connection")
            return
        try:
            for frame in link.frames.feed(data):
                if link.spoken is None:
                    self._told_versions(link, frame)
                else:
                    link.deliver(frame)
        except ProtocolError as error:
            self.lose(link, str(error))

    def _write(self, link: Link, frame: bytes | bytearray) -> None:
        """Send what waits and this; what the socket does not take waits."""
        assert link.socket is not None
        data = link.unsent if link.unsent else frame
        try:
            sent = link.socket.send(data)
        except BlockingIOError:
            sent = 0
        except OSError as error:
            self.lose(link, error.strerror or str(error))
            return
        is_stuck = sent < len(data)
        if is_stuck:
            link.unsent = bytearray(data[sent:])
        elif link.unsent:
            link.unsent = bytearray()
        if is_stuck is not link.is_stuck:
            link.is_stuck = is_stuck
            self._poller.modify(link.socket.fileno(), READ | WRITE if is_stuck else READ)

    def _close(self, link: Link) -> None:
        link.is_closed = True
        self._deadlines.pop(link, None)
        if link.socket is not None:
            self._drop_socket(link)

    def _drop_socket(self, link: Link) -> None:
        assert link.socket is not None
        fd = link.socket.fileno()
        self._poller.unregister(fd)
        del self._links[fd]
        link.socket.close()
        link.socket = None
