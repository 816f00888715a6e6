"""The log file that is being written. Its space is allocated ahead."""

import os
from typing import Final

from fakebroker.server.data_directory.blocks import Block
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

    Attributes:
        size_bytes: Size of the blocks in it.
        is_nearly_full: Whether the disk had less space than is usually allocated at once.

    Raises:
        OSError: Raised by all methods if the disk fails. Afterwards, only `close` may be called.
    """

    def __init__(self, operations: FileOperations, path: str, number: int) -> None:
        self._operations, self._path, self._number = operations, path, number
        self._fd = operations.create(path)
        try:
            operations.sync_directory(os.path.dirname(path))
        except OSError:
            os.close(self._fd)
            operations.remove(path)
            raise
        self.size_bytes = 0
        self.is_nearly_full = False
        self._allocated_bytes = 0

    def reserve(self, size_bytes: int) -> bool:
        """Return whether `size_bytes` more fit into the allocated space, which grows if the disk has space."""
        needed = self.size_bytes + size_bytes
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

    def append(self, block: Block) -> None:
        """Write a block."""
        data = block.encoded(self._number, self.size_bytes)
        write_fully(self._operations, self._fd, data)
        self.size_bytes += len(data)

    def sync(self) -> None:
        """Wait until everything written is on disk."""
        self._operations.sync(self._fd)

    def trim(self) -> None:
        """Remove the allocated space that is not used, and wait until everything written is on disk."""
        self._operations.truncate(self._path, self.size_bytes)
        self._allocated_bytes = self.size_bytes
        self._operations.sync(self._fd)

    def close(self) -> None:
        """Close the file."""
        os.close(self._fd)
