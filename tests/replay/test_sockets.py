"""Connections behind one poller: losses and timeouts are reported to the users of the connection."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from fakebroker.client.broker_connection import BrokerConnection, FrameCache
from fakebroker.client.errors import BrokerUnreachable
from fakebroker.client.versions import NegotiatedVersions
from fakebroker.errors import FakebrokerError, ProtocolError
from fakebroker.protocol.frames import response_frame
from fakebroker.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from fakebroker.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from fakebroker.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from fakebroker.protocol.registry import APIS
from fakebroker.protocol.schema import Message, Versions
from fakebroker.replay.members import coordinator_lookup
from fakebroker.replay.members.bootstrap import addresses
from fakebroker.replay.members.member_loop import MemberLoop
from fakebroker.replay.members.sockets import SocketTransport
from fakebroker.server.fake_cluster import FakeCluster

TIMEOUT_S = 20.0


class Asker:
    """A user of links that keeps what it is told."""

    def __init__(self) -> None:
        self.open: list[BrokerConnection] = []
        self.answers: list[Any] = []
        self.losses: list[str] = []

    def opened(self, link: BrokerConnection) -> None:
        self.open.append(link)

    def answered(self, link: BrokerConnection, response: Any) -> None:
        self.answers.append(response)

    def lost(self, link: BrokerConnection, why: str) -> None:
        self.losses.append(why)


def turn_until(transport: SocketTransport, is_so: Callable[[], object]) -> None:
    while not is_so():
        transport.poll(TIMEOUT_S)


def version_of(request: Message, link: BrokerConnection) -> int:
    assert link.versions is not None
    return link.versions.version_of(request)


@contextmanager
def listening(serve: Callable[[socket.socket], None]) -> Iterator[str]:
    """Something that is no broker: `serve` gets each connection in turn."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def accept() -> None:
            while True:
                try:
                    peer, _ = listener.accept()
                except OSError:
                    return
                with peer:
                    peer.settimeout(TIMEOUT_S)
                    serve(peer)

        thread = threading.Thread(target=accept)
        thread.start()
        yield f"127.0.0.1:{listener.getsockname()[1]}"
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()


def connect_swarm(bootstrap: str) -> None:
    MemberLoop([], addresses(bootstrap), lambda event: None, lambda tally: None).connect()


def test_answers_come_in_order_and_to_whom_they_belong() -> None:
    transport, one, two = SocketTransport(), Asker(), Asker()
    with FakeCluster(brokers=1, topics={"a": 1, "b": 2}) as cluster:
        link = transport.connect(addresses(cluster.bootstrap_servers)[0], one, is_shared=True)
        link.users[two] = None
        turn_until(transport, lambda: one.open and two.open)
        for asker in (one, two, one):
            request = MetadataRequest(topics=[])
            transport.send(link, request, version_of(request, link), "client", asker)
        turn_until(transport, lambda: len(one.answers) == 2)
        transport.close()
    assert len(two.answers) == 1
    assert isinstance(two.answers[0], MetadataResponse)


def test_who_has_let_go_gets_no_answer_and_the_others_do() -> None:
    transport, one, two = SocketTransport(), Asker(), Asker()
    with FakeCluster(brokers=1) as cluster:
        link = transport.connect(addresses(cluster.bootstrap_servers)[0], one, is_shared=True)
        link.users[two] = None
        turn_until(transport, lambda: two.open)
        for asker in (one, two):
            request = MetadataRequest(topics=[])
            transport.send(link, request, version_of(request, link), "client", asker)
        transport.release(link, one)
        turn_until(transport, lambda: two.answers)
        assert not one.answers
        assert not link.is_closed
        transport.release(link, two)
        assert link.is_closed
        transport.close()


def test_versions_are_agreed_on_once_a_broker() -> None:
    transport, asker = SocketTransport(), Asker()
    with FakeCluster(brokers=1) as cluster:
        address = addresses(cluster.bootstrap_servers)[0]
        transport.connect(address, asker)
        turn_until(transport, lambda: asker.open)
        transport.connect(address, asker)
        turn_until(transport, lambda: len(asker.open) == 2)
        assert cluster.count("ApiVersions") == 1
        transport.close()


def test_a_lost_connection_is_told_with_the_reason() -> None:
    transport, asker = SocketTransport(), Asker()
    with FakeCluster(brokers=1) as cluster:
        transport.connect(addresses(cluster.bootstrap_servers)[0], asker)
        turn_until(transport, lambda: asker.open)
        cluster.stop_broker(1)
        turn_until(transport, lambda: asker.losses)
        transport.close()
    assert asker.losses == ["the broker has closed the connection"]


def test_nobody_listens() -> None:
    transport, asker = SocketTransport(), Asker()
    transport.connect(("127.0.0.1", 1), asker)
    turn_until(transport, lambda: asker.losses)
    transport.close()
    assert asker.losses == ["Connection refused"]


def test_a_name_without_an_address() -> None:
    transport, asker = SocketTransport(), Asker()
    transport.connect(("no-such-host.invalid", 9092), asker)
    turn_until(transport, lambda: asker.losses)
    transport.close()
    assert len(asker.losses) == 1


def test_a_host_with_several_addresses_is_tried_at_each() -> None:
    transport, asker = SocketTransport(), Asker()
    with FakeCluster(brokers=1) as cluster:
        host, port = addresses(cluster.bootstrap_servers)[0]
        transport._resolved["both", port] = [(socket.AF_INET, (host, 1)), (socket.AF_INET, (host, port))]
        transport.connect(("both", port), asker)
        turn_until(transport, lambda: asker.open)
        transport.close()
    assert not asker.losses


