"""The load generator and the echo of `make bench` work, and notice errors. Nothing is asserted about speed."""

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from fakebroker import FakeCluster
from fakebroker.protocol.messages.find_coordinator import FindCoordinatorRequest
from fakebroker.protocol.messages.heartbeat import HeartbeatRequest
from tests.bench.loads import FAKEBROKER, MOCK_CLUSTER, Loads, Round, medians, ratios, running_loads
from tests.bench.plan import step
from tests.bench.processes import compiled
from tests.bench.servers import running
from tests.bench.workloads import HEARTBEATS, WORKLOADS
from tests.support.soak import soak_only
from tests.support.wire_client import WireClient

linux_only = pytest.mark.skipif(sys.platform != "linux", reason="the load generator needs Linux")
SECONDS = 0.05


@pytest.fixture(scope="module")
def loads(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loads]:
    with running_loads(tmp_path_factory.mktemp("loads"), mock=False) as loads:
        yield loads


@soak_only("the benchmark runs in make bench")
@pytest.mark.slow
@linux_only
@pytest.mark.needs("cc")
def test_all_requests_are_answered_without_errors(loads: Loads, subtests: pytest.Subtests) -> None:
    assert {load.workload for load in loads.loads} == set(WORKLOADS)
    for load in loads.loads:
        with subtests.test(load.workload.name, server=load.server_name):
            at_once = load.workload.connections * load.workload.depth
            assert loads.run(load, SECONDS)["requests"] >= at_once


@soak_only("the benchmark runs in make bench")
@pytest.mark.slow
@linux_only
@pytest.mark.needs("cc")
def test_errors_in_responses_are_noticed(loads: Loads, tmp_path: Path) -> None:
    load = next(load for load in loads.loads if (load.workload, load.server_name) == (HEARTBEATS, FAKEBROKER))
    plan = load.plan.read_bytes()
    end_of_group_id = b"-0007\0\0"
    assert plan.count(end_of_group_id) == 1
    wrong = tmp_path / "plan"
    wrong.write_bytes(plan.replace(end_of_group_id, b"-none\0\0"))
    with pytest.raises(AssertionError, match=r"heartbeats at fakebroker: \d+ errors"):
        loads.run(replace(load, plan=wrong), SECONDS)


def test_the_positions_of_error_codes_and_numbers_are_found(fake_cluster: FakeCluster) -> None:
    keys = ["group~000000-1", "group~000042-2"]
    with WireClient(fake_cluster.brokers[0]) as wire:
        found, _ = step(wire, FindCoordinatorRequest(coordinator_keys=keys), 4)
    assert [found.request[position : position + 6] for position in found.numbers] == [b"000000", b"000042"]
    assert len(found.errors) == len(keys)
    ports = {broker.port.to_bytes(4) for broker in fake_cluster.brokers}  # A row has the error code after the port.
    assert {found.response[position : position + 2] for position in found.errors} == {b"\0\0"}
    assert {found.response[position - 4 : position] for position in found.errors} <= ports
    assert found.api_key == FindCoordinatorRequest.API_KEY


def test_a_response_with_an_error_is_not_recorded(fake_cluster: FakeCluster) -> None:
    unknown = HeartbeatRequest(group_id="none", generation_id=1, member_id="none")
    with WireClient(fake_cluster.brokers[0]) as wire, pytest.raises(AssertionError, match="expected no errors"):
        step(wire, unknown, 2)


def _round(ours_us: float, rebalances_us: float, mock_per_s: float) -> Round:
    return {
        (FAKEBROKER, "heartbeats"): {"per_s": 1e6 / ours_us, "cpu_us": ours_us},
        (FAKEBROKER, "rebalances"): {"per_s": 1e6 / rebalances_us, "cpu_us": rebalances_us},
        (MOCK_CLUSTER, "heartbeats"): {"per_s": mock_per_s, "cpu_us": 1.0},
    }


def test_ratios_are_medians_of_the_ratios_of_the_rounds() -> None:
    rounds = [_round(10, 40, 50_000), _round(20, 40, 50_000), _round(10, 50, 200_000)]
    found = {figure.name: figure for figure in ratios(rounds)}
    assert {name: figure.measured for name, figure in found.items()} == {
        "rebalances / heartbeats": 0.25,
        "heartbeats / mock": 1.0,
    }
    assert found["rebalances / heartbeats"].verdict == "MISSED"
    assert medians(rounds)[FAKEBROKER]["rebalances"]["cpu_us"] == 40


def test_a_missing_compiler_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    with pytest.raises(RuntimeError, match="expected a C compiler as cc, gcc, clang or"):
        compiled("echo", tmp_path)


def test_a_server_that_does_not_start_is_an_error() -> None:
    with (
        pytest.raises(RuntimeError, match="expected a line with an address, but the process has ended"),
        running([sys.executable, "-c", ""]),
    ):
        pass
