"""What is written to a data directory is read again, in the same order, after a close and after a kill."""

import errno
import os
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings, strategies as st

from fakebroker.errors import DataDirectoryError
from fakebroker.server.data_directory import blocks, directory as directory_module, file_operations
from fakebroker.server.data_directory.blocks import HEADER_BYTES, START_BYTES
from fakebroker.server.data_directory.directory import DataDirectory
from tests.support.data_directory import (
    FastOperations,
    InjectedOperations,
    content,
    flushed,
    image,
    logs_of,
    no_warning,
    opened,
)
from tests.support.soak import examples, soak

PAYLOADS = st.lists(st.binary(max_size=300), max_size=4)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.integers(0, 255), PAYLOADS),
        st.tuples(st.sampled_from(["flush", "kill", "close", "checkpoint", "abandon"])),
    ),
    max_size=25,
)


@soak
@settings(max_examples=examples(40, soak=3_000))
@given(steps=STEPS, read_bytes=st.sampled_from([HEADER_BYTES, 100, 500, blocks.READ_BYTES]))
def test_entries_survive_closes_kills_and_checkpoints(steps: list[tuple[object, ...]], read_bytes: int) -> None:
    with TemporaryDirectory() as parent, pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocks, "READ_BYTES", read_bytes)
        patch.setattr("fakebroker.server.data_directory.recovery.READ_BYTES", max(read_bytes, 32))
        path = Path(parent) / "data"
        directory, safe = opened(path)
        pending: list[tuple[int, bytes]] = []
        for number, (step, *arguments) in enumerate(steps):
            if step == "write":
                kind, parts = arguments
                directory.write(kind, parts)  # type: ignore[arg-type]  # of the strategy above
                pending.append((kind, b"".join(parts)))  # type: ignore[arg-type]  # as above
            elif step == "flush":
                directory.flush()
                safe, pending = safe + pending, []
            elif step == "kill":
                copy = image(path, number)
                directory.close()
                path, pending = copy, []
                directory, found = opened(path)
                assert found == safe
            elif step == "close":
                directory.close()
                safe, pending = safe + pending, []
                directory, found = opened(path)
                assert found == safe
            else:
                checkpoint = directory.begin_checkpoint()
                safe, pending = safe + pending, []
                live = safe[::2]
                for kind, payload in live:
                    checkpoint.write(kind, [payload])
                if step == "checkpoint":
                    checkpoint.commit()
                    safe = live
                else:
                    checkpoint.abandon()
            assert directory.is_dirty == bool(pending)
        directory.close()
        assert content(path) == safe + pending


def test_a_checkpoint_replaces_older_files(tmp_path: Path) -> None:
    path = tmp_path / "data"
    directory, _ = opened(path)
    flushed(directory, b"old")
    checkpoint = directory.begin_checkpoint()
    flushed(directory, b"written meanwhile")
    checkpoint.write(2, [b"li", memoryview(b"ve")])
    assert content(image(path)) == [(1, b"old"), (1, b"written meanwhile")]
    checkpoint.commit()
    flushed(directory, b"later")
    directory.close()
    assert sorted(each.name for each in path.iterdir()) == [f"{2:020}.checkpoint", f"{2:020}.log", "format", "lock"]
    assert content(path) == [(2, b"live"), (1, b"written meanwhile"), (1, b"later")]


def test_a_checkpoint_is_wanted_when_the_logs_are_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(directory_module, "MIN_LOG_BYTES", 1_000)
    directory, _ = opened(tmp_path)
    flushed(directory, bytes(900))
    assert not directory.wants_checkpoint(0)
    flushed(directory, bytes(900))
    assert directory.wants_checkpoint(800)
    assert not directory.wants_checkpoint(1_000), "the logs are shorter than twice what is live"
    directory.close()
    directory, _ = opened(tmp_path)
    assert directory.wants_checkpoint(800), "logs of the previous process count"

    checkpoint = directory.begin_checkpoint()
    assert not directory.wants_checkpoint(0), "there is one at a time"
    checkpoint.abandon()
    assert not directory.wants_checkpoint(0), "the next attempt waits until the logs have grown"
    flushed(directory, bytes(1_000))
    assert directory.wants_checkpoint(0)
    directory.begin_checkpoint().commit()
    assert not directory.wants_checkpoint(0)
    flushed(directory, bytes(1_000))
    assert directory.wants_checkpoint(0)
    directory.close()


