"""Estimates of the noise of a difference between two runs: block bootstrap, rare events, repeated runs.

Noise is always the difference that two runs under equal conditions stay below with a probability of 99 %. Works on
arrays of counts by part of a run: a row per part, a column per kind of count. Does not depend on summaries or Spark.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from math import sqrt
from statistics import stdev

import msgspec
import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Statistic = Callable[[Array], Array]
"""Computes a number for each row of sums of counts; NaN if the sums do not determine it."""

DRAWS = 200
"""Number of bootstrap draws; the standard deviation of a difference is then accurate to about 5 %."""

_LARGEST_PRODUCT = 250_000
"""Multiplications in a product of matrices. OpenBLAS computes larger ones in threads, for ten times the CPU time."""

_NORMAL = 2.5758
_STUDENT_T = (63.66, 9.92, 5.84, 4.60, 4.03)
"""Two-sided 99 % quantiles of Student's t distribution with 1, 2, ... degrees of freedom."""

_MIN_EFFECTIVE_PARTS = 12
"""Below this number of parts, even a count that is 0 in one of the runs cannot exceed its noise."""

_MIN_REPEATED = 3
"""With two runs, the range would be fifty times their difference."""

_BLOCKS = (24, 12)
"""Numbers of blocks into which consecutive slices are combined, because neighboring slices are not independent."""


def student_t(degrees: float) -> float:
    """Return the two-sided 99 % quantile of Student's t distribution."""
    if degrees <= len(_STUDENT_T):
        return _STUDENT_T[max(1, int(degrees)) - 1]
    z, v = _NORMAL, degrees  # the expansion of Abramowitz and Stegun 26.7.5
    return z + (z**3 + z) / (4 * v) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * v**2)


def effective_parts(counts: Array) -> float:
    """Return the number of equally large parts that would vary as much: 1 if all counts are in one part."""
    sizes = counts.sum(axis=1)
    total = float(sizes.sum())
    return total**2 / float((sizes**2).sum()) if total else 0.0


def blocks(counts: Array, length: int) -> Array:
    """Return the sums of successive groups of `length` rows."""
    missing = -len(counts) % length
    padded = np.vstack([counts, np.zeros((missing, counts.shape[1]))])
    return np.asarray(padded.reshape(-1, length, counts.shape[1]).sum(axis=1))


