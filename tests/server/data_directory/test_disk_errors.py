"""Crashes and errors at each operation on files, and a failure of the machine: what was acknowledged is read again."""

import contextlib
import errno
import os
import random
import shutil
from collections.abc import Callable
from math import inf
from pathlib import Path

import pytest

from fakebroker.errors import DataDirectoryError, DiskFullError
from fakebroker.server.data_directory import log_file
from fakebroker.server.data_directory.directory import DataDirectory, Fsync
from fakebroker.server.data_directory.file_operations import FileOperations
from tests.support.data_directory import FastOperations, InjectedOperations, content, flushed, image, opened
from tests.support.soak import cases, soak

Synced = Callable[[list[int]], object]


class Crash(BaseException):
    """The process ends here."""


@pytest.fixture(autouse=True)
def _small_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """Allocate less ahead, because images of the directories are copied."""
    monkeypatch.setattr(log_file, "_FIRST_STEP_BYTES", 4_096)


def numbers(path: Path) -> list[int]:
    """Return the numbers that `history` wrote to a directory: those of a checkpoint are one entry of kind 2."""
    found: list[int] = []
    for kind, payload in content(path, lambda sentence: None):
        number = int(payload)
        found = list(range(number)) if kind == 2 else [*found, number]
    return found


def history(
    path: Path, operations: FileOperations, acknowledged: list[int], fsync: Fsync = "always", synced: Synced = len
) -> None:
    """Write numbers with two checkpoints, a restart and a close.

    Args:
        path: The directory.
        operations: Changes files.
        acknowledged: Gets each number when its flush has returned.
        fsync: See `DataDirectory.open`.
        synced: Called with `acknowledged` when all of them are on disk, although `fsync` is "interval".
    """
    directory, found = opened(path, fsync=fsync, operations=operations, warn=lambda sentence: None)
    number = len(found)

    def write(count: int) -> None:
        nonlocal number
        for _ in range(count):
            flushed(directory, b"%d" % number, b"%d" % (number + 1))
            acknowledged.extend((number, number + 1))
            number += 2
            directory.sync_if_due(number * 300)  # Each second write.
            if directory.next_sync_ms == inf:
                synced(acknowledged)

    def checkpoint() -> None:
        running = directory.begin_checkpoint()
        running.write(2, [b"%d" % number])
        write(1)
        running.commit()

    write(2)
    checkpoint()
    write(1)
    checkpoint()
    directory.close()
    directory, _ = opened(path, fsync=fsync, operations=operations, warn=lambda sentence: None)
    synced(acknowledged)
    write(3)
    directory.close()


def operations_of_history(tmp_path: Path) -> list[str]:
    names: list[str] = []
    history(tmp_path / "counted", InjectedOperations(lambda name, _: names.append(name)), [])
    return names


def is_safe(path: Path, acknowledged: list[int]) -> bool:
    """Return whether a directory has what was acknowledged, and after it at most what one flush writes."""
    found = numbers(path)
    return found[: len(acknowledged)] == acknowledged and found in (
        acknowledged,
        [*acknowledged, len(acknowledged), len(acknowledged) + 1],
    )


class TornWrites(InjectedOperations):
    """Writes the first part of what is written when the process crashes."""

    def write(self, fd: int, data: bytes | bytearray | memoryview) -> int:
        try:
            return super().write(fd, data)
        except Crash:
            os.write(fd, data[: len(data) * 2 // 3])
            raise


@pytest.mark.parametrize("kind", [InjectedOperations, TornWrites])
def test_a_crash_before_each_operation_loses_nothing(tmp_path: Path, kind: type[InjectedOperations]) -> None:
    count = len(operations_of_history(tmp_path))
    assert count > 40
    for stop_at in range(count):
        done = 0

        def step(name: str, _: str | int, stop_at: int = stop_at) -> None:
            nonlocal done
            done += 1
            if done > stop_at:
                raise Crash

        path, acknowledged = tmp_path / str(stop_at), list[int]()
        with pytest.raises(Crash):
            history(path, kind(step), acknowledged)
        copy = image(path)
        assert is_safe(copy, acknowledged), (stop_at, acknowledged)
        directory, _ = opened(copy, warn=lambda sentence: None)
        flushed(directory, b"0", kind=2)
        directory.close()
        assert numbers(copy) == [], "it can be written again"


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC])
def test_an_error_of_each_operation_is_reported_and_loses_nothing(tmp_path: Path, number: int) -> None:
    names = operations_of_history(tmp_path)
    for fail_at, failing in enumerate(names):
        done = 0

        def step(name: str, _: str | int, fail_at: int = fail_at) -> None:
            nonlocal done
            done += 1
            if done == fail_at + 1:
                raise OSError(number, os.strerror(number))

        path, acknowledged = tmp_path / str(fail_at), list[int]()
        reported: Exception | None = None
        try:
            history(path, InjectedOperations(step), acknowledged)
        except (DataDirectoryError, AssertionError) as error:
            reported = error
        if isinstance(reported, DataDirectoryError):
            assert str(reported).startswith(f"data_dir='{path}': ")
            assert isinstance(reported, DiskFullError) == (number == errno.ENOSPC)
            assert os.strerror(number) in str(reported)
        else:
            # `reserve` returned False because there was no space for a new log, or could allocate a smaller part.
            assert number == errno.ENOSPC
            assert failing in (("create", "sync_directory") if reported else ("allocate",))
        if path.exists():
            assert is_safe(image(path), acknowledged), (fail_at, failing)


