"""TLS: the broker's side of an encrypted connection, and bytes of a client that were changed on the way."""

import ssl
from collections.abc import Iterator
from contextlib import suppress
from enum import IntEnum
from functools import cache
from typing import Any

from fakebroker.cluster.configs.settings import Config
from fakebroker.cluster.listeners import Listener
from fakebroker.errors import TransportError
from fakebroker.server.tls.certificates import CertificateAuthority
from fakebroker.server.tls.tls_listener import TlsListener

_HOST = "127.0.0.1"
_MAX_STEPS = 40
_MAX_TEXT_BYTES = 3_000
_MAX_SENT_BYTES = 2 * 1024 * 1024


class Change(IntEnum):
    """What is done to the next bytes of the client."""

    NOTHING = 0
    REPLACE = 1
    INSERT = 2
    REMOVE = 3
    REPEAT = 4
    HOLD = 5
    """The bytes behind the offset come with the next ones."""
    TEXT = 6
    """None; the client sends some text before."""
    CLOSE = 7
    """None; the connection ends after them."""


def run(data: bytes) -> None:
    """Let a client shake hands with the broker and send text, while its bytes are changed, repeated or cut.

    The broker's side raises nothing but what the reactor expects. What it returns is what the client has sent,
    from the first byte on, and it holds few bytes.

    Args:
        data: A byte with flags: whether the client has TLS 1.2 only and a certificate, and whether the broker reads a
            few bytes at once. Then steps: a `Change`, an offset in two bytes, and bytes after their size.
    """
    flags = data[0] if data else 0
    client = _Client(is_old=bool(flags & 1), has_certificate=bool(flags & 2))
    broker = _Broker(7 if flags & 4 else 65_536)
    data, held = data[1:], b""
    for _ in range(_MAX_STEPS):
        if not data or broker.is_closed:
            break
        kind, offset = Change(data[0] % len(Change)), int.from_bytes(data[1:3], "big")
        size = data[3] if len(data) > 3 else 0
        new, data = data[4 : 4 + size], data[4 + size :]
        if kind is Change.TEXT:
            client.send(offset % _MAX_TEXT_BYTES)
        sent = held + client.step(broker.answers())
        held = b""
        if kind is Change.HOLD:
            sent, held = sent[: offset % (len(sent) + 1)], sent[offset % (len(sent) + 1) :]
        broker.receive(_changed(kind, offset, new, sent))
        if kind is Change.CLOSE:
            broker.receive(None)
        assert client.text.startswith(bytes(broker.received)), "the broker has read what the client has not sent"
    broker.close()


def _changed(kind: Change, offset: int, new: bytes, sent: bytes) -> bytes:
    at = offset % (len(sent) + 1)
    match kind:
        case Change.REPLACE:
            return sent[:at] + new + sent[at + len(new) :]
        case Change.INSERT:
            return sent[:at] + new + sent[at:]
        case Change.REMOVE:
            return sent[:at] + sent[at + len(new) :]
        case Change.REPEAT:
            return sent + sent[at:]
        case _:
            return sent


class _Client:
    """A client in memory.

    Attributes:
        text: What it has sent.
    """

    def __init__(self, *, is_old: bool, has_certificate: bool) -> None:
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = _context(is_old, has_certificate).wrap_bio(self._incoming, self._outgoing, server_hostname=_HOST)
        self._is_established = False
        self.text = b""

    def step(self, answers: bytes) -> bytes:
        """Receive the broker's bytes, and return what the client sends."""
        self._incoming.write(answers)
        with suppress(ssl.SSLError):
            if not self._is_established:
                self._tls.do_handshake()
                self._is_established = True
            while self._tls.read(65_536):
                pass
        return self._outgoing.read()

    def send(self, size: int) -> None:
        """Encrypt text, if the handshake is complete."""
        if self._is_established:
            with suppress(ssl.SSLError):
                text = bytes((len(self.text) + index) % 251 for index in range(size))
                self._tls.write(text)
                self.text += text


