"""The figures of a run that `compare` compares."""

from typing import NamedTuple

from fakebroker.replay.run_summary import ALL, Numbers, Rebalances, RequestNumbers, Summary

_COSTS = (" ms", "unexpected errors", "lost", "unanswered", "never assigned", "member-s", "partition-s", "skew")
"""Ends of the names of figures that are costs: a lower value is better.

Rates, and numbers of rebalances, follow from the workload. They are neither better nor worse.
"""


class Figure(NamedTuple):
    """A figure of a run.

    Attributes:
        value: Its value; None if it was not measured.
        kind: "count" (of events), "rate" (per second), "total" (a sum that grows with the length of a run), or
            "value".
        chance: The range of the value in 9 of 10 runs that differ by chance only; empty if it is not known.
    """

    value: float | None
    kind: str = "value"
    chance: tuple[float, ...] = ()


def is_cost(name: str) -> bool:
    """Return whether a lower value of a figure is better."""
    return name.removesuffix(", steady").removesuffix(" per s").endswith(_COSTS)


def figures_of(summary: Summary) -> dict[str, Figure]:
    """Return all figures of a run that are compared, by name."""
    numbers = summary.numbers
    metrics = numbers.metrics
    found: dict[str, Figure] = {}
    for row in numbers.apis:
        found |= _figures_of_requests(row.name, row)
    for row in numbers.subtotals:
        if row.api == ALL:
            label = "" if row.source == "members" else f" ({row.source})"
            found[f"requests/s{label}"] = Figure(row.requests_per_s, "rate")
    found |= _figures_of_never_parked(numbers)
    for name in ("unexpected errors", "lost", "unanswered"):
        found[name] = Figure(getattr(numbers.total, name.replace(" ", "_")), "count")
    for name in {error.name for error in numbers.errors}:
        found[name] = Figure(metrics[f"errors.{name}"], "count")
    found |= _figures_of_rebalances(numbers.rebalances)
    found["unassigned member-s"] = Figure(metrics["unassigned_member_s"], "total")
    found["unassigned partition-s"] = Figure(metrics["unassigned_partition_s"], "total")
    found["members never assigned"] = Figure(summary.head.members - (metrics["members_joined"] or 0), "count")
    found["broker skew"] = Figure(metrics["broker_skew"])
    chance = numbers.offsets_partitions.requests_skew_by_chance
    found["partition skew"] = Figure(metrics["partition_skew"], chance=tuple(chance))
    for lookup in numbers.lookups:
        found[f"{lookup.name} groups/request"] = Figure(round(lookup.keys / max(lookup.requests, 1), 3))
    if summary.head.transport != "memory":
        found["sent late p50 ms"] = Figure(numbers.sent_late.p50_ms)
        found["sent late p99 ms"] = Figure(numbers.sent_late.p99_ms)
    if len(numbers.populations) > 1:
        found |= _figures_of_populations(summary)
    return found


def _figures_of_never_parked(numbers: Numbers) -> dict[str, Figure]:
    """Return the figures of the latencies of requests that brokers answer at once."""
    found: dict[str, Figure] = {}
    for name in ("p50", "p99", "p99.9", "max"):
        key = f"{name.replace('.', '_')}_ms"
        found[f"never parked {name} ms"] = Figure(getattr(numbers.never_parked, key))
        if numbers.steady is not None and numbers.startup is not None and name != "max":
            found[f"never parked {name} ms, steady"] = Figure(getattr(numbers.steady.never_parked, key))
    return found


def _figures_of_rebalances(rebalances: Rebalances) -> dict[str, Figure]:
    """Return the numbers and durations of rebalances."""
    return {
        "generations": Figure(rebalances.generations, "count"),
        "rebalances": Figure(rebalances.count, "count"),
        **{f"rebalance {name} ms": Figure(getattr(rebalances, f"{name}_ms")) for name in ("p50", "p99", "max")},
    }


def _figures_of_requests(name: str, row: RequestNumbers) -> dict[str, Figure]:
    """Return the figures of an API and source."""
    return {
        f"{name} requests/s": Figure(row.requests_per_s, "rate"),
        f"{name} p50 ms": Figure(row.p50_ms),
        f"{name} p99 ms": Figure(row.p99_ms),
    }


def _figures_of_populations(summary: Summary) -> dict[str, Figure]:
    found = {}
    for row in summary.numbers.populations:
        name = row.population
        found[f"{name}: generations"] = Figure(row.generations, "count")
        found[f"{name}: unassigned member-s"] = Figure(row.unassigned_member_s, "total")
        found[f"{name}: unassigned partition-s"] = Figure(row.unassigned_partition_s, "total")
        found[f"{name}: never assigned"] = Figure(row.members - row.members_joined, "count")
    return found
