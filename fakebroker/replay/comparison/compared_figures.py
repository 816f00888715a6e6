"""The figures of a run that `compare` compares, and the rows of `samples.parquet` from which each follows."""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from fakebroker.replay.comparison.noise import Statistic, quantile
from fakebroker.replay.comparison.samples import BUCKET_RATIO, Samples, counted_by, lower_bounds_us
from fakebroker.replay.members.events import PARKED_APIS
from fakebroker.replay.members.request_outcomes import LOST, ORDINARY_ERRORS, UNANSWERED
from fakebroker.replay.run_summary import ALL, Numbers, Rebalances, RequestNumbers, Summary

Mask = NDArray[np.bool_]
Where = Callable[[Samples], Mask]
"""Selects rows of samples."""

QUANTILES = {"p50": 0.5, "p99": 0.99}

_COSTS = (" ms", "unexpected errors", "lost", "unanswered", "never assigned")
"""Ends of the names of figures that are costs, besides those whose kind says so."""

_SINGLE = "one value per run: repeats of BEFORE show its noise"


class Run(msgspec.Struct, frozen=True):
    """A run to compare.

    Attributes:
        summary: Its summary.
        samples: Its samples; None if the run has none.
    """

    summary: Summary
    samples: Samples | None = None


def _all(samples: Samples) -> Mask:
    return np.ones(len(samples.column("kind")), dtype=np.bool_)


class Figure(NamedTuple):
    """A figure of a run.

    Attributes:
        value: Its value; None if it was not measured.
        kind: How the value follows from counts: "count", "rate" (count per second), "member-s" (sum of times),
            "quantile", "skew" (of requests by broker), "chance" (if its range by chance is known), or "none".
        where: The rows of `samples.parquet` that are counted.
        q: The quantile.
        noun: What is counted, for explanations.
        why: Why parts of a run have no noise that can be estimated, for "none".
        divisions: The divisions that have such rows.
        is_steady: Whether only requests in the steady state are counted.
        chance: The range of the value in 9 of 10 runs that differ by chance only.
        is_cost: Whether a lower value is better: latencies, failures, waits. Rates, and numbers of rebalances, follow
            from the workload. They are neither better nor worse.
    """

    value: float | None
    kind: str
    where: Where = _all
    q: float = 0.0
    noun: str = ""
    why: str = ""
    divisions: tuple[str, ...] = ("time", "groups")
    is_steady: bool = False
    chance: tuple[float, ...] = ()
    is_cost: bool = False


def figures_of(run: Run) -> dict[str, Figure]:
    """Return all figures of a run that are compared, by name."""
    summary = run.summary
    numbers = summary.numbers
    metrics = numbers.metrics
    found: dict[str, Figure] = {}
    for row in numbers.apis:
        found |= _figures_of_requests(row.name, row, requests(row.api, row.source))
    for row in numbers.subtotals:
        if row.api == ALL:
            label = "" if row.source == "members" else f" ({row.source})"
            found[f"requests/s{label}"] = Figure(
                row.requests_per_s, "rate", requests(source=row.source), noun="requests"
            )
    found |= _figures_of_never_parked(numbers)
    everything = requests()
    failures: dict[str, Where] = {"unexpected errors": unexpected, "lost": _lost, "unanswered": _unanswered}
    for name, failed in failures.items():
        value = getattr(numbers.total, name.replace(" ", "_"))
        found[name] = Figure(value, "count", _both(everything, failed), noun="requests")
    for name, code in {(error.name, error.code) for error in numbers.errors}:
        where = _both(everything, partial(_has_error, code))
        found[name] = Figure(metrics[f"errors.{name}"], "count", where, noun="responses")
    found |= _figures_of_rebalances(numbers.rebalances)
    found["unassigned member-s"] = Figure(metrics["unassigned_member_s"], "member-s", _unassigned(), noun="members")
    if (partition_s := metrics.get("unassigned_partition_s")) is not None:  # None in runs of earlier versions
        found["unassigned partition-s"] = Figure(
            partition_s, "member-s", _unassigned_partitions(), noun="partitions", divisions=("groups",)
        )
    not_joined = summary.head.members - (metrics["members_joined"] or 0)
    found["members never assigned"] = Figure(not_joined, "count", noun="members", divisions=())
    found["broker skew"] = Figure(metrics["broker_skew"], "skew", everything, noun="requests", divisions=("groups",))
    chance = numbers.offsets_partitions.requests_skew_by_chance
    found["partition skew"] = Figure(metrics["partition_skew"], "chance", why=_SINGLE, chance=tuple(chance))
    for lookup in numbers.lookups:
        per_request = round(lookup.keys / max(lookup.requests, 1), 3)
        found[f"{lookup.name} groups/request"] = Figure(per_request, "none", why=_SINGLE)
    for key in () if summary.head.transport == "memory" else QUANTILES:
        found[f"sent late {key} ms"] = Figure(getattr(numbers.sent_late, f"{key}_ms"), "none", why=_SINGLE)
    if len(numbers.populations) > 1:
        found |= _figures_of_populations(summary)
    return {name: each._replace(is_cost=_is_cost(name, each)) for name, each in found.items()}


def _is_cost(name: str, figure: Figure) -> bool:
    return figure.kind in ("quantile", "member-s", "skew", "chance") or name.endswith(_COSTS)


