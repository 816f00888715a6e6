"""Metrics in Prometheus' text format (exposition format 0.0.4), from the meters."""

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import accumulate
from typing import TypeVar

from prometheus_client import CollectorRegistry, Metric, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

from fakebroker.control.clusters import Clusters, Served
from fakebroker.control.stats.census import Counts
from fakebroker.control.stats.meter import BOUNDS_MS, Histogram
from fakebroker.control.steps import Steps
from fakebroker.coordinator.group.classic.states import GroupState

F = TypeVar("F", CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily)

METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_STATES = [state.value for state in GroupState if state is not GroupState.DEAD]
_BOUNDS = [*(f"{bound_ms / 1000:g}" for bound_ms in BOUNDS_MS), "+Inf"]

# By name, without the prefix: help and labels. The label `cluster` precedes them.
_COUNTERS = {
    "requests": ("Requests that came, by API and broker.", "api", "broker"),
    "errors": ("Responses that told an error, by API, broker and error.", "api", "broker", "error"),
    "requests_missed": ("Requests that the journal forgot before they were counted.",),
    "rebalances": ("Rebalances that began.",),
    "fault_hits": ("Requests that a fault in force did its work on, by the fault's id.", "fault", "api"),
    "journal_dropped": ("Requests that the journal has forgotten.",),
}
_GAUGES = {
    "groups": ("Groups by state.", "state"),
    "members": ("Members of groups.",),
    "faults": ("Faults in force.",),
    "connections": ("Connections by broker.", "broker"),
    "broker_up": ("Whether a broker is up.", "broker"),
    "journal_requests": ("Requests that the journal has.",),
}
_HISTOGRAMS = {
    "request_duration_seconds": ("How long answers took in the brokers' time, by API.", "api"),
    "rebalance_duration_seconds": ("From the begin of a rebalance to a group at rest.",),
}


async def exposition(clusters: Clusters) -> bytes:
    """Return the metrics of all clusters."""
    metrics = _Metrics()
    for served in clusters:
        await served.look_in_steps(metrics.add(served))
    registry = CollectorRegistry()
    registry.register(metrics)
    return generate_latest(registry)


class _Metrics(Collector):
    """The metrics of some clusters."""

    def __init__(self) -> None:
        def made(kind: type[F], table: dict[str, tuple[str, ...]]) -> dict[str, F]:
            return {
                name: kind(f"fakebroker_{name}", about, labels=["cluster", *labels])
                for name, (about, *labels) in table.items()
            }

        self._values = made(CounterMetricFamily, _COUNTERS) | made(GaugeMetricFamily, _GAUGES)
        self._histograms = made(HistogramMetricFamily, _HISTOGRAMS)

    def collect(self) -> Iterable[Metric]:
        return [*self._values.values(), *self._histograms.values()]

    def add(self, served: Served) -> Steps[None]:
        """Add the metrics of a cluster. Must run in its thread."""
        counts = yield from served.census.counts()
        served.meter.catch_up()
        for name, value, *labels in _values(served, counts):
            self._values[name].add_metric([served.name, *map(str, labels)], value)
        for api, durations in served.meter.totals.latencies.items():
            self._add_histogram("request_duration_seconds", durations, served.name, api)
        self._add_histogram("rebalance_duration_seconds", served.meter.rebalance_durations, served.name)

    def _add_histogram(self, name: str, durations: Histogram, *labels: str) -> None:
        buckets = list(zip(_BOUNDS, accumulate(durations.buckets), strict=True))
        self._histograms[name].add_metric(labels, buckets, durations.sum_ms / 1000)


def _values(served: Served, counts: Counts) -> Iterator[tuple[str, float, *tuple[object, ...]]]:
    """Yield the names of metrics with their values and labels."""
    meter, core = served.meter, served.cluster.cluster
    for (api, node_id), count in meter.totals.requests.items():
        yield "requests", count, api, node_id
    for (api, node_id, error), count in meter.totals.errors.items():
        yield "errors", count, api, node_id, error
    yield "requests_missed", meter.missed
    for state in _STATES:
        yield "groups", counts.by_state[state], state
    yield "members", counts.members
    yield "rebalances", meter.rebalances
    yield "faults", len(core.faults.active)
    for rule_id, rule in served.rules().items():
        yield "fault_hits", rule.hits, rule_id, rule.fault.api or ""
    connections = Counter(connection.broker.node_id for connection in served.cluster.connections)
    for node_id, broker in core.brokers.items():
        yield "connections", connections[node_id], node_id
        yield "broker_up", broker.up, node_id
    yield "journal_requests", len(core.journal)
    yield "journal_dropped", core.journal.dropped
