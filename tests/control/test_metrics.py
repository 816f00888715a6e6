"""Metrics as parsed by Prometheus' client library, the meter behind them, and request rates."""

import socket
from collections.abc import Iterator, Mapping
from math import inf
from typing import Any

import pytest
from prometheus_client import Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics_families
from prometheus_client.parser import text_string_to_metric_families

from fakebroker import FakeCluster
from fakebroker.control.stats.meter import Meter, Totals
from fakebroker.control.stats.rates import ApiRate, Latency, RateWindow
from fakebroker.protocol.messages.find_coordinator import FindCoordinatorResponse
from fakebroker.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from fakebroker.protocol.messages.metadata import MetadataRequest
from fakebroker.protocol.messages.offset_commit import OffsetCommitResponse
from fakebroker.server.fake_cluster import internals
from tests.support.control.control_server import ControlHarness, controlled_cluster
from tests.support.group_requests import commit_request, join_request
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
    control.post("/groups/g/seed", {"members": ["a"], "topics": ["orders"]})
    member = control.get("/groups/g")["members"][0]["member_id"]
    broker = control.cluster.group("g").coordinator()
    fault = control.post("/inject_fault", {"api": "Heartbeat", "client_id": "other", "drop": True})["id"]
    with WireClient(broker) as wire:
        wire.ask(find_coordinator("g"), FindCoordinatorResponse)
        for _ in range(3):
            wire.ask(HeartbeatRequest(group_id="g", generation_id=1, member_id=member), HeartbeatResponse)
        wire.ask(HeartbeatRequest(group_id="g", generation_id=9, member_id=member), HeartbeatResponse)
        control.post("/groups/g/rebalance")
        control.post("/advance", {"seconds": 2})
        control.post("/groups/g/evict", {"member": "a"})
        found = scrape(control)
    assert found["fakebroker_requests_total"][labeled(api="Heartbeat", broker=broker.node_id)] == 4
    assert found["fakebroker_requests_total"][labeled(api="FindCoordinator", broker=broker.node_id)] == 1
    assert found["fakebroker_errors_total"] == {
        labeled(api="Heartbeat", broker=broker.node_id, error="ILLEGAL_GENERATION"): 1
    }
    durations = found["fakebroker_request_duration_seconds_bucket"]
    assert durations[labeled(api="Heartbeat", le="0")] == durations[labeled(api="Heartbeat", le="+Inf")] == 4
    assert found["fakebroker_groups"][labeled(protocol="classic", state="Empty")] == 1
    assert found["fakebroker_members"] == {labeled(protocol="classic"): 0, labeled(protocol="consumer"): 0}
    assert found["fakebroker_rebalances_total"] == {labeled(protocol="classic"): 1, labeled(protocol="consumer"): 0}
    assert found["fakebroker_rebalance_duration_seconds_sum"][labeled(protocol="classic")] == 2
    rebalances = found["fakebroker_rebalance_duration_seconds_bucket"]
    assert [rebalances[labeled(protocol="classic", le=bound)] for bound in ("1.024", "2.048")] == [0, 1]
    assert found["fakebroker_faults"] == {labeled(): 1}
    assert found["fakebroker_fault_hits_total"] == {labeled(fault=fault, api="Heartbeat"): 0}
    assert found["fakebroker_connections"][labeled(broker=broker.node_id)] == 1
    assert found["fakebroker_broker_up"] == {labeled(broker=1): 1, labeled(broker=2): 1}
    assert found["fakebroker_journal_requests"] == {labeled(): 5}
    assert found["fakebroker_journal_dropped_total"] == {labeled(): 0}
    assert found["fakebroker_requests_missed_total"] == {labeled(): 0}


