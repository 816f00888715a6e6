"""Simulations: the recorded events, fast-forwarded heartbeats, and a comparison with a replay over TCP."""

from hashlib import sha256
from itertools import count, pairwise, product, takewhile
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings as hypothesis_settings, strategies as st
from pyspark.sql import SparkSession

from fakebroker.cluster.inspect.views import batches_of
from fakebroker.coordinator.partitions import partition_for
from fakebroker.errors import ErrorCode
from fakebroker.replay.members.event_recorder import EventRecorder
from fakebroker.replay.members.member_loop import LoopSettings
from fakebroker.replay.options import GroupProtocol
from fakebroker.replay.script import script as scripts_schema
from fakebroker.replay.script.script import Act, Action, Script
from fakebroker.replay.simulation.scheduler import START_MS
from fakebroker.replay.simulation.simulation import Simulation
from fakebroker.replay.spark.simulation_tasks import no_outcomes, simulate
from fakebroker.replay.spark.tcp_tasks import TaskPlan
from fakebroker.replay.workload.loads import Load, LoadKind
from fakebroker.replay.workload.timeline import OVER
from fakebroker.replay.workload.workload import Cluster
from fakebroker.server.clock import Scaled
from fakebroker.server.fake_cluster import FakeCluster
from tests.support.replay.loop_player import LoopPlayer
from tests.support.replay.simulated_replays import Row, play_in_memory, rows_of, script, two_broker_settings
from tests.support.soak import examples, soak

LEAVE = Act(20_000.0, "leave")
SHORT_SESSIONS = Cluster(
    brokers=2, config={"group.consumer.session.timeout.ms": 6_000, "group.consumer.heartbeat.interval.ms": 1_000}
)
"""Members of the consumer protocol have the same session timeout and heartbeat interval as others."""

AT_BROKER_1 = [name for name in map("g{}".format, range(500)) if partition_for(name, 50) == 0][:2]
"""Two groups in offsets partition 0, which broker 1 leads at first."""

PAIR = [
    script("g", 0, Act(0.0, "start"), LEAVE),
    script("g", 1, Act(3_000.0, "start"), LEAVE._replace(at_ms=21_000.0)),
]


def test_members_join_commit_and_leave() -> None:
    _, rows = play_in_memory(PAIR, two_broker_settings())
    assert {row["error"] for row in rows if row["kind"] == "request"} == {
        ErrorCode.NONE,
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.MEMBER_ID_REQUIRED,
    }
    assert not any(row["missing"] for row in rows)
    assigned = [row["assigned"] for row in rows_of(rows, "SyncGroup") if row["generation"] == 2]
    assert sorted(map(str, assigned)) == ["['orders-0', 'orders-1']", "['orders-2', 'orders-3']"]
    assert [row["members"] for row in rows_of(rows, "JoinGroup") if row["generation"] == 2 and row["members"]] == [2]
    assert rows_of(rows, "OffsetCommit", "g-0")[-1]["offsets"]
    assert [row["error"] for row in rows_of(rows, "LeaveGroup")] == [0, 0]
    assert {row["latency_us"] for row in rows_of(rows, "Heartbeat")} == {500}


def test_committed_positions_advance_at_the_rate_and_are_fetched_by_the_next_owner() -> None:
    _, rows = play_in_memory(PAIR, two_broker_settings())
    first, second = rows_of(rows, "OffsetCommit", "g-0")[:2]
    elapsed_ms = (second["sent_us"] - first["sent_us"]) / 1000
    before, after = map(_offsets, (first, second))
    assert [round((after[name] - before[name]) - elapsed_ms / 10) for name in before] == [0] * 4
    fetched = _offsets(rows_of(rows, "OffsetFetch", "g-1")[0])
    committed = [_offsets(row) for row in rows_of(rows, "OffsetCommit", "g-0") if row["generation"] == 1][-1]
    assert fetched == {name: committed[name] for name in fetched}


def _offsets(row: Row) -> dict[str, int]:
    return {each["partition"]: each["offset"] for each in row["offsets"]}


def test_partitions_of_a_crashed_member_move_when_its_session_expires() -> None:
    _, rows = play_in_memory(
        [PAIR[0], script("g", 1, Act(3_000.0, "start"), Act(9_000.0, "crash"))], two_broker_settings()
    )
    (crash,) = rows_of(rows, "crash")
    assert crash["kind"] == "act"
    last = [row for row in rows_of(rows, "SyncGroup", "g-0") if row["generation"] == 3]
    assert len(last[0]["assigned"]) == 4
    assert 5_000_000 < last[0]["sent_us"] - crash["sent_us"] < 7_500_000


def test_a_zombie_gets_unknown_member_id_and_rejoins() -> None:
    zombie = script("g", 1, Act(3_000.0, "start"), Act(6_000.0, "zombie", 3_000.0), Act(26_000.0, "leave"))
    _, rows = play_in_memory([PAIR[0], zombie], two_broker_settings())
    refused = [row for row in rows_of(rows, "Heartbeat", "g-1") if row["error"] == ErrorCode.UNKNOWN_MEMBER_ID]
    assert len(refused) >= 3
    assert ErrorCode.UNKNOWN_MEMBER_ID in {row["error"] for row in rows_of(rows, "OffsetCommit", "g-1")}
    assert rows_of(rows, "SyncGroup", "g-1")[-1]["sent_us"] > refused[-1]["sent_us"]


