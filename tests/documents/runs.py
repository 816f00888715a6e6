"""The keys of `summary.json` and the columns of the Parquet files, from their descriptions."""

from tests.documents.markdown import table
from tests.documents.run_schema import Key, event_columns, summary_keys, violation_columns


def summary() -> str:
    return table(("key", "type", "unit", "meaning"), map(_row, summary_keys()))


def events() -> str:
    return table(("column", "type", "unit", "meaning"), map(_row, event_columns()))


def violations() -> str:
    return table(("column", "type", "unit", "meaning"), map(_row, violation_columns()))


def _row(key: Key) -> tuple[str, ...]:
    return f"`{key.name}`", key.type, key.unit, key.meaning.removesuffix(".")
