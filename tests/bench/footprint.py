"""The time of imports and starts, and the memory of groups and idle connections; prints one line of JSON.

    python -m tests.bench.footprint

Memory is the growth of the resident set between two sizes, so that it does not include the interpreter, scaled to the
numbers of the figures.
"""

import gc
import json
import os
import subprocess
import sys
import time
from contextlib import ExitStack

from fakebroker import FakeCluster
from fakebroker.cluster.inspect.views import BrokerView
from fakebroker.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from tests.bench.figures import Figure
from tests.bench.made_groups import MEASURED_GROUPS, WARM_GROUPS, fill_hashes
from tests.bench.processes import resident_bytes, rows_of
from tests.bench.servers import OURS, running
from tests.support.wire_client import WireClient

GROUPS, CONNECTIONS = 1_000_000, 10_000
"""What the results are scaled to."""
MEASURED_CONNECTIONS, WARM_CONNECTIONS = 1_000, 100
AT_ONCE = 5_000
REPEATS = 9
IMPORT = """
import time
start = time.process_time()
{}
print(time.process_time() - start)
"""

Row = dict[str, float]
"""The results: `import_ms`, `package_ms`, `trio_ms`, `start_ms`, `group_bytes`, `connection_bytes`; and, of another
process, `made_group_bytes`."""


def import_ms(statement: str) -> float:
    """Return the CPU time of an import, compiled, in a new process, the least of several."""
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": ""}
    command = [sys.executable, "-c", IMPORT.format(statement)]
    found = [subprocess.run(command, check=True, capture_output=True, env=environment) for _ in range(REPEATS)]
    return min(float(one.stdout) for one in found) * 1000


def start_ms() -> float:
    """Return the time until a cluster of three brokers accepts connections, the least of several."""
    found = []
    for _ in range(REPEATS + 1):
        start = time.perf_counter()
        with FakeCluster():
            found.append(time.perf_counter() - start)
    return min(found) * 1000


def group_bytes() -> float:
    """Return the memory of a group with one member and one offset."""
    with FakeCluster(topics={"orders": 6}, clock="manual") as cluster:
        cluster.topic("orders").produce([b""] * 10, partition=0)
        fill_hashes()
        _seed(cluster, 0, WARM_GROUPS)
        before = resident_bytes(os.getpid())
        _seed(cluster, WARM_GROUPS, WARM_GROUPS + MEASURED_GROUPS)
        return (resident_bytes(os.getpid()) - before) / MEASURED_GROUPS


def _seed(cluster: FakeCluster, first: int, stop: int) -> None:
    for start in range(first, stop, AT_ONCE):
        cluster.seed_groups(
            [
                {"group_id": f"group-{number:07}", "members": 1, "topics": ["orders"], "offsets": {"orders-0": 5}}
                for number in range(start, start + AT_ONCE)
            ]
        )
    gc.collect()


def connection_bytes() -> float:
    """Return the memory that a server needs for a connection that has sent one ApiVersions request."""
    request = ApiVersionsRequest(client_software_name="client", client_software_version="1.0")
    with running(OURS) as server, ExitStack() as stack:

        def connect(count: int) -> int:
            for _ in range(count):
                wire = stack.enter_context(WireClient(BrokerView(1, "127.0.0.1", server.port, up=True)))
                wire.ask(request, ApiVersionsResponse)
            return resident_bytes(server.pid)

        before = connect(WARM_CONNECTIONS)
        return (connect(MEASURED_CONNECTIONS) - before) / MEASURED_CONNECTIONS


def measure() -> Row:
    """Measure in another process on the first core."""
    [row] = rows_of("tests.bench.footprint")
    [made] = rows_of("tests.bench.made_groups")
    return row | made


def figures(row: Row) -> list[Figure]:
    measured: tuple[tuple[str, float, str, float | None], ...] = (
        ("import of FakeCluster, CPU time", row["import_ms"], "ms", 120),
        ("import of fakebroker without its names, CPU time", row["package_ms"], "ms", None),
        ("import of trio, which is part of that of FakeCluster", row["trio_ms"], "ms", None),
        ("start of a cluster of three brokers", row["start_ms"], "ms", 5),
        (f"{GROUPS:,} groups with one member and one offset", row["group_bytes"] * GROUPS / 1e9, "GB", 1.6),
        (f"{GROUPS:,} such groups made by requests", row["made_group_bytes"] * GROUPS / 1e9, "GB", 1.6),
        (f"{CONNECTIONS:,} idle connections", row["connection_bytes"] * CONNECTIONS / 1e6, "MB", 150),
    )
    return [Figure(what=what, measured=value, unit=unit, aim=aim, is_limit=True) for what, value, unit, aim in measured]


def main() -> None:
    row = {
        "import_ms": import_ms("from fakebroker import FakeCluster"),
        "package_ms": import_ms("import fakebroker"),
        "trio_ms": import_ms("import trio"),
        "start_ms": start_ms(),
        "group_bytes": group_bytes(),
        "connection_bytes": connection_bytes(),
    }
    print(json.dumps({name: round(value, 2) for name, value in row.items()}))


if __name__ == "__main__":
    main()