def test_members_recover_from_events(subtests: pytest.Subtests) -> None:
    members = [
        script(group, number, Act(100.0 * number, "start"), LEAVE._replace(at_ms=20_000.0 + number))
        for group in AT_BROKER_1
        for number in range(3)
    ]
    cases: list[tuple[dict[str, Any], set[int]]] = [
        # The event, and the brokers that get heartbeats.
        ({"do": "broker.stop", "node_id": 1}, {1, 2}),
        ({"do": "broker.stop", "node_id": 1, "load_ms": 400}, {1, 2}),
        (
            {"do": "partition.move_leader", "topic": "__consumer_offsets", "partition": 0, "to": 2, "stale_ms": 300},
            {1, 2},
        ),
        ({"do": "broker.restart", "node_id": 1}, {1, 2}),
        ({"do": "inject_fault", "api": "Heartbeat", "error": "NOT_COORDINATOR", "times": 2}, {1}),
        ({"do": "inject_fault", "api": "Heartbeat", "drop": True, "times": 1}, {1}),
        ({"do": "inject_fault", "api": "OffsetCommit", "delay_s": 1.5, "times": 3}, {1}),
        ({"do": "inject_fault", "api": "OffsetCommit", "nth": 3, "then": {"do": "broker.stop", "node_id": 1}}, {1, 2}),
        (
            {"do": "inject_fault", "api": "Heartbeat", "times": 1, "before": {"do": "broker.restart", "node_id": 1}},
            {1, 2},
        ),
        ({"do": "inject_fault", "api": "Heartbeat", "delay_before_s": 2.5, "times": 2}, {1}),
        ({"do": "group.fail_append", "group_id": AT_BROKER_1[0], "times": 3}, {1}),
    ]
    for event, brokers in cases:
        with subtests.test(event=event):
            settings = two_broker_settings(events=({"at_s": 10, **event},), topics={"orders": 6})
            rows, slow = (play_in_memory(members, settings, is_fast=is_fast)[1] for is_fast in (True, False))
            assert rows == slow
            assert {row["broker"] for row in rows_of(rows, "Heartbeat")} == brokers
            for group in AT_BROKER_1:
                leaves = [row for row in rows_of(rows, "LeaveGroup") if row["group"] == group]
                assert [row["error"] for row in leaves] == [0, 0, 0]
                assert all(row["latency_us"] is not None for row in leaves)


def test_an_interrupted_simulation_has_no_failed_requests() -> None:
    members = [script(f"g{group}", number) for group in range(20) for number in range(3)]
    simulation = Simulation(members, 0, two_broker_settings(60.0), is_fast=False)
    parts = simulation.run()
    for _ in range(3):
        next(parts)
    rows = [row for batch in simulation.recorder.take(flush=True) for row in batch.to_pylist()]
    assert len(rows) > 100
    assert simulation.tally().errors == 0
    assert not any(row["missing"] for row in rows)


def test_a_late_heartbeat_expires_a_session() -> None:
    fault = {"at_s": 10, "do": "inject_fault", "api": "Heartbeat", "client_id": "g-1", "delay_before_s": 7, "times": 1}
    _, rows = play_in_memory(PAIR, two_broker_settings(events=(fault,)))
    late, after = [row for row in rows_of(rows, "Heartbeat", "g-1") if row["missing"] or row["error"] == 25]
    assert late["missing"] == "unanswered", "the member closes the connection when its session is over"
    assert after["error"] == ErrorCode.UNKNOWN_MEMBER_ID
    rebalance = next(
        row for row in rows_of(rows, "Heartbeat", "g-0") if row["sent_us"] > late["sent_us"] and row["error"]
    )
    assert 5_000_000 <= rebalance["sent_us"] - late["sent_us"] <= 6_000_000


def test_the_log_refuses_commits() -> None:
    event = {"at_s": 10, "do": "group.fail_append", "group_id": AT_BROKER_1[0], "times": 2}
    members = [script(AT_BROKER_1[0], 0, Act(0.0, "start"), LEAVE), script(AT_BROKER_1[1], 0, Act(0.0, "start"), LEAVE)]
    _, rows = play_in_memory(members, two_broker_settings(events=(event,)))
    refused = [row for row in rows_of(rows, "OffsetCommit") if row["error"] == ErrorCode.COORDINATOR_NOT_AVAILABLE]
    assert len(refused) == 2, "of any groups in the partition"


def test_an_action_that_fails_is_the_outcome_of_its_event() -> None:
    then = [{"do": "broker.start", "node_id": 1}, {"do": "brokers.elect_preferred"}]
    event = {"at_s": 10, "do": "inject_fault", "api": "OffsetCommit", "times": 1, "then": then}
    simulation, _ = play_in_memory(PAIR, two_broker_settings(events=(event,)))
    error = simulation.outcomes[0] or ""
    assert error.startswith("an action of the fault failed: broker.start(node_id=1) at <OffsetCommit v")
    assert "node_id=1: expected a broker that is down" in error


def test_an_event_produces_records() -> None:
    event = {"at_s": 10, "do": "topic.produce", "topic": "orders", "values": ["a", {"base64": "/w=="}], "key": "k"}
    simulation, _ = play_in_memory(PAIR, two_broker_settings(events=(event,)))
    assert simulation.outcomes[0] is None
    cluster = simulation.virtual_cluster.cluster
    records = [record for batch in batches_of(cluster, "orders") for record in batch.records()]
    assert [(each.key, each.value) for each in records] == [(b"k", b"a"), (b"k", b"\xff")]


