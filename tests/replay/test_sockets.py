"""The socket transport: responses, losses and timeouts are reported to the users of a connection."""

import socket
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from fakebroker.client.broker_connection import BrokerConnection, FrameCache
from fakebroker.client.brokers import Brokers
from fakebroker.client.errors import BrokerUnreachable
from fakebroker.client.versions import NegotiatedVersions
from fakebroker.errors import FakebrokerError, ProtocolError
from fakebroker.protocol.frames import response_frame
from fakebroker.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from fakebroker.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from fakebroker.protocol.schema import Message, Versions
from fakebroker.replay.members import coordinator_lookup
from fakebroker.replay.members.bootstrap import addresses
from fakebroker.replay.members.member_loop import MemberLoop
from fakebroker.replay.members.sockets import SocketTransport
from fakebroker.server.fake_cluster import FakeCluster
from tests.support.replay.listener import answer_api_versions, listener

TIMEOUT_S = 20.0


class RecordingUser:
    """A user of connections that keeps the notifications it gets."""

    def __init__(self) -> None:
        self.open: list[BrokerConnection] = []
        self.answers: list[Any] = []
        self.losses: list[str] = []

    def opened(self, connection: BrokerConnection) -> None:
        self.open.append(connection)

    def answered(self, connection: BrokerConnection, response: Any) -> None:
        self.answers.append(response)

    def lost(self, connection: BrokerConnection, why: str) -> None:
        self.losses.append(why)


def poll_until(transport: SocketTransport, is_met: Callable[[], object]) -> None:
    while not is_met():
        transport.poll(TIMEOUT_S)


def version_of(request: Message, connection: BrokerConnection) -> int:
    assert connection.versions is not None
    return connection.versions.version_of(request)


def connect_loop(bootstrap: str) -> None:
    loop = MemberLoop([], addresses(bootstrap), lambda event: None, lambda tally: None)
    loop.connect()
    loop.transport.close()


def test_responses_go_to_the_user_that_sent_the_request() -> None:
    transport, one, two = SocketTransport(), RecordingUser(), RecordingUser()
    with FakeCluster(brokers=1, topics={"a": 1, "b": 2}) as cluster:
        connection = transport.connect(addresses(cluster.bootstrap_servers)[0], one, is_shared=True)
        connection.users[two] = None
        poll_until(transport, lambda: one.open and two.open)
        for user in (one, two, one):
            request = MetadataRequest(topics=[])
            transport.send(connection, request, version_of(request, connection), "client", user)
        poll_until(transport, lambda: len(one.answers) == 2)
        transport.close()
    assert len(two.answers) == 1
    assert isinstance(two.answers[0], MetadataResponse)


def test_a_released_connection_reports_responses_to_its_other_users_only() -> None:
    transport, one, two = SocketTransport(), RecordingUser(), RecordingUser()
    with FakeCluster(brokers=1) as cluster:
        connection = transport.connect(addresses(cluster.bootstrap_servers)[0], one, is_shared=True)
        connection.users[two] = None
        poll_until(transport, lambda: two.open)
        for user in (one, two):
            request = MetadataRequest(topics=[])
            transport.send(connection, request, version_of(request, connection), "client", user)
        transport.release(connection, one)
        poll_until(transport, lambda: two.answers)
        assert not one.answers
        assert not connection.is_closed
        transport.release(connection, two)
        assert connection.is_closed
        transport.close()


def test_versions_are_negotiated_once_per_broker() -> None:
    transport, user = SocketTransport(), RecordingUser()
    with FakeCluster(brokers=1) as cluster:
        address = addresses(cluster.bootstrap_servers)[0]
        transport.connect(address, user)
        poll_until(transport, lambda: user.open)
        transport.connect(address, user)
        poll_until(transport, lambda: len(user.open) == 2)
        assert cluster.journal.count("ApiVersions") == 1
        transport.close()


def test_a_lost_connection_is_reported_with_the_reason() -> None:
    transport, user = SocketTransport(), RecordingUser()
    with FakeCluster(brokers=1) as cluster:
        transport.connect(addresses(cluster.bootstrap_servers)[0], user)
        poll_until(transport, lambda: user.open)
        cluster.broker(1).stop()
        poll_until(transport, lambda: user.losses)
        transport.close()
    assert user.losses == ["the broker has closed the connection"]


def test_a_refused_connection_is_reported() -> None:
    transport, user = SocketTransport(), RecordingUser()
    transport.connect(("127.0.0.1", 1), user)
    poll_until(transport, lambda: user.losses)
    transport.close()
    assert user.losses == ["Connection refused"]


def test_an_unknown_host_name_is_reported() -> None:
    transport, user = SocketTransport(), RecordingUser()
    transport.connect(("no-such-host.invalid", 9092), user)
    poll_until(transport, lambda: user.losses)
    transport.close()
    assert len(user.losses) == 1


def test_all_addresses_of_a_host_are_tried() -> None:
    transport, user = SocketTransport(), RecordingUser()
    with FakeCluster(brokers=1) as cluster:
        host, port = addresses(cluster.bootstrap_servers)[0]
        transport._resolved["both", port] = [(socket.AF_INET, (host, 1)), (socket.AF_INET, (host, port))]
        transport.connect(("both", port), user)
        poll_until(transport, lambda: user.open)
        transport.close()
    assert not user.losses


