"""A data directory: entries are appended to a log, and a checkpoint replaces the log so far."""

import os
from collections.abc import Iterator, Sequence
from math import inf
from typing import Final, Literal

from fakebroker.errors import DataDirectoryError
from fakebroker.server.data_directory.blocks import ENTRY_OVERHEAD_BYTES, HEADER_BYTES, Block, Entry
from fakebroker.server.data_directory.checkpoint import Checkpoint
from fakebroker.server.data_directory.file_operations import NO_SPACE, FileOperations
from fakebroker.server.data_directory.identity import claim, unusable
from fakebroker.server.data_directory.log_file import LogFile
from fakebroker.server.data_directory.recovery import Files, Warn, log_path, recovered_entries

Fsync = Literal["always", "interval"]

SYNC_INTERVAL_MS: Final = 1_000
"""With "interval": how long written entries stay only in the memory of the machine."""
MIN_LOG_BYTES: Final = 64 * 1024 * 1024
"""Logs smaller than this are not worth a checkpoint."""
MIN_LOG_BYTES_IF_NEARLY_FULL: Final = 1024 * 1024
"""The same on a disk that is nearly full, which a checkpoint can change."""
MAX_RESERVED_ENTRIES: Final = 4_096
"""How many entries one call of `reserve` covers."""
_BUFFER_BYTES: Final = 16 * 1024 * 1024
"""Buffered entries of this size are written without waiting for `flush`."""
_OVERHEAD_BYTES: Final = MAX_RESERVED_ENTRIES * ENTRY_OVERHEAD_BYTES + HEADER_BYTES