def test_metrics_of_transactions(control: ControlHarness) -> None:
    control.post("/reset")
    before = scrape(control)["fakebroker_transactions_ended_total"]
    for name in ("t", "u", "v"):
        control.post(f"/transactions/{name}/seed", {"records": {"orders-0": 1}, "timeout_ms": 900_000})
    control.post("/transactions/u/abort")
    control.post("/transactions/v/hold_markers")
    control.post("/transactions/v/abort")
    found = scrape(control)
    assert found["fakebroker_transactions"][labeled(state="Ongoing")] == 1
    assert found["fakebroker_transactions"][labeled(state="PrepareAbort")] == 1
    ended = found["fakebroker_transactions_ended_total"]
    assert {name: ended[name] - before[name] for name in ended} == {
        labeled(outcome="abort"): 1,
        labeled(outcome="commit"): 0,
    }
    assert found["fakebroker_transaction_markers_waiting"] == {labeled(): 1}
    assert found["fakebroker_partitions_with_late_transactions"] == {labeled(): 0}
    overview = control.get("")
    assert (overview["transactions_by_state"]["CompleteAbort"], overview["waiting_markers"]) == (1, 1)
    control.post("/advance", {"seconds": 1_201})
    assert scrape(control)["fakebroker_partitions_with_late_transactions"] == {labeled(): 1}, "whose marker is held"


@pytest.mark.parametrize("journal", ["full", "headers"])
def test_requests_that_the_journal_drops_later_are_counted(journal: str) -> None:
    with FakeCluster(1, journal=journal, journal_calls=40) as cluster:  # type: ignore[arg-type]  # one of the modes
        meter = Meter(cluster)
        internals(cluster).server.watch(meter.on_change)
        with WireClient(cluster.brokers[0]) as wire:
            for _ in range(500):
                wire.ask(HeartbeatRequest(group_id="g", generation_id=1, member_id="x"), HeartbeatResponse)
        internals(cluster).run(meter.catch_up)
        assert meter.totals.requests == {("Heartbeat", 1): 500}
        assert meter.totals.errors == {("Heartbeat", 1, "UNKNOWN_MEMBER_ID"): 500}
        assert meter.missed == 0


def test_delayed_responses_are_counted_when_sent_and_counting_continues_after_a_reset() -> None:
    with FakeCluster(1, clock="manual") as cluster:
        meter = Meter(cluster)
        internals(cluster).server.watch(meter.on_change)
        cluster.inject_fault("Heartbeat", delay_s=3)
        with WireClient(cluster.brokers[0]) as wire:
            wire.send(HeartbeatRequest(group_id="g", generation_id=1, member_id="x"))
            cluster.wait(cluster.requested("Heartbeat"))
            internals(cluster).run(meter.catch_up)
            assert meter.totals.requests == {("Heartbeat", 1): 1}
            assert meter.totals.broker_times == {}
            cluster.advance(3)
            internals(cluster).run(meter.catch_up)
            assert meter.totals.broker_times["Heartbeat"].sum_ms == 3000
            assert isinstance(wire.receive(), HeartbeatResponse)
            wire.ask(find_coordinator("g"), FindCoordinatorResponse)
        cluster.reset()
        with WireClient(cluster.brokers[0]) as wire:
            wire.ask(find_coordinator("g"), FindCoordinatorResponse)
        internals(cluster).run(meter.catch_up)
        assert meter.totals.requests == {("Heartbeat", 1): 1, ("FindCoordinator", 1): 2}


def test_the_latency_of_a_delayed_response_does_not_depend_on_when_it_is_counted() -> None:
    with FakeCluster(1, {"orders": 1}, clock="manual") as cluster:
        cluster.group("g").seed(1, topics=["orders"])
        member_id = cluster.group("g").describe().members[0].member_id
        meter = Meter(cluster)
        cluster.inject_fault("Heartbeat", delay_s=3)
        with WireClient(cluster.brokers[0]) as wire:
            wire.send(HeartbeatRequest(group_id="g", generation_id=1, member_id=member_id))
            cluster.wait(cluster.requested("Heartbeat"))
            cluster.advance(3)
            assert wire.receive() is not None
        internals(cluster).run(meter.catch_up)
        assert meter.totals.requests == {("Heartbeat", 1): 1}
        assert meter.totals.broker_times["Heartbeat"].sum_ms == 3000


