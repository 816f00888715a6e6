"""What is imported when: importing everything would take several times as long as starting a cluster."""

import subprocess
import sys

from fakebroker.cluster.handlers import BY_NAME
from fakebroker.protocol.registry import APIS

MESSAGES, HANDLERS = "fakebroker.protocol.messages.", "fakebroker.cluster.handlers."


def imported_by(code: str) -> list[str]:
    """Return the names of the modules that a new process has imported after it has run the code."""
    command = [sys.executable, "-c", f"import sys\n{code}\nprint(*sys.modules)"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()


def test_the_package_imports_nothing_else() -> None:
    assert [name for name in imported_by("import fakebroker") if "fakebroker" in name] == ["fakebroker"]


def test_a_cluster_starts_without_modules_that_only_some_tests_need() -> None:
    names = imported_by("from fakebroker import FakeCluster\nwith FakeCluster(): pass")
    assert "fakebroker.server.fake_cluster" in names
    rare = {
        "asyncio",
        "crc32c",
        "encodings.idna",
        "importlib.metadata",
        "fakebroker.cluster.inspect.timeline_svg",
    }
    assert rare & set(names) == set()
    # Of 57 APIs: those that coordinators handle, and the records of coordinators. Declaring a class takes 0.1 ms.
    assert sum(name.startswith(MESSAGES) for name in names) <= 17
    assert sum(name.startswith(HANDLERS) for name in names) <= 7


def test_the_command_line_imports_clusters_only_to_serve_them() -> None:
    names = imported_by("import fakebroker.cli.main")
    assert {"trio", "msgspec", "fakebroker.cluster", "fakebroker.protocol"} & set(names) == set()


def test_each_api_has_a_handler() -> None:
    for api in APIS:
        assert BY_NAME[api.name].__name__ == "handle", api.name