def test_a_broker_that_does_not_answer_api_versions_times_out() -> None:
    transport, user = SocketTransport(connect_timeout_ms=20), RecordingUser()
    with FakeCluster(brokers=1) as cluster:
        cluster.broker(1).set_network(accept="half_open")
        transport.connect(addresses(cluster.bootstrap_servers)[0], user)
        poll_until(transport, lambda: user.losses)
        transport.close()
    (why,) = user.losses
    assert why.endswith("no connection with negotiated versions in 20 ms")


TLS_ALERT = bytes.fromhex("15030300020228")


@pytest.mark.parametrize(
    ("answer", "expected"), [(TLS_ALERT, "frame of 352518912 bytes"), (b"", "the broker has closed the connection")]
)
def test_a_listener_of_another_protocol_is_reported(answer: bytes, expected: str) -> None:
    def serve(peer: socket.socket) -> None:
        peer.recv(4096)
        peer.sendall(answer)

    with listener(serve) as bootstrap, pytest.raises(BrokerUnreachable) as caught:
        connect_loop(bootstrap)
    assert "no valid response to ApiVersions (a TLS listener, or not Kafka?): " in str(caught.value)
    assert expected in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_broker_that_requires_authentication_is_reported() -> None:
    expected = r"requires SASL authentication\?\): the broker has closed the connection$"
    with listener(answer_api_versions) as bootstrap, pytest.raises(BrokerUnreachable, match=expected):
        connect_loop(bootstrap)


def test_the_next_bootstrap_broker_is_asked_after_one_that_requires_authentication() -> None:
    with listener(answer_api_versions) as bootstrap, FakeCluster(brokers=1) as cluster:
        connect_loop(f"{bootstrap},{cluster.bootstrap_servers}")


def test_a_broker_that_answers_only_api_versions_times_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coordinator_lookup, "Brokers", partial(Brokers, request_timeout_ms=20.0))

    def serve(peer: socket.socket) -> None:
        answer_api_versions(peer)
        peer.recv(4096)

    with listener(serve) as bootstrap, pytest.raises(BrokerUnreachable, match=r"no response in 20 ms$"):
        connect_loop(bootstrap)


def test_reaching_the_limit_of_open_files_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> socket.socket:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(socket, "socket", full)
    with pytest.raises(FakebrokerError, match=r"^cannot connect to 127\.0\.0\.1:9092 with 0 open .*ulimit -n"):
        SocketTransport().connect(("127.0.0.1", 9092), RecordingUser())


def test_cached_frames_differ_in_their_correlation_id_only() -> None:
    cache, beat = FrameCache(), HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
    first = bytes(cache.frame(beat, 4, 1, "client"))
    again = bytes(cache.frame(HeartbeatRequest(group_id="g", generation_id=1, member_id="m"), 4, 2, "client"))
    assert first[:8] + first[12:] == again[:8] + again[12:]
    assert (first[8:12], again[8:12]) == (b"\0\0\0\1", b"\0\0\0\2")
    other = bytes(cache.frame(HeartbeatRequest(group_id="g", generation_id=2, member_id="m"), 4, 3, "client"))
    assert other[12:] != again[12:]
    assert bytes(cache.frame(beat, 3, 4, "client"))[4:8] == b"\0\x0c\0\3"


def test_a_response_with_an_unexpected_correlation_id_is_rejected() -> None:
    connection, user = BrokerConnection(("127.0.0.1", 1), RecordingUser()), RecordingUser()
    connection.frame(HeartbeatRequest(group_id="g", generation_id=1, member_id="m"), 4, "client", user, None)
    wrong = bytes(response_frame(HeartbeatResponse(throttle_time_ms=0, error_code=0), 4, 7))
    with pytest.raises(ProtocolError, match=r"^response with correlation id 7, expected 1$"):
        connection.receive(wrong)
    right = bytes(response_frame(HeartbeatResponse(throttle_time_ms=0, error_code=27), 4, 1))
    connection.receive(right)
    assert [answer.error_code for answer in user.answers] == [27]
    with pytest.raises(ProtocolError, match=r"expected none$"):
        connection.receive(right)


def test_the_highest_common_version_is_negotiated() -> None:
    assert NegotiatedVersions({12: Versions(0, 2)}).version_for(HeartbeatRequest) == 2
    assert NegotiatedVersions({12: Versions(1, 99)}).version_for(HeartbeatRequest) == 4


def test_bytes_that_a_full_socket_buffer_does_not_take_are_sent_later() -> None:
    transport, user = SocketTransport(), RecordingUser()
    request = MetadataRequest(topics=[MetadataRequestTopic(name=f"{index:0>1000}") for index in range(30)])
    with FakeCluster(brokers=1, config={"auto.create.topics.enable": "false"}) as cluster:
        connection = transport.connect(addresses(cluster.bootstrap_servers)[0], user)
        poll_until(transport, lambda: user.open)
        assert connection.socket is not None
        connection.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4_096)
        for _ in range(10):
            transport.send(connection, request, version_of(request, connection), "client", user)
        assert connection.unsent
        poll_until(transport, lambda: len(user.answers) == 10)
        assert not connection.unsent
        transport.close()
    assert {len(answer.topics) for answer in user.answers} == {30}
