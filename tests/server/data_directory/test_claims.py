"""Directories that cannot be used, with the sentence that says why; and full disks."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from fakebroker.errors import DataDirectoryError
from tests.support.data_directory import InjectedOperations, content, flushed, opened
from tests.support.mount_namespaces import in_mount_namespace

OPEN = "from fakebroker.server.data_directory.directory import DataDirectory\n"


def refusal(path: Path) -> str:
    """Return the error of a directory, without its prefix."""
    with pytest.raises(DataDirectoryError) as caught:
        opened(path)
    prefix = f"data_dir='{path}': "
    assert str(caught.value).startswith(prefix)
    return str(caught.value).removeprefix(prefix)


def test_a_missing_directory_is_created_for_this_user_only(tmp_path: Path) -> None:
    path = tmp_path / "parent" / "data"
    directory, found = opened(path)
    flushed(directory, b"a")
    directory.close()
    assert found == []
    assert path.stat().st_mode & 0o777 == 0o700
    assert {file.stat().st_mode & 0o777 for file in path.iterdir()} == {0o600}


@pytest.mark.slow
def test_a_directory_in_use_is_refused_with_the_process(tmp_path: Path) -> None:
    directory, _ = opened(tmp_path)
    expected = f"in use by process {os.getpid()}: expected a directory that no other cluster uses"
    assert refusal(tmp_path) == expected
    other = subprocess.run(
        [sys.executable, "-c", OPEN + f"DataDirectory.open({str(tmp_path)!r}, warn=print)"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert other.stderr.splitlines()[-1].endswith(expected)
    directory.close()
    assert content(tmp_path) == []


def test_a_directory_with_other_files_is_refused_and_stays_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").touch()
    sentence = "has other files, such as 'notes.txt': expected an empty directory, or one that fakebroker created"
    assert refusal(tmp_path) == sentence
    assert os.listdir(tmp_path) == ["notes.txt"]


def test_other_files_beside_a_format_are_ignored(tmp_path: Path) -> None:
    opened(tmp_path)[0].close()
    (tmp_path / "notes.txt").touch()
    assert content(tmp_path) == []


def test_all_directories_of_a_new_path_are_on_disk(tmp_path: Path) -> None:
    synced = list[str | int]()
    operations = InjectedOperations(lambda name, path: synced.append(path) if name == "sync_directory" else None)
    path = tmp_path / "a" / "b" / "data"
    opened(path, operations=operations)[0].close()
    assert synced == [str(each) for each in (tmp_path, tmp_path / "a", tmp_path / "a" / "b", path)]
    assert path.stat().st_mode & 0o777 == 0o700


def test_the_root_of_an_empty_file_system_can_be_used(tmp_path: Path) -> None:
    (tmp_path / "lost+found").mkdir()
    assert content(tmp_path) == []


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("fakebroker data directory, format 1\n", "has format 1"),
        ("fakebroker data directory, format 2", "{}/format is damaged"),
        ("", "{}/format is damaged"),
        ("\0" * 36, "{}/format is damaged"),
    ],
)
def test_another_format_is_refused(tmp_path: Path, line: str, sentence: str) -> None:
    opened(tmp_path)[0].close()
    (tmp_path / "format").write_text(line)
    assert refusal(tmp_path) == f"{sentence.format(tmp_path)}: expected format 2, that of this version of fakebroker"


def test_a_file_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    assert refusal(file) == f"Not a directory: {file}: expected a directory"
    assert refusal(file / "data") == f"Not a directory: {file / 'data'}: expected a directory"


@pytest.mark.slow
def test_a_read_only_directory_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "data"
    directory, _ = opened(path)
    flushed(directory, b"a")
    directory.close()
    ran = in_mount_namespace(
        OPEN + f"DataDirectory.open({str(path)!r}, warn=print)", f"--bind {path} {path}", f"-o remount,bind,ro {path}"
    )
    sentence = f"data_dir='{path}': Read-only file system: {path}/lock: expected a directory that this user can write"
    assert ran.stderr.splitlines()[-1] == f"fakebroker.errors.DataDirectoryError: {sentence}"


FULL = """
import os, sys
path = PATH
directory = DataDirectory.open(path, warn=print)
list(directory.entries())
written = 0
while directory.reserve(10_000):
    directory.write(1, [bytes([written % 251]) * 10_000])
    directory.flush()
    written += 1
