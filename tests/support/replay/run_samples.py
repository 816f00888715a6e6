"""Samples of synthetic runs, without a replay: requests with latencies and errors, and rebalances, by time and group.

The latencies of neighboring slices are correlated, and groups differ in size, as in a replay.
"""

from typing import Any

import numpy as np
import pyarrow as pa

from fakebroker.replay.comparison.compared_figures import Run
from fakebroker.replay.comparison.samples import BUCKET_RATIO, GROUP_PARTS, SCHEMA, Samples
from fakebroker.replay.run_summary import summary_of
from tests.support.replay.summaries import summary_document

SLICES = 60
SLICE_S = 1.0
ERROR = 16
"""NOT_COORDINATOR."""

_RATES = {"Heartbeat": (30.0, 2.0), "OffsetCommit": (10.0, 4.0), "JoinGroup": (2.0, 300.0)}
"""Requests per second and median latency in milliseconds, by API."""


class Changes:
    """True differences between runs, as factors.

    Attributes:
        rate: Factor of the rate of heartbeats.
        latency: Factor of the latency of heartbeats.
        errors: Factor of the number of errors.
        rebalances: Factor of the number of rebalances.
        durations: Factor of the durations of rebalances.
    """

    def __init__(
        self,
        *,
        rate: float = 1.0,
        latency: float = 1.0,
        errors: float = 1.0,
        rebalances: float = 1.0,
        durations: float = 1.0,
    ) -> None:
        self.rate = rate
        self.latency = latency
        self.errors = errors
        self.rebalances = rebalances
        self.durations = durations


def synthetic_run(seed: int, changes: Changes | None = None) -> Run:
    """Return a run of 60 s with about 2,500 requests, whose figures follow from its samples."""
    document, samples = _run(seed, changes)
    return Run(summary_of(document), Samples(samples))


def table_of(seed: int, changes: Changes | None = None) -> pa.Table:
    """Return the contents of `samples.parquet` of a synthetic run."""
    return _run(seed, changes)[1]


def _run(seed: int, changes: Changes | None) -> tuple[dict[str, Any], pa.Table]:
    rng = np.random.default_rng(seed)
    changed = changes or Changes()
    sizes = np.random.default_rng(0).gamma(8.0, 1 / 8, GROUP_PARTS)  # the same groups in all runs
    sizes /= sizes.sum()
    rows: list[pa.Table] = []
    apis = []
    failed = 0
    for api, (rate, median_ms) in _RATES.items():
        is_heartbeat = api == "Heartbeat"
        factor = changed.rate if is_heartbeat else 1.0
        level = _correlated(rng) * 0.15
        counts = rng.poisson(rate * factor * SLICE_S, SLICES)
        slices = np.repeat(np.arange(SLICES), counts)
        groups = rng.choice(GROUP_PARTS, len(slices), p=sizes)
        latencies_ms = median_ms * np.exp(level[slices] + rng.normal(0, 0.5, len(slices)))
        latencies_ms *= changed.latency if is_heartbeat else 1.0
        errors = np.where(rng.random(len(slices)) < 0.01 * changed.errors, ERROR, 0)
        failed += int((errors == ERROR).sum())
        rows += _rows("request", api, slices, groups, errors, latencies_ms)
        apis.append(_api(api, latencies_ms))
    counts = rng.poisson(1.5 * changed.rebalances, SLICES)
    slices = np.repeat(np.arange(SLICES), counts)
    groups = rng.choice(GROUP_PARTS, len(slices), p=sizes)
    durations_ms = 500 * changed.durations * np.exp(rng.normal(0, 0.6, len(slices)))
    rows += _rows("rebalance", None, slices, groups, None, durations_ms)
    waiting = [round(float(each), 3) for each in rng.gamma(4.0, 2.0, SLICES)]
    waiting_us = (rng.multinomial(1000, sizes) / 1000 * sum(waiting) * SLICE_S * 1e6).astype(int)
    rows.append(_table("groups", "unassigned", part=np.arange(GROUP_PARTS), n=waiting_us))
    return _document(seed, apis, failed, durations_ms, waiting), pa.concat_tables(rows)