def test_a_large_write_is_split_and_read_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "READ_BYTES", 16_000)
    monkeypatch.setattr(directory_module, "_BUFFER_BYTES", 16_000)
    directory, _ = opened(tmp_path)
    payloads = [bytes([number]) * size for number, size in enumerate([9_000, 9_000, 40_000, 3])]
    flushed(directory, *payloads)
    directory.close()
    assert content(tmp_path) == [(1, payload) for payload in payloads]
    assert logs_of(tmp_path)[0].stat().st_size == sum(map(len, payloads)) + 4 * 5 + (3 + 1) * HEADER_BYTES + START_BYTES


def test_space_is_allocated_ahead_and_trimmed_when_the_directory_is_closed(tmp_path: Path) -> None:
    directory, _ = opened(tmp_path)
    flushed(directory, b"first")
    [log] = logs_of(tmp_path)
    assert log.stat().st_size == 2**20
    assert log.stat().st_blocks * 512 >= 2**20, "the space is not only promised"
    assert directory.reserve(2**20)
    assert log.stat().st_size == 2 * 2**20
    directory.close()
    assert log.stat().st_size == START_BYTES + HEADER_BYTES + 5 + len(b"first") + HEADER_BYTES


@pytest.mark.parametrize(("fsync", "syncs"), [("always", [1, 2, 2]), ("interval", [0, 0, 1])])
def test_entries_are_synced_at_each_flush_or_each_second(tmp_path: Path, fsync: object, syncs: list[int]) -> None:
    counted: list[int] = []

    class Counting(FastOperations):
        def sync(self, fd: int) -> None:
            counted.append(fd)

    opened(tmp_path)[0].close()
    directory, _ = opened(tmp_path, fsync=fsync, operations=Counting())  # type: ignore[arg-type]  # parametrized
    found = []
    flushed(directory, b"a")
    found.append(len(counted))
    directory.sync_if_due(5_000)
    flushed(directory, b"b")
    directory.sync_if_due(5_999)
    found.append(len(counted))
    assert (directory.next_sync_ms == 6_000) == (fsync == "interval")
    directory.sync_if_due(6_000)
    found.append(len(counted))
    assert found == syncs
    assert directory.next_sync_ms == float("inf")
    directory.close()


def test_entries_are_read_once_and_before_anything_is_written(tmp_path: Path) -> None:
    directory = DataDirectory.open(tmp_path, warn=no_warning, operations=FastOperations())
    with pytest.raises(RuntimeError, match="are read before anything is written"):
        directory.reserve(1)
    assert list(directory.entries()) == []
    with pytest.raises(RuntimeError, match="are read once"):
        next(directory.entries())
    directory.close()


def test_what_was_read_is_on_disk(tmp_path: Path) -> None:
    directory, _ = opened(tmp_path / "data")
    flushed(directory, b"a")
    killed = image(tmp_path / "data")
    synced: list[str] = []

    def note(name: str, place: str | int) -> None:
        if name == "sync":
            synced.append(os.readlink(f"/proc/self/fd/{place}"))

    later, _ = opened(killed, operations=InjectedOperations(note))
    assert synced == [str(path) for path in logs_of(killed)]
    later.close()
    directory.close()


def unsupported(fd: int, offset: int, size_bytes: int) -> None:
    raise OSError(errno.EOPNOTSUPP, "Operation not supported")


@pytest.mark.parametrize("allocate", [None, unsupported], ids=["macOS", "not by the file system"])
def test_entries_survive_where_space_cannot_be_allocated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, allocate: Callable[[int, int, int], None] | None
) -> None:
    monkeypatch.setattr(file_operations, "_ALLOCATE", allocate)
    path = tmp_path / "data"
    directory, _ = opened(path)
    flushed(directory, bytes(2_000_000))
    copy = image(path)
    directory.close()
    assert content(copy) == content(path) == [(1, bytes(2_000_000))]


def test_other_errors_of_allocations_are_raised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(file_operations, "_ALLOCATE", fail)
    directory, _ = opened(tmp_path / "data")
    with pytest.raises(DataDirectoryError, match="Input/output error"):
        directory.reserve(1)
    directory.close()