def rates_of(cluster: FakeCluster, meter: Meter) -> dict[str, ApiRate]:
    """Return the rates of all requests so far, by API."""
    internals(cluster).run(meter.catch_up)
    window = RateWindow()
    window.record(0.0, Totals())
    return {rate["api"]: rate for rate in window.rates(1.0, meter.totals, [1])["by_api"]}


def test_delays_of_faults_are_in_the_broker_time_and_those_of_the_network_in_the_wire_time_only() -> None:
    with FakeCluster(1) as cluster, WireClient(cluster.brokers[0]) as wire:
        meter = Meter(cluster)
        internals(cluster).run(meter.catch_up)
        cluster.inject_fault("Heartbeat", delay_s=0.05)
        cluster.inject_fault("OffsetCommit", delay_before_s=0.05)
        wire.ask(HeartbeatRequest(group_id="g", generation_id=1, member_id="x"), HeartbeatResponse)
        wire.ask(commit_request(1), OffsetCommitResponse, 8)
        cluster.broker(1).set_network(round_trip_s=0.05)
        wire.ask(find_coordinator("g"), FindCoordinatorResponse)
        rates = rates_of(cluster, meter)
        for api, least_broker_ms in (("Heartbeat", 50), ("OffsetCommit", 50), ("FindCoordinator", 0)):
            broker_ms, wire_ms = rates[api]["broker_p50_ms"], rates[api]["wire_p50_ms"]
            assert broker_ms is not None
            assert wire_ms is not None
            assert wire_ms >= 49
            assert broker_ms >= 0.99 * least_broker_ms
        assert rates["FindCoordinator"]["broker_p99_ms"] == 0


def shrink_send_buffers(cluster: FakeCluster) -> None:
    for connection in internals(cluster).server.reactor.connections.values():
        assert isinstance(connection.socket, socket.socket)
        connection.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 64 * 1024)


def test_a_client_that_does_not_read_has_a_long_wire_time() -> None:
    with FakeCluster(1, {"t": 2_000}) as cluster, WireClient(cluster.brokers[0]) as wire:
        meter = Meter(cluster)
        internals(cluster).run(meter.catch_up)
        wire.ask(find_coordinator("g"), FindCoordinatorResponse)
        internals(cluster).run(lambda: shrink_send_buffers(cluster))
        requests = 20  # Their responses do not fit into the buffers.
        for _ in range(requests):
            wire.send(MetadataRequest(topics=None), 9)
        cluster.wait(cluster.requested("Metadata", count=requests))

        def stalled_responses() -> int:
            meter.catch_up()
            return sum(len(each.unsent_responses) for each in internals(cluster).server.reactor.connections.values())

        stalled = internals(cluster).run(stalled_responses)
        assert stalled > 0
        assert meter.totals.wire_times["Metadata"].count == requests - stalled
        assert meter.totals.broker_times["Metadata"].count == requests
        for _ in range(requests):
            wire.receive_frame()
        internals(cluster).run(meter.catch_up)
        assert meter.totals.wire_times["Metadata"].count == requests
        assert internals(cluster).run(
            lambda: [each.unsent_responses for each in internals(cluster).server.reactor.connections.values()]
        ) == [[]]


def test_requests_that_wait_by_design_are_not_in_the_latency_of_the_others() -> None:
    config = {"group.initial.rebalance.delay.ms": 3000}
    with FakeCluster(1, clock="manual", config=config) as cluster, WireClient(cluster.brokers[0]) as wire:
        meter = Meter(cluster)
        internals(cluster).run(meter.catch_up)
        wire.send(join_request(member_id=""), 3)
        cluster.wait(cluster.requested("JoinGroup"))
        cluster.advance(3)
        wire.receive()
        wire.ask(find_coordinator("g"), FindCoordinatorResponse)
        internals(cluster).run(meter.catch_up)
        window = RateWindow()
        window.record(0.0, Totals())
        rates = window.rates(1.0, meter.totals, [1])
        by_api = {rate["api"]: rate for rate in rates["by_api"]}
        assert by_api["JoinGroup"]["can_wait"] is True
        assert by_api["JoinGroup"]["broker_p50_ms"] == pytest.approx(3000, rel=0.01)
        assert rates["latency"]["broker_p99_ms"] == 0


