"""Loads beside the members: what is asked, of whom, and what is recorded of it."""

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise

import pytest

from fakebroker.client.errors import UnsupportedVersion
from fakebroker.replay.members.bootstrap import addresses
from fakebroker.replay.members.events import Event
from fakebroker.replay.members.member_loop import LoopSettings, MemberLoop
from fakebroker.replay.workload.loads import Load
from fakebroker.server.clock import Scaled
from fakebroker.server.fake_cluster import FakeCluster

Asked = Mapping[str, Sequence[str]]

GROUPS = [f"group-{number}" for number in range(10)]


def play(cluster: FakeCluster, *loads: Load, speed: float = 1.0, groups: list[str] = GROUPS) -> list[Event]:
    events: list[Event] = []
    wanted: list[tuple[Load, Asked]] = [(load, dict.fromkeys(groups, ("i1", "i2"))) for load in loads]
    brokers = addresses(cluster.bootstrap_servers)
    swarm = MemberLoop([], brokers, events.append, lambda tally: None, LoopSettings(speed=speed), wanted)
    swarm.connect()
    swarm.play(time.time())
    assert all(event.member is None for event in events)
    return events


def test_coordinators_are_asked_for_in_batches() -> None:
    with FakeCluster(brokers=3) as cluster:
        events = play(cluster, Load(kind="find-coordinators", batch=4))
        assert [event.lookups for event in events] == [4, 4, 2]
        found = [each for event in events for each in event.found or []]
        assert found == [(group, cluster.coordinator_of(group).node_id, 0, False) for group in GROUPS]


def test_a_broker_that_takes_one_group_a_request_is_asked_about_one_after_the_other() -> None:
    with FakeCluster(brokers=3, as_version="2.8") as cluster:
        events = play(cluster, Load(kind="find-coordinators", batch=4), Load(kind="fetch-offsets", batch=4))
    for load in (3, 7):
        assert load in {event.version for event in events}
    storm = [e for e in events if e.api == "FindCoordinator" and e.broker == 1][: len(GROUPS)]
    assert {event.lookups for event in storm} == {1}
    assert [event.group for event in events if event.api == "OffsetFetch"] != GROUPS  # by their brokers
    assert sorted(event.group or "" for event in events if event.api == "OffsetFetch") == GROUPS


def test_offsets_are_fetched_from_the_coordinator_of_each_group() -> None:
    with FakeCluster(brokers=3) as cluster:
        events = play(cluster, Load(kind="fetch-offsets"))
        fetched = [event for event in events if event.api == "OffsetFetch"]
        assert {event.group: event.broker for event in fetched} == {
            group: cluster.coordinator_of(group).node_id for group in GROUPS
        }
    assert {event.error for event in fetched} == {0}
    (look_up,) = [event for event in events if event.api == "FindCoordinator"]
    assert look_up.lookups == len(GROUPS)


def test_groups_are_described_in_batches_of_one_broker() -> None:
    with FakeCluster(brokers=2) as cluster:
        events = play(cluster, Load(kind="describe-groups", batch=3))
        sizes = Counter(cluster.coordinator_of(group).node_id for group in GROUPS)
    described = Counter(event.broker for event in events if event.api == "DescribeGroups")
    assert described == {node_id: -(-size // 3) for node_id, size in sizes.items()}


def test_every_broker_lists_its_groups() -> None:
    with FakeCluster(brokers=3) as cluster:
        events = play(cluster, Load(kind="list-groups"))
    assert [(event.api, event.broker, event.error) for event in events] == [
        ("ListGroups", node, 0) for node in (1, 2, 3)
    ]


def test_an_open_loop_keeps_its_rate_by_the_clock_of_the_members() -> None:
    load = Load(kind="find-coordinators", rate_per_s=10, at_s=1, for_s=2)
    with FakeCluster(brokers=1, clock=Scaled(10)) as cluster:
        events = play(cluster, load, speed=10)
    scheduled = [event.scheduled_us for event in events]
    assert len(events) == 20
    assert all(99_999 <= later - earlier <= 100_001 for earlier, later in pairwise(scheduled))
    assert [event.group for event in events[:12]] == [*GROUPS, *GROUPS[:2]]


def test_a_closed_loop_asks_when_it_is_answered() -> None:
    with FakeCluster(brokers=1) as cluster:
        events = play(cluster, Load(kind="find-coordinators", for_s=0.2))
    assert len(events) > len(GROUPS)
    assert all(
        later.scheduled_us >= earlier.scheduled_us + (earlier.latency_us or 0) - 1
        for earlier, later in pairwise(events)
    )


def test_coordinators_that_have_moved_are_found_by_the_next_pass() -> None:
    load = Load(kind="describe-groups", batch=20, for_s=1.0)
    with FakeCluster(brokers=2) as cluster:
        first = cluster.coordinator_of("group-1").node_id
        events: list[Event] = []

        def take(event: Event) -> None:
            if event.api == "DescribeGroups" and len(events) == 1:  # behind the look-up
                cluster.move_coordinator("group-1", to=3 - first)
            events.append(event)

        wanted: list[tuple[Load, Asked]] = [(load, {"group-1": ()})]
        swarm = MemberLoop([], addresses(cluster.bootstrap_servers), take, lambda tally: None, LoopSettings(), wanted)
        swarm.connect()
        swarm.play(time.time())
    described = [event for event in events if event.api == "DescribeGroups"]
    assert 16 in {event.error for event in described}
    assert described[-1].broker == 3 - first


def test_a_broker_that_goes_down_is_in_the_events_and_the_load_goes_on() -> None:
    load, events = Load(kind="list-groups", for_s=1.0), list[Event]()
    with FakeCluster(brokers=2) as cluster:

        def take(event: Event) -> None:
            events.append(event)
            if len(events) == 20:
                cluster.stop_broker(2)

        wanted: list[tuple[Load, Asked]] = [(load, dict.fromkeys(GROUPS, ()))]
        swarm = MemberLoop([], addresses(cluster.bootstrap_servers), take, lambda tally: None, LoopSettings(), wanted)
        swarm.connect()
        swarm.play(time.time())
    assert any(event.lost and event.broker == 2 for event in events)
    assert (events[-1].broker, events[-1].error) == (1, 0) or events[-2].broker == 1


def test_a_load_about_no_groups_is_over_at_once() -> None:
    with FakeCluster(brokers=1) as cluster:
        assert play(cluster, Load(kind="describe-groups", for_s=60), groups=[]) == []


def test_members_are_added_group_by_group() -> None:
    load = Load(kind="add-members", groups="all", instances=2)
    with FakeCluster(brokers=3, proposals=["batch-join"]) as cluster:
        events = [event for event in play(cluster, load) if event.api == "JoinGroup"]
        assert [(event.version, event.error) for event in events] == [(10, 0)] * len(GROUPS)
        assert [m.is_expected for group in GROUPS for m in cluster.group(group).members] == [True] * 2 * len(GROUPS)


def test_adding_members_takes_the_proposal() -> None:
    load = Load(kind="add-members", groups="all", instances=2)
    with (
        FakeCluster(brokers=1) as cluster,
        pytest.raises(UnsupportedVersion, match=r"^JoinGroup: .* supports 0-9, .* 10"),
    ):
        play(cluster, load)
