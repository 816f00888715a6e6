"""How uneven a random distribution of groups over partitions is: few groups are never distributed evenly.

Does not depend on Spark or reports.
"""

from collections.abc import Sequence

import numpy as np

LOAD_QUANTILES = [(index + 0.5) / 100 for index in range(100)]
"""The quantiles by which the loads of all groups are known."""

_SHARE = 0.9
"""Share of random distributions in the range."""

_SEED = 9_397
_TRIALS, _MIN_TRIALS = 1_000, 100
_DRAWS = 500_000
"""Approximate number of random numbers, which limits the number of trials with many groups or partitions."""


def skew_by_chance(loads: Sequence[float], groups: int, partitions: int) -> list[float]:
    """Return the range of the maximum load of a partition divided by the mean, in 9 of 10 random distributions.

    Args:
        loads: Quantiles of the loads of the groups, equally spaced and in ascending order.
        groups: The number of groups, each placed on a random partition.
        partitions: The number of partitions.

    Returns:
        Lower and upper end, rounded to two decimals; nothing if there is no load.
    """
    classes = min(groups, len(loads))
    if not classes or not partitions:
        return []
    picked = [loads[int((index + 0.5) * len(loads) / classes)] for index in range(classes)]
    sizes = [groups // classes + (index < groups % classes) for index in range(classes)]
    mean = sum(load * size for load, size in zip(picked, sizes, strict=True)) / partitions
    if not mean:
        return []
    rng = np.random.default_rng(_SEED)
    trials = min(_TRIALS, max(_MIN_TRIALS, _DRAWS // (classes * partitions)))
    total = np.zeros((trials, partitions))
    for load, size in zip(picked, sizes, strict=True):
        total += load * rng.multinomial(size, np.full(partitions, 1 / partitions), size=trials)
    ends = np.quantile(total.max(axis=1) / mean, ((1 - _SHARE) / 2, (1 + _SHARE) / 2))
    return [round(float(end), 2) for end in ends]
