"""The verdict: promises and expectations together, and what becomes of expectations."""

from typing import Any

import msgspec
import pytest
from pyspark.sql import SparkSession

from fakebroker.replay.run_summary import ExpectationCheck, RequestNumbers, summary_of
from fakebroker.replay.verify.verdict import SOMEBODY, events_done, expectations, judge, with_somebody
from fakebroker.replay.workload.expectations import Expectation
from tests.support.replay.recorded_events import HEALTHY, PARTITIONS, beat, frame, lost, scripts
from tests.support.replay.summaries import made_up_summary

NUMBERS = msgspec.structs.replace(
    summary_of(made_up_summary(1)).numbers,
    apis=[RequestNumbers("Heartbeat", 800, 80.0, 1.0, 2.0, 3.0, 4.0, 0, 0, 0)],
    metrics={
        "requests_per_s": 100.0,
        "p99_ms": 5.0,
        "unexpected_errors": 1,
        "rebalances": 3,
        "generations": 5,
        "generations.web": 4,
        "rebalance_p99_ms": None,
        "errors.NOT_COORDINATOR": 2,
    },
)


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
        (Expectation(metric="rebalance_p99_ms", comparison="<", value=1000), None, False),
        (Expectation(metric="generations", comparison="==", value=4, groups="web"), 4, True),
        (Expectation(metric="errors.NOT_COORDINATOR", comparison=">", value=0), 2, True),
        (Expectation(metric="errors.UNKNOWN_MEMBER_ID", comparison="==", value=0), 0, True),
    ],
    ids=str,
)
def test_expectations(expectation: Expectation, actual: float | None, met: bool) -> None:
    assert expectations([expectation], NUMBERS) == [ExpectationCheck(str(expectation), met, actual)]


def test_somebody_is_expected_to_get_in_unless_the_workload_says_otherwise() -> None:
    rebalances = Expectation(metric="rebalances", comparison=">", value=3)
    nobody = Expectation(metric="members_joined", comparison="==", value=0)
    assert with_somebody([rebalances]) == [rebalances, SOMEBODY]
    assert with_somebody([nobody]) == [nobody]
    assert not expectations([SOMEBODY], msgspec.structs.replace(NUMBERS, metrics={"members_joined": 0}))[0].met


def test_events_are_expected_to_be_done() -> None:
    done, refused = {"do": "reset", "done": True, "why": None}, {"do": "reset", "done": False, "why": "the end"}
    assert events_done([]) == []
    assert events_done([done, done]) == [ExpectationCheck("events_done == 2", True, 2)]
    assert events_done([done, refused]) == [ExpectationCheck("events_done == 2", False, 1)]


@pytest.mark.slow
def test_it_passes_if_all_promises_are_kept_and_all_expectations_met(spark: SparkSession) -> None:
    met = Expectation(metric="rebalances", comparison="==", value=3)
    missed = Expectation(metric="rebalances", comparison=">", value=3)
    owed = [lost("Heartbeat", 31, generation=2, lost=False), beat(62)]

    def passed(more: list[Any], expected: Expectation, *timeline: dict[str, Any]) -> bool:
        events = frame(spark, [*HEALTHY, *more])
        verdict = judge(spark, events, scripts(spark), PARTITIONS, [expected], NUMBERS, ["answered"], timeline)
        assert [check.name for check in verdict.promises] == ["answered"]
        return verdict.passed

    assert (passed([], met), passed([], missed), passed(owed, met)) == (True, False, False)
    assert not passed([], met, {"do": "reset", "done": False})


@pytest.mark.slow
def test_it_never_passes_with_a_cluster_that_did_not_answer(spark: SparkSession) -> None:
    def passed(more: list[Any], **how: Any) -> bool:
        events = frame(spark, [*HEALTHY, *more])
        verdict = judge(spark, events, scripts(spark), PARTITIONS, [], NUMBERS, ["one-owner"], **how)
        assert all(check.kept for check in verdict.promises)
        assert verdict.passed == all(check.passed for check in verdict.availability)
        return verdict.passed

    assert passed([])
    assert not passed([], is_reachable=False)
    assert not passed([lost("Heartbeat", 31, until_s=60, generation=2)])
