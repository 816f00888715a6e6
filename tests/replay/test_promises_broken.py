"""The promises on events of scripted members: a correct coordinator keeps all, each broken coordinator breaks one.

Each run is a group of its own.
"""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from itertools import cycle
from pathlib import Path
from random import Random
from typing import Any

import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings, strategies as st

from fakebroker.coordinator.group_coordinator import Coordinator
from fakebroker.replay.members.events import Event
from fakebroker.replay.options import GroupProtocol
from fakebroker.replay.promises.catalog import PROMISES
from fakebroker.replay.promises.observer import Found
from fakebroker.replay.report.evidence import COLUMNS, violated
from fakebroker.replay.report.promise_checks import MOST_VIOLATIONS, promise_checks, write_violations
from fakebroker.replay.run_summary import Violation
from fakebroker.replay.script.script import Act, Action, Script
from tests.support.replay import broken_consumer_coordinators as consumer, broken_coordinators as broken
from tests.support.replay.broken_transactions import BUGS, played_with, random_transactions
from tests.support.replay.observed import BrokerTimes, observed
from tests.support.replay.recorded_events import event_of, script_of
from tests.support.replay.scripted_group import DELAYS_MS, HEARTBEAT_MS, PARTITIONS, SESSION_MS, ScriptedGroup, script
from tests.support.soak import cases, examples, soak

Run = tuple[list[Script], list[Event]]

SEEDS = cases(8, soak=200)
CONSUMER_SEEDS = cases(4, soak=150)
PROTOCOLS: tuple[GroupProtocol, ...] = ("classic", "consumer")
TIMES = BrokerTimes(session_us=SESSION_MS * 1000, heartbeat_us=HEARTBEAT_MS * 1000)
TRANSACTIONAL_SEEDS = cases(3, soak=100)
ACTIONS: tuple[Action, ...] = ("crash", "leave", "pause", "slow", "zombie")
ASSIGNORS = ("range", "roundrobin", "sticky", "cooperative-sticky")
TWO = (script("a"), script("b", (4, "start")))
STATIC: dict[str, Any] = {"topics": ("payments",), "instance_id": "s"}
THREE = (*TWO, script("c", (18, "start")))


def played(
    members: tuple[Script, ...], kind: type[Coordinator], direct: Callable[[ScriptedGroup], None] = lambda group: None
) -> Run:
    group = ScriptedGroup(members, kind)
    direct(group)
    group.run(90_000)
    return list(members), group.events


def name_wrong_coordinator(group: ScriptedGroup) -> None:
    """From second 10, let FindCoordinator name the broker that does not serve the group."""
    group.call_in(10_000, lambda: setattr(group, "find_coordinator", lambda: 2))


def serve_on_both_brokers(group: ScriptedGroup) -> None:
    """Let FindCoordinator name the two brokers alternately, and both serve the group."""
    group.share_coordinator()
    group.find_coordinator = cycle((1, 2)).__next__


_BETWEEN_MOVES_MS = 20_000.0
"""A coordinator that moves away and back while all members are silent cannot be told from one that has stayed."""


def random_run(
    seed: int,
    protocol: GroupProtocol = "classic",
    *,
    migrates: bool = False,
    delays_ms: Sequence[float] = DELAYS_MS,
) -> Run:
    """Run members with random actions, some of them static, while the coordinator moves and connections are lost.

    Args:
        seed: Seed of all random choices.
        protocol: The protocol of all members, at first.
        migrates: Whether the members change to the other protocol one after the other.
        delays_ms: How long a request, a response or a look-up may take.
    """
    random = Random(seed)
    members = tuple(
        _random_script(index, random, ASSIGNORS[seed % len(ASSIGNORS)])._replace(protocol=protocol)
        for index in range(random.randint(1, 5))
    )
    if migrates:
        members = tuple(_migrating(each, 40_000.0 + 2_000 * index) for index, each in enumerate(members))
    group = ScriptedGroup(members, seed=seed, delays_ms=delays_ms)
    moved_ms = -_BETWEEN_MOVES_MS
    for at_ms in sorted(random.uniform(0, 80_000) for _ in range(random.choice([0, 1, 4]))):
        if at_ms - moved_ms >= _BETWEEN_MOVES_MS:
            group.call_in(at_ms, group.move_coordinator)
            moved_ms = at_ms
    for _ in range(random.choice([0, 3, 10])):
        index = random.randrange(len(members))
        group.call_in(random.uniform(0, 80_000), partial(group.disconnect, index))
    group.run(100_000)
    return list(members), group.events


