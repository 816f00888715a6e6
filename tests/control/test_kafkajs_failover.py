"""A kafkajs consumer in Node.js while `fetch` injects faults and fails coordinators over."""

import json

import pytest

from tests.support.control.nodejs import FOLDER, node_modules, run
from tests.support.control.serve_process import TIMEOUT_S, serve_process

CONFIG = ("--config", "group.initial.rebalance.delay.ms=0", "--config", "group.min.session.timeout.ms=1000")


@pytest.mark.slow
def test_a_kafkajs_consumer_reads_all_records_despite_faults_and_failovers() -> None:
    node_modules()
    with serve_process("--topic", "orders:3", *CONFIG) as served:
        result = json.loads(run(["node", "failover.mjs"], FOLDER, 2 * TIMEOUT_S, CONTROL=served.control))
    assert result["read"] == [f"record {number}" for number in range(40)]
    assert result["hits"] == [2, 2, 1]
    first, second, third = result["coordinators"]
    assert first != second != third


def test_the_node_packages_are_pinned() -> None:
    required = json.loads((FOLDER / "package.json").read_text())["dependencies"]
    locked = json.loads((FOLDER / "package-lock.json").read_text())["packages"]
    assert {name: locked[f"node_modules/{name}"]["version"] for name in required} == required
    assert all("integrity" in locked[f"node_modules/{name}"] for name in required)
