"""Replays in memory: what they record, that the fast way is the slow one, and that TCP gives the same."""

import dataclasses
import time
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st
from pyspark.sql import SparkSession

from fakebroker.coordinator.runtime.placement import partition_for
from fakebroker.errors import ErrorCode
from fakebroker.replay.members.bootstrap import addresses
from fakebroker.replay.members.event_recorder import EventRecorder
from fakebroker.replay.members.member_loop import LoopSettings, MemberLoop
from fakebroker.replay.script import script as scripts_schema
from fakebroker.replay.script.script import Act, Script
from fakebroker.replay.simulation.scheduler import START_MS
from fakebroker.replay.simulation.simulation import Simulation
from fakebroker.replay.spark.simulation_tasks import no_outcomes, simulate
from fakebroker.replay.spark.tcp_tasks import TaskPlan
from fakebroker.replay.workload.loads import Load
from fakebroker.replay.workload.timeline import OVER
from fakebroker.replay.workload.workload import Cluster
from fakebroker.server.clock import Scaled
from fakebroker.server.fake_cluster import FakeCluster
from tests.support.replay.simulated_replays import Row, of, played, script, world

LEAVE = Act(20_000.0, "leave")
AT_BROKER_1 = [name for name in map("g{}".format, range(500)) if partition_for(name, 50) == 0][:2]
"""Groups of offsets partition 0, which is first led by broker 1."""

PAIR = [
    script("g", 0, Act(0.0, "start"), LEAVE),
    script("g", 1, Act(3_000.0, "start"), LEAVE._replace(at_ms=21_000.0)),
]


def test_members_join_share_commit_and_leave() -> None:
    _, rows = played(PAIR, world())
    assert {row["error"] for row in rows if row["kind"] == "request"} == {
        ErrorCode.NONE,
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.MEMBER_ID_REQUIRED,
    }
    assert not any(row["lost"] for row in rows)
    shared = [row["assigned"] for row in of(rows, "SyncGroup") if row["generation"] == 2]
    assert sorted(map(str, shared)) == ["['orders-0', 'orders-1']", "['orders-2', 'orders-3']"]
    assert [row["members"] for row in of(rows, "JoinGroup") if row["generation"] == 2 and row["members"]] == [2]
    assert of(rows, "OffsetCommit", "g-0")[-1]["offsets"]
    assert [row["error"] for row in of(rows, "LeaveGroup")] == [0, 0]
    assert {row["latency_us"] for row in of(rows, "Heartbeat")} == {500}


def test_positions_move_on_at_the_rate_and_are_found_again() -> None:
    _, rows = played(PAIR, world())
    first, second = of(rows, "OffsetCommit", "g-0")[:2]
    gone_ms = (second["sent_us"] - first["sent_us"]) / 1000
    before, after = map(_offsets, (first, second))
    assert [round((after[name] - before[name]) - gone_ms / 10) for name in before] == [0] * 4
    handed_over = _offsets(of(rows, "OffsetFetch", "g-1")[0])
    committed = [_offsets(row) for row in of(rows, "OffsetCommit", "g-0") if row["generation"] == 1][-1]
    assert handed_over == {name: committed[name] for name in handed_over}


def _offsets(row: Row) -> dict[str, int]:
    return {each["partition"]: each["offset"] for each in row["offsets"]}


def test_a_crashed_member_is_expired_and_the_other_takes_over() -> None:
    _, rows = played([PAIR[0], script("g", 1, Act(3_000.0, "start"), Act(9_000.0, "crash"))], world())
    (crash,) = of(rows, "crash")
    assert crash["kind"] == "act"
    last = [row for row in of(rows, "SyncGroup", "g-0") if row["generation"] == 3]
    assert len(last[0]["assigned"]) == 4
    assert 5_000_000 < last[0]["sent_us"] - crash["sent_us"] < 7_500_000


