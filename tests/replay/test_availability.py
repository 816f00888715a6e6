"""Whether the cluster answered: each check on events written by hand, at and beyond its bound, and simulated faults."""

from collections.abc import Mapping, Sequence
from math import inf
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from fakebroker.replay.members.events import SCHEMA, Event
from fakebroker.replay.run_summary import AvailabilityCheck
from fakebroker.replay.script.script import Act, Script
from fakebroker.replay.verify.availability import Outage, check_availability, planned_outages
from tests.support.replay.recorded_events import (
    HEALTHY,
    MEMBERS,
    OF_1,
    beat,
    beats,
    event,
    found,
    frame,
    join,
    lost,
    member,
    scripts,
)
from tests.support.replay.simulated_replays import play_in_memory, script, two_broker_settings

pytestmark = pytest.mark.slow

END_S = 100
SILENT_FROM_S = 30
"""The members of `HEALTHY` get their last answer then. Their session timeout is 10 s, their heartbeat interval 1 s."""


def act(deed: str, at_s: float, **more: Any) -> Event:
    """Something that g-0 does by its script."""
    fields: dict[str, Any] = {"kind": "act", "error": None, "latency_us": None, "version": -1, "broker": -1}
    return event(deed, at_s, **(fields | more))


def both_leave(at_s: float) -> list[Event]:
    return [act("leave", at_s), act("leave", at_s, **OF_1)]


def stop(at_s: float, node_id: int = 2) -> dict[str, Any]:
    return {"do": "stop_broker", "node_id": node_id, "at_s": at_s, "done": True, "why": None}


def start(at_s: float, node_id: int = 2) -> dict[str, Any]:
    return stop(at_s, node_id) | {"do": "start_broker"}


class Case(NamedTuple):
    """What g-0 does after `HEALTHY`, g-1 having left; and whether it is found to be without an answer for too long."""

    events: Sequence[Event]
    is_found: bool = False
    timeline: Sequence[Mapping[str, Any]] = ()
    script: Script = MEMBERS[0]


LEAVE = act("leave", END_S)
PATIENT = member("g-0", session_timeout_ms=60_000)
PAUSED = member("g-0", acts=(Act(0.0, "start"), Act(31_000.0, "pause", 20_000.0)))
ZOMBIE = member("g-0", acts=(Act(0.0, "start"), Act(31_000.0, "zombie", 9_000.0)))

CASES: dict[str, Case] = {
    # The session timeout and 5 s, from when the next heartbeat was due
    "an answer just in time": Case([beat(45.9), beats(46, 99), LEAVE]),
    "an answer too late": Case([beat(46.1), beats(47, 99), LEAVE], True),
    "an answer in less than the longest bound": Case([beat(60.9), beats(61, 99), LEAVE], script=PATIENT),
    "an answer after the longest bound": Case([beat(61.1), beats(62, 99), LEAVE], True, script=PATIENT),
    "no answer until it leaves in time": Case([act("leave", 45.9)]),
    "no answer until it leaves": Case([act("leave", 46.1)], True),
    "no answer until the end": Case([], True),
    "an error is an answer": Case([*(beat(30 + n, error=16) for n in range(70)), LEAVE]),
    "FindCoordinator is answered, and the coordinator is not there": Case(
        [*(each for n in range(60) for each in (found(31 + n), lost("Heartbeat", 31.2 + n, version=-1))), LEAVE], True
    ),
    # Waiting for nothing
    "a member that crashes": Case([act("crash", 31)]),
    "a member that crashes and is back": Case([act("crash", 31), act("start", 60), beats(61, 99), LEAVE]),
    "a member that crashes and is not answered when it is back": Case([act("crash", 31), act("start", 60)], True),
    "a member that stands still": Case([act("pause", 31), beat(52), beats(53, 99), LEAVE], script=PAUSED),
    "a member that stood still and is not answered": Case([act("pause", 31)], True, script=PAUSED),
    "a member that is silent as a zombie": Case([act("zombie", 31), beats(52, 99), LEAVE], script=ZOMBIE),
    "a zombie that is never answered again": Case([act("zombie", 31)], True, script=ZOMBIE),
    "a member that is fenced": Case([beat(31, error=82)]),
    "a member that its group has no room for": Case([event("JoinGroup", 31, error=81)]),
    "a fenced member that starts again and is not answered": Case([beat(31, error=82), act("start", 60)], True),
    "a group that may not be used": Case([event("FindCoordinator", 31, error=30, found=[("g", -1, 30, True)])]),
    "a JoinGroup that is parked": Case([join(31, 3, done_s=90), beats(91, 99, 3), LEAVE]),
    "a parked JoinGroup that is never answered": Case(
        [lost("JoinGroup", 31, lost=False), act("leave", 31 + 24 + 15.9)], script=MEMBERS[0]
    ),
    "a parked JoinGroup that is not answered after it should be": Case([lost("JoinGroup", 31, lost=False)], True),
    "a JoinGroup whose connection was lost": Case([lost("JoinGroup", 31, until_s=32)], True),
    "a JoinGroup that could not be sent": Case([lost("JoinGroup", 31, until_s=80, version=-1)], True),
    # Planned outages
    "a broker that is stopped and started": Case([beat(81), beats(82, 99), LEAVE], timeline=[stop(31), start(80)]),
    "a broker that is started and does not answer": Case([LEAVE], True, [stop(31), start(80)]),
    "a broker that is stopped for good": Case([LEAVE], True, [stop(31)]),
    "a broker that does not answer before it is stopped": Case([LEAVE], True, [stop(60), start(95)]),
    "another broker that is stopped and started": Case([LEAVE], True, [stop(31, 3), start(80, 3)]),
    "a group that another broker has taken over": Case([beats(31, 40, broker=3), LEAVE], True, [stop(30.5), start(95)]),
}


