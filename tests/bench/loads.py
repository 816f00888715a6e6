"""Measures servers under the loads of `workloads.py`: alternating rounds, and ratios of their results."""

import json
import statistics
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.bench.figures import Figure
from tests.bench.plan import Plan, write_plan, write_responses
from tests.bench.processes import LOAD_CORE, compiled, pin
from tests.bench.servers import MOCK, OURS, Server, echo, python_echo, running
from tests.bench.workloads import HEARTBEATS, ONE_CONNECTION, WORKLOADS, Broker, Workload

FAKEBROKER, ECHO, PYTHON_ECHO, MOCK_CLUSTER = "fakebroker", "C echo", "Python echo", "librdkafka mock"

Result = dict[str, float]
"""What the load generator measures, per second and per unit of work; with one request in flight also latencies."""
Round = Mapping[tuple[str, str], Result]
"""Results by server and workload."""


@dataclass(frozen=True)
class Load:
    """A workload, prepared for a server."""

    workload: Workload
    server_name: str
    server: Server
    plan: Path


class Loads:
    """Prepared loads. `running_loads` makes one."""

    def __init__(self, generator: Path, loads: Sequence[Load]) -> None:
        self.loads = loads
        self._generator = generator

    def run(self, load: Load, seconds: float) -> Result:
        """Run one load on the second core.

        Raises:
            AssertionError: A response has an error, or an unexpected size.
        """
        server, workload = load.server, load.workload
        command = [self._generator, server.port, server.pid, workload.depth, seconds, load.plan]
        out = subprocess.run(
            list(map(str, command)), check=True, stdout=subprocess.PIPE, text=True, preexec_fn=lambda: pin(LOAD_CORE)
        ).stdout
        found: Result = json.loads(out)
        assert found["errors"] == 0, f"{workload.name} at {load.server_name}: {found['errors']:.0f} errors"
        work = found["requests"] * workload.units
        result = {
            "requests": found["requests"],
            "per_s": work / found["seconds"],
            "cpu_us": found["cpu_s"] * 1e6 / work,
        }
        return result | {name: found[name] for name in ("p50_us", "p99_us") if name in found}

    def round(self, seconds: float, report: Callable[[str], None]) -> Round:
        """Run all loads once; the servers alternate."""
        results = {}
        for load in self.loads:
            report(f"{load.workload.what}: {load.server_name}")
            results[load.server_name, load.workload.name] = self.run(load, seconds)
        return results


@contextmanager
def running_loads(directory: Path, workloads: Sequence[Workload] = WORKLOADS, *, mock: bool = True) -> Iterator[Loads]:
    """Run all servers, and prepare loads for them.

    Args:
        directory: For programs and plans.
        workloads: The workloads.
        mock: Whether to run the mock cluster.

    Raises:
        RuntimeError: There is no C compiler.
    """
    generator, echo_program = (compiled(name, directory) for name in ("generator", "echo"))
    with ExitStack() as stack:
        ours = stack.enter_context(running(OURS))
        plans = _plans(ours, workloads)
        write_responses(plans.values(), directory / "responses")
        floor = stack.enter_context(running(echo(echo_program, directory / "responses")))
        python_floor = stack.enter_context(running(python_echo(directory / "responses")))
        loads = _loads({FAKEBROKER: ours, ECHO: floor}, workloads, plans, directory)
        small = [workload for workload in workloads if workload.prepare is HEARTBEATS.prepare]
        loads += _loads({PYTHON_ECHO: python_floor}, small, plans, directory)
        if mock:
            mock_cluster = stack.enter_context(running(MOCK))
            supported = [workload for workload in workloads if workload.on_mock]
            plans = _plans(mock_cluster, supported)
            loads += _loads({MOCK_CLUSTER: mock_cluster}, supported, plans, directory)
        order = {workload.name: number for number, workload in enumerate(workloads)}
        yield Loads(generator, sorted(loads, key=lambda load: order[load.workload.name]))


def _plans(server: Server, workloads: Sequence[Workload]) -> dict[str, Plan]:
    with Broker(server.port) as broker:
        return {workload.name: workload.prepare(broker, workload.connections) for workload in workloads}


def _loads(
    servers: Mapping[str, Server], workloads: Sequence[Workload], plans: Mapping[str, Plan], directory: Path
) -> list[Load]:
    """Write the plans of the servers, and return their loads."""
    loads = []
    for workload in workloads:
        path = directory / f"{workload.name} {' and '.join(servers)}"
        write_plan(plans[workload.name], path)
        loads += [Load(workload, name, server, path) for name, server in servers.items()]
    return loads


def medians(rounds: Sequence[Round]) -> dict[str, dict[str, Result]]:
    """Return the medians of the rounds, by server and workload."""
    found: dict[str, dict[str, Result]] = {}
    for server, workload in rounds[0]:
        results = [one[server, workload] for one in rounds]
        found.setdefault(server, {})[workload] = {
            name: statistics.median(result[name] for result in results) for name in results[0]
        }
    return found


OF_HEARTBEATS_AIMS = {"rebalances": 0.3, "commits": 0.8, "keys": 9.0, "offsets": 2.5, "missing_offsets": 2.5}
"""Aims of units of work for the CPU time of one heartbeat, by workload."""
OF_MOCK_AIMS = {"heartbeats": 1.3, "heartbeats_500": 2.0, "produce": 1.0, "fetch": 1.0, "heartbeats_1": 1 / 1.2}
"""Aims of the ratio to the mock cluster, by workload."""


def ratios(rounds: Sequence[Round]) -> list[Figure]:
    """Return ratios, each the median of the ratios of the rounds. More is better in all of them."""
    measured = {workload for _, workload in rounds[0]}
    workloads = [workload for workload in WORKLOADS if workload.name in measured]
    figures = []

    def add(name: str, what: str, aim: float | None, part: str, of: tuple[str, str], to: tuple[str, str]) -> None:
        if of in rounds[0] and to in rounds[0]:
            values = [one[of][part] / one[to][part] for one in rounds]
            figures.append(Figure(name=name, what=what, measured=statistics.median(values), unit="times", aim=aim))

    for workload in workloads:
        if workload.name in OF_HEARTBEATS_AIMS:
            what = f"{workload.what}: {workload.unit} for one heartbeat (CPU time)"
            add(
                f"{workload.name} / heartbeats", what, OF_HEARTBEATS_AIMS[workload.name], "cpu_us",
                (FAKEBROKER, HEARTBEATS.name), (FAKEBROKER, workload.name),
            )  # fmt: skip
    for workload in workloads:
        ours, mock, aim = (FAKEBROKER, workload.name), (MOCK_CLUSTER, workload.name), OF_MOCK_AIMS.get(workload.name)
        if workload is ONE_CONNECTION:
            add(f"{workload.name} / mock", f"{workload.what}: p50 of the mock to ours", aim, "p50_us", mock, ours)
        else:
            add(f"{workload.name} / mock", f"{workload.what}: rate to the mock's", aim, "per_s", ours, mock)
    for workload in workloads:
        # The same ratio of other loads follows from this one and from those above, with more noise.
        name = f"{workload.name} / echo" if workload.prepare is HEARTBEATS.prepare else ""
        what = f"{workload.what}: CPU time of the C echo to ours"
        add(name, what, None, "cpu_us", (ECHO, workload.name), (FAKEBROKER, workload.name))
    what = f"{HEARTBEATS.what}: CPU time of the Python echo to ours"
    add("", what, None, "cpu_us", (PYTHON_ECHO, HEARTBEATS.name), (FAKEBROKER, HEARTBEATS.name))
    return figures