def test_faults_drop_and_throttle_connections() -> None:
    member = script("g", 0, Act(0.0, "start"), LEAVE)

    def play_with(**fault: Any) -> list[Row]:
        event = {"at_s": 10, "do": "inject_fault", "api": "Heartbeat", "times": 1, **fault}
        return play_in_memory([member], two_broker_settings(events=(event,)))[1]

    dropped = play_with(drop=True)
    (lost,) = [row for row in dropped if row["missing"]]
    assert (lost["api"], lost["until_us"] - lost["sent_us"]) == ("Heartbeat", 500)
    assert next(row["api"] for row in dropped if row["sent_us"] > lost["until_us"]) == "FindCoordinator"

    throttled = play_with(throttle_time_ms=3_500)
    # The commit is sent 1 ms after the heartbeat, and waits until the connection is no longer muted.
    assert max(row["latency_us"] for row in rows_of(throttled, "OffsetCommit")) == 3_499_500
    assert not any(row["missing"] for row in throttled)


def test_committed_offsets_survive_a_failover() -> None:
    alone = script(AT_BROKER_1[0], 0, Act(0.0, "start"), Act(8_000.0, "leave"), Act(12_000.0, "start"), LEAVE)
    _, rows = play_in_memory([alone], two_broker_settings(events=({"at_s": 10, "do": "broker.stop", "node_id": 1},)))
    last = rows_of([row for row in rows if row["sent_us"] < (START_MS + 10_000) * 1000], "OffsetCommit")[-1]
    found = rows_of(rows, "OffsetFetch")[-1]
    assert (last["broker"], found["broker"]) == (1, 2)
    assert found["offsets"] == last["offsets"]


def test_older_brokers_are_sent_the_versions_that_they_support(subtests: pytest.Subtests) -> None:
    members = [
        script(group, number, Act(500.0 * number, "start"), LEAVE) for group in ("one", "two") for number in (0, 1)
    ]
    # The release, the version of JoinGroup, and the groups in a FindCoordinator.
    for as_version, join_version, lookups in (("0.10.2", 1, 1), ("2.8", 7, 1), ("3.9", 9, 2), (None, 9, 2)):
        with subtests.test(as_version=as_version):
            settings = two_broker_settings(cluster=Cluster(brokers=2, as_version=as_version))
            rows, slow = (play_in_memory(members, settings, is_fast=is_fast)[1] for is_fast in (True, False))
            assert rows == slow
            assert {row["version"] for row in rows_of(rows, "JoinGroup")} == {join_version}
            assert {row["lookups"] for row in rows_of(rows, "FindCoordinator")} == {lookups}
            assert {row["error"] for row in rows} <= {None, 0, 27, 79}


def test_a_static_member_returns_without_a_rebalance() -> None:
    back = script("g", 1, Act(1_000.0, "start"), Act(8_000.0, "leave"), Act(10_000.0, "start"), LEAVE, instance_id="i")
    _, rows = play_in_memory([PAIR[0], back], two_broker_settings())
    assert not rows_of(rows, "LeaveGroup", "g-1")
    generations = [row["generation"] for row in rows_of(rows, "SyncGroup")]
    assert max(generations) == generations.count(1) + 1 == 2


def test_folded_heartbeats_have_the_count_and_times_of_the_single_ones() -> None:
    single, folded = (play_in_memory(PAIR, two_broker_settings(folds=folds))[1] for folds in (False, True))
    assert sum(row["count"] for row in folded) == len(single)
    beats = rows_of(folded, "Heartbeat", "g-1")
    assert len(beats) < 4
    last = [row for row in rows_of(single, "Heartbeat", "g-1") if row["error"] == 0][-1]
    assert beats[0]["until_us"] == last["sent_us"]
    assert [row for row in folded if row["api"] != "Heartbeat"] == [row for row in single if row["api"] != "Heartbeat"]


def test_members_are_added_with_the_messages_of_a_proposal() -> None:
    load = Load(kind="add-members", groups="some", instances=2)
    cluster = Cluster(brokers=2, proposals=("batch-join",))
    members = [script("one", number, Act(5_000.0, "start"), instance_id=f"i{number}") for number in range(2)]
    _, rows = play_in_memory(members, two_broker_settings(cluster=cluster, loads=(load,)))
    added = [row for row in rows if row["source"] == "load" and row["api"] == "JoinGroup"]
    assert [(row["version"], row["error"]) for row in added] == [(10, 0)]


def test_loads_are_simulated() -> None:
    load = Load(kind="describe-groups", batch=2, at_s=5.0)
    members = [script(group, 0, Act(0.0, "start"), LEAVE) for group in ("one", "two", "three")]
    _, rows = play_in_memory(members, two_broker_settings(loads=(load,)))
    described = rows_of(rows, "DescribeGroups")
    assert [row["error"] for row in described] == [0] * len(described)
    assert described
    assert all(row["member"] is None for row in described)


def test_a_load_has_the_rate_of_its_groups_and_a_source_of_its_own() -> None:
    """The partition has 2 of 8 groups, and so 10 of 40 requests per second; the members look up coordinators, too."""
    load = Load(kind="fetch-offsets", rate_per_s=40, at_s=5.0, for_s=10.0)
    members = [script(group, 0, Act(0.0, "start"), LEAVE) for group in ("one", "two")]
    _, rows = play_in_memory(members, two_broker_settings(loads=(load,), groups_by_partition={"some": [2, 6]}))
    fetches = [row for row in rows_of(rows, "OffsetFetch") if row["source"] == "load"]
    assert len(fetches) == 100
    assert {row["member"] is None for row in fetches} == {True}
    lookups = [(row["source"], row["lookups"]) for row in rows_of(rows, "FindCoordinator")]
    assert lookups == [("members", 2), ("load", 2)]
    assert {row["source"] for row in rows if row["member"] is not None} == {"members"}


