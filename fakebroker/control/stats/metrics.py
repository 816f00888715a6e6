"""Metrics in Prometheus' text format (exposition format 0.0.4), from the meters."""

from collections import Counter
from collections.abc import Iterator, Mapping

from fakebroker.control.clusters import Clusters, Served
from fakebroker.control.stats.meter import BOUNDS_MS, Histogram
from fakebroker.coordinator.group.classic.states import GroupState

METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_STATES = [state.value for state in GroupState if state is not GroupState.DEAD]

Sample = tuple[str, Mapping[str, object], float]
"""The suffix of the metric's name, such as "_bucket"; the labels; the value."""

METRICS = {
    "fakebroker_requests_total": ("counter", "Requests that came, by API and broker."),
    "fakebroker_errors_total": ("counter", "Responses that told an error, by API, broker and error."),
    "fakebroker_requests_missed_total": ("counter", "Requests that the journal forgot before they were counted."),
    "fakebroker_request_duration_seconds": ("histogram", "How long answers took in the brokers' time, by API."),
    "fakebroker_groups": ("gauge", "Groups by state."),
    "fakebroker_members": ("gauge", "Members of groups."),
    "fakebroker_rebalances_total": ("counter", "Rebalances that began."),
    "fakebroker_rebalance_duration_seconds": ("histogram", "From the begin of a rebalance to a group at rest."),
    "fakebroker_faults": ("gauge", "Faults in force."),
    "fakebroker_fault_hits_total": ("counter", "Requests that a fault in force did its work on, by the fault's id."),
    "fakebroker_connections": ("gauge", "Connections by broker."),
    "fakebroker_broker_up": ("gauge", "Whether a broker is up."),
    "fakebroker_journal_requests": ("gauge", "Requests that the journal has."),
    "fakebroker_journal_dropped_total": ("counter", "Requests that the journal has forgotten."),
}


async def exposition(clusters: Clusters) -> str:
    """Return the metrics of all clusters."""
    found = [(served.name, await served.look(lambda served=served: _samples(served))) for served in clusters]  # type: ignore[misc]
    lines: list[str] = []
    for name, (kind, about) in METRICS.items():
        lines += [f"# HELP {name} {about}", f"# TYPE {name} {kind}"]
        for cluster, samples in found:
            lines += [
                f"{name}{suffix}{_labels({'cluster': cluster, **labels})} {_number(value)}"
                for suffix, labels, value in samples[name]
            ]
    return "\n".join([*lines, ""])


def _samples(served: Served) -> dict[str, list[Sample]]:
    """Return all samples of one cluster by metric. Must run in its thread."""
    meter, core = served.meter, served.cluster.cluster
    meter.catch_up()
    groups = served.census.now()
    connections = Counter(connection.broker.node_id for connection in served.cluster.connections)
    return {
        "fakebroker_requests_total": [
            ("", {"api": api, "broker": node_id}, count) for (api, node_id), count in meter.totals.requests.items()
        ],
        "fakebroker_errors_total": [
            ("", {"api": api, "broker": node_id, "error": error}, count)
            for (api, node_id, error), count in meter.totals.errors.items()
        ],
        "fakebroker_requests_missed_total": [("", {}, meter.missed)],
        "fakebroker_request_duration_seconds": [
            sample for api, durations in meter.totals.latencies.items() for sample in _histogram(durations, api=api)
        ],
        "fakebroker_groups": [("", {"state": state}, groups.by_state[state]) for state in _STATES],
        "fakebroker_members": [("", {}, groups.members)],
        "fakebroker_rebalances_total": [("", {}, meter.rebalances)],
        "fakebroker_rebalance_duration_seconds": list(_histogram(meter.rebalance_durations)),
        "fakebroker_faults": [("", {}, len(core.faults.active))],
        "fakebroker_fault_hits_total": [
            ("", {"fault": rule_id, "api": rule.fault.api or ""}, rule.hits) for rule_id, rule in served.rules().items()
        ],
        "fakebroker_connections": [("", {"broker": node_id}, connections[node_id]) for node_id in core.brokers],
        "fakebroker_broker_up": [("", {"broker": each.node_id}, int(each.up)) for each in core.brokers.values()],
        "fakebroker_journal_requests": [("", {}, len(core.journal))],
        "fakebroker_journal_dropped_total": [("", {}, core.journal.dropped)],
    }


def _histogram(durations: Histogram, **labels: object) -> Iterator[Sample]:
    count = 0
    for bound_ms, in_bucket in zip((*BOUNDS_MS, None), durations.buckets, strict=True):
        count += in_bucket
        yield "_bucket", {**labels, "le": "+Inf" if bound_ms is None else _number(bound_ms / 1000)}, count
    yield "_sum", labels, durations.sum_ms / 1000
    yield "_count", labels, count


def _labels(labels: Mapping[str, object]) -> str:
    quoted = (f'{name}="{_escaped(str(value))}"' for name, value in labels.items())
    return f"{{{','.join(quoted)}}}"


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def _number(value: float) -> str:
    return repr(value) if value != int(value) else str(int(value))