def of_case(number: int, each: Event) -> Event:
    """The event with the case for its group, at brokers of its own."""
    if each.found:
        each = each._replace(found=[(f"c{number}", 10 * number + node, *rest) for _, node, *rest in each.found])  # type: ignore[misc]  # of that length
    broker = 10 * number + each.broker if each.broker >= 0 else each.broker
    return each._replace(group=f"c{number}", member=each.member and f"c{number}/{each.member}", broker=broker)


def others(until_s: float = END_S) -> list[Event]:
    """Members of another group, which are answered all the time."""
    return [
        each._replace(group="other", member="other-0", broker=9)
        for each in (act("start", 0), *(beat(n / 2) for n in range(round(until_s) * 2 + 1)), act("leave", until_s))
    ]


@pytest.fixture(scope="module")
def found_in(spark: SparkSession) -> set[str]:
    """The groups whose members were without an answer for too long; all cases at once."""
    events, members, timeline = others(), [member("other-0", group="other")], []
    for number, case in enumerate(CASES.values()):
        events += [of_case(number, each) for each in (*HEALTHY, act("leave", 30.5, **OF_1), *case.events)]
        members += [
            each._replace(group=f"c{number}", member=f"c{number}/{each.member}") for each in (case.script, MEMBERS[1])
        ]
        timeline += [{**each, "node_id": 10 * number + each["node_id"]} for each in case.timeline]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fakebroker.replay.verify.availability.MOST_LISTED", 1_000)
        checks = by_name(check_availability(spark, frame(spark, events), scripts(spark, members), timeline=timeline))
    assert checks["cluster-answers"].passed
    return {str(violation.group) for violation in checks["members-answered"].violations}


def by_name(checks: Sequence[AvailabilityCheck]) -> dict[str, AvailabilityCheck]:
    return {check.name: check for check in checks}


@pytest.mark.parametrize("name", CASES)
def test_a_member_without_an_answer_for_too_long(found_in: set[str], name: str) -> None:
    assert (f"c{list(CASES).index(name)}" in found_in) == CASES[name].is_found


def checked(spark: SparkSession, more: Sequence[Event], **how: Any) -> dict[str, AvailabilityCheck]:
    patient = [member(f"g-{number}", session_timeout_ms=60_000) for number in range(2)]
    return by_name(check_availability(spark, frame(spark, [*HEALTHY, *more]), scripts(spark, patient), **how))


