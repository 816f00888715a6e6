"""The availability checks, on events written by hand at and beyond their bounds, and on simulated faults."""

from collections.abc import Mapping, Sequence
from itertools import count
from math import inf
from typing import Any, NamedTuple

import pyarrow as pa
import pytest

from fakebroker.replay.members.events import SCHEMA, Event
from fakebroker.replay.promises.availability import LOST_SHARE, Circumstances, _check_reachable
from fakebroker.replay.run_summary import AvailabilityCheck
from fakebroker.replay.script.script import Act, Script, Transactions
from fakebroker.replay.verify.outages import Outage, planned_outages
from tests.support.replay.observed import check_availability_of
from tests.support.replay.recorded_events import (
    HEALTHY,
    MEMBERS,
    OF_1,
    beat,
    beats,
    ended,
    event,
    event_of,
    found,
    initialized,
    join,
    lost,
    member,
    produced,
    reports,
    script_of,
    table,
)
from tests.support.replay.replays_in_turn import PlayedReplay, check
from tests.support.replay.simulated_replays import Row, play_in_memory, script, two_broker_settings
from tests.support.soak import sampled, soak

END_S = 100  # The members of `HEALTHY` get their last response at second 30; their session timeout is 10 s.


def act(action: str, at_s: float, **more: Any) -> Event:
    """Return an event for an action in the script of g-0."""
    fields: dict[str, Any] = {"kind": "act", "error": None, "latency_us": None, "version": -1, "broker": -1}
    return event(action, at_s, **(fields | more))


def both_leave(at_s: float) -> list[Event]:
    return [act("leave", at_s), act("leave", at_s, **OF_1)]


def stop(at_s: float, node_id: int = 2) -> dict[str, Any]:
    return {"do": "broker.stop", "node_id": node_id, "at_s": at_s, "done": True, "why": None}


def start(at_s: float, node_id: int = 2) -> dict[str, Any]:
    return stop(at_s, node_id) | {"do": "broker.start"}


class Silence(NamedTuple):
    """A test case: a group in which g-1 leaves after `HEALTHY`, and g-0 may get no more responses.

    Attributes:
        events: The events of g-0 after `HEALTHY`.
        is_found: Whether the check `members-answered` fails for the group.
        timeline: The events of the workload.
        script: The script of g-0.
    """

    events: Sequence[Event]
    is_found: bool = False
    timeline: Sequence[Mapping[str, Any]] = ()
    script: Script = MEMBERS[0]


LEAVE = act("leave", END_S)
PATIENT = member("g-0", session_timeout_ms=60_000)
PAUSED = member("g-0", acts=(Act(0.0, "start"), Act(31_000.0, "pause", 20_000.0)))
ZOMBIE = member("g-0", acts=(Act(0.0, "start"), Act(31_000.0, "zombie", 9_000.0)))