def _migrating(script: Script, at_ms: float) -> Script:
    acts = (*script.acts, Act(at_ms, "migrate"), Act(at_ms + 1_000, "start"))
    return script._replace(acts=tuple(sorted(acts, key=lambda act: act.at_ms)))


def _random_script(index: int, random: Random, assignor: str) -> Script:
    acts = [Act(random.choice([0.0, 200.0, 15_000.0]), "start")]
    for _ in range(random.randint(0, 3)):
        action = random.choice(ACTIONS)
        at_ms = acts[-1].at_ms + acts[-1].for_ms + random.uniform(500, 25_000)
        if action in ("crash", "leave"):
            acts += [Act(at_ms, action), Act(at_ms + random.choice([100.0, 3_000.0, 20_000.0]), "start")]
        else:
            acts.append(Act(at_ms, action, random.uniform(1_000, 15_000)))
    instance_id = f"i{index}" if random.random() < 0.4 else None
    return script(f"m{index}", assignor=assignor, instance_id=instance_id)._replace(acts=tuple(acts))


def consumers(*scripts: Script) -> tuple[Script, ...]:
    """Return the scripts with the consumer protocol."""
    return tuple(each._replace(protocol="consumer") for each in scripts)


BROKEN: dict[str, tuple[str, Callable[[], Run]]] = {
    "assigns partitions twice": ("one-owner", lambda: played(TWO, broken.AssignsPartitionsTwice)),
    "loses an assigned partition": ("covered", lambda: played(TWO, broken.LosesAssignedPartition)),
    "loses commits": (
        "commits-kept",
        lambda: played(
            (script("a", (20, "crash")), script("b", (12, "start")), script("c", (40, "start"))), broken.LosesCommits
        ),
    ),
    "reuses generations": ("generations-rise", lambda: played(THREE, broken.ReusesGenerations)),
    "skips generations": ("generations-rise", lambda: played(THREE, broken.SkipsGenerations)),
    "never answers a JoinGroup": ("answered", lambda: played(TWO, broken.ForgetsJoin)),
    "never answers a SyncGroup": ("answered", lambda: played(TWO, broken.ForgetsSync)),
    "never expires sessions": (
        "silent-out",
        lambda: played((*TWO, script("c", (30, "crash"))), broken.NeverExpiresSessions),
    ),
    "expires a live session": ("beating-stays", lambda: played(TWO, broken.ExpiresLiveSession)),
    "accepts old generations": (
        "stale-refused",
        lambda: played(
            (*THREE, script("s", (16, "pause", 15), instance_id="s", session_timeout_ms=60_000)),
            broken.AcceptsOldGenerations,
        ),
    ),
    "accepts fenced members": (
        "fenced-refused",
        lambda: played(
            (script("a", instance_id="s"), script("b", (20, "start"), instance_id="s")), broken.AcceptsFencedMembers
        ),
    ),
    "accepts unknown members": (
        "unknown-refused",
        lambda: played((script("a", (20, "zombie", 6), commit_interval_ms=0),), broken.AcceptsUnknownMembers),
    ),
    "names every member as leader": ("one-leader", lambda: played(TWO, broken.NamesEveryMemberAsLeader)),
    "wrong coordinator is named": ("coordinator-found", lambda: played(THREE, Coordinator, name_wrong_coordinator)),
    "two brokers serve the group": ("one-coordinator", lambda: played(TWO, Coordinator, serve_on_both_brokers)),
    "assigns partitions that others have": (
        "one-owner",
        lambda: played(consumers(script("a"), script("b", (10, "start"))), consumer.AssignsOwnedPartitions),
    ),
    "goes back to an old epoch": (
        "epochs-rise",
        lambda: played(consumers(script("a"), script("b", (10, "start"))), consumer.GoesBackToOldEpoch),
    ),
    "loses released partitions": (
        "targets-reached",
        lambda: played(consumers(script("a"), script("b", (10, "start"))), consumer.LosesReleasedPartitions),
    ),
    "refuses the last commits": (
        "revoked-committed",
        lambda: played(consumers(script("a"), script("b", (10, "start"))), consumer.RefusesLastCommits),
    ),
    "never expires sessions of consumers": (
        "silent-out",
        lambda: played(
            # The member that crashes has no partition.
            consumers(
                *(script(name, topics=("payments",)) for name in "ab"),
                script("c", (9, "start"), (20, "crash"), topics=("payments",)),
            ),
            consumer.NeverExpiresConsumers,
        ),
    ),
    "expires the live session of a consumer": (
        "beating-stays",
        lambda: played(consumers(script("a"), script("b", (10, "start"))), consumer.ExpiresLiveConsumer),
    ),
    "accepts unknown consumers": (
        "unknown-refused",
        lambda: played(
            consumers(script("a", (20, "zombie", 6), commit_interval_ms=0)), consumer.AcceptsUnknownConsumers
        ),
    ),
    "accepts commits of unknown consumers": (
        "unknown-refused",
        lambda: played(consumers(script("a", (20, "zombie", 6))), consumer.AcceptsCommitsOfUnknownConsumers),
    ),
    "accepts old member epochs": (
        "stale-refused",
        lambda: played(
            consumers(script("a"), script("b", (10, "start"))),
            consumer.AcceptsOldMemberEpochs,
            lambda group: group.repeat_requests(0, 5_000, 20_000),
        ),
    ),
    "accepts fenced consumers": (
        "fenced-refused",
        lambda: played(
            # The member that is fenced has no partition. After its last request it tries to join.
            consumers(
                *(script(name, topics=("payments",)) for name in "ab"),
                script("c", (9, "start"), (20, "zombie", 12), (33, "crash"), (34, "start"), **STATIC),
                script("d", (27, "start"), **STATIC),
            ),
            consumer.AcceptsFencedConsumers,
        ),
    ),
} | {name: (promise, partial(played_with, name)) for name, (promise, _) in BUGS.items()}


