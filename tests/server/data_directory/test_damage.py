"""An incomplete write at the end is cut with a warning, other damage is an error: nothing is lost silently."""

import re
from pathlib import Path

import pytest

from fakebroker.errors import DataDirectoryError
from fakebroker.server.data_directory.blocks import HEADER_BYTES, START_BYTES
from tests.support.data_directory import Content, content, flushed, image, logs_of, opened

WRITES = [[b"ab"], [b"c", b""], [b"de"]]
"""Payloads of the entries of each flush."""
BLOCK_SIZES = [HEADER_BYTES + 5 + 2, HEADER_BYTES + 2 * 5 + 1, HEADER_BYTES + 5 + 2]
PREFIXES: list[Content] = [[(1, payload) for write in WRITES[:count] for payload in write] for count in range(4)]
"""The content after each flush."""


def end_of(count: int) -> int:
    """Return where so many blocks end, after the first one without writes."""
    return START_BYTES + sum(BLOCK_SIZES[:count])


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A directory that was closed, with one log, of three writes that were forced to the disk."""
    path = tmp_path / "data"
    directory, _ = opened(path, fsync="always")
    for write in WRITES:
        flushed(directory, *write)
    directory.close()
    assert logs_of(path)[0].stat().st_size == end_of(3)
    return path


def overwrite(file: Path, data: bytes | bytearray) -> None:
    """Replace the content of a file. (`write_bytes` would truncate it first, after which ext4 waits for the disk.)"""
    with file.open("r+b") as opened_file:
        opened_file.write(data)
        opened_file.truncate()


def recovered(path: Path) -> tuple[Content | str, list[str]]:
    """Return the content, or the error if the directory cannot be read; and the warnings."""
    warnings: list[str] = []
    try:
        found = content(path, warnings.append)
    except DataDirectoryError as error:
        return str(error), warnings
    return found, warnings


@pytest.mark.parametrize("zeros", [0, 1, 1_000], ids="{} zeros".format)
def test_each_length_of_an_incomplete_last_write_is_cut(path: Path, zeros: int) -> None:
    [log] = logs_of(path)
    whole = log.read_bytes()
    intact = end_of(2)
    for length in range(intact, len(whole)):
        # The last byte of the write is not zero, so that no part of it with zeros is complete.
        overwrite(log, whole[:length] + bytes(zeros))
        left = len(whole[intact:length].rstrip(b"\0"))
        found, warnings = recovered(path)
        assert found == PREFIXES[2]
        warning = f"{log}: the last write is incomplete: {left} bytes at offset {intact} were removed"
        assert warnings == [warning][: bool(left)]
        assert log.stat().st_size == intact


def test_a_first_write_without_its_beginning_is_cut(tmp_path: Path) -> None:
    """A failure of the machine may leave any part of the start of a log and of the block that is written with it."""
    directory, _ = opened(tmp_path / "data", fsync="always")
    flushed(directory, *WRITES[0])
    path = image(tmp_path / "data")
    directory.close()
    [log] = logs_of(path)
    whole = log.read_bytes()
    for lost in range(1, START_BYTES):
        overwrite(log, bytes(lost) + whole[lost:])
        found, warnings = recovered(path)
        assert found == []
        assert warnings == [f"{log}: the last write is incomplete: {end_of(1)} bytes at offset 0 were removed"]
        assert content(path) == [], "what was cut stays cut"


def test_each_length_of_a_log_is_a_prefix_of_its_writes(path: Path) -> None:
    """A log that was shortened cannot be told from one whose last write is incomplete."""
    [log] = logs_of(path)
    whole = log.read_bytes()
    ends = [end_of(count) for count in range(4)]
    for length in range(len(whole) + 1):
        overwrite(log, whole[:length])
        found, warnings = recovered(path)
        count = max(sum(end <= length for end in ends) - 1, 0)
        assert found == PREFIXES[count]
        assert len(warnings) == (length not in (0, *ends))
        assert content(path) == found, "what was cut stays cut"


@pytest.mark.parametrize("zeros", [0, 64], ids="{} zeros".format)
def test_each_flipped_bit_is_noticed(path: Path, zeros: int) -> None:
    [log] = logs_of(path)
    whole = log.read_bytes()
    for bit in range(len(whole) * 8):
        damaged = bytearray(whole)
        damaged[bit // 8] ^= 1 << bit % 8
        overwrite(log, damaged + bytes(zeros))
        found, warnings = recovered(path)
        offset = max(start for start in (0, *map(end_of, range(3))) if bit // 8 >= start)
        if offset == end_of(2):
            assert found == PREFIXES[2]
            [warning] = warnings
            assert f"bytes at offset {offset} were removed" in warning
        else:
            assert f"{log} is damaged at offset {offset}: expected an intact block" in found, bit
            assert log.read_bytes() == damaged + bytes(zeros), "an error changes nothing"


def test_data_after_a_damaged_block_are_an_error(path: Path) -> None:
    [log] = logs_of(path)
    damaged = bytearray(log.read_bytes())
    damaged[-1] ^= 1
    overwrite(log, damaged + bytes(50) + b"x" + bytes(50))
    found, _ = recovered(path)
    assert f"is damaged at offset {end_of(2)}: expected an intact block, as there are data after" in found


@pytest.mark.parametrize("is_closed", [False, True])
def test_a_hole_in_what_was_not_on_disk_yet_ends_the_log(tmp_path: Path, is_closed: bool) -> None:
    """With "interval", a failure of the machine leaves any part of what was written since the last sync."""
    directory, _ = opened(tmp_path / "data")
    for write in WRITES:
        flushed(directory, *write)
    directory.sync_if_due(0)
    directory.sync_if_due(2_000)
    for write in WRITES:
        flushed(directory, *write)
    killed = image(tmp_path / "data")
    directory.close()
    path = tmp_path / "data" if is_closed else killed
    [log] = logs_of(path)
    whole = log.read_bytes()
    sizes = [START_BYTES, *BLOCK_SIZES, HEADER_BYTES, *BLOCK_SIZES, HEADER_BYTES * is_closed]
    starts = [sum(sizes[:count]) for count in range(len(sizes))]
    for block, size in enumerate(sizes[:-1]):
        start = starts[block]
        overwrite(log, whole[:start] + bytes(size) + whole[start + size :])
        found, warnings = recovered(path)
        if block < 4 or is_closed:
            assert f"{log} is damaged at offset {start}: expected an intact block" in found
            continue
        assert found == [*PREFIXES[3], *PREFIXES[max(block - 5, 0)]]
        hole = f"{log}: a write at offset {start} did not reach the disk when the machine failed"
        assert [warning.startswith(hole) for warning in warnings] == [True][: block < len(sizes) - 2]
        assert content(path) == found, "what was cut stays cut"


def test_an_older_log_that_was_shortened_between_writes_is_an_error(path: Path) -> None:
    directory, _ = opened(path)
    flushed(directory, b"newer")
    directory.close()
    [log, _] = logs_of(path)
    whole = log.read_bytes()
    for length in (0, *map(end_of, range(3))):
        overwrite(log, whole[:length])
        expected = f"expected {end_of(3)} bytes, the size of this log when the next one was begun"
        assert recovered(path)[0] == f"data_dir='{path}': {log} is damaged at offset {length}: {expected}"


def test_a_block_that_a_client_sent_is_not_taken_for_one(path: Path) -> None:
    """The payload of the last entry has a copy of the log's first block."""
    [log] = logs_of(path)
    copied = log.read_bytes()[: end_of(1)]
    directory, _ = opened(path)
    flushed(directory, copied * 3)
    killed = image(path)
    directory.close()
    log = logs_of(killed)[-1]
    damaged = bytearray(log.read_bytes())
    damaged[START_BYTES + HEADER_BYTES + 5] ^= 1
    overwrite(log, damaged)
    found, warnings = recovered(killed)
    assert found == PREFIXES[3]
    assert len(warnings) == 1


