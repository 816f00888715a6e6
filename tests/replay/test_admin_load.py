"""Loads: the requests that are sent, to which brokers, and the events that record them."""

from collections import Counter
from itertools import pairwise

import pytest

from fakebroker.client.errors import UnsupportedVersion
from fakebroker.errors import ErrorCode
from fakebroker.protocol.messages.offset_fetch import OffsetFetchResponse, OffsetFetchResponseGroup
from fakebroker.replay.members.admin_load import _errors
from fakebroker.replay.members.events import Event
from fakebroker.replay.members.member_loop import LoopSettings
from fakebroker.replay.workload.loads import Load
from fakebroker.server.clock import Scaled
from fakebroker.server.fake_cluster import FakeCluster
from tests.support.replay.loop_player import LoopPlayer

pytestmark = pytest.mark.usefixtures("frequent_reports")

GROUPS = [f"group-{number}" for number in range(10)]
INSTANCES = ("i1", "i2")


def play(cluster: FakeCluster, *loads: Load, speed: float = 1.0, groups: list[str] = GROUPS) -> list[Event]:
    settings, with_groups = LoopSettings(speed=speed), [(load, dict.fromkeys(groups, INSTANCES)) for load in loads]
    events = LoopPlayer().play(cluster.bootstrap_servers, settings=settings, loads=with_groups).events
    assert all(event.member is None and event.source == "load" for event in events)
    return events


def test_coordinators_are_looked_up_in_batches() -> None:
    with FakeCluster(brokers=3) as cluster:
        events = play(cluster, Load(kind="find-coordinators", batch=4))
        assert [event.lookups for event in events] == [4, 4, 2]
        found = [each for event in events for each in event.found or []]
        assert found == [(group, cluster.group(group).coordinator().node_id, 0, False) for group in GROUPS]


def test_older_brokers_get_one_request_per_group() -> None:
    with FakeCluster(brokers=3, as_version="2.8") as cluster:
        events = play(cluster, Load(kind="find-coordinators", batch=4), Load(kind="fetch-offsets", batch=4))
    assert {3, 7} <= {event.version for event in events}  # Versions of FindCoordinator and OffsetFetch.
    look_ups = [event for event in events if event.api == "FindCoordinator" and event.broker == 1]
    assert {event.lookups for event in look_ups[: len(GROUPS)]} == {1}
    assert [event.group for event in events if event.api == "OffsetFetch"] != GROUPS  # In the order of their brokers.
    assert sorted(event.group or "" for event in events if event.api == "OffsetFetch") == GROUPS


def test_offsets_are_fetched_from_the_coordinator_of_each_group() -> None:
    with FakeCluster(brokers=3) as cluster:
        events = play(cluster, Load(kind="fetch-offsets"))
        fetched = [event for event in events if event.api == "OffsetFetch"]
        assert {event.group: event.broker for event in fetched} == {
            group: cluster.group(group).coordinator().node_id for group in GROUPS
        }
    assert {event.error for event in fetched} == {0}
    (look_up,) = [event for event in events if event.api == "FindCoordinator"]
    assert look_up.lookups == len(GROUPS)


def test_a_request_about_several_groups_is_one_request_with_a_row_for_each_group() -> None:
    with FakeCluster(brokers=1, topics={"orders": 2}) as cluster:
        cluster.topic("orders").produce(["a", "b"], partition=1)
        for number, group in enumerate(GROUPS[:3]):
            cluster.group(group).seed(offsets={"orders-1": number})
        events = play(cluster, Load(kind="fetch-offsets", batch=4), groups=GROUPS[:3])
    fetched = [event for event in events if event.api == "OffsetFetch"]
    assert [(event.kind, event.group, event.lookups, event.offsets) for event in fetched] == [
        ("request", None, 3, None),
        *[("seen", group, None, [("orders-1", number)]) for number, group in enumerate(GROUPS[:3])],
    ]
    assert len({(event.broker, event.version, event.sent_us, event.latency_us) for event in fetched}) == 1


def test_groups_with_an_error_have_no_row() -> None:
    with FakeCluster(brokers=1, topics={"orders": 1}) as cluster:
        cluster.inject_fault("OffsetFetch", error="NOT_COORDINATOR", group=GROUPS[1])
        events = play(cluster, Load(kind="fetch-offsets", batch=4), groups=GROUPS[:3])
    fetched = [(event.kind, event.group, event.error) for event in events if event.api == "OffsetFetch"]
    assert fetched == [("request", None, 16), ("seen", GROUPS[0], 0), ("seen", GROUPS[2], 0)]


def test_the_errors_of_all_groups_in_a_response_count() -> None:
    """A group that may not be read does not hide that the coordinator of another one has moved."""
    errors = (ErrorCode.GROUP_AUTHORIZATION_FAILED, ErrorCode.NOT_COORDINATOR)
    groups = [OffsetFetchResponseGroup(group_id="g", topics=[], error_code=error) for error in errors]
    assert set(_errors(OffsetFetchResponse(groups=groups))) == {*errors}


