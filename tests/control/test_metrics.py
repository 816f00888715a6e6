"""Metrics: what a parser of Prometheus' own reads out of them, and the rates of the overview."""

from collections.abc import Iterator
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from fakebroker import FakeCluster
from fakebroker.control.stats.meter import BOUNDS_MS, Histogram, Meter, quantile
from fakebroker.control.stats.rates import Recent
from fakebroker.protocol.messages.find_coordinator import FindCoordinatorResponse
from fakebroker.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from tests.support.control.control_server import Asking, asking
from tests.support.wire_client import WireClient, find_coordinator

Samples = dict[str, dict[frozenset[tuple[str, str]], float]]


@pytest.fixture(scope="module")
def control() -> Iterator[Asking]:
    with asking(2, {"orders": 4}, clock="manual") as made:
        yield made


def scraped(control: Asking) -> Samples:
    """The samples by name and labels, but for the cluster's."""
    answer = control.ask("GET", "/metrics")
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    found: Samples = {}
    for family in text_string_to_metric_families(answer.body.decode()):
        for sample in family.samples:
            labels = dict(sample.labels)
            assert labels.pop("cluster") == "default"
            found.setdefault(sample.name, {})[frozenset(labels.items())] = sample.value
    return found


def labeled(**labels: Any) -> frozenset[tuple[str, str]]:
    return frozenset((name, str(value)) for name, value in labels.items())


def test_metrics_tell_what_has_happened(control: Asking) -> None:
    seed = {"members": ["a"], "topics": ["orders"]}
    member = control.post("/groups/g/seed", seed, 201) and control.get("/groups/g")["members"][0]["member_id"]
    broker = control.cluster.coordinator_of("g")
    fault = control.post("/faults", {"api": "Heartbeat", "client_id": "nobody", "drop": True}, 201)["id"]
    with WireClient(broker) as wire:
        wire.ask(find_coordinator("g"), FindCoordinatorResponse)
        for _ in range(3):
            wire.ask(HeartbeatRequest(group_id="g", generation_id=1, member_id=member), HeartbeatResponse)
        wire.ask(HeartbeatRequest(group_id="g", generation_id=9, member_id=member), HeartbeatResponse)
        control.post("/groups/g/force_rebalance")
        control.post("/clock/advance", {"seconds": 2})
        control.post("/groups/g/evict", {"member": "a"})
        found = scraped(control)
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
def test_more_requests_than_the_journal_keeps_are_counted_all_the_same(journal: str) -> None:
    with FakeCluster(1, journal=journal, journal_calls=40) as cluster:  # type: ignore[arg-type]  # one of the modes
        meter = Meter(cluster)
        cluster.watch(meter.look)
        with WireClient(cluster.brokers[0]) as wire:
            for _ in range(500):
                wire.ask(HeartbeatRequest(group_id="g", generation_id=1, member_id="x"), HeartbeatResponse)
        cluster.call(meter.catch_up)
        assert meter.totals.requests == {("Heartbeat", 1): 500}
        assert meter.totals.errors == {("Heartbeat", 1, "UNKNOWN_MEMBER_ID"): 500}
        assert meter.missed == 0


def test_what_is_owed_is_counted_when_it_is_answered_and_counting_goes_on_after_a_reset() -> None:
    with FakeCluster(1, clock="manual") as cluster:
        meter = Meter(cluster)
        cluster.watch(meter.look)
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


def test_how_long_an_answer_took_that_was_delayed_is_told_whenever_it_is_counted() -> None:
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


def test_metrics_tell_clusters_apart_and_which_faults_were_hit() -> None:
    with asking(1) as control:
        assert control.ask("POST", "/v1/clusters", {"name": "other", "brokers": 2}).status == 201
        fault = control.post("/faults", {"api": "FindCoordinator", "error": "COORDINATOR_NOT_AVAILABLE"}, 201)["id"]
        with WireClient(control.cluster.brokers[0]) as wire:
            for _ in range(2):
                wire.ask(find_coordinator("g"), FindCoordinatorResponse)
        found = {
            family.name: {frozenset(sample.labels.items()): sample.value for sample in family.samples}
            for family in text_string_to_metric_families(control.ask("GET", "/metrics").body.decode())
        }
    mine = {"cluster": "default", "broker": 1}
    assert found["fakebroker_fault_hits"] == {labeled(cluster="default", fault=fault, api="FindCoordinator"): 2}
    assert found["fakebroker_faults"] == {labeled(cluster="default"): 1, labeled(cluster="other"): 0}
    assert found["fakebroker_requests"] == {labeled(**mine, api="FindCoordinator"): 2}
    ups = [mine, {"cluster": "other", "broker": 1}, {"cluster": "other", "broker": 2}]
    assert found["fakebroker_broker_up"] == {labeled(**one): 1 for one in ups}


def test_what_the_journal_has_forgotten_by_a_reset_is_missed() -> None:
    with FakeCluster(1, clock="manual", journal_calls=3) as cluster:
        meter = Meter(cluster)
        cluster.call(meter.catch_up)
        with WireClient(cluster.brokers[0]) as wire:
            for _ in range(5):
                wire.ask(find_coordinator("g"), FindCoordinatorResponse)
        cluster.reset()
        cluster.call(meter.catch_up)
        assert (meter.totals.requests, meter.missed) == ({("FindCoordinator", 1): 3}, 2)


def test_quantiles_are_read_off_the_buckets() -> None:
    durations = Histogram()
    assert quantile(durations.buckets, 0.5) is None
    durations.add(0.0, 50)
    assert quantile(durations.buckets, 0.99) == 0.0
    durations.add(75.0, 50)
    assert quantile(durations.buckets, 0.5) == 0.0
    assert quantile(durations.buckets, 0.75) == 75.0
    durations.add(1e9, 900)
    assert quantile(durations.buckets, 0.99) == BOUNDS_MS[-1]


def test_rates_are_those_of_the_last_seconds() -> None:
    with FakeCluster(2) as cluster:
        meter, recent = Meter(cluster), Recent()
        recent.keep(10.0, meter.totals)
        with WireClient(cluster.brokers[1]) as wire:
            for _ in range(8):
                wire.ask(HeartbeatRequest(group_id="g", generation_id=1, member_id="x"), HeartbeatResponse)
        cluster.call(meter.catch_up)
        rates = recent.rates(14.0, meter.totals, [1, 2])
        assert rates["requests_per_s"] == 2.0
        assert rates["by_broker"] == [{"node_id": 1, "requests_per_s": 0.0}, {"node_id": 2, "requests_per_s": 2.0}]
        assert rates["by_api"] == [
            {"api": "Heartbeat", "requests_per_s": 2.0, "errors_per_s": 2.0, "p50_ms": 0.0, "p99_ms": 0.0}
        ]
        for second in range(4):
            recent.keep(20.0 + second, meter.totals)
        assert recent.rates(24.0, meter.totals, [1, 2])["requests_per_s"] == 0.0
