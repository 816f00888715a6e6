"""The verdict: expectations, and their combination with availability checks and promises."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from fakebroker.replay.members.events import Source
from fakebroker.replay.promises.availability import UNDISTURBED, Circumstances
from fakebroker.replay.report.promise_checks import promise_checks
from fakebroker.replay.run_summary import (
    AvailabilityCheck,
    ErrorCount,
    ExpectationCheck,
    LookupNumbers,
    PopulationNumbers,
    RequestNumbers,
    Unavailability,
    Verdict,
    VerdictOutcome,
    summary_of,
)
from fakebroker.replay.verify.verdict import (
    MEMBERS_JOIN,
    events_done,
    expectations,
    judge,
    outcome_of,
    with_default_expectation,
)
from fakebroker.replay.workload.expectations import Api, Expectation
from tests.support.replay.observed import check_availability_of, observed
from tests.support.replay.recorded_events import HEALTHY, MEMBERS, OF_1, beat, lost, table
from tests.support.replay.summaries import summary_document

START_OF_1 = HEALTHY[0]._replace(**OF_1)

NUMBERS = msgspec.structs.replace(
    summary_of(summary_document(1)).numbers,
    apis=[
        RequestNumbers("Heartbeat", "members", 800, 80.0, 1.0, 2.0, 3.0, 4.0, 0, 0, 0, 0),
        RequestNumbers("OffsetFetch", "members", 40, 4.0, 1.0, 2.0, 3.0, 4.0, 0, 0, 0, 0),
        RequestNumbers("OffsetFetch", "load", 10, 1.0, 5.0, 6.0, 7.0, 8.0, 2, 0, 1, 0),
        RequestNumbers("FindCoordinator", "load", 3, 0.3, 1.0, 2.0, 3.0, 4.0, 0, 0, 0, 0),
    ],
    subtotals=[
        RequestNumbers("all", "members", 840, 84.0, 1.0, 2.0, 3.0, 4.0, 0, 0, 0, 0),
        RequestNumbers("all", "load", 13, 1.3, 4.0, 5.0, 6.0, 8.0, 2, 0, 1, 0),
        RequestNumbers("OffsetFetch", "all", 50, 5.0, 1.0, 6.0, 7.0, 8.0, 2, 0, 1, 0),
    ],
    errors=[
        ErrorCount("NOT_COORDINATOR", 16, "OffsetFetch", "load", 2, False),
        ErrorCount("NOT_COORDINATOR", 16, "Heartbeat", "members", 3, False),
    ],
    lookups=[
        LookupNumbers("FindCoordinator", "load", 3, 240, 100),
        LookupNumbers("OffsetFetch", "members", 40, 40, 1),
        LookupNumbers("OffsetFetch", "load", 10, 60, 6),
    ],
    populations=[
        PopulationNumbers("web", 2, 8, 8, 4, 1.0, 70.0),
        PopulationNumbers("batch", 8, 12, 11, 1, 1.0, 80.0),
    ],
    metrics={
        "requests_per_s": 100.0,
        "p99_ms": 5.0,
        "unexpected_errors": 1,
        "rebalances": 3,
        "generations": 5,
        "generations.web": 4,
        "members_joined": 19,
        "members_joined.web": 8,
        "rebalance_p99_ms": None,
        "errors.NOT_COORDINATOR": 5,
    },
)


def test_expectations_are_compared_with_numbers(subtests: pytest.Subtests) -> None:
    for expectation, actual, met in (
        (Expectation(metric="p99_ms", comparison="<=", value=5), 5.0, True),
        (Expectation(metric="p99_ms", comparison="<", value=5), 5.0, False),
        (Expectation(metric="p99_ms", comparison="<", value=5, api="Heartbeat"), 2.0, True),
        (Expectation(metric="p99_ms", comparison="<", value=5, api="SyncGroup"), None, False),
        (Expectation(metric="requests_per_s", comparison=">=", value=90), 100.0, True),
        (Expectation(metric="requests_per_s", comparison=">=", value=100), 100.0, True),
        (Expectation(metric="unexpected_errors", comparison="==", value=0), 1, False),
        (Expectation(metric="rebalances", comparison=">", value=3), 3, False),
        (Expectation(metric="rebalance_p99_ms", comparison="<", value=1000), None, False),
        (Expectation(metric="generations", comparison="==", value=4, groups="web"), 4, True),
        (Expectation(metric="errors.NOT_COORDINATOR", comparison=">", value=0), 5, True),
        (Expectation(metric="errors.UNKNOWN_MEMBER_ID", comparison="==", value=0), 0, True),
    ):
        with subtests.test(expectation=str(expectation)):
            assert expectations([expectation], NUMBERS) == [ExpectationCheck(str(expectation), met, actual)]


def test_expectations_about_the_requests_of_members_or_of_loads(subtests: pytest.Subtests) -> None:
    """Without `source` both are meant, with quantiles of all requests together."""
    cases: list[tuple[str, Api | None, Source | None, float | None]] = [
        ("requests", "OffsetFetch", None, 50),
        ("requests", "OffsetFetch", "members", 40),
        ("requests", "OffsetFetch", "load", 10),
        ("p99_ms", "OffsetFetch", None, 6.0),
        ("p99_ms", "OffsetFetch", "members", 2.0),
        ("p99_ms", "FindCoordinator", None, 2.0),
        ("requests", "FindCoordinator", "members", 0),
        ("p99_ms", "FindCoordinator", "members", None),
        ("requests", None, "members", 840),
        ("unanswered", None, "load", 1),
        ("errors.NOT_COORDINATOR", None, "members", 3),
        ("errors.NOT_COORDINATOR", "OffsetFetch", None, 2),
        ("errors.NOT_COORDINATOR", "OffsetFetch", "members", 0),
        ("groups_per_request", "FindCoordinator", "load", 80.0),
        ("groups_per_request", "FindCoordinator", "members", None),
        ("groups_per_request", "OffsetFetch", None, 2.0),
    ]
    for metric, api, source, actual in cases:
        expectation = Expectation(metric=metric, comparison="<", value=1e9, api=api, source=source)
        with subtests.test(expectation=str(expectation)):
            assert [check.actual for check in expectations([expectation], NUMBERS)] == [actual]


def test_expectations_relative_to_the_number_of_groups_or_members() -> None:
    joined = Expectation(metric="members_joined", comparison="==", value=1, per="member")
    assert expectations([joined], NUMBERS) == [ExpectationCheck("members_joined per member == 1", False, 0.95)]
    of_web = msgspec.structs.replace(joined, groups="web")
    assert expectations([of_web], NUMBERS) == [ExpectationCheck("members_joined of web per member == 1", True, 1.0)]
    fetches = Expectation(metric="requests", comparison="<=", value=1, api="OffsetFetch", source="load", per="group")
    assert expectations([fetches], NUMBERS) == [
        ExpectationCheck("requests of OffsetFetch from load per group <= 1", True, 1.0)
    ]
    without_groups = msgspec.structs.replace(NUMBERS, populations=[])
    assert expectations([joined], without_groups)[0].actual is None


def test_members_are_expected_to_join_unless_the_workload_overrides_it() -> None:
    rebalances = Expectation(metric="rebalances", comparison=">", value=3)
    none_joined = Expectation(metric="members_joined", comparison="==", value=0)
    assert with_default_expectation([rebalances]) == [rebalances, MEMBERS_JOIN]
    assert with_default_expectation([none_joined]) == [none_joined]
    assert not expectations([MEMBERS_JOIN], msgspec.structs.replace(NUMBERS, metrics={"members_joined": 0}))[0].met


def test_all_events_are_expected_to_be_done() -> None:
    done, refused = {"do": "reset", "done": True, "why": None}, {"do": "reset", "done": False, "why": "the end"}
    assert events_done([]) == []
    assert events_done([done, done]) == [ExpectationCheck("events_done == 2", True, 2)]
    assert events_done([done, refused]) == [ExpectationCheck("events_done == 2", False, 1)]


def test_reasons_say_how_many_failures_are_not_listed(subtests: pytest.Subtests) -> None:
    def reason(name: str, failures: int, violations: int, doubts: int = 0) -> str:
        listed, doubted = (
            [Unavailability(what=f"{each} {n}") for n in range(count)]
            for each, count in (("failure", violations), ("doubt", doubts))
        )
        outcome: VerdictOutcome = "failed" if violations else "inconclusive"
        _, reasons = outcome_of([AvailabilityCheck(name, "", outcome, failures, listed, doubted)], [], [])
        return reasons[0].removeprefix(f"Availability check {name}: ")

    three = "failure 0; failure 1; failure 2"
    for arguments, expected in (
        (("groups-served", 1, 1), "failure 0."),
        (("groups-served", 20, 5), f"{three}; and 17 more."),
        (("requests-answered", 60, 1), "failure 0."),
        (("members-answered", 3, 1), "failure 0."),
        (("members-answered", 60, 5), f"{three}; 60 members in all."),
        (("scripts-done", 40, 1), "failure 0."),
        (("scripts-done", 40, 4), f"{three}; and 1 more."),
        (("groups-served", 0, 0, 5), "doubt 0; doubt 1; doubt 2; and others."),
    ):
        with subtests.test(arguments=arguments):
            assert reason(*arguments) == expected


def judged(
    more: list[Any],
    expected: list[Expectation],
    wanted: list[str],
    run: Circumstances = UNDISTURBED,
    required: Sequence[str] = (),
) -> Verdict:
    """Return the verdict on a healthy group of two members with more events."""
    events = [*HEALTHY, START_OF_1, *more]
    violations, cases = observed(events, MEMBERS[:2], promises=wanted)
    promised = promise_checks(wanted, sum(cases.values(), Counter()), violations, required)
    return judge(check_availability_of(table(events), MEMBERS[:2], run), promised, expected, NUMBERS, run)


@pytest.mark.slow
def test_the_verdict_passes_if_all_promises_are_kept_and_all_expectations_met() -> None:
    met = Expectation(metric="rebalances", comparison="==", value=3)
    missed = Expectation(metric="rebalances", comparison=">", value=3)
    unanswered = [lost("Heartbeat", 31, generation=2, lost=False), beat(62)]

    def passed(more: list[Any], expected: Expectation, *timeline: dict[str, Any]) -> bool:
        verdict = judged(more, [expected], ["answered"], Circumstances(timeline=timeline))
        assert [check.name for check in verdict.promises] == ["answered"]
        assert (verdict.outcome == "passed") == (verdict.reasons == [])
        return verdict.outcome == "passed"

    assert (passed([], met), passed([], missed), passed(unanswered, met)) == (True, False, False)
    assert not passed([], met, {"do": "reset", "done": False})
    wanted = ["answered", "stale-refused"]
    assert judged([], [met], wanted).outcome == "passed"
    verdict = judged([], [met], wanted, required=["stale-refused"])
    reason = "Promise stale-refused is required, but was not exercised: there were no members that sent requests of an"
    assert (verdict.outcome, verdict.reasons) == (
        "failed",
        [f"{reason} old generation, and requests with an old member epoch."],
    )


@pytest.mark.slow
def test_the_verdict_fails_if_the_cluster_was_not_available() -> None:
    def passed(more: list[Any], **how: Any) -> bool:
        verdict = judged(more, [], ["one-owner"], Circumstances(**how))
        assert all(check.outcome == "kept" for check in verdict.promises)
        assert (verdict.outcome == "passed") == all(check.passed for check in verdict.availability)
        assert (verdict.outcome == "passed") == (verdict.reasons == [])
        return verdict.outcome == "passed"

    assert passed([])
    assert not passed([], is_reachable=False)
    assert not passed([lost("Heartbeat", 31, until_s=60, generation=2)])
