"""What a start reads: the newest checkpoint, then the logs since it. Cuts an incomplete write at the end."""

import os
import re
from collections.abc import Callable, Generator
from functools import partial
from typing import Final

import msgspec

from fakebroker.errors import DataDirectoryError
from fakebroker.server.data_directory.blocks import (
    HEADER_BYTES,
    MAGIC,
    READ_BYTES,
    START_BYTES,
    Entry,
    Read,
    read_entries,
    read_header,
    read_start,
)
from fakebroker.server.data_directory.file_operations import FileOperations, with_descriptor

_NAME: Final = re.compile(r"(\d{20})\.(log|checkpoint|checkpoint\.tmp)")
Warn = Callable[[str], None]


def log_path(directory: str, number: int) -> str:
    """Return the path of a log."""
    return os.path.join(directory, f"{number:020}.log")


def checkpoint_path(directory: str, number: int) -> str:
    """Return the path of the checkpoint of everything before the log with the same number."""
    return os.path.join(directory, f"{number:020}.checkpoint")


class Files(msgspec.Struct, frozen=True, dict=True):
    """The files of a data directory.

    Attributes:
        checkpoint: Number of the newest checkpoint; 0 if there is none.
        logs: Numbers of the logs since then, ascending.
        obsolete: Paths of files that the checkpoint replaces, and of checkpoints that were not completed.
    """

    checkpoint: int
    logs: tuple[int, ...]
    obsolete: tuple[str, ...]

    @classmethod
    def of(cls, directory: str) -> "Files":
        """List a directory.

        Raises:
            DataDirectoryError: A log is missing.
        """
        found = sorted(filter(None, map(_NAME.fullmatch, os.listdir(directory))), key=lambda match: match[0])
        checkpoint = max((int(match[1]) for match in found if match[2] == "checkpoint"), default=0)
        numbers = {"log": range(checkpoint, 10**20), "checkpoint": (checkpoint,), "checkpoint.tmp": ()}
        obsolete = tuple(os.path.join(directory, match[0]) for match in found if int(match[1]) not in numbers[match[2]])
        logs = tuple(int(match[1]) for match in found if match[2] == "log" and int(match[1]) >= checkpoint)
        first = checkpoint or 1
        needed = range(first, max(logs, default=checkpoint) + 1)
        if missing := [number for number in needed if number not in logs]:
            raise DataDirectoryError.of(
                directory, f"{os.path.basename(log_path(directory, missing[0]))} is missing", "all logs"
            )
        return cls(checkpoint, logs, obsolete)


def recovered_entries(
    directory: str, files: Files, operations: FileOperations, warn: Warn
) -> Generator[Entry, None, int]:
    """Yield the entries of a directory in the order in which they were written.

    A failure of the process or the machine can leave the last writes incomplete. So the last log is cut at its first
    incomplete write, with a warning. An incomplete write that was on disk already when later writes were made is an
    error instead. At the end, all entries that were read are on disk.

    Args:
        directory: Its path.
        files: Its files.
        operations: For changes of files.
        warn: Called with the warning.

    Returns:
        The size of the last log in bytes; 0 if there is none.

    Raises:
        DataDirectoryError: A file is damaged elsewhere, or cannot be read.
    """
    if files.checkpoint:
        path = checkpoint_path(directory, files.checkpoint)
        with _OpenFile(path) as file:
            if not _is_complete(file, files.checkpoint):
                raise _damaged(directory, path, file.size_bytes, "the end of a checkpoint")
            end = yield from read_entries(file.read, files.checkpoint, file.size_bytes)
            if end != file.size_bytes:
                raise _damaged(directory, path, end)
    end = 0
    for number in files.logs:
        path = log_path(directory, number)
        with _OpenFile(path) as file:
            previous_bytes = read_start(file.read, number)
            if previous_bytes not in (None, end) and number != files.checkpoint:
                expected = f"{previous_bytes} bytes, the size of this log when the next one was begun"
                raise _damaged(directory, log_path(directory, number - 1), end, expected)
            start = 0 if previous_bytes is None else START_BYTES
            end = yield from read_entries(file.read, number, file.size_bytes, start)
            if end == file.size_bytes:
                continue
            if number != files.logs[-1]:
                raise _damaged(directory, path, end)
            damaged_bytes, intact_blocks = _check_removable(directory, path, file, number, end)
        operations.truncate(path, end)
        if damaged_bytes:
            warn(_removed(path, end, damaged_bytes, intact_blocks))
    if files.logs:
        with_descriptor(log_path(directory, files.logs[-1]), operations.sync)
    return end


def _removed(path: str, offset: int, damaged_bytes: int, intact_blocks: int) -> str:
    """Return the warning of what was removed at the end of a log."""
    if intact_blocks:
        reason = "did not reach the disk when the machine failed"
        return f"{path}: a write at offset {offset} {reason}: {damaged_bytes} bytes from there on were removed"
    return f"{path}: the last write is incomplete: {damaged_bytes} bytes at offset {offset} were removed"


class _OpenFile:
    """A file that is read.

    Attributes:
        size_bytes: Its size.
        read: Reads a number of bytes at an offset.
    """

    def __init__(self, path: str) -> None:
        self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self.size_bytes = os.fstat(self._fd).st_size
        self.read: Read = partial(os.pread, self._fd)

    def __enter__(self) -> "_OpenFile":
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)


def _is_complete(file: _OpenFile, number: int) -> bool:
    """Return whether a checkpoint ends with a block without entries."""
    last = file.size_bytes - HEADER_BYTES
    header = read_header(memoryview(file.read(HEADER_BYTES, last)), 0, number, last) if last >= 0 else None
    return header is not None and header.size_bytes == 0


def _check_removable(directory: str, path: str, file: _OpenFile, number: int, offset: int) -> tuple[int, int]:
    """Check that a log is damaged only where it was not on disk yet, when the process or the machine failed.

    Returns:
        The size in bytes of what is behind the last intact block, without the zeros at its end; and how many intact
        blocks are in it.

    Raises:
        DataDirectoryError: A block was on disk, because more was written after it.
    """
    first = read_header(memoryview(file.read(HEADER_BYTES, offset)), 0, number, offset)
    # The start of a log is written with the block after it, which therefore says nothing about it.
    same_write = (offset, offset or START_BYTES)
    content_end = at = offset
    intact = 0
    while data := file.read(READ_BYTES, at):
        if content := data.rstrip(b"\0"):
            content_end = at + len(content)
        found = data.find(MAGIC)
        while found >= 0:
            place = at + found
            header = read_header(memoryview(file.read(HEADER_BYTES, place)), 0, number, place)
            if place not in same_write and header is not None:
                if header.safe_bytes > offset:
                    raise _damaged(directory, path, offset, f"an intact block, as there is one at offset {place}")
                intact += 1
            found = data.find(MAGIC, found + 1)
        # The next part starts with the end of this one, in which a header can begin.
        at += max(len(data) - HEADER_BYTES + 1, 1) if len(data) == READ_BYTES else len(data)
    end = offset + HEADER_BYTES + (first.size_bytes if first else 0)
    if first is not None and content_end > end <= first.safe_bytes:
        raise _damaged(directory, path, offset, f"an intact block, as there are data after its end at offset {end}")
    return content_end - offset, intact


def _damaged(directory: str, path: str, offset: int, expected: str = "an intact block") -> DataDirectoryError:
    return DataDirectoryError.of(directory, f"{path} is damaged at offset {offset}", expected)