def test_a_zombie_is_told_so_and_joins_again() -> None:
    zombie = script("g", 1, Act(3_000.0, "start"), Act(6_000.0, "zombie", 3_000.0), Act(26_000.0, "leave"))
    _, rows = played([PAIR[0], zombie], world())
    refused = [row for row in of(rows, "Heartbeat", "g-1") if row["error"] == ErrorCode.UNKNOWN_MEMBER_ID]
    assert len(refused) >= 3
    assert ErrorCode.UNKNOWN_MEMBER_ID in {row["error"] for row in of(rows, "OffsetCommit", "g-1")}
    assert of(rows, "SyncGroup", "g-1")[-1]["sent_us"] > refused[-1]["sent_us"]


@pytest.mark.parametrize(
    ("event", "brokers"),
    [
        ({"do": "stop_broker", "node_id": 1}, {1, 2}),
        ({"do": "stop_broker", "node_id": 1, "load_ms": 400}, {1, 2}),
        ({"do": "move_offsets_partition", "partition": 0, "to": 2, "stale_ms": 300}, {1, 2}),
        ({"do": "restart_broker", "node_id": 1}, {1, 2}),
        ({"do": "fail", "api": "Heartbeat", "error": "NOT_COORDINATOR", "times": 2}, {1}),
        ({"do": "fail", "api": "Heartbeat", "drop": True, "times": 1}, {1}),
        ({"do": "fail", "api": "OffsetCommit", "delay_s": 1.5, "times": 3}, {1}),
    ],
)
def test_members_get_over_what_happens_to_the_cluster(event: dict[str, Any], brokers: set[int]) -> None:
    groups = AT_BROKER_1
    members = [
        script(group, number, Act(100.0 * number, "start"), LEAVE._replace(at_ms=20_000.0 + number))
        for group in groups
        for number in range(3)
    ]
    where = world(events=({"at_s": 10, **event},), topics={"orders": 6})
    results = [played(members, where, is_fast=is_fast)[1] for is_fast in (True, False)]
    assert results[0] == results[1]
    rows = results[0]
    assert {row["broker"] for row in of(rows, "Heartbeat")} == brokers
    for group in groups:
        assert [row["error"] for row in of(rows, "LeaveGroup") if row["group"] == group] == [0, 0, 0]
        assert all(
            row["latency_us"] is not None for row in rows if row["group"] == group and row["api"] == "LeaveGroup"
        )


def test_offsets_survive_a_move_of_their_coordinator() -> None:
    alone = script(AT_BROKER_1[0], 0, Act(0.0, "start"), Act(8_000.0, "leave"), Act(12_000.0, "start"), LEAVE)
    _, rows = played([alone], world(events=({"at_s": 10, "do": "stop_broker", "node_id": 1},)))
    last = of([row for row in rows if row["sent_us"] < (START_MS + 10_000) * 1000], "OffsetCommit")[-1]
    found = of(rows, "OffsetFetch")[-1]
    assert (last["broker"], found["broker"]) == (1, 2)
    assert found["offsets"] == last["offsets"]


@pytest.mark.parametrize("as_version", ["0.10.2", "2.8", "3.9", None])
def test_brokers_of_any_release_are_spoken_to_in_their_versions(as_version: str | None) -> None:
    members = [
        script(group, number, Act(500.0 * number, "start"), LEAVE) for group in ("one", "two") for number in (0, 1)
    ]
    where = world(cluster=Cluster(brokers=2, as_version=as_version))
    rows, slow = (played(members, where, is_fast=is_fast)[1] for is_fast in (True, False))
    assert rows == slow
    versions = {row["version"] for row in of(rows, "JoinGroup")}
    assert versions == {{"0.10.2": 1, "2.8": 7, "3.9": 9}.get(as_version or "", 9)}
    assert {row["lookups"] for row in of(rows, "FindCoordinator")} == ({1} if as_version in ("0.10.2", "2.8") else {2})
    assert {row["error"] for row in rows} <= {None, 0, 27, 79}


def test_a_static_member_comes_back_without_a_rebalance() -> None:
    back = script("g", 1, Act(1_000.0, "start"), Act(8_000.0, "leave"), Act(10_000.0, "start"), LEAVE, instance_id="i")
    _, rows = played([PAIR[0], back], world())
    assert not of(rows, "LeaveGroup", "g-1")
    generations = [row["generation"] for row in of(rows, "SyncGroup")]
    assert max(generations) == generations.count(1) + 1 == 2


