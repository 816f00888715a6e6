"""Faults and network conditions as clients see them over TCP: errors, delays, disconnects, throttling, latency."""

import struct
from collections.abc import Callable
from math import inf, nan
from typing import Any

import pytest

from fakebroker import ConfigError, ErrorCode, FakeCluster, Fault
from fakebroker.cluster.handles.definition import commands
from fakebroker.cluster.handles.faults import FaultHandle
from fakebroker.errors import ProtocolError
from fakebroker.protocol.messages.heartbeat import HeartbeatResponse
from fakebroker.protocol.messages.metadata import MetadataRequest, MetadataResponse
from fakebroker.protocol.messages.offset_commit import OffsetCommitResponse
from fakebroker.server.fake_cluster import internals
from tests.support.group_requests import commit_request, heartbeat_request
from tests.support.groups_over_tcp import heartbeat
from tests.support.wire_client import WireClient, until

HEARTBEAT = heartbeat_request("g")
one_broker = pytest.mark.fake_cluster(brokers=1, topics={"orders": 1}, seed=1)
one_broker_with_manual_clock = pytest.mark.fake_cluster(brokers=1, topics={"orders": 1}, seed=1, clock="manual")


def beat(wire: WireClient) -> str:
    return heartbeat(wire).name


def waits_ms(cluster: FakeCluster) -> list[float]:
    """Return the times at which heartbeats were received, in milliseconds after the first heartbeat."""
    received = [call.received_ms for call in cluster.journal.requests("Heartbeat")]
    return [each - received[0] for each in received]


def test_options_of_fail_are_the_fields_of_a_fault() -> None:
    assert commands()["inject_fault"].arguments.__struct_fields__ == Fault.__struct_fields__


@one_broker
def test_a_fault_as_a_context_manager(fake_cluster: FakeCluster) -> None:
    with WireClient(fake_cluster.brokers[0]) as wire:
        with fake_cluster.inject_fault("Heartbeat", error="NOT_COORDINATOR") as fault:
            assert [beat(wire), beat(wire)] == ["NOT_COORDINATOR"] * 2
            assert fault.hits == 2
            (view,) = fake_cluster.faults()
            assert view == fault.describe()
            assert (view.rule, view.hits, view.is_over) == ({"api": "Heartbeat", "error": "NOT_COORDINATOR"}, 2, False)
        assert beat(wire) == "UNKNOWN_MEMBER_ID"
    assert fault.hits == 2
    assert fake_cluster.faults() == []
    rule = Fault(api="Heartbeat", error="NOT_COORDINATOR")
    assert [call.fault for call in fake_cluster.journal.requests("Heartbeat")] == [rule, rule, None]


@one_broker
def test_clear_faults_removes_all_faults(fake_cluster: FakeCluster) -> None:
    fake_cluster.inject_fault(api="Heartbeat", error="NOT_COORDINATOR")
    fake_cluster.inject_fault(None, drop=True)
    assert len(fake_cluster.faults()) == 2
    fake_cluster.clear_faults()
    with WireClient(fake_cluster.brokers[0]) as wire:
        assert beat(wire) == "UNKNOWN_MEMBER_ID"


def test_a_fault_without_effect_is_rejected_before_and_after_the_start() -> None:
    cluster = FakeCluster(brokers=1)
    with pytest.raises(ConfigError, match="expected an error of Heartbeat, one of "):
        cluster.inject_fault("Heartbeat", error="OFFSET_OUT_OF_RANGE")
    fault = cluster.inject_fault("Heartbeat", error="NOT_COORDINATOR")
    with cluster, WireClient(cluster.brokers[0]) as wire:
        assert beat(wire) == "NOT_COORDINATOR"
        with pytest.raises(ConfigError, match="api='Beat': expected one of"):
            cluster.inject_fault("Beat", drop=True)
    assert fault.hits == 1


