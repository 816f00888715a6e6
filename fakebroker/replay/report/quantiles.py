"""SQL for quantiles of latencies, exact to three significant digits, of rows that each represent several requests.

Latencies are rounded to three significant digits, as in HdrHistogram, and counted; quantiles are computed from the
counts. Functions of Spark are not suitable: `percentile` interpolates between values, and `percentile_disc` and
`percentile_approx` do not support rows with counts.
"""

from collections.abc import Mapping
from types import MappingProxyType

QUANTILES = {"p50_ms": 0.5, "p99_ms": 0.99, "p99_9_ms": 0.999}
"""The quantiles, by their keys in a summary."""


def three_digits(column: str) -> str:
    """Return SQL that rounds a column of microseconds to three significant digits; null stays null."""
    step = f"pow(10, greatest(0, floor(log10(greatest({column}, 1))) - 2))"
    return f"round({column} / {step}) * {step}"


def counted(source: str, by: str, sets: str, kinds: Mapping[str, str] = MappingProxyType({})) -> str:
    """Return a query for the quantiles of latencies.

    Args:
        source: Table with the columns `key` (latency in microseconds, rounded by `three_digits`), `n` (number of
            requests with this latency), `max_us` (their maximum latency) and the columns in `by`.
        by: Columns to group by, comma-separated.
        sets: The `grouping sets`; each set includes the column `key`.
        kinds: SQL conditions for additional counts of requests, by the name of the result column.

    Returns:
        A query with the columns in `by`, `requests`, the quantiles, `max_ms` and the additional counts.
    """
    counts = "".join(f", sum(if({condition}, n, 0)) {name}" for name, condition in kinds.items())
    names = "".join(f", {name}" for name in kinds)
    sums = "".join(f", sum({name}) {name}" for name in kinds)
    answered = f"sum(if(key is null, null, n)) over (partition by {by}"
    quantiles = ", ".join(
        f"round(min(key) filter (where rank >= {rank}) / 1000, 3) {name}" for name, rank in QUANTILES.items()
    )
    return f"""
        with counts as (
            select {by}, key, sum(n) n, max(max_us) max_us{counts} from {source} group by grouping sets ({sets})
        ), ranked as (
            select {by}, key, n, max_us{names}, {answered} order by key) / {answered}) rank from counts
        )
        select {by}, sum(n) requests, {quantiles}, round(max(max_us) / 1000, 3) max_ms{sums}
        from ranked group by {by}"""
