"""The members of one task, without Spark: real sockets, a fake cluster in a thread of its own."""

import resource
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

import pytest

from fakebroker.client.errors import BrokerUnreachable, UnsupportedVersion
from fakebroker.errors import FakebrokerError
from fakebroker.replay.members.bootstrap import addresses
from fakebroker.replay.members.events import Event
from fakebroker.replay.members.member_loop import LoopSettings, MemberLoop, max_concurrent
from fakebroker.replay.script.script import Act, Script
from fakebroker.replay.spark.progress import Tally
from fakebroker.replay.workload.loads import Load
from fakebroker.server.clock import Scaled
from fakebroker.server.fake_cluster import FakeCluster

GROUPS = ("one", "two", "three")
ALL_APIS = {
    *("FindCoordinator", "JoinGroup", "Metadata", "SyncGroup"),
    *("OffsetFetch", "Heartbeat", "OffsetCommit", "LeaveGroup"),
}
WAYS = [None, 1]
"""Own connections, and one lane for all."""

SPEED = 3
"""How many times as fast as real time the clusters and the members of these tests are."""


def script(group: str, member: str, *acts: Act, heartbeat_ms: int = 100, session_ms: int = 6_000) -> Script:
    return Script(
        *("all", group, member, None, ("orders",), "range"),
        *(session_ms, session_ms, heartbeat_ms, 150, 50.0, acts),
    )


def scripts_of(groups: Iterable[str], members: int, leave_ms: float = 3_000.0, step_ms: float = 0.0) -> list[Script]:
    """Members that come one after the other and leave together."""
    return [
        script(group, f"{group}-{index}", Act(index * step_ms, "start"), Act(leave_ms, "leave"))
        for group in groups
        for index in range(members)
    ]


