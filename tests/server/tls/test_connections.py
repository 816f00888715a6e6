"""Encrypted connections: handshakes, records in pieces, long responses, and connections that end or never begin."""

import socket
import ssl
import struct
import subprocess
import sys
from collections.abc import Iterator

import pytest

from fakebroker import FakeCluster
from fakebroker.errors import FakebrokerError
from fakebroker.protocol.frames import request_frame
from fakebroker.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from fakebroker.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from fakebroker.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from fakebroker.server.fake_cluster import internals
from fakebroker.server.poller import READ
from tests.support.cluster.cluster_harness import batch
from tests.support.security.certificates import client_context, context_of, other_authority
from tests.support.wire_client import TIMEOUT_S, WireClient, until

VERSIONS = ApiVersionsRequest(client_software_name="t", client_software_version="1")
BOTH = pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3], ids=lambda each: each.name)

pytestmark = pytest.mark.fake_cluster(brokers=1, topics={"orders": 1}, tls=True, seed=1)


@pytest.fixture
def wire(fake_cluster: FakeCluster) -> Iterator[WireClient]:
    with WireClient(fake_cluster.brokers[0], tls=context_of(fake_cluster)) as client:
        yield client


def asks(wire: WireClient) -> bool:
    """Return whether a request is answered."""
    return bool(wire.ask(VERSIONS, ApiVersionsResponse).api_keys)


def connect(cluster: FakeCluster) -> socket.socket:
    return socket.create_connection((cluster.brokers[0].host, cluster.brokers[0].port), timeout=TIMEOUT_S)


class Encryption:
    """The client's side of TLS, without a socket."""

    def __init__(self, cluster: FakeCluster, version: ssl.TLSVersion | None = None) -> None:
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        host = cluster.brokers[0].host
        self.tls = context_of(cluster, version=version).wrap_bio(self._incoming, self._outgoing, server_hostname=host)

    def shake_hands(self, sock: socket.socket, *, send: bool = True) -> bytes:
        """Complete the handshake, byte by byte. Return the last bytes to send; with `send`, they are sent, too."""
        while True:
            try:
                self.tls.do_handshake()
            except ssl.SSLWantReadError:
                self.send_bytes(sock)
                self._incoming.write(sock.recv(1))
            else:
                break
        if send:
            self.send_bytes(sock)
        return self._outgoing.read()

    def send_bytes(self, sock: socket.socket) -> None:
        while byte := self._outgoing.read(1):
            sock.sendall(byte)

    def receive(self, sock: socket.socket, size: int) -> bytes:
        data = b""
        while len(data) < size:
            try:
                data += self.tls.read(size - len(data))
            except ssl.SSLWantReadError:
                self._incoming.write(sock.recv(65536))
        return data


@BOTH
def test_requests_are_answered(fake_cluster: FakeCluster, version: ssl.TLSVersion) -> None:
    with WireClient(fake_cluster.brokers[0], tls=context_of(fake_cluster, version=version)) as wire:
        assert asks(wire)
        assert isinstance(wire.socket, ssl.SSLSocket)
        assert wire.socket.version() == version.name.replace("_", ".")
        assert wire.ask(MetadataRequest(topics=None), MetadataResponse).topics[0].name == "orders"
    assert {call.principal for call in fake_cluster.journal.requests()} == {"User:ANONYMOUS"}


@BOTH
def test_handshake_and_records_arrive_byte_by_byte(fake_cluster: FakeCluster, version: ssl.TLSVersion) -> None:
    encryption = Encryption(fake_cluster, version)
    with connect(fake_cluster) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        encryption.shake_hands(sock)
        frame = request_frame(VERSIONS, 3, 7, "bytes")
        encryption.tls.write(frame)
        encryption.send_bytes(sock)
        (size, correlation_id) = struct.unpack(">ii", encryption.receive(sock, 8))
        assert (len(encryption.receive(sock, size - 4)), correlation_id) == (size - 4, 7)


def let_time_out(cluster: FakeCluster) -> None:
    """Wait until one connection is incomplete, and let its timeout pass at once."""
    incomplete = cluster._server.reactor._incomplete
    until(lambda: internals(cluster).run(lambda: len(incomplete.deadlines)) == 1, cluster)

    def end() -> None:
        incomplete.deadlines.update(dict.fromkeys(incomplete.deadlines, 0.0))
        incomplete._timers.set(incomplete._timer, 0.0)

    internals(cluster).run(end)


