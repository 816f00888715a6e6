"""The rows of `runs.parquet`: one for each run, with its measurements."""

import types
import typing
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

import msgspec
import pyarrow as pa
from pyarrow import dataset

from fakebroker.lab.measures import RunResult
from fakebroker.lab.study.plan import RunKey

RUNS = "runs.parquet"

_TYPES: Mapping[Any, pa.DataType] = {int: pa.int64(), float: pa.float64(), str: pa.string(), bool: pa.bool_()}


class RunRow(msgspec.Struct, frozen=True, kw_only=True):
    """A row.

    Attributes:
        design: Name of the design.
        scenario: Name of the scenario.
        seed: The seed.
        cpu_s: CPU time of the run, in seconds: the only column that differs between equal studies.
        error: Why the run failed, as a traceback; none if it did not.
        result: The measurements; none if the run failed.
    """

    design: str
    scenario: str
    seed: int
    cpu_s: float
    error: str | None
    result: RunResult | None

    @property
    def key(self) -> RunKey:
        """The run."""
        return RunKey(self.design, self.scenario, self.seed)


def _arrow_type(hint: Any) -> pa.DataType:
    """Return the Arrow type of a field."""
    if get_origin(hint) in (typing.Union, types.UnionType):
        (hint,) = (option for option in get_args(hint) if option is not type(None))
    if get_origin(hint) is list:
        return pa.list_(_arrow_type(get_args(hint)[0]))
    if hint in _TYPES:
        return _TYPES[hint]
    return pa.struct(list(_arrow_fields(hint)))


def _arrow_fields(struct: type[msgspec.Struct]) -> Iterable[pa.Field]:
    return (pa.field(name, _arrow_type(hint)) for name, hint in get_type_hints(struct).items())


SCHEMA: pa.Schema = pa.schema(list(_arrow_fields(RunRow)))


def batch_of(rows: Iterable[RunRow]) -> pa.RecordBatch:
    """Return rows as Arrow data."""
    return pa.RecordBatch.from_pylist([msgspec.to_builtins(row) for row in rows], schema=SCHEMA)


def read_rows(directory: Path) -> list[RunRow]:
    """Return the rows of a study, ordered by scenario, design and seed."""
    files = sorted((directory / RUNS).glob("*.parquet"))
    found = dataset.dataset(files, schema=SCHEMA, format="parquet").to_table().to_pylist() if files else []
    rows = [msgspec.convert(row, RunRow) for row in found]
    return sorted(rows, key=lambda row: (row.scenario, row.design, row.seed))