def test_nothing_is_measured_without_a_control_server() -> None:
    with FakeCluster(1) as cluster, WireClient(cluster.brokers[0]) as wire:
        wire.ask(find_coordinator("g"), FindCoordinatorResponse)
        assert internals(cluster).run(internals(cluster).server.reactor.response_times.take) == {}
        meter = Meter(cluster)
        internals(cluster).run(meter.catch_up)
        wire.ask(find_coordinator("g"), FindCoordinatorResponse)
        internals(cluster).run(meter.unsubscribe)
        wire.ask(find_coordinator("g"), FindCoordinatorResponse)
        assert internals(cluster).run(internals(cluster).server.reactor.response_times.take) == {}


FAMILIES = (
    "requests",
    "request_duration_seconds",
    "request_wire_duration_seconds",
    "request_latency_seconds",
    "groups",
)
OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"
ACCEPT = {
    "": "text/plain; version=0.0.4; charset=utf-8",
    "*/*": "text/plain; version=0.0.4; charset=utf-8",
    "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5": OPENMETRICS,
}


def test_expositions_are_read_by_the_parsers_of_prometheus(subtests: pytest.Subtests) -> None:
    odd = ['quo"te', "back\\slash", "line\nbreak", "日本 \u00e9", "{x=1}", ""]
    with (
        controlled_cluster(2, {"orders": 1}, clock="manual") as control,
        WireClient(control.cluster.brokers[0]) as wire,
    ):
        for group_id in odd:
            wire.ask(HeartbeatRequest(group_id=group_id, generation_id=1, member_id="x"), HeartbeatResponse)
            control.cluster.inject_fault("Heartbeat", group=group_id, delay_s=0.5, may_miss=True)
        wire.send(HeartbeatRequest(group_id=odd[0], generation_id=1, member_id="x"))
        control.cluster.wait(control.cluster.requested("Heartbeat", group=odd[0], count=2))
        control.cluster.advance(0.5)
        wire.receive()
        counters: dict[Any, float] = {}
        for accept, media_type in ACCEPT.items():
            with subtests.test(accept=accept):
                response = control.request("GET", "/metrics", headers={"accept": accept})
                assert response.headers["content-type"].partition("; escaping")[0] == media_type
                parse = openmetrics_families if "openmetrics" in media_type else text_string_to_metric_families
                families = {family.name: family for family in parse(response.body.decode())}
                assert families.keys() >= {f"fakebroker_{name}" for name in FAMILIES}
                counters |= check_families(families, counters)


def check_families(families: Mapping[str, Metric], before: Mapping[Any, float]) -> dict[Any, float]:
    """Assert that samples are consistent, and that no count is below an earlier one; return the counts."""
    counts: dict[Any, float] = {}
    for family in families.values():
        assert family.documentation
        by_labels: dict[Any, dict[str, float]] = {}
        buckets: dict[Any, list[tuple[float, float]]] = {}
        quantiles: dict[Any, list[tuple[float, float]]] = {}
        for sample in family.samples:
            labels = {name: value for name, value in sample.labels.items() if name not in ("le", "quantile")}
            assert labels["cluster"] == "default"
            key = (family.name, *sorted(labels.items()))
            if "le" in sample.labels:
                buckets.setdefault(key, []).append((float(sample.labels["le"]), sample.value))
            elif "quantile" in sample.labels:
                quantiles.setdefault(key, []).append((float(sample.labels["quantile"]), sample.value))
            else:
                by_labels.setdefault(key, {})[sample.name.removeprefix(family.name)] = sample.value
            if family.type != "gauge" and "quantile" not in sample.labels:
                key = (sample.name, *sorted(sample.labels.items()))
                counts[key] = sample.value
                assert sample.value >= before.get(key, 0)
        if family.type == "histogram":
            assert by_labels.keys() == buckets.keys()
            for key, found in buckets.items():
                assert found == sorted(found)
                assert [count for _, count in found] == sorted(count for _, count in found)
                assert found[-1] == (inf, by_labels[key]["_count"])
                assert by_labels[key]["_sum"] >= 0
        elif family.type == "summary":
            assert by_labels.keys() == quantiles.keys()
            assert all(found == sorted(found) and len(found) == 3 for found in quantiles.values())
    return counts