@pytest.mark.fake_cluster(partial_frame_timeout_s=60)
@pytest.mark.parametrize("sent", [1, 5, 200])
def test_an_incomplete_handshake_is_closed_and_others_are_served_meanwhile(
    fake_cluster: FakeCluster, wire: WireClient, caplog: pytest.LogCaptureFixture, sent: int
) -> None:
    hello = client_hello(fake_cluster)
    with connect(fake_cluster) as half:
        half.sendall(hello[:sent])
        assert asks(wire)
        let_time_out(fake_cluster)
        assert half.recv(1) == b""
        assert asks(wire)  # Its handshake is complete.
    assert "closed: incomplete TLS handshake after 60 s" in caplog.text
    assert len(caplog.records) == 1


def client_hello(cluster: FakeCluster) -> bytes:
    encryption = Encryption(cluster)
    with pytest.raises(ssl.SSLWantReadError):
        encryption.tls.do_handshake()
    return encryption._outgoing.read()


def test_half_handshakes_do_not_delay_others(fake_cluster: FakeCluster, wire: WireClient) -> None:
    hello = client_hello(fake_cluster)
    halves = [connect(fake_cluster) for _ in range(50)]
    for number, half in enumerate(halves):
        half.sendall(hello[: 1 + number * 5])
        assert asks(wire)

    def partial() -> int:
        return len(fake_cluster._server.reactor._incomplete.deadlines)

    until(lambda: internals(fake_cluster).run(partial) == len(halves), fake_cluster)
    for half in halves:
        half.close()
    until(lambda: internals(fake_cluster).run(partial) == 0, fake_cluster)
    assert len(internals(fake_cluster).server.reactor.connections.values()) == 1
    assert asks(wire)


def test_a_connection_that_is_idle_after_its_handshake_is_not_incomplete(
    fake_cluster: FakeCluster, wire: WireClient
) -> None:
    until(
        lambda: all(
            each.tls and each.tls.is_established for each in internals(fake_cluster).server.reactor.connections.values()
        ),
        fake_cluster,
    )
    assert not internals(fake_cluster).run(lambda: fake_cluster._server.reactor._incomplete.deadlines)
    assert asks(wire)


@pytest.mark.fake_cluster(partial_frame_timeout_s=60)
def test_an_incomplete_record_is_closed(fake_cluster: FakeCluster, caplog: pytest.LogCaptureFixture) -> None:
    encryption = Encryption(fake_cluster)
    with connect(fake_cluster) as sock:
        encryption.shake_hands(sock)
        encryption.tls.write(b"half a record")
        sock.sendall(encryption._outgoing.read()[:-1])
        until(
            lambda: all(
                each.tls and each.tls.is_established
                for each in internals(fake_cluster).server.reactor.connections.values()
            ),
            fake_cluster,
        )
        let_time_out(fake_cluster)
        while sock.recv(65536):
            pass
    assert "closed: incomplete request after 60 s" in caplog.text


def test_plain_requests_are_refused(fake_cluster: FakeCluster, caplog: pytest.LogCaptureFixture) -> None:
    with WireClient(fake_cluster.brokers[0]) as plain:
        plain.send(VERSIONS)
        while plain.socket.recv(65536):  # The alert.
            pass
    (record,) = caplog.records
    assert record.getMessage().endswith("closed: not TLS, expected a client with SSL or SASL_SSL")


