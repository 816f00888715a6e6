"""`TlsSocket` without a reactor, at one end of a pair of sockets with small buffers; the client is an `SSLSocket`."""

import random
import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import pytest

from fakebroker.errors import TransportError
from fakebroker.server.tls import tls_socket
from fakebroker.server.tls.tls_socket import TlsSocket
from tests.support.security.certificates import client_context, other_authority

P = TypeVar("P")
HOST = "broker.example"
WAITS = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


class Pair:
    """A client and the broker's side. Nothing blocks.

    Attributes:
        client: The client.
        broker: The broker's side.
        certificates: The client's certificate, once the handshake is complete.
        waits: How often encrypted bytes had to wait.
    """

    def __init__(self, ca_file: Path) -> None:
        other_authority().cert_pem.write_to_path(str(ca_file))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        other_authority().issue_cert(HOST).configure_cert(context)
        ends = socket.socketpair()
        for end in ends:
            end.setblocking(False)
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        of_client = client_context(str(ca_file))
        self.client = of_client.wrap_socket(
            ends[0], server_hostname=HOST, do_handshake_on_connect=False, suppress_ragged_eofs=False
        )
        self.certificates: list[bytes | None] = []
        self.waits = 0
        self.broker = TlsSocket(ends[1], context, self.certificates.append, self.count)

    def count(self) -> None:
        self.waits += 1

    def shake_hands(self, size: int = 65536) -> None:
        """Complete the handshake; the broker reads so many bytes at once."""
        is_done = False
        while not (is_done and self.broker.is_established):
            with suppress(*WAITS):
                self.client.do_handshake()
                is_done = True
            received(self.broker.recv, size)
            sent(self.broker.send, b"")

    def close(self) -> None:
        self.client.close()
        self.broker.close()


def received(recv: Callable[[int], bytes], size: int) -> bytes:
    """Return what can be received now."""
    with suppress(*WAITS):
        return recv(size)
    return b""


def sent(send: Callable[[P], int], data: P) -> int:
    """Return how many bytes can be sent now."""
    with suppress(*WAITS):
        return send(data)
    return 0


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    """A client and the broker's side, before the handshake."""
    pair = Pair(tmp_path / "ca.pem")
    yield pair
    pair.close()


@pytest.mark.parametrize("size", [1, 7, 65536])
def test_handshake(pair: Pair, size: int) -> None:
    assert not pair.broker.is_incomplete
    with pytest.raises(ssl.SSLWantReadError):
        pair.client.do_handshake()
    with pytest.raises(BlockingIOError):
        pair.broker.recv(1)
    assert pair.broker.is_incomplete
    pair.shake_hands(size)
    assert pair.certificates == [None]
    assert not pair.broker.is_incomplete


@pytest.mark.parametrize("seed", range(5))
def test_bytes_arrive_in_order_both_ways_through_small_buffers(pair: Pair, seed: int) -> None:
    chance = random.Random(seed)
    pair.shake_hands()
    to_client, to_broker = (chance.randbytes(chance.choice([1, 20_000, 300_000])) for _ in range(2))
    at_client, at_broker, sent_by_client, sent_by_broker = b"", b"", 0, 0
    while len(at_client) < len(to_client) or len(at_broker) < len(to_broker):
        size = chance.randrange(1, 200_000)
        match chance.randrange(4):
            case 0:
                parts = [to_client[sent_by_broker : sent_by_broker + size], b"", to_client[sent_by_broker + size :]]
                sent_by_broker += sent(pair.broker.sendmsg, parts)
            case 1 if sent_by_client < len(to_broker):
                piece = to_broker[sent_by_client : sent_by_client + 16_384]
                sent_by_client += sent(pair.client.send, piece)
            case 2:
                at_broker += received(pair.broker.recv, size)
            case _:
                at_client += received(pair.client.recv, size)
    assert (at_client, at_broker) == (to_client, to_broker), f"{seed=}"
    assert sent_by_broker == len(to_client)
    assert not pair.broker.has_unsent


def test_encrypted_bytes_that_wait_are_reported_and_block_more(pair: Pair) -> None:
    pair.shake_hands()
    done = size = 0
    while not pair.broker.has_unsent:
        done += pair.broker.send(bytes(1_000_000))
    assert pair.waits
    with pytest.raises(BlockingIOError):
        pair.broker.send(b"more")
    while size < done:
        size += len(received(pair.client.recv, 65536))
        sent(pair.broker.send, b"")  # Sends what waits.
    assert (size, pair.broker.has_unsent) == (done, False)


def test_a_client_that_does_not_read_the_answers_of_tls_is_refused(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    pair.shake_hands()
    while not pair.broker.has_unsent:
        pair.broker.send(bytes(100_000))
    pair.client.send(b"x")
    monkeypatch.setattr(tls_socket, "_MAX_UNSENT_BYTES", 10)
    with pytest.raises(TransportError, match="unsent bytes of TLS itself"):
        pair.broker.recv(1000)


@pytest.mark.parametrize("cut", [1, 4, 5, 6, 37])
def test_a_record_is_incomplete_until_its_last_byte(pair: Pair, cut: int) -> None:
    """Also if it follows one that is complete."""
    pair.shake_hands()
    pair.client.send(b"0123456789abcdef")
    encrypted = pair.broker.raw.recv(1000)
    ends = socket.socketpair()
    broker, pair.broker.raw = pair.broker.raw, ends[0]
    ends[1].send(encrypted + encrypted[:cut])  # The second record is never complete, and so not decrypted.
    assert pair.broker.recv(1000) == b"0123456789abcdef"
    assert pair.broker.is_incomplete
    pair.broker.raw = broker
    for end in ends:
        end.close()


def test_the_end_of_tls_makes_the_socket_readable(pair: Pair) -> None:
    pair.shake_hands()
    pair.client.send(b"last")
    with pytest.raises(ssl.SSLWantReadError):
        pair.client.unwrap()
    assert pair.broker.recv(65536) == b"last"
    assert pair.broker.raw.recv(1) == b""
    assert pair.broker.recv(1000) == b""


def test_closing_ends_tls(pair: Pair) -> None:
    """Without close_notify, `recv` would raise."""
    pair.shake_hands()
    pair.broker.close()
    assert pair.client.recv(1000) == b""


def test_a_certificate_that_is_refused_ends_the_connection(pair: Pair) -> None:
    def refuse(certificate: bytes | None) -> None:
        raise TransportError("not this one")

    pair.broker._on_established = refuse
    with pytest.raises(TransportError, match="not this one"):
        pair.shake_hands()
    pair.broker.close()
    assert pair.broker.fileno() == -1
