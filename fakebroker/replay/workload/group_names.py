"""Reads names of groups from a Parquet or CSV file."""

from collections import Counter
from pathlib import Path

import pyarrow as pa
from pyarrow import csv, parquet

from fakebroker.errors import ConfigError


def names_in(path: Path, column: str) -> list[str]:
    """Return the names of groups in a file, in their order.

    Raises:
        ConfigError: The file cannot be read, lacks the column, has no name, an empty one, or one twice.
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
    """Read a whole file: Parquet if its name ends in `.parquet`, else CSV with a header line."""
    is_parquet = path.suffix == ".parquet"
    try:
        with path.open("rb") as opened:
            return parquet.ParquetFile(opened).read() if is_parquet else csv.read_csv(opened)
    except pa.ArrowException as error:
        message, kind = str(error).partition("\n")[0].rstrip("."), "Parquet" if is_parquet else "CSV"
        raise ConfigError(f"file {str(path)!r} cannot be read as {kind}: {message}") from None
    except OSError as error:
        raise ConfigError(f"file {str(path)!r} cannot be read: {error.strerror or error}") from None
