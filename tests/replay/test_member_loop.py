"""The members of one task over TCP, against a fake cluster in another thread. Without Spark."""

import resource
from collections import Counter
from collections.abc import Iterable
from itertools import pairwise

import pytest

from fakebroker.client.errors import BrokerUnreachable, UnsupportedVersion
from fakebroker.errors import FakebrokerError
from fakebroker.replay.members.member_loop import LoopSettings, MemberLoop, max_concurrent
from fakebroker.replay.script.script import Act, Script
from fakebroker.server.clock import Scaled
from fakebroker.server.fake_cluster import FakeCluster
from tests.support.replay.loop_player import LoopPlayer

pytestmark = pytest.mark.usefixtures("frequent_reports")

GROUPS = ("one", "two", "three")
ALL_APIS = {
    *("FindCoordinator", "JoinGroup", "Metadata", "SyncGroup"),
    *("OffsetFetch", "Heartbeat", "OffsetCommit", "LeaveGroup"),
}
LANES = (None, 1)
"""A connection for each member, and one connection shared by all."""

LEAVE_S = 60.0
"""Time at which members leave. A test skips to this time as soon as the condition that it waits for holds."""


def script(group: str, member: str, *acts: Act, heartbeat_ms: int = 20, session_ms: int = 300_000) -> Script:
    return Script(
        *("all", group, member, None, ("orders",), "range"),
        *(session_ms, session_ms, heartbeat_ms, 30, 50.0, acts),
    )


def scripts_of(groups: Iterable[str], members: int, step_ms: float = 0.0, heartbeat_ms: int = 20) -> list[Script]:
    """Return the scripts of members that start one after the other and leave together."""
    leave = Act(LEAVE_S * 1000, "leave")
    return [
        script(group, f"{group}-{index}", Act(index * step_ms, "start"), leave, heartbeat_ms=heartbeat_ms)
        for group in groups
        for index in range(members)
    ]


def cluster_of(**options: object) -> FakeCluster:
    return FakeCluster(**{"brokers": 2, "topics": {"orders": 4}, **options})  # type: ignore[arg-type]  # plain options


def leaving_player() -> LoopPlayer:
    """Return a player whose members leave as soon as their groups are stable and all have committed."""
    player = LoopPlayer()
    player.when(player.is_settled, lambda: player.skip(LEAVE_S))
    return player


def stop_all_brokers(cluster: FakeCluster) -> None:
    for node_id in (1, 2):
        cluster.broker(node_id).stop()


def start_all_brokers(cluster: FakeCluster) -> None:
    for node_id in (1, 2):
        cluster.broker(node_id).start()


def test_requests_and_assignments_are_recorded(subtests: pytest.Subtests) -> None:
    scripts = scripts_of(GROUPS, 2)
    for lanes in LANES:
        with subtests.test(lanes=lanes), cluster_of() as cluster:
            player = leaving_player().play(cluster.bootstrap_servers, scripts, LoopSettings(lanes=lanes))
            assert {event.api for event in player.requests()} == ALL_APIS
            for event in player.requests():
                assert event.scheduled_us <= event.sent_us
                assert event.latency_us is not None
                assert event.sent_us - event.scheduled_us <= event.latency_us
                assert event.broker in (1, 2)
                assert event.error in (0, 27, 79)
            leaves = sorted(event.member or "" for event in player.of("LeaveGroup"))
            assert leaves == sorted(each.member for each in scripts)
            assert player.tallies[-1].requests == len(player.requests())
            assert player.tallies[-1].errors == 0
            synced = [event for event in player.of("SyncGroup") if (event.group, event.error) == ("one", 0)]
            last = max(event.generation or 0 for event in synced)
            assigned = [event.assigned for event in synced if event.generation == last]
            assert sorted(map(str, assigned)) == ["['orders-0', 'orders-1']", "['orders-2', 'orders-3']"]


def test_simultaneous_look_ups_are_one_request() -> None:
    with cluster_of() as cluster:
        player = leaving_player().play(cluster.bootstrap_servers, scripts_of(GROUPS, 2))
        (event,) = player.of("FindCoordinator")
        assert (event.lookups, event.group, event.member) == (3, None, None)
        assert event.found == [(group, cluster.group(group).coordinator().node_id, 0, False) for group in GROUPS]


def test_older_brokers_are_sent_the_versions_that_they_support(subtests: pytest.Subtests) -> None:
    for release, find_version in (("0.10.2", 0), ("2.8", 3), ("3.0", 4)):
        for lanes in LANES:
            with subtests.test(release=release, lanes=lanes), cluster_of(as_version=release) as cluster:
                scripts = scripts_of(GROUPS, 2)
                player = leaving_player().play(cluster.bootstrap_servers, scripts, LoopSettings(lanes=lanes))
                assert {event.api for event in player.requests()} == ALL_APIS
                assert {event.version for event in player.of("FindCoordinator")} == {find_version}
                groups = [event.group for event in player.of("FindCoordinator")]
                assert groups == ([None] if find_version >= 4 else list(GROUPS))
                assert player.tallies[-1].errors == 0
                assert all(event.error == 0 for event in player.of("LeaveGroup"))