CASES: dict[str, Silence] = {
    # The bound: the session timeout + 5 s, at most 30 s, since the time at which the next heartbeat was due.
    "a response just in time": Silence([beat(45.9), beats(46, 99), LEAVE]),
    "a response too late": Silence([beat(46.1), beats(47, 99), LEAVE], True),
    "a response in time with a long session timeout": Silence([beat(60.9), beats(61, 99), LEAVE], script=PATIENT),
    "a response too late with a long session timeout": Silence(
        [beat(61.1), beats(62, 99), LEAVE], True, script=PATIENT
    ),
    "no response until the member leaves in time": Silence([act("leave", 45.9)]),
    "no response until the member leaves too late": Silence([act("leave", 46.1)], True),
    "no response until the end": Silence([], True),
    "responses with errors": Silence([*(beat(30 + n, error=16) for n in range(70)), LEAVE]),
    "responses to FindCoordinator only": Silence(
        [*(each for n in range(60) for each in (found(31 + n), lost("Heartbeat", 31.2 + n, version=-1))), LEAVE], True
    ),
    # Members that do not wait for a response
    "a member crashes": Silence([act("crash", 31)]),
    "a member crashes and starts again": Silence([act("crash", 31), act("start", 60), beats(61, 99), LEAVE]),
    "a member crashes, starts again and gets no response": Silence([act("crash", 31), act("start", 60)], True),
    "a member is paused": Silence([act("pause", 31), beat(52), beats(53, 99), LEAVE], script=PAUSED),
    "a member is paused and gets no response afterwards": Silence([act("pause", 31)], True, script=PAUSED),
    "a zombie gets a response": Silence([act("zombie", 31), beats(52, 99), LEAVE], script=ZOMBIE),
    "a zombie gets no response": Silence([act("zombie", 31)], True, script=ZOMBIE),
    "a member is fenced": Silence([beat(31, error=82)]),
    "a group is full": Silence([event("JoinGroup", 31, error=81)]),
    "a fenced member starts again and gets no response": Silence([beat(31, error=82), act("start", 60)], True),
    "a group is not authorized": Silence([event("FindCoordinator", 31, error=30, found=[("g", -1, 30, True)])]),
    "a JoinGroup is parked": Silence([join(31, 3, done_s=90), beats(91, 99, 3), LEAVE]),
    "a JoinGroup is parked until the member leaves in time": Silence(
        [lost("JoinGroup", 31, lost=False), act("leave", 31 + 24 + 15.9)], script=MEMBERS[0]
    ),
    "a JoinGroup is parked for too long": Silence([lost("JoinGroup", 31, lost=False)], True),
    "the connection of a JoinGroup is lost": Silence([lost("JoinGroup", 31, until_s=32)], True),
    "a JoinGroup is never sent": Silence([lost("JoinGroup", 31, until_s=80, version=-1)], True),
    # Planned outages
    "the broker is stopped and started": Silence([beat(81), beats(82, 99), LEAVE], timeline=[stop(31), start(80)]),
    "the broker is stopped and started and does not respond": Silence([LEAVE], True, [stop(31), start(80)]),
    "the broker is stopped and not started": Silence([LEAVE], True, [stop(31)]),
    "the broker does not respond before it is stopped": Silence([LEAVE], True, [stop(60), start(95)]),
    "another broker is stopped and started": Silence([LEAVE], True, [stop(31, 3), start(80, 3)]),
    "another broker has taken over the group": Silence([beats(31, 40, broker=3), LEAVE], True, [stop(30.5), start(95)]),
}


def others(until_s: float = END_S) -> list[Event]:
    """Return events of another group, whose member gets responses all the time."""
    return [
        each._replace(group="other", member="other-0", broker=9)
        for each in (act("start", 0), *(beat(n / 2) for n in range(round(until_s) * 2 + 1)), act("leave", until_s))
    ]


def test_members_without_a_response(subtests: pytest.Subtests) -> None:
    """Each case is a group of its own, so that all are checked by one run of the queries."""
    events, members, timeline = others(), [member("other-0", group="other")], []
    for number, case in enumerate(CASES.values()):
        case_events = (*HEALTHY, act("leave", 30.5, **OF_1), *case.events)
        events += [event_of(f"c{number}", each, 10 * number) for each in case_events]
        members += [script_of(f"c{number}", each) for each in (case.script, MEMBERS[1])]
        timeline += [{**each, "node_id": 10 * number + each["node_id"]} for each in case.timeline]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fakebroker.replay.promises.group_availability.MOST_LISTED", 1_000)
        checks = by_name(check_availability_of(table(events), members, Circumstances(timeline=timeline)))
    assert checks["cluster-answers"].passed
    found_groups = {violation.group for violation in checks["members-answered"].violations}
    for number, (name, case) in enumerate(CASES.items()):
        with subtests.test(case=name):
            assert (f"c{number}" in found_groups) == case.is_found


def test_the_longest_time_without_service_is_said_of_one_group() -> None:
    """The member expects nothing in the first of nine seconds, and another group is served all the time."""
    events = [event_of("c", each) for each in (*HEALTHY, act("leave", 30.5, **OF_1), beat(39), beats(40, 99), LEAVE)]
    members = [member("other-0", group="other"), *(script_of("c", each) for each in MEMBERS[:2])]
    check = by_name(check_availability_of(table([*others(), *events]), members))["groups-served"]
    assert check.passed
    assert check.observed.startswith("longest time without service: 8.0 s;")