@pytest.mark.parametrize(
    ("kind", "batch", "rate_per_s", "for_s"),
    [("list-groups", 1, 0.2, 30.0), ("list-groups", 1, 5.0, 40.0), ("fetch-offsets", 2, 5.0, 30.0)],
)
def test_partitions_share_the_requests_of_a_load(kind: LoadKind, batch: int, rate_per_s: float, for_s: float) -> None:
    """Each request of the load is due in one of 50 offsets partitions, at the time at which it would be over TCP."""
    load = Load(kind=kind, batch=batch, rate_per_s=rate_per_s, at_s=5.0, for_s=for_s)
    names: dict[int, list[str]] = {}
    for name in map("g{}".format, range(120)):
        names.setdefault(partition_for(name, 50), []).append(name)
    counts = [len(names.get(partition, ())) for partition in range(50)]
    settings = two_broker_settings(loads=(load,), groups_by_partition={"some": counts}, duration_s=50)
    due: list[float] = []
    for partition, groups in names.items():
        members = [script(group, 0, Act(0.0, "start"), LEAVE) for group in groups]
        _, rows = play_in_memory(members, settings, partition=partition)
        requests = [row for row in rows if row["source"] == "load" and row["kind"] == "request"]
        due += [row["scheduled_us"] - START_MS * 1e3 for row in requests if row["api"] != "FindCoordinator"]
    assert sorted(due) == [5e6 + number * 1e6 / rate_per_s for number in range(int(rate_per_s * for_s))]


def test_requests_of_a_load_to_a_removed_broker_are_lost_and_the_load_continues() -> None:
    """Members' look-ups have removed the broker from the known nodes while the load still has requests for it."""
    load = Load(kind="fetch-offsets", rate_per_s=500, at_s=3.0, for_s=10.0)  # 10/s for 4 of 200 groups
    groups = [name for name in map("g{}".format, range(500)) if partition_for(name, 50) == 0][:4]
    members = [script(group, 0, Act(0.0, "start"), LEAVE, heartbeat_interval_ms=300) for group in groups]
    stop = {"at_s": 5, "do": "broker.stop", "node_id": 1}
    _, rows = play_in_memory(
        members, two_broker_settings(loads=(load,), events=(stop,), groups_by_partition={"some": [4, 196]})
    )
    fetches = [row for row in rows_of(rows, "OffsetFetch") if row["member"] is None]
    assert {(row["broker"], row["missing"]) for row in fetches} == {(1, None), (1, "lost"), (2, None)}
    assert {row["version"] for row in fetches if row["missing"]} == {-1}
    assert all((row["until_us"] is not None) is (row["missing"] == "lost") for row in fetches)
    assert 90 <= len(fetches) <= 110


def test_a_request_of_a_load_without_a_response_times_out_and_the_load_continues() -> None:
    load = Load(kind="describe-groups", at_s=5.0, for_s=40.0)
    fault = {"at_s": 5, "do": "inject_fault", "api": "DescribeGroups", "silent": True, "times": 1}
    members = [script("one", 0, Act(0.0, "start"), Act(48_000.0, "leave"))]
    _, rows = play_in_memory(members, two_broker_settings(50.0, loads=(load,), events=(fault,)))
    lost, *others = rows_of(rows, "DescribeGroups")
    assert (lost["missing"], lost["until_us"] - lost["sent_us"]) == ("unanswered", 30_000_000)
    assert {row["missing"] for row in others} == {None}


def test_a_load_waits_once_after_a_look_up_that_fails_for_all_its_groups() -> None:
    load = Load(kind="describe-groups", batch=4, at_s=5.0)
    fault = {"at_s": 3.5, "do": "inject_fault", "api": "FindCoordinator", "error": 15, "times": 3}
    members = [script(group, 0, Act(0.0, "start"), LEAVE) for group in ("one", "two", "three", "four")]
    _, rows = play_in_memory(members, two_broker_settings(loads=(load,), events=(fault,)))
    look_ups = [row for row in rows_of(rows, "FindCoordinator") if row["source"] == "load"]
    assert [(row["error"], row["lookups"]) for row in look_ups] == [(15, 4)] * 3 + [(0, 4)]
    waits = [later["sent_us"] - earlier["sent_us"] for earlier, later in pairwise(look_ups)]
    assert [round(wait / 1e5) for wait in waits] == [10, 2, 4]  # The first one is a second before the load.


def test_requests_that_add_members_are_about_one_group_each() -> None:
    settings = two_broker_settings(groups_by_partition={"some": [3, 2]})
    simulation = Simulation([script("one", 0)], 1, settings)
    load = Load(kind="add-members", groups="some", instances=2, batch=5, rate_per_s=1.0)
    assert simulation._turns_of(load) == (3, 5, 1)