def test_quantiles_of_metrics_are_right(subtests: pytest.Subtests) -> None:
    delays_s = [0.003 * 1.7**step for step in range(12)]
    with controlled_cluster(1, clock="manual") as control, WireClient(control.cluster.brokers[0]) as wire:
        for delay_s in delays_s:
            with control.cluster.inject_fault("Heartbeat", delay_s=delay_s):
                wire.send(HeartbeatRequest(group_id="g", generation_id=1, member_id="x"))
                control.cluster.wait(
                    control.cluster.requested("Heartbeat", since=internals(control.cluster).server.clock.now_ms())
                )
                control.cluster.advance(delay_s)
                wire.receive()
                control.cluster.advance(1)
        found = scrape(control)["fakebroker_request_latency_seconds"]
        for quantile, expected_s in ((0.5, delays_s[5]), (0.9, delays_s[10]), (0.99, delays_s[11])):
            with subtests.test(quantile=quantile):
                labels = labeled(api="Heartbeat", time="broker", quantile=quantile)
                assert found[labels] == pytest.approx(expected_s, rel=0.02)


def test_counters_do_not_decrease_at_a_reset() -> None:
    with controlled_cluster(1, journal_calls=3) as control:
        for count in (5, 4):
            with WireClient(control.cluster.brokers[0]) as wire:
                for _ in range(count):
                    wire.ask(find_coordinator("g"), FindCoordinatorResponse)
            if count == 5:
                control.post("/reset")
        assert scrape(control)["fakebroker_journal_dropped_total"] == {labeled(): 2 + 1}


def test_metrics_have_labels_for_clusters_and_faults() -> None:
    with controlled_cluster(1) as control:
        assert control.request("POST", "/v1/clusters", {"name": "other", "brokers": 2}).status == 201
        fault = control.post("/inject_fault", {"api": "FindCoordinator", "error": "COORDINATOR_NOT_AVAILABLE"})["id"]
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
        internals(cluster).run(meter.catch_up)
        with WireClient(cluster.brokers[0]) as wire:
            for _ in range(5):
                wire.ask(find_coordinator("g"), FindCoordinatorResponse)
        cluster.reset()
        internals(cluster).run(meter.catch_up)
        assert (meter.totals.requests, meter.missed) == ({("FindCoordinator", 1): 3}, 2)


def test_rates_are_averages_of_the_last_seconds() -> None:
    with FakeCluster(2) as cluster:
        meter, window = Meter(cluster), RateWindow()
        internals(cluster).run(meter.catch_up)
        window.record(10.0, meter.totals)
        with WireClient(cluster.brokers[1]) as wire:
            for _ in range(8):
                wire.ask(HeartbeatRequest(group_id="g", generation_id=1, member_id="x"), HeartbeatResponse)
        internals(cluster).run(meter.catch_up)
        rates = window.rates(14.0, meter.totals, [1, 2])
        assert rates["requests_per_s"] == 2.0
        assert rates["by_broker"] == [{"node_id": 1, "requests_per_s": 0.0}, {"node_id": 2, "requests_per_s": 2.0}]
        (heartbeats,) = rates["by_api"]
        assert 0 < (heartbeats["wire_p50_ms"] or 0) <= (heartbeats["wire_p99_ms"] or 0)
        assert heartbeats == {
            "api": "Heartbeat",
            "can_wait": False,
            "requests_per_s": 2.0,
            "errors_per_s": 2.0,
            "broker_p50_ms": 0.0,
            "broker_p99_ms": 0.0,
            "wire_p50_ms": heartbeats["wire_p50_ms"],
            "wire_p99_ms": heartbeats["wire_p99_ms"],
        }
        assert rates["latency"] == {name: heartbeats[name] for name in Latency.__annotations__}  # type: ignore[literal-required]
        for second in range(4):
            window.record(20.0 + second, meter.totals)
        assert window.rates(24.0, meter.totals, [1, 2])["requests_per_s"] == 0.0
