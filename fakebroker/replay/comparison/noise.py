"""Estimates the noise of a difference between two runs from their repeats. Does not depend on summaries or Spark.

Two runs under equal conditions still differ. With a probability of 99 %, their difference stays below the noise.
"""

from collections.abc import Sequence
from math import sqrt
from statistics import fmean

_NORMAL = 2.5758
_STUDENT_T = (63.66, 9.92, 5.84, 4.60, 4.03, 3.71, 3.50, 3.36, 3.25, 3.17)
"""Two-sided 99 % quantiles of Student's t distribution with 1, 2, ... degrees of freedom."""

_MIN_DEGREES = 2
"""Minimum of degrees of freedom. With one, the noise would be about fifty times the difference of the repeats."""


def student_t(degrees: float) -> float:
    """Return the two-sided 99 % quantile of Student's t distribution."""
    if degrees <= len(_STUDENT_T):
        return _STUDENT_T[max(1, int(degrees)) - 1]
    z, v = _NORMAL, degrees  # the expansion of Abramowitz and Stegun 26.7.5
    return z + (z**3 + z) / (4 * v) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * v**2)


def noise_of_repeats(before: Sequence[float], after: Sequence[float]) -> float | None:
    """Return the noise of the difference between two means, each over a run and its repeats (Student's t).

    Args:
        before: The values in the first run and its repeats.
        after: The values in the second run and its repeats.

    Returns:
        None if there are fewer than two repeats.
    """
    degrees = len(before) + len(after) - 2
    if degrees < _MIN_DEGREES:
        return None
    squares = sum((value - fmean(values)) ** 2 for values in (before, after) for value in values)
    return student_t(degrees) * sqrt(squares / degrees * (1 / len(before) + 1 / len(after)))


def least_noise_of_counts(before: float, after: float, spans: tuple[float, float] = (1.0, 1.0)) -> float:
    """Return the noise of the difference between two counts of independent events (Poisson).

    If the events come in bursts, the noise is larger.

    Args:
        before: Number of events in the first run.
        after: Number of events in the second run.
        spans: By what each count is divided before they are compared, such as the lengths of the runs.
    """
    return _NORMAL * sqrt(before / spans[0] ** 2 + after / spans[1] ** 2) + 1 / min(spans)


def noise_of_chance(*ranges: Sequence[float]) -> float:
    """Return the noise of the difference between two values.

    Args:
        ranges: For each value, the range in which it is with a probability of 90 %.
    """
    return _NORMAL / 1.645 * sqrt(sum(((high - low) / 2) ** 2 for low, high in ranges))
