"""The tables in scenarios/runs.md have every key of a summary and every column of the events: `make rewrite`."""

import re
from pathlib import Path

from fakebroker.replay.members.events import SCHEMA
from fakebroker.replay.run_schema import Key, event_columns, summary_keys
from fakebroker.replay.run_summary import SUMMARY_VERSION, document_of, summary_of
from tests.documents.test_readme import table
from tests.support.replay.summaries import summary_document

RUNS = Path(__file__).parent.parent.parent / "scenarios" / "runs.md"


def rewritten(text: str) -> str:
    """Return the document with generated tables."""
    for name, head, keys in (("summary", "key", summary_keys()), ("events", "column", event_columns())):
        rows = table((head, "type", "unit", "meaning"), *map(_row, keys))
        text, count = re.subn(f"(<!-- {name} -->\n).*(<!-- /{name} -->)", rf"\g<1>{rows}\n\2", text, flags=re.DOTALL)
        assert count == 1, f"{RUNS}: no lines <!-- {name} --> and <!-- /{name} -->"
    return text


def _row(key: Key) -> tuple[str, ...]:
    return f"`{key.name}`", key.type, key.unit, key.meaning.removesuffix(".")


def test_the_tables_are_up_to_date() -> None:
    assert RUNS.read_text() == rewritten(RUNS.read_text()), "run `make rewrite`"


def test_every_key_of_a_summary_has_a_description() -> None:
    assert all(key.meaning and key.type for key in summary_keys())
    names = [key.name for key in summary_keys()]
    assert len(names) == len(set(names))
    assert {re.split(r"[.[]", name)[0] for name in names} == set(summary_document(1))


def test_a_summary_is_read_and_written_without_loss() -> None:
    document = summary_document(1)
    assert document_of(summary_of(document)) == document
    assert document["version"] == SUMMARY_VERSION


def test_every_column_of_the_events_has_a_description() -> None:
    assert [column.name for column in event_columns()] == SCHEMA.names
    assert all(column.meaning and column.type for column in event_columns())


if __name__ == "__main__":
    RUNS.write_text(rewritten(RUNS.read_text()))