@pytest.mark.parametrize(
    ("more", "how", "passed"),
    [
        ([beat(40.9), beat(40.9, **OF_1), *both_leave(41)], {}, True),
        ([beat(41.1), beat(41.1, **OF_1), *both_leave(42)], {}, False),
        (both_leave(40.9), {}, True),
        (both_leave(41.1), {"speed": 2.0}, True),
        (both_leave(51.1), {"speed": 2.0}, False),
        (both_leave(41.1), {"speed": 2.0, "is_simulated": True}, False),
        ([event("ListGroups", 36, group=None, member=None, member_id=None), *both_leave(42)], {}, True),
        ([act("crash", 31), act("crash", 31, **OF_1), event("ListGroups", 60, member=None)], {}, True),
        ([beat(60), beat(60, **OF_1), *both_leave(61)], {"timeline": [stop(30.5), start(59)]}, True),
        ([lost("Heartbeat", 50, lost=False)], {}, False),
    ],
)
def test_a_cluster_that_answers_nobody(
    spark: SparkSession, more: Sequence[Event], how: dict[str, Any], passed: bool
) -> None:
    check = checked(spark, more, **how)["cluster-answers"]
    assert (check.passed, check.failures, len(check.violations)) == (passed, not passed, not passed)


def test_an_outage_is_told_with_its_time_and_the_members(spark: SparkSession) -> None:
    checks = checked(spark, both_leave(65))
    assert [violation.what for violation in checks["cluster-answers"].violations] == [
        "no request was answered for 35.0 s, from second 30.0 on, with 2 members of 1 group waiting"
    ]
    (violation,) = checks["members-answered"].violations
    assert (violation.group, violation.members) == ("g", ["g-0", "g-1"])
    assert violation.what == (
        "2 members of g without an answer for up to 35.0 s, from second 30.0 on; last answer from broker 2"
    )


def test_a_cluster_that_is_gone_at_the_end(spark: SparkSession) -> None:
    assert checked(spark, both_leave(31))["reachable"].passed
    check = checked(spark, both_leave(31), is_reachable=False)["reachable"]
    assert (check.passed, check.failures) == (False, 1)


SENT = sum(each.count for each in HEALTHY if each.kind == "request")
LOST = [lost("Heartbeat", 6 + n, until_s=6.5 + n) for n in range(5)]


@pytest.mark.parametrize(
    ("more", "timeline", "passed"),
    [
        (LOST[:3], (), True),
        (LOST, (), False),
        ([each._replace(version=-1) for each in LOST], (), True),
        ([*LOST, *(act("crash", 6.4 + n) for n in range(5))], (), True),
        ([*LOST, *(act("leave", 6.4 + n) for n in range(5))], (), False),
        ([each._replace(api="JoinGroup") for each in LOST] + [act("leave", 6.4 + n) for n in range(5)], (), True),
        (LOST, [stop(5.8)], True),
        (LOST, [stop(0), start(0.5)], False),
        (LOST, [stop(0), start(5)], True),
        (LOST, [{"do": "fail", "api": "Heartbeat", "drop": True, "at_s": 1, "done": True}], True),
        (LOST, [{"do": "fail", "api": "Heartbeat", "drop": True, "at_s": 1, "done": False}], False),
        ([lost("Heartbeat", 31, lost=False, member=f"g-{n}") for n in range(9)] + [beat(35)], (), True),
        ([lost("Heartbeat", 31, lost=False, member=f"g-{n}") for n in range(9)] + [beat(37)], (), False),
        ([lost("JoinGroup", 31, lost=False, member=f"g-{n % 2}") for n in range(9)] + [beat(37)], (), True),
    ],
)
def test_requests_that_were_lost(
    spark: SparkSession, more: Sequence[Event], timeline: Sequence[Mapping[str, Any]], passed: bool
) -> None:
    assert checked(spark, more, timeline=timeline)["requests-answered"].passed is passed


def test_what_was_lost_is_told(spark: SparkSession) -> None:
    check = checked(spark, LOST)["requests-answered"]
    assert check.failures == 5
    assert [violation.what for violation in check.violations] == [
        f"5 of {SENT + 5} requests were lost or unanswered ({5 / (SENT + 5):.1%}): 5 Heartbeat"
    ]


def done(do: str, at_s: float, **more: Any) -> dict[str, Any]:
    return {"do": do, "at_s": at_s, "done": True, "why": None, **more}


