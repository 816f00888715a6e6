"""Seeds of groups from tables. A row describes a committed offset of a group, a member of it, both, or only the group.

Columns are named like the fields of `GroupSeed` and `MemberSeed`:
    group_id: The group id.
    topic, partition: A partition; both empty in a row without an offset.
    offset: The committed offset of the partition.
    lag: The number of records after the committed offset; instead of `offset` or in addition.
    client_id, instance_id: A member, by client id, by instance id or both; instead of `members`.
    topics: The topics that the members subscribe to: a list, or names separated by commas.
    members, generation, state, protocol, type: As in `GroupSeed`.

Only `group_id` is required. `topics` and the columns after it are equal or empty in all rows of a group.

Does not import pandas; imports pyarrow only to read Parquet files.
"""

from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module
from os import PathLike, fspath
from typing import Any, Protocol, runtime_checkable

from fakebroker.cluster.seeding.seed import GroupSeed, MemberSeed
from fakebroker.errors import ConfigError, one_of

COLUMNS_OF_GROUPS = {"topics": list, "members": int, "generation": int, "state": str, "protocol": str, "type": str}
"""Columns that are fields of `GroupSeed`, with their types; `FakeCluster.seed_groups` documents them."""
COLUMNS_OF_MEMBERS = ("client_id", "instance_id")
"""Columns that are fields of `MemberSeed`; all of them are strings."""
_COLUMNS = ("group_id", "topic", "partition", "offset", "lag", *COLUMNS_OF_MEMBERS, *COLUMNS_OF_GROUPS)


@runtime_checkable
class PandasTable(Protocol):
    """The part of `pandas.DataFrame` that is used."""

    def to_dict(self, orient: Any = ..., /) -> Any: ...


@runtime_checkable
class ArrowTable(Protocol):
    """The part of `pyarrow.Table` that is used."""

    def to_pydict(self) -> Any: ...


Table = PandasTable | ArrowTable
Seeds = Iterable[GroupSeed | Mapping[str, Any]] | Table | str | PathLike[str]
"""What `FakeCluster.seed_groups` accepts."""


def seeds_from(source: Seeds) -> list[Any]:
    """Return the seeds of a sequence, which are not validated; or of a table, or of a Parquet file.

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
    if not isinstance(source, Iterable) or isinstance(source, Mapping | bytes):
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


def _seeds_of(columns: Mapping[Any, Sequence[Any]]) -> list[GroupSeed]:
    """Return the groups of a table, in the order of their first rows."""
    for name in columns:
        if name not in _COLUMNS:
            expected = "group_id, the name of this column" if name == "group" else one_of(_COLUMNS, name)
            raise ConfigError(f"{name}: unknown column; expected {expected}", field=str(name), expected=expected)
    if "group_id" not in columns:
        raise ConfigError.missing("group_id", "a column 'group_id'")
    drafts: dict[str, _Draft] = {}
    for number, values in enumerate(zip(*columns.values(), strict=True), 1):
        row = {name: value for name, value in zip(columns, values, strict=True) if not _is_missing(value)}
        if "group_id" not in row:
            raise ConfigError.missing("group_id", "a group id", where=f"row {number}")
        group_id = _text(row, "group_id", number)
        drafts.setdefault(group_id, _Draft(group_id)).add(row, number)
    return [draft.seed() for draft in drafts.values()]


def _is_missing(value: Any) -> bool:
    """Return whether a value is missing: None in pyarrow; in pandas NaN, which does not equal itself, or NA."""
    if value is None:
        return True
    try:
        return bool(value != value)
    except TypeError:  # pandas.NA has no truth value
        return True
    except ValueError:  # an array
        return False


class _Draft:
    """Collects the rows of one group."""

    def __init__(self, group_id: str) -> None:
        self._group_id = group_id
        self._offsets: dict[tuple[str, int], int] = {}
        self._lags: dict[tuple[str, int], int] = {}
        self._members: dict[tuple[tuple[str, str], ...], MemberSeed] = {}
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
                self._set(self._group, name, name, _READ[kind](row, name, number), number)
        member: dict[str, Any] = {name: _text(row, name, number) for name in COLUMNS_OF_MEMBERS if name in row}
        if member:
            if "members" in self._group:
                expected = f"no {' and '.join(COLUMNS_OF_MEMBERS)} in the same group"
                raise ConfigError.of("members", self._group["members"], expected, where=f"row {number}")
            self._members[tuple(member.items())] = MemberSeed(**member)
        if "topic" not in row and "partition" not in row and "offset" not in row and "lag" not in row:
            return
        given = {"offset": self._offsets, "lag": self._lags}
        if "topic" not in row or "partition" not in row or not row.keys() & given.keys():
            raise ConfigError(f"row {number}: expected topic, partition, and offset or lag, not {', '.join(row)}")
        partition = _text(row, "topic", number), _integer(row, "partition", number)
        for name, values in given.items():
            if name in row:
                self._set(values, partition, name, _integer(row, name, number), number)

    def _set(self, values: dict[Any, Any], key: object, name: str, value: object, number: int) -> None:
        if values.setdefault(key, value) != value:
            expected = f"{values[key]!r}, as in earlier rows of group {self._group_id!r}"
            raise ConfigError.of(name, value, expected, where=f"row {number}")

    def seed(self) -> GroupSeed:
        """Return the seed of the group."""
        members = {"members": list(self._members.values())} if self._members else {}
        return GroupSeed(group_id=self._group_id, offsets=self._offsets, lag=self._lags, **self._group | members)


def _integer(row: Mapping[str, Any], name: str, number: int) -> int:
    """Return an integer of a row. pandas converts a column of integers to floats if values are missing."""
    try:
        value = int(row[name])
        is_whole = value == row[name] and not isinstance(row[name], bool)
    except (TypeError, ValueError, OverflowError):
        is_whole = False
    if not is_whole:
        raise ConfigError.of(name, row[name], "an integer", where=f"row {number}")
    return value


def _text(row: Mapping[str, Any], name: str, number: int) -> str:
    """Return a string of a row."""
    value = row[name]
    if not isinstance(value, str):
        raise ConfigError.of(name, value, "a string", where=f"row {number}")
    return value


def _texts(row: Mapping[str, Any], name: str, number: int) -> list[str]:
    """Return a list of strings of a row, which may be one string with commas."""
    value = row[name]
    if isinstance(value, str):
        return [each.strip() for each in value.split(",")]
    if not isinstance(value, Iterable) or not all(isinstance(each, str) for each in value):
        expected = "a list of strings, or one string with commas"
        raise ConfigError.of(name, value, expected, where=f"row {number}")
    return list(value)


_READ = {int: _integer, str: _text, list: _texts}