def test_each_flipped_bit_of_a_checkpoint_is_an_error(path: Path) -> None:
    directory, _ = opened(path)
    checkpoint = directory.begin_checkpoint()
    checkpoint.write(1, [b"live"])
    checkpoint.commit()
    directory.close()
    [file] = path.glob("*.checkpoint")
    whole = file.read_bytes()
    for bit in range(len(whole) * 8):
        damaged = bytearray(whole)
        damaged[bit // 8] ^= 1 << bit % 8
        overwrite(file, damaged)
        assert f"{file} is damaged at offset" in recovered(path)[0]
    for length in range(len(whole)):
        overwrite(file, whole[:length])
        assert f"{file} is damaged at offset {length}: expected the end of a checkpoint" in recovered(path)[0]


def test_older_logs_must_be_complete(path: Path) -> None:
    directory, _ = opened(path)
    flushed(directory, b"newer")
    directory.close()
    [log, _] = logs_of(path)
    whole = log.read_bytes()
    for damaged in (whole[:-1], whole + b"\0"):
        overwrite(log, damaged)
        offset = end_of(2 if len(damaged) < len(whole) else 3)
        assert f"{log} is damaged at offset {offset}: expected an intact block" in recovered(path)[0]


def test_a_log_of_another_number_is_an_error(path: Path) -> None:
    directory, _ = opened(path)
    flushed(directory, b"newer")
    directory.close()
    [first, second] = logs_of(path)
    overwrite(first, second.read_bytes())
    with pytest.raises(DataDirectoryError, match=re.escape(f"{first} is damaged at offset 0")):
        content(path)


@pytest.mark.parametrize("missing", [1, 2])
def test_missing_logs_are_errors(path: Path, missing: int) -> None:
    for payload in (b"a", b"b"):
        directory, _ = opened(path)
        flushed(directory, payload)
        directory.close()
    logs_of(path)[missing - 1].unlink()
    with pytest.raises(DataDirectoryError, match=f"{missing:020}.log is missing: expected all logs$"):
        content(path)


def test_the_log_after_a_checkpoint_must_exist(path: Path) -> None:
    directory, _ = opened(path)
    directory.begin_checkpoint().commit()
    directory.close()
    logs_of(path)[0].unlink()
    with pytest.raises(DataDirectoryError, match=f"{2:020}.log is missing"):
        content(path)