def test_a_closed_loop_waits_longer_after_each_failure() -> None:
    """While no broker can be reached for 5 s, a load asks again after 0.1, 0.2, 0.4, 0.8, 1 and 1 s."""
    stops = [{"at_s": 6, "do": "broker.stop", "node_id": node} for node in (1, 2)]
    starts = [{"at_s": 11, "do": "broker.start", "node_id": node} for node in (1, 2)]
    load = Load(kind="list-groups", at_s=6.5, for_s=4.0)
    _, rows = play_in_memory(PAIR, two_broker_settings(loads=(load,), events=(*stops, *starts)))
    requests = rows_of(rows, "ListGroups")
    assert {row["missing"] for row in requests} == {"lost"}
    waits = [later["sent_us"] - earlier["sent_us"] for earlier, later in pairwise(requests)]
    assert [round(wait / 1e5) for wait in waits] == [1, 2, 4, 8, 10, 10]


def test_look_ups_without_a_reachable_broker_are_recorded() -> None:
    stops = [{"at_s": 6, "do": "broker.stop", "node_id": node} for node in (1, 2)]
    start = {"at_s": 10, "do": "broker.start", "node_id": 2}
    _, rows = play_in_memory(PAIR, two_broker_settings(events=(*stops, start)))
    unsent = [row for row in rows_of(rows, "FindCoordinator") if row["missing"]]
    assert {(row["broker"], row["version"]) for row in unsent} == {(-1, -1)}
    assert [row["until_us"] for row in unsent] == [row["sent_us"] for row in unsent]
    assert 6_000_000 < unsent[-1]["sent_us"] - rows[0]["sent_us"] < 10_200_000
    assert [row["error"] for row in rows_of(rows, "LeaveGroup")] == [0, 0]


def test_a_pending_request_at_the_end_is_recorded_without_a_response() -> None:
    settings = two_broker_settings(
        duration_s=2.0, events=({"at_s": 0, "do": "inject_fault", "api": "Heartbeat", "silent": True},)
    )
    _, rows = play_in_memory([script("g", 0, session_timeout_ms=20_000)], settings)
    (pending,) = [row for row in rows if row["kind"] == "request" and row["latency_us"] is None]
    assert (pending["api"], pending["missing"], pending["error"]) == ("Heartbeat", "cut off", None)


def test_members_migrate_one_after_the_other(subtests: pytest.Subtests) -> None:
    """Both ways, each member commits, leaves, and continues with the other protocol where the last commits were."""
    apis = {"classic": "Heartbeat", "consumer": "ConsumerGroupHeartbeat"}
    protocols: tuple[GroupProtocol, ...] = ("classic", "consumer")
    for before, after in (protocols, protocols[::-1]):
        with subtests.test(before=before):
            members = [
                script(
                    "g",
                    number,
                    *(
                        Act(0.0, "start"),
                        Act(8_000.0 + 2_000 * number, "migrate"),
                        Act(9_000.0 + 2_000 * number, "start"),
                    ),
                    Act(25_000.0, "leave"),
                    protocol=before,
                )
                for number in range(3)
            ]
            settings = two_broker_settings(cluster=SHORT_SESSIONS)
            rows, slow = (play_in_memory(members, settings, is_fast=is_fast)[1] for is_fast in (True, False))
            assert rows == slow
            moments = {
                protocol: [row["sent_us"] / 1000 - START_MS for row in rows_of(rows, apis[protocol])]
                for protocol in protocols
            }
            assert max(moments[before]) < 12_100
            assert min(moments[after]) > 9_000
            assert max(moments[after]) > 24_000
            committed: dict[str, int] = {}
            for row in rows:
                if row["api"] == "OffsetCommit" and row["error"] == 0:
                    committed |= _offsets(row)
                elif row["api"] == "OffsetFetch" and row["sent_us"] / 1000 - START_MS > 1_000:
                    assert all(offset >= committed[name] for name, offset in _offsets(row).items())
            assert {row["error"] for row in rows if row["sent_us"] / 1000 - START_MS > 16_000} <= {0, None}


# Fast-forwarded heartbeats


def _acts() -> st.SearchStrategy[tuple[Act, ...]]:
    at = st.integers(0, 80).map(lambda quarter: quarter * 250.0)
    lasting = st.builds(
        Act, at, st.sampled_from(["pause", "slow", "zombie"]), st.sampled_from([500.0, 3_000.0, 9_000.0])
    )
    act = st.one_of(lasting, st.builds(Act, at, st.sampled_from(["leave", "crash", "start"])))
    return st.lists(act, max_size=4).map(lambda acts: (Act(0.0, "start"), *sorted(acts)))


def _members() -> st.SearchStrategy[list[Script]]:
    def made(
        number: int, protocols: tuple[GroupProtocol, ...], acts: tuple[Act, ...], beat: int, commit: int, static: bool
    ) -> Script:
        return script(
            AT_BROKER_1[number % 2],
            number,
            *acts,
            heartbeat_interval_ms=beat,
            commit_interval_ms=commit,
            instance_id=f"i{number}" if static else None,
            assignor="cooperative-sticky" if number % 2 else "range",
            protocol=protocols[number % 2],
        )

    def all_of(protocols: tuple[GroupProtocol, ...], parts: list[tuple[Any, ...]]) -> list[Script]:
        return [made(number, protocols, *part) for number, part in enumerate(parts)]

    intervals = st.sampled_from([250, 1_000, 1_700, 5_999])
    part = st.tuples(_acts(), intervals, st.sampled_from([0, 1_000, 2_500]), st.booleans())
    protocol: st.SearchStrategy[GroupProtocol] = st.sampled_from(["classic", "consumer"])
    return st.builds(all_of, st.tuples(protocol, protocol), st.lists(part, min_size=1, max_size=5))