class _Broker:
    """The broker's side, which reads from memory, and is used as by the reactor.

    Attributes:
        received: What it has read.
        is_closed: Whether the connection has ended.
    """

    def __init__(self, read_bytes: int) -> None:
        self._raw = _Raw()
        raw: Any = self._raw
        self._socket = _listener().encrypted(raw, self._note_certificate, lambda: None)
        self._read_bytes = read_bytes
        self.received = bytearray()
        self.is_closed = False

    def answers(self) -> bytes:
        """Return what it has sent since the last call."""
        sent, self._raw.sent = bytes(self._raw.sent), bytearray()
        return sent

    def receive(self, data: bytes | None) -> None:
        """Receive bytes, or the end of the connection. It answers each byte that it reads with another one."""
        if data is None:
            self._raw.is_ended = True
        else:
            self._raw.incoming += data
        while not self.is_closed and (self._raw.incoming or self._raw.is_ended):
            try:
                read = self._socket.recv(self._read_bytes)
            except BlockingIOError:
                continue
            except (TransportError, ConnectionError, ssl.SSLError):
                read = b""
            if not read:
                self.close()
                return
            self.received += read
            self._answer(bytes(len(read)))
            assert len(self._raw.sent) < _MAX_SENT_BYTES

    def _note_certificate(self, certificate: bytes | None) -> None:
        assert _listener().principal_of(certificate) == ("User:ANONYMOUS" if certificate is None else "User:CN=alice")

    def _answer(self, data: bytes) -> None:
        while data:
            try:
                data = data[self._socket.send(data) :]
            except BlockingIOError:
                return
            except OSError:
                self.close()
                return

    def close(self) -> None:
        """Close the connection."""
        if not self.is_closed:
            self.is_closed = True
            self._socket.close()
            assert self._raw.is_closed


class _Raw:
    """A socket in memory, of which each call of `send` accepts fewer bytes than the one before, and then more again."""

    def __init__(self) -> None:
        self.incoming, self.sent = bytearray(), bytearray()
        self.is_ended = self.is_closed = False
        self._calls = 0

    def recv(self, size: int) -> bytes:
        read = bytes(self.incoming[:size])
        del self.incoming[:size]
        if not read and not self.is_ended:
            raise BlockingIOError
        return read

    def send(self, data: bytes | bytearray) -> int:
        self._calls += 1
        accepted = data[: 1 + 5_000 // (1 + self._calls % 5)]
        if self._calls % 4 == 3:
            raise BlockingIOError
        self.sent += accepted
        return len(accepted)

    def shutdown(self, how: int) -> None:
        self.is_ended = True

    def close(self) -> None:
        self.is_closed = True


@cache
def _authority() -> CertificateAuthority:
    return CertificateAuthority([_HOST])


@cache
def _listener() -> TlsListener:
    settings = _authority().settings | {"ssl.client.auth": "requested"}
    return TlsListener(Config(settings), Listener("SSL", "SSL"))


@cache
def _context(is_old: bool, has_certificate: bool) -> ssl.SSLContext:
    """Return the context of clients."""
    context = ssl.create_default_context(cafile=_authority().ca_file)
    if is_old:
        context.maximum_version = ssl.TLSVersion.TLSv1_2
    if has_certificate:
        context.load_cert_chain(*_authority().client_certificate("alice"))
    return context


def seeds() -> Iterator[bytes]:
    """Yield connections with text, each with one change in the handshake or in the text."""
    text, nothing = b"\x06\x02\x00\x00", b"\x00\x00\x00\x00"
    yield b"\x00\x00\x00\x05hello"
    for flags in range(8):
        for place in range(6):
            steps = [nothing, nothing, nothing, text, text, nothing]
            change = Change(1 + (flags + place) % (len(Change) - 1))
            steps.insert(place, bytes([change, 0, 3 + 9 * place, 2]) + b"\x16\x03")
            yield bytes([flags]) + b"".join(steps)
