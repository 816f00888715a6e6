"""Each promise on events written by hand: kept on a healthy run, broken by the least that breaks it, not by less.

Each case is a group of its own among the same events, so that they are all checked at once.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import pytest
from pyspark.sql import SparkSession

from fakebroker.errors import ConfigError
from fakebroker.replay.members.events import Event
from fakebroker.replay.run_summary import PromiseCheck, Violation
from fakebroker.replay.verify.promises import MOST_EVENTS, PROMISES, check_promises
from tests.support.replay.recorded_events import (
    HEALTHY,
    MEMBERS,
    OF_1,
    PARTITIONS,
    SECOND,
    START_US,
    beat,
    beats,
    commit,
    event,
    fetch,
    found,
    frame,
    join,
    lost,
    member,
    scripts,
    sync,
)

pytestmark = pytest.mark.slow

OF_2: dict[str, Any] = {"member": "g-2"}
SYNC_OF_0 = next(
    index for index, each in enumerate(HEALTHY) if each.api == "SyncGroup" and each.assigned == ["orders-0"]
)
OLD: dict[str, Any] = {"member_id": "old", "instance_id": "i"}
NEW: dict[str, Any] = {"member_id": "new", "instance_id": "i"}


def instead(index: int, *others: Event) -> list[Event]:
    return [*HEALTHY[:index], *others, *HEALTHY[index + 1 :]]


def and_then(*more: Event) -> list[Event]:
    return [*HEALTHY, *more]


def third(generation: int, *partitions: int, at_s: float = 31) -> list[Event]:
    """g-0 alone in a generation after the two."""
    return [join(at_s, generation, members=1), sync(at_s + 0.1, generation, *partitions)]


PATIENT = [member(f"g-{number}", session_timeout_ms=60_000, rebalance_timeout_ms=60_000) for number in range(3)]
UNSYNCED = lost("SyncGroup", 31.1, lost=False, generation=3, **OF_1)


class Case(NamedTuple):
    """Events, and the promises they break, by name."""

    events: Sequence[Event]
    broken: Sequence[str] = ()
    members: Sequence[Any] = MEMBERS


REPLACED = [
    found(0),
    join(1, 1, leader="old", members=1, **OLD),
    sync(1.1, 1, 0, 1, **OLD),
    join(3, 1, leader="new", members=1, **NEW),
    sync(3.1, 1, 0, 1, **NEW),
]

CASES: dict[str, Case] = {
    "healthy": Case(HEALTHY),
    # one-owner
    "a partition with two owners": Case(instead(SYNC_OF_0, sync(5.04, 2, 0, 1)), ["one-owner"]),
    "the same partition twice for one member": Case(and_then(sync(31, 2, 0))),
    "a static member under a new id": Case(REPLACED),
    # covered
    "a partition that nobody has": Case(instead(SYNC_OF_0, sync(5.04, 2)), ["covered"]),
    "a partition of another topic": Case(
        instead(SYNC_OF_0, sync(5.04, 2, 0)._replace(assigned=["orders-0", "o-1"])), ["covered"]
    ),
    "partitions that a topic has got meanwhile": Case(instead(SYNC_OF_0, sync(5.04, 2, 0, 2))),
    "a member that has not shown what it got": Case(instead(SYNC_OF_0, lost("SyncGroup", 5.04, generation=2))),
    "a cooperative generation on the way": Case(
        instead(SYNC_OF_0, sync(5.04, 2)), members=[each._replace(assignor="cooperative-sticky") for each in MEMBERS]
    ),
    "a cooperative generation that stays": Case(
        [*instead(SYNC_OF_0, sync(5.04, 2)), beats(31, 40), beats(31, 40, **OF_1)],
        ["covered"],
        [each._replace(assignor="cooperative-sticky") for each in MEMBERS],
    ),
    # one-leader
    "two leaders": Case(
        and_then(
            *[join(31, 3, members=2), join(31, 3, leader="g-1-id", members=2, **OF_1)],
            *[sync(31.1, 3, 0), sync(31.1, 3, 1, **OF_1)],
        ),
        ["one-leader"],
    ),
    "two protocols": Case(
        and_then(
            *[join(31, 3, members=2), join(31, 3, protocol="sticky", **OF_1)],
            *[sync(31.1, 3, 0), sync(31.1, 3, 1, **OF_1)],
        ),
        ["one-leader"],
    ),
    "two leaders of a generation that was never complete, with a move between": Case(
        and_then(
            *[join(31, 3, members=2), join(31, 3, **OF_1), event("SyncGroup", 31.1, generation=3, error=16)],
            *[found(31.2, 1), join(32, 3, leader="g-1-id", broker=1), sync(32.1, 3, 0, broker=1)],
            *[join(32, 3, leader="g-1-id", members=2, broker=1, **OF_1), sync(32.1, 3, 1, broker=1, **OF_1)],
        )
    ),
    # generations-rise
    "a generation left out": Case(and_then(*third(4, 0, 1)), ["generations-rise"]),
    "a generation that only lost answers can have told of": Case(and_then(lost("JoinGroup", 30.5), *third(4, 0, 1))),
    "a group that was empty between": Case(
        and_then(
            *[event("LeaveGroup", 31), event("LeaveGroup", 31, **OF_1)],
            *[join(40, 4, leader="g-2-id", members=1, **OF_2), sync(40.1, 4, 0, 1, **OF_2)],
        )
    ),
    "a new member in an old generation": Case(
        and_then(event("JoinGroup", 31, error=79, **OF_2), join(31.1, 2, **OF_2)), ["generations-rise"]
    ),
    "a leader that asks for a generation and gets the old one": Case(
        and_then(join(31, 2, members=2)), ["generations-rise"]
    ),
    "a follower that asks where it is": Case(and_then(join(31, 2, **OF_1), sync(31.1, 2, 1, **OF_1))),
    "back to a generation before": Case(and_then(*third(3, 0, 1), join(40, 2, **OF_1)), ["generations-rise"]),
    "back to the last complete generation by a move": Case(
        and_then(join(31, 3, **OF_1), event("SyncGroup", 31.1, generation=3, error=22, **OF_1), join(31.2, 2, **OF_1))
    ),
    "a group that starts over with members in it": Case(
        and_then(join(32, 1, leader="g-2-id", members=1, **OF_2), sync(32.1, 1, 0, 1, **OF_2)), ["generations-rise"]
    ),
    "a group that starts over empty": Case(
        and_then(
            *[event("LeaveGroup", 31), event("LeaveGroup", 31, **OF_1)],
            *[join(40, 1, leader="g-2-id", members=1, **OF_2), sync(40.1, 1, 0, 1, **OF_2)],
            *[beat(41, 1, **OF_2), commit(41, 1, generation=1, **OF_2)],
        )
    ),
    # commits-kept
    "a commit that is lost": Case(and_then(fetch(31, 10)), ["commits-kept"]),
    "all commits lost": Case(and_then(fetch(31, -1)), ["commits-kept"]),
    "a later offset": Case(and_then(fetch(31, 25))),
    "an older offset that was committed again": Case(and_then(commit(30.5, 10), fetch(31, 10))),
    "a commit at the same time": Case(and_then(commit(31, 5, done_s=32), fetch(31.5, 5))),
    "a commit whose answer was lost": Case(and_then(lost("OffsetCommit", 30.5), fetch(31, 5))),
    "a commit that is not acknowledged yet": Case(and_then(commit(30.5, 30, done_s=32), fetch(31, 20))),
    "offsets that may have expired": Case(and_then(fetch(80, -1))),
    # silent-out
    "a silent member that is still a member": Case(
        [*HEALTHY[:-3], beats(6, 22), beat(22.5, error=27, **OF_1)], ["silent-out", "silent-out"]
    ),
    "a silent member that is still a member, with a load that looks its group up": Case(
        [
            *[*HEALTHY[:-3], beats(6, 22), beat(22.5, error=27, **OF_1)],
            *(found(at_s, again=False) for at_s in (8, 13, 18)),
        ],
        ["silent-out", "silent-out"],
    ),
    "a silent member that is out": Case([*HEALTHY[:-3], beats(6, 14), beat(23, error=25, **OF_1)]),
    "a silent member that is still a member after a move": Case(
        [*HEALTHY[:-3], beat(22, error=16, **OF_1), found(22.1, 1), beat(23, broker=1, **OF_1)]
    ),
    "a generation that goes on without a member": Case([*HEALTHY[:-2], commit(10, 20)], ["silent-out"]),
    "a generation that ends without a member": Case([*HEALTHY[:-3], beats(6, 18), beat(19, error=27)]),
    "a generation that goes on under a new coordinator": Case([*HEALTHY[:-2], found(15)]),
    # beating-stays
    "a member put out": Case(and_then(beat(31, error=25, **OF_1)), ["beating-stays"]),
    "a member put out, with one that starts": Case(
        and_then(found(30.9, again=False), beat(31, error=25, **OF_1)), ["beating-stays"]
    ),
    "a member put out, with one that starts and finds another coordinator": Case(
        and_then(found(30.9, 1, again=False), beat(31, error=25, **OF_1))
    ),
    "a member that left put out": Case(and_then(event("LeaveGroup", 30.5, **OF_1), beat(31, error=25, **OF_1))),
    "a member put out for its silence": Case(and_then(beat(40, error=25, **OF_1), beat(31))),
    "a member put out before it was complete": Case(
        and_then(join(31, 3, **OF_1), beat(31.5, 3, **OF_1), beat(32, 3, error=25, **OF_1))
    ),
    "a member that did not join in time": Case(
        and_then(beats(31, 34, **OF_1), beats(35, 53, error=27, **OF_1), beat(54, error=25, **OF_1)),
        members=[member("g-0"), member("g-1", session_timeout_ms=60_000), member("g-2")],
    ),
    # stale-refused
    "an old generation served": Case(and_then(*third(3, 0, 1), commit(32, 30, **OF_1)), ["stale-refused"]),
    "an old generation's heartbeat": Case(and_then(*third(3, 0, 1), beat(32, **OF_1)), ["stale-refused"]),
    "an old generation's heartbeat while a coordinator loads": Case(
        and_then(*third(3, 0, 1), found(31.5), beat(32, **OF_1))
    ),
    "an old generation refused": Case(and_then(*third(3, 0, 1), beat(32, error=22, **OF_1))),
    "an old generation while the next is not complete": Case(and_then(join(31, 3, **OF_1), beat(32))),
    # fenced-refused
    "a member that is replaced served": Case([*REPLACED, commit(4, 1, generation=1, **OLD)], ["fenced-refused"]),
    "a member that is replaced refused": Case(
        [*REPLACED, commit(4, 1, generation=1, **OLD)._replace(error=82, offsets=[])]
    ),
    # unknown-refused
    "a member that is out served": Case(
        and_then(beat(41, error=25, **OF_1), beat(42, **OF_1), beats(31, 40)), ["unknown-refused"]
    ),
    "a member that left served": Case(and_then(event("LeaveGroup", 31, **OF_1), beat(32, **OF_1)), ["unknown-refused"]),
    "a member that is back with a coordinator that moved": Case(
        and_then(event("LeaveGroup", 31, **OF_1), found(31.5), beat(32, **OF_1))
    ),
    # answered
    "an answer that is owed": Case(and_then(lost("Heartbeat", 31, generation=2, lost=False)), ["answered"]),
    "an answer that is not there yet as the replay ends": Case(
        and_then(lost("Heartbeat", 60, lost=False), lost("JoinGroup", 60, lost=False))
    ),
    "a parked JoinGroup that is never answered": Case(and_then(lost("JoinGroup", 54, lost=False)), ["answered"]),
    "an answer that was lost": Case(and_then(lost("Heartbeat", 31, generation=2))),
    "a JoinGroup given up": Case(
        and_then(
            lost("JoinGroup", 31, until_s=56.1, **OF_1),
            *(beat(54 + n / 2, error=27) for n in range(4)),
            beats(31, 53, error=27),
        ),
        ["answered"],
    ),
    "a JoinGroup given up by a member that is less patient than another": Case(
        and_then(
            lost("JoinGroup", 31, until_s=56.1, **OF_1),
            *(beat(54 + n / 2, error=27) for n in range(4)),
            beats(31, 53, error=27),
        ),
        members=[member("g-0", rebalance_timeout_ms=60_000), member("g-1")],
    ),
    "a SyncGroup that is never answered": Case(and_then(*third(3, 0, 1), UNSYNCED, beat(40, 3)), ["answered"], PATIENT),
    "a SyncGroup that is not answered yet": Case(
        and_then(*third(3, 0, 1), UNSYNCED._replace(sent_us=START_US + 77 * SECOND)), members=PATIENT
    ),
    "a SyncGroup of a generation that is not complete": Case(
        and_then(
            *[join(31, 3, members=2), UNSYNCED._replace(member="g-0", member_id="g-0-id")],
            *[join(31, 3, **OF_1), UNSYNCED],
        ),
        members=PATIENT,
    ),
    "a SyncGroup that is never answered by a coordinator that was lost": Case(
        and_then(*third(3, 0, 1), UNSYNCED, found(33), beat(40, 3)), members=PATIENT
    ),
    "a SyncGroup of a member that stands still": Case(
        and_then(
            *[*third(3, 0, 1), UNSYNCED, beat(40, 3)],
            event("pause", 31.2, kind="act", error=None, latency_us=None, version=-1, broker=-1, **OF_1),
        ),
        members=PATIENT,
    ),
    "a SyncGroup given up": Case(
        and_then(
            *[*third(3, 0, 1), lost("SyncGroup", 31.1, until_s=41.1, generation=3, **OF_1)],
            *(beat(at_s, 3) for at_s in (38, 39, 40)),
        ),
        ["answered"],
        PATIENT,
    ),
    "a SyncGroup whose connection was lost": Case(
        and_then(
            *[*third(3, 0, 1), lost("SyncGroup", 31.1, until_s=35.1, generation=3, **OF_1)],
            *(beat(at_s, 3) for at_s in (33, 34, 35)),
        ),
        members=PATIENT,
    ),
    "an OffsetFetch given up": Case(
        and_then(lost("OffsetFetch", 25, until_s=55, **OF_1), beats(31, 51), beat(53), beat(54)), ["answered"], PATIENT
    ),
    "an OffsetFetch given up when its broker answered nobody": Case(
        and_then(lost("OffsetFetch", 25, until_s=55, **OF_1)), members=PATIENT
    ),
    # coordinator-found
    "a broker named that refuses": Case(
        [each for n in range(4) for each in (found(2 * n, 9), event("JoinGroup", 2 * n + 0.1, error=16, broker=9))],
        ["coordinator-found"],
    ),
    "a broker named that refuses for a while": Case(
        [each for n in range(4) for each in (found(n, 9), event("JoinGroup", n + 0.1, error=16, broker=9))]
    ),
    "a broker named that loads": Case(
        [each for n in range(4) for each in (found(2 * n, 9), event("JoinGroup", 2 * n + 0.1, error=14, broker=9))]
    ),
    "a broker named again after another one": Case(
        [
            *[
                found(0, 9),
                event("JoinGroup", 0.1, error=16, broker=9),
                found(1, 8),
                event("JoinGroup", 20, error=16, broker=8),
            ],
            *[found(21, 9), event("JoinGroup", 21.1, error=16, broker=9), found(22, 9)],
        ]
    ),
    # one-coordinator
    "two coordinators at a time": Case(
        and_then(*(beat(31 + n, broker=2 - n % 2, member=f"g-{n % 2}") for n in range(10))), ["one-coordinator"]
    ),
    "two coordinators one after the other": Case(
        and_then(*(beat(31 + n, broker=2 - (n > 5), member=f"g-{n % 2}") for n in range(10)))
    ),
    "a coordinator that moves to and fro": Case(
        and_then(
            *(
                each
                for n in range(10)
                for each in (
                    beat(31 + n, error=16, broker=1 + n % 2),
                    found(31.2 + n, 2 - n % 2),
                    beat(31.5 + n, broker=2 - n % 2),
                )
            ),
            beats(31, 40, **OF_1),
        )
    ),
}


def of_case(number: int, each: Event) -> Event:
    """The event with the case for its group, at brokers of its own."""
    if each.found:
        found = [(f"c{number}", 10 * number + node, error, again) for _, node, error, again in each.found]
        each = each._replace(found=found)
    broker = 10 * number + each.broker if each.broker >= 0 else each.broker
    return each._replace(group=f"c{number}", member=each.member and f"c{number}/{each.member}", broker=broker)


@pytest.fixture(scope="module")
def checked(spark: SparkSession) -> list[PromiseCheck]:
    """All cases, checked at once."""
    cases = list(enumerate(CASES.values()))
    events = [of_case(number, each) for number, case in cases for each in case.events]
    members = [
        each._replace(group=f"c{number}", member=f"c{number}/{each.member}")
        for number, case in cases
        for each in case.members
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fakebroker.replay.verify.promises.MOST_VIOLATIONS", 1_000)
        return check_promises(spark, frame(spark, events), scripts(spark, members), PARTITIONS)


@pytest.mark.parametrize("name", CASES)
def test_what_breaks_which_promise(checked: list[PromiseCheck], name: str) -> None:
    group = f"c{list(CASES).index(name)}"
    broken = [check.name for check in checked for violation in check.violations if violation.group == group]
    assert broken == list(CASES[name].broken)


def test_every_promise_has_a_case_that_breaks_it() -> None:
    assert {name for case in CASES.values() for name in case.broken} == set(PROMISES)


def test_a_violation_is_shown_with_what_was_around_it(spark: SparkSession) -> None:
    beats_before = [beat(30 + n / 100) for n in range(100)]
    events = and_then(*beats_before, beat(31, error=25, **OF_1), beat(50, error=22))
    (check,) = check_promises(spark, frame(spark, events), scripts(spark), PARTITIONS, ["beating-stays"])
    (violation,) = check.violations
    shown = violation.events
    assert (check.kept, check.broken) == (False, 1)
    assert violation == Violation(
        group="g",
        generation=2,
        members=["g-1"],
        at_us=START_US + 30 * SECOND,
        until_us=START_US + 31 * SECOND + 1_000,
        what="g-1 was told UNKNOWN_MEMBER_ID by g 1.001 s after a good heartbeat",
        events=shown,
    )
    assert len(shown) == MOST_EVENTS
    assert {(each["api"], each["group"]) for each in shown} == {("Heartbeat", "g")}


def test_only_what_is_wanted_is_checked(spark: SparkSession) -> None:
    checked = check_promises(spark, frame(spark, HEALTHY), scripts(spark), PARTITIONS, ["answered", "one-owner"])
    assert [(check.name, check.kept) for check in checked] == [("one-owner", True), ("answered", True)]
    with pytest.raises(ConfigError, match="'no-loss': expected one of one-owner, "):
        check_promises(spark, frame(spark, HEALTHY), scripts(spark), PARTITIONS, ["no-loss"])