@pytest.mark.parametrize(("handles", "offset"), [(True, 7), (False, None)])
@one_broker
def test_a_commit_without_a_response_is_applied_on_request(
    fake_cluster: FakeCluster, handles: bool, offset: int | None, caplog: pytest.LogCaptureFixture
) -> None:
    fake_cluster.inject_fault("OffsetCommit", drop=True, handles=handles, times=1)
    with WireClient(fake_cluster.brokers[0]) as wire:
        wire.send(commit_request(7), 8)
        assert wire.is_closed_by_broker()
    found = fake_cluster.group("g").offsets().get(("orders", 0))
    assert (found and found.offset) == offset
    with WireClient(fake_cluster.brokers[0]) as wire:
        assert wire.ask(commit_request(8), OffsetCommitResponse, 8).topics[0].partitions[0].error_code == 0
    assert caplog.records == []


@one_broker
def test_a_missing_response_blocks_only_its_connection(fake_cluster: FakeCluster) -> None:
    fake_cluster.inject_fault("Heartbeat", client_id="first", silent=True, times=1)
    with WireClient(fake_cluster.brokers[0], "first") as wire, WireClient(fake_cluster.brokers[0]) as other:
        wire.send(HEARTBEAT)
        wire.send(HEARTBEAT)
        until(lambda: len(fake_cluster.journal.requests()) == 1, fake_cluster)
        assert beat(other) == "UNKNOWN_MEMBER_ID"
        assert [call.client_id for call in fake_cluster.journal.requests()] == ["first", "wire"]


@one_broker_with_manual_clock
def test_a_delayed_response_delays_later_ones(fake_cluster: FakeCluster) -> None:
    fake_cluster.inject_fault("Heartbeat", delay_s=30, times=1)
    with WireClient(fake_cluster.brokers[0]) as wire, WireClient(fake_cluster.brokers[0]) as other:
        wire.send(HEARTBEAT)
        wire.send(MetadataRequest(topics=[]))
        until(lambda: len(fake_cluster.journal.requests()) == 1, fake_cluster)
        assert beat(other) == "UNKNOWN_MEMBER_ID"
        assert len(fake_cluster.journal.requests()) == 2
        internals(fake_cluster).server.clock.advance(30)
        assert isinstance(wire.receive(), HeartbeatResponse)
        assert isinstance(wire.receive(), MetadataResponse)


@one_broker_with_manual_clock
def test_a_connection_is_closed_after_a_delay(fake_cluster: FakeCluster) -> None:
    fake_cluster.inject_fault("Heartbeat", drop=True, delay_s=30)
    with WireClient(fake_cluster.brokers[0]) as wire:
        wire.send(HEARTBEAT)
        until(lambda: len(fake_cluster.journal.requests()) == 1, fake_cluster)
        internals(fake_cluster).server.clock.advance(30)
        assert wire.is_closed_by_broker()


@one_broker
def test_a_response_is_sent_twice(fake_cluster: FakeCluster) -> None:
    fake_cluster.inject_fault("Heartbeat", twice=True)
    with WireClient(fake_cluster.brokers[0]) as wire:
        wire.send(HEARTBEAT)
        assert wire.receive_frame() == wire.receive_frame()


@one_broker
def test_a_response_is_cut_after_complete_ones(fake_cluster: FakeCluster) -> None:
    fake_cluster.inject_fault("Metadata", cut_bytes=20)
    with WireClient(fake_cluster.brokers[0]) as wire:
        assert beat(wire) == "UNKNOWN_MEMBER_ID"
        wire.send(MetadataRequest(topics=[]))
        data = b""
        while piece := wire.socket.recv(100):
            data += piece
    assert len(data) == 20
    assert struct.unpack_from(">i", data)[0] > 16


@one_broker
def test_a_response_is_corrupted(fake_cluster: FakeCluster) -> None:
    fake_cluster.inject_fault("Metadata", garble_bytes=40)
    with WireClient(fake_cluster.brokers[0]) as wire:
        wire.send(MetadataRequest(topics=[]))
        with pytest.raises(ProtocolError):
            wire.receive()
        assert beat(wire) == "UNKNOWN_MEMBER_ID"


