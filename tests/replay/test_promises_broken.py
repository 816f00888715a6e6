"""The promises on what real members saw: a healthy coordinator keeps all, a broken one breaks its one and no other.

Each run is a group of its own among the same events, so that they are all checked at once.
"""

from collections.abc import Callable
from functools import partial
from itertools import cycle
from random import Random

import pytest
from pyspark.sql import SparkSession

from fakebroker.coordinator.group.coordinator import Coordinator
from fakebroker.replay.members.events import Event
from fakebroker.replay.run_summary import PromiseCheck
from fakebroker.replay.script.script import Act, Action, Script
from fakebroker.replay.verify.promises import check_promises
from tests.support.replay import broken_coordinators as broken
from tests.support.replay.recorded_events import frame, scripts
from tests.support.replay.scripted_group import PARTITIONS, ScriptedGroup, script

pytestmark = pytest.mark.slow

Run = tuple[list[Script], list[Event]]

SEEDS = range(24)
DEEDS: tuple[Action, ...] = ("crash", "leave", "pause", "slow", "zombie")
ASSIGNORS = ("range", "roundrobin", "sticky", "cooperative-sticky")
TWO = (script("a"), script("b", (4, "start")))
THREE = (*TWO, script("c", (18, "start")))


def played(
    members: tuple[Script, ...], kind: type[Coordinator], direct: Callable[[ScriptedGroup], None] = lambda group: None
) -> Run:
    group = ScriptedGroup(members, kind)
    direct(group)
    group.run(90_000)
    return list(members), group.events


def name_another(group: ScriptedGroup) -> None:
    """From the tenth second look-ups name the broker that does not serve the group."""
    group.call_in(10_000, lambda: setattr(group, "find_coordinator", lambda: 2))


def serve_at_both(group: ScriptedGroup) -> None:
    """Look-ups name the two brokers by turns, and both serve the group."""
    group.share_coordinator()
    group.find_coordinator = cycle((1, 2)).__next__


def wildly_played(seed: int) -> Run:
    """Members that do what their seed says, static ones among them, under a coordinator that moves; links break."""
    random = Random(seed)
    members = tuple(_wild(index, random, ASSIGNORS[seed % len(ASSIGNORS)]) for index in range(random.randint(1, 5)))
    group = ScriptedGroup(members, seed=seed)
    for _ in range(random.choice([0, 1, 4])):
        group.call_in(random.uniform(0, 80_000), group.move_coordinator)
    for _ in range(random.choice([0, 3, 10])):
        index = random.randrange(len(members))
        group.call_in(random.uniform(0, 80_000), partial(group.disconnect, index))
    group.run(100_000)
    return list(members), group.events


def _wild(index: int, random: Random, assignor: str) -> Script:
    acts = [Act(random.choice([0.0, 200.0, 15_000.0]), "start")]
    for _ in range(random.randint(0, 3)):
        deed = random.choice(DEEDS)
        at_ms = acts[-1].at_ms + acts[-1].for_ms + random.uniform(500, 25_000)
        if deed in ("crash", "leave"):
            acts += [Act(at_ms, deed), Act(at_ms + random.choice([100.0, 3_000.0, 20_000.0]), "start")]
        else:
            acts.append(Act(at_ms, deed, random.uniform(1_000, 15_000)))
    instance_id = f"i{index}" if random.random() < 0.4 else None
    return script(f"m{index}", assignor=assignor, instance_id=instance_id)._replace(acts=tuple(acts))


BROKEN: dict[str, tuple[str, Callable[[], Run]]] = {
    "assigns twice": ("one-owner", lambda: played(TWO, broken.AssignsTwice)),
    "leaves a partition out": ("covered", lambda: played(TWO, broken.LeavesOut)),
    "loses commits": (
        "commits-kept",
        lambda: played(
            (script("a", (20, "crash")), script("b", (12, "start")), script("c", (40, "start"))), broken.LosesCommits
        ),
    ),
    "reuses generations": ("generations-rise", lambda: played(THREE, broken.ReusesGenerations)),
    "skips generations": ("generations-rise", lambda: played(THREE, broken.SkipsGenerations)),
    "forgets a join": ("answered", lambda: played(TWO, broken.ForgetsJoin)),
    "forgets a sync": ("answered", lambda: played(TWO, broken.ForgetsSync)),
    "keeps the dead": ("silent-out", lambda: played((*TWO, script("c", (30, "crash"))), broken.KeepsTheDead)),
    "puts out the living": ("beating-stays", lambda: played(TWO, broken.PutsOutTheLiving)),
    "accepts old generations": (
        "stale-refused",
        lambda: played(
            (*THREE, script("s", (16, "pause", 15), instance_id="s", session_timeout_ms=60_000)),
            broken.AcceptsOldGenerations,
        ),
    ),
    "serves the fenced": (
        "fenced-refused",
        lambda: played(
            (script("a", instance_id="s"), script("b", (20, "start"), instance_id="s")), broken.ServesTheFenced
        ),
    ),
    "serves the unknown": (
        "unknown-refused",
        lambda: played((script("a", (20, "zombie", 6), commit_interval_ms=0),), broken.ServesTheUnknown),
    ),
    "has two leaders": ("one-leader", lambda: played(TWO, broken.HasTwoLeaders)),
    "names another broker": ("coordinator-found", lambda: played(THREE, Coordinator, name_another)),
    "is served by two brokers": ("one-coordinator", lambda: played(TWO, Coordinator, serve_at_both)),
}


@pytest.fixture(scope="module")
def checked(spark: SparkSession) -> list[PromiseCheck]:
    """What becomes of the promises in all runs, those with broken coordinators and those with healthy ones."""
    runs = {name: play() for name, (_, play) in BROKEN.items()} | {
        f"seed-{seed}": wildly_played(seed) for seed in SEEDS
    }
    members = [
        each._replace(group=name, member=f"{name}/{each.member}") for name, run in runs.items() for each in run[0]
    ]
    events = [_of_run(name, event) for name, run in runs.items() for event in run[1]]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fakebroker.replay.verify.promises.MOST_VIOLATIONS", 1_000)
        return check_promises(spark, frame(spark, events), scripts(spark, members), PARTITIONS)


def _of_run(name: str, event: Event) -> Event:
    """The event with the run for its group."""
    found = [(name, *place[1:]) for place in event.found] if event.found else event.found
    return event._replace(group=name, member=event.member and f"{name}/{event.member}", found=found)


def test_a_broken_coordinator_breaks_its_promise_and_no_other(checked: list[PromiseCheck]) -> None:
    broke: dict[str, set[str]] = {name: set() for name in BROKEN}
    for check in checked:
        for violation in check.violations:
            if violation.group in broke:
                broke[violation.group].add(check.name)
    assert broke == {name: {promise} for name, (promise, _) in BROKEN.items()}


def test_a_healthy_coordinator_keeps_its_promises_whatever_happens(checked: list[PromiseCheck]) -> None:
    found = [violation for check in checked for violation in check.violations if violation.group not in BROKEN]
    assert not found, [(violation.group, violation.what) for violation in found]
