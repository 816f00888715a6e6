"""The files of `events.parquet`: what is kept when a task is killed at any moment, fails, or is attempted twice."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from fakebroker.replay.members.event_recorder import batch_of
from fakebroker.replay.members.events import SCHEMA, Event
from fakebroker.replay.spark import event_files
from fakebroker.replay.spark.event_files import EventFiles, complete_events, has_events

NONE = batch_of([])


def event(number: int, count: int = 1) -> Event:
    return Event(number, number, 1, "Heartbeat", 4, 1, "group", "member", 1, 0, count=count, assigned=["orders-0"])


def numbers(directory: Path) -> list[int]:
    """Return the numbers of all events in the complete files."""
    table = pq.read_table(directory, schema=SCHEMA)
    return sorted(table.column("scheduled_us").to_pylist())


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def test_a_task_that_ends_leaves_one_complete_file(tmp_path: Path) -> None:
    with EventFiles(tmp_path, 3, has_journal=True) as files:
        files.write([batch_of([event(1), event(2)])])
        files.end_part(batch_of([event(3)]))
        assert names(tmp_path) == ["_part-00003-0-00000.journal"]
        files.write([batch_of([event(3, count=5)])])
        files.complete()
    assert files.rows == 3
    assert names(tmp_path) == ["part-00003-0-00000.parquet"]
    complete_events(tmp_path)
    assert numbers(tmp_path) == [1, 2, 3]
    assert pq.read_table(tmp_path).schema.equals(SCHEMA)


def test_a_task_without_events_leaves_no_file(tmp_path: Path) -> None:
    with EventFiles(tmp_path / "events", 0, has_journal=True) as files:
        files.complete()
    assert names(tmp_path / "events") == []


def test_complete_parts_are_kept_with_the_last_open_rows(tmp_path: Path) -> None:
    with EventFiles(tmp_path, 0, has_journal=True) as files:
        files.write([batch_of([event(1)]), batch_of([event(2)])])
        files.end_part(batch_of([event(10, count=1)]))
        files.write([batch_of([event(3)])])
        files.end_part(batch_of([event(10, count=2), event(11)]))
        files.write([batch_of([event(10, count=3)])])  # the part does not end
    assert has_events(tmp_path)
    complete_events(tmp_path)
    assert numbers(tmp_path) == [1, 2, 3, 10, 11]
    assert max(pq.read_table(tmp_path).column("count").to_pylist()) == 2
    complete_events(tmp_path)
    assert names(tmp_path) == ["part-00000-0-00000.parquet"]


def test_a_journal_that_ends_anywhere_is_read_up_to_its_last_part(tmp_path: Path) -> None:
    whole = tmp_path / "whole"
    with EventFiles(whole, 0, has_journal=True) as files:
        for number in range(5):
            files.write([batch_of([event(number)])])
            files.end_part(NONE)
    (journal,) = whole.iterdir()
    content, counts = journal.read_bytes(), list[int]()
    for size in range(0, len(content) + 1, 500):
        cut = tmp_path / str(size)
        cut.mkdir()
        (cut / journal.name).write_bytes(content[:size])
        assert has_events(cut) == (size > 0 and bool(list(event_files._parts(cut / journal.name))))
        complete_events(cut)
        counts.append(len(numbers(cut)))
        assert numbers(cut) == list(range(counts[-1]))
    assert counts == sorted(counts)
    assert (counts[0], counts[-1]) in {(0, 4), (0, 5)}


def test_a_long_run_begins_another_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_files, "_ROWS_PER_FILE", 3)
    monkeypatch.setattr(event_files, "_ROWS_PER_GROUP", 2)
    with EventFiles(tmp_path, 0, has_journal=True) as files:
        for number in range(7):
            files.write([batch_of([event(number)])])
            files.end_part(batch_of([event(100)]))
    assert names(tmp_path) == [
        "_part-00000-0-00002.journal",
        "part-00000-0-00000.parquet",
        "part-00000-0-00001.parquet",
    ]
    complete_events(tmp_path)
    assert numbers(tmp_path) == [*range(7), 100]


def killed_after(step: str) -> str:
    """Return a program that begins a second file and is killed when it has called a function for the last time."""
    return f"""\
