"""The promises on events of scripted members: a correct coordinator keeps all, each broken coordinator breaks one.

Each run is a group of its own, so that all are checked by one run of the queries.
"""

import re
from collections.abc import Callable
from functools import partial
from itertools import cycle
from pathlib import Path
from random import Random
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from fakebroker.coordinator.group_coordinator import Coordinator
from fakebroker.replay.members.events import Event
from fakebroker.replay.options import GroupProtocol
from fakebroker.replay.report.evidence import COLUMNS, violated
from fakebroker.replay.run_summary import PromiseCheck, Violation
from fakebroker.replay.script.script import Act, Action, Script
from fakebroker.replay.verify.promise_views import BrokerTimes, promise_views
from fakebroker.replay.verify.promises import MOST_VIOLATIONS, PROMISES
from fakebroker.replay.verify.violations import ViolationRow
from tests.support.replay import broken_consumer_coordinators as consumer, broken_coordinators as broken
from tests.support.replay.broken_transactions import BUGS, played_with, random_transactions
from tests.support.replay.promise_cases import checked_with_cases
from tests.support.replay.recorded_events import event_of, file_frame, script_of, scripts, table
from tests.support.replay.scripted_group import HEARTBEAT_MS, PARTITIONS, SESSION_MS, ScriptedGroup, script
from tests.support.soak import cases, soak

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


def random_run(seed: int, protocol: GroupProtocol = "classic", *, migrates: bool = False) -> Run:
    """Run members with random actions, some of them static, while the coordinator moves and connections are lost.

    Args:
        seed: Seed of all random choices.
        protocol: The protocol of all members, at first.
        migrates: Whether the members change to the other protocol one after the other.
    """
    random = Random(seed)
    members = tuple(
        _random_script(index, random, ASSIGNORS[seed % len(ASSIGNORS)])._replace(protocol=protocol)
        for index in range(random.randint(1, 5))
    )
    if migrates:
        members = tuple(_migrating(each, 40_000.0 + 2_000 * index) for index, each in enumerate(members))
    group = ScriptedGroup(members, seed=seed)
    for _ in range(random.choice([0, 1, 4])):
        group.call_in(random.uniform(0, 80_000), group.move_coordinator)
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
def events_and_members(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> tuple[DataFrame, DataFrame]:
    """Return all runs, with broken and with correct coordinators; each is a group."""
    runs = {name: play() for name, (_, play) in BROKEN.items()} | {f"seed-{seed}": random_run(seed) for seed in SEEDS}
    runs |= {f"consumers-{seed}": random_run(seed, "consumer") for seed in CONSUMER_SEEDS}
    runs |= {f"migration-{seed}": random_run(seed, PROTOCOLS[seed % 2], migrates=True) for seed in CONSUMER_SEEDS}
    runs |= {f"transactions-{seed}": random_transactions(seed) for seed in TRANSACTIONAL_SEEDS}
    members = [script_of(name, each) for name, run in runs.items() for each in run[0]]
    events = [event_of(name, event) for name, run in runs.items() for event in run[1]]
    path = tmp_path_factory.mktemp("events") / "events.parquet"
    return file_frame(spark, table(events), path), scripts(spark, members)


@pytest.fixture(scope="module")
def violations_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("promises") / "violations.parquet"


@pytest.fixture(scope="module")
def checked_and_counted(
    spark: SparkSession, events_and_members: tuple[DataFrame, DataFrame], violations_file: Path
) -> tuple[list[PromiseCheck], dict[str | None, dict[str, int]]]:
    """Return the promises checked on all runs, and the numbers of their cases by group."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fakebroker.replay.verify.promises.MOST_VIOLATIONS", 1_000)
        with promise_views(spark, *events_and_members, PARTITIONS, TIMES) as views:
            return checked_with_cases(views, violations_file)


@pytest.fixture(scope="module")
def checked(
    checked_and_counted: tuple[list[PromiseCheck], dict[str | None, dict[str, int]]],
) -> list[PromiseCheck]:
    """Return the promises checked on all runs."""
    return checked_and_counted[0]


def test_a_broken_coordinator_breaks_its_promise_and_no_other(
    checked: list[PromiseCheck], subtests: pytest.Subtests
) -> None:
    for name, (promise, _) in BROKEN.items():
        with subtests.test(coordinator=name):
            broken_promises = {
                check.name for check in checked for violation in check.violations if violation.group == name
            }
            assert broken_promises == {promise}


def test_every_violation_of_a_broken_coordinator_is_in_a_case(
    checked_and_counted: tuple[list[PromiseCheck], dict[str | None, dict[str, int]]], subtests: pytest.Subtests
) -> None:
    checked, counts = checked_and_counted
    for name, (promise, _) in BROKEN.items():
        broken = sum(v.group == name for check in checked if check.name == promise for v in check.violations)
        with subtests.test(coordinator=name):
            assert counts[name].get(promise, 0) >= broken > 0


def test_violations_have_the_events_that_show_them(checked: list[PromiseCheck], subtests: pytest.Subtests) -> None:
    for check in checked:
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


def test_the_file_of_violations_has_all_of_them(
    spark: SparkSession, checked: list[PromiseCheck], violations_file: Path
) -> None:
    rows = [ViolationRow(*row) for row in spark.read.parquet(str(violations_file)).collect()]
    assert rows == [
        ViolationRow(check.name, each.group, each.generation, each.members, each.at_us, each.until_us, each.what)
        for check in checked
        for each in check.violations
    ]
    assert sum(row.group == "loses commits" for row in rows) > MOST_VIOLATIONS


@soak
def test_a_correct_coordinator_keeps_all_promises(checked: list[PromiseCheck]) -> None:
    violations = [violation for check in checked for violation in check.violations if violation.group not in BROKEN]
    assert not violations, [(violation.group, violation.what) for violation in violations]


def test_every_promise_is_broken_by_a_coordinator() -> None:
    with_coordinator = {promise for promise, _ in BROKEN.values()}
    assert [name for name in PROMISES if name not in with_coordinator] == [], "expected an entry in BROKEN"