@pytest.mark.parametrize(
    ("timeline", "outages"),
    [
        ([], []),
        ([done("force_rebalance", 1, group_id="g"), done("restart_broker", 2, node_id=1)], []),
        ([stop(1), start(2, 3), start(4)], [Outage(2, 1, 4)]),
        ([stop(1), start(2) | {"done": False}], [Outage(2, 1)]),
        ([stop(1), done("reset", 5)], [Outage(2, 1, 5)]),
        ([stop(1), start(2), stop(3)], [Outage(2, 1, 2), Outage(2, 3)]),
        ([done("fail", 1, api=None, drop=True, for_s=3, after_s=2)], [Outage(None, 3, 6, is_fault=True)]),
        ([done("fail", 1, api=None, silent=True, for_s=3)], [Outage(None, 1, 34, is_fault=True)]),
        ([done("fail", 1, api=None, drop=True, every=9)], [Outage(None, 1, inf, is_fault=True)]),
        ([done("fail", 1, api=None, silent=True, broker=2)], [Outage(2, 1, is_fault=True)]),
        ([done("fail", 1, api=None, drop=True), done("clear_faults", 4)], [Outage(None, 1, 4, is_fault=True)]),
        ([done("fail", 1, api="Heartbeat", error="NOT_COORDINATOR")], []),
        (
            [done("set_broker", 1, node_id=1, accept="refuse"), done("set_broker", 3, node_id=1, accept="normal")],
            [Outage(1, 1, 3, is_fault=True), Outage(1, 3, is_fault=True)],
        ),
        (
            [done("move_coordinator", 1, group_id="g", to="none"), done("move_coordinator", 3, group_id="g", to=1)],
            [Outage(None, 1, 3)],
        ),
    ],
)
def test_outages_that_a_workload_plans(timeline: list[dict[str, Any]], outages: list[Outage]) -> None:
    assert planned_outages(timeline) == outages


def simulated(spark: SparkSession, *events: dict[str, Any]) -> dict[str, AvailabilityCheck]:
    """Twelve members of four groups for a minute, at two brokers."""
    life = (Act(0.0, "start"), Act(58_000.0, "leave"))
    members = [script(f"g{group}", number, *life) for group in range(4) for number in range(3)]
    _, rows = play_in_memory(members, two_broker_settings(60.0, events=events))
    recorded = spark.createDataFrame(pa.Table.from_pylist(rows, SCHEMA))
    timeline = [each | {"done": True, "why": None} for each in events]
    return by_name(check_availability(spark, recorded, scripts(spark, members), timeline=timeline, is_simulated=True))


FAULT: dict[str, Any] = {"at_s": 20, "do": "fail", "api": None}


def test_a_simulated_cluster_that_falls_silent_is_found_out(spark: SparkSession) -> None:
    checks = simulated(spark, {**FAULT, "silent": True})
    assert [name for name, check in checks.items() if not check.passed] == ["cluster-answers", "members-answered"]
    assert checks["members-answered"].failures == 12


def test_a_simulated_broker_that_falls_silent_is_found_out(spark: SparkSession) -> None:
    checks = simulated(spark, {**FAULT, "silent": True, "broker": 1})
    assert checks["cluster-answers"].passed
    assert not checks["members-answered"].passed


@pytest.mark.parametrize(
    "events",
    [
        (),
        ({"at_s": 20, "do": "stop_broker", "node_id": 1}, {"at_s": 40, "do": "start_broker", "node_id": 1}),
        (
            *({"at_s": 20, "do": "stop_broker", "node_id": node_id} for node_id in (1, 2)),
            *({"at_s": 40, "do": "start_broker", "node_id": node_id} for node_id in (1, 2)),
        ),
        (
            {"at_s": 20, "do": "stop_broker", "node_id": 1, "elect": False},
            {"at_s": 45, "do": "start_broker", "node_id": 1},
        ),
        ({**FAULT, "silent": True, "for_s": 10},),
        ({**FAULT, "drop": True}, {"at_s": 45, "do": "clear_faults"}),
        ({**FAULT, "drop": True, "probability": 0.3},),
    ],
)
def test_what_a_workload_plans_does_not_count(spark: SparkSession, events: tuple[dict[str, Any], ...]) -> None:
    assert [name for name, check in simulated(spark, *events).items() if not check.passed] == []
