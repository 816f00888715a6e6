"""Request rates over the last seconds, from the counts of a meter."""

from collections import Counter, deque
from collections.abc import Sequence
from typing import TypedDict

from fakebroker.control.stats.meter import BOUNDS_MS, Totals, quantile

_SAMPLES = 3


class ApiRate(TypedDict):
    """Rates of one API; durations are None if there were no responses."""

    api: str
    requests_per_s: float
    errors_per_s: float
    p50_ms: float | None
    p99_ms: float | None


class BrokerRate(TypedDict):
    """Rates of one broker."""

    node_id: int
    requests_per_s: float


class Rates(TypedDict):
    """Current request rates; APIs by name."""

    requests_per_s: float
    by_api: list[ApiRate]
    by_broker: list[BrokerRate]


class RateWindow:
    """The counts of the last three seconds, from which rates are computed."""

    def __init__(self) -> None:
        self._samples: deque[tuple[float, Totals]] = deque(maxlen=_SAMPLES)

    def record(self, now_s: float, totals: Totals) -> None:
        """Record the current counts; to be called about once a second."""
        self._samples.append((now_s, totals.copy()))

    def rates(self, now_s: float, totals: Totals, node_ids: Sequence[int]) -> Rates:
        """Return the rates since the oldest recorded counts."""
        since_s, before = self._samples[0] if self._samples else (now_s, totals)
        seconds = max(now_s - since_s, 1e-3)
        requests, errors = totals.requests - before.requests, totals.errors - before.errors
        by_api, failed, by_broker = Counter[str](), Counter[str](), Counter[int]()
        for (api, node_id), count in requests.items():
            by_api[api] += count
            by_broker[node_id] += count
        for (api, _, _), count in errors.items():
            failed[api] += count
        return {
            "requests_per_s": round(by_api.total() / seconds, 1),
            "by_api": [_api_rate(api, by_api[api], failed[api], seconds, totals, before) for api in sorted(by_api)],
            "by_broker": [
                {"node_id": node_id, "requests_per_s": round(by_broker[node_id] / seconds, 1)} for node_id in node_ids
            ],
        }


def _api_rate(api: str, requests: int, errors: int, seconds: float, now: Totals, before: Totals) -> ApiRate:
    buckets = now.latencies[api].buckets if api in now.latencies else [0] * (len(BOUNDS_MS) + 1)
    earlier = before.latencies[api].buckets if api in before.latencies else [0] * len(buckets)
    new = [count - old for count, old in zip(buckets, earlier, strict=True)]
    return {
        "api": api,
        "requests_per_s": round(requests / seconds, 1),
        "errors_per_s": round(errors / seconds, 1),
        "p50_ms": quantile(new, 0.5),
        "p99_ms": quantile(new, 0.99),
    }