_EVENT_TABLES: list[dict[str, Any]] = [
    {"do": "broker.restart", "node_id": 1},
    {"do": "brokers.rolling_restart", "load_ms": 300},
    {"do": "partition.move_leader", "topic": "__consumer_offsets", "partition": 0, "to": 2},
    {"do": "inject_fault", "api": "Heartbeat", "error": "REBALANCE_IN_PROGRESS", "times": 1},
    {"do": "inject_fault", "api": "ConsumerGroupHeartbeat", "error": "COORDINATOR_LOAD_IN_PROGRESS", "times": 1},
    {"do": "inject_fault", "api": None, "delay_s": 0.1, "times": 5},
    {"do": "inject_fault", "api": "OffsetCommit", "throttle_time_ms": 700, "times": 5},
    {"do": "clear_faults"},
    {"do": "topic.delete", "topic": "orders"},
    # If it fails, its reason has the state of the group, and its committed offsets.
    {"do": "expect", "condition": {"not": {"is": "group.stable", "group_id": AT_BROKER_1[0]}}},
]
_EVENTS: st.SearchStrategy[tuple[dict[str, Any], ...]] = st.lists(
    st.tuples(
        st.integers(0, 80).map(lambda quarter: quarter / 4),
        st.sampled_from(_EVENT_TABLES),
    ),
    max_size=2,
).map(lambda events: tuple({"at_s": at_s, **event} for at_s, event in sorted(events, key=lambda pair: pair[0])))


def _end_state(simulation: Simulation) -> list[Any]:
    groups = [
        (group.group_id, group.state, group.generation_id, group.earliest_deadline(), list(group.offsets))
        for broker in simulation.virtual_cluster.cluster.brokers.values()
        for group in broker.coordinator.groups.classic.values()
    ]
    members = [
        (each.member.is_down, each.member.is_joined, each.member.identity, each.next_deadline(), each.member.positions)
        for each in (driver.member for driver in simulation.drivers)
    ]
    consumer_groups = [
        (group.group_id, group.group_epoch, {**group.members}, {**group.session_deadlines}, list(group.offsets))
        for broker in simulation.virtual_cluster.cluster.brokers.values()
        for group in broker.coordinator.groups.consumer
    ]
    return [groups, consumer_groups, members]


@soak
@hypothesis_settings(max_examples=examples(15, soak=2_000))
@given(_members(), _EVENTS, st.booleans())
def test_fast_forwarded_heartbeats_give_the_same_events_and_state(
    members: list[Script], events: tuple[dict[str, Any], ...], folds: bool
) -> None:
    settings = two_broker_settings(duration_s=14.0, events=events, folds=folds, cluster=SHORT_SESSIONS)
    fast, slow = (play_in_memory(members, settings, is_fast=is_fast) for is_fast in (True, False))
    assert fast[1] == slow[1]
    assert fast[0].outcomes == slow[0].outcomes
    assert _end_state(fast[0]) == _end_state(slow[0])


def test_idle_members_of_consumer_groups_get_partitions_of_a_topic_that_a_request_creates() -> None:
    members = [script(AT_BROKER_1[0], 0, protocol="consumer"), script(AT_BROKER_1[1], 1, Act(8_000.0, "start"))]
    deletion = {"at_s": 4, "do": "topic.delete", "topic": "orders"}
    settings = two_broker_settings(duration_s=14.0, events=(deletion,), cluster=SHORT_SESSIONS)
    fast, slow = (play_in_memory(members, settings, is_fast=is_fast)[1] for is_fast in (True, False))
    assert fast == slow
    targets = [row["assigned"] for row in rows_of(fast, "ConsumerGroupHeartbeat") if row["assigned"] is not None]
    assert [len(target) for target in targets] == [4, 0, 1]


def test_a_commit_at_the_end_of_the_replay_has_no_response() -> None:
    acts = Act(0.0, "start"), Act(1_000.0, "pause", 3_000.0)  # After the pause, commits are due at full seconds.
    member = script("g", 0, *acts, heartbeat_interval_ms=250, commit_interval_ms=1_000)
    fast, slow = (
        play_in_memory([member], two_broker_settings(duration_s=14.0), is_fast=is_fast)[1] for is_fast in (True, False)
    )
    assert fast == slow
    assert [row["latency_us"] for row in rows_of(fast, "OffsetCommit")][-1] is None


_AUTOMATIC_ELECTION: dict[str, Any] = {
    "auto.leader.rebalance.enable": "true",
    "leader.imbalance.check.interval.seconds": "13",
}
_RESTART: list[dict[str, Any]] = [
    {"at_s": 8, "do": "broker.stop", "node_id": 1},
    {"at_s": 12, "do": "broker.start", "node_id": 1},
]