@pytest.mark.parametrize("failing", ["write", "sync"])
def test_a_directory_whose_disk_failed_refuses_everything(tmp_path: Path, failing: str) -> None:
    is_broken = False

    def step(name: str, _: str | int) -> None:
        if is_broken and name == failing:
            raise OSError(errno.EIO, "Input/output error")

    directory, _ = opened(tmp_path, fsync="always", operations=InjectedOperations(step))
    flushed(directory, b"safe")
    is_broken = True
    with pytest.raises(DataDirectoryError, match="Input/output error: expected a directory on a disk that works"):
        flushed(directory, b"lost")
    is_broken = False
    refused: list[Callable[[], object]] = [
        lambda: directory.reserve(1),
        lambda: directory.write(1, [b"a"]),
        directory.flush,
        directory.begin_checkpoint,
    ]
    for operation in refused:
        with pytest.raises(DataDirectoryError, match="Input/output error"):
            operation()
    found = content(image(tmp_path))
    assert found[:1] == [(1, b"safe")]
    directory.close()
    assert content(tmp_path) == found, "`close` writes nothing more"


def test_a_disk_without_space_for_a_checkpoint_keeps_the_log(tmp_path: Path) -> None:
    is_full = False

    def step(name: str, _: str | int) -> None:
        if is_full and name in ("create", "write"):
            raise OSError(errno.ENOSPC, "No space left on device")

    directory, _ = opened(tmp_path, operations=InjectedOperations(step))
    flushed(directory, b"a")
    is_full = True
    with pytest.raises(DiskFullError, match="No space left on device: expected a disk with free space"):
        directory.begin_checkpoint()
    is_full = False
    flushed(directory, b"b")
    checkpoint = directory.begin_checkpoint()
    checkpoint.write(2, [b"0"])
    is_full = True
    with pytest.raises(DiskFullError, match="No space left on device: expected a disk with free space"):
        checkpoint.commit()
    checkpoint.abandon()
    is_full = False
    flushed(directory, b"c")
    directory.close()
    assert content(tmp_path) == [(1, b"a"), (1, b"b"), (1, b"c")]
    assert not list(tmp_path.glob("*.checkpoint*"))