def test_a_broker_without_an_api_that_members_need_is_reported() -> None:
    expected = r"^Heartbeat: broker .* supports no version, this client 0-4"
    with cluster_of(api_versions={"Heartbeat": None}) as cluster, pytest.raises(UnsupportedVersion, match=expected):
        LoopPlayer().play(cluster.bootstrap_servers, scripts_of(GROUPS, 1))


def test_an_unreachable_cluster_is_reported_at_once() -> None:
    with pytest.raises(BrokerUnreachable, match=r"^broker 127\.0\.0\.1:1 cannot be reached: Connection refused"):
        LoopPlayer().play("127.0.0.1:1", scripts_of(GROUPS, 1))


def test_an_unreachable_bootstrap_broker_is_skipped() -> None:
    with cluster_of() as cluster:
        player = leaving_player().play(f"127.0.0.1:1,{cluster.bootstrap_servers}", scripts_of(GROUPS, 1))
    assert player.tallies[-1].errors == 0
    assert player.of("LeaveGroup")


@pytest.mark.parametrize("lanes", LANES)
def test_members_follow_their_coordinator_when_its_broker_stops(lanes: int | None) -> None:
    player = LoopPlayer()
    with cluster_of() as cluster:
        first = cluster.group("one").coordinator().node_id

        def has_moved() -> bool:
            moved = {event.group for event in player.of("Heartbeat") if event.broker != first and not event.error}
            return player.is_settled() and moved == set(GROUPS)

        player.when(player.is_settled, lambda: cluster.broker(first).stop())
        player.when(has_moved, lambda: player.skip(LEAVE_S))
        player.play(cluster.bootstrap_servers, scripts_of(GROUPS, 2), LoopSettings(lanes=lanes))
    beats = [event for event in player.of("Heartbeat") if event.group == "one"]
    assert beats[-1].broker == 3 - first
    assert beats[-1].error == 0
    assert {event.error for event in player.of("LeaveGroup")} == {0}
    found = [each for event in player.of("FindCoordinator") for each in event.found or () if each[0] == "one"]
    assert (found[0], found[-1]) == (("one", first, 0, False), ("one", 3 - first, 0, True))


@pytest.mark.parametrize("lanes", LANES)
def test_members_rejoin_after_an_outage_of_all_brokers(lanes: int | None) -> None:
    player = LoopPlayer()
    with cluster_of() as cluster:
        player.when(player.is_settled, lambda: stop_all_brokers(cluster))
        player.when(lambda: player.joined == 0, lambda: start_all_brokers(cluster))
        player.when(lambda: player.joined == 6, lambda: player.skip(LEAVE_S))
        player.play(cluster.bootstrap_servers, scripts_of(GROUPS, 2), LoopSettings(lanes=lanes))
    assert [event.error for event in player.of("LeaveGroup")] == [0] * 6


def test_requests_to_a_cluster_that_stopped_are_recorded_as_lost_and_the_loop_ends() -> None:
    player = LoopPlayer()
    with cluster_of() as cluster:
        player.when(player.is_settled, lambda: stop_all_brokers(cluster))
        player.when(lambda: any(event.missing for event in player.events), lambda: player.skip(LEAVE_S))
        player.play(cluster.bootstrap_servers, scripts_of(GROUPS, 2), LoopSettings(closed_loop=True))
    unanswered = [event for event in player.requests() if event.latency_us is None]
    assert unanswered
    assert all(event.error is None and event.missing for event in unanswered)
    assert player.tallies[-1].errors == len(unanswered)


def test_members_of_a_lane_share_a_connection_and_rebalances_reuse_connections() -> None:
    groups = [f"group-{number}" for number in range(20)]
    # Without commits, so that a busy machine keeps up with 60 members.
    scripts = [each._replace(commit_interval_ms=0) for each in scripts_of(groups, 3, step_ms=1_000, heartbeat_ms=100)]
    player = LoopPlayer()
    player.when(lambda: player.joined == 20, lambda: player.skip(1))  # To the start of the second members.
    player.when(lambda: player.joined == 40, lambda: player.skip(1))
    player.when(lambda: player.joined == 60, lambda: player.skip(LEAVE_S))
    with cluster_of(brokers=1) as cluster:
        player.play(cluster.bootstrap_servers, scripts, LoopSettings(lanes=2))
        assert len({call.connection_id for call in cluster.journal.requests("Heartbeat")}) == 2
        joins = Counter(call.connection_id for call in cluster.journal.requests("JoinGroup"))
    assert max(joins.values()) > 2
    assert player.tallies[-1].errors == 0


