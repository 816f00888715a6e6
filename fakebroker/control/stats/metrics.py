"""Metrics in Prometheus' text format (exposition format 0.0.4)."""

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import accumulate
from typing import TypeVar

from prometheus_client import CollectorRegistry, Metric, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

from fakebroker.control.clusters import Clusters, ServedCluster
from fakebroker.control.stats.group_index import Counts
from fakebroker.control.stats.meter import BOUNDS_MS, Histogram
from fakebroker.control.steps import Steps
from fakebroker.coordinator.group.classic.states import GroupState

F = TypeVar("F", CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily)

METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_STATES = [state.value for state in GroupState if state is not GroupState.DEAD]
_BOUNDS = [*(f"{bound_ms / 1000:g}" for bound_ms in BOUNDS_MS), "+Inf"]

# By name without the prefix "fakebroker_": help and labels, which follow the label `cluster`.
_COUNTERS = {
    "requests": ("Received requests, by API and broker.", "api", "broker"),
    "errors": ("Error codes in responses, by API, broker and error.", "api", "broker", "error"),
    "requests_missed": ("Requests that the journal dropped before they were counted.",),
    "rebalances": ("Started rebalances.",),
    "fault_hits": ("Requests to which an active fault was applied, by the fault's id.", "fault", "api"),
    "journal_dropped": ("Requests that the journal has dropped.",),
}
_GAUGES = {
    "groups": ("Groups by state.", "state"),
    "members": ("Members of groups.",),
    "faults": ("Active faults.",),
    "connections": ("Connections by broker.", "broker"),
    "broker_up": ("Whether a broker is up.", "broker"),
    "journal_requests": ("Requests in the journal.",),
}
_HISTOGRAMS = {
    "request_duration_seconds": ("Time from request to response by the brokers' clock, by API.", "api"),
    "rebalance_duration_seconds": ("Time from the start of a rebalance until the group is Stable or Empty.",),
}


async def exposition(clusters: Clusters) -> bytes:
    """Return the metrics of all clusters, as text."""
    metrics = _Metrics()
    for served in clusters:
        await served.read_in_steps(metrics.add(served))
    registry = CollectorRegistry()
    registry.register(metrics)
    return generate_latest(registry)


class _Metrics(Collector):
    """The metrics of some clusters."""

    def __init__(self) -> None:
        def families(kind: type[F], table: dict[str, tuple[str, ...]]) -> dict[str, F]:
            return {
                name: kind(f"fakebroker_{name}", about, labels=["cluster", *labels])
                for name, (about, *labels) in table.items()
            }

        self._values = families(CounterMetricFamily, _COUNTERS) | families(GaugeMetricFamily, _GAUGES)
        self._histograms = families(HistogramMetricFamily, _HISTOGRAMS)

    def collect(self) -> Iterable[Metric]:
        return [*self._values.values(), *self._histograms.values()]

    def add(self, served: ServedCluster) -> Steps[None]:
        """Add the metrics of a cluster. Must run in its thread."""
        counts = yield from served.index.counts()
        served.meter.catch_up()
        for name, value, *labels in _values(served, counts):
            self._values[name].add_metric([served.name, *map(str, labels)], value)
        for api, durations in served.meter.totals.latencies.items():
            self._add_histogram("request_duration_seconds", durations, served.name, api)
        self._add_histogram("rebalance_duration_seconds", served.meter.rebalance_durations, served.name)

    def _add_histogram(self, name: str, durations: Histogram, *labels: str) -> None:
        buckets = list(zip(_BOUNDS, accumulate(durations.buckets), strict=True))
        self._histograms[name].add_metric(labels, buckets, durations.sum_ms / 1000)


def _values(served: ServedCluster, counts: Counts) -> Iterator[tuple[str, float, *tuple[object, ...]]]:
    """Yield the name, value and labels of each counter and gauge."""
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
    for fault_id, active in served.faults().items():
        yield "fault_hits", active.hits, fault_id, active.fault.api or ""
    connections = Counter(connection.broker.node_id for connection in served.cluster.connections)
    for node_id, broker in core.brokers.items():
        yield "connections", connections[node_id], node_id
        yield "broker_up", broker.up, node_id
    yield "journal_requests", len(core.journal)
    yield "journal_dropped", core.journal.dropped
