"""Metrics as parsed by Prometheus' client library, the meter behind them, and request rates."""

from collections.abc import Iterator
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from fakebroker import FakeCluster
from fakebroker.control.stats.meter import BOUNDS_MS, Histogram, Meter, quantile
from fakebroker.control.stats.rates import RateWindow
from fakebroker.protocol.messages.find_coordinator import FindCoordinatorResponse
from fakebroker.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from tests.support.control.control_server import ControlHarness, controlled_cluster
from tests.support.wire_client import WireClient, find_coordinator

Samples = dict[str, dict[frozenset[tuple[str, str]], float]]


@pytest.fixture(scope="module")
def control() -> Iterator[ControlHarness]:
    with controlled_cluster(2, {"orders": 4}, clock="manual") as harness:
        yield harness


def scrape(control: ControlHarness) -> Samples:
    """Return the samples by name and labels, without the label `cluster`."""
    response = control.request("GET", "/metrics")
    assert response.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    samples: Samples = {}
    for family in text_string_to_metric_families(response.body.decode()):
        for sample in family.samples:
            labels = dict(sample.labels)
            assert labels.pop("cluster") == "default"
            samples.setdefault(sample.name, {})[frozenset(labels.items())] = sample.value
    return samples


def labeled(**labels: Any) -> frozenset[tuple[str, str]]:
    return frozenset((name, str(value)) for name, value in labels.items())


def test_metrics_count_requests_errors_groups_rebalances_and_faults(control: ControlHarness) -> None:
    seed = {"members": ["a"], "topics": ["orders"]}
    member = control.post("/groups/g/seed", seed, 201) and control.get("/groups/g")["members"][0]["member_id"]
    broker = control.cluster.coordinator_of("g")
    fault = control.post("/faults", {"api": "Heartbeat", "client_id": "other", "drop": True}, 201)["id"]
    with WireClient(broker) as wire:
        wire.ask(find_coordinator("g"), FindCoordinatorResponse)
        for _ in range(3):
            wire.ask(HeartbeatRequest(group_id="g", generation_id=1, member_id=member), HeartbeatResponse)
        wire.ask(HeartbeatRequest(group_id="g", generation_id=9, member_id=member), HeartbeatResponse)
        control.post("/groups/g/force_rebalance")
        control.post("/clock/advance", {"seconds": 2})
        control.post("/groups/g/evict", {"member": "a"})
        found = scrape(control)
    assert found["fakebroker_requests_total"][labeled(api="Heartbeat", broker=broker.node_id)] == 4
    assert found["fakebroker_requests_total"][labeled(api="FindCoordinator", broker=broker.node_id)] == 1
    assert found["fakebroker_errors_total"] == {
        labeled(api="Heartbeat", broker=broker.node_id, error="ILLEGAL_GENERATION"): 1
    }
    durations = found["fakebroker_request_duration_seconds_bucket"]
    assert durations[labeled(api="Heartbeat", le="0")] == durations[labeled(api="Heartbeat", le="+Inf")] == 4
    assert found["fakebroker_groups"][labeled(state="Empty")] == 1
    assert found["fakebroker_members"] == {labeled(): 0}
    assert found["fakebroker_rebalances_total"] == {labeled(): 1}
    assert found["fakebroker_rebalance_duration_seconds_sum"] == {labeled(): 2}
    assert found["fakebroker_rebalance_duration_seconds_bucket"][labeled(le="2.5")] == 1
    assert found["fakebroker_faults"] == {labeled(): 1}
    assert found["fakebroker_fault_hits_total"] == {labeled(fault=fault, api="Heartbeat"): 0}
    assert found["fakebroker_connections"][labeled(broker=broker.node_id)] == 1
    assert found["fakebroker_broker_up"] == {labeled(broker=1): 1, labeled(broker=2): 1}
    assert found["fakebroker_journal_requests"] == {labeled(): 5}
    assert found["fakebroker_journal_dropped_total"] == {labeled(): 0}
    assert found["fakebroker_requests_missed_total"] == {labeled(): 0}


@pytest.mark.parametrize("journal", ["full", "headers"])
def test_requests_that_the_journal_drops_later_are_counted(journal: str) -> None:
    with FakeCluster(1, journal=journal, journal_calls=40) as cluster:  # type: ignore[arg-type]  # one of the modes
        meter = Meter(cluster)
        cluster.watch(meter.on_change)
        with WireClient(cluster.brokers[0]) as wire:
            for _ in range(500):
                wire.ask(HeartbeatRequest(group_id="g", generation_id=1, member_id="x"), HeartbeatResponse)
        cluster.call(meter.catch_up)
        assert meter.totals.requests == {("Heartbeat", 1): 500}
        assert meter.totals.errors == {("Heartbeat", 1, "UNKNOWN_MEMBER_ID"): 500}
        assert meter.missed == 0