OF_2: dict[str, Any] = {"member": "g-2"}


def held(api: str, at_s: float, until_s: float, **more: Any) -> Event:
    """Return a request that is parked until its member crashes, or leaves."""
    return lost(api, at_s, lost=False, until_s=until_s, **more)


# g-2 crashes at second 30.5, so that its session ends at second 40. The others join again, and wait for that.
REBALANCE = [act("crash", 30.5, **OF_2), beat(31, error=27), beat(31, error=27, **OF_1)]
# The leader crashes while its JoinGroup waits. The next generation begins with it at second 40: until its session ends
# at second 50, the SyncGroups of the others wait.
CRASHED_LEADER = [*REBALANCE, held("JoinGroup", 31.1, 36), act("crash", 36), join(31.1, 3, done_s=40, **OF_1)]


def moved(from_s: int, until_s: int) -> list[Event]:
    """Return requests of g-1 every second while its group has no coordinator."""
    return [beat(at_s, error=16, **OF_1) for at_s in range(from_s, until_s + 1)]


SERVICE: dict[str, tuple[Sequence[Event], bool]] = {
    "a crashed leader's session ends": ([*CRASHED_LEADER, held("SyncGroup", 40.01, 49.9, **OF_1)], False),
    "the SyncGroups wait on after that": ([*CRASHED_LEADER, held("SyncGroup", 40.01, 65.1, **OF_1)], True),
    "they do not wait for too long after that": ([*CRASHED_LEADER, held("SyncGroup", 40.01, 64.9, **OF_1)], False),
    "the SyncGroups are lost in this time": (
        [*CRASHED_LEADER, *(lost("SyncGroup", at_s, **OF_1) for at_s in range(40, 57))],
        True,
    ),
    "the leader crashes before it joins": (
        [*REBALANCE, act("crash", 31.05), join(31.1, 3, done_s=41.05, **OF_1), held("SyncGroup", 41.06, 56.2, **OF_1)],
        True,
    ),
    "the leader crashes, and there is no generation": (
        # The rebalance timeout is 20 s: the generation begins at second 56 at the latest, and the session ends at 66.
        [*CRASHED_LEADER[:-1], held("JoinGroup", 31.1, 80.9, **OF_1)],
        False,
    ),
    "there is no generation for too long": ([*CRASHED_LEADER[:-1], held("JoinGroup", 31.1, 81.1, **OF_1)], True),
    "nobody has stopped": (
        [*REBALANCE[1:], held("JoinGroup", 31.1, 46.3), held("JoinGroup", 31.1, 46.3, **OF_1)],
        True,
    ),
    "another broker loads the group with a member that has crashed": (
        # Its session begins again at second 39.
        [*REBALANCE, *moved(31, 39), *(event("JoinGroup", at_s, error=79, **OF_1) for at_s in range(40, 50, 2))],
        False,
    ),
    "another broker loads the group, and does not serve it": (
        [*REBALANCE, *moved(31, 39), held("JoinGroup", 39.1, 64.2, **OF_1)],
        True,
    ),
    "no other broker loads the group": ([*REBALANCE, *moved(31, 47)], True),
    "a member leaves while there is no coordinator": (
        [act("leave", 30.5, **OF_2), *moved(31, 39), held("JoinGroup", 39.1, 63.9, **OF_1)],
        False,
    ),
    "a member leaves": (
        [
            act("leave", 30.5, **OF_2),
            event("LeaveGroup", 30.6, **OF_2),
            *moved(31, 39),
            held("JoinGroup", 39.1, 63.9, **OF_1),
        ],
        True,
    ),
    "a member is slow": (
        [act("slow", 30.5, **OF_2), *REBALANCE[1:], held("JoinGroup", 31.1, 48), act("leave", 48)],
        False,
    ),
}
"""Events of a group of three members after `HEALTHY`, and whether it was without service for too long.

At second 90, g-1 gets a response.
"""