def _correlated(rng: np.random.Generator) -> Any:
    """Return a first-order autoregressive process of unit variance."""
    values = np.zeros(SLICES)
    for index in range(1, SLICES):
        values[index] = 0.5 * values[index - 1] + rng.normal(0, 0.75**0.5)
    return values


def _rows(kind: str, api: str | None, slices: Any, groups: Any, errors: Any, values_ms: Any) -> list[pa.Table]:
    buckets = np.floor(np.log(np.maximum(values_ms * 1000, 1)) / np.log(BUCKET_RATIO)).astype(int)
    columns: dict[str, Any] = {"bucket": buckets}
    if api is not None:
        columns |= {"api": [api] * len(slices), "source": ["members"] * len(slices), "error": errors}
        columns |= {"broker": groups % 3 + 1}
    return [
        _table(division, kind, part=parts, n=np.ones(len(parts), dtype=int), **columns)
        for division, parts in (("time", slices), ("groups", groups))
    ]


def _table(division: str, kind: str, **columns: Any) -> pa.Table:
    size = len(columns["part"])
    known = {"division": [division] * size, "kind": [kind] * size} | columns
    arrays = [pa.array(known.get(field.name, [None] * size), field.type) for field in SCHEMA]
    names = [name for name in SCHEMA.names if name != "n"]
    counted = pa.table(arrays, SCHEMA).group_by(names, use_threads=False).aggregate([("n", "sum")])
    return counted.rename_columns([*names, "n"])


def _api(api: str, latencies_ms: Any) -> dict[str, Any]:
    p50, p99, p99_9 = (round(float(each), 3) for each in np.quantile(latencies_ms, (0.5, 0.99, 0.999)))
    rate = round(len(latencies_ms) / (SLICES * SLICE_S), 1)
    counts = {"requests": len(latencies_ms), "requests_per_s": rate, "unexpected_errors": 0}
    counts |= {"lost": 0, "unanswered": 0, "cut_off": 0}
    values = {"p50_ms": p50, "p99_ms": p99, "p99_9_ms": p99_9, "max_ms": round(float(max(latencies_ms)), 3)}
    return {"api": api, "source": "members", **counts, **values}


def _document(
    seed: int, apis: list[dict[str, Any]], failed: int, durations_ms: Any, waiting: list[float]
) -> dict[str, Any]:
    document = summary_document(seed)
    requests = sum(row["requests"] for row in apis)
    total = apis[0] | {"api": "all", "source": "all", "requests": requests}
    total |= {"requests_per_s": round(requests / (SLICES * SLICE_S), 1), "unexpected_errors": failed}
    p50, p99 = (round(float(each), 3) for each in np.quantile(durations_ms, (0.5, 0.99)))
    document |= {"apis": apis, "total": total, "subtotals": [total | {"source": "members"}], "span_s": SLICES * SLICE_S}
    phase = {"never_parked": total, "parked": total, "apis": apis}
    document |= phase | {"startup": None, "measure_from_s": 0.0}
    document["steady"] = {"from_s": 0.0, "until_s": SLICES * SLICE_S, **phase}
    document["errors"] = [
        {
            "name": "NOT_COORDINATOR",
            "code": ERROR,
            "api": "Heartbeat",
            "source": "members",
            "requests": failed,
            "ordinary": False,
        }
    ]
    document["rebalances"] |= {"generations": len(durations_ms), "count": len(durations_ms)}
    document["rebalances"] |= {"p50_ms": p50, "p99_ms": p99, "max_ms": round(float(max(durations_ms)), 3)}
    document["over_time"]["members"]["waiting"] = waiting
    document["metrics"] |= {"errors.NOT_COORDINATOR": failed, "unassigned_member_s": round(sum(waiting) * SLICE_S, 3)}
    document["populations"] = document["populations"][:1]
    document["verdict"] |= {"outcome": "passed", "reasons": []}
    return document