assert not directory.reserve(10_000)
print("full after", written)
MAKE_SPACE
assert directory.reserve(10_000), "there is space again"
directory.write(1, [bytes([written % 251]) * 10_000])
directory.flush()
directory.close()
directory = DataDirectory.open(path, warn=print)
assert [(kind, bytes(payload)) for kind, payload in directory.entries()] == [
    (1, bytes([number % 251]) * 10_000) for number in range(written + 1)
]
directory.close()
print("read again")
"""


def full(path: Path, make_space: str) -> str:
    """Return the script that fills a disk, makes space and continues."""
    return FULL.replace("PATH", repr(str(path))).replace("MAKE_SPACE", make_space)


@pytest.mark.slow
def test_a_full_file_system_takes_no_more_entries_until_there_is_space(tmp_path: Path) -> None:
    path = tmp_path / "data"
    script = f"open({str(tmp_path / 'other')!r}, 'wb').write(bytes(500_000))\n"
    ran = in_mount_namespace(
        OPEN + script + full(path, f"os.remove({str(tmp_path / 'other')!r})"), f"-t tmpfs -o size=4m none {tmp_path}"
    )
    assert not ran.returncode, ran.stderr
    [refused, first, accepted, last] = ran.stdout.splitlines()
    assert refused == f"data_dir='{path}': the disk is full, writes are refused"
    assert 300 < int(first.removeprefix("full after ")) < 400, "nearly all of the space is used"
    assert accepted == f"data_dir='{path}': the disk has space again"
    assert last == "read again"


@pytest.mark.slow
def test_a_directory_on_a_full_file_system_is_read_and_a_new_one_is_refused(tmp_path: Path) -> None:
    path, other = tmp_path / "data", tmp_path / "other"
    script = f"""
import os
directory = DataDirectory.open({str(path)!r}, warn=print)
assert not list(directory.entries()) and directory.reserve(1)
directory.write(1, [b"a"])
directory.close()
try:
    open({str(other)!r}, "wb").write(bytes(2_000_000))
except OSError:
    pass
directory = DataDirectory.open({str(path)!r}, warn=print)
assert [bytes(payload) for _, payload in directory.entries()] == [b"a"]
assert not directory.reserve(100_000)
try:
    DataDirectory.open({str(tmp_path / "new")!r}, warn=print)
except Exception as error:
    print(type(error).__name__, error)
os.remove({str(other)!r})
assert directory.reserve(100_000)
directory.close()
"""
    ran = in_mount_namespace(OPEN + script, f"-t tmpfs -o size=1m none {tmp_path}")
    assert not ran.returncode, ran.stderr
    [_, refused, _] = ran.stdout.splitlines()
    assert refused.startswith(f"DiskFullError data_dir='{tmp_path / 'new'}': No space left on device")
    assert refused.endswith(": expected a disk with free space")


@pytest.mark.slow
def test_a_limit_of_the_size_of_files_is_a_full_disk(tmp_path: Path) -> None:
    limit = "import resource\nresource.setrlimit(resource.RLIMIT_FSIZE, ({}, resource.RLIM_INFINITY))\n"
    script = limit.format(3_000_000) + full(tmp_path / "data", limit.format("resource.RLIM_INFINITY"))
    ran = subprocess.run([sys.executable, "-c", OPEN + script], capture_output=True, text=True, check=False)
    assert not ran.returncode, ran.stderr
    [_, first, _, last] = ran.stdout.splitlines()
    assert 250 < int(first.removeprefix("full after ")) < 300
    assert last == "read again"