def test_delayed_responses_are_counted_when_sent_and_counting_continues_after_a_reset() -> None:
    with FakeCluster(1, clock="manual") as cluster:
        meter = Meter(cluster)
        cluster.watch(meter.on_change)
        cluster.fail("Heartbeat", delay_s=3)
        with WireClient(cluster.brokers[0]) as wire:
            wire.send(HeartbeatRequest(group_id="g", generation_id=1, member_id="x"))
            cluster.wait_for_request("Heartbeat")
            cluster.call(meter.catch_up)
            assert meter.totals.requests == {("Heartbeat", 1): 1}
            assert meter.totals.latencies == {}
            cluster.advance(3)
            cluster.call(meter.catch_up)
            assert meter.totals.latencies["Heartbeat"].sum_ms == 3000
            assert isinstance(wire.receive(), HeartbeatResponse)
            wire.ask(find_coordinator("g"), FindCoordinatorResponse)
        cluster.reset()
        with WireClient(cluster.brokers[0]) as wire:
            wire.ask(find_coordinator("g"), FindCoordinatorResponse)
        cluster.call(meter.catch_up)
        assert meter.totals.requests == {("Heartbeat", 1): 1, ("FindCoordinator", 1): 2}


def test_the_latency_of_a_delayed_response_does_not_depend_on_when_it_is_counted() -> None:
    with FakeCluster(1, {"orders": 1}, clock="manual") as cluster:
        cluster.seed_group("g", 1, topics=["orders"])
        member_id = cluster.group("g").members[0].member_id
        meter = Meter(cluster)
        cluster.fail("Heartbeat", delay_s=3)
        with WireClient(cluster.brokers[0]) as wire:
            wire.send(HeartbeatRequest(group_id="g", generation_id=1, member_id=member_id))
            cluster.wait_for_request("Heartbeat")
            cluster.advance(3)
            assert wire.receive() is not None
        cluster.call(meter.catch_up)
        assert meter.totals.requests == {("Heartbeat", 1): 1}
        assert meter.totals.latencies["Heartbeat"].sum_ms == 3000


def test_metrics_have_labels_for_clusters_and_faults() -> None:
    with controlled_cluster(1) as control:
        assert control.request("POST", "/v1/clusters", {"name": "other", "brokers": 2}).status == 201
        fault = control.post("/faults", {"api": "FindCoordinator", "error": "COORDINATOR_NOT_AVAILABLE"}, 201)["id"]
        with WireClient(control.cluster.brokers[0]) as wire:
            for _ in range(2):
                wire.ask(find_coordinator("g"), FindCoordinatorResponse)
        found = {
            family.name: {frozenset(sample.labels.items()): sample.value for sample in family.samples}
            for family in text_string_to_metric_families(control.request("GET", "/metrics").body.decode())
        }
    default = {"cluster": "default", "broker": 1}
    assert found["fakebroker_fault_hits"] == {labeled(cluster="default", fault=fault, api="FindCoordinator"): 2}
    assert found["fakebroker_faults"] == {labeled(cluster="default"): 1, labeled(cluster="other"): 0}
    assert found["fakebroker_requests"] == {labeled(**default, api="FindCoordinator"): 2}
    brokers = [default, {"cluster": "other", "broker": 1}, {"cluster": "other", "broker": 2}]
    assert found["fakebroker_broker_up"] == {labeled(**broker): 1 for broker in brokers}


def test_requests_that_the_journal_dropped_before_counting_are_missed() -> None:
    with FakeCluster(1, clock="manual", journal_calls=3) as cluster:
        meter = Meter(cluster)
        cluster.call(meter.catch_up)
        with WireClient(cluster.brokers[0]) as wire:
            for _ in range(5):
                wire.ask(find_coordinator("g"), FindCoordinatorResponse)
        cluster.reset()
        cluster.call(meter.catch_up)
        assert (meter.totals.requests, meter.missed) == ({("FindCoordinator", 1): 3}, 2)


def test_quantiles_are_estimated_from_buckets() -> None:
    durations = Histogram()
    assert quantile(durations.buckets, 0.5) is None
    durations.add(0.0, 50)
    assert quantile(durations.buckets, 0.99) == 0.0
    durations.add(75.0, 50)
    assert quantile(durations.buckets, 0.5) == 0.0
    assert quantile(durations.buckets, 0.75) == 75.0
    durations.add(1e9, 900)
    assert quantile(durations.buckets, 0.99) == BOUNDS_MS[-1]


def test_rates_are_averages_of_the_last_seconds() -> None:
    with FakeCluster(2) as cluster:
        meter, window = Meter(cluster), RateWindow()
        window.record(10.0, meter.totals)
        with WireClient(cluster.brokers[1]) as wire:
            for _ in range(8):
                wire.ask(HeartbeatRequest(group_id="g", generation_id=1, member_id="x"), HeartbeatResponse)
        cluster.call(meter.catch_up)
        rates = window.rates(14.0, meter.totals, [1, 2])
        assert rates["requests_per_s"] == 2.0
        assert rates["by_broker"] == [{"node_id": 1, "requests_per_s": 0.0}, {"node_id": 2, "requests_per_s": 2.0}]
        assert rates["by_api"] == [
            {"api": "Heartbeat", "requests_per_s": 2.0, "errors_per_s": 2.0, "p50_ms": 0.0, "p99_ms": 0.0}
        ]
        for second in range(4):
            window.record(20.0 + second, meter.totals)
        assert window.rates(24.0, meter.totals, [1, 2])["requests_per_s"] == 0.0
