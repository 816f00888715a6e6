"""The workloads in scenarios/workloads, scaled down: each meets its expectations, and misses one without its effect."""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from msgspec.structs import replace
from pyspark.sql import SparkSession

from fakebroker.replay.commands import replay
from fakebroker.replay.members.admin_load import groups_of
from fakebroker.replay.members.events import SCHEMA
from fakebroker.replay.members.member_loop import LoopSettings
from fakebroker.replay.options import PASSED, ReplayOptions
from fakebroker.replay.run_directory import read_summary
from fakebroker.replay.verify.preconditions import unmet_preconditions
from fakebroker.replay.workload.behavior import Leave, Pause
from fakebroker.replay.workload.scale import scaled
from fakebroker.replay.workload.transaction import Transaction
from fakebroker.replay.workload.workload import Workload, load_workload
from fakebroker.server.clock import Scaled
from fakebroker.server.fake_cluster import FakeCluster
from tests.support.replay.loop_player import LoopPlayer
from tests.support.replay.observed import observed
from tests.support.replay.plain_numbers import plain_numbers
from tests.support.replay.workload_plays import SEED, Play, WorkloadPlayer, tagged
from tests.support.soak import sampled, soak, soak_only

FILES = {file.stem: file for file in sorted(Path("scenarios/workloads").glob("*.toml"))}

SCALES = {"million": 0.001}
"""Factors of `--scale` other than 0.02: at 0.02, a million members are 20,000, which take a minute."""

Removal = Callable[[Workload], Workload]


@dataclass(frozen=True)
class Effect:
    """An effect that a workload shows.

    Attributes:
        removed: What is changed so that the effect does not occur.
        removal: Changes the workload.
        missed: Beginnings of the expectations that are missed then; all others are met.
        apis: APIs that members use only then.
    """

    removed: str
    removal: Removal
    missed: tuple[str, ...]
    apis: frozenset[str] = frozenset()


def groups(name: str | None = None, **changes: Any) -> Removal:
    """Return a removal that changes keys of all populations, or of the named one."""

    def remove(workload: Workload) -> Workload:
        chosen = (replace(each, **changes) if name in (None, each.name) else each for each in workload.groups)
        return replace(workload, groups=tuple(chosen))

    return remove


def load(**changes: Any) -> Removal:
    return lambda workload: replace(workload, load=tuple(replace(each, **changes) for each in workload.load))


def cluster(**changes: Any) -> Removal:
    return lambda workload: replace(workload, cluster=replace(workload.cluster, **changes))


def config(**changes: Any) -> Removal:
    """Return a removal that changes settings of the brokers; names have underscores instead of dots."""
    dotted = {name.replace("_", "."): value for name, value in changes.items()}
    return lambda workload: cluster(config={**workload.cluster.config, **dotted})(workload)


def no_events(*names: str) -> Removal:
    """Return a removal of the events with these commands; of all events without names."""
    return lambda workload: replace(
        workload, event=tuple(each for each in workload.event if names and each["do"] not in names)
    )


def behavior(population: str, key: str, **changes: Any) -> Removal:
    """Return a removal that changes a behavior of a population."""

    def remove(workload: Workload) -> Workload:
        (chosen,) = (each for each in workload.groups if each.name == population)
        return groups(population, **{key: replace(getattr(chosen, key), **changes)})(workload)

    return remove


LOADING, NOT_COORDINATOR = "errors.COORDINATOR_LOAD_IN_PROGRESS", "errors.NOT_COORDINATOR"
BATCH, REQUESTS = "groups_per_request of OffsetFetch from load", "requests of OffsetFetch from load"

