"""A figure with its confidence interval over seeds."""

from collections.abc import Sequence
from math import sqrt
from statistics import fmean, stdev

import msgspec

_NORMAL = 1.95996
_STUDENT_T = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262)
"""Two-sided 95 % quantiles of Student's t distribution with 1, 2, ... degrees of freedom."""


class Estimate(msgspec.Struct, frozen=True):
    """A mean over seeds.

    Attributes:
        mean: The mean.
        low, high: The 95 % confidence interval of the mean; equal to it if all seeds give the same value.
        seeds: The number of values; with one, the interval is only the value.
    """

    mean: float
    low: float
    high: float
    seeds: int


def estimate_of(values: Sequence[float]) -> Estimate:
    """Return the mean of one value per seed, with its confidence interval by Student's t distribution.

    Raises:
        ValueError: There are no values.
    """
    if not values:
        raise ValueError("values=[]: expected one or more")
    mean = fmean(values)
    if len(values) == 1:
        return Estimate(mean, mean, mean, 1)
    half = _student_t(len(values) - 1) * stdev(values) / sqrt(len(values))
    return Estimate(mean, mean - half, mean + half, len(values))


def _student_t(degrees: int) -> float:
    if degrees <= len(_STUDENT_T):
        return _STUDENT_T[degrees - 1]
    z = _NORMAL  # the expansion of Abramowitz and Stegun 26.7.5
    return z + (z**3 + z) / (4 * degrees) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * degrees**2)
