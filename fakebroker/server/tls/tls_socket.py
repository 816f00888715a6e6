"""A socket that encrypts: it has the methods of `socket.socket` that the reactor uses, and never blocks.

Does not depend on the reactor.
"""

import socket
import ssl
from collections.abc import Callable, Sequence
from contextlib import suppress

from fakebroker.errors import TransportError

_CHUNK_BYTES = 64 * 1024
"""How much is encrypted before the socket must have accepted what was encrypted before."""
_MAX_UNSENT_BYTES = 1024 * 1024
"""With more unsent encrypted bytes, nothing more is read: a peer could ask for new keys without reading the answers."""
_HEADER_BYTES = 5
"""Of a record: its type, the version, and the size of what follows in two bytes."""
_HANDSHAKE = 0x16
"""The first byte of TLS (ContentType.handshake)."""

_REASONS = {
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "the client has no certificate, expected one (ssl.client.auth=required)",
    "TLSV1_ALERT_UNKNOWN_CA": "the client does not trust the certificate of the broker",
    "SSLV3_ALERT_BAD_CERTIFICATE": "the client does not accept the certificate of the broker",
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": "the client does not accept the certificate of the broker",
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "the client does not accept the certificate of the broker, which has expired",
}
"""Sentences for OpenSSL's errors that users meet most often."""


class TlsSocket:
    """The broker's side of an encrypted connection.

    Args:
        raw: The socket, non-blocking.
        context: Certificates and versions of TLS.
        on_established: Called with the client's certificate (DER; None if it has sent none) when the handshake is
            complete. May raise `TransportError`, to end the connection.
        on_unsent: Called when the socket has not accepted all encrypted bytes: then `send` has to be called, also
            without data, as soon as the socket is writable.

    Attributes:
        raw: The socket.
        is_established: Whether the handshake is complete.
        is_incomplete: Whether more bytes are needed to complete the handshake or a record.
    """

    def __init__(
        self,
        raw: socket.socket,
        context: ssl.SSLContext,
        on_established: Callable[[bytes | None], None],
        on_unsent: Callable[[], None],
    ) -> None:
        self.raw = raw
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._on_established, self._on_unsent = on_established, on_unsent
        self._unsent = bytearray()
        self._first_byte: int | None = None
        self._header, self._missing_bytes = b"", 0  # Of the last record, what was received and what is missing.
        self._is_ended = False
        self.is_established = self.is_incomplete = False

    @property
    def has_unsent(self) -> bool:
        """Whether the socket has not accepted all encrypted bytes."""
        return bool(self._unsent)

    def fileno(self) -> int:
        return self.raw.fileno()

    def recv(self, size: int) -> bytes:
        """Return what was received, decrypted; empty if the peer has ended the connection.

        Args:
            size: How many encrypted bytes are read. What was received before may add some more.

        Raises:
            BlockingIOError: There is no decrypted byte now.
            TransportError: The handshake has failed, or what was received is not TLS.
            OSError: The connection is broken.
        """
        if self._is_ended:
            return b""
        encrypted = self.raw.recv(size)
        if not encrypted:
            return b""
        if self._first_byte is None:
            self._first_byte = encrypted[0]
        self._follow_records(encrypted)
        self._incoming.write(encrypted)
        try:
            data = self._decrypt()
        except ssl.SSLError as error:
            self._is_ended = True  # `close` sends the alert.
            raise TransportError(self._reason(error)) from None
        self.is_incomplete = not self.is_established or self._missing_bytes > 0 or bool(self._header)
        self._flush()
        if len(self._unsent) > _MAX_UNSENT_BYTES:
            raise TransportError(f"{len(self._unsent)} unsent bytes of TLS itself")
        if data or self._is_ended:
            return data
        raise BlockingIOError

    def _follow_records(self, encrypted: bytes) -> None:
        """Skip over the records that were received, to know whether the last one is complete."""
        received, position = self._header + encrypted, self._missing_bytes
        while position + _HEADER_BYTES <= len(received):
            position += _HEADER_BYTES + int.from_bytes(received[position + 3 : position + _HEADER_BYTES])
        self._header, self._missing_bytes = received[position:], max(0, position - len(received))

    def _decrypt(self) -> bytes:
        """Continue the handshake or decrypt what was received, as far as possible.

        Raises:
            ssl.SSLError: TLS has failed.
            TransportError: The peer's certificate is refused.
        """
        pieces: list[bytes] = []
        with suppress(ssl.SSLWantReadError):
            if not self.is_established:
                self._tls.do_handshake()
                self.is_established = True
                self._on_established(self._tls.getpeercert(binary_form=True))
            while piece := self._tls.read(_CHUNK_BYTES):
                pieces.append(piece)
            self._end()
        return b"".join(pieces)

    def _end(self) -> None:
        """The peer has sent close_notify. The socket becomes readable, so that `recv` is called and returns nothing."""
        self._is_ended = True
        with suppress(OSError):
            self.raw.shutdown(socket.SHUT_RD)

    def send(self, data: bytes | bytearray | memoryview) -> int:
        """Send data, as `socket.send` does.

        Returns:
            How many bytes were encrypted. If the socket has not accepted them, `on_unsent` was called.

        Raises:
            BlockingIOError: Encrypted bytes still wait for the socket.
            OSError: The connection is broken.
        """
        self._flush()
        if self._unsent:
            raise BlockingIOError
        done, size = 0, len(data)
        with memoryview(data) as view:
            while done < size and not self._unsent:
                done += self._tls.write(view[done : done + _CHUNK_BYTES])
                self._flush()
        return done

    def sendmsg(self, parts: Sequence[bytes | bytearray | memoryview]) -> int:
        """Send the parts of a message, like `send`. They are copied once: parts are shorter than records of TLS."""
        return self.send(b"".join(parts))

    def _flush(self) -> None:
        if self._outgoing.pending:
            self._unsent += self._outgoing.read()
        if not self._unsent:
            return
        with suppress(BlockingIOError):
            del self._unsent[: self.raw.send(self._unsent)]
        if self._unsent:
            self._on_unsent()

    def close(self) -> None:
        """Send close_notify, if the socket accepts it now, and close the socket."""
        with suppress(OSError):  # Among them all of ssl: the peer has not sent its own, or the handshake is incomplete.
            self._tls.unwrap()
        with suppress(OSError):
            self._flush()
        self.raw.close()

    def _reason(self, error: ssl.SSLError) -> str:
        """Return why TLS has failed, as a sentence to log."""
        if self._first_byte != _HANDSHAKE:
            return "not TLS, expected a client with SSL or SASL_SSL"
        what = "TLS" if self.is_established else "TLS handshake"
        if isinstance(error, ssl.SSLCertVerificationError):
            return f"{what} failed: the certificate of the client is not valid: {error.verify_message}"
        reason = error.reason or "unknown error"
        text = _REASONS.get(reason)
        if text is None:
            text = reason.replace("SSLV3_ALERT_", "TLSV1_ALERT_").removeprefix("TLSV1_").replace("_", " ").lower()
            if text.startswith("alert "):
                text = f"the client has sent the {text}"
        return f"{what} failed: {text}"