@one_broker
def test_a_throttled_connection_is_muted(fake_cluster: FakeCluster) -> None:
    fake_cluster.inject_fault("Heartbeat", throttle_time_ms=60, times=1)
    with WireClient(fake_cluster.brokers[0]) as wire, WireClient(fake_cluster.brokers[0], "other") as other:
        wire.send(HEARTBEAT)
        wire.send(HEARTBEAT)
        throttled = wire.receive()
        assert isinstance(throttled, HeartbeatResponse)
        assert throttled.throttle_time_ms == 60
        beat(other)
        assert receive_error(wire) == "UNKNOWN_MEMBER_ID"
    assert [call.client_id for call in fake_cluster.journal.requests()] == ["wire", "other", "wire"]
    assert waits_ms(fake_cluster)[2] >= 60


def receive_error(wire: WireClient) -> str:
    answer: Any = wire.receive()
    return ErrorCode(answer.error_code).name


# Network conditions


@one_broker
def test_latency_keeps_the_order_of_responses(fake_cluster: FakeCluster) -> None:
    fake_cluster.broker(1).set_network(round_trip_s=0.05)
    with WireClient(fake_cluster.brokers[0]) as wire:
        wire.send(HEARTBEAT)
        until(lambda: len(fake_cluster.journal.requests()) == 1, fake_cluster)
        fake_cluster.broker(1).set_network(round_trip_s=0)
        wire.send(MetadataRequest(topics=[]))
        assert isinstance(wire.receive(), HeartbeatResponse)
        assert isinstance(wire.receive(), MetadataResponse)
        assert beat(wire) == "UNKNOWN_MEMBER_ID"


@one_broker
def test_latency_is_added_to_each_response(fake_cluster: FakeCluster) -> None:
    fake_cluster.broker(1).set_network(round_trip_s=0.03)
    with WireClient(fake_cluster.brokers[0]) as wire:
        for _ in range(3):
            beat(wire)
    assert waits_ms(fake_cluster)[2] >= 60


@one_broker_with_manual_clock
def test_a_delayed_response_is_not_kept_for_a_closed_connection(fake_cluster: FakeCluster) -> None:
    fake_cluster.inject_fault("Metadata", delay_s=60)
    with WireClient(fake_cluster.brokers[0]) as wire:
        wire.send(MetadataRequest(topics=None))
        fake_cluster.wait(fake_cluster.requested("Metadata"))
    until(lambda: not internals(fake_cluster).server.reactor.connections.values(), fake_cluster)
    fake_cluster.advance(60)
    (call,) = fake_cluster.journal.requests("Metadata")
    assert (call.latency_ms, call.has_response) == (60_000, False)


@one_broker
def test_delayed_responses_to_closed_connections_are_dropped(fake_cluster: FakeCluster) -> None:
    fake_cluster.broker(1).set_network(round_trip_s=0.02)
    with WireClient(fake_cluster.brokers[0]) as wire:
        wire.send(HEARTBEAT)
        until(lambda: len(fake_cluster.journal.requests()) == 1, fake_cluster)
    with WireClient(fake_cluster.brokers[0]) as wire:
        assert beat(wire) == "UNKNOWN_MEMBER_ID"


@one_broker
def test_a_broker_that_accepts_slowly(fake_cluster: FakeCluster) -> None:
    with WireClient(fake_cluster.brokers[0]) as old:
        beat(old)
        fake_cluster.broker(1).set_network(accept="slow", accept_delay_s=0.06)
        with WireClient(fake_cluster.brokers[0], "new") as new:
            new.send(HEARTBEAT)
            beat(old)
            receive_error(new)
    assert [call.client_id for call in fake_cluster.journal.requests()] == ["wire", "wire", "new"]
    assert waits_ms(fake_cluster)[2] >= 60