def test_all_groups_of_a_lane_may_rebalance_at_the_same_time() -> None:
    """The late members of all groups join at once: the pending JoinGroups do not delay the heartbeats of the lane."""
    groups = [f"group-{number}" for number in range(25)]
    scripts = [
        script(group, f"{group}-{index}", Act(0, "start"), heartbeat_ms=300) for group in groups for index in range(2)
    ]
    scripts += [script(group, f"{group}-late", Act(3_000, "start"), heartbeat_ms=300) for group in groups]
    player = LoopPlayer()
    player.when(lambda: player.joined == 50, lambda: player.skip(3))
    player.when(lambda: player.joined == 75, lambda: player.loop.stop())
    with cluster_of() as cluster:
        player.play(cluster.bootstrap_servers, scripts, LoopSettings(lanes=1, duration_s=100))
    assert {event.error for event in player.requests()} <= {0, 27, 79, None}  # None: pending at the end


def test_a_closed_loop_sends_each_heartbeat_when_the_last_one_is_answered() -> None:
    # Without commits, because a heartbeat is not sent at once while a commit is pending.
    scripts = [
        script(group, f"{group}-0", Act(0, "start"), heartbeat_ms=200)._replace(commit_interval_ms=0)
        for group in GROUPS
    ]
    player = LoopPlayer()
    player.when(lambda: player.joined == 3, lambda: player.skip(1))  # To the first heartbeats.
    player.when(lambda: len(player.of("Heartbeat")) > 3 * 20, lambda: player.loop.stop())
    with cluster_of() as cluster:
        player.play(cluster.bootstrap_servers, scripts, LoopSettings(closed_loop=True))
    for group in GROUPS:
        beats = [event for event in player.of("Heartbeat") if event.group == group]
        assert len(beats) > 2
        assert all(
            later.scheduled_us <= earlier.sent_us + (earlier.latency_us or 0) for earlier, later in pairwise(beats)
        )
    assert {event.error for event in player.requests()} <= {0, 79, None}  # None: pending at the end


def test_a_faster_clock_is_in_the_events() -> None:
    """The members' clock and the brokers' run 20 times as fast as real time, so their difference does not change."""
    player = LoopPlayer()
    player.when(lambda: len(player.of("Heartbeat")) == 5, lambda: player.loop.stop())
    members = [script("one", "one-0", Act(0, "start"), heartbeat_ms=3_000, session_ms=1_800_000)]
    with cluster_of(clock=Scaled(20)) as cluster:
        player.play(cluster.bootstrap_servers, members, LoopSettings(speed=20))
        received_us = [call.received_ms * 1000 for call in cluster.journal.requests("Heartbeat")]
    beats = player.of("Heartbeat")
    assert all(later.scheduled_us - earlier.scheduled_us >= 2_900_000 for earlier, later in pairwise(beats))
    # A heartbeat is received after it was sent, and before its response.
    differences_us = [
        (received_us - beat.sent_us - (beat.latency_us or 0), received_us - beat.sent_us)
        for beat, received_us in zip(beats, received_us, strict=True)
    ]
    assert max(least for least, _ in differences_us) <= min(most for _, most in differences_us) + 1_000


def test_a_member_that_never_leaves_is_stopped_at_the_end() -> None:
    player = LoopPlayer()
    player.when(lambda: player.of("Heartbeat"), lambda: player.skip(60))
    with cluster_of() as cluster:
        player.play(cluster.bootstrap_servers, [script("one", "one-0", Act(0, "start"))], LoopSettings(duration_s=5))
    assert not player.of("LeaveGroup")


def test_a_crashed_member_rejoins_with_another_member_id() -> None:
    acts = (Act(0, "start"), Act(60_000, "crash"), Act(60_100, "start"), Act(120_000, "leave"))
    player = LoopPlayer()
    with cluster_of() as cluster:
        player.when(player.is_settled, lambda: player.skip(60))
        player.when(
            lambda: player.of("crash"), lambda: cluster.group("one").expire(player.of("crash")[0].member_id or "")
        )
        player.when(lambda: len({event.member_id for event in player.of("Heartbeat")}) == 2, lambda: player.skip(60))
        player.play(cluster.bootstrap_servers, [script("one", "one-0", *acts)])
    assert len({event.member_id for event in player.of("JoinGroup") if event.error == 0}) == 2
    assert [event.api for event in player.events if event.kind == "act"] == ["start", "crash", "start", "leave"]


def test_too_low_a_limit_of_open_files_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda what: (100, 150))
    expected = r"^6 connections in one process need 206 open files, the hard limit is 150: raise it with `ulimit -Hn"
    with pytest.raises(FakebrokerError, match=expected):
        MemberLoop(scripts_of(GROUPS, 2), [("127.0.0.1", 1)], lambda event: None, lambda tally: None)


def test_connections_are_counted_for_members_that_run_at_the_same_time() -> None:
    one_after_the_other = [
        script("one", f"one-{index}", Act(index * 10_000.0, "start"), Act(index * 10_000.0 + 1, "crash"))
        for index in range(3)
    ]
    assert max_concurrent(one_after_the_other) == 1
    assert max_concurrent(scripts_of(GROUPS, 2)) == 6
    assert max_concurrent([]) == 0
