"""The reactor over real sockets: order, parking, limits, garbage."""

import socket
import struct
import threading
from collections.abc import Callable

import pytest

from fakebroker import FakeCluster
from fakebroker.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from fakebroker.protocol.messages.find_coordinator import FindCoordinatorResponse
from fakebroker.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from fakebroker.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from fakebroker.protocol.messages.metadata import MetadataRequest
from fakebroker.protocol.registry import APIS
from tests.support.wire_client import WireClient, find_coordinator, until

Factory = Callable[..., FakeCluster]


def join(group_id: str, member_id: str = "") -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id=group_id,
        session_timeout_ms=30_000,
        rebalance_timeout_ms=30_000,
        member_id=member_id,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
    )


def heartbeat(group_id: str = "nobody") -> HeartbeatRequest:
    return HeartbeatRequest(group_id=group_id, generation_id=1, member_id="m")


def test_api_versions_tells_what_is_served(fake_cluster: FakeCluster) -> None:
    with WireClient(fake_cluster.brokers[0]) as wire:
        response = wire.ask(
            ApiVersionsRequest(client_software_name="t", client_software_version="1"), ApiVersionsResponse
        )
    told = {api.api_key: (api.min_version, api.max_version) for api in response.api_keys}
    assert told == {api.key: (api.advertised_versions.first, api.advertised_versions.last) for api in APIS}
    assert told[0] == (0, 13)


def test_api_versions_above_ours_is_answered_in_version_0(fake_cluster: FakeCluster) -> None:
    with WireClient(fake_cluster.brokers[0]) as wire:
        # api key, version 9, correlation id 7, client id "x", no tagged fields, a body nobody here can know
        body = struct.pack(">hhih", 18, 9, 7, 1) + b"x" + b"\x00" + b"who knows"
        wire.socket.sendall(struct.pack(">i", len(body)) + body)
        frame = wire.receive_frame()
        correlation_id, error, count = struct.unpack_from(">ihi", frame)
        assert (correlation_id, error, count) == (7, 35, len(APIS))
        # The connection lives on.
        assert wire.ask(heartbeat(), HeartbeatResponse).error_code in (16, 25)


def test_every_broker_knows_every_coordinator(fake_cluster: FakeCluster) -> None:
    for broker in fake_cluster.brokers:
        with WireClient(broker) as wire:
            for group in ("a", "my-group", "消费者组", "🚀"):
                (found,) = wire.ask(find_coordinator(group), FindCoordinatorResponse).coordinators
                expected = fake_cluster.coordinator_of(group)
                assert (found.node_id, found.host, found.port) == (expected.node_id, expected.host, expected.port)


def test_answers_come_in_the_order_of_the_requests(fake_cluster: FakeCluster) -> None:
    with WireClient(fake_cluster.brokers[0]) as wire:
        for _ in range(500):
            wire.send(heartbeat())
            wire.send(find_coordinator("a"))
        kinds = [type(wire.receive()) for _ in range(1000)]
    assert kinds == [HeartbeatResponse, FindCoordinatorResponse] * 500


@pytest.mark.fake_cluster(brokers=1, config={"group.initial.rebalance.delay.ms": 600_000})
def test_a_parked_answer_holds_back_its_own_connection_alone(fake_cluster: FakeCluster) -> None:
    broker = fake_cluster.brokers[0]
    with WireClient(broker) as parked, WireClient(broker) as other:
        member_id = parked.ask(join("g"), JoinGroupResponse).member_id
        parked.send(join("g", member_id))
        parked.send(heartbeat("g"))
        for _ in range(50):
            assert other.ask(heartbeat(), HeartbeatResponse).error_code == 25
        until(lambda: len(fake_cluster.requests("JoinGroup")) == 2, fake_cluster)
        # The heartbeat behind the join was not looked at.
        assert [call.client_id for call in fake_cluster.requests("Heartbeat")] == ["wire"] * 50
        (owed,) = [call for call in fake_cluster.requests("JoinGroup") if call.answered_ms is None]
        assert owed.request.member_id == member_id
        assert fake_cluster.group("g").state == "PreparingRebalance"


