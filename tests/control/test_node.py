"""From another language: a consumer of kafkajs reads on while Node's own fetch drives faults and failover."""

import json

import pytest

from tests.support.control.nodejs import FOLDER, packages, run
from tests.support.control.serve_process import PATIENCE_S, serving

CONFIG = ("--config", "group.initial.rebalance.delay.ms=0", "--config", "group.min.session.timeout.ms=1000")


@pytest.mark.slow
def test_a_consumer_in_node_reads_on_whatever_fetch_lets_go_wrong() -> None:
    packages()
    with serving("--topic", "orders:3", *CONFIG) as served:
        told = json.loads(run(["node", "failover.mjs"], FOLDER, 2 * PATIENCE_S, CONTROL=served.control))
    assert told["read"] == [f"record {number}" for number in range(40)]
    assert told["hits"] == [2, 2, 1]
    first, second, third = told["coordinators"]
    assert first != second != third


def test_the_packages_are_pinned() -> None:
    wanted = json.loads((FOLDER / "package.json").read_text())["dependencies"]
    locked = json.loads((FOLDER / "package-lock.json").read_text())["packages"]
    assert {name: locked[f"node_modules/{name}"]["version"] for name in wanted} == wanted
    assert "integrity" in locked["node_modules/kafkajs"]