EFFECTS: dict[str, list[Effect]] = {
    "classic-or-consumer": [
        Effect("no restarts", groups(restart=None), ("generations",)),
        Effect(
            "the consumer protocol, which has the same expectations",
            groups(protocol="consumer"),
            (),
            frozenset({"ConsumerGroupHeartbeat"}),
        ),
    ],
    "crash-storm": [Effect("no crashes", groups(crash=None), ("generations", "unassigned_member_s"))],
    "deploy": [
        Effect("no restarts", groups(restart=None), ("generations of dynamic",)),
        Effect("no static members", groups(static=0.0), ("generations of static",)),
    ],
    "exactly-once": [
        Effect(
            "no producer stops",
            groups(transaction=Transaction(to="payments", records=20)),
            ("errors.PRODUCER_FENCED",),
        )
    ],
    "failover-under-load": [
        Effect("no failovers", no_events(), (LOADING, NOT_COORDINATOR)),
        Effect("no election", no_events("brokers.elect_preferred"), (NOT_COORDINATOR,)),
        Effect("loading takes no time", cluster(load_ms=0), (LOADING,)),
    ],
    "fetch-offsets-batched": [
        Effect("no batches", load(batch=1), (BATCH,)),
        Effect("one group per request at the same rate", load(batch=1, rate_per_s=500), (BATCH, REQUESTS)),
    ],
    "fetch-offsets-single": [Effect("batches", load(batch=100, rate_per_s=5), (BATCH, REQUESTS))],
    "find-coordinators-batched": [Effect("no batches", load(batch=1), ("groups_per_request",))],
    "find-coordinators-single": [Effect("batches", load(batch=1000), ("requests of FindCoordinator",))],
    "hot-partition": [
        Effect("no hot partition", groups(hot_partitions=(), hot_share=1.0), ("broker_share", "partition"))
    ],
    "huge-group": [Effect("no member leaves", groups(leave=None), ("generations",))],
    "many-tiny-groups": [
        Effect("five members per group", groups(members=5, count=10_000), ("generations", "rebalance_p99_ms")),
        Effect("the default delay", config(group_initial_rebalance_delay_ms=3000), ("rebalance_p99_ms",)),
    ],
    "million": [
        Effect("no crashes", groups(crash=None), ("generations",)),
        Effect("no failover", no_events(), (LOADING,)),
        Effect("two brokers", cluster(brokers=2), ("broker_share",)),
    ],
    "old-brokers": [
        Effect("the newest brokers", cluster(as_version=None), ("groups_per_request of FindCoordinator", BATCH)),
    ],
    "rolling-broker-restart": [Effect("no restarts", no_events(), (LOADING,))],
    "scale-out": [
        Effect("all join at once", behavior("dynamic", "grow", every_s=0.0), ("generations of dynamic",)),
        Effect("not registered", lambda workload: replace(workload, load=()), ("generations of batched",)),
    ],
    "session-edge": [
        Effect("no long pauses", behavior("over", "pause", for_s=8.0), ("errors.UNKNOWN", "generations of over")),
        Effect("only long pauses", behavior("under", "pause", for_s=11.5), ("generations of under",)),
    ],
    "slow-consumers": [
        Effect("none is slow", groups(slow=None), ("rebalance_max_ms of patient", "generations of strict")),
        Effect(
            "a long rebalance timeout",
            groups("strict", rebalance_timeout_ms=30_000),
            ("rebalance_max_ms of strict", "generations of strict"),
        ),
    ],
    "steady-state": [
        Effect(
            "members leave and return",
            groups(leave=Leave(share=0.9, at_s=(8.0, 24.0), return_after_s=2.0)),
            ("generations",),
        ),
        Effect("one broker of three is hot", groups(hot_partitions=(7,), hot_share=0.9), ("broker_share",)),
    ],
    "ten-thousand": [
        Effect("rare heartbeats", groups(heartbeat_interval_ms=9_000), ("requests_per_s",)),
        Effect("long pauses", groups(pause=Pause(share=0.1, at_s=99.0, for_s=12.0)), ("errors.UNKNOWN_MEMBER_ID",)),
    ],
    "thundering-herd": [
        Effect("no initial delay", config(group_initial_rebalance_delay_ms=0), ("generations",)),
    ],
}
"""What each workload is about: the effects, and the expectations that are missed without them."""


@pytest.fixture(scope="module")
def player(spark: SparkSession) -> WorkloadPlayer:
    return WorkloadPlayer(spark)


@pytest.fixture(scope="module")
def plays(player: WorkloadPlayer) -> dict[str, Play]:
    return {name: player.play(small(name, load_workload(FILES[name]))) for name in sampled(list(FILES), 4)}


def small(name: str, workload: Workload) -> Workload:
    return scaled(workload, SCALES.get(name, 0.02), where=name)


def apis_of(play: Play) -> set[str]:
    """Return the APIs of all requests."""
    return {row["api"] for row in play.events if row["kind"] == "request"}


def test_the_effects_of_every_workload_are_known() -> None:
    assert list(EFFECTS) == list(FILES)


@soak
@pytest.mark.slow
def test_each_workload_meets_its_expectations(subtests: pytest.Subtests, plays: dict[str, Play]) -> None:
    for name, play in plays.items():
        with subtests.test(workload=name):
            assert play.missed == []