class DataDirectory:
    """A directory that one process writes. For one thread, except for its checkpoints.

    Entries are written in three steps: `reserve` before the change that they record, `write`, and `flush` before the
    change is acknowledged. What one `flush` writes is read again as a whole or not at all (up to 16 MiB).

    If the disk fails, `write`, `flush` and all that follow raise DataDirectoryError: what a later write would say about
    the earlier ones is unknown (a failed fsync is not repeated).

    Args:
        path: Its absolute path.
        fsync: See `open`.
        warn: See `open`.
        operations: Changes files.
    """

    def __init__(self, path: str, fsync: Fsync, warn: Warn, operations: FileOperations) -> None:
        self.path = path
        self._fsync, self._warn, self._operations = fsync, warn, operations
        self._lock = claim(path, operations)
        try:
            files = Files.of(path)
            for each in files.obsolete:
                operations.remove(each)
        except BaseException as error:
            os.close(self._lock)
            if isinstance(error, OSError):
                raise unusable(path, error) from error
            raise
        self._files: Files | None = files
        self._next_number = max(files.checkpoint, *files.logs, 0) + 1
        self._log: LogFile | None = None
        self._last_log_bytes = 0
        self._earlier_log_bytes = sum(os.path.getsize(log_path(path, number)) for number in files.logs)
        self._block = Block()
        self._failure: DataDirectoryError | None = None
        self._checkpoint_from_bytes = 0
        self._is_checkpointing = self._is_unsynced = False
        self._refused_bytes: float = inf
        self._sync_deadline_ms = inf

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        *,
        fsync: Fsync = "interval",
        warn: Warn,
        operations: FileOperations | None = None,
    ) -> "DataDirectory":
        """Lock a directory; creates it if it is missing or empty.

        Args:
            path: Its path.
            fsync: When written entries are forced to the disk: "always" before `flush` returns, so that they survive a
                failure of the machine; "interval" every second, and a failure loses what is written after a moment of
                the last second or so. A killed process loses nothing with either.
            warn: Called with a sentence about what `entries` cut, and when the disk is full or has space again.
            operations: Changes files; by default, the system calls.

        Raises:
            DataDirectoryError: It is in use, read-only or full, has other files, another format or lacks a log.
        """
        return cls(os.path.abspath(path), fsync, warn, operations or FileOperations())

    def entries(self) -> Iterator[Entry]:
        """Yield kind and payload of all entries in the order of their writes. Call it once, before the first `write`.

        The newest checkpoint replaces all entries before it. If a crash or a failure of the machine has damaged the end
        of the log, the damaged part is removed, with a warning. A payload that is referenced keeps up to 16 MiB of the
        file in memory.

        Raises:
            DataDirectoryError: A file is damaged, or cannot be read.
        """
        files, self._files = self._files, None
        if files is None:
            raise RuntimeError("the entries of a data directory are read once")
        try:
            self._last_log_bytes = yield from recovered_entries(self.path, files, self._operations, self._warn)
        except OSError as error:
            raise self._failed(error) from error

    @property
    def is_dirty(self) -> bool:
        """Whether `flush` has something to do: entries are buffered, or the disk has failed, which it raises."""
        return not self._block.is_empty or self._failure is not None

    def reserve(self, size_bytes: int) -> bool:
        """Return whether entries can be written without failing for lack of space.

        Space is allocated ahead. It is not divided between callers: a caller reserves space and writes its entries
        before another caller reserves space.

        Args:
            size_bytes: Size of the payloads, of at most `MAX_RESERVED_ENTRIES` entries.

        Returns:
            False if the disk is full, until it has space again.

        Raises:
            DataDirectoryError: The disk has failed.
        """
        if self._failure is not None:
            raise self._failure
        try:
            log = self._log or self._new_log()
            is_reserved = log.reserve(self._block.size_bytes + size_bytes + _OVERHEAD_BYTES)
        except OSError as error:
            if error.errno not in NO_SPACE:
                raise self._failed(error) from error
            is_reserved = False
        self._note(size_bytes, is_reserved)
        return is_reserved

    def _note(self, size_bytes: int, is_reserved: bool) -> None:
        """Warn of the first reservation that is refused, and when one of this size succeeds."""
        if not is_reserved and self._refused_bytes == inf:
            self._warn(f"data_dir={self.path!r}: the disk is full, writes are refused")
        if not is_reserved:
            self._refused_bytes = min(self._refused_bytes, size_bytes)
        elif size_bytes >= self._refused_bytes:
            self._refused_bytes = inf
            self._warn(f"data_dir={self.path!r}: the disk has space again")

    def write(self, kind: int, parts: Sequence[bytes | memoryview]) -> None:
        """Append an entry. It is safe when `flush` returns.

        Args:
            kind: Its kind, 1 to 255.
            parts: Its payload, in parts, which are copied.

        Raises:
            DataDirectoryError: The disk has failed.
        """
        if self._failure is not None:
            raise self._failure
        self._block.add(kind, parts)
        if self._block.size_bytes >= _BUFFER_BYTES:
            self.flush()

    def flush(self) -> None:
        """Write all buffered entries, and force them to the disk if `fsync` is "always".

        Raises:
            DataDirectoryError: The disk has failed, or is full and the space was not reserved.
        """
        if self._failure is not None:
            raise self._failure
        if self._block.is_empty:
            return
        try:
            log = self._log or self._new_log()
            waits = self._fsync == "always"
            log.append(self._block, waits=waits)
            self._is_unsynced = not waits
        except OSError as error:
            raise self._failed(error) from error
        self._block.clear()

    @property
    def next_sync_ms(self) -> float:
        """When `sync_if_due` will sync, in milliseconds of its clock; infinity if everything is on disk."""
        return self._sync_deadline_ms

    def sync_if_due(self, now_ms: float) -> None:
        """Force written entries to the disk, `SYNC_INTERVAL_MS` after the first call since they were written.

        Args:
            now_ms: Milliseconds of any clock.

        Raises:
            DataDirectoryError: The disk has failed.
        """
        if not self._is_unsynced:
            return
        if self._sync_deadline_ms == inf:
            self._sync_deadline_ms = now_ms + SYNC_INTERVAL_MS
        elif now_ms >= self._sync_deadline_ms and self._log is not None:
            try:
                self._log.sync()
            except OSError as error:
                raise self._failed(error) from error
            self._is_unsynced, self._sync_deadline_ms = False, inf

    def wants_checkpoint(self, live_bytes: int) -> bool:
        """Return whether the logs since the last checkpoint are long enough for another one.

        Args:
            live_bytes: Approximate size of the entries that a checkpoint would have.
        """
        least = max(self._min_log_bytes, 2 * live_bytes, self._checkpoint_from_bytes)
        return not self._is_checkpointing and self._log_bytes > least

    @property
    def _min_log_bytes(self) -> int:
        is_nearly_full = self._log is not None and self._log.is_nearly_full
        return MIN_LOG_BYTES_IF_NEARLY_FULL if is_nearly_full else MIN_LOG_BYTES

    @property
    def _log_bytes(self) -> int:
        return self._earlier_log_bytes + (self._log.size_bytes if self._log else 0)

    def begin_checkpoint(self) -> Checkpoint:
        """Start a checkpoint of the state that results from all entries so far.

        Later entries go to a new log, while the checkpoint is written, in this thread or another one. There is one
        checkpoint at a time; it has to end before `close`.

        Raises:
            DiskFullError: There is no space for its file; the directory is as before.
            DataDirectoryError: The disk has failed.
        """
        if self._is_checkpointing:
            raise RuntimeError("a checkpoint is being written")
        self.flush()
        earlier_bytes = self._log_bytes
        # If this one fails, the logs have to grow before the next attempt.
        self._checkpoint_from_bytes = earlier_bytes + self._min_log_bytes
        try:
            self._roll()
        except OSError as error:
            if error.errno in NO_SPACE:
                raise unusable(self.path, error) from error
            raise self._failed(error) from error
        self._earlier_log_bytes = earlier_bytes

        def ended(is_committed: bool) -> None:
            if is_committed:
                self._earlier_log_bytes -= earlier_bytes
                self._checkpoint_from_bytes = 0
            self._is_checkpointing = False

        self._is_checkpointing = True
        try:
            return Checkpoint(self._operations, self.path, self._next_number - 1, ended)
        except DataDirectoryError:
            ended(False)
            raise

    def close(self) -> None:
        """Write buffered entries, remove allocated space that is not used, and unlock the directory. Once.

        Raises:
            DataDirectoryError: The disk fails now. After an earlier failure, `close` writes nothing and does not raise.
        """
        try:
            if self._failure is None:
                self.flush()
                if self._log is not None:
                    self._log.trim()
        except OSError as error:
            raise self._failed(error) from error
        finally:
            if self._log is not None:
                self._log.close()
                self._log = None
            self._failure = DataDirectoryError.of(self.path, "closed", "an open data directory")
            os.close(self._lock)

    def _new_log(self) -> LogFile:
        if self._files is not None:
            raise RuntimeError("the entries of a data directory are read before anything is written")
        previous_bytes = self._log.size_bytes if self._log else self._last_log_bytes
        path = log_path(self.path, self._next_number)
        self._log = LogFile(self._operations, path, self._next_number, previous_bytes)
        self._next_number += 1
        return self._log

    def _roll(self) -> None:
        """Continue with a new log. If there is no space for its file, the current one continues."""
        earlier = self._log
        if earlier is not None:
            earlier.trim()
        self._is_unsynced, self._sync_deadline_ms = False, inf
        self._new_log()
        if earlier is not None:
            earlier.close()

    def _failed(self, error: OSError) -> DataDirectoryError:
        """Record that the disk has failed, and return its error. From then on, nothing is written."""
        self._failure = unusable(self.path, error)
        return self._failure
