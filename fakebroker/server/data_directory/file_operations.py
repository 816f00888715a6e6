"""The operations on files that change a data directory, in one place, so that tests can let each of them fail."""

import os
from collections.abc import Callable
from errno import EDQUOT, EFBIG, EINVAL, ENOSPC, EOPNOTSUPP
from typing import Final

NO_SPACE: Final = frozenset({ENOSPC, EDQUOT, EFBIG})
"""Error numbers of a full file system, an exhausted quota and a file that reaches RLIMIT_FSIZE."""


_ALLOCATE: Final[Callable[[int, int, int], None] | None] = getattr(os, "posix_fallocate", None)
"""None on macOS."""
_SYNC: Final[Callable[[int], None]] = getattr(os, "fdatasync", os.fsync)
"""Of the two, macOS has only `fsync`."""


class FileOperations:
    """System calls, with the flags and modes of a data directory. All raise OSError."""

    def create(self, path: str) -> int:
        """Create a file that only this user can read, and return its descriptor."""
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)

    def write(self, fd: int, data: bytes | bytearray | memoryview) -> int:
        """Write at the end of what was written, and return the number of bytes; it can be smaller than the data."""
        return os.write(fd, data)

    def allocate(self, fd: int, offset: int, size_bytes: int) -> None:
        """Extend a file by zeros, which are reserved on disk if the system and the file system can do that."""
        try:
            if _ALLOCATE is not None:
                _ALLOCATE(fd, offset, size_bytes)
                return
        except OSError as error:
            if error.errno not in (EINVAL, EOPNOTSUPP):
                raise
        os.ftruncate(fd, offset + size_bytes)

    def sync(self, fd: int) -> None:
        """Wait until the content of a file is on disk."""
        _SYNC(fd)

    def truncate(self, path: str, size_bytes: int) -> None:
        """Shorten a file."""
        os.truncate(path, size_bytes)

    def rename(self, path: str, new_path: str) -> None:
        """Rename a file; replaces a file with the new name."""
        os.rename(path, new_path)

    def remove(self, path: str) -> None:
        """Remove a file, unless it is missing."""
        try:
            os.remove(path)
        except FileNotFoundError:
            return

    def sync_directory(self, path: str) -> None:
        """Wait until the names of new, renamed and removed files are on disk."""
        with_descriptor(path, os.fsync)


def with_descriptor(path: str, operation: Callable[[int], object]) -> None:
    """Run an operation on the descriptor of a file or directory that is opened for it."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        operation(fd)
    finally:
        os.close(fd)


def write_fully(operations: FileOperations, fd: int, data: bytes | bytearray) -> None:
    """Write all bytes, with as many calls as needed."""
    written = operations.write(fd, data)
    while written < len(data):
        written += operations.write(fd, memoryview(data)[written:])
