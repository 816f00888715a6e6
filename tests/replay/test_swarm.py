"""The members of one task, without Spark: real sockets, a fake cluster in the same process."""

import time

import pytest
import trio

from fakebroker.client.connection import BrokerUnreachable, Connection
from fakebroker.protocol.messages.find_coordinator import FindCoordinatorRequest
from fakebroker.protocol.schema import Message
from fakebroker.replay.bootstrap import addresses
from fakebroker.replay.events import Event
from fakebroker.replay.player import Script
from fakebroker.replay.progress import Tally
from fakebroker.replay.swarm import Swarm
from fakebroker.server.fake_cluster import FakeCluster

LEAVE_MS = 600.0
SCRIPTS = [
    Script(group, f"{group}-{index}", 0, LEAVE_MS, ("orders",), "range", 6_000, 6_000, 100, 150)
    for group in ("one", "two", "three")
    for index in range(2)
]


class Played:
    """What came of playing the scripts."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.tallies: list[Tally] = []

    def swarm(self, bootstrap: str) -> Swarm:
        return Swarm(SCRIPTS, addresses(bootstrap), time.time(), self.events.append, self.tallies.append)

    def of(self, api: str) -> list[Event]:
        return [event for event in self.events if event.api == api]


def play() -> Played:
    played = Played()

    async def main() -> None:
        async with FakeCluster(brokers=2, topics={"orders": 4}) as cluster:
            await played.swarm(cluster.bootstrap_servers).run()

    trio.run(main)
    return played


def test_each_request_is_an_event() -> None:
    played = play()
    assert {event.api for event in played.events} == {
        *("FindCoordinator", "JoinGroup", "Metadata", "SyncGroup"),
        *("OffsetFetch", "Heartbeat", "OffsetCommit", "LeaveGroup"),
    }
    for event in played.events:
        assert event.scheduled_us <= event.sent_us
        assert event.latency_us is not None
        assert event.sent_us - event.scheduled_us <= event.latency_us
        assert event.broker in (1, 2)
        assert event.error in (0, 27, 79)
    assert sorted(event.member or "" for event in played.of("LeaveGroup")) == sorted(s.member for s in SCRIPTS)
    assert played.tallies[-1].requests == len(played.events)
    assert played.tallies[-1].errors == 0


def test_assignments_are_in_the_events() -> None:
    played = play()
    last = max(event.generation or 0 for event in played.of("SyncGroup") if event.group == "one")
    assigned = [e.assigned for e in played.of("SyncGroup") if (e.group, e.generation, e.error) == ("one", last, 0)]
    assert sorted(map(str, assigned)) == ["['orders-0', 'orders-1']", "['orders-2', 'orders-3']"]


def test_look_ups_of_one_moment_go_out_together() -> None:
    (event,) = play().of("FindCoordinator")
    assert (event.lookups, event.group, event.member) == (3, None, None)


def test_a_broker_that_takes_one_group_a_request_is_asked_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    newest = Connection.version_for

    def version_for(self: Connection, request: type[Message]) -> int:
        return 3 if request is FindCoordinatorRequest else newest(self, request)

    monkeypatch.setattr(Connection, "version_for", version_for)
    events = play().of("FindCoordinator")
    assert {(event.version, event.lookups, event.group) for event in events} == {
        (3, 1, "one"),
        (3, 1, "two"),
        (3, 1, "three"),
    }
    assert len(events) == 3


def test_a_cluster_that_goes_away_is_in_the_events_and_the_swarm_still_ends() -> None:
    played = Played()

    async def main() -> None:
        async with trio.open_nursery() as nursery, FakeCluster(brokers=2, topics={"orders": 4}) as cluster:
            nursery.start_soon(played.swarm(cluster.bootstrap_servers).run)
            while not played.of("OffsetCommit"):
                await trio.lowlevel.checkpoint()

    trio.run(main)
    unanswered = [event for event in played.events if event.latency_us is None]
    assert unanswered
    assert all(event.error is None for event in unanswered)
    assert played.tallies[-1].errors == len(unanswered)


def test_a_cluster_that_is_not_there_is_told_at_once() -> None:
    with pytest.raises(ExceptionGroup) as caught:
        trio.run(Played().swarm("127.0.0.1:1").run)
    assert caught.group_contains(BrokerUnreachable, match=r"^broker 127\.0\.0\.1:1 cannot be reached")