class VolatileDisk(FastOperations):
    """Remembers what is not on disk yet, so that a failure of the machine can lose any part of it.

    Args:
        random: Decides what is lost.
        crash_at: Number of the operation before which the machine fails.
    """

    SECTOR_BYTES = 16

    def __init__(self, random: random.Random, crash_at: int) -> None:
        self._random, self._left = random, crash_at
        self._paths: dict[int, str] = {}
        self._unsynced: dict[str, list[tuple[int, bytes]]] = {}
        """What files had before each unsynced change, by path: offset and bytes."""
        self._names: list[Callable[[Path], None]] = []
        """How each change of names since the last sync of the directory is undone, in an image."""

    def _step(self) -> None:
        self._left -= 1
        if self._left < 0:
            raise Crash

    def create(self, path: str) -> int:
        self._step()
        fd = super().create(path)
        self._paths[fd] = path
        self._unsynced[path] = []
        name = os.path.basename(path)
        self._names.append(lambda image: (image / name).unlink(missing_ok=True))
        return fd

    def write(self, fd: int, data: bytes | bytearray | memoryview) -> int:
        self._step()
        path, offset = self._paths[fd], os.lseek(fd, 0, os.SEEK_CUR)
        before = os.pread(fd, len(data), offset)
        written = super().write(fd, data)
        self._unsynced[path].append((offset, before.ljust(written, b"\0")))
        return written

    def allocate(self, fd: int, offset: int, size_bytes: int) -> None:
        self._step()
        super().allocate(fd, offset, size_bytes)

    def sync(self, fd: int) -> None:
        self._step()
        path = os.readlink(f"/proc/self/fd/{fd}")
        self._unsynced[path] = []

    def truncate(self, path: str, size_bytes: int) -> None:
        self._step()
        before = Path(path).read_bytes()[size_bytes:]
        super().truncate(path, size_bytes)
        self._unsynced.setdefault(path, []).append((size_bytes, before))

    def rename(self, path: str, new_path: str) -> None:
        self._step()
        super().rename(path, new_path)
        self._unsynced[new_path] = self._unsynced.pop(path)
        self._paths = {fd: new_path if each == path else each for fd, each in self._paths.items()}
        old, new = os.path.basename(path), os.path.basename(new_path)
        self._names.append(lambda image: os.rename(image / new, image / old))

    def remove(self, path: str) -> None:
        self._step()
        if not os.path.exists(path):
            return
        data, name = Path(path).read_bytes(), os.path.basename(path)
        super().remove(path)
        self._names.append(lambda image: _write_if_missing(image / name, data))

    def sync_directory(self, path: str) -> None:
        self._step()
        self._names.clear()

    def fail(self, path: Path, image: Path) -> None:
        """Write what the disk has after the failure of the machine.

        Args:
            path: The directory.
            image: The new directory.
        """
        shutil.copytree(path, image)
        for name, changes in self._unsynced.items():
            file = image / os.path.basename(name)
            if not file.exists():
                continue
            data = bytearray(file.read_bytes())
            for offset, before in reversed(changes):
                for start in range(0, len(before), self.SECTOR_BYTES):
                    if self._random.random() < 0.5:
                        part = before[start : start + self.SECTOR_BYTES]
                        data.extend(bytes(max(offset + start + len(part) - len(data), 0)))
                        data[offset + start : offset + start + len(part)] = part
            file.write_bytes(data)
        for undo in reversed(self._names):
            if self._random.random() < 0.5:
                undo(image)


def _write_if_missing(path: Path, data: bytes) -> None:
    if not path.exists():
        path.write_bytes(data)


@soak
def test_a_failure_of_the_machine_loses_nothing_that_was_acknowledged_with_always(tmp_path: Path) -> None:
    names = operations_of_history(tmp_path)
    count = len(names) - len(names[: names.index("rename") + 2])  # Without those that create the directory.
    DataDirectory.open(tmp_path / "new", warn=print).close()
    for seed in cases(60, soak=1_000):
        rng = random.Random(seed)
        path, acknowledged = Path(shutil.copytree(tmp_path / "new", tmp_path / str(seed))), list[int]()
        disk = VolatileDisk(rng, rng.randrange(count))
        with pytest.raises(Crash):
            history(path, disk, acknowledged)
        after = tmp_path / f"{seed}-after"
        disk.fail(path, after)
        assert is_safe(after, acknowledged), (seed, acknowledged, numbers(after))
        shutil.rmtree(path)
        shutil.rmtree(after)


@soak
def test_a_failure_of_the_machine_leaves_what_was_synced_with_an_interval_and_some_more(tmp_path: Path) -> None:
    count = len(operations_of_history(tmp_path))
    DataDirectory.open(tmp_path / "new", warn=print).close()
    least, most = 0, 0
    for seed in cases(60, soak=1_000):
        rng = random.Random(seed)
        path, written, synced = Path(shutil.copytree(tmp_path / "new", tmp_path / str(seed))), list[int](), [0]
        disk = VolatileDisk(rng, rng.randrange(count))

        def note(numbers: list[int], synced: list[int] = synced) -> None:
            synced.append(len(numbers))

        with contextlib.suppress(Crash):
            history(path, disk, written, "interval", note)
        after = tmp_path / f"{seed}-after"
        disk.fail(path, after)
        found = numbers(after)
        assert found == list(range(len(found))), seed
        assert synced[-1] <= len(found) <= len(written) + 2, (seed, synced, written, found)
        least, most = least + (len(found) < len(written)), most + (len(found) > synced[-1])
        shutil.rmtree(path)
        shutil.rmtree(after)
    assert least, "in some cases, something was lost"
    assert most, "in others, something that was not synced was on disk"
