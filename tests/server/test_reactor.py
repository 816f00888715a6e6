"""The reactor over sockets: order of responses, parked requests, limits, malformed requests, errors of handlers."""

import socket
import struct
from collections.abc import Callable
from contextlib import suppress

import pytest

from fakebroker import FakeCluster
from fakebroker.client.versions import LAST_VERSION_WITH_TOPIC_NAMES
from fakebroker.cluster import handlers
from fakebroker.protocol.frames import read_response
from fakebroker.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from fakebroker.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from fakebroker.protocol.messages.find_coordinator import FindCoordinatorResponse
from fakebroker.protocol.messages.heartbeat import HeartbeatResponse
from fakebroker.protocol.messages.join_group import JoinGroupResponse
from fakebroker.protocol.records import decode_records, split_batches
from fakebroker.protocol.registry import APIS
from tests.support.group_requests import heartbeat_request, join_request
from tests.support.wire_client import WireClient, find_coordinator, until

Factory = Callable[..., FakeCluster]

# Brokers report the APIs for client metrics only if there is a subscription.
REPORTED = [api for api in APIS if api.name not in ("GetTelemetrySubscriptions", "PushTelemetry")]


def test_api_versions_returns_the_supported_versions(fake_cluster: FakeCluster) -> None:
    with WireClient(fake_cluster.brokers[0]) as wire:
        response = wire.ask(
            ApiVersionsRequest(client_software_name="t", client_software_version="1"), ApiVersionsResponse
        )
    supported = {api.api_key: (api.min_version, api.max_version) for api in response.api_keys}
    assert supported == {api.key: (api.advertised_versions.first, api.advertised_versions.last) for api in REPORTED}
    assert supported[0] == (0, 13)


def test_an_api_versions_request_of_a_newer_version_is_answered_in_version_0(fake_cluster: FakeCluster) -> None:
    with WireClient(fake_cluster.brokers[0]) as wire:
        # API key, version 9, correlation id 7, client id "x", no tagged fields, a body of unknown format
        body = struct.pack(">hhih", 18, 9, 7, 1) + b"x" + b"\x00" + b"unknown"
        wire.socket.sendall(struct.pack(">i", len(body)) + body)
        frame = wire.receive_frame()
        assert frame == struct.pack(">ihihhh", 7, 35, 1, 18, 0, 5), "as Kafka 4.4: the range of ApiVersions alone"
        # The connection remains open.
        assert wire.ask(heartbeat_request(), HeartbeatResponse).error_code in (16, 25)


def test_every_broker_returns_the_coordinator_of_a_group(fake_cluster: FakeCluster) -> None:
    for broker in fake_cluster.brokers:
        with WireClient(broker) as wire:
            for group in ("a", "my-group", "消费者组", "🚀"):
                (found,) = wire.ask(find_coordinator(group), FindCoordinatorResponse).coordinators
                expected = fake_cluster.group(group).coordinator()
                assert (found.node_id, found.host, found.port) == (expected.node_id, expected.host, expected.port)


def test_responses_are_sent_in_the_order_of_the_requests(fake_cluster: FakeCluster) -> None:
    with WireClient(fake_cluster.brokers[0]) as wire:
        for _ in range(500):
            wire.send(heartbeat_request())
            wire.send(find_coordinator("a"))
        kinds = [type(wire.receive()) for _ in range(1000)]
    assert kinds == [HeartbeatResponse, FindCoordinatorResponse] * 500


@pytest.mark.fake_cluster(brokers=1, config={"group.initial.rebalance.delay.ms": 600_000})
def test_a_parked_request_delays_only_its_connection(fake_cluster: FakeCluster) -> None:
    broker = fake_cluster.brokers[0]
    with WireClient(broker) as parked, WireClient(broker) as other:
        member_id = parked.ask(join_request("g"), JoinGroupResponse).member_id
        parked.send(join_request("g", member_id))
        parked.send(heartbeat_request("g"))
        for _ in range(50):
            assert other.ask(heartbeat_request(), HeartbeatResponse).error_code == 25
        until(lambda: len(fake_cluster.journal.requests("JoinGroup")) == 2, fake_cluster)
        # The heartbeat after the join has not been handled.
        assert [call.client_id for call in fake_cluster.journal.requests("Heartbeat")] == ["wire"] * 50
        (pending,) = [call for call in fake_cluster.journal.requests("JoinGroup") if call.answered_ms is None]
        assert pending.request.member_id == member_id
        assert fake_cluster.group("g").describe().state == "PreparingRebalance"


@pytest.mark.fake_cluster(brokers=1)
def test_requests_after_a_parked_one_are_handled_when_it_completes(fake_cluster: FakeCluster) -> None:
    broker = fake_cluster.brokers[0]
    with WireClient(broker) as one, WireClient(broker) as two:
        first = one.ask(join_request("g"), JoinGroupResponse, 3)
        two.send(join_request("g"), 3)  # Parked until the first member rejoins.
        for _ in range(300):
            two.send(heartbeat_request())
        until(lambda: len(fake_cluster.journal.requests("JoinGroup")) == 2, fake_cluster)
        again = one.ask(join_request("g", first.member_id), JoinGroupResponse, 3)
        assert again.generation_id == 2
        assert isinstance(joined := two.receive(), JoinGroupResponse)
        assert joined.generation_id == 2
        for _ in range(300):
            assert isinstance(two.receive(), HeartbeatResponse)