@pytest.mark.slow
def test_each_workload_keeps_its_promises_and_exercises_those_that_it_requires(
    subtests: pytest.Subtests, plays: dict[str, Play]
) -> None:
    """The workloads are checked at once; they have no groups and topics in common."""
    end_us = max(row["sent_us"] for play in plays.values() for row in play.events)
    parts = [tagged(name, play, end_us) for name, play in plays.items()]
    rows = pa.Table.from_pylist([row for events, _ in parts for row in events], SCHEMA)
    partitions = {
        f"{name}.{topic}": count for name, play in plays.items() for topic, count in play.workload.topics.items()
    }
    members = [script for _, found in parts for script in found]
    violations, counted = observed(rows, members, partitions=partitions)
    assert [each.what for each in violations] == []
    cases: dict[str, Counter[str]] = {name: Counter() for name in plays}
    for group, counts in counted.items():
        if group is not None:  # requests about several groups
            cases[group.partition("/")[0]].update(counts)
    for name, play in plays.items():
        with subtests.test(workload=name):
            assert play.workload.promises.require
            assert [promise for promise in play.workload.promises.require if not cases[name][promise]] == []
            assert [promise for promise in unmet_preconditions(play.workload) if cases[name][promise]] == []


def due(events: Iterable[Any], kinds: Iterable[str]) -> list[int]:
    """Return when the requests of loads were due, in microseconds from the first one on."""
    times = sorted(each for source, api, each in events if source == "load" and api in kinds)
    return [each - times[0] for each in times]


WITH_RATES = ["failover-under-load", "fetch-offsets-batched", "fetch-offsets-single"]


@pytest.mark.parametrize("name", WITH_RATES)
def test_the_requests_of_a_load_are_due_at_the_same_times_over_tcp(name: str, player: WorkloadPlayer) -> None:
    play = player.play(small(name, load_workload(FILES[name])))
    workload = play.workload
    (load,) = workload.load
    groups = groups_of(load, play.scripts)
    with FakeCluster(workload.cluster.brokers, dict(workload.topics), clock=Scaled(20)) as cluster:
        over = LoopPlayer().play(cluster.bootstrap_servers, settings=LoopSettings(speed=20), loads=[(load, groups)])
    requests = ((row["source"], row["api"], row["scheduled_us"]) for row in play.events if row["kind"] == "request")
    sent = ((each.source, each.api, each.scheduled_us) for each in over.events if each.kind == "request")
    in_memory, over_tcp = due(requests, ["OffsetFetch"]), due(sent, ["OffsetFetch"])
    assert len(in_memory) == len(over_tcp) > 0
    assert load.rate_per_s is not None
    assert load.for_s is not None
    assert len(in_memory) == round(load.rate_per_s * load.for_s)
    assert all(abs(one - other) <= 1 for one, other in zip(in_memory, over_tcp, strict=True))  # They are rounded.


@soak_only("other tests compare the numbers of smaller replays")
@pytest.mark.slow
def test_a_scaled_replay_has_the_numbers_of_its_events(
    plays: dict[str, Play], replays_on_spark: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command plays the workload as the other tests do; its numbers, by Spark, are those in plain Python."""
    name, run = "failover-under-load", tmp_path / "run"
    options = ReplayOptions(file=FILES[name], transport="memory", scale=0.02, seed=SEED, out=run)
    assert replay(options) == PASSED
    printed = capsys.readouterr().out
    assert f"Workload {FILES[name]}, scale 0.02, seed {SEED}, " in printed
    assert "The workload was scaled to 0.02 (--scale)." in printed
    assert "scaled to 0.02" in (run / "report.html").read_text()
    summary, play = read_summary(run), plays[name]
    assert (summary.head.scale, summary.head.members) == (0.02, len(play.scripts))
    assert summary.head.workload["groups"][0]["count"] == play.workload.groups[0].count
    assert sum(row["count"] for row in play.events if row["kind"] == "request") == summary.numbers.total.requests
    plain = plain_numbers(play.events, play.scripts, play.workload.offsets_partitions, play.workload.topics)
    assert plain.metrics == summary.numbers.metrics
    assert sorted(map(repr, plain.apis)) == sorted(map(repr, summary.numbers.apis))
    assert sorted(map(repr, plain.subtotals)) == sorted(map(repr, summary.numbers.subtotals))
    assert sorted(map(repr, plain.lookups)) == sorted(map(repr, summary.numbers.lookups))


@soak
@pytest.mark.slow
def test_without_its_effect_a_workload_misses_an_expectation(
    subtests: pytest.Subtests, player: WorkloadPlayer, plays: dict[str, Play]
) -> None:
    for name in sampled(list(plays), 2):
        for effect in EFFECTS[name]:
            with subtests.test(workload=name, removed=effect.removed):
                workload = small(name, effect.removal(load_workload(FILES[name])))
                play = player.play(workload)
                assert len(play.missed) == len(effect.missed)
                for expectation, beginning in zip(play.missed, effect.missed, strict=True):
                    assert expectation.startswith(beginning)
                if effect.apis:
                    assert apis_of(play) - apis_of(plays[name]) == effect.apis