@pytest.mark.fake_cluster(brokers=1)
def test_what_waits_behind_a_parked_answer_goes_on_afterwards(fake_cluster: FakeCluster) -> None:
    broker = fake_cluster.brokers[0]
    with WireClient(broker) as one, WireClient(broker) as two:
        first = one.ask(join("g"), JoinGroupResponse, 3)
        two.send(join("g"), 3)  # parked until the first one rejoins
        for _ in range(300):
            two.send(heartbeat())
        until(lambda: len(fake_cluster.requests("JoinGroup")) == 2, fake_cluster)
        again = one.ask(join("g", first.member_id), JoinGroupResponse, 3)
        assert again.generation_id == 2
        assert isinstance(joined := two.receive(), JoinGroupResponse)
        assert joined.generation_id == 2
        for _ in range(300):
            assert isinstance(two.receive(), HeartbeatResponse)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (struct.pack(">ihhih", 10, 999, 0, 1, -1), "unknown API key 999"),
        (struct.pack(">ihhih", 10, 12, 5, 1, -1), "Heartbeat version 5, expected 0-4"),
        (struct.pack(">ihhih", 10, 1, 3, 1, -1), "Fetch version 3, expected 4-18"),
        (struct.pack(">ihhih", 12, 12, 0, 1, -1) + b"\x00\x09", "HeartbeatRequest v0: field group_id malformed"),
        (struct.pack(">i", 3) + b"abc", "request of 3 bytes"),
        (struct.pack(">i", -1), "frame of -1 bytes"),
        (b"GET / HTTP/1.1\r\n\r\n", "frame of 1195725856 bytes, expected 0 to 104857600"),
        (struct.pack(">ihhih", 10, 12, 0, 1, 50), "request header malformed"),
    ],
)
def test_garbage_closes_that_connection_alone(
    fake_cluster: FakeCluster, caplog: pytest.LogCaptureFixture, data: bytes, why: str
) -> None:
    broker = fake_cluster.brokers[0]
    with WireClient(broker) as bystander, WireClient(broker) as bad:
        bad.socket.sendall(data)
        assert bad.is_closed_by_broker()
        assert bystander.ask(heartbeat(), HeartbeatResponse).error_code in (16, 25)
    (line,) = [record.getMessage() for record in caplog.records if "closed" in record.getMessage()]
    assert why in line


@pytest.mark.fake_cluster(brokers=1, config={"socket.request.max.bytes": 1000})
def test_the_request_limit_can_be_set(fake_cluster: FakeCluster) -> None:
    with WireClient(fake_cluster.brokers[0]) as wire:
        assert wire.ask(heartbeat("g" * 900), HeartbeatResponse).error_code == 25
        wire.send(heartbeat("g" * 1000))
        assert wire.is_closed_by_broker()


@pytest.mark.fake_cluster(brokers=1, partial_frame_timeout_s=0.05)
def test_a_client_that_stops_inside_a_frame_is_closed(
    fake_cluster: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    with WireClient(fake_cluster.brokers[0]) as wire, WireClient(fake_cluster.brokers[0]) as idle:
        wire.socket.sendall(struct.pack(">i", 100) + b"half")
        assert wire.is_closed_by_broker()
        assert "incomplete request after" in caplog.text
        # Being idle between requests is no fault.
        assert idle.ask(heartbeat(), HeartbeatResponse).error_code == 25


@pytest.mark.fake_cluster(brokers=1, topics={"many": 200}, max_unsent_bytes=1_000_000)
def test_a_reader_that_stops_reading_is_closed(fake_cluster: FakeCluster, caplog: pytest.LogCaptureFixture) -> None:
    broker = fake_cluster.brokers[0]
    with WireClient(broker) as lazy, WireClient(broker) as other:
        lazy.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)

        def ask_on() -> None:
            try:
                for _ in range(2000):
                    lazy.send(MetadataRequest(topics=None))
            except OSError:  # closed, as it should be
                pass

        asking = threading.Thread(target=ask_on)
        asking.start()
        asking.join()
        until(lambda: bool(caplog.records), fake_cluster)
        assert other.ask(heartbeat(), HeartbeatResponse).error_code == 25
    assert "bytes unread, the limit is 1000000" in caplog.text


def test_bytes_in_any_pieces(fake_cluster: FakeCluster) -> None:
    with WireClient(fake_cluster.brokers[0]) as wire, WireClient(fake_cluster.brokers[0]) as whole:
        body = struct.pack(">hhih", 12, 0, 5, -1) + b"\x00\x01g\x00\x00\x00\x01\x00\x01m"
        for byte in struct.pack(">i", len(body)) + body:
            wire.socket.sendall(bytes((byte,)))
            whole.ask(heartbeat(), HeartbeatResponse)
        assert struct.unpack(">ih", wire.receive_frame())[0] == 5


def test_a_fault_of_ours_costs_one_connection(
    fake_cluster: FakeCluster, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("a bug")

    from fakebroker.cluster import handlers

    monkeypatch.setitem(handlers.BY_NAME, "Heartbeat", broken)
    broker = fake_cluster.brokers[0]
    with WireClient(broker) as unlucky, WireClient(broker) as other:
        unlucky.send(heartbeat())
        assert unlucky.is_closed_by_broker()
        assert other.ask(find_coordinator("g"), FindCoordinatorResponse).coordinators[0].error_code == 0
    assert "a bug" in caplog.text
