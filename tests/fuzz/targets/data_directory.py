"""Data directories: damaged files, and logs with any entries, from which a cluster starts."""

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from fakebroker.cluster.handles.cluster import ClusterHandle
from fakebroker.cluster.handles.local import Local
from fakebroker.cluster.storage import checkpoint
from fakebroker.cluster.storage.state_writer import StateWriter
from fakebroker.errors import ConfigError, DataDirectoryError
from fakebroker.server.data_directory.directory import SYNC_INTERVAL_MS, DataDirectory
from fakebroker.server.persistence import Persistence
from tests.support.cluster.cluster_harness import START_MS, ClusterHarness, ClusterHarnessEnvironment, batch
from tests.support.cluster.stored_clusters import durable

FILES, ENTRIES = range(2)
"""What an input has, by its first byte: changes of files, or entries."""

Content = list[tuple[int, bytes]]
_SHARED_MEMORY = Path("/dev/shm")
_NODE_IDS = 2
_MOST_CHANGES = 20
_MOST_WARNINGS = 1


def run(data: bytes) -> None:
    """Start a cluster with a data directory whose files were changed, or whose log has any entries.

    The start fails with an error of a data directory; or, after changes of files, the cluster has what was stored up to
    some moment, and a second start the same.

    Args:
        data: A byte that selects what follows: `FILES` and changes of files, each with a number of the file, a kind,
            an offset and bytes after their size; or `ENTRIES` and entries, each with a kind and bytes after their size.
    """
    parent = _SHARED_MEMORY if _SHARED_MEMORY.is_dir() else None
    with TemporaryDirectory(dir=parent) as name:
        path = Path(name)
        if data[:1] == bytes([ENTRIES]):
            _write(path, _entries(data[1:]))
            _started_or_none(path)  # The next start can find a state that no cluster has, and differ.
            _started_or_none(path)
        else:
            _change_files(path, data[1:])
            if _has_prefix(path):
                first = _started_or_none(path)
                assert first is not None
                assert _started_or_none(path) == first


def _has_prefix(path: Path) -> bool:
    """Check that what is read was written before anything that is not; return False if it cannot be read."""
    warnings: list[str] = []
    try:
        found = _read(path, warnings)
    except DataDirectoryError:
        return False
    assert found == _stored()[: len(found)]
    assert len(warnings) <= _MOST_WARNINGS
    assert _read(path, warnings) == found
    assert len(warnings) <= _MOST_WARNINGS, "what was cut stays cut"
    return True


def _started_or_none(path: Path) -> object | None:
    try:
        return _started(path)
    except (ConfigError, DataDirectoryError):
        return None


def _started(path: Path) -> object:
    """Start a cluster, as `FakeCluster` does, stop it, and return its state."""
    persistence = Persistence.open(path, "interval")
    try:
        cluster = ClusterHarness({}, _NODE_IDS).cluster
        persistence.attach(cluster, START_MS)
        persistence.store_start(START_MS)
        state = durable(cluster)
        cluster.tick(START_MS, START_MS)
    except BaseException:
        persistence.give_up()
        raise
    persistence.close(START_MS)
    return state


def _read(path: Path, warnings: list[str]) -> Content:
    directory = DataDirectory.open(path, warn=warnings.append)
    try:
        return [(kind, bytes(payload)) for kind, payload in directory.entries()]
    finally:
        directory.close()


def _write(path: Path, entries: Content) -> None:
    directory = DataDirectory.open(path, warn=print)
    assert not list(directory.entries())
    for kind, payload in entries:
        assert directory.reserve(len(payload))
        directory.write(kind, [payload])
    directory.close()


def _entries(data: bytes) -> Content:
    """Return the entries of an input. The last one may be incomplete."""
    found: Content = []
    while data:
        end = 3 + int.from_bytes(data[1:3], "big")
        found.append((data[0], data[3:end]))
        data = data[end:]
    return found


def _encoded(entries: Content) -> bytes:
    return b"".join(bytes([kind]) + len(payload).to_bytes(2, "big") + payload for kind, payload in entries)


def _change_files(path: Path, data: bytes) -> None:
    """Write the files of a directory, with the changes of an input."""
    contents = {name: bytearray(content) for name, content in _files().items()}
    names = sorted(contents)
    for _ in range(_MOST_CHANGES):
        if len(data) < 5:
            break
        name, kind, offset, size = names[data[0] % len(names)], data[1] % 6, int.from_bytes(data[2:4], "big"), data[4]
        new, data = data[5 : 5 + size], data[5 + size :]
        content = contents.get(name, bytearray())
        at = offset % (len(content) + 1)
        match kind:
            case 0:
                content[at : at + len(new)] = new
            case 1:
                content[at:at] = new
            case 2:
                del content[at:]
            case 3:
                content[at : at + size] = bytes(len(content[at : at + size]))
            case 4:
                contents[names[offset % len(names)]] = bytearray(content)
            case _:
                contents.pop(name, None)
    for name, changed in contents.items():
        (path / name).write_bytes(changed)


@cache
def _stored() -> Content:
    """Return the entries of the directory that is changed."""
    with TemporaryDirectory() as name:
        for file, content in _files().items():
            (Path(name) / file).write_bytes(content)
        return _read(Path(name), [])


@cache
def _files() -> dict[str, bytes]:
    """Return the files of a small directory: a checkpoint and two logs, the first one written with `always`."""
    with TemporaryDirectory() as name:
        path = Path(name)
        _write_history(path)
        return {file.name: file.read_bytes() for file in path.iterdir()}


def _write_history(path: Path) -> None:
    harness = ClusterHarness({"news": 2}, _NODE_IDS)
    directory = DataDirectory.open(path, fsync="always", warn=print)
    assert not list(directory.entries())
    writer = StateWriter(harness.cluster, directory, 0)
    commands = ClusterHandle(
        Local(harness.cluster, ClusterHarnessEnvironment(harness), new_cluster=lambda: harness.cluster)
    )

    def store() -> None:
        writer.sections_may_differ = True
        writer.write_changes()
        directory.flush()

    store()
    commands.group("g").seed(["app"], topics=["news"])
    written = directory.begin_checkpoint()
    checkpoint.write(checkpoint.collect(harness.cluster, writer), written.write)
    written.commit()
    commands.topic("more").create(1)
    store()
    commands.transaction("t").seed(records={"news-1": 1}, state="Ongoing")
    store()
    directory.close()
    persistence = Persistence.open(path, "interval")
    harness = ClusterHarness({}, _NODE_IDS)
    persistence.attach(harness.cluster, START_MS)
    for number in range(3):
        harness.partition().log.append(batch(b"%d" % number), 1)
        persistence.flush(START_MS)
    persistence.sync(START_MS + SYNC_INTERVAL_MS)
    harness.partition().log.truncate_before(1)
    harness.cluster.delete_topic(harness.cluster.existing_topic("more"))
    persistence.close(START_MS)


def seeds() -> Iterator[bytes]:
    """Yield changes of each kind and file, the entries of the directory, and those without its first ones."""
    for number, name in enumerate(sorted(_files())):
        for kind in range(6):
            yield bytes([FILES, number, kind]) + (len(_files()[name]) // 2).to_bytes(2, "big") + b"\x03abc"
    entries = _stored()
    yield bytes([ENTRIES]) + _encoded(entries)
    for each in entries:
        yield bytes([ENTRIES]) + _encoded([entries[0], each])
