"""What holds for each design: equal scripts give equal runs, and skipping the beats of quiet groups changes nothing."""

import random
from typing import Any

import pytest

from fakebroker.lab.designs import DESIGNS
from fakebroker.lab.script import BrokerEvent, MemberDo, MemberEvent, TopicEvent
from tests.support.lab.runs import BROKERS, TOPIC, Event, coordinator_of, measurements, play, starts
from tests.support.soak import cases, soak

GROUPS, SIZE = 4, 4
FAULTS: tuple[MemberDo, ...] = (
    *("leave", "crash", "vanish", "pause", "slow", "cut", "lose_request", "lose_response", "start"),
)


def random_events(seed: int) -> list[Event]:
    """Return events of all kinds, few enough that groups rest in between."""
    choice = random.Random(f"rests {seed}")
    members = range(GROUPS * SIZE)
    events = starts(members, every_ms=choice.choice((1.0, 137.0, 900.0)))
    for _ in range(choice.randint(2, 12)):
        at_ms = float(choice.randint(30_000, 500_000))
        for_ms, extra_ms = float(choice.randint(100, 60_000)), float(choice.randint(1, 3_000))
        events.append(MemberEvent(at_ms, choice.choice(members), choice.choice(FAULTS), for_ms, extra_ms))
    node_id, at_ms = choice.randint(1, BROKERS), float(choice.randint(100_000, 300_000))
    events.append(BrokerEvent(at_ms, node_id, choice.choice(("stop", "vanish"))))
    events.append(BrokerEvent(at_ms + choice.randint(1_000, 100_000), node_id, "start"))
    events.append(TopicEvent(float(choice.randint(50_000, 400_000)), TOPIC, 9))
    return events


@soak
@pytest.mark.parametrize("seed", cases(4, soak=200))
@pytest.mark.parametrize("design", DESIGNS)
def test_skipping_the_beats_of_quiet_groups_changes_nothing(design: str, seed: int) -> None:
    settings = random.Random(f"settings {seed}")
    session_timeout_ms, commit_interval_ms = settings.choice((10_000, 45_000)), settings.choice((0, 5_000, 7_300))
    runs = [
        measurements(
            play(
                design,
                random_events(seed),
                groups=GROUPS,
                size=SIZE,
                session_timeout_ms=session_timeout_ms,
                commit_interval_ms=commit_interval_ms,
                seed=seed,
                rests=rests,
            )
        )
        for rests in (False, True)
    ]
    for name in runs[0]:
        assert runs[1][name] == runs[0][name], f"{name}, seed={seed}"


@pytest.mark.parametrize("design", DESIGNS)
def test_a_commit_that_is_in_flight_when_the_coordinator_stops_is_not_the_last_one(design: str) -> None:
    for stop_ms in range(60_250, 66_000, 500):
        events = [
            *starts(range(2)),
            MemberEvent(30_000.0, 1, "slow", 60_000.0, 900.0),
            BrokerEvent(float(stop_ms), coordinator_of(0), "stop"),
        ]
        times: dict[str, Any] = {"session_timeout_ms": 10_000, "duration_ms": 120_000.0}
        slow, fast = (measurements(play(design, events, size=2, rests=rests, **times)) for rests in (False, True))
        assert fast == slow, stop_ms


@pytest.mark.parametrize("commit_interval_ms", [0, 5_000])
@pytest.mark.parametrize("design", DESIGNS)
def test_quiet_groups_rest(design: str, commit_interval_ms: int) -> None:
    """An hour in which nothing happens take a small part of the calls that they take without rest."""
    calls = []
    for rests in (False, True):
        world = play(
            *(design, starts(range(6))),
            groups=2,
            duration_ms=3_600_000.0,
            commit_interval_ms=commit_interval_ms,
            rests=rests,
        )
        calls.append(next(world.scheduler._numbers))
    assert calls[1] < calls[0] / 3


@pytest.mark.parametrize("design", DESIGNS)
def test_equal_scripts_give_equal_runs(design: str) -> None:
    runs = [measurements(play(design, random_events(5), groups=GROUPS, size=SIZE, seed=5)) for _ in range(2)]
    assert runs[0] == runs[1]