@pytest.fixture(scope="module")
def found() -> tuple[list[Found], dict[str | None, Counter[str]]]:
    """Return the violations in all runs, with broken and with correct coordinators, and the numbers of cases."""
    runs = {name: play() for name, (_, play) in BROKEN.items()} | {f"seed-{seed}": random_run(seed) for seed in SEEDS}
    runs |= {f"consumers-{seed}": random_run(seed, "consumer") for seed in CONSUMER_SEEDS}
    runs |= {f"migration-{seed}": random_run(seed, PROTOCOLS[seed % 2], migrates=True) for seed in CONSUMER_SEEDS}
    runs |= {f"transactions-{seed}": random_transactions(seed) for seed in TRANSACTIONAL_SEEDS}
    members = [script_of(name, each) for name, run in runs.items() for each in run[0]]
    events = [event_of(name, event) for name, run in runs.items() for event in run[1]]
    return observed(events, members, TIMES, partitions=PARTITIONS)


@pytest.fixture(scope="module")
def violations(found: tuple[list[Found], dict[str | None, Counter[str]]]) -> list[Found]:
    return found[0]


def test_a_broken_coordinator_breaks_its_promise_and_no_other(
    violations: list[Found], subtests: pytest.Subtests
) -> None:
    for name, (promise, _) in BROKEN.items():
        with subtests.test(coordinator=name):
            assert {each.promise for each in violations if each.group == name} == {promise}


def test_every_violation_of_a_broken_coordinator_is_in_a_case(
    found: tuple[list[Found], dict[str | None, Counter[str]]], subtests: pytest.Subtests
) -> None:
    violations, cases = found
    for name, (promise, _) in BROKEN.items():
        broken = sum(each.group == name and each.promise == promise for each in violations)
        with subtests.test(coordinator=name):
            assert cases[name][promise] >= broken > 0


def test_violations_have_the_events_that_show_them(violations: list[Found], subtests: pytest.Subtests) -> None:
    for check in promise_checks([*PROMISES], Counter(), violations):
        for violation in check.violations:
            with subtests.test(promise=check.name, group=violation.group, at_us=violation.at_us):
                case = violated(violation, 0)
                evidence = (CONSUMER_EVIDENCE if is_of_consumers(violation) else EVIDENCE)[check.name]
                assert evidence <= {row[COLUMNS.index("API")] for row in case.rows}
                assert 0 < len(case.rows) <= MOST_EVENTS
                texts = [*case.facts.values(), *(cell for row in case.rows for cell in row)]
                assert [text for text in texts if re.search(r"\bNone\b|[\[{]['\"]", text)] == []


