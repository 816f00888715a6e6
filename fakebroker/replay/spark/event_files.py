"""The files of `events.parquet`. Tasks write them while they run, so that a killed replay loses few events.

A task writes files `part-TASK-ATTEMPT-NUMBER.parquet`. An unfinished Parquet file has no footer, so nothing can read
it. For this reason, a task over TCP also writes its rows to a journal. If the task is killed, the journal lacks only
the last second or two. The task removes the journal when the Parquet file is complete. `complete_events` converts the
journals of killed tasks. A simulation has no journal. It completes its file between two offsets partitions.

Spark and PyArrow ignore names that begin with an underscore. Does not depend on Spark.
"""

import re
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

import pyarrow as pa
import pyarrow.parquet as pq

from fakebroker.replay.members.events import SCHEMA

_ROWS_PER_GROUP = 65_536
"""Rows that a task keeps in memory before it writes them to its Parquet file, about 10 MiB."""

_ROWS_PER_FILE = 1_000_000
"""A task over TCP begins another file after this number of rows. This limits the journal to about 100 MiB."""

_COMPLETE_EVERY_S = 2.0
"""Shortest time between two completed files of a simulation."""

_OPEN_ROWS = {"rows": "open"}
"""Metadata of the batch in a journal that ends a part: rows that a later part replaces."""

_NAME = re.compile(r"_?part-(\d+)-(\d+)-(\d+)\.(?:parquet|journal|writing)")


class _File(NamedTuple):
    """One of the numbered files that an attempt of a task writes."""

    directory: Path
    task: int
    attempt: int
    number: int

    def _path(self, prefix: str, suffix: str) -> Path:
        return self.directory / f"{prefix}part-{self.task:05}-{self.attempt}-{self.number:05}.{suffix}"

    @property
    def parquet(self) -> Path:
        """The complete file."""
        return self._path("", "parquet")

    @property
    def writing(self) -> Path:
        """The Parquet file while it is being written."""
        return self._path("_", "writing")

    @property
    def journal(self) -> Path:
        """The journal: a stream of Arrow."""
        return self._path("_", "journal")