def test_folded_heartbeats_are_as_many_and_as_long() -> None:
    single, folded = (played(PAIR, world(folds=folds))[1] for folds in (False, True))
    assert sum(row["count"] for row in folded) == len(single)
    beats = of(folded, "Heartbeat", "g-1")
    assert len(beats) < 4
    assert beats[0]["until_us"] == [row for row in of(single, "Heartbeat", "g-1") if row["error"] == 0][-1]["sent_us"]
    assert [row for row in folded if row["api"] != "Heartbeat"] == [row for row in single if row["api"] != "Heartbeat"]


def test_loads_are_simulated_too() -> None:
    load = Load(kind="describe-groups", batch=2, at_s=5.0)
    members = [script(group, 0, Act(0.0, "start"), LEAVE) for group in ("one", "two", "three")]
    _, rows = played(members, world(loads=(load,)))
    described = of(rows, "DescribeGroups")
    assert [row["error"] for row in described] == [0] * len(described)
    assert described
    assert all(row["member"] is None for row in described)


def test_a_load_goes_on_past_a_broker_that_nobody_knows_of_any_more() -> None:
    """The members' look-ups have found it missing while the load still has questions for it."""
    load = Load(kind="fetch-offsets", rate_per_s=500, at_s=3.0, for_s=10.0)  # 10/s in each of 50 offsets partitions
    groups = [name for name in map("g{}".format, range(500)) if partition_for(name, 50) == 0][:4]
    members = [script(group, 0, Act(0.0, "start"), LEAVE, heartbeat_interval_ms=300) for group in groups]
    stop = {"at_s": 5, "do": "stop_broker", "node_id": 1}
    _, rows = played(members, world(loads=(load,), events=(stop,)))
    asked = [row for row in of(rows, "OffsetFetch") if row["member"] is None]
    assert {(row["broker"], row["lost"]) for row in asked} == {(1, False), (1, True), (2, False)}
    assert {row["version"] for row in asked if row["lost"]} == {-1}
    assert all((row["until_us"] is not None) is row["lost"] for row in asked)
    assert 90 <= len(asked) <= 110


def test_look_ups_that_find_nobody_to_ask_are_told() -> None:
    stops = [{"at_s": 6, "do": "stop_broker", "node_id": node} for node in (1, 2)]
    start = {"at_s": 10, "do": "start_broker", "node_id": 2}
    _, rows = played(PAIR, world(events=(*stops, start)))
    unasked = [row for row in of(rows, "FindCoordinator") if row["lost"]]
    assert {(row["broker"], row["version"]) for row in unasked} == {(-1, -1)}
    assert [row["until_us"] for row in unasked] == [row["sent_us"] for row in unasked]
    assert 6_000_000 < unasked[-1]["sent_us"] - rows[0]["sent_us"] < 10_200_000
    assert [row["error"] for row in of(rows, "LeaveGroup")] == [0, 0]


def test_an_answer_that_is_still_owed_at_the_end_is_told() -> None:
    where = world(duration_s=2.0, events=({"at_s": 0, "do": "fail", "api": "Heartbeat", "silent": True},))
    _, rows = played([script("g", 0, session_timeout_ms=20_000)], where)
    (owed,) = [row for row in rows if row["kind"] == "request" and row["latency_us"] is None]
    assert (owed["api"], owed["lost"], owed["error"]) == ("Heartbeat", False, None)


# The fast way is the slow way


def _deeds() -> st.SearchStrategy[tuple[Act, ...]]:
    at = st.integers(0, 80).map(lambda quarter: quarter * 250.0)
    lasting = st.builds(
        Act, at, st.sampled_from(["pause", "slow", "zombie"]), st.sampled_from([500.0, 3_000.0, 9_000.0])
    )
    deed = st.one_of(lasting, st.builds(Act, at, st.sampled_from(["leave", "crash", "start"])))
    return st.lists(deed, max_size=4).map(lambda acts: (Act(0.0, "start"), *sorted(acts)))