def test_a_coordinator_that_waits_for_a_member_that_has_stopped(subtests: pytest.Subtests) -> None:
    """A group has no service while its coordinator waits as Kafka's does; the bound applies to the time after that."""
    events, members = others(), [member("other-0", group="other")]
    for number, (case, _) in enumerate(SERVICE.values()):
        case_events = (*HEALTHY, beats(6, 30, **OF_2), *case, beat(90, 4, **OF_1))
        events += [event_of(f"c{number}", each, 10 * number) for each in case_events]
        slow = member("g-2", acts=(Act(0.0, "start"), Act(30_500.0, "slow", 18_000.0)))
        members += [script_of(f"c{number}", each) for each in (*MEMBERS[:2], slow)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fakebroker.replay.promises.group_availability.MOST_LISTED", 1_000)
        check = by_name(check_availability_of(table(events), members))["groups-served"]
    unserved = {violation.group for violation in check.violations}
    for number, (name, (_, is_found)) in enumerate(SERVICE.items()):
        with subtests.test(case=name):
            assert (f"c{number}" in unserved) == is_found


def test_a_static_member_that_could_not_say_goodbye_may_be_refused_until_its_session_ends() -> None:
    """Its session of 10 s may begin again with another coordinator."""
    goodbye = {"epoch": -2, "generation": -2}
    refusals = {
        "crashed": [act("crash", 31), act("start", 33), reports(33.1, 0, 0, error=111)],
        "no answer": [act("leave", 31), lost("ConsumerGroupHeartbeat", 31.1, **goodbye), reports(50, 0, 0, error=111)],
        "too late": [act("leave", 31), lost("ConsumerGroupHeartbeat", 31.1, **goodbye), reports(57, 0, 0, error=111)],
        "leaves at once": [act("crash", 31), act("start", 33), act("leave", 33.1), reports(33.2, -2, -2, error=82)],
        "fenced": [act("crash", 31), act("start", 33), reports(33.2, 2, 2, error=82)],
        "answered": [act("leave", 31), event("ConsumerGroupHeartbeat", 31.1, **goodbye), reports(33, 0, 0, error=111)],
        "slow": [act("slow", 31), reports(33.1, 0, 0, error=111)],
        "dynamic": [act("crash", 31), act("start", 33), reports(33.1, 0, 0, error=111)],
    }
    events, members = others(), [member("other-0", group="other")]
    for name, more in refusals.items():
        events += [event_of(name, each) for each in more]
        members.append(script_of(name, member("g-0", instance_id=None if name == "dynamic" else "i")))
    check = by_name(check_availability_of(table(events), members))["scripts-done"]
    assert [each.members for each in check.violations] == [
        ["fenced/g-0"],
        ["answered/g-0", "dynamic/g-0", "slow/g-0", "too late/g-0"],
    ]


def spread(first_s: float, last_s: float, count: int) -> Event:
    """Return a number of heartbeats, aggregated into one row."""
    return beats(first_s, last_s)._replace(count=count)


def transactions(*at_s: float, number: int = 1) -> list[Event]:
    """Return transactions that take a second each."""
    return [each for at, n in zip(at_s, count(number)) for each in (produced(at, n), ended(at + 1, n))]


IN_TRANSACTIONS = member("g-0", transactions=Transactions("payments", 10, 5_000, 60_000, 0.0, 0.1, (0.0, 60.0), 0))
STALLED = produced(55, 11, version=-1, missing="cut off", error=None, latency_us=None)

PLANS: dict[str, tuple[Sequence[Event], Script, str | None]] = {
    "half of the heartbeats": ([spread(1, 99, 50)], member("g-0"), None),
    "less than half of them": ([spread(1, 99, 49)], member("g-0"), "49 of 100 planned requests"),
    "no request is sent": ([lost("JoinGroup", 1, version=-1)], member("g-0"), "0 of 100 planned requests"),
    "a parked JoinGroup": ([join(1, 1, done_s=60), beats(61, 99)], member("g-0"), None),
    "a crash": ([spread(1, 19, 19), act("crash", 20)], member("g-0"), None),
    "a crash, a restart, and no request": (
        [spread(1, 19, 19), act("crash", 20), act("start", 40)],
        member("g-0"),
        "19 of 80 planned requests",
    ),
    "a pause": (
        [spread(1, 19, 19), act("pause", 20), spread(90, 99, 9)],
        member("g-0", acts=(Act(0.0, "start"), Act(20_000.0, "pause", 70_000.0))),
        None,
    ),
    "a fatal error": ([spread(1, 19, 19), beat(20, error=82)], member("g-0"), None),
    "few planned requests": ([act("crash", 9)], member("g-0"), None),
    "transactions": ([beats(1, 99), *transactions(*range(5, 100, 5))], IN_TRANSACTIONS, None),
    "a transaction that lasts": (
        [beats(1, 99), *transactions(*range(5, 55, 5)), STALLED],
        IN_TRANSACTIONS,
        None,
    ),
    "a transaction that lasts longer": (
        [beats(1, 99), *transactions(*range(5, 35, 5)), STALLED._replace(scheduled_us=beat(35).scheduled_us)],
        IN_TRANSACTIONS,
        "6 of 19 planned transactions",
    ),
    "a producer without an id": (
        [beats(1, 99), initialized(2, 0)._replace(version=-1, latency_us=None, error=None, missing="cut off")],
        IN_TRANSACTIONS,
        "0 of 19 planned transactions",
    ),
    "a producer that stops, and another one that commits its transaction": (
        [
            *(beats(1, 99), *transactions(*range(5, 35, 5)), produced(35, 7), initialized(90, 1)),
            *(ended(90.1, 7, error=90), *transactions(95, number=8)),
        ],
        IN_TRANSACTIONS,
        None,
    ),
}
"""Events of a member after its start, its script, and what its population sent if that is too little."""


def test_populations_that_send_less_than_half_of_what_they_plan(subtests: pytest.Subtests) -> None:
    events, members = others(), [member("other-0", group="other")]
    for number, (name, (more, own, _)) in enumerate(PLANS.items()):
        events += [event_of(f"c{number}", each, 10 * number) for each in (act("start", 0), *more)]
        members.append(script_of(f"c{number}", own)._replace(population=name))
    check = by_name(check_availability_of(table(events), members))["observed"]
    found = {doubt.what for doubt in check.doubts}
    for name, (_, _, sent) in PLANS.items():
        with subtests.test(case=name):
            expected = set() if sent is None else {f"population {name} sent {sent}"}
            assert {each for each in found if each.startswith(f"population {name} sent ")} == expected
    assert check.outcome == "inconclusive"


def by_name(checks: Sequence[AvailabilityCheck]) -> dict[str, AvailabilityCheck]:
    return {check.name: check for check in checks}


def checked(more: Sequence[Event], **how: Any) -> dict[str, AvailabilityCheck]:
    """Return the checks for `HEALTHY` and more events; with a session timeout of 60 s, members may wait for 30 s."""
    patient = [member(f"g-{number}", session_timeout_ms=60_000) for number in range(2)]
    return by_name(check_availability_of(table([*HEALTHY, *more]), patient, Circumstances(**how)))


def test_a_cluster_without_responses(subtests: pytest.Subtests) -> None:
    cases: list[tuple[str, list[Event], dict[str, Any], bool]] = [
        ("responses again in time", [beat(40.9), beat(40.9, **OF_1), *both_leave(41)], {}, True),
        ("responses again too late", [beat(41.1), beat(41.1, **OF_1), *both_leave(42)], {}, False),
        ("the members leave in time", both_leave(40.9), {}, True),
        ("twice the speed: in time for 10 s of real time", both_leave(41.1), {"speed": 2.0}, True),
        ("twice the speed: too late", both_leave(51.1), {"speed": 2.0}, False),
        ("in memory the speed does not matter", both_leave(41.1), {"speed": 2.0, "is_simulated": True}, False),
        (
            "a tool gets a response",
            [event("ListGroups", 36, group=None, member=None, member_id=None), *both_leave(42)],
            {},
            True,
        ),
        (
            "no member waits",
            [act("crash", 31), act("crash", 31, **OF_1), event("ListGroups", 60, member=None)],
            {},
            True,
        ),
        (
            "the only broker is stopped and started",
            [beat(60), beat(60, **OF_1), *both_leave(61)],
            {"timeline": [stop(30.5), start(59)]},
            True,
        ),
        ("no response until the end", [lost("Heartbeat", 50, lost=False)], {}, False),
    ]
    for name, more, how, passed in sampled(cases, 4):
        with subtests.test(case=name):
            check = checked(more, **how)["cluster-answers"]
            assert (check.passed, check.failures, len(check.violations)) == (passed, not passed, not passed)


def test_failures_are_described_with_their_time_and_the_members() -> None:
    checks = checked(both_leave(65), is_reachable=False)
    assert [violation.what for violation in checks["cluster-answers"].violations] == [
        "no request was answered for 35.0 s, starting at second 30.0, with 2 members of 1 group waiting"
    ]
    (violation,) = checks["members-answered"].violations
    assert (violation.group, violation.members) == ("g", ["g-0", "g-1"])
    assert violation.what == (
        "2 members of g got no response for up to 35.0 s, starting at second 30.0; last response from broker 2"
    )
    assert checks["reachable"] == _check_reachable(Circumstances(is_reachable=False))


def test_a_cluster_that_is_unreachable_at_the_end() -> None:
    assert _check_reachable(Circumstances()).passed
    assert _check_reachable(Circumstances(is_reachable=None)).outcome == "inconclusive"  # it was killed
    check = _check_reachable(Circumstances(is_reachable=False))
    assert (check.passed, check.failures) == (False, 1)
    assert check.violations[0].what == "no broker could be reached after the last member had left"


def test_the_requests_that_a_broker_did_not_answer_are_one_failure() -> None:
    silent = [
        lost("OffsetCommit", 31 + n, until_s=42 + n, missing="unanswered", broker=1, member=f"g-{n}") for n in (0, 1)
    ]
    checks = checked([*LOST, beat(30.5, broker=1), *silent, beat(60)])
    assert [violation.what for violation in checks["brokers-answer"].violations] == [
        "broker 1 answered no request for 12.0 s, starting at second 31.0: 2 requests of 1 group lost or unanswered"
    ]
    assert checks["requests-answered"].failures == 7
    assert [violation.what for violation in checks["requests-answered"].violations] == [
        f"7 of {SENT + 9} requests ({7 / (SENT + 9):.1%}) were lost, unanswered, or pending for more than 5 s at the "
        "end: 5 Heartbeat, 2 OffsetCommit"
    ]


SENT = sum(each.count for each in HEALTHY if each.kind == "request")
LOST = [lost("Heartbeat", 6 + n, until_s=6.5 + n) for n in range(5)]


@soak
def test_the_share_of_lost_requests(subtests: pytest.Subtests) -> None:
    cases: list[tuple[str, list[Event], Sequence[Mapping[str, Any]], bool]] = [
        ("4 % are lost", LOST[:3], (), True),
        ("7 % are lost", LOST, (), False),
        ("requests that were never sent", [each._replace(version=-1) for each in LOST], (), True),
        ("the member crashes before the response", [*LOST, *(act("crash", 6.4 + n) for n in range(5))], (), True),
        ("the member leaves before the response", [*LOST, *(act("leave", 6.4 + n) for n in range(5))], (), False),
        (
            "JoinGroups of a member that leaves",
            [each._replace(api="JoinGroup") for each in LOST] + [act("leave", 6.4 + n) for n in range(5)],
            (),
            True,
        ),
        ("shortly after an event", LOST, [stop(5.8)], True),
        (
            "shortly after a condition",
            LOST,
            [done("expect", 5.8, condition={"is": "group.stable", "group_id": "g"})],
            False,
        ),
        ("long after the end of an outage", LOST, [stop(0), start(0.5)], False),
        ("shortly after the end of an outage", LOST, [stop(0), start(5)], True),
        (
            "while a fault suppresses responses",
            LOST,
            [{"do": "inject_fault", "api": "Heartbeat", "drop": True, "at_s": 1, "done": True}],
            True,
        ),
        (
            "a fault that was not added",
            LOST,
            [{"do": "inject_fault", "api": "Heartbeat", "drop": True, "at_s": 1, "done": False}],
            False,
        ),
        (
            "pending for less than 5 s at the end",
            [lost("Heartbeat", 31, lost=False, member=f"g-{n}") for n in range(9)] + [beat(35)],
            (),
            True,
        ),
        (
            "pending for more than 5 s at the end",
            [lost("Heartbeat", 31, lost=False, member=f"g-{n}") for n in range(9)] + [beat(37)],
            (),
            False,
        ),
        (
            "parked JoinGroups at the end",
            [lost("JoinGroup", 31, lost=False, member=f"g-{n % 2}") for n in range(9)] + [beat(37)],
            (),
            True,
        ),
    ]
    for name, more, timeline, passed in sampled(cases, 4):
        with subtests.test(case=name):
            assert checked(more, timeline=timeline)["requests-answered"].passed is passed


def done(do: str, at_s: float, **more: Any) -> dict[str, Any]:
    return {"do": do, "at_s": at_s, "done": True, "why": None, **more}


def test_outages_that_a_workload_plans(subtests: pytest.Subtests) -> None:
    cases: list[tuple[list[dict[str, Any]], list[Outage]]] = [
        ([], []),
        ([done("group.rebalance", 1, group_id="g"), done("broker.restart", 2, node_id=1)], []),
        ([stop(1), start(2, 3), start(4)], [Outage(2, 1, 4)]),
        ([stop(1), start(2) | {"done": False}], [Outage(2, 1)]),
        ([stop(1), done("reset", 5)], [Outage(2, 1, 5)]),
        ([stop(1), start(2), stop(3)], [Outage(2, 1, 2), Outage(2, 3)]),
        ([done("inject_fault", 1, api=None, drop=True, for_s=3, after_s=2)], [Outage(None, 3, 6, is_fault=True)]),
        ([done("inject_fault", 1, api=None, silent=True, for_s=3)], [Outage(None, 1, 34, is_fault=True)]),
        ([done("inject_fault", 1, api=None, drop=True, every=9)], [Outage(None, 1, inf, is_fault=True)]),
        ([done("inject_fault", 1, api=None, silent=True, broker=2)], [Outage(2, 1, is_fault=True)]),
        ([done("inject_fault", 1, api=None, drop=True), done("clear_faults", 4)], [Outage(None, 1, 4, is_fault=True)]),
        ([done("inject_fault", 1, api="Heartbeat", error="NOT_COORDINATOR")], []),
        ([done("inject_fault", 1, api="Heartbeat", times=1, delay_before_s=9)], [Outage(None, 1, inf, is_fault=True)]),
        ([done("inject_fault", 1, api="Heartbeat", then={"do": "broker.stop", "node_id": 2})], [Outage(2, 1, inf)]),
        ([done("inject_fault", 1, api="Heartbeat", before={"do": "brokers.elect_preferred"})], []),
        (
            [
                done("broker.set_network", 1, node_id=1, accept="refuse"),
                done("broker.set_network", 3, node_id=1, accept="normal"),
            ],
            [Outage(1, 1, 3, is_fault=True), Outage(1, 3, is_fault=True)],
        ),
        (
            [
                done("transaction.move_coordinator", 1, transactional_id="t", to="none"),
                done("transaction.move_coordinator", 3, transactional_id="t", to=1),
            ],
            [Outage(None, 1, 3)],
        ),
        (
            [
                done("group.move_coordinator", 1, group_id="g", to="none"),
                done("group.move_coordinator", 3, group_id="g", to=1),
            ],
            [Outage(None, 1, 3)],
        ),
        (
            [
                done("partition.move_leader", 1, topic="__consumer_offsets", partition=3, to=None),
                done("partition.move_leader", 3, topic="__consumer_offsets", partition=3, to=2),
            ],
            [Outage(None, 1, 3)],
        ),
        (
            [
                done("group.hold", 1, group_id="g", state="PreparingRebalance"),
                done("group.release", 2, group_id="h"),
                done("transaction.release", 3, transactional_id="g"),
                done("group.release", 4, group_id="g"),
            ],
            [Outage(None, 1, 4)],
        ),
        (
            [
                done("transaction.hold", 1, transactional_id="t", state="Ongoing"),
                done("group.release", 2, group_id="t"),
                done("transaction.release", 3, transactional_id="t"),
            ],
            [Outage(None, 1, 3)],
        ),
        (
            [
                done("group.delay_sync", 1, group_id="g", member="m"),
                done("group.release_sync", 3, group_id="g", member="m"),
            ],
            [Outage(None, 1, 3)],
        ),
        ([done("group.delay_sync", 1, group_id="g", member="m", seconds=4)], [Outage(None, 1, 5)]),
        ([done("expect", 1, condition={"is": "group.stable", "group_id": "g"})], []),
    ]
    for timeline, outages in cases:
        with subtests.test(timeline=timeline):
            assert planned_outages(timeline) == outages


def simulated_minute(*events: dict[str, Any]) -> tuple[list[Script], Sequence[dict[str, Any]], list[Row]]:
    """Simulate a minute of four groups with three members each, on two brokers; return scripts, events and rows."""
    life = (Act(0.0, "start"), Act(58_000.0, "leave"))
    members = [script(f"g{group}", number, *life) for group in range(4) for number in range(3)]
    return members, events, play_in_memory(members, two_broker_settings(60.0, events=events))[1]


def simulated(event: dict[str, Any]) -> dict[str, AvailabilityCheck]:
    """Check a simulated minute with a planned event."""
    members, events, rows = simulated_minute(event)
    timeline = [each | {"done": True, "why": None} for each in events]
    return by_name(
        check_availability_of(
            pa.Table.from_pylist(rows, SCHEMA), members, Circumstances(timeline=timeline, is_simulated=True)
        )
    )


FAULT: dict[str, Any] = {"at_s": 20, "do": "inject_fault", "api": None}


def test_a_simulated_cluster_that_stops_responding_fails_the_checks() -> None:
    checks = simulated({**FAULT, "silent": True})
    assert [name for name, check in checks.items() if not check.passed] == [
        "observed",  # The members send less than half of their heartbeats.
        "cluster-answers",
        "brokers-answer",
        "groups-served",  # Members ask for their coordinator, in vain.
        "members-answered",
    ]
    assert checks["members-answered"].failures == 12


def test_a_simulated_broker_that_stops_responding_fails_the_check_of_members() -> None:
    checks = simulated({**FAULT, "silent": True, "broker": 1})
    assert checks["cluster-answers"].passed
    assert not checks["members-answered"].passed


def test_simulated_outages_that_a_workload_plans_pass(
    subtests: pytest.Subtests, monkeypatch: pytest.MonkeyPatch
) -> None:
    cases: list[tuple[dict[str, Any], ...]] = [
        (),
        ({"at_s": 20, "do": "broker.stop", "node_id": 1}, {"at_s": 40, "do": "broker.start", "node_id": 1}),
        (
            *({"at_s": 20, "do": "broker.stop", "node_id": node_id} for node_id in (1, 2)),
            *({"at_s": 40, "do": "broker.start", "node_id": node_id} for node_id in (1, 2)),
        ),
        (
            {"at_s": 20, "do": "broker.stop", "node_id": 1, "elect": False},
            {"at_s": 45, "do": "broker.start", "node_id": 1},
        ),
        ({**FAULT, "silent": True, "for_s": 10},),
        ({**FAULT, "drop": True}, {"at_s": 45, "do": "clear_faults"}),
        ({**FAULT, "drop": True, "probability": 0.3},),
    ]
    # The requests of all replays are counted together. A replay alone must not exceed the limit.
    monkeypatch.setattr("fakebroker.replay.promises.availability.LOST_SHARE", LOST_SHARE / len(cases))
    replays = [PlayedReplay(number, *simulated_minute(*events)) for number, events in enumerate(cases)]
    for name, each in check(replays, planned=True).checks.items():
        with subtests.test(check=name):
            assert (each.outcome, each.violations, each.doubts) == ("passed", [], [])
