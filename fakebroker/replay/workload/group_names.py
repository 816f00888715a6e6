"""Names of groups out of a Parquet or CSV file. Knows nothing of Spark."""

from collections import Counter
from pathlib import Path

import pyarrow as pa
from pyarrow import csv, parquet

from fakebroker.errors import ConfigError


def names_in(path: Path, column: str) -> list[str]:
    """The names of groups that stand in a file, in their order.

    Raises:
        ConfigError: It cannot be read, has no such column, no name at all, one that is empty, or one twice.
    """
    table = _table(path)
    if column not in table.column_names:
        columns = ", ".join(table.column_names)
        raise ConfigError(f"file {str(path)!r} has no column {column!r}: expected from_column to be one of {columns}")
    names = ["" if name is None else str(name) for name in table[column].to_pylist()]
    if not names:
        raise ConfigError(f"file {str(path)!r} has no rows: expected one group at least")
    if "" in names:
        raise ConfigError(f"file {str(path)!r}: expected a name in each row, got none in row {names.index('') + 1}")
    if len(set(names)) < len(names):
        twice, _ = Counter(names).most_common(1)[0]
        raise ConfigError(f"file {str(path)!r}: expected each group once, got {twice!r} again")
    return names


def _table(path: Path) -> pa.Table:
    """All of a file; of one whose name does not end in `.parquet`, as CSV with a head line."""
    is_parquet = path.suffix == ".parquet"
    try:
        with path.open("rb") as opened:
            return parquet.ParquetFile(opened).read() if is_parquet else csv.read_csv(opened)
    except pa.ArrowException as error:
        told, kind = str(error).partition("\n")[0].rstrip("."), "Parquet" if is_parquet else "CSV"
        raise ConfigError(f"file {str(path)!r} cannot be read as {kind}: {told}") from None
    except OSError as error:
        raise ConfigError(f"file {str(path)!r} cannot be read: {error.strerror or error}") from None
