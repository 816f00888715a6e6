"""Request rates and latencies over the last seconds, from the counts of a meter."""

from collections import Counter, deque
from collections.abc import Iterable, Sequence
from typing import TypedDict

from fakebroker.control.stats.meter import Totals
from fakebroker.control.stats.sketch import Sketch, merged

WAITING_APIS = ("JoinGroup", "SyncGroup", "Fetch")
"""APIs whose requests can wait by design: for other members of a group, or for records."""

_SAMPLES = 3


class Latency(TypedDict):
    """Quantiles of the broker times and wire times of the last seconds, in milliseconds, within 1 %.

    The broker time lasts by the brokers' clock until the response is known, including delays of faults; it is 0 if the
    request is answered at once. The wire time lasts in real time until the last byte of the response is sent. None if
    there were no responses.
    """

    broker_p50_ms: float | None
    broker_p99_ms: float | None
    wire_p50_ms: float | None
    wire_p99_ms: float | None


class ApiRate(Latency):
    """Rates and latencies of one API; `can_wait`: its requests can wait by design, for members or records."""

    api: str
    can_wait: bool
    requests_per_s: float
    errors_per_s: float


class BrokerRate(TypedDict):
    """Rates of one broker."""

    node_id: int
    requests_per_s: float


class Rates(TypedDict):
    """Current request rates; APIs by name. `latency` covers all requests of APIs that never wait."""

    requests_per_s: float
    latency: Latency
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
        broker_times = {api: times.since(before.broker_times.get(api)) for api, times in totals.broker_times.items()}
        wire_times = {api: times.since(before.wire_times.get(api)) for api, times in totals.wire_times.items()}
        apis = sorted(by_api.keys() | {api for api in broker_times if broker_times[api].count})
        prompt = [api for api in apis if api not in WAITING_APIS]
        return {
            "requests_per_s": round(by_api.total() / seconds, 1),
            "latency": _latency(
                merged(_found(broker_times, prompt)),
                merged(_found(wire_times, prompt)),
            ),
            "by_api": [
                {
                    "api": api,
                    "can_wait": api in WAITING_APIS,
                    "requests_per_s": round(by_api[api] / seconds, 1),
                    "errors_per_s": round(failed[api] / seconds, 1),
                    **_latency(broker_times.get(api, _NO_TIMES), wire_times.get(api, _NO_TIMES)),
                }
                for api in apis
            ],
            "by_broker": [
                {"node_id": node_id, "requests_per_s": round(by_broker[node_id] / seconds, 1)} for node_id in node_ids
            ],
        }


_NO_TIMES = Sketch()


def _found(times: dict[str, Sketch], apis: Iterable[str]) -> Iterable[Sketch]:
    return (times[api] for api in apis if api in times)


def _latency(broker_times: Sketch, wire_times: Sketch) -> Latency:
    return {
        "broker_p50_ms": broker_times.quantile(0.5),
        "broker_p99_ms": broker_times.quantile(0.99),
        "wire_p50_ms": wire_times.quantile(0.5),
        "wire_p99_ms": wire_times.quantile(0.99),
    }