import os, signal
from pathlib import Path
from fakebroker.replay.spark import event_files
from tests.replay.test_event_files import batch_of, event

event_files._ROWS_PER_FILE, event_files._ROWS_PER_GROUP = 2, 1
files = event_files.EventFiles(Path("events"), 0, has_journal=True)
files.write([batch_of([event(0)])])
files.end_part(batch_of([event(100)]))
files.write([batch_of([event(1)])])
owner, name = {step}
original = getattr(owner, name)

def killed(*args, **options):
    original(*args, **options)
    os.kill(os.getpid(), signal.SIGKILL)

setattr(owner, name, killed)
files.end_part(batch_of([event(101)]))
"""


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        ('event_files._Journal, "write"', None),
        ('event_files._Journal, "end_part"', [0, 1, 101]),
        ('event_files._Journal, "close"', [0, 1, 101]),
        ('event_files._Journal, "__init__"', [0, 1, 101]),
        ('event_files.pq.ParquetWriter, "close"', [0, 1, 101]),
        ('Path, "replace"', [0, 1, 101]),
        ('Path, "unlink"', [0, 1, 101]),
    ],
)
def test_no_row_is_lost_or_doubled_by_a_kill_between_two_files(
    tmp_path: Path, step: str, expected: list[int] | None
) -> None:
    program = killed_after(step)
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, env={**os.environ, "PYTHONPATH": os.getcwd()}, check=False
    )
    assert done.returncode == (0 if expected is None else -signal.SIGKILL)
    complete_events(tmp_path / "events")
    assert numbers(tmp_path / "events") == (expected or [0, 1, 101])


def test_only_the_rows_of_the_last_attempt_are_kept(tmp_path: Path) -> None:
    with EventFiles(tmp_path, 0) as first, EventFiles(tmp_path, 1) as other:
        first.write([batch_of([event(1)])])
        first.complete()
        other.write([batch_of([event(50)])])
        other.complete()
        with EventFiles(tmp_path, 0, 1) as second:
            second.write([batch_of([event(2)])])
            second.complete()
        first.write([batch_of([event(3)])])  # Spark has lost it, but it still runs
        first.complete()
    complete_events(tmp_path)
    assert numbers(tmp_path) == [2, 50]
    assert names(tmp_path) == ["part-00000-1-00000.parquet", "part-00001-0-00000.parquet"]


def test_a_simulation_completes_files_in_intervals(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now_s)
    with EventFiles(tmp_path, 0) as files:
        for number, at_s in enumerate((100.5, 101.5, 102.5, 103.5)):
            now_s = at_s
            files.write([batch_of([event(number)])])
            files.complete_sometimes()
    assert numbers(tmp_path) == [0, 1, 2]
    complete_events(tmp_path)
    assert names(tmp_path) == ["part-00000-0-00000.parquet"]


@pytest.mark.parametrize("write", [lambda files: files.end_part(NONE), lambda files: files.complete()])
def test_a_full_disk_is_an_error_and_keeps_the_parts_before(
    tmp_path: Path, write: Callable[[EventFiles], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*args: Any, **options: Any) -> None:
        raise OSError(28, "No space left on device")

    with EventFiles(tmp_path, 0, has_journal=True) as files:
        files.write([batch_of([event(1)])])
        files.end_part(NONE)
        files.write([batch_of([event(2)])])
        monkeypatch.setattr(event_files._Journal, "end_part", full)
        monkeypatch.setattr(pq.ParquetWriter, "write_table", full)
        with pytest.raises(OSError, match="No space left"):
            write(files)
    monkeypatch.undo()
    complete_events(tmp_path)
    assert numbers(tmp_path) == [1]


def test_files_of_other_writers_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "part-00000-02265cd3-4e7e-4c54-8ff8-7d890a537bf8-c000.snappy.parquet").touch()
    (tmp_path / "_SUCCESS").touch()
    complete_events(tmp_path)
    assert len(names(tmp_path)) == 2
    assert not has_events(tmp_path)
    complete_events(tmp_path / "missing")
