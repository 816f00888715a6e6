"""Time series of a replay: converts rows with a slice number to lists with a value per slice.

Does not depend on Spark or charts.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any, TypeVar

import msgspec

from fakebroker.replay.run_summary import RequestsOverTime, Section, Series

MOST_SLICES = 120
"""Maximum number of slices, so that charts are readable."""

_LENGTHS_MS = (50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 15_000, 30_000, 60_000, 120_000, 300_000, 900_000)

Row = Mapping[str, Any]
States = TypeVar("States", bound=Section)


def slice_length_ms(span_ms: float) -> int:
    """Return the shortest round slice length, in milliseconds, with which `MOST_SLICES` slices cover the span."""
    longest = _LENGTHS_MS[-1]
    more = -(-int(span_ms) // MOST_SLICES // longest) * longest
    return next((length for length in _LENGTHS_MS if length * MOST_SLICES >= span_ms), more)


class Slices(msgspec.Struct, frozen=True):
    """The time slices of a replay, all of equal length.

    Attributes:
        begin_us: Start of the first slice, in microseconds since the Unix epoch.
        length_us: Length of each slice, in microseconds.
        count: The number of slices.
        end_us: End of the replay, in the last slice, in microseconds since the Unix epoch.
    """

    begin_us: int
    length_us: int
    count: int
    end_us: int

    @classmethod
    def of(cls, begin_us: int, end_us: int) -> "Slices":
        """Return slices for a replay, given its start and end in microseconds since the Unix epoch."""
        length_us = slice_length_ms((end_us - begin_us) / 1000) * 1000
        return cls(begin_us, length_us, max(1, -(-(end_us - begin_us) // length_us)), end_us)

    @property
    def length_s(self) -> float:
        return self.length_us / 1e6

    @property
    def end_s(self) -> float:
        """End of the replay, in seconds from the start of the first slice."""
        return (self.end_us - self.begin_us) / 1e6

    def first_from(self, at_us: int) -> int | None:
        """Return the first slice that does not begin before a time; None if that is after the end."""
        index = max(0, -(-(at_us - self.begin_us) // self.length_us))
        return index if index < self.count else None

    def column(self, rows: Iterable[Row], name: str) -> Series:
        """Return a column as a list with a value per slice, from rows with a `slice` number."""
        found: Series = [None] * self.count
        for row in rows:
            if row["slice"] is not None and 0 <= row["slice"] < self.count:
                found[row["slice"]] = row[name]
        return found

    def counts(self, rows: Iterable[Row], name: str) -> list[int]:
        """Return a column of counts as a list with a value per slice, 0 for slices without a row."""
        return [int(count or 0) for count in self.column(rows, name)]

    def averages(self, changes: Iterable[Row], at_first: float) -> list[float]:
        """Return the time average of a changing number in each slice.

        Args:
            changes: Rows with a `slice`, the total `change` of the number in it, and `part`: the sum of the changes,
                each weighted with the share of the slice that follows it.
            at_first: The number before all changes.
        """
        change, part, level = [0.0] * self.count, [0.0] * self.count, at_first
        for row in changes:
            if row["slice"] < 0:
                level += row["change"]
            elif row["slice"] < self.count:
                change[row["slice"]] += row["change"]
                part[row["slice"]] += row["part"]
        found = []
        for index in range(self.count):
            found.append(round(level + part[index], 2))
            level += change[index]
        return found


def latencies_over_time(slices: Slices, rows: Sequence[Row]) -> list[RequestsOverTime]:
    """Return rates and latencies by API and source.

    Args:
        slices: The time slices.
        rows: Rows with `api`, `source`, `slice`, `requests` and quantiles, grouped by API and source.
    """
    found = []
    for (api, source), group in groupby(rows, key=itemgetter("api", "source")):
        of_api = list(group)
        numbers = RequestsOverTime(
            api,
            source,
            [round(number / slices.length_s, 2) for number in slices.counts(of_api, "requests")],
            slices.column(of_api, "p50_ms"),
            slices.column(of_api, "p99_ms"),
        )
        found.append(numbers)
    return found


def states_over_time(slices: Slices, rows: Sequence[Row], states: type[States], count: int) -> States:
    """Return the average number of groups, or members, in each state by slice.

    Args:
        slices: The time slices.
        rows: Rows for `Slices.averages` with a `state`.
        states: The type of the result; its fields are the states. Initially all groups or members are in the last
            state.
        count: Total number of groups or members.
    """
    *_, initial = names = states.__struct_fields__
    return states(
        *(slices.averages((row for row in rows if row["state"] == name), count * (name == initial)) for name in names)
    )