MALFORMED = {
    struct.pack(">ihhih", 10, 999, 0, 1, -1): "unknown API key 999",
    struct.pack(">ihhih", 10, 12, 5, 1, -1): "Heartbeat version 5, expected 0-4",
    struct.pack(">ihhih", 10, 1, 3, 1, -1): "Fetch version 3, expected 4-18",
    struct.pack(">ihhih", 12, 12, 0, 1, -1) + b"\x00\x09": "HeartbeatRequest v0: field group_id malformed",
    struct.pack(">i", 3) + b"abc": "request of 3 bytes",
    struct.pack(">i", -1): "frame of -1 bytes",
    b"GET / HTTP/1.1\r\n\r\n": "frame of 1195725856 bytes, expected 0 to 104857600",
    struct.pack(">ihhih", 10, 12, 0, 1, 50): "request header malformed",
}
"""Bytes, with the reason that is logged."""


def test_malformed_requests_close_their_connection_only(
    fake_cluster: FakeCluster, caplog: pytest.LogCaptureFixture, subtests: pytest.Subtests
) -> None:
    broker = fake_cluster.brokers[0]
    for data, reason in MALFORMED.items():
        with subtests.test(reason), WireClient(broker) as other, WireClient(broker) as malformed:
            caplog.clear()
            malformed.socket.sendall(data)
            assert malformed.is_closed_by_broker()
            assert other.ask(heartbeat_request(), HeartbeatResponse).error_code in (16, 25)
            (line,) = [record.getMessage() for record in caplog.records if "closed" in record.getMessage()]
            assert reason in line


@pytest.mark.fake_cluster(brokers=1, config={"socket.request.max.bytes": 1000})
def test_requests_above_the_configured_size_close_the_connection(fake_cluster: FakeCluster) -> None:
    with WireClient(fake_cluster.brokers[0]) as wire:
        assert wire.ask(heartbeat_request("g" * 900), HeartbeatResponse).error_code == 25
        wire.send(heartbeat_request("g" * 1000))
        assert wire.is_closed_by_broker()


@pytest.mark.fake_cluster(brokers=1, partial_frame_timeout_s=0.05)
def test_an_incomplete_request_closes_the_connection_after_a_timeout(
    fake_cluster: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    with WireClient(fake_cluster.brokers[0]) as wire, WireClient(fake_cluster.brokers[0]) as idle:
        wire.socket.sendall(struct.pack(">i", 100) + b"half")
        assert wire.is_closed_by_broker()
        assert "incomplete request after" in caplog.text
        # A connection may be idle between requests.
        assert idle.ask(heartbeat_request(), HeartbeatResponse).error_code == 25


@pytest.mark.fake_cluster(brokers=1, topics={"orders": 1}, max_unsent_bytes=1_000_000)
def test_a_client_that_does_not_read_its_responses_is_closed(
    fake_cluster: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    fake_cluster.topic("orders").produce(["x" * 900_000])
    partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1_000_000)
    fetch = FetchRequest(max_wait_ms=0, min_bytes=1, topics=[FetchTopic(topic="orders", partitions=[partition])])
    broker = fake_cluster.brokers[0]
    with WireClient(broker) as slow, WireClient(broker) as other:
        slow.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        # The connection is closed between two requests, or while a request is sent.
        with suppress(OSError):
            for _ in range(200):
                slow.send(fetch, LAST_VERSION_WITH_TOPIC_NAMES[FetchRequest])
        until(lambda: bool(caplog.records), fake_cluster)
        assert other.ask(heartbeat_request(), HeartbeatResponse).error_code == 25
    assert "unsent bytes, the limit is 1000000" in caplog.text


@pytest.mark.fake_cluster(brokers=1, topics={"orders": 1})
def test_large_responses_to_a_slow_client_are_complete_and_in_order(fake_cluster: FakeCluster) -> None:
    values = ["x" * 900_000, "y"]
    for value in values:
        fake_cluster.topic("orders").produce([value])
    broker, version = fake_cluster.brokers[0], LAST_VERSION_WITH_TOPIC_NAMES[FetchRequest]
    offsets = [0, 1, 0, 0, 1, 0, 0, 0]
    with WireClient(broker) as slow, WireClient(broker) as other:
        slow.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
        for offset in offsets:
            partition = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1)
            topics = [FetchTopic(topic="orders", partitions=[partition])]
            slow.send(FetchRequest(max_wait_ms=0, min_bytes=1, topics=topics), version)
            assert other.ask(heartbeat_request(), HeartbeatResponse).error_code == 25
        for offset in offsets:
            _, response = read_response(FetchResponse, version, slow.receive_frame())
            (batch,) = split_batches(response.responses[0].partitions[0].records or b"")
            assert [record.value for record in decode_records(batch)] == [values[offset].encode()]


def test_a_request_may_arrive_byte_by_byte(fake_cluster: FakeCluster) -> None:
    with WireClient(fake_cluster.brokers[0]) as wire, WireClient(fake_cluster.brokers[0]) as whole:
        body = struct.pack(">hhih", 12, 0, 5, -1) + b"\x00\x01g\x00\x00\x00\x01\x00\x01m"
        for byte in struct.pack(">i", len(body)) + body:
            wire.socket.sendall(bytes((byte,)))
            whole.ask(heartbeat_request(), HeartbeatResponse)
        assert struct.unpack(">ih", wire.receive_frame())[0] == 5


def test_an_exception_in_a_handler_closes_one_connection(
    fake_cluster: FakeCluster, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setitem(handlers.BY_NAME, "Heartbeat", broken)
    broker = fake_cluster.brokers[0]
    with WireClient(broker) as failing, WireClient(broker) as other:
        failing.send(heartbeat_request())
        assert failing.is_closed_by_broker()
        assert other.ask(find_coordinator("g"), FindCoordinatorResponse).coordinators[0].error_code == 0
    assert "a bug" in caplog.text
