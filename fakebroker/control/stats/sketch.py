"""Distributions of durations in little memory, with quantiles that are right within 1 %. Does not depend on a clock.

The method is DDSketch (Masson, Rim and Lee, VLDB 2019): buckets whose bounds grow by a constant factor. The
package `ddsketch` takes 0.55 us per duration instead of 0.15 us in batches, and cannot subtract an earlier state, which
gives the durations of the last seconds.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from math import ceil, log2

BUCKETS_PER_DOUBLING = 36
"""A power of two in milliseconds is the upper bound of a bucket, so that those of a histogram can be, too."""

MAX_RELATIVE_ERROR = (2 ** (1 / BUCKETS_PER_DOUBLING) - 1) / (2 ** (1 / BUCKETS_PER_DOUBLING) + 1)
"""The largest relative error of a quantile: 0.96 %."""

_ZERO = -(1 << 16)
"""The bucket of the duration 0, below those of all others."""


class Sketch:
    """Durations of one kind, in milliseconds.

    Attributes:
        sum_ms: Their sum.
    """

    __slots__ = ("_counts", "sum_ms")

    def __init__(self) -> None:
        self._counts: Counter[int] = Counter()
        self.sum_ms = 0.0

    def copy(self) -> "Sketch":
        """Return an independent copy."""
        copy = Sketch()
        copy._counts, copy.sum_ms = Counter(self._counts), self.sum_ms
        return copy

    def add_zeros(self, count: int) -> None:
        """Add a number of durations of 0 ms."""
        self._counts[_ZERO] += count

    def add(self, durations_ms: Sequence[float]) -> None:
        """Add durations; those that are not above 0 count as 0."""
        positive = [duration for duration in durations_ms if duration > 0]
        self._counts.update([ceil(log2(duration) * BUCKETS_PER_DOUBLING) for duration in positive])
        self.sum_ms += sum(positive)
        if len(positive) < len(durations_ms):
            self.add_zeros(len(durations_ms) - len(positive))

    def since(self, earlier: "Sketch | None") -> "Sketch":
        """Return the durations that were added since an earlier copy; all without one."""
        if earlier is None:
            return self
        new = Sketch()
        new._counts, new.sum_ms = self._counts - earlier._counts, self.sum_ms - earlier.sum_ms
        return new

    @property
    def count(self) -> int:
        """The number of durations."""
        return self._counts.total()

    def quantile(self, share: float) -> float | None:
        """Return the smallest duration that is not exceeded by this share of all, in milliseconds.

        Args:
            share: Above 0, at most 1.

        Returns:
            The duration, with a relative error of at most `MAX_RELATIVE_ERROR`; None if there are none.
        """
        rank, seen = ceil(self.count * share), 0
        for bucket in sorted(self._counts):
            seen += self._counts[bucket]
            if seen >= rank:
                return _middle_ms(bucket)
        return None

    def counts_up_to(self, bounds_ms: Iterable[float]) -> Iterator[int]:
        """Yield the number of durations up to each bound, in ascending order: 0, powers of two, or infinity."""
        buckets = sorted(self._counts, reverse=True)
        seen = 0
        for bound_ms in bounds_ms:
            last = _bucket_of_bound(bound_ms)
            while buckets and buckets[-1] <= last:
                seen += self._counts[buckets.pop()]
            yield seen


def merged(sketches: Iterable[Sketch]) -> Sketch:
    """Return the durations of several sketches together."""
    all_of_them = Sketch()
    for sketch in sketches:
        all_of_them._counts.update(sketch._counts)
        all_of_them.sum_ms += sketch.sum_ms
    return all_of_them


def _middle_ms(bucket: int) -> float:
    """Return the value in a bucket whose relative distance to both bounds is the same."""
    if bucket == _ZERO:
        return 0.0
    return 2 ** (bucket / BUCKETS_PER_DOUBLING) * (1 - MAX_RELATIVE_ERROR)


def _bucket_of_bound(bound_ms: float) -> float:
    if bound_ms == 0:
        return _ZERO
    return float("inf") if bound_ms == float("inf") else ceil(log2(bound_ms) * BUCKETS_PER_DOUBLING)