def test_fast_forwarded_commits_give_the_same_events_and_state(subtests: pytest.Subtests) -> None:
    members = [
        script(group, number, heartbeat_interval_ms=1_000 + 7 * number, commit_interval_ms=1_700)
        for group in AT_BROKER_1
        for number in range(6)
    ]
    fetch = Load(kind="fetch-offsets", rate_per_s=60, at_s=5.0, for_s=20.0)
    throttled = {"at_s": 10, "do": "inject_fault", "api": "OffsetCommit", "throttle_time_ms": 2_900, "times": 4}
    not_stable = {"not": {"is": "group.stable", "group_id": AT_BROKER_1[0]}}
    expiring: dict[str, Any] = {"offsets.retention.minutes": "1", "offsets.retention.check.interval.ms": "5000"}
    cases: list[tuple[str, dict[str, Any]]] = [
        ("a load reads committed offsets", {"loads": [fetch], "events": ()}),
        ("a load reads them after a failover", {"loads": [fetch]}),
        ("leaders are elected automatically", {"cluster": Cluster(brokers=2, config=_AUTOMATIC_ELECTION)}),
        ("a commit throttles the next heartbeats", {"events": [throttled]}),
        ("appends fail", {"events": [{"at_s": 10, "do": "group.fail_append", "group_id": AT_BROKER_1[0], "times": 3}]}),
        (
            "another broker stops",
            {"cluster": Cluster(brokers=6), "events": [{**event, "node_id": 5} for event in _RESTART]},
        ),
        ("the topic is deleted", {"events": [{"at_s": 10, "do": "topic.delete", "topic": "orders"}]}),
        ("the end of the log is lost", {"events": [{**_RESTART[0], "lose_tail": 3}]}),
        ("a condition is evaluated", {"events": [{"at_s": 12.3, "do": "expect", "condition": not_stable}]}),
        ("offsets expire", {"cluster": Cluster(brokers=2, as_version="2.0", config=expiring), "duration_s": 90.0}),
    ]
    for name, changes in cases:
        with subtests.test(case=name):
            settings = two_broker_settings(**{"events": _RESTART, "groups_by_partition": {"some": [2]}, **changes})
            fast, slow = (play_in_memory(members, settings, is_fast=is_fast) for is_fast in (True, False))
            assert fast[1] == slow[1]
            assert fast[0].outcomes == slow[0].outcomes
            assert _end_state(fast[0]) == _end_state(slow[0])


def test_heartbeats_and_commits_of_idle_members_are_not_simulated() -> None:
    """A simulation that is 900 s longer has 2,520 more requests: one heartbeat per second and a commit each 2.5 s."""
    calls = []
    protocols: tuple[GroupProtocol, ...] = ("classic", "consumer")
    for protocol, duration_s in product(protocols, (100.0, 1_000.0)):
        # With the consumer protocol both intervals begin at the same time, so commits must not be at full seconds.
        members = [script("g", number, protocol=protocol, commit_interval_ms=2_501) for number in range(2)]
        simulation = Simulation(members, 0, two_broker_settings(duration_s, cluster=SHORT_SESSIONS))
        step, end_ms = simulation.scheduler.step, START_MS + duration_s * 1000
        calls.append(sum(takewhile(bool, (step(end_ms) for _ in count()))))
    assert calls[1] - calls[0] < 70
    assert calls[3] - calls[2] < 70


def test_first_commits_are_stored_at_once_while_members_stay_idle() -> None:
    """Each first commit is one more call, and its offset is stored when it is due, in the order of the commits."""
    calls, offsets = {}, {}
    for name, first_ms, is_fast in (("none", 90_000, True), ("fast", 20_001, True), ("slow", 20_001, False)):
        members = [script("g", number, commit_interval_ms=first_ms - 150 * number) for number in range(4)]
        simulation = Simulation(members, 0, two_broker_settings(100.0), is_fast=is_fast)
        step = simulation.scheduler.step
        # Until after the first commits, and before the second ones.
        calls[name] = sum(takewhile(bool, (step(START_MS + 30_000.0) for _ in count())))
        brokers = simulation.virtual_cluster.cluster.brokers.values()
        (group,) = filter(None, (broker.coordinator.groups.classic.get("g") for broker in brokers))
        offsets[name] = list(group.offsets)
    assert calls["fast"] - calls["none"] == 4
    assert [partition for _, partition, _ in offsets["fast"]] == [3, 2, 1, 0]
    assert offsets["fast"] == offsets["slow"]


_DIGESTS = {
    "steady": "4aeec6efeda546bc",
    "commits": "ca2840ee61b44936",
    "rebalances": "3a271164e6253958",
    "failover": "979c38b3b8a1d608",
    "faults": "c7899489bc17c0ea",
    "loads": "151fccdb0ae0728a",
    "consumers": "75a04adcafd8c8f1",
}


def _workloads() -> dict[str, tuple[list[Script], dict[str, Any]]]:
    steady = [
        script(group, number, Act(170.0 * number, "start"), Act(50_000.0 + number, "leave"), commit_interval_ms=20_000)
        for group in AT_BROKER_1
        for number in range(3)
    ]
    often = [
        each._replace(commit_interval_ms=700, heartbeat_interval_ms=1_000 + 3 * number)
        for number, each in enumerate(steady)
    ]
    crash = [each._replace(acts=(*each.acts[:1], Act(20_000.0, "crash"), Act(26_000.0, "start"))) for each in often[:1]]
    actions: tuple[Action, ...] = "slow", "pause", "zombie"
    lasting = [
        each._replace(acts=(*each.acts[:1], Act(15_000.0, action, 9_000.0)))
        for each, action in zip(often[1:4], actions, strict=True)
    ]
    fault = {"do": "inject_fault", "api": "OffsetCommit", "times": 4}
    faults = [{"at_s": 10, **fault, "error": "COORDINATOR_LOAD_IN_PROGRESS"}, {"at_s": 20, **fault, "drop": True}]
    loads = [Load(kind=kind, at_s=5.0) for kind in ("find-coordinators", "fetch-offsets", "describe-groups")]
    return {
        "steady": (steady, {}),
        "commits": (often, {}),
        "rebalances": ([*crash, *lasting, *often[4:]], {}),
        "failover": (often, {"events": _RESTART}),
        "faults": (often, {"events": faults}),
        "loads": (often, {"loads": loads}),
        "consumers": (
            [each._replace(protocol="consumer") for each in (*crash, *lasting, *often[4:])],
            {"cluster": SHORT_SESSIONS, "events": _RESTART},
        ),
    }


