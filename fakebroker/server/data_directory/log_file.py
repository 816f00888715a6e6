"""The log file that is being written. Its space is allocated ahead."""

import os
from typing import Final

from fakebroker.server.data_directory.blocks import START_BYTES, Block, start_of_log
from fakebroker.server.data_directory.file_operations import NO_SPACE, FileOperations, write_fully

_FIRST_STEP_BYTES: Final = 1024 * 1024
_STEP_BYTES: Final = 16 * 1024 * 1024
_SMALL_STEP_BYTES: Final = 64 * 1024
"""How much is allocated at once: at first, later, and if the disk is nearly full."""


class LogFile:
    """A log file.

    Args:
        operations: Changes files.
        path: Its path; it must not exist.
        number: Its number.
        previous_bytes: The size of the log before it; 0 if there is none.

    Attributes:
        size_bytes: Size of the blocks in it.
        is_nearly_full: Whether the disk had less space than is usually allocated at once.

    Raises:
        OSError: Raised by all methods if the disk fails. Afterwards, only `close` may be called.
    """

    def __init__(self, operations: FileOperations, path: str, number: int, previous_bytes: int) -> None:
        self._operations, self._path, self._number = operations, path, number
        self._start: Block | None = start_of_log(previous_bytes)
        self._fd = operations.create(path)
        try:
            operations.sync_directory(os.path.dirname(path))
        except OSError:
            os.close(self._fd)
            operations.remove(path)
            raise
        self.size_bytes = 0
        self.is_nearly_full = False
        self._allocated_bytes = self._safe_bytes = 0
        self._is_unsynced = False

    def reserve(self, size_bytes: int) -> bool:
        """Return whether `size_bytes` more fit into the allocated space, which grows if the disk has space."""
        needed = self.size_bytes + size_bytes + (START_BYTES if self._start else 0)
        if needed <= self._allocated_bytes:
            return True
        step = min(max(self._allocated_bytes, _FIRST_STEP_BYTES), _STEP_BYTES)
        for unit in (step, _SMALL_STEP_BYTES):
            end = -(-needed // unit) * unit
            try:
                self._operations.allocate(self._fd, self._allocated_bytes, end - self._allocated_bytes)
            except OSError as error:
                if error.errno not in NO_SPACE:
                    raise
                self.is_nearly_full = True
            else:
                self._allocated_bytes = end
                self.is_nearly_full = unit != step
                return True
        return False

    def append(self, block: Block, *, waits: bool) -> None:
        """Write a block.

        Args:
            block: The block.
            waits: Whether to wait until it is on disk.
        """
        start = b""
        if self._start is not None:
            start = bytes(self._start.encoded(self._number, 0, 0))
            self._start, self.size_bytes = None, len(start)
        end = self.size_bytes + block.size_bytes
        data = block.encoded(self._number, self.size_bytes, end if waits else self._safe_bytes)
        write_fully(self._operations, self._fd, start + data if start else data)
        self.size_bytes = end
        self._is_unsynced = True
        if waits:
            self._operations.sync(self._fd)
            self._safe_bytes, self._is_unsynced = end, False

    def sync(self) -> None:
        """Wait until everything written is on disk, and record that it is in a block without entries."""
        if not self._is_unsynced:
            return
        self._operations.sync(self._fd)
        self._safe_bytes = self.size_bytes
        record = Block()
        if self.size_bytes + record.size_bytes <= self._allocated_bytes:
            self.append(record, waits=False)
        self._is_unsynced = False

    def trim(self) -> None:
        """Remove the allocated space that is not used, and wait until everything written is on disk."""
        self.sync()
        self._operations.truncate(self._path, self.size_bytes)
        self._allocated_bytes = self.size_bytes
        self._operations.sync(self._fd)

    def close(self) -> None:
        """Close the file."""
        os.close(self._fd)