def _members() -> st.SearchStrategy[list[Script]]:
    def made(number: int, acts: tuple[Act, ...], beat: int, commit: int, static: bool) -> Script:
        return script(
            AT_BROKER_1[number % 2],
            number,
            *acts,
            heartbeat_interval_ms=beat,
            commit_interval_ms=commit,
            instance_id=f"i{number}" if static else None,
            assignor="cooperative-sticky" if number % 2 else "range",
        )

    def all_of(parts: list[tuple[Any, ...]]) -> list[Script]:
        return [made(number, *part) for number, part in enumerate(parts)]

    intervals = st.sampled_from([250, 1_000, 1_700, 5_999])
    part = st.tuples(_deeds(), intervals, st.sampled_from([0, 1_000, 2_500]), st.booleans())
    return st.lists(part, min_size=1, max_size=5).map(all_of)


_HAPPENINGS: list[dict[str, Any]] = [
    {"do": "restart_broker", "node_id": 1},
    {"do": "rolling_restart", "load_ms": 300},
    {"do": "move_offsets_partition", "partition": 0, "to": 2},
    {"do": "fail", "api": "Heartbeat", "error": "REBALANCE_IN_PROGRESS", "times": 1},
    {"do": "fail", "api": None, "delay_s": 0.1, "times": 5},
    {"do": "clear_faults"},
    {"do": "delete_topic", "name": "orders"},
]
_EVENTS: st.SearchStrategy[tuple[dict[str, Any], ...]] = st.lists(
    st.tuples(
        st.integers(0, 80).map(lambda quarter: quarter / 4),
        st.sampled_from(_HAPPENINGS),
    ),
    max_size=2,
).map(lambda events: tuple({"at_s": at_s, **event} for at_s, event in sorted(events, key=lambda pair: pair[0])))


def _end_state(simulation: Simulation) -> list[Any]:
    groups = [
        (group.group_id, group.state, group.generation_id, group.earliest_deadline(), list(group.offsets))
        for broker in simulation.virtual_cluster.cluster.brokers.values()
        for group in broker.coordinator.groups()
    ]
    members = [
        (each.member.state, each.member.identity, each.next_deadline(), each.member.positions)
        for each in (driver.member for driver in simulation.drivers)
    ]
    return [groups, members]


@settings(max_examples=60, deadline=None)
@given(_members(), _EVENTS, st.booleans())
def test_counting_heartbeats_is_playing_them(
    members: list[Script], events: tuple[dict[str, Any], ...], folds: bool
) -> None:
    where = world(duration_s=14.0, events=events, folds=folds)
    fast, slow = (played(members, where, is_fast=is_fast) for is_fast in (True, False))
    assert fast[1] == slow[1]
    assert _end_state(fast[0]) == _end_state(slow[0])


def test_a_commit_as_the_replay_ends_is_not_answered_any_more_in_either_way() -> None:
    acts = Act(0.0, "start"), Act(1_000.0, "pause", 3_000.0)  # So that its commits are due at full seconds.
    member = script("g", 0, *acts, heartbeat_interval_ms=250, commit_interval_ms=1_000)
    fast, slow = (played([member], world(duration_s=14.0), is_fast=is_fast)[1] for is_fast in (True, False))
    assert fast == slow
    assert [row["latency_us"] for row in of(fast, "OffsetCommit")][-1] is None


# Over TCP


def _over_tcp(members: list[Script], speed: float) -> list[Row]:
    recorder = EventRecorder()
    with FakeCluster(brokers=2, topics={"orders": 4}, clock=Scaled(speed)) as cluster:
        manner = LoopSettings(speed=speed, duration_s=30.0)
        brokers = addresses(cluster.bootstrap_servers)
        swarm = MemberLoop(members, brokers, recorder.add, lambda tally: None, manner)
        swarm.connect()
        swarm.play(time.time())
    rows = [row for batch in recorder.take() for row in batch.to_pylist()]
    return sorted(rows, key=lambda row: int(row["sent_us"]))


