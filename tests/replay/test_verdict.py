"""The verdict: good on a healthy run, and bad for each thing that can go wrong, which it names."""

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from fakebroker.replay.events import Event
from fakebroker.replay.verdict import expectations, promises
from fakebroker.replay.workload import Expectation
from tests.replay.made_up import HEALTHY, PARTITIONS, frame, scripts

ASSIGNMENT = "every member got an assignment"
EXACTLY_ONCE = "in each group's last generation every partition was assigned exactly once"
FORWARD = "no member was ever given an older generation than it had"
ANSWERED = "every request was answered"
ORDINARY = "no answer had an error outside the ordinary ones"


def broken(spark: SparkSession, events: list[Event], directory: Path) -> dict[str, list[str]]:
    checked = promises(spark, frame(spark, events, directory), scripts(spark), PARTITIONS)
    assert [check["promise"] for check in checked] == [ASSIGNMENT, EXACTLY_ONCE, FORWARD, ANSWERED, ORDINARY]
    return {check["promise"]: check["examples"] for check in checked if not check["kept"]}


def without(number: int, *instead: Event) -> list[Event]:
    return [*HEALTHY[:number], *instead, *HEALTHY[number + 1 :]]


SYNC_OF_1, SYNC_OF_0 = 8, 9
HEARTBEAT = Event(60_000, 60_000, 100, "Heartbeat", 4, 2, "g", "g-0", 2, 0)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("events", "expected"),
    [
        pytest.param(HEALTHY, {}, id="healthy"),
        pytest.param(
            without(SYNC_OF_1),
            {ASSIGNMENT: ["g-1 got none"], EXACTLY_ONCE: ["orders-1 of g was assigned 0 times"]},
            id="a member without its assignment",
        ),
        pytest.param(
            without(SYNC_OF_0, HEALTHY[SYNC_OF_0]._replace(assigned=["orders-0", "orders-1"])),
            {EXACTLY_ONCE: ["orders-1 of g was assigned 2 times"]},
            id="a partition with two owners",
        ),
        pytest.param(
            without(SYNC_OF_0, HEALTHY[SYNC_OF_0]._replace(assigned=["orders-0", "orders-7"])),
            {EXACTLY_ONCE: ["orders-7 of g was assigned but is none of its partitions"]},
            id="a partition that is not",
        ),
        pytest.param(
            [*HEALTHY, Event(70_000, 70_000, 100, "JoinGroup", 9, 2, "g", "g-0", 3, 0)],
            {EXACTLY_ONCE: ["orders-0 of g was assigned 0 times", "orders-1 of g was assigned 0 times"]},
            id="a last generation that never got going",
        ),
        pytest.param(
            [*HEALTHY, Event(70_000, 70_000, 100, "JoinGroup", 9, 2, "g", "g-0", 1, 0)],
            {FORWARD: ["g-0 went from 2 to 1"]},
            id="back to an older generation",
        ),
        pytest.param(
            [*HEALTHY, HEARTBEAT._replace(latency_us=None, error=None)],
            {ANSWERED: ["Heartbeat of g-0"]},
            id="no answer",
        ),
        pytest.param(
            [*HEALTHY, HEARTBEAT._replace(error=25)],
            {ORDINARY: ["Heartbeat of g-0: UNKNOWN_MEMBER_ID"]},
            id="an error that is not ordinary",
        ),
    ],
)
def test_promises(spark: SparkSession, tmp_path: Path, events: list[Event], expected: dict[str, list[str]]) -> None:
    assert broken(spark, events, tmp_path) == expected


SUMMARY: dict[str, Any] = {
    "total": {"api": "all", "requests_per_s": 100.0, "p99_ms": 5.0, "unexpected_errors": 1},
    "apis": [{"api": "Heartbeat", "requests_per_s": 80.0, "p99_ms": 2.0}],
    "rebalances": {"count": 3, "p99_ms": 900.0},
    "brokers": [{"broker": 1, "share": 0.7}, {"broker": 2, "share": 0.3}],
}


@pytest.mark.parametrize(
    ("expectation", "actual", "met"),
    [
        (Expectation(metric="p99_ms", comparison="<=", value=5), 5.0, True),
        (Expectation(metric="p99_ms", comparison="<", value=5), 5.0, False),
        (Expectation(metric="p99_ms", comparison="<", value=5, api="Heartbeat"), 2.0, True),
        (Expectation(metric="p99_ms", comparison="<", value=5, api="SyncGroup"), None, False),
        (Expectation(metric="requests_per_s", comparison=">=", value=90), 100.0, True),
        (Expectation(metric="unexpected_errors", comparison="==", value=0), 1, False),
        (Expectation(metric="rebalances", comparison=">", value=3), 3, False),
        (Expectation(metric="rebalance_p99_ms", comparison="<", value=1000), 900.0, True),
        (Expectation(metric="broker_share", comparison="<=", value=0.6), 0.7, False),
    ],
    ids=str,
)
def test_expectations(expectation: Expectation, actual: float | None, met: bool) -> None:
    assert expectations([expectation], SUMMARY) == [{"expectation": str(expectation), "met": met, "actual": actual}]


def test_an_expectation_reads_as_it_is_meant() -> None:
    assert str(Expectation(metric="p99_ms", comparison="<=", value=50, api="Heartbeat")) == "p99_ms of Heartbeat <= 50"
