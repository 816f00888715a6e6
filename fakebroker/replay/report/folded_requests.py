"""Divides rows of folded requests into time slices. Does not depend on Spark.

Such a row lasts for many slices: in Spark SQL it would become a row for each of them.
"""

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

_BY = ("api", "source", "error", "missing", "key")

DDL = "api string, source string, error smallint, missing string, key double, slice bigint, n bigint, max_us bigint"
"""The columns of `in_slices`, for Spark."""


def batches_in_slices(batches: Iterable[pa.RecordBatch], slice_us: int) -> Iterator[pa.RecordBatch]:
    """Yield the results of `in_slices` for each batch."""
    for batch in batches:
        yield from in_slices(pa.Table.from_batches([batch]), slice_us).to_batches()


def in_slices(folded: pa.Table, slice_us: int) -> pa.Table:
    """Return the numbers of requests (`n`) and the longest latencies (`max_us`) by slice and by the columns in `_BY`.

    Args:
        folded: Rows with these columns that each stand for `count` requests, evenly spaced from `since_us` to
            `last_us`; `latency_us` is their longest latency, null without responses.
        slice_us: Length of a slice, in microseconds.
    """
    code = np.zeros(len(folded), np.int64)
    for name in _BY:
        encoded = pc.dictionary_encode(folded[name].combine_chunks(), null_encoding="encode")
        code = code * len(encoded.dictionary) + encoded.indices.to_numpy()
    order = np.argsort(code, kind="stable")
    rows = folded.take(order)
    _, firsts = np.unique(code[order], return_index=True)  # the first row of each combination
    since_us, last_us, count = (rows[name].to_numpy() for name in ("since_us", "last_us", "count"))
    longest_us = pc.fill_null(rows["latency_us"], -1).to_numpy()
    slices = range(int(since_us.min()) // slice_us, int(last_us.max()) // slice_us + 1) if len(rows) else range(0)
    parts, earlier = [np.zeros((4, 0), np.int64)], np.zeros(len(rows), np.int64)
    for index in slices:
        until = _sent_before((index + 1) * slice_us, since_us, last_us, count)
        n, earlier = until - earlier, until
        totals = np.add.reduceat(n, firsts)
        max_us = np.maximum.reduceat(np.where(n > 0, longest_us, -1), firsts)
        (found,) = totals.nonzero()
        parts.append(np.stack([firsts[found], np.full(len(found), index), totals[found], max_us[found]]))
    first, number, total, longest = np.concatenate(parts, axis=1)
    columns = [rows[name].combine_chunks().take(pa.array(first)) for name in _BY]
    columns += [pa.array(number), pa.array(total), pa.array(longest, mask=longest < 0)]
    return pa.Table.from_arrays(columns, names=[*_BY, "slice", "n", "max_us"])


def _sent_before(
    at_us: int, since_us: NDArray[np.int64], last_us: NDArray[np.int64], count: NDArray[Any]
) -> NDArray[np.int64]:
    """Return the number of requests of each row that were sent before a time."""
    step_us = (last_us - since_us) / np.maximum(count - 1, 1)
    begun = np.ceil((at_us - since_us) / np.where(step_us > 0, step_us, 1))
    return np.where(step_us > 0, np.clip(begun, 0, count), np.where(since_us < at_us, count, 0)).astype(np.int64)
