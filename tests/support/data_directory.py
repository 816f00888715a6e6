"""Data directories of tests: their content, images of them as crashes leave them, and file operations that can fail."""

import shutil
from collections.abc import Callable
from pathlib import Path

from fakebroker.server.data_directory.directory import DataDirectory, Fsync
from fakebroker.server.data_directory.file_operations import FileOperations

Content = list[tuple[int, bytes]]


class FastOperations(FileOperations):
    """Does not wait for the disk, which only failures of a machine would show."""

    def sync(self, fd: int) -> None:
        return

    def sync_directory(self, path: str) -> None:
        return


class InjectedOperations(FastOperations):
    """Calls `before` with the name of each operation and its first argument; what that raises is its result."""

    def __init__(self, before: Callable[[str, str | int], None]) -> None:
        self._before = before

    def create(self, path: str) -> int:
        self._before("create", path)
        return super().create(path)

    def write(self, fd: int, data: bytes | bytearray | memoryview) -> int:
        self._before("write", fd)
        return super().write(fd, data)

    def allocate(self, fd: int, offset: int, size_bytes: int) -> None:
        self._before("allocate", fd)
        super().allocate(fd, offset, size_bytes)

    def sync(self, fd: int) -> None:
        self._before("sync", fd)

    def truncate(self, path: str, size_bytes: int) -> None:
        self._before("truncate", path)
        super().truncate(path, size_bytes)

    def rename(self, path: str, new_path: str) -> None:
        self._before("rename", path)
        super().rename(path, new_path)

    def remove(self, path: str) -> None:
        self._before("remove", path)
        super().remove(path)

    def sync_directory(self, path: str) -> None:
        self._before("sync_directory", path)


def no_warning(sentence: str) -> None:
    """Fail: nothing should have been cut."""
    raise AssertionError(sentence)


def opened(
    path: Path,
    *,
    fsync: Fsync = "interval",
    warn: Callable[[str], None] = no_warning,
    operations: FileOperations | None = None,
) -> tuple[DataDirectory, Content]:
    """Open a directory and read its entries."""
    directory = DataDirectory.open(path, fsync=fsync, warn=warn, operations=operations or FastOperations())
    try:
        return directory, [(kind, bytes(payload)) for kind, payload in directory.entries()]
    except BaseException:
        directory.close()
        raise


def content(path: Path, warn: Callable[[str], None] = no_warning) -> Content:
    """Return the entries of a directory that is not in use."""
    directory, found = opened(path, warn=warn)
    directory.close()
    return found


def flushed(directory: DataDirectory, *payloads: bytes, kind: int = 1) -> None:
    """Write entries and flush them."""
    assert directory.reserve(sum(map(len, payloads)))
    for payload in payloads:
        directory.write(kind, [payload])
    directory.flush()


def image(path: Path, number: int = 0) -> Path:
    """Return a copy of a directory, which is what a process leaves that is killed now. (The copy is not locked.)"""
    return Path(shutil.copytree(path, path.with_name(f"{path.name}-image-{number}"), dirs_exist_ok=True))


def logs_of(path: Path) -> list[Path]:
    """Return the log files of a directory, oldest first."""
    return sorted(path.glob("*.log"))
