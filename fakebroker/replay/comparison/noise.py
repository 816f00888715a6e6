"""Estimates of the noise of a difference between two runs, from their repeats. Does not depend on summaries or Spark.

Noise is the difference that two runs under equal conditions stay below with a probability of 99 %.
"""

from collections.abc import Sequence
from math import sqrt
from statistics import fmean

_NORMAL = 2.5758
_STUDENT_T = (63.66, 9.92, 5.84, 4.60, 4.03)
"""Two-sided 99 % quantiles of Student's t distribution with 1, 2, ... degrees of freedom."""

_MIN_DEGREES = 2
"""With one degree of freedom, the range would be fifty times the difference of the two repeats."""


def student_t(degrees: float) -> float:
    """Return the two-sided 99 % quantile of Student's t distribution."""
    if degrees <= len(_STUDENT_T):
        return _STUDENT_T[max(1, int(degrees)) - 1]
    z, v = _NORMAL, degrees  # the expansion of Abramowitz and Stegun 26.7.5
    return z + (z**3 + z) / (4 * v) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * v**2)


def noise_of_repeats(before: Sequence[float], after: Sequence[float]) -> float | None:
    """Return the noise of the difference of two means of runs that repeat each other (Student's t).

    Args:
        before: The values in runs under equal conditions.
        after: The values in the runs that they are compared with.

    Returns:
        None if there are fewer than two repeats.
    """
    degrees = len(before) + len(after) - 2
    if degrees < _MIN_DEGREES:
        return None
    squares = sum((value - fmean(values)) ** 2 for values in (before, after) for value in values)
    return student_t(degrees) * sqrt(squares / degrees * (1 / len(before) + 1 / len(after)))


def least_noise_of_counts(before: float, after: float, spans: tuple[float, float] = (1.0, 1.0)) -> float:
    """Return the noise of the difference of two counts of independent events (Poisson).

    Events that come in bursts have more.

    Args:
        before: Number of events in the first run.
        after: Number of events in the second run.
        spans: What the numbers are divided by.
    """
    return _NORMAL * sqrt(before / spans[0] ** 2 + after / spans[1] ** 2) + 1 / min(spans)


def noise_of_chance(*ranges: Sequence[float]) -> float:
    """Return the noise of the difference of two values, from the ranges in which each is with a probability of 90 %."""
    return _NORMAL / 1.645 * sqrt(sum(((high - low) / 2) ** 2 for low, high in ranges))
