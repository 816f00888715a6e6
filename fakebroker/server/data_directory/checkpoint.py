"""A checkpoint that is being written: entries that replace everything before the log with its number."""

import os
from collections.abc import Callable, Sequence
from typing import Final

from fakebroker.server.data_directory.blocks import Block
from fakebroker.server.data_directory.file_operations import FileOperations, write_fully
from fakebroker.server.data_directory.identity import unusable
from fakebroker.server.data_directory.recovery import Files, checkpoint_path

_BLOCK_BYTES: Final = 1024 * 1024
"""A block is written when it has this size."""


class Checkpoint:
    """A checkpoint. Ends with `commit` or `abandon`.

    One thread uses it. This may be another thread than the thread of its `DataDirectory`. If a method fails, the data
    directory is as before, and the caller abandons the checkpoint.

    Args:
        operations: Changes files.
        directory: Path of the data directory.
        number: Number of the log with the entries after it.
        ended: Called at the end, with whether it was committed.

    Raises:
        DiskFullError: There is no space for it.
        DataDirectoryError: Its file cannot be written.
    """

    def __init__(
        self, operations: FileOperations, directory: str, number: int, ended: Callable[[bool], object]
    ) -> None:
        self._operations, self._directory, self._number, self._ended = operations, directory, number, ended
        self._path = checkpoint_path(directory, number)
        self._block = Block()
        self._size_bytes = 0
        self._fd = -1
        self._do(self._create)

    def write(self, kind: int, parts: Sequence[bytes | memoryview]) -> None:
        """Add an entry.

        Args:
            kind: Its kind, 0 to 255.
            parts: Its payload, in parts, which are copied.

        Raises:
            DiskFullError: There is no space for it.
            DataDirectoryError: The file cannot be written.
        """
        self._block.add(kind, parts)
        if self._block.size_bytes >= _BLOCK_BYTES:
            self._do(self._write_block)

    def commit(self) -> None:
        """Make this checkpoint the newest one, and remove the files that it replaces.

        Raises:
            DiskFullError: There is no space for it.
            DataDirectoryError: The file cannot be written.
        """
        self._do(self._complete)
        self._ended(True)

    def abandon(self) -> None:
        """Remove this checkpoint."""
        self._close()
        try:
            self._operations.remove(self._temporary_path)
        except OSError:  # The next start removes it.
            pass
        finally:
            self._ended(False)

    @property
    def _temporary_path(self) -> str:
        return f"{self._path}.tmp"

    def _do(self, operation: Callable[[], None]) -> None:
        try:
            operation()
        except OSError as error:
            raise unusable(self._directory, error) from error

    def _create(self) -> None:
        self._operations.remove(self._temporary_path)  # Left over, if it could not be removed by `abandon`.
        self._fd = self._operations.create(self._temporary_path)

    def _write_block(self) -> None:
        data = self._block.encoded(self._number, self._size_bytes, 0)
        write_fully(self._operations, self._fd, data)
        self._size_bytes += len(data)
        self._block.clear()

    def _complete(self) -> None:
        if not self._block.is_empty:
            self._write_block()
        self._write_block()  # Without entries: the end.
        self._operations.sync(self._fd)
        self._close()
        self._operations.rename(self._temporary_path, self._path)
        self._operations.sync_directory(self._directory)
        for path in Files.of(self._directory).obsolete:
            self._operations.remove(path)

    def _close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