@pytest.mark.fake_cluster(tls=False)
def test_tls_is_refused_at_a_plaintext_listener(fake_cluster: FakeCluster, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises((ssl.SSLError, ConnectionResetError)):
        WireClient(fake_cluster.brokers[0], tls=ssl.create_default_context())
    (record,) = caplog.records
    assert "(it looks like TLS)" in record.getMessage()


def test_a_client_that_does_not_trust_the_brokers_sends_an_alert(
    fake_cluster: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    with other_authority().cert_pem.tempfile() as ca_file, pytest.raises(ssl.SSLCertVerificationError):
        WireClient(fake_cluster.brokers[0], tls=client_context(ca_file))
    until(lambda: bool(caplog.records), fake_cluster)
    (record,) = caplog.records
    assert "closed: TLS handshake failed: the client does not trust the certificate" in record.getMessage()


def test_a_client_with_an_older_version_is_refused(fake_cluster: FakeCluster, caplog: pytest.LogCaptureFixture) -> None:
    hello = bytearray(client_hello(fake_cluster))
    hello[9:11] = b"\x03\x02"  # TLS 1.1, without the extension that names newer ones.
    hello = hello.replace(b"\x00\x2b\x00", b"\xfa\xfa\x00")
    with connect(fake_cluster) as sock:
        sock.sendall(hello)
        alert = sock.recv(65536)
        assert (alert[0], alert[-1]) == (21, 70)  # protocol_version
        assert sock.recv(1) == b""
    assert "unsupported protocol" in caplog.text


def test_garbage_after_the_handshake_closes_the_connection(
    fake_cluster: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    with connect(fake_cluster) as sock:
        Encryption(fake_cluster).shake_hands(sock)
        sock.sendall(b"\x17\x03\x03\x00\x20" + bytes(32))
        while sock.recv(65536):
            pass
    assert "closed: TLS failed: " in caplog.text


@BOTH
def test_a_client_that_ends_tls_is_closed(fake_cluster: FakeCluster, version: ssl.TLSVersion) -> None:
    """Its TCP connection stays open, and a request before the end is answered."""
    encryption = Encryption(fake_cluster, version)
    with connect(fake_cluster) as sock:
        encryption.shake_hands(sock)
        encryption.tls.write(request_frame(VERSIONS, 3, 7, "ends"))
        with pytest.raises(ssl.SSLWantReadError):
            encryption.tls.unwrap()
        sock.sendall(encryption._outgoing.read())
        received = b""
        while data := sock.recv(65536):
            received += data
        encryption._incoming.write(received)
        assert struct.unpack_from(">i", encryption.tls.read(1000), 4) == (7,)
    until(lambda: not internals(fake_cluster).server.reactor.connections.values(), fake_cluster)


def test_the_memory_of_tls_is_released_when_a_connection_closes(fake_cluster: FakeCluster, wire: WireClient) -> None:
    asks(wire)
    (connection,) = internals(fake_cluster).server.reactor.connections.values()
    assert connection.tls is not None
    wire.socket.close()
    until(lambda: not internals(fake_cluster).server.reactor.connections.values(), fake_cluster)
    # In the cluster's thread, which may have removed the connection without having released its memory yet.
    assert internals(fake_cluster).run(lambda: connection.tls) is None
    assert isinstance(connection.socket, socket.socket)


# Long messages


@pytest.mark.fake_cluster(tls=True, listeners={"PLAIN": "PLAINTEXT", "TLS": "SSL"})
@pytest.mark.parametrize("reads_slowly", [False, True])
def test_a_long_fetch_is_the_same_with_and_without_tls(fake_cluster: FakeCluster, reads_slowly: bool) -> None:
    topic = internals(fake_cluster).cluster.topics.get("orders")
    assert topic is not None
    (partition,) = topic.partitions
    for number in range(64):
        partition.log.append(batch(bytes([number]) * 80_000), 0)
    part = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=2**30)
    request = FetchRequest(
        max_wait_ms=0, min_bytes=1, max_bytes=2**30, topics=[FetchTopic(topic="orders", partitions=[part])]
    )
    answers = []
    for name in ("PLAIN", "TLS"):
        address = Endpoint(fake_cluster.bootstrap_servers_of(name))
        with WireClient(address, tls=context_of(fake_cluster) if name == "TLS" else None) as wire:
            assert asks(wire)
            (connection,) = internals(fake_cluster).server.reactor.connections.values()
            if reads_slowly:
                raw = connection.socket if connection.tls is None else connection.tls.raw
                assert isinstance(raw, socket.socket)
                raw.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 64 * 1024)
            wire.send(request, 12)
            while reads_slowly and not connection.unsent:
                fake_cluster.groups()  # Let the cluster send.
            answer = wire.receive()
            assert isinstance(answer, FetchResponse)
            answers.append(answer)
            assert asks(wire)
        until(lambda: not internals(fake_cluster).server.reactor.connections.values(), fake_cluster)
    assert answers[0] == answers[1]
    (records,) = [each.records for topic in answers[1].responses for each in topic.partitions]
    assert len(records or b"") > 5_000_000


class Endpoint:
    """The address of the only broker at a listener."""

    def __init__(self, servers: str) -> None:
        self.host, _, port = servers.rpartition(":")
        self.port = int(port)


def test_a_long_request_is_read(fake_cluster: FakeCluster, wire: WireClient) -> None:
    topics = [MetadataRequestTopic(name=f"{number:0249}") for number in range(4_200)]
    answer = wire.ask(MetadataRequest(topics=topics, allow_auto_topic_creation=False), MetadataResponse)
    assert [topic.name for topic in answer.topics] == [topic.name for topic in topics]


def test_two_hundred_connections(fake_cluster: FakeCluster) -> None:
    context = context_of(fake_cluster)
    wires = [WireClient(fake_cluster.brokers[0], tls=context) for _ in range(200)]
    try:
        for wire in wires:
            wire.send(VERSIONS)
        assert all(isinstance(wire.receive(), ApiVersionsResponse) for wire in wires)
    finally:
        for wire in wires:
            wire.socket.close()
    until(lambda: not internals(fake_cluster).server.reactor.connections.values(), fake_cluster)


# Network conditions


def test_latency(fake_cluster: FakeCluster, wire: WireClient) -> None:
    fake_cluster.broker(1).set_network(round_trip_s=0.03)
    for _ in range(2):
        assert wire.ask(MetadataRequest(topics=None), MetadataResponse).topics
    assert all(call.latency_ms is not None for call in fake_cluster.journal.requests("Metadata"))
    fake_cluster.broker(1).set_network(round_trip_s=0)
    assert asks(wire)


def test_a_broker_that_accepts_slowly_answers_the_handshake_later(fake_cluster: FakeCluster) -> None:
    fake_cluster.broker(1).set_network(accept="slow", accept_delay_s=0.02)
    with WireClient(fake_cluster.brokers[0], tls=context_of(fake_cluster)) as wire:
        assert asks(wire)


def test_a_half_open_connection_does_not_answer_a_handshake(fake_cluster: FakeCluster, wire: WireClient) -> None:
    assert asks(wire)
    fake_cluster.broker(1).set_network(accept="half_open")
    with connect(fake_cluster) as half:
        half.sendall(client_hello(fake_cluster))
        until(lambda: len(internals(fake_cluster).server.reactor.connections.values()) == 2, fake_cluster)
        assert asks(wire)
        half.setblocking(False)
        with pytest.raises(BlockingIOError):
            half.recv(1)
        assert [each.interest for each in internals(fake_cluster).server.reactor.connections.values()] == [READ, 0]
        fake_cluster.broker(1).set_network(accept="normal")
        with WireClient(fake_cluster.brokers[0], tls=context_of(fake_cluster)) as other:
            assert asks(other)


def test_a_response_that_is_cut_ends_the_connection(fake_cluster: FakeCluster, wire: WireClient) -> None:
    fake_cluster.inject_fault("Metadata", cut_bytes=10)
    wire.send(MetadataRequest(topics=None))
    received = b""
    while data := wire.socket.recv(1000):
        received += data
    assert len(received) == 10


# A client in another process


@pytest.mark.needs("openssl")
@pytest.mark.parametrize(("option", "line", "answer"), [("-tls1_2", "R", "no renegotiation"), ("-tls1_3", "K", "DONE")])
def test_openssl_cannot_renegotiate_but_update_keys(
    fake_cluster: FakeCluster, wire: WireClient, option: str, line: str, answer: str
) -> None:
    """Its commands are "R", renegotiate, and "K", update keys on both sides."""
    servers, ca_file = fake_cluster.bootstrap_servers, fake_cluster.tls.ca_file
    command = ["openssl", "s_client", option, "-connect", servers, "-CAfile", ca_file, "-verify_return_error"]
    ended = subprocess.run(command, input=f"{line}\n", capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    assert {"R": "RENEGOTIATING", "K": "KEYUPDATE"}[line] in ended.stderr
    assert answer in ended.stderr
    assert asks(wire)


def test_the_extra_may_be_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fakebroker.server.tls.certificates", None)
    with pytest.raises(FakebrokerError, match=r"pip install 'fakebroker\[tls\]'"):
        FakeCluster(1, tls=True)