MOST_EVENTS = 10
"""Maximum number of events that a reader of a report has to compare."""

EVIDENCE: dict[str, set[str]] = {
    "one-owner": {"SyncGroup"},
    "covered": {"SyncGroup"},
    "one-leader": {"JoinGroup"},
    "generations-rise": {"JoinGroup"},
    "commits-kept": {"OffsetCommit", "OffsetFetch"},
    "silent-out": {"Heartbeat"},
    "beating-stays": {"Heartbeat"},
    "stale-refused": {"SyncGroup", "Heartbeat"},
    "fenced-refused": {"SyncGroup", "OffsetCommit"},
    "unknown-refused": {"Heartbeat"},
    "answered": set(),
    "coordinator-found": {"FindCoordinator", "JoinGroup"},
    "one-coordinator": {"Heartbeat"},
    "atomic": {"EndTxn"},
    "old-epochs-refused": {"EndTxn", "InitProducerId"},
    "overdue-aborted": {"(ListTransactions)"},
    "stable-offset-rises": {"Fetch"},
}
"""By promise: APIs of events in every violation in this module."""

CONSUMER_EVIDENCE: dict[str, set[str]] = {
    "one-owner": {"ConsumerGroupHeartbeat"},
    "silent-out": {"ConsumerGroupHeartbeat"},
    "beating-stays": {"ConsumerGroupHeartbeat"},
    "stale-refused": {"ConsumerGroupHeartbeat"},
    "fenced-refused": {"ConsumerGroupHeartbeat"},
    "unknown-refused": {"ConsumerGroupHeartbeat"},
    "epochs-rise": {"ConsumerGroupHeartbeat"},
    "revoked-committed": {"ConsumerGroupHeartbeat", "OffsetCommit"},
    "targets-reached": {"ConsumerGroupHeartbeat"},
}
"""The same for members of the consumer protocol."""


def is_of_consumers(violation: Violation) -> bool:
    return any(event["api"] == "ConsumerGroupHeartbeat" for event in violation.events)


def test_the_file_of_violations_has_all_of_them(violations: list[Found], tmp_path: Path) -> None:
    write_violations(tmp_path / "violations.parquet", violations)
    rows = [Found(**row, events=[]) for row in pq.read_table(tmp_path / "violations.parquet").to_pylist()]
    assert Counter((row.promise, row.group, row.at_us, row.what) for row in rows) == Counter(
        (each.promise, each.group, each.at_us, each.what) for each in violations
    )
    assert [row.promise for row in rows] == sorted((row.promise for row in rows), key=list(PROMISES).index)
    assert sum(row.group == "loses commits" for row in rows) > MOST_VIOLATIONS


@soak
def test_a_correct_coordinator_keeps_all_promises(violations: list[Found]) -> None:
    assert [(each.group, each.what) for each in violations if each.group not in BROKEN] == []


@soak
@settings(max_examples=examples(40, soak=3_000), deadline=None)
@given(
    seed=st.integers(0, 2**32),
    protocol=st.sampled_from(PROTOCOLS),
    migrates=st.booleans(),
    delays_ms=st.lists(st.floats(0.1, 500), min_size=1, max_size=4),
)
def test_delays_reordering_and_lost_responses_never_break_a_promise(
    seed: int, protocol: GroupProtocol, migrates: bool, delays_ms: list[float]
) -> None:
    """Each request and each response takes its own time, so that those of several connections change places.

    The bounds of the promises, 5 s, include a few round trips. Kafka itself breaks one promise: a static member that
    changes the protocol before it has an assignment gets none (migration-static-without-assignment.txt).
    """
    members, events = random_run(seed, protocol, migrates=migrates, delays_ms=delays_ms)
    violations, cases = observed(events, members, TIMES, partitions=PARTITIONS)
    may_be_unassigned = migrates and any(each.instance_id for each in members)
    kafkas = {"targets-reached"} if may_be_unassigned else set()
    assert [(each.promise, each.what) for each in violations if each.promise not in kafkas] == []
    assert cases["g"]["answered"] > 0


def test_every_promise_is_broken_by_a_coordinator() -> None:
    with_coordinator = {promise for promise, _ in BROKEN.values()}
    assert [name for name in PROMISES if name not in with_coordinator] == [], "expected an entry in BROKEN"
