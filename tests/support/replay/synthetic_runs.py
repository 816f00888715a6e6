"""Summaries of synthetic runs, without a replay: requests with latencies and errors, and rebalances.

The latencies of neighboring slices are correlated, as in a replay.
"""

from typing import Any

import numpy as np

from fakebroker.replay.run_summary import Summary, summary_of
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


def synthetic_run(seed: int, changes: Changes | None = None) -> Summary:
    """Return the summary of a run of 60 s with about 2,500 requests."""
    rng = np.random.default_rng(seed)
    changed = changes or Changes()
    apis = []
    failed = 0
    for api, (rate, median_ms) in _RATES.items():
        is_heartbeat = api == "Heartbeat"
        level = _correlated(rng) * 0.15
        counts = rng.poisson(rate * (changed.rate if is_heartbeat else 1.0) * SLICE_S, SLICES)
        slices = np.repeat(np.arange(SLICES), counts)
        latencies_ms = median_ms * np.exp(level[slices] + rng.normal(0, 0.5, len(slices)))
        latencies_ms *= changed.latency if is_heartbeat else 1.0
        failed += int((rng.random(len(slices)) < 0.01 * changed.errors).sum())
        apis.append(_api(api, latencies_ms))
    durations_ms = 500 * changed.durations * np.exp(rng.normal(0, 0.6, rng.poisson(90 * changed.rebalances)))
    waiting = [round(float(each), 3) for each in rng.gamma(4.0, 2.0, SLICES)]
    return summary_of(_document(seed, apis, failed, durations_ms, waiting))


def _correlated(rng: np.random.Generator) -> Any:
    """Return a first-order autoregressive process of unit variance."""
    values = np.zeros(SLICES)
    for index in range(1, SLICES):
        values[index] = 0.5 * values[index - 1] + rng.normal(0, 0.75**0.5)
    return values


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
