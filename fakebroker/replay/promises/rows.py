"""Converts rows of events to the requests that observers see. Does not depend on Spark."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from fakebroker.replay.promises.observer import Request

_COLUMNS = [name for name in Request._fields if name not in ("done_us", "row")]

Coordinators = Sequence[tuple[int, int, bool]]
"""Of a FindCoordinator, for one group: node, error, and whether the group is looked up again."""


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


def keyed(table: pa.Table) -> Iterator[tuple[str | None, Request, Coordinators]]:
    """Yield each row of a table of events with the group that it is about, and its coordinators of this group.

    A FindCoordinator comes once for each group in its response. Rows of the reader that are about no group have its
    name as the group.
    """
    found_of = _values(table.column("found")) if table.num_rows else []
    for request, found in zip(requests_of(table), found_of, strict=True):
        if found:
            by_key: dict[str, list[tuple[int, int, bool]]] = {}
            for key, node, error, again in found:
                by_key.setdefault(key, []).append((node, error, again))
            for place, (key, coordinators) in enumerate(by_key.items()):
                yield key, request if place == 0 else request._replace(count=0), coordinators
        else:
            yield request.group or (request.member_id if request.api == "Fetch" else None), request, ()


def order(request: Request) -> tuple[int, str, int]:
    """Return the place of a row of a group: by when it was sent, actions first."""
    return request.sent_us, request.kind, 2**62 if request.done_us is None else request.done_us


def event_of(request: Request) -> Mapping[str, Any]:
    """Return a request as an event of `events.parquet`, as plain data."""
    row = (request.row or request)._asdict()
    row["offsets"] = row["offsets"] and [{"partition": name, "offset": offset} for name, offset in row["offsets"]]
    if row["transaction"] is not None:
        names = ("producer_id", "epoch", "number", "committed")
        row["transaction"] = dict(zip(names, row["transaction"], strict=True))
    del row["done_us"], row["row"]
    return row