@lru_cache(maxsize=64)
def _draws(parts: int, block: int, seed: int) -> Array:
    """Return how often each part is in each draw: a circular block bootstrap."""
    rng = np.random.default_rng(seed)
    firsts = rng.integers(0, parts, (DRAWS, -(-parts // block), 1))
    chosen = ((firsts + np.arange(block)) % parts).reshape(DRAWS, -1)[:, :parts]
    offsets = np.arange(DRAWS)[:, None] * parts
    return np.bincount((chosen + offsets).ravel(), minlength=DRAWS * parts).reshape(DRAWS, parts).astype(np.float64)


def _sums(draws: Array, counts: Array) -> Array:
    """Return the sums of the parts of each draw."""
    rows = max(1, _LARGEST_PRODUCT // counts.size)
    return np.vstack([draws[first : first + rows] @ counts for first in range(0, len(draws), rows)])


def bootstrap(
    before: Array, after: Array, statistics: tuple[Statistic, Statistic], *, block: int = 1, is_paired: bool = True
) -> float:
    """Return the standard deviation of the difference of a statistic over bootstrap draws.

    Args:
        before: Counts in the parts of the first run.
        after: Counts in the parts of the second run, with the same columns.
        statistics: The statistic of the first and of the second run.
        block: Length of the blocks of successive parts that are drawn together.
        is_paired: Draw the same parts of both runs, so that variation over time that both runs have does not count.
            The shorter run is extended by empty parts.

    Returns:
        NaN if the statistic has no value in more than one of twenty draws.
    """
    if is_paired and len(before) != len(after):
        size = max(len(before), len(after))
        before, after = (np.vstack([each, np.zeros((size - len(each), each.shape[1]))]) for each in (before, after))
    drawn_before = _draws(len(before), block, 1)
    drawn_after = drawn_before if is_paired else _draws(len(after), block, 2)
    found = statistics[1](_sums(drawn_after, after)) - statistics[0](_sums(drawn_before, before))
    if np.isnan(found).mean() > 0.05:
        return float("nan")
    return float(np.nanstd(found, ddof=1))


class Estimate(msgspec.Struct, frozen=True):
    """The noise of one division of the two runs.

    Attributes:
        noise: The noise; None if too few parts have counts.
        parts: The effective number of parts: the number of equally large ones that would vary as much.
        of: The number of parts.
    """

    noise: float | None
    parts: float
    of: int

    @property
    def bursts(self) -> float:
        """The number of independent bursts of events that would be distributed over the parts like the counts."""
        return 1 / max(1 / self.parts - 1 / self.of, 1e-9) if self.parts else 0.0


def noise_of_parts(
    before: Array,
    after: Array,
    statistics: tuple[Statistic, Statistic],
    *,
    is_paired: bool,
    is_sum: bool,
    is_time: bool,
) -> Estimate:
    """Estimate the noise of a statistic from the parts of both runs.

    Args:
        before: As in `bootstrap`.
        after: As in `bootstrap`.
        statistics: As in `bootstrap`.
        is_paired: As in `bootstrap`.
        is_sum: Whether the statistic is a sum, so that a run without counts has a value, too.
        is_time: Whether the parts are successive in time, so that blocks of them are drawn.
    """
    size = max(len(before), len(after))
    lengths = sorted({max(1, size // number) for number in _BLOCKS}) if is_time else [1]
    shares = [blocks(each, lengths[0]) for each in (before, after)]
    count = len(shares[0]) + (0 if is_paired else len(shares[1]))
    parts = _effective(shares, is_paired) if is_sum else min(map(effective_parts, shares))
    if parts < _MIN_EFFECTIVE_PARTS:
        return Estimate(None, parts, count)
    # Longer blocks include the correlation of neighbors, but fewer of them make the estimate less certain.
    deviation = max(bootstrap(before, after, statistics, block=length, is_paired=is_paired) for length in lengths)
    return Estimate(None if np.isnan(deviation) else student_t(parts - 1) * deviation, parts, count)


def _effective(shares: Sequence[Array], is_paired: bool) -> float:
    """Return the effective number of parts of both runs together."""
    if not is_paired:
        return sum(map(effective_parts, shares))
    size = max(map(len, shares))
    padded = [np.vstack([each, np.zeros((size - len(each), each.shape[1]))]) for each in shares]
    return effective_parts(padded[0] + padded[1])


def noise_of_rare_events(
    before: float, after: float, spans: tuple[float, float] = (1.0, 1.0), *, burst: float = 1.0
) -> float:
    """Return the noise of the difference of two counts of events that happen in independent bursts (Poisson).

    Args:
        before: Count of events in the first run.
        after: Count of events in the second run.
        spans: What the counts are divided by.
        burst: Mean number of events in a burst.
    """
    burst = max(burst, 1.0)
    deviation = sqrt(burst * (before / spans[0] ** 2 + after / spans[1] ** 2))
    return _NORMAL * deviation + burst / min(spans)


def noise_of_chance(*ranges: Sequence[float]) -> float:
    """Return the noise of the difference of two values, from the ranges in which each is with a probability of 90 %."""
    return _NORMAL / 1.645 * sqrt(sum(((high - low) / 2) ** 2 for low, high in ranges))


def quantile(q: float, low: Array, ratio: float) -> Statistic:
    """Return the statistic for a quantile of values that are counted in buckets.

    Args:
        q: The quantile, such as 0.99.
        low: Lower bounds of the buckets, which are the columns, in ascending order.
        ratio: Upper divided by lower bound of a bucket.
    """

    def statistic(sums: Array) -> Array:
        ranks = np.cumsum(sums, axis=1)
        total = ranks[:, -1]
        wanted = q * total
        column = np.minimum((ranks < wanted[:, None]).sum(axis=1), sums.shape[1] - 1)
        rows = np.arange(len(sums))
        inside = sums[rows, column]
        share = np.divide(
            wanted - (ranks[rows, column] - inside), inside, out=np.full(len(sums), 0.5), where=inside > 0
        )
        return np.where(total > 0, low[column] * ratio ** np.clip(share, 0, 1), np.nan)

    return statistic


def total(per: float = 1.0) -> Statistic:
    """Return the statistic for a sum of all counts, divided by `per`."""

    def statistic(sums: Array) -> Array:
        return np.asarray(sums.sum(axis=1) / per)

    return statistic


def skew(sums: Array) -> Array:
    """Return the maximum of the columns divided by their mean, for each row."""
    totals = sums.sum(axis=1)
    found: Array = np.divide(sums.max(axis=1) * sums.shape[1], totals, out=np.full(len(sums), np.nan), where=totals > 0)
    return found


def noise_of_repeats(values: Sequence[float]) -> float | None:
    """Return the noise of the difference of one more run to the mean of runs that repeat each other.

    The noise is the half width of the range in which one more run is expected (Student's t); None for fewer than three
    runs.
    """
    if len(values) < _MIN_REPEATED:
        return None
    return student_t(len(values) - 1) * stdev(values) * sqrt(1 + 1 / len(values))
