"""Quantiles in Spark SQL of rows that stand for many requests each, exact to three digits, without keeping them all.

Latencies are rounded to three significant digits, as HdrHistogram does it, and counted; the counts say the rest. Knows
SQL alone.
"""

from collections.abc import Mapping
from types import MappingProxyType

QUANTILES = {"p50_ms": 0.5, "p99_ms": 0.99, "p99_9_ms": 0.999}
"""What each quantile is called in a summary."""


def three_digits(column: str) -> str:
    """SQL for a column of microseconds, by its name, rounded to three significant digits; null stays null."""
    step = f"pow(10, greatest(0, floor(log10(greatest({column}, 1))) - 2))"
    return f"round({column} / {step}) * {step}"


def counted(source: str, by: str, sets: str, kinds: Mapping[str, str] = MappingProxyType({})) -> str:
    """A query for the quantiles of `key`, as `three_digits` makes it, in rows that count `n` times each.

    Args:
        source: A table with the columns `key`, `n`, `max_us` and those of `by`.
        by: The columns to group by, with commas.
        sets: Which of them go together, as in `grouping sets`; each set has the column `key`.
        kinds: What else to count, by the name of its column: a condition.

    Returns:
        A query for `by`, `requests`, the quantiles, `max_ms` and the kinds.
    """
    counts = "".join(f", sum(if({condition}, n, 0)) {name}" for name, condition in kinds.items())
    carried = "".join(f", {name}" for name in kinds)
    sums = "".join(f", sum({name}) {name}" for name in kinds)
    answered = f"sum(if(key is null, null, n)) over (partition by {by}"
    quantiles = ", ".join(
        f"round(min(key) filter (where rank >= {rank}) / 1000, 3) {name}" for name, rank in QUANTILES.items()
    )
    return f"""
        with counts as (
            select {by}, key, sum(n) n, max(max_us) max_us{counts} from {source} group by grouping sets ({sets})
        ), ranked as (
            select {by}, key, n, max_us{carried}, {answered} order by key) / {answered}) rank from counts
        )
        select {by}, sum(n) requests, {quantiles}, round(max(max_us) / 1000, 3) max_ms{sums}
        from ranked group by {by}"""
