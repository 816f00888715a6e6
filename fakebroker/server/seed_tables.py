"""Seeds of groups from tables with one row per committed offset, or per group without committed offsets.

Columns:
    group: The group id.
    topic, partition: A partition; both empty in a row without an offset.
    offset: The committed offset of the partition.
    lag: The distance of the committed offset from the end of the partition's log; instead of `offset`.
    members, generation, state, protocol: As in `GroupSeed`; equal or empty in all rows of a group.

Only `group` is required. Does not import pandas; imports pyarrow only to read Parquet files.
"""

from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module
from os import PathLike, fspath
from typing import Any, Protocol, runtime_checkable

from fakebroker.cluster.seed import GroupSeed
from fakebroker.errors import ConfigError, one_of

COLUMNS_OF_GROUPS = {"members": int, "generation": int, "state": str, "protocol": str}
"""Columns that are fields of `GroupSeed`, with their types; `FakeCluster.seed_groups` documents them."""
_COLUMNS = ("group", "topic", "partition", "offset", "lag", *COLUMNS_OF_GROUPS)


@runtime_checkable
class PandasTable(Protocol):
    """The part of `pandas.DataFrame` that is used."""

    def to_dict(self, orient: Any = ..., /) -> Any: ...


@runtime_checkable
class ArrowTable(Protocol):
    """The part of `pyarrow.Table` that is used."""

    def to_pydict(self) -> Any: ...


Table = PandasTable | ArrowTable


def seeds_from(source: Iterable[GroupSeed] | Table | str | PathLike[str]) -> list[GroupSeed]:
    """Return the seeds of a sequence, of a table, or of a Parquet file.

    Args:
        source: Seeds, a table, or the path of a Parquet file.

    Raises:
        ConfigError: The file does not exist, or pyarrow is not installed; or a column or value is invalid.
    """
    if isinstance(source, str | PathLike):
        source = _read_parquet(source)
    if isinstance(source, ArrowTable):
        return _seeds_of(source.to_pydict())
    if isinstance(source, PandasTable):
        return _seeds_of(source.to_dict("list"))
    if not isinstance(source, Iterable):
        raise ConfigError.of("groups", source, "a list of GroupSeed, a table, or the path of a Parquet file")
    return list(source)


def _read_parquet(path: str | PathLike[str]) -> ArrowTable:
    try:
        parquet = import_module("pyarrow.parquet")
    except ImportError:
        raise ConfigError("reading Parquet needs pyarrow: pip install pyarrow") from None
    try:
        table: ArrowTable = parquet.read_table(path)
    except (OSError, ValueError) as error:
        raise ConfigError.of("groups", fspath(path), f"a Parquet file: {error}") from None
    return table


def _seeds_of(columns: Mapping[str, Sequence[Any]]) -> list[GroupSeed]:
    """Return the groups of a table, in the order of their first rows."""
    unknown = [name for name in columns if name not in _COLUMNS]
    if unknown:
        expected = one_of(_COLUMNS, unknown[0])
        raise ConfigError(f"{unknown[0]}: unknown column; expected {expected}", field=unknown[0], expected=expected)
    if "group" not in columns:
        raise ConfigError.missing("group", "a column 'group'")
    drafts: dict[str, _Draft] = {}
    for number, values in enumerate(zip(*columns.values(), strict=True), 1):
        row = {name: value for name, value in zip(columns, values, strict=True) if not _is_missing(value)}
        if "group" not in row:
            raise ConfigError.missing("group", "a group id", where=f"row {number}")
        drafts.setdefault(str(row["group"]), _Draft()).add(row, number)
    return [draft.seed(group_id) for group_id, draft in drafts.items()]


def _is_missing(value: Any) -> bool:
    """Return whether a value is missing: None in pyarrow, NaN in pandas, which does not equal itself."""
    return value is None or bool(value != value)


class _Draft:
    """Collects the rows of one group."""

    def __init__(self) -> None:
        self._offsets: dict[tuple[str, int], int] = {}
        self._lags: dict[tuple[str, int], int] = {}
        self._group: dict[str, Any] = {}

    def add(self, row: Mapping[str, Any], number: int) -> None:
        """Add a row.

        Args:
            row: The values that are not missing, by column.
            number: Number of the row, from 1, for error messages.

        Raises:
            ConfigError: A value is invalid, or contradicts an earlier row of the group.
        """
        for name, kind in COLUMNS_OF_GROUPS.items():
            if name in row:
                value = _integer(row, name, number) if kind is int else str(row[name])
                if self._group.setdefault(name, value) != value:
                    expected = f"{self._group[name]!r}, as in earlier rows of group {row['group']!r}"
                    raise ConfigError.of(name, value, expected, where=f"row {number}")
        if "topic" not in row and "partition" not in row:
            return
        given = [name for name in ("offset", "lag") if name in row]
        if "topic" not in row or "partition" not in row or len(given) != 1:
            raise ConfigError(f"row {number}: expected topic, partition, and offset or lag, not {', '.join(row)}")
        partition = str(row["topic"]), _integer(row, "partition", number)
        values = self._offsets if given == ["offset"] else self._lags
        values[partition] = _integer(row, given[0], number)

    def seed(self, group_id: str) -> GroupSeed:
        """Return the seed of the group."""
        return GroupSeed(group_id=group_id, offsets=self._offsets, lag=self._lags, **self._group)


def _integer(row: Mapping[str, Any], name: str, number: int) -> int:
    """Return an integer of a row. pandas converts a column of integers to floats if values are missing."""
    try:
        value = int(row[name])
        is_whole = value == float(row[name])
    except (TypeError, ValueError, OverflowError):
        is_whole = False
    if not is_whole:
        raise ConfigError.of(name, row[name], "an integer", where=f"row {number}")
    return value
