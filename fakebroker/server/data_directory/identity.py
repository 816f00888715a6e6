"""The lock of a data directory, and the file that marks a data directory and contains the version of its format."""

import fcntl
import os
import re
from errno import EACCES, EEXIST, ENOTDIR, EPERM, EROFS
from typing import Final

from fakebroker.errors import DataDirectoryError, DiskFullError
from fakebroker.server.data_directory.file_operations import NO_SPACE, FileOperations, write_fully

FORMAT: Final = 2
"""Version of the format of all files of a data directory."""
_LOCK: Final = "lock"
_FORMAT_FILE: Final = "format"
_LINE: Final = "fakebroker data directory, format {}\n"
_READ_LINE: Final = re.compile(re.escape(_LINE).replace(r"\{\}", r"(\d+)"))
_OF_A_START = {_LOCK, f"{_FORMAT_FILE}.tmp", "lost+found"}
"""Files of a directory whose creation was interrupted, and that of an empty file system."""


def claim(directory: str, operations: FileOperations) -> int:
    """Create a data directory unless it exists, check its format and lock it.

    Args:
        directory: Its path.
        operations: Changes files.

    Returns:
        The descriptor that holds the lock; closing it releases the lock.

    Raises:
        DataDirectoryError: It is in use, or not a data directory of this format, or cannot be written.
    """
    try:
        if not os.path.exists(directory):
            _make(directory, operations)
        _check_is_ours(directory)
        lock = _locked(directory)
        try:
            _check_format(directory, operations)
        except BaseException:
            os.close(lock)
            raise
    except OSError as error:
        raise unusable(directory, error) from error
    return lock


def _make(directory: str, operations: FileOperations) -> None:
    """Create a directory and its missing parent directories."""
    parent = os.path.dirname(directory)
    if not os.path.exists(parent):
        _make(parent, operations)
    os.mkdir(directory, mode=0o700)
    operations.sync_directory(parent)


def unusable(directory: str, error: OSError) -> DataDirectoryError:
    """Return the error for a directory in which an operation failed."""
    what = str(error.strerror) if error.filename is None else f"{error.strerror}: {error.filename}"
    if error.errno in NO_SPACE:
        return DiskFullError.of(directory, what, "a disk with free space")
    if error.errno in (EROFS, EACCES, EPERM):
        return DataDirectoryError.of(directory, what, "a directory that this user can write")
    if error.errno in (EEXIST, ENOTDIR):
        return DataDirectoryError.of(directory, what, "a directory")
    return DataDirectoryError.of(directory, what, "a directory on a disk that works")


def _check_is_ours(directory: str) -> None:
    names = set(os.listdir(directory))
    if foreign := sorted(names - _OF_A_START) if _FORMAT_FILE not in names else []:
        raise DataDirectoryError.of(
            directory, f"has other files, such as {foreign[0]!r}", "an empty directory, or one that fakebroker created"
        )


def _locked(directory: str) -> int:
    fd = os.open(os.path.join(directory, _LOCK), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        process = os.pread(fd, 20, 0).decode(errors="replace").strip()
        os.close(fd)
        raise DataDirectoryError.of(
            directory, f"in use by process {process}", "a directory that no other cluster uses"
        ) from None
    try:
        os.pwrite(fd, f"{os.getpid():<20}".encode(), 0)
    except OSError as error:
        if error.errno not in NO_SPACE:  # On a full disk, the lock holds without the number of the process.
            os.close(fd)
            raise
    return fd


def _check_format(directory: str, operations: FileOperations) -> None:
    path = os.path.join(directory, _FORMAT_FILE)
    expected = f"format {FORMAT}, that of this version of fakebroker"
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            line = file.read(1_000)
    except FileNotFoundError:
        _write_format(directory, path, operations)
        return
    if not (match := _READ_LINE.fullmatch(line)):
        raise DataDirectoryError.of(directory, f"{path} is damaged", expected)
    if int(match[1]) != FORMAT:
        raise DataDirectoryError.of(directory, f"has format {match[1]}", expected)


def _write_format(directory: str, path: str, operations: FileOperations) -> None:
    temporary = f"{path}.tmp"
    operations.remove(temporary)
    fd = operations.create(temporary)
    try:
        write_fully(operations, fd, _LINE.format(FORMAT).encode())
        operations.sync(fd)
    finally:
        os.close(fd)
    operations.rename(temporary, path)
    operations.sync_directory(directory)