def _figures_of_never_parked(numbers: Numbers) -> dict[str, Figure]:
    """Return the figures of the latencies of requests that brokers answer at once."""
    found: dict[str, Figure] = {}
    for name, q in (QUANTILES | {"p99.9": 0.999}).items():
        key = f"{name.replace('.', '_')}_ms"
        value = getattr(numbers.never_parked, key)
        found[f"never parked {name} ms"] = Figure(value, "quantile", never_parked, q, "responses")
        if numbers.steady is not None and numbers.startup is not None:
            value = getattr(numbers.steady.never_parked, key)
            found[f"never parked {name} ms, steady"] = Figure(
                value, "quantile", never_parked, q, "responses", divisions=("time",), is_steady=True
            )
    found["never parked max ms"] = Figure(numbers.never_parked.max_ms, "none", why=_SINGLE)
    return found


def _figures_of_rebalances(rebalances: Rebalances) -> dict[str, Figure]:
    """Return the numbers and durations of rebalances."""
    found = {
        "generations": Figure(rebalances.generations, "count", _rebalances(), noun="generations"),
        "rebalances": Figure(rebalances.count, "count", answered(_rebalances()), noun="rebalances"),
    }
    for name, q in QUANTILES.items():
        value = getattr(rebalances, f"{name}_ms")
        found[f"rebalance {name} ms"] = Figure(value, "quantile", answered(_rebalances()), q, "rebalances")
    found["rebalance max ms"] = Figure(rebalances.max_ms, "none", why=_SINGLE)
    return found


def _figures_of_requests(name: str, row: RequestNumbers, where: Where) -> dict[str, Figure]:
    """Return the figures of an API and source."""
    values = {"p50": row.p50_ms, "p99": row.p99_ms}
    return {
        f"{name} requests/s": Figure(row.requests_per_s, "rate", where, noun="requests"),
        **{
            f"{name} {key} ms": Figure(values[key], "quantile", answered(where), q, "responses")
            for key, q in QUANTILES.items()
        },
    }


def _figures_of_populations(summary: Summary) -> dict[str, Figure]:
    found = {}
    for row in summary.numbers.populations:
        name = row.population
        groups = ("groups",)
        found[f"{name}: generations"] = Figure(
            row.generations, "count", _rebalances(name), noun="generations", divisions=groups
        )
        found[f"{name}: unassigned member-s"] = Figure(
            row.unassigned_member_s, "member-s", _unassigned(name), noun="members", divisions=groups
        )
        found[f"{name}: unassigned partition-s"] = Figure(
            row.unassigned_partition_s, "member-s", _unassigned_partitions(name), noun="partitions", divisions=groups
        )
        found[f"{name}: never assigned"] = Figure(
            row.members - row.members_joined, "count", noun="members", divisions=()
        )
    return found


def requests(api: str | None = None, source: str | None = None) -> Where:
    """Return a condition for requests of an API from a source, or of all."""

    def where(samples: Samples) -> Mask:
        of_api = api is None or samples.column("api") == api
        of_source = source is None or samples.column("source") == source
        return np.asarray((samples.column("kind") == "request") & of_api & of_source)

    return where


def parked(samples: Samples) -> Mask:
    """Select answered requests of APIs that may be parked."""
    return np.asarray(answered(requests())(samples) & np.isin(samples.column("api"), PARKED_APIS))


def never_parked(samples: Samples) -> Mask:
    """Select answered requests of APIs that are never parked."""
    return np.asarray(answered(requests())(samples) & ~parked(samples))


def unexpected(samples: Samples) -> Mask:
    """Select requests whose response had an unexpected error."""
    error = samples.column("error")
    return np.asarray(~np.isnan(error) & ~np.isin(error, [int(each) for each in ORDINARY_ERRORS]))


def lost_or_unanswered(samples: Samples) -> Mask:
    """Select requests that were lost or unanswered."""
    return _lost(samples) | _unanswered(samples)


def latencies_ms(samples: Samples, where: Where, q: float) -> list[float | None]:
    """Return a quantile of the latency in each time slice, accurate to 1 %; None without responses."""
    selection = samples.select("time", where)
    if not len(selection.n):
        return [None] * selection.size
    buckets, counts = counted_by("bucket", [selection])
    found = latency_quantile(q, buckets)(counts[0])
    return [None if np.isnan(value) else round(float(value), 3) for value in found]


def latency_quantile(q: float, buckets: NDArray[np.float64]) -> Statistic:
    """Return the statistic for a quantile in milliseconds of counts by bucket, which are the columns."""
    return quantile(q, lower_bounds_us(buckets) / 1000, BUCKET_RATIO)


def _both(one: Where, other: Where) -> Where:
    return lambda samples: one(samples) & other(samples)


def _rebalances(population: str | None = None) -> Where:
    return _of_population("rebalance", population)


def _unassigned(population: str | None = None) -> Where:
    return _of_population("unassigned", population)


def _unassigned_partitions(population: str | None = None) -> Where:
    return _of_population("unassigned partition", population)


def _of_population(kind: str, population: str | None) -> Where:
    def where(samples: Samples) -> Mask:
        of_population = population is None or samples.column("population") == population
        return np.asarray((samples.column("kind") == kind) & of_population)

    return where


def answered(where: Where) -> Where:
    """Return a condition for those of the selected rows that have a latency or duration."""
    return lambda samples: where(samples) & ~np.isnan(samples.column("bucket"))


def _lost(samples: Samples) -> Mask:
    return np.asarray(samples.column("missing") == LOST)


def _unanswered(samples: Samples) -> Mask:
    return np.asarray(samples.column("missing") == UNANSWERED)


def _has_error(code: int, samples: Samples) -> Mask:
    return np.asarray(samples.column("error") == code)