def test_groups_are_described_in_batches_per_coordinator() -> None:
    with FakeCluster(brokers=2) as cluster:
        events = play(cluster, Load(kind="describe-groups", batch=3))
        sizes = Counter(cluster.group(group).coordinator().node_id for group in GROUPS)
    described = Counter(event.broker for event in events if event.api == "DescribeGroups")
    assert described == {node_id: -(-size // 3) for node_id, size in sizes.items()}


def test_groups_are_listed_by_each_broker() -> None:
    with FakeCluster(brokers=3) as cluster:
        events = play(cluster, Load(kind="list-groups"))
    assert [(event.api, event.broker, event.error) for event in events] == [
        ("ListGroups", node, 0) for node in (1, 2, 3)
    ]


def test_an_open_loop_keeps_its_rate_by_the_members_clock() -> None:
    load = Load(kind="find-coordinators", rate_per_s=10, at_s=1, for_s=2)
    with FakeCluster(brokers=1, clock=Scaled(10)) as cluster:
        events = play(cluster, load, speed=10)
    scheduled = [event.scheduled_us for event in events]
    assert len(events) == 20
    assert all(99_999 <= later - earlier <= 100_001 for earlier, later in pairwise(scheduled))
    assert [event.group for event in events[:12]] == [*GROUPS, *GROUPS[:2]]


def test_a_closed_loop_sends_each_request_when_the_last_one_is_answered() -> None:
    load, player = Load(kind="find-coordinators", for_s=60), LoopPlayer()
    player.when(lambda: len(player.events) > 2 * len(GROUPS), lambda: player.skip(60))
    with FakeCluster(brokers=1) as cluster:
        player.play(cluster.bootstrap_servers, loads=[(load, dict.fromkeys(GROUPS, ()))])
    assert all(
        later.scheduled_us >= earlier.scheduled_us + (earlier.latency_us or 0) - 1
        for earlier, later in pairwise(player.events)
    )


def test_moved_coordinators_are_looked_up_before_the_next_pass() -> None:
    load, player = Load(kind="describe-groups", batch=20, for_s=60), LoopPlayer()
    with FakeCluster(brokers=2) as cluster:
        first = cluster.group("group-1").coordinator().node_id
        player.when(
            lambda: player.of("DescribeGroups"), lambda: cluster.group("group-1").move_coordinator(to=3 - first)
        )
        player.when(lambda: player.of("DescribeGroups")[-1].broker == 3 - first, lambda: player.skip(60))
        player.play(cluster.bootstrap_servers, loads=[(load, {"group-1": ()})])
    described = player.of("DescribeGroups")
    assert 16 in {event.error for event in described}
    assert described[-1].broker == 3 - first


def test_requests_to_a_stopped_broker_are_recorded_as_lost_and_the_load_continues() -> None:
    load, player = Load(kind="list-groups", for_s=60), LoopPlayer()

    def has_continued() -> bool:
        lost = [number for number, event in enumerate(player.events) if event.missing]
        return bool(lost) and any(event.broker == 1 and not event.error for event in player.events[lost[0] + 1 :])

    with FakeCluster(brokers=2) as cluster:
        player.when(lambda: len(player.events) == 20, lambda: cluster.broker(2).stop())
        player.when(has_continued, lambda: player.skip(60))
        player.play(cluster.bootstrap_servers, loads=[(load, dict.fromkeys(GROUPS, ()))])
    assert {event.broker for event in player.events if event.missing} == {2}
    assert (player.events[-1].broker, player.events[-1].error) == (1, 0) or player.events[-2].broker == 1


def test_after_a_lost_request_the_broker_is_asked_about_no_group_again() -> None:
    """The coordinators of all its groups are looked up again, also those of groups that it has described before."""
    load, player = Load(kind="describe-groups", for_s=60), LoopPlayer()

    def described_by(node_id: int) -> list[str | None]:
        return [each.group for each in player.of("DescribeGroups") if each.broker == node_id and not each.missing]

    with FakeCluster(brokers=2) as cluster:
        of_second = [group for group in GROUPS if cluster.group(group).coordinator().node_id == 2]
        player.when(lambda: len(described_by(2)) == 2, lambda: cluster.broker(2).stop())
        player.when(lambda: set(described_by(1)) >= set(GROUPS), lambda: player.skip(60))
        player.play(cluster.bootstrap_servers, loads=[(load, dict.fromkeys(GROUPS, ()))])
    lost = [each.group for each in player.of("DescribeGroups") if each.missing == "lost"]
    assert len(of_second) > 3
    assert lost == of_second[2:]


def test_another_broker_is_asked_for_coordinators_after_a_failure() -> None:
    load, player = Load(kind="find-coordinators", for_s=60), LoopPlayer()
    with FakeCluster(brokers=2) as cluster:
        player.when(lambda: player.of("FindCoordinator"), lambda: cluster.broker(1).stop())
        player.when(
            lambda: [each.broker for each in player.of("FindCoordinator") if not each.missing][-1] == 2,
            lambda: player.skip(60),
        )
        player.play(cluster.bootstrap_servers, loads=[(load, dict.fromkeys(GROUPS, ()))])
    assert [each.broker for each in player.of("FindCoordinator") if each.missing == "lost"] == [1]


def test_a_load_without_groups_ends_at_once() -> None:
    with FakeCluster(brokers=1) as cluster:
        assert play(cluster, Load(kind="describe-groups", for_s=60), groups=[]) == []


def test_members_are_added_group_by_group() -> None:
    load = Load(kind="add-members", groups="all", instances=2)
    with FakeCluster(brokers=3, proposals=["batch-join"]) as cluster:
        events = [event for event in play(cluster, load) if event.api == "JoinGroup"]
        assert [(event.version, event.error) for event in events] == [(10, 0)] * len(GROUPS)
        assert [m.is_expected for group in GROUPS for m in cluster.group(group).describe().members] == [True] * 2 * len(
            GROUPS
        )


def test_adding_members_needs_the_proposal() -> None:
    load = Load(kind="add-members", groups="all", instances=2)
    with (
        FakeCluster(brokers=1) as cluster,
        pytest.raises(UnsupportedVersion, match=r"^JoinGroup: .* supports 0-9, .* 10"),
    ):
        play(cluster, load)
