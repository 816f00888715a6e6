"""`Persistence`: keeps the state of a running cluster in a data directory.

Imported only by clusters with a data directory.
"""

import logging
import os
import weakref
from threading import Thread
from typing import Self

import msgspec

from fakebroker.cluster.cluster import Cluster
from fakebroker.cluster.storage import checkpoint
from fakebroker.cluster.storage.state_writer import StateWriter
from fakebroker.cluster.storage.stored_state import StoredState, restore
from fakebroker.errors import ConfigError, DataDirectoryError, DiskFullError, FakebrokerError
from fakebroker.garbage_collection import no_garbage_collection
from fakebroker.server.data_directory.checkpoint import Checkpoint
from fakebroker.server.data_directory.directory import DataDirectory, Fsync

logger = logging.getLogger("fakebroker")


class Persistence:
    """The data directory of one cluster. Use it in the cluster's thread.

    Args:
        directory: The directory, whose entries have been read.
        stored: The state that they result in.

    Attributes:
        starts: How often a cluster was started with this directory; 0 if there is no stored state.
    """

    def __init__(self, directory: DataDirectory, stored: StoredState) -> None:
        self._directory = directory
        self._stored: StoredState | None = stored
        self.starts = stored.starts
        self._cluster: Cluster
        self._writer: StateWriter
        self._checkpointing: Thread | None = None
        self._live_bytes = 0
        # Also unlocks the directory if the cluster is never started.
        self._close_directory = weakref.finalize(self, directory.close)
        self._close_directory.atexit = False

    @classmethod
    def open(cls, path: object, fsync: Fsync) -> Self:
        """Lock a directory, which is created if it is missing, and read the state in it.

        Args:
            path: Its path.
            fsync: See `DataDirectory.open`.

        Raises:
            ConfigError: The path is not one.
            DataDirectoryError: The directory cannot be used, or has entries that this version does not write.
        """
        if not isinstance(path, str | os.PathLike) or not os.fspath(path) or "\0" in str(path):
            raise ConfigError.of("data_dir", path, "the path of a directory")
        directory = DataDirectory.open(path, fsync=fsync, warn=logger.warning)
        try:
            stored = StoredState()
            with no_garbage_collection():
                stored.apply_all(directory.entries())
        except DataDirectoryError:
            directory.close()
            raise
        except Exception as error:  # Any: the checksum is right, so that another version wrote the entry.
            directory.close()
            raise _of_another_version(directory, "an entry cannot be read", error) from error
        except BaseException:
            directory.close()
            raise
        return cls(directory, stored)

    def attach(self, cluster: Cluster, now_ms: float) -> None:
        """Restore the stored state, if any, in a new cluster. From then on, store the changes of the cluster.

        Args:
            cluster: The cluster; without topics if there is a stored state.
            now_ms: The brokers' time in milliseconds.

        Raises:
            ConfigError: The cluster lacks a stored broker.
            DataDirectoryError: The stored state is not a valid state of a cluster.
        """
        stored, self._stored = self._stored, None
        # Before the state is restored, because that completes transactions: their markers are changes, too.
        self._cluster, self._writer = cluster, StateWriter(cluster, self._directory, self.starts)
        if stored is not None and self.starts:
            try:
                with no_garbage_collection():
                    restore(cluster, stored, now_ms)
            except (ConfigError, DataDirectoryError):
                raise
            except Exception as error:  # As in `open`.
                raise _of_another_version(self._directory, "the state cannot be restored", error) from error

    def give_up(self) -> None:
        """Unlock the directory of a cluster that cannot be created."""
        self._wait_for_checkpoint()
        self._close_directory()

    def store_start(self, now_ms: float) -> None:
        """Store the state with which the cluster starts.

        Args:
            now_ms: As for `sync`.

        Raises:
            DataDirectoryError: The disk has failed, or is full.
        """
        self.flush(now_ms)
        if self._writer.is_behind:
            raise DiskFullError.of(self._directory.path, "the disk is full", "free space for the state of a start")

    def note_command(self) -> None:
        """Note that a command may have changed anything."""
        self._writer.sections_may_differ = True

    def flush(self, now_ms: float) -> None:
        """Store what has changed, before a response tells a client of it.

        Args:
            now_ms: As for `sync`.

        Raises:
            DataDirectoryError: The disk has failed.
        """
        writer = self._writer
        writer.write_changes()
        if writer.was_replaced:
            self._replace_all()
        if self._directory.is_dirty:
            self._directory.flush()
            self._directory.sync_if_due(now_ms)
            if self._directory.wants_checkpoint(self._live_bytes):
                self._checkpoint_if_worth()

    def _replace_all(self) -> None:
        """Write a checkpoint at once, because the entries so far are about topics that were replaced.

        Raises:
            DataDirectoryError: The disk has failed, or is full.
        """
        self._wait_for_checkpoint()
        written = self._directory.begin_checkpoint()
        try:
            checkpoint.write(checkpoint.collect(self._cluster, self._writer), written.write)
            written.commit()
        except BaseException:
            written.abandon()
            raise
        self._writer.resume()

    def _checkpoint_if_worth(self) -> None:
        """Write a checkpoint in a thread if the log is long compared with the state."""
        self._live_bytes = checkpoint.live_bytes(self._cluster)
        if not self._directory.wants_checkpoint(self._live_bytes):
            return
        self._wait_for_checkpoint()
        try:
            written = self._directory.begin_checkpoint()
        except DataDirectoryError as error:
            logger.warning("%s", error)
            return
        entries = checkpoint.collect(self._cluster, self._writer)
        self._checkpointing = Thread(target=_write, args=(entries, written), name="fakebroker checkpoint")
        self._checkpointing.start()

    def _wait_for_checkpoint(self) -> None:
        if self._checkpointing is not None:
            self._checkpointing.join()
            self._checkpointing = None

    @property
    def next_sync_ms(self) -> float:
        """When to call `sync` next, in milliseconds of its clock; infinity if there is nothing to do."""
        return self._directory.next_sync_ms

    def sync(self, now_ms: float) -> None:
        """Force what was written to the disk if that is due.

        Args:
            now_ms: Milliseconds of any clock.

        Raises:
            DataDirectoryError: The disk has failed.
        """
        self._directory.sync_if_due(now_ms)

    def close(self, now_ms: float) -> None:
        """Store the last changes, and unlock the directory.

        Args:
            now_ms: As for `sync`.

        Raises:
            DataDirectoryError: The disk has failed.
        """
        try:
            self.flush(now_ms)
            if self._writer.is_behind:
                logger.warning("data_dir=%r: the disk is full, the last elections are not stored", self._directory.path)
        finally:
            self._wait_for_checkpoint()
            self._close_directory()


def _of_another_version(directory: DataDirectory, what: str, error: Exception) -> DataDirectoryError:
    """Return the error for entries that are intact, but make no sense."""
    reason = str(error) if isinstance(error, FakebrokerError | msgspec.MsgspecError) else repr(error)
    return DataDirectoryError.of(directory.path, f"{what}: {reason}", "a directory of this version of fakebroker")


def _write(entries: checkpoint.Entries, written: Checkpoint) -> None:
    """Write a checkpoint. If that fails, the log still has everything."""
    try:
        checkpoint.write(entries, written.write)
        written.commit()
    except DataDirectoryError as error:
        logger.warning("%s", error)
        written.abandon()