@one_broker
def test_a_broker_that_refuses_keeps_its_connections(fake_cluster: FakeCluster) -> None:
    (broker,) = fake_cluster.brokers
    with WireClient(broker) as old:
        beat(old)
        fake_cluster.broker(1).set_network(accept="refuse")
        fake_cluster.broker(1).set_network(accept="refuse")
        with pytest.raises(ConnectionRefusedError):
            WireClient(broker)
        assert beat(old) == "UNKNOWN_MEMBER_ID"
        fake_cluster.broker(1).set_network(accept="normal")
        assert list(fake_cluster.brokers) == [broker]
        with WireClient(broker) as new:
            assert beat(new) == "UNKNOWN_MEMBER_ID"
        assert beat(old) == "UNKNOWN_MEMBER_ID"


@pytest.mark.fake_cluster(brokers=2)
def test_a_broker_that_refuses_is_stopped_started_and_removed(fake_cluster: FakeCluster) -> None:
    broker = fake_cluster.brokers[0]
    fake_cluster.broker(1).set_network(accept="refuse")
    fake_cluster.broker(1).restart()
    with WireClient(broker) as wire:
        beat(wire)
    fake_cluster.broker(1).set_network(accept="refuse")
    fake_cluster.broker(1).remove()
    with pytest.raises(ConnectionRefusedError):
        WireClient(broker)


@one_broker
def test_a_half_open_connection_is_never_answered(fake_cluster: FakeCluster) -> None:
    with WireClient(fake_cluster.brokers[0]) as old:
        beat(old)
        fake_cluster.broker(1).set_network(accept="half_open")
        with WireClient(fake_cluster.brokers[0], "new") as new:
            for _ in range(3):
                new.send(HEARTBEAT)
            assert beat(old) == "UNKNOWN_MEMBER_ID"
            fake_cluster.broker(1).set_network(accept="normal")
            with WireClient(fake_cluster.brokers[0], "newer") as newer:
                beat(newer)
    assert [call.client_id for call in fake_cluster.journal.requests()] == ["wire", "wire", "newer"]


INVALID_CONDITIONS: list[tuple[int, dict[str, Any], str]] = [
    (7, {"accept": "refuse"}, "node_id=7: expected one of 1"),
    (1, {"accept": "never"}, "accept='never': expected one of normal, slow, half_open, refuse"),
    (1, {"accept": "slow"}, "accept_delay_s=None: expected a number > 0 with accept='slow'"),
    (1, {"accept_delay_s": 1}, "accept_delay_s=1.0: expected a number > 0 with accept='slow', and none otherwise"),
    (1, {"accept_delay_s": nan}, "accept_delay_s=nan: expected a finite number"),
    (1, {"accept": "slow", "accept_delay_s": inf}, "accept_delay_s=inf: expected a finite number"),
    (1, {"round_trip_s": -1}, "round_trip_s=-1: expected a number >= 0"),
    (1, {"round_trip_s": nan}, "round_trip_s=nan: expected a finite number"),
    (1, {"round_trip_s": inf}, "round_trip_s=inf: expected a finite number"),
]
"""Arguments of `set_broker`, with a part of the error."""


@one_broker
def test_invalid_network_conditions_are_rejected(fake_cluster: FakeCluster, subtests: pytest.Subtests) -> None:
    for node_id, options, error in INVALID_CONDITIONS:
        with subtests.test(node_id=node_id, **options):
            with pytest.raises(ConfigError) as caught:
                fake_cluster.broker(node_id).set_network(**options)
            assert error in str(caught.value)


def test_equal_seeds_select_the_same_requests(fake_cluster_factory: Callable[..., FakeCluster]) -> None:
    def run(seed: int) -> list[str]:
        cluster = fake_cluster_factory(brokers=1, seed=seed)
        handle = cluster.inject_fault("Heartbeat", error="NOT_COORDINATOR", probability=0.5)
        assert isinstance(handle, FaultHandle)
        with WireClient(cluster.brokers[0]) as wire:
            return [beat(wire) for _ in range(30)]

    assert run(1) == run(1) != run(2)
