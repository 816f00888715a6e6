"""Descriptions of the keys of a summary and of the columns of the events."""

import re

from fakebroker.replay.members.events import SCHEMA
from fakebroker.replay.run_summary import SUMMARY_VERSION, document_of, summary_of
from tests.documents.run_schema import event_columns, summary_keys
from tests.support.replay.summaries import summary_document


def test_every_key_of_a_summary_has_a_description() -> None:
    assert all(key.meaning and key.type for key in summary_keys())
    names = [key.name for key in summary_keys()]
    assert len(names) == len(set(names))
    assert {re.split(r"[.[]", name)[0] for name in names} == set(document_of(summary_of(summary_document(1))))


def test_a_summary_is_read_and_written_without_loss() -> None:
    document = document_of(summary_of(summary_document(1)))  # with the defaults
    assert document_of(summary_of(document)) == document
    assert document["version"] == SUMMARY_VERSION


def test_every_column_of_the_events_has_a_description() -> None:
    assert [column.name for column in event_columns()] == SCHEMA.names
    assert all(column.meaning and column.type for column in event_columns())
