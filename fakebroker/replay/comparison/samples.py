"""Counts of requests and rebalances by part of a run, from which `compare` estimates noise: `samples.parquet`.

A run is divided in two ways: into the time slices of `over_time`, and into 32 parts of its groups. The number of rows
does not depend on the number of events. Does not depend on Spark.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from fakebroker.errors import ConfigError

GROUP_PARTS = 32
"""Number of parts into which the groups are divided, by a hash of their ids."""

BUCKET_RATIO = 1.02
"""Upper divided by lower bound of a bucket of latencies or durations: the middle of a bucket is accurate to 1 %."""

SCHEMA = pa.schema(
    [
        pa.field("division", pa.string(), nullable=False),
        pa.field("part", pa.int32(), nullable=False),
        pa.field("kind", pa.string(), nullable=False),
        pa.field("api", pa.string()),
        pa.field("source", pa.string()),
        pa.field("broker", pa.int32()),
        pa.field("population", pa.string()),
        pa.field("error", pa.int16()),
        pa.field("missing", pa.string()),
        pa.field("bucket", pa.int32()),
        pa.field("n", pa.int64(), nullable=False),
    ]
)


class Sample(NamedTuple):
    """A row of `samples.parquet`.

    Attributes:
        division: "time": parts are the time slices of `over_time`; "groups": parts are sets of groups.
        part: Number of the part, from 0. Requests are in the slice in which they were sent, rebalances in the slice in
            which they began.
        kind: "request", "rebalance" (a generation, as in `rebalances`), "unassigned" (time of members that run without
            an assignment; only by groups) or "unassigned partition" (time of partitions that no member has; only by
            groups).
        api: The API of requests.
        source: What sent them, as in `events.parquet`.
        broker: Node id of the broker of requests; only by groups.
        population: Name of the population of rebalances, unassigned members and partitions; only by groups.
        error: Error code in the responses; null without a response.
        missing: Why there is no response, as in `events.parquet`.
        bucket: Latency of requests or duration of rebalances: from 1.02^bucket to 1.02^(bucket + 1) µs. Null without
            a response, or without an assignment.
        n: Number of requests or rebalances; for "unassigned" and "unassigned partition", microseconds.
    """

    division: str
    part: int
    kind: str
    api: str | None
    source: str | None
    broker: int | None
    population: str | None
    error: int | None
    missing: str | None
    bucket: int | None
    n: int


def bucket_sql(column: str) -> str:
    """Return SQL for the bucket of a column of microseconds; null stays null."""
    return f"if({column} is null, null, int(floor(ln(greatest({column}, 1)) / ln({BUCKET_RATIO}))))"


def write_samples(path: Path, samples: pa.Table) -> None:
    """Write rows as in `Sample`, in any order."""
    pq.write_table(samples.cast(SCHEMA).sort_by([(name, "ascending") for name in SCHEMA.names]), path)


class Samples:
    """The rows of `samples.parquet` as arrays, from which counts by part are selected."""

    def __init__(self, table: pa.Table) -> None:
        names = [name for name in SCHEMA.names if name != "n"]
        self._columns = {name: table[name].to_numpy() for name in names}
        for name in ("division", "kind", "api", "source", "population", "missing"):
            self._columns[name] = self._columns[name].astype(str)  # faster to compare than objects
        self._counts = table["n"].to_numpy().astype(np.float64)
        self._time = self._columns["division"] == "time"
        part = self._columns["part"]
        # Requests of the first moments may be in slice -1.
        self._part = np.maximum(part, 0)
        self.slices = int(self._part[self._time].max(initial=-1)) + 1

    @classmethod
    def read(cls, path: Path) -> "Samples":
        """Return the samples of a file.

        Raises:
            ConfigError: The file has other columns, or is not a Parquet file.
        """
        expected = f"a Parquet file with the columns {', '.join(SCHEMA.names)}"
        try:
            table = pq.read_table(path)
        except (pa.ArrowInvalid, OSError) as error:
            raise ConfigError(f"{path}: expected {expected}: {error}") from None
        if table.schema.names != SCHEMA.names:
            raise ConfigError(f"{path}: expected {expected}; it has {', '.join(table.schema.names)}")
        return cls(table)

    def column(self, name: str) -> NDArray[Any]:
        """Return the values of a column; numbers are NaN where they are null."""
        return np.asarray(self._columns[name])

    def select(self, division: str, where: Callable[["Samples"], NDArray[np.bool_]]) -> "Selection":
        """Return the rows of a division for which a condition holds."""
        chosen = (self._time if division == "time" else ~self._time) & where(self)
        size = self.slices if division == "time" else GROUP_PARTS
        values = {name: self._columns[name][chosen] for name in ("bucket", "broker")}
        return Selection(self._part[chosen], self._counts[chosen], values, size)


def counted_by(name: str, selections: Sequence["Selection"]) -> tuple[NDArray[np.float64], list[NDArray[np.float64]]]:
    """Return the counts of selections by part and by bucket or broker.

    Args:
        name: "bucket" or "broker".
        selections: Selections in which at least one row has a value.

    Returns:
        The values that occur, in ascending order, and for each selection an array with a row for each part and a column
        for each of these values.
    """
    known = [~np.isnan(each.values[name]) for each in selections]
    values = np.unique(np.concatenate([each.values[name][mask] for each, mask in zip(selections, known, strict=True)]))
    counts = []
    for each, mask in zip(selections, known, strict=True):
        cells = each.part[mask] * len(values) + np.searchsorted(values, each.values[name][mask])
        found = np.bincount(cells, each.n[mask], each.size * len(values)).astype(np.float64)
        counts.append(found.reshape(each.size, len(values)))
    return values, counts


def lower_bounds_us(buckets: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the lower bounds of buckets in microseconds."""
    return np.asarray(BUCKET_RATIO**buckets)


class Selection(NamedTuple):
    """Selected rows of a division.

    Attributes:
        part: Number of the part of each row.
        n: The count of each row.
        values: The buckets and brokers of the rows.
        size: Number of parts.
    """

    part: NDArray[Any]
    n: NDArray[np.float64]
    values: dict[str, NDArray[Any]]
    size: int

    def totals(self) -> NDArray[np.float64]:
        """Return the count of each part, as one column."""
        return np.bincount(self.part, self.n, self.size).astype(np.float64).reshape(self.size, 1)