class _Journal:
    """A stream of Arrow batches in parts. Each part ends with a batch of open rows. The next part replaces them."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("wb")
        self._stream = pa.ipc.new_stream(self._file, SCHEMA, options=pa.ipc.IpcWriteOptions(compression="lz4"))

    def write(self, batch: pa.RecordBatch) -> None:
        self._stream.write_batch(batch)

    def end_part(self, open_rows: pa.RecordBatch) -> None:
        self._stream.write_batch(open_rows, custom_metadata=_OPEN_ROWS)
        self._file.flush()

    def close(self) -> None:
        self._file.close()


class EventFiles:
    """Writes the events of one attempt of a task. Use it as a context: at the end, it closes incomplete files.

    Args:
        directory: The directory of the events. The nodes of a Spark cluster share it.
        task: Number of the task.
        attempt: Number of the attempt. Files of earlier attempts of the task are removed.
        has_journal: Whether to write a journal.

    Attributes:
        rows: Number of rows written.

    Raises:
        OSError: A file cannot be written; also raised by the methods.
    """

    def __init__(self, directory: Path, task: int, attempt: int = 0, *, has_journal: bool = False) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.rows = 0
        self._file = _File(directory, task, attempt, 0)
        self._journal: _Journal | None = None
        self._parquet: pq.ParquetWriter | None = None
        self._waiting: list[pa.RecordBatch] = []  # for the next row group
        self._waiting_rows = self._file_rows = 0
        self._completed_s = time.monotonic()
        for _, path in _listed(directory, task):
            path.unlink(missing_ok=True)
        if has_journal:
            self._journal = _Journal(self._file.journal)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        with suppress(OSError):  # the disk is full, as the first error says
            if self._parquet is not None:
                self._parquet.close()
        with suppress(OSError):
            if self._journal is not None:
                self._journal.close()

    def write(self, batches: Iterable[pa.RecordBatch]) -> None:
        """Write rows. They survive a kill as soon as the next part of the journal, or the file, is complete."""
        for batch in batches:
            if self._journal is not None:
                self._journal.write(batch)
            self.rows += batch.num_rows
            self._file_rows += batch.num_rows
            self._waiting_rows += batch.num_rows
            self._waiting.append(batch)
            if self._waiting_rows >= _ROWS_PER_GROUP:
                self._write_group()

    def end_part(self, open_rows: pa.RecordBatch) -> None:
        """End a part of the journal. All rows until now survive a kill.

        Args:
            open_rows: Rows that may still change, as they are now. They are used only if the task is killed before the
                next part ends.
        """
        assert self._journal is not None
        self._journal.end_part(open_rows)
        if self._file_rows >= _ROWS_PER_FILE:
            # The next journal has the open rows before this one, which also has them, is removed.
            self._journal.close()
            self._journal = _Journal(self._file._replace(number=self._file.number + 1).journal)
            self._journal.end_part(open_rows)
            self._complete()

    def complete_sometimes(self) -> None:
        """Complete the file, unless another one was completed less than two seconds ago."""
        if time.monotonic() - self._completed_s >= _COMPLETE_EVERY_S:
            self._complete()

    def complete(self) -> None:
        """Complete the last file."""
        if self._journal is not None:
            self._journal.close()
            self._journal = None
        self._complete()

    def _write_group(self) -> None:
        if self._parquet is None:
            self._parquet = pq.ParquetWriter(self._file.writing, SCHEMA)
        self._parquet.write_table(pa.Table.from_batches(self._waiting, SCHEMA), row_group_size=_ROWS_PER_GROUP)
        self._waiting, self._waiting_rows = [], 0

    def _complete(self) -> None:
        if self._waiting:
            self._write_group()
        if self._parquet is not None:
            self._parquet.close()
            self._file.writing.replace(self._file.parquet)
        self._file.journal.unlink(missing_ok=True)
        self._file, self._parquet = self._file._replace(number=self._file.number + 1), None
        self._file_rows, self._completed_s = 0, time.monotonic()


def complete_events(directory: Path) -> None:
    """Convert the journals of killed tasks. Remove incomplete files, and files of earlier attempts.

    Does nothing if all tasks have ended. Must not be called while a task runs.

    Raises:
        OSError: A file cannot be read or written.
    """
    files = list(_listed(directory))
    attempts: dict[int, int] = {}
    for file, _ in files:
        attempts[file.task] = max(file.attempt, attempts.get(file.task, 0))
    journals = sorted({file for file, path in files if path == file.journal and file.attempt == attempts[file.task]})
    last = {file.task: file for file in journals if any(_parts(file.journal))}
    for file in journals:
        if not file.parquet.exists():
            _convert(file, with_open_rows=file == last.get(file.task))
        file.journal.unlink()
    for file, path in files:
        if path != file.parquet or file.attempt != attempts[file.task]:
            path.unlink(missing_ok=True)


def has_events(directory: Path) -> bool:
    """Return whether a replay that ended early has events that `complete_events` keeps."""
    files = _listed(directory)
    return any(path == file.parquet or (path == file.journal and any(_parts(path))) for file, path in files)


def _listed(directory: Path, task: int | None = None) -> Iterator[tuple[_File, Path]]:
    """Yield the files in a directory with their paths: all files, or the files of one task."""
    for path in directory.iterdir() if directory.is_dir() else ():
        if (found := _NAME.fullmatch(path.name)) and task in (None, int(found[1])):
            yield _File(directory, *map(int, found.groups())), path


def _convert(file: _File, *, with_open_rows: bool) -> None:
    """Write the complete parts of a journal to its Parquet file."""
    last: list[pa.RecordBatch] = []
    with pq.ParquetWriter(file.writing, SCHEMA) as writer:
        for rows, open_rows in _parts(file.journal):
            writer.write_table(pa.Table.from_batches(rows, SCHEMA))
            last = [open_rows]
        if with_open_rows:
            writer.write_table(pa.Table.from_batches(last, SCHEMA))
    file.writing.replace(file.parquet)


def _parts(journal: Path) -> Iterator[tuple[list[pa.RecordBatch], pa.RecordBatch]]:
    """Yield the rows and the open rows of the complete parts of a journal, whose end may be missing."""
    rows: list[pa.RecordBatch] = []
    with pa.OSFile(str(journal)) as opened, suppress(StopIteration, pa.ArrowInvalid, OSError):
        reader: Any = pa.ipc.open_stream(opened)
        while True:
            batch, metadata = reader.read_next_batch_with_custom_metadata()
            if metadata is None:
                rows.append(batch)
            else:
                yield rows, batch
                rows = []
