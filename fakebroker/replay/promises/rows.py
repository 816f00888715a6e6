"""Converts rows of events to the requests that observers see. Does not depend on Spark."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from fakebroker.replay.promises.observer import Request

_COLUMNS = [name for name in Request._fields if name not in ("done_us", "row")]


def requests_of(batch: pa.RecordBatch | pa.Table) -> Iterator[Request]:
    """Yield the rows of a batch of events as requests."""
    columns = {name: _values(batch.column(name)) for name in _COLUMNS}
    done = pc.add(batch.column("scheduled_us"), batch.column("latency_us")).to_pylist()
    columns["done_us"] = done
    columns["row"] = [None] * len(done)
    return map(Request._make, zip(*(columns[name] for name in Request._fields), strict=True))


def _values(column: pa.Array | pa.ChunkedArray) -> Sequence[Any]:
    """Return the values of a column; a struct is a tuple."""
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    kind = column.type
    if column.null_count == len(column):
        return [None] * len(column)
    if pa.types.is_struct(kind):
        fields = [column.field(index).to_pylist() for index in range(kind.num_fields)]
        valid = column.is_valid().to_pylist()
        return [each if there else None for each, there in zip(zip(*fields, strict=True), valid, strict=True)]
    if pa.types.is_list(kind) and pa.types.is_struct(kind.value_type):
        values, ends = _values(column.values), column.offsets.to_pylist()
        valid = column.is_valid().to_pylist()
        return [
            list(values[start:end]) if there else None for start, end, there in zip(ends, ends[1:], valid, strict=False)
        ]
    return column.to_pylist()  # type: ignore[no-any-return]


def event_of(request: Request) -> Mapping[str, Any]:
    """Return a request as an event of `events.parquet`, as plain data."""
    row = (request.row or request)._asdict()
    columns: tuple[str, ...] = ("key", "node", "error", "again")
    row["found"] = row["found"] and [dict(zip(columns, each, strict=True)) for each in row["found"]]
    row["offsets"] = row["offsets"] and [{"partition": name, "offset": offset} for name, offset in row["offsets"]]
    if row["transaction"] is not None:
        names = ("producer_id", "epoch", "number", "committed")
        row["transaction"] = dict(zip(names, row["transaction"], strict=True))
    del row["done_us"], row["row"]
    return row
