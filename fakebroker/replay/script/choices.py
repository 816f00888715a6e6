"""Random choices in Spark SQL that repeat with their seed. Knows nothing of workloads."""

from pyspark.sql import Column, functions as f

from fakebroker.replay.workload.table import Span, ends

_STEPS = 1 << 53
"""Into how many steps the interval [0, 1) is cut: as many as a double can tell apart."""


class Choices:
    """Numbers drawn by the hash of a seed, of what is chosen and for whom."""

    def __init__(self, seed: int) -> None:
        self._seed = str(seed)

    def share(self, choice: str, *who: Column) -> Column:
        """A number in [0, 1), evenly spread."""
        return f.pmod(f.xxhash64(f.lit(self._seed), f.lit(choice), *who), f.lit(_STEPS)) / f.lit(float(_STEPS))

    def of_group(self, choice: str) -> Column:
        """The same for the group of the row."""
        return self.share(choice, f.col("group"))

    def of_member(self, choice: str) -> Column:
        """The same for the member of the row."""
        return self.share(choice, f.col("group"), f.col("member"))

    def within_ms(self, span: Span, drawn: Column) -> Column:
        """A moment of a span of seconds, in milliseconds.

        Args:
            drawn: Which: a number in [0, 1).
        """
        fewest, most = ends(span)
        return f.lit(1000.0 * fewest) + drawn * (1000.0 * (most - fewest))
