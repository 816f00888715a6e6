"""Data directories that an older version has written can be opened."""

import zlib
from base64 import b64decode
from pathlib import Path

import pytest

from fakebroker import FakeCluster

OLDER = Path(__file__).parent / "older"
"""The files of two directories of format 2: one has a log only, the other one has a checkpoint of a restored snapshot.

An application with a transactional id `payments` has committed one record, and a consumer of the group `billing` has
committed its offset and left.
"""


def unpacked(name: str, directory: Path) -> Path:
    """Write the files of a directory: after the name of a file, its compressed bytes in Base64."""
    directory.mkdir()
    file, content = "", dict[str, str]()
    for line in (OLDER / f"{name}.txt").read_text().splitlines():
        if line.endswith(":"):
            file = line[:-1]
        else:
            content[file] = content.get(file, "") + line
    for file, text in content.items():
        (directory / file).write_bytes(zlib.decompress(b64decode(text)))
    return directory


@pytest.mark.parametrize("name", ["log", "snapshot"])
def test_an_older_directory_is_read(name: str, tmp_path: Path) -> None:
    with FakeCluster(data_dir=unpacked(name, tmp_path / "data"), brokers=2) as cluster:
        assert [record.value for record in cluster.topic("orders").records()] == [b"one"]
        group = cluster.group("billing").describe()
        assert (group.state, group.generation_id) == ("Empty", 2)
        committed = {place: offset.offset for place, offset in cluster.group("billing").offsets().items()}
        assert committed[("orders", 0)] >= 1
        assert cluster.transaction("payments").describe().state == "CompleteCommit"
