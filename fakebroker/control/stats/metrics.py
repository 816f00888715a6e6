"""Metrics for Prometheus, in its text format or in OpenMetrics'."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from math import inf
from typing import TypeVar

from prometheus_client import CollectorRegistry, Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, SummaryMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from fakebroker.cluster.inspect.transaction_views import STATES, count_by_state, count_late_partitions
from fakebroker.control.clusters import Clusters, ServedCluster
from fakebroker.control.stats.group_index import GROUP_STATES, Counts
from fakebroker.control.stats.sketch import Sketch
from fakebroker.control.steps import Steps

F = TypeVar("F", CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, SummaryMetricFamily)

_BOUNDS_MS = (0.0, *(2.0**power for power in range(-4, 20)), inf)
"""Upper bounds of the buckets of histograms: 0, 62.5 us to 524 s, infinity."""
_BOUNDS = [*(f"{bound_ms / 1000:.12g}" for bound_ms in _BOUNDS_MS[:-1]), "+Inf"]
_QUANTILES = (0.5, 0.9, 0.99)

# By name without the prefix "fakebroker_": help and labels, which follow the label `cluster`.
_COUNTERS = {
    "requests": ("Received requests, by API and broker.", "api", "broker"),
    "errors": ("Error codes in responses, by API, broker and error.", "api", "broker", "error"),
    "requests_missed": ("Requests that the journal dropped before they were counted.",),
    "rebalances": (
        "Started rebalances by protocol: join phases, and rises of the epochs of consumer groups.",
        "protocol",
    ),
    "transactions_ended": ("Transactions that have ended, with all markers written, by outcome.", "outcome"),
    "fault_hits": (
        "Requests to which a fault was applied, by the id of the fault, until it is removed.",
        "fault",
        "api",
    ),
    "journal_dropped": ("Requests that the journal has dropped.",),
}
_GAUGES = {
    "groups": ("Groups by protocol and state (Kafka's group-count and consumer-group-count).", "protocol", "state"),
    "members": ("Members of groups by the protocol of the group.", "protocol"),
    "transactions": ("Transactional ids by state of their transactions.", "state"),
    "transaction_markers_waiting": ("Markers of transactions that partitions cannot take yet.",),
    "partitions_with_late_transactions": (
        "Partitions with a transaction that is open for longer than the largest timeout (Kafka's ReplicaManager).",
    ),
    "faults": ("Faults that may still apply to requests.",),
    "connections": ("Connections by broker.", "broker"),
    "broker_up": ("Whether a broker is up.", "broker"),
    "journal_requests": ("Requests in the journal.",),
}
_HISTOGRAMS = {
    "request_duration_seconds": (
        "Broker time: from request to response by the brokers' clock, with the delays of faults, by API.",
        "api",
    ),
    "request_wire_duration_seconds": (
        "Wire time: from request until the last byte of the response was sent, in real time, by API.",
        "api",
    ),
    "rebalance_duration_seconds": (
        "Time from the start of a rebalance until the group is Stable or Empty, by protocol.",
        "protocol",
    ),
}
_SUMMARIES = {
    "request_latency_seconds": (
        "Quantiles since the start, within 1 %, of the broker time and the wire time, by API.",
        "api",
        "time",
    ),
}


async def exposition(clusters: Clusters, accept: str) -> tuple[bytes, str]:
    """Return the metrics of all clusters as text, and its media type.

    Args:
        clusters: The clusters.
        accept: The header Accept of the request: Prometheus asks for OpenMetrics.
    """
    metrics = _Metrics()
    for served in clusters:
        await served.read_in_steps(metrics.add(served))
    registry = CollectorRegistry()
    registry.register(metrics)
    encode, media_type = choose_encoder(accept)
    return encode(registry), media_type


class _Metrics(Collector):
    """The metrics of some clusters."""

    def __init__(self) -> None:
        def families(kind: type[F], table: Mapping[str, tuple[str, ...]]) -> dict[str, F]:
            return {
                name: kind(f"fakebroker_{name}", about, labels=["cluster", *labels])
                for name, (about, *labels) in table.items()
            }

        self._values = families(CounterMetricFamily, _COUNTERS) | families(GaugeMetricFamily, _GAUGES)
        self._histograms = families(HistogramMetricFamily, _HISTOGRAMS)
        self._summaries = families(SummaryMetricFamily, _SUMMARIES)

    def collect(self) -> Iterable[Metric]:
        return [*self._values.values(), *self._histograms.values(), *self._summaries.values()]

    def add(self, served: ServedCluster) -> Steps[None]:
        """Add the metrics of a cluster. Must run in its thread."""
        counts = yield from served.index.counts()
        served.meter.catch_up()
        for name, value, *labels in _values(served, counts):
            self._values[name].add_metric([served.name, *map(str, labels)], value)
        totals = served.meter.totals
        for time, histogram, by_api in (
            ("broker", "request_duration_seconds", totals.broker_times),
            ("wire", "request_wire_duration_seconds", totals.wire_times),
        ):
            for api, durations in by_api.items():
                self._add_histogram(histogram, durations, served.name, api)
                self._add_summary("request_latency_seconds", durations, served.name, api, time)
        for group_type, durations in served.meter.rebalance_durations.items():
            self._add_histogram("rebalance_duration_seconds", durations, served.name, group_type)

    def _add_histogram(self, name: str, durations: Sketch, *labels: str) -> None:
        buckets = list(zip(_BOUNDS, durations.counts_up_to(_BOUNDS_MS), strict=True))
        self._histograms[name].add_metric(labels, buckets, durations.sum_ms / 1000)

    def _add_summary(self, name: str, durations: Sketch, *labels: str) -> None:
        summary = self._summaries[name]
        summary.add_metric(labels, durations.count, durations.sum_ms / 1000)
        named = dict(zip(("cluster", *_SUMMARIES[name][1:]), labels, strict=True))
        for share in _QUANTILES:
            value_ms = durations.quantile(share)
            if value_ms is not None:
                summary.add_sample(summary.name, {**named, "quantile": f"{share:g}"}, value_ms / 1000)


def _values(served: ServedCluster, counts: Counts) -> Iterator[tuple[str, float, *tuple[object, ...]]]:
    """Yield the name, value and labels of each counter and gauge."""
    meter, core = served.meter, served.core
    for (api, node_id), count in meter.totals.requests.items():
        yield "requests", count, api, node_id
    for (api, node_id, error), count in meter.totals.errors.items():
        yield "errors", count, api, node_id, error
    yield "requests_missed", meter.missed
    for group_type, states in GROUP_STATES.items():
        for state in states:
            yield "groups", counts.groups[group_type, state], group_type, state
        yield "members", counts.members[group_type], group_type
        yield "rebalances", meter.rebalances[group_type], group_type
    by_state = count_by_state(core)
    for state in STATES:
        yield "transactions", by_state[state], state
    for outcome in ("commit", "abort"):
        yield "transactions_ended", meter.ended_transactions[outcome], outcome
    yield "transaction_markers_waiting", len(core.transactions.waiting)
    yield "partitions_with_late_transactions", count_late_partitions(core, served.now_ms())
    yield "faults", core.faults.count(served.now_ms())
    for active in core.faults.active:
        yield "fault_hits", active.hits, active.id, active.fault.api or ""
    connections = Counter(connection.broker.node_id for connection in served.server.reactor.connections.values())
    for node_id, broker in core.brokers.items():
        yield "connections", connections[node_id], node_id
        yield "broker_up", broker.up, node_id
    yield "journal_requests", len(core.journal)
    yield "journal_dropped", meter.dropped_before + core.journal.dropped