def test_a_seed_gives_the_same_events_in_all_versions(subtests: pytest.Subtests) -> None:
    """The digests may change only if the behavior of members or brokers is meant to change."""
    for name, (members, changes) in _workloads().items():
        with subtests.test(workload=name):
            digest = sha256()
            for folds in (False, True):
                _, rows = play_in_memory(members, two_broker_settings(60.0, folds=folds, **changes))
                unused = {*(() if members[0].transactions else ("transaction",)), *_unused_columns(members)}
                rows = [{key: row[key] for key in row if key not in unused} for row in rows]
                digest.update(repr(rows).encode())
            assert digest.hexdigest()[:16] == _DIGESTS[name]


def _unused_columns(members: list[Script]) -> tuple[str, ...]:
    return () if members[0].protocol == "consumer" else ("epoch", "owned")


# Over TCP


def _play_over_tcp(members: list[Script], speed: float) -> list[Row]:
    recorder = EventRecorder()
    with FakeCluster(brokers=2, topics={"orders": 4}, clock=Scaled(speed)) as cluster:
        settings = LoopSettings(speed=speed, duration_s=30.0)
        player = LoopPlayer().play(cluster.bootstrap_servers, members, settings)
    for event in player.events:
        recorder.add(event)
    rows = [row for batch in recorder.take() for row in batch.to_pylist()]
    return sorted(rows, key=lambda row: int(row["sent_us"]))


def _history_of(rows: list[Row], group: str) -> list[Any]:
    """Return the generations of a group with assignments, their leaders, and the errors of each member in order."""
    here = [row for row in rows if row["group"] == group and row["kind"] == "request"]
    names = {row["member_id"]: row["member"] for row in here if row["member_id"]}
    synced = [row for row in rows_of(here, "SyncGroup") if row["error"] == 0]
    assignments = sorted((row["generation"], row["member"], tuple(row["assigned"])) for row in synced)
    joined = [row for row in rows_of(here, "JoinGroup") if row["members"]]
    leaders = sorted((row["generation"], names[row["leader"]], row["members"]) for row in joined)
    members = sorted({row["member"] for row in here if row["member"]})
    failed = [row for row in here if row["error"]]
    errors = [(name, row["api"], row["error"]) for name in members for row in failed if row["member"] == name]
    return [assignments, leaders, errors]


@pytest.mark.slow
def test_groups_have_the_same_history_over_tcp(subtests: pytest.Subtests) -> None:
    members = [
        # The second member has to rejoin before it leaves: 4 s are 800 ms of real time.
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
    _, in_memory = play_in_memory(members, two_broker_settings())
    over_tcp = _play_over_tcp(members, speed=5.0)
    for group in dict.fromkeys(member.group for member in members):
        with subtests.test(group=group):
            assert _history_of(over_tcp, group) == _history_of(in_memory, group)


# In Spark


def _plan(directory: Path, **changes: Any) -> TaskPlan:
    plan = TaskPlan(
        bootstrap="",
        directory=directory,
        report_to=("127.0.0.1", 9),
        seed=7,
        duration_s=20.0,
        cluster=Cluster(brokers=2),
        topics={"orders": 4},
        events=({"at_s": 9, "do": "broker.restart", "node_id": 2},),
    )
    return msgspec.structs.replace(plan, **changes)


@pytest.mark.slow
def test_events_are_the_same_for_any_number_of_tasks(spark: SparkSession, tmp_path: Path) -> None:
    members = [
        script(f"group-{group}", number, Act(37.0 * group + number, "start"), Act(18_000.0 + group, "leave"))
        for group in range(12)
        for number in range(3)
    ]
    frame = spark.createDataFrame(members, scripts_schema.DDL)
    events = (
        {"at_s": 9, "do": "broker.restart", "node_id": 2},
        {"at_s": 9, "do": "group.rebalance", "group_id": "group-1"},
        {"at_s": 9, "do": "group.evict", "group_id": "group-2", "member": "x"},
        {"at_s": 18.005, "do": "clear_faults"},
        {"at_s": 19.9, "do": "clear_faults"},
    )
    tables, timelines = [], []
    for tasks in (1, 2, 5):
        outcomes = no_outcomes(spark)
        directory = tmp_path / f"events-{tasks}"
        written = simulate(frame, _plan(directory, events=events), tasks, outcomes)
        rows = spark.read.parquet(str(directory)).collect()
        assert written == len(rows)
        tables.append(sorted(map(repr, rows)))
        timelines.append(sorted(outcomes.value.items()))
    assert tables[0] == tables[1] == tables[2]
    assert len(tables[0]) > 1_000
    assert timelines[0] == timelines[1] == timelines[2]
    refusal = timelines[0][2][1]
    assert timelines[0] == [(0, None), (1, None), (2, refusal), (3, None), (4, OVER)]
    assert str(refusal).startswith("group 'group-2': member='x'")


def test_member_ids_depend_on_the_seed() -> None:
    ids = [{row["member_id"] for row in play_in_memory(PAIR, two_broker_settings(seed=seed))[1]} for seed in (1, 2)]
    assert ids[0].isdisjoint(ids[1] - {None})