class Played:
    """What comes of playing scripts; `on_event` and `on_report` may do something meanwhile."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.tallies: list[Tally] = []
        self.on_event: Callable[[Event], None] = lambda event: None
        self.on_report: Callable[[], object] = lambda: None

    def play(
        self,
        bootstrap: str,
        scripts: list[Script],
        settings: LoopSettings | None = None,
        loads: Iterable[tuple[Load, Mapping[str, Sequence[str]]]] = (),
    ) -> "Played":
        settings = settings or LoopSettings(speed=SPEED)
        self.loop = MemberLoop(scripts, addresses(bootstrap), self.take, self.report, settings, tuple(loads))
        self.loop.connect()
        self.loop.play(time.time())
        return self

    def take(self, event: Event) -> None:
        self.events.append(event)
        self.on_event(event)

    def report(self, tally: Tally) -> None:
        self.tallies.append(replace(tally))
        self.on_report()

    def of(self, api: str) -> list[Event]:
        return [event for event in self.events if event.api == api]

    def requests(self) -> list[Event]:
        return [event for event in self.events if event.kind == "request"]

    def once(self, api: str, do: Callable[[], object]) -> None:
        """Do something when the first such request has been answered."""

        def look(event: Event) -> None:
            if event.api == api:
                self.on_event = lambda event: None
                do()

        self.on_event = look


def cluster_of(**options: object) -> FakeCluster:
    return FakeCluster(**{"brokers": 2, "topics": {"orders": 4}, "clock": Scaled(SPEED), **options})  # type: ignore[arg-type]  # plain options


@pytest.mark.parametrize("lanes", WAYS)
def test_each_request_is_an_event(lanes: int | None) -> None:
    with cluster_of() as cluster:
        played = Played().play(cluster.bootstrap_servers, scripts_of(GROUPS, 2), LoopSettings(lanes=lanes, speed=SPEED))
    assert {event.api for event in played.requests()} == ALL_APIS
    for event in played.requests():
        assert event.scheduled_us <= event.sent_us
        assert event.latency_us is not None
        assert event.sent_us - event.scheduled_us <= event.latency_us
        assert event.broker in (1, 2)
        assert event.error in (0, 27, 79)
    assert sorted(event.member or "" for event in played.of("LeaveGroup")) == sorted(
        each.member for each in scripts_of(GROUPS, 2)
    )
    assert played.tallies[-1].requests == len(played.requests())
    assert played.tallies[-1].errors == 0


@pytest.mark.parametrize("lanes", WAYS)
def test_assignments_are_in_the_events(lanes: int | None) -> None:
    with cluster_of() as cluster:
        played = Played().play(cluster.bootstrap_servers, scripts_of(GROUPS, 2), LoopSettings(lanes=lanes, speed=SPEED))
    last = max(event.generation or 0 for event in played.of("SyncGroup") if event.group == "one")
    assigned = [e.assigned for e in played.of("SyncGroup") if (e.group, e.generation, e.error) == ("one", last, 0)]
    assert sorted(map(str, assigned)) == ["['orders-0', 'orders-1']", "['orders-2', 'orders-3']"]


def test_look_ups_of_one_moment_go_out_together() -> None:
    with cluster_of() as cluster:
        played = Played().play(cluster.bootstrap_servers, scripts_of(GROUPS, 2))
    (event,) = played.of("FindCoordinator")
    assert (event.lookups, event.group, event.member) == (3, None, None)
    assert event.found == [(group, cluster.coordinator_of(group).node_id, 0, False) for group in GROUPS]


@pytest.mark.parametrize(("release", "find_version"), [("0.10.2", 0), ("2.8", 3), ("3.0", 4)])
@pytest.mark.parametrize("lanes", [None, 1])
def test_older_brokers_are_spoken_to_in_their_versions(release: str, find_version: int, lanes: int | None) -> None:
    with cluster_of(as_version=release) as cluster:
        played = Played().play(cluster.bootstrap_servers, scripts_of(GROUPS, 2), LoopSettings(lanes=lanes, speed=SPEED))
    assert {event.api for event in played.requests()} == ALL_APIS
    assert {event.version for event in played.of("FindCoordinator")} == {find_version}
    asked = [event.group for event in played.of("FindCoordinator")]
    assert asked == ([None] if find_version >= 4 else list(GROUPS))
    assert played.tallies[-1].errors == 0
    assert all(event.error == 0 for event in played.of("LeaveGroup"))


def test_a_broker_that_lacks_what_members_need_is_told_of() -> None:
    expected = r"^Heartbeat: broker .* supports no version, this client 0-4"
    with cluster_of(api_versions={"Heartbeat": None}) as cluster, pytest.raises(UnsupportedVersion, match=expected):
        Played().play(cluster.bootstrap_servers, scripts_of(GROUPS, 1))


def test_a_cluster_that_is_not_there_is_told_at_once() -> None:
    with pytest.raises(BrokerUnreachable, match=r"^broker 127\.0\.0\.1:1 cannot be reached: Connection refused"):
        Played().play("127.0.0.1:1", scripts_of(GROUPS, 1))


def test_the_first_broker_that_answers_is_asked() -> None:
    with cluster_of() as cluster:
        played = Played().play(f"127.0.0.1:1,{cluster.bootstrap_servers}", scripts_of(GROUPS, 1))
    assert played.tallies[-1].errors == 0
    assert played.of("LeaveGroup")


@pytest.mark.parametrize("lanes", WAYS)
def test_members_follow_their_coordinator_when_its_broker_goes_down(lanes: int | None) -> None:
    played = Played()
    with cluster_of() as cluster:
        first = cluster.coordinator_of("one").node_id
        played.once("OffsetCommit", lambda: cluster.stop_broker(first))
        played.play(
            cluster.bootstrap_servers, scripts_of(GROUPS, 2, leave_ms=6_000), LoopSettings(lanes=lanes, speed=SPEED)
        )
    beats = [event for event in played.of("Heartbeat") if event.group == "one"]
    assert beats[-1].broker == 3 - first
    assert beats[-1].error == 0
    assert {event.error for event in played.of("LeaveGroup")} == {0}
    found = [each for event in played.of("FindCoordinator") for each in event.found or () if each[0] == "one"]
    assert (found[0], found[-1]) == (("one", first, 0, False), ("one", 3 - first, 0, True))


@pytest.mark.parametrize("lanes", WAYS)
def test_a_cluster_that_goes_away_and_comes_back(lanes: int | None) -> None:
    played = Played()
    with cluster_of() as cluster:

        def go_away() -> None:
            for node_id in (1, 2):
                cluster.stop_broker(node_id)
            played.on_report = come_back

        def come_back() -> None:
            if played.tallies[-1].joined == 0:
                played.on_report = lambda: None
                for node_id in (1, 2):
                    cluster.start_broker(node_id)

        played.once("OffsetCommit", go_away)
        played.play(
            cluster.bootstrap_servers, scripts_of(GROUPS, 2, leave_ms=6_000), LoopSettings(lanes=lanes, speed=SPEED)
        )
    gone = next(number for number, tally in enumerate(played.tallies) if tally.joined == 0 and tally.requests > 40)
    assert any(tally.joined == 6 for tally in played.tallies[gone:])
    assert [event.error for event in played.of("LeaveGroup")] == [0] * 6


def test_a_cluster_that_goes_away_is_in_the_events_and_the_loop_still_ends() -> None:
    played = Played()
    with cluster_of() as cluster:

        def go_away() -> None:
            for node_id in (1, 2):
                cluster.stop_broker(node_id)

        played.once("OffsetCommit", go_away)
        settings = LoopSettings(closed_loop=True, speed=SPEED)
        played.play(cluster.bootstrap_servers, scripts_of(GROUPS, 2, leave_ms=6_000), settings)
    unanswered = [event for event in played.requests() if event.latency_us is None]
    assert unanswered
    assert all(event.error is None and event.lost for event in unanswered)
    assert played.tallies[-1].errors == len(unanswered)


def test_lanes_are_few_connections_and_rounds_use_theirs_again() -> None:
    groups = [f"group-{number}" for number in range(20)]
    with cluster_of(brokers=1) as cluster:
        played = Played().play(
            cluster.bootstrap_servers,
            scripts_of(groups, 3, leave_ms=6_000, step_ms=600),
            LoopSettings(lanes=2, speed=SPEED),
        )
        assert len({call.connection_id for call in cluster.requests("Heartbeat")}) == 2
        joins = Counter(call.connection_id for call in cluster.requests("JoinGroup"))
    assert max(joins.values()) > 2
    assert played.tallies[-1].errors == 0
    assert max(tally.joined for tally in played.tallies) == 60


def test_groups_that_share_a_lane_may_all_rebalance_at_once() -> None:
    groups = [f"group-{number}" for number in range(50)]
    patient = {"heartbeat_ms": 3_000, "session_ms": 300_000}
    scripts = [script(group, f"{group}-{index}", Act(0, "start"), **patient) for group in groups for index in range(5)]
    scripts += [script(group, f"{group}-late", Act(3_000, "start"), **patient) for group in groups]
    played = Played()

    def stop_when_all_have_joined() -> None:
        if played.tallies[-1].joined == 300:
            played.loop.stop()

    played.on_report = stop_when_all_have_joined
    with cluster_of() as cluster:
        played.play(cluster.bootstrap_servers, scripts, LoopSettings(lanes=1, speed=SPEED, duration_s=100))
    assert played.tallies[-1].joined == 300
    assert {event.error for event in played.requests()} <= {0, 27, 79, None}  # None: on its way at the end


def test_a_closed_loop_sends_as_fast_as_it_is_answered() -> None:
    with cluster_of() as cluster:
        played = Played().play(
            cluster.bootstrap_servers, scripts_of(GROUPS, 1), LoopSettings(closed_loop=True, speed=SPEED)
        )
    assert len(played.of("Heartbeat")) > 3 * 20  # a member's heartbeats would be 6 else
    assert played.tallies[-1].errors == 0


def test_a_faster_clock_is_in_the_events() -> None:
    members = [script("one", "one-0", Act(0, "start"), Act(20_000, "leave"), heartbeat_ms=3_000, session_ms=10_000)]
    with cluster_of(clock=Scaled(20)) as cluster:
        played = Played().play(cluster.bootstrap_servers, members, LoopSettings(speed=20))
    assert played.tallies[-1].errors == 0
    beats = played.of("Heartbeat")
    assert 5 <= len(beats) <= 7
    assert beats[-1].scheduled_us - beats[0].scheduled_us >= (len(beats) - 1) * 2_900_000


def test_who_never_leaves_is_stopped_at_the_end() -> None:
    members = [script("one", "one-0", Act(0, "start"))]
    with cluster_of(clock=Scaled(20)) as cluster:
        played = Played().play(cluster.bootstrap_servers, members, LoopSettings(speed=20, duration_s=5))
    assert played.of("Heartbeat")
    assert not played.of("LeaveGroup")


def test_who_crashed_comes_back_as_somebody_new() -> None:
    acts = (Act(0, "start"), Act(300, "crash"), Act(400, "start"), Act(1_500, "leave"))
    with cluster_of(config={"group.min.session.timeout.ms": 100}) as cluster:
        played = Played().play(cluster.bootstrap_servers, [script("one", "one-0", *acts, session_ms=400)])
    assert len({event.member_id for event in played.of("JoinGroup") if event.error == 0}) == 2
    assert [event.api for event in played.events if event.kind == "act"] == ["start", "crash", "start", "leave"]


def test_too_few_files_are_told_of_in_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda what: (100, 150))
    expected = r"^6 connections in one process need 206 open files, the hard limit is 150: raise it with `ulimit -Hn"
    with pytest.raises(FakebrokerError, match=expected):
        MemberLoop(scripts_of(GROUPS, 2), [("127.0.0.1", 1)], lambda event: None, lambda tally: None)


def test_only_those_that_are_there_at_once_need_a_connection() -> None:
    one_after_the_other = [
        script("one", f"one-{index}", Act(index * 10_000.0, "start"), Act(index * 10_000.0 + 1, "crash"))
        for index in range(3)
    ]
    assert max_concurrent(one_after_the_other) == 1
    assert max_concurrent(scripts_of(GROUPS, 2)) == 6
    assert max_concurrent([]) == 0
