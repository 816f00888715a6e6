"""The names of a workload's groups: reads them from Parquet and CSV files, and recognizes them."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow as pa
from pyarrow import csv, parquet

from fakebroker.errors import ConfigError, one_of
from fakebroker.replay.workload.population import Groups


def names_in(path: Path, column: str) -> list[str]:
    """Return the names of groups in a file, in the order of its rows.

    Raises:
        ConfigError: The file cannot be read, has no such column or no rows, or a name is empty or not unique.
    """
    table = _table(path)
    if column not in table.column_names:
        expected = f"a column of {str(path)!r}, {one_of(table.column_names, column)}"
        raise ConfigError.of("from_column", column, expected)
    names = ["" if name is None else str(name) for name in table[column].to_pylist()]
    if not names:
        raise ConfigError.of("from_file", str(path), "at least one row")
    if "" in names:
        raise ConfigError.of("from_file", str(path), f"a name in each row; row {names.index('') + 1} has none")
    if len(set(names)) < len(names):
        repeated, _ = Counter(names).most_common(1)[0]
        raise ConfigError.of("from_file", str(path), f"unique names; {repeated!r} is repeated")
    return names


def names_of(population: Groups, names: Iterable[str]) -> Iterator[str]:
    """Yield the names that belong to groups of a population."""
    if population.from_file is not None:
        own = set(names_in(Path(population.from_file), population.from_column)[: population.count])
        yield from (name for name in names if name in own)
        return
    # The numbers have leading zeros; a second number moves a group to a hot partition.
    number = rf"([0-9]{{{len(str(population.group_count - 1))}}}){'(?:-[0-9]+)?' if population.hot_partitions else ''}"
    pattern = re.compile(number.join(map(re.escape, population.name_pattern.split("{}"))))
    for name in names:
        if (found := pattern.fullmatch(name)) and all(int(each) < population.group_count for each in found.groups()):
            yield name


def _table(path: Path) -> pa.Table:
    """Read a file: Parquet if its name ends in `.parquet`, else CSV with a header line."""
    is_parquet = path.suffix == ".parquet"
    try:
        with path.open("rb") as opened:
            return parquet.ParquetFile(opened).read() if is_parquet else csv.read_csv(opened)
    except pa.ArrowException as error:
        message, kind = str(error).partition("\n")[0].rstrip("."), "Parquet" if is_parquet else "CSV"
        raise ConfigError.of("from_file", str(path), f"a {kind} file: {message}") from None
    except OSError as error:
        raise ConfigError.of("from_file", str(path), f"a file that can be read: {error.strerror or error}") from None