def test_who_takes_a_connection_and_says_nothing_is_given_up() -> None:
    transport, asker = SocketTransport(connect_timeout_ms=20), Asker()
    with FakeCluster(brokers=1) as cluster:
        cluster.set_broker(1, accept="half_open")
        transport.connect(addresses(cluster.bootstrap_servers)[0], asker)
        turn_until(transport, lambda: asker.losses)
        transport.close()
    (why,) = asker.losses
    assert why.endswith("no connection with versions agreed on after 20 ms")


TLS_ALERT = bytes.fromhex("15030300020228")


@pytest.mark.parametrize(
    ("answer", "expected"), [(TLS_ALERT, "frame of 352518912 bytes"), (b"", "the broker has closed the connection")]
)
def test_a_listener_that_speaks_tls_is_told_of_in_a_sentence(answer: bytes, expected: str) -> None:
    def serve(peer: socket.socket) -> None:
        peer.recv(4096)
        peer.sendall(answer)

    with listening(serve) as bootstrap, pytest.raises(BrokerUnreachable) as caught:
        connect_swarm(bootstrap)
    assert "nobody speaks Kafka's protocol in the clear (a listener for TLS or another service?)" in str(caught.value)
    assert expected in str(caught.value)
    assert "\n" not in str(caught.value)


def tell_versions(peer: socket.socket) -> None:
    asked = peer.recv(4096)
    known = [ApiVersion(api_key=api.key, min_version=api.versions.first, max_version=api.versions.last) for api in APIS]
    versions = ApiVersionsResponse(error_code=0, api_keys=known)
    peer.sendall(response_frame(versions, int.from_bytes(asked[6:8], "big"), int.from_bytes(asked[8:12], "big")))
    peer.recv(4096)


def test_a_broker_that_wants_authentication_is_told_of_in_a_sentence() -> None:
    expected = r"wants authentication \(SASL\): the broker has closed the connection$"
    with listening(tell_versions) as bootstrap, pytest.raises(BrokerUnreachable, match=expected):
        connect_swarm(bootstrap)


def test_a_broker_that_tells_its_versions_and_no_more_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coordinator_lookup, "_REQUEST_TIMEOUT_MS", 20.0)

    def serve(peer: socket.socket) -> None:
        tell_versions(peer)
        peer.recv(4096)

    with listening(serve) as bootstrap, pytest.raises(BrokerUnreachable, match=r"no answer after 20 ms$"):
        connect_swarm(bootstrap)


def test_no_more_files(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> socket.socket:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(socket, "socket", full)
    with pytest.raises(FakebrokerError, match=r"^no further connection to 127\.0\.0\.1:9092 beside the 0 .*ulimit -n"):
        SocketTransport().connect(("127.0.0.1", 9092), Asker())


def test_a_request_that_repeats_itself_differs_in_its_correlation_id_alone() -> None:
    cache, beat = FrameCache(), HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
    first = bytes(cache.frame(beat, 4, 1, "client"))
    again = bytes(cache.frame(HeartbeatRequest(group_id="g", generation_id=1, member_id="m"), 4, 2, "client"))
    assert first[:8] + first[12:] == again[:8] + again[12:]
    assert (first[8:12], again[8:12]) == (b"\0\0\0\1", b"\0\0\0\2")
    other = bytes(cache.frame(HeartbeatRequest(group_id="g", generation_id=2, member_id="m"), 4, 3, "client"))
    assert other[12:] != again[12:]
    assert bytes(cache.frame(beat, 3, 4, "client"))[4:8] == b"\0\x0c\0\3"


def test_an_answer_out_of_order_is_no_answer() -> None:
    link, asker = BrokerConnection(("127.0.0.1", 1), Asker()), Asker()
    link.frame(HeartbeatRequest(group_id="g", generation_id=1, member_id="m"), 4, "client", asker, None)
    wrong = bytes(response_frame(HeartbeatResponse(throttle_time_ms=0, error_code=0), 4, 7))
    with pytest.raises(ProtocolError, match=r"^response with correlation id 7, expected 1$"):
        link.receive(wrong)
    right = bytes(response_frame(HeartbeatResponse(throttle_time_ms=0, error_code=27), 4, 1))
    link.receive(right)
    assert [answer.error_code for answer in asker.answers] == [27]
    with pytest.raises(ProtocolError, match=r"expected none$"):
        link.receive(right)


def test_the_highest_version_that_both_speak() -> None:
    assert NegotiatedVersions({12: Versions(0, 2)}).version_for(HeartbeatRequest) == 2
    assert NegotiatedVersions({12: Versions(1, 99)}).version_for(HeartbeatRequest) == 4


def test_what_the_socket_does_not_take_at_once_goes_out_later() -> None:
    transport, asker = SocketTransport(), Asker()
    request = MetadataRequest(topics=[MetadataRequestTopic(name=f"{index:0>200}") for index in range(3_000)])
    with FakeCluster(brokers=1, config={"auto.create.topics.enable": "false"}) as cluster:
        link = transport.connect(addresses(cluster.bootstrap_servers)[0], asker)
        turn_until(transport, lambda: asker.open)
        assert link.socket is not None
        link.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4_096)
        for _ in range(10):
            transport.send(link, request, version_of(request, link), "client", asker)
        assert link.unsent
        turn_until(transport, lambda: len(asker.answers) == 10)
        assert not link.unsent
        transport.close()
    assert {len(answer.topics) for answer in asker.answers} == {3_000}