def _told(rows: list[Row], group: str) -> list[Any]:
    """What the members of a group went through: their rounds, and everybody's errors in order."""
    here = [row for row in rows if row["group"] == group and row["kind"] == "request"]
    names = {row["member_id"]: row["member"] for row in here if row["member_id"]}
    synced = [row for row in of(here, "SyncGroup") if row["error"] == 0]
    rounds = sorted((row["generation"], row["member"], tuple(row["assigned"])) for row in synced)
    joined = [row for row in of(here, "JoinGroup") if row["members"]]
    led = sorted((row["generation"], names[row["leader"]], row["members"]) for row in joined)
    members = sorted({row["member"] for row in here if row["member"]})
    failed = [row for row in here if row["error"]]
    errors = [(name, row["api"], row["error"]) for name in members for row in failed if row["member"] == name]
    return [rounds, led, errors]


@pytest.mark.slow
def test_groups_go_through_the_same_over_tcp() -> None:
    members = [
        # Between the two leaves the second member has to rejoin: 4 s are 800 ms of real time.
        script("g", 0, Act(0.0, "start"), LEAVE),
        script("g", 1, Act(3_000.0, "start"), LEAVE._replace(at_ms=24_000.0)),
        script("crash", 0, Act(0.0, "start"), LEAVE),
        script("crash", 1, Act(3_000.0, "start"), Act(6_000.0, "crash")),
        script("static", 0, Act(0.0, "start"), LEAVE),
        script("static", 1, Act(3_000.0, "start"), Act(7_000.0, "leave"), Act(9_000.0, "start"), LEAVE)._replace(
            instance_id="i"
        ),
        script("zombie", 0, Act(0.0, "start"), Act(25_000.0, "leave")),
        script("zombie", 1, Act(3_000.0, "start"), Act(6_000.0, "zombie", 3_000.0), Act(22_000.0, "leave")),
        script("slow", 0, Act(0.0, "start"), Act(24_000.0, "leave")),
        script("slow", 1, Act(3_000.0, "start"), Act(6_000.0, "slow", 12_000.0), Act(22_000.0, "leave")),
    ]
    _, in_memory = played(members, world())
    over_tcp = _over_tcp(members, speed=5.0)
    for group in dict.fromkeys(member.group for member in members):
        assert _told(over_tcp, group) == _told(in_memory, group), group


# In Spark


def _plan(**changes: Any) -> TaskPlan:
    plan = TaskPlan(
        bootstrap="",
        report_to=("127.0.0.1", 9),
        seed=7,
        duration_s=20.0,
        cluster=Cluster(brokers=2),
        topics={"orders": 4},
        events=({"at_s": 9, "do": "restart_broker", "node_id": 2},),
    )
    return dataclasses.replace(plan, **changes)


@pytest.mark.slow
def test_the_events_are_the_same_for_any_number_of_tasks(spark: SparkSession) -> None:
    members = [
        script(f"group-{group}", number, Act(37.0 * group + number, "start"), Act(18_000.0 + group, "leave"))
        for group in range(12)
        for number in range(3)
    ]
    frame = spark.createDataFrame(members, scripts_schema.DDL)
    events = (
        {"at_s": 9, "do": "restart_broker", "node_id": 2},
        {"at_s": 9, "do": "force_rebalance", "group_id": "group-1"},
        {"at_s": 9, "do": "evict", "group_id": "group-2", "member": "x"},
        {"at_s": 18.005, "do": "clear_faults"},
        {"at_s": 19.9, "do": "clear_faults"},
    )
    tables, told = [], []
    for tasks in (1, 2, 5):
        outcomes = no_outcomes(spark)
        rows = simulate(frame, _plan(events=events), tasks, outcomes).collect()
        tables.append(sorted(map(repr, rows)))
        told.append(sorted(outcomes.value.items()))
    assert tables[0] == tables[1] == tables[2]
    assert len(tables[0]) > 1_000
    assert told[0] == told[1] == told[2]
    refusal = told[0][2][1]
    assert told[0] == [(0, None), (1, None), (2, refusal), (3, None), (4, OVER)]
    assert str(refusal).startswith("group 'group-2': member='x'")


def test_another_seed_gives_other_ids() -> None:
    ids = [{row["member_id"] for row in played(PAIR, world(seed=seed))[1]} for seed in (1, 2)]
    assert ids[0].isdisjoint(ids[1] - {None})
