"""What a run measures, with the classic protocol: traffic by second, failures, rebalances of groups without members."""

from collections import Counter
from typing import Any

import pytest
from msgspec.structs import replace

from fakebroker.coordinator.partitions import partition_for
from fakebroker.lab.designs import design_named
from fakebroker.lab.script import BrokerDo, BrokerEvent, ClusterPlan, MemberEvent, TopicEvent
from fakebroker.lab.world.world import World
from tests.support.lab.scripts import SESSION_TIMEOUT_MS, TOPIC, script


def run(*events: MemberEvent | BrokerEvent | TopicEvent, rests: bool = True, **sizes: Any) -> World:
    world = World(design_named("classic"), script(*events, **sizes), rests=rests)
    world.run()
    return world


@pytest.mark.parametrize("rests", [False, True])
def test_traffic_by_second_adds_up_to_traffic_by_kind(rests: bool) -> None:
    traffic = run(MemberEvent(40_000, 2, "crash"), rests=rests).traffic
    assert sum(traffic.messages_per_s()) == pytest.approx(sum(each.messages for each in traffic.by_kind.values()))
    assert sum(traffic.bytes_per_s()) == pytest.approx(sum(each.bytes for each in traffic.by_kind.values()))
    requests = sum(each.messages for name, each in traffic.by_kind.items() if name.endswith("Request"))
    # Those of the last second may not arrive before the end.
    assert sum(map(sum, traffic.requests_per_s().values())) == pytest.approx(requests, abs=5)
    assert len(traffic.messages_per_s()) == 60


def test_the_rate_of_a_quiet_time_is_the_same_with_and_without_rests() -> None:
    rates = [sum(run(rests=rests).traffic.bytes_per_s()[20:50]) for rests in (False, True)]
    assert rates[0] == pytest.approx(rates[1], rel=0.05)


def test_a_member_that_starts_again_is_not_removed_by_mistake() -> None:
    failures = run(MemberEvent(20_000, 2, "crash"), MemberEvent(21_000, 2, "start")).failures
    assert failures.mistakes == 0
    assert len(failures.noticed_ms) == 1
    assert SESSION_TIMEOUT_MS - 3_000 <= failures.noticed_ms[0] <= SESSION_TIMEOUT_MS


def test_a_paused_member_is_removed_by_mistake() -> None:
    failures = run(MemberEvent(20_000, 2, "pause", for_ms=15_000)).failures
    assert (failures.mistakes, failures.noticed_ms) == (1, [])


def test_a_group_without_members_has_no_failover() -> None:
    leaves = [MemberEvent(10_000, number, "leave") for number in range(3)]
    stops = [BrokerEvent(20_000, node_id, "stop") for node_id in (1, 2)]
    ownership = run(*leaves, *stops, TopicEvent(30_000, TOPIC, 8)).ownership
    assert [(each.cause, each.until_ms is None) for each in ownership.rebalances] == [
        ("start", False),
        ("leave", False),
    ]


@pytest.mark.parametrize(
    ("do", "expected_ms"),
    [
        ("stop", 0),  # The connection is closed.
        ("vanish", ClusterPlan().request_timeout_ms),
    ],
)
def test_a_look_up_is_repeated_if_its_broker_ends_meanwhile(do: BrokerDo, expected_ms: float) -> None:
    # The first member asks broker 1, and its request arrives after 1.5 ms.
    (rebalance,) = run(BrokerEvent(101, 1, do), members=1).ownership.rebalances
    assert rebalance.until_ms is not None
    assert rebalance.until_ms - rebalance.from_ms == pytest.approx(expected_ms + 500, abs=500)


def test_requests_that_wait_when_their_connection_is_closed_are_handled() -> None:
    """A member that leaves commits first, and closes its connection before the commit is stored."""
    rebalances = run(MemberEvent(20_000, 2, "leave")).ownership.rebalances
    (left,) = [each for each in rebalances if each.cause == "leave"]
    assert left.until_ms is not None
    assert left.until_ms - left.from_ms < 4_000  # A heartbeat interval; without the LeaveGroup, a session timeout.


@pytest.mark.parametrize(("after_ms", "is_loaded"), [(-1, False), (1, True)])
def test_the_time_to_load_a_partition_grows_with_its_groups(after_ms: float, is_loaded: bool) -> None:
    stop_ms, per_group_ms = 20_000, 1_000
    plan = script(groups=12, members=1)
    of_partition = Counter(partition_for(group.group_id, 4) for group in plan.groups)
    partition, groups = of_partition.most_common(1)[0]
    assert groups > 1
    cluster = replace(plan.cluster, load_ms_per_group=per_group_ms)
    loaded_ms = stop_ms + cluster.elect_ms + cluster.load_ms + groups * per_group_ms
    stop = BrokerEvent(stop_ms, 1 + partition % cluster.brokers, "stop")
    world = World(
        design_named("classic"),
        replace(plan, cluster=cluster, events=(*plan.events, stop), duration_ms=loaded_ms + after_ms),
    )
    world.run()
    assert world.offsets_topic.is_loaded[partition] == is_loaded


def test_a_run_in_steps_has_the_same_result() -> None:
    script_ = script(MemberEvent(40_000, 2, "crash"))
    worlds = [World(design_named("classic"), script_) for _ in range(2)]
    worlds[0].run()
    times_ms = list(worlds[1].play(every_ms=1_000))
    assert times_ms == sorted(times_ms)
    assert 10 < len(times_ms) <= 60
    assert worlds[0].traffic.by_kind == worlds[1].traffic.by_kind
    assert worlds[0].ownership.rebalances == worlds[1].ownership.rebalances
