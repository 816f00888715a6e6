"""Runs of options 1.a, 1.b and 1.c with failures of members, connections and brokers, and what is lost by them."""

import pytest

from fakebroker.lab.script import BrokerDo, BrokerEvent, MemberDo, MemberEvent, TopicEvent
from fakebroker.lab.world.world import World
from tests.support.lab.runs import (
    BROKERS,
    TOPIC,
    Event,
    coordinator_of,
    double_ms,
    is_complete,
    owners,
    play,
    rebalances,
    starts,
)

OPTIONS = ("option-1a", "option-1b", "option-1c")
STOPPING = ("option-1b", "option-1c")
AT_MS = 100_000.0
HEARTBEAT_MS, SESSION_MS = 3_000, 45_000


def after(design: str, *events: Event, size: int = 3, duration_ms: float = 600_000.0) -> World:
    """Play events after a group of members has become steady."""
    world = play(design, [*starts(range(size)), *events], size=size, duration_ms=duration_ms)
    assert all(
        each.until_ms is not None for each in world.ownership.rebalances if each.from_ms < world.start_ms + AT_MS
    )
    return world


def latency_ms(world: World) -> float:
    """Return the time until the group was complete again after `AT_MS`."""
    (rebalance,) = rebalances(world, AT_MS)
    assert rebalance.until_ms is not None
    return rebalance.until_ms - rebalance.from_ms


def member_event(do: MemberDo, for_ms: float = 0.0, extra_ms: float = 0.0) -> MemberEvent:
    return MemberEvent(AT_MS, 0, do, for_ms, extra_ms)


def skipped_records(world: World) -> int:
    return world.ownership.repeated_and_lost()[1]


@pytest.mark.parametrize("design", OPTIONS)
def test_a_group_starts(design: str) -> None:
    world = play(design, starts(range(3)), duration_ms=60_000.0)
    assert is_complete(world)
    assert sorted(map(len, owners(world).values())) == [2, 2, 2]
    assert double_ms(world) == 0
    assert world.failures.errors == {}


@pytest.mark.parametrize(
    ("design", "most_ms"), [("option-1a", HEARTBEAT_MS + 100), ("option-1b", 50), ("option-1c", 50)]
)
def test_a_member_joins(design: str, most_ms: float) -> None:
    """Option 1.a waits for the next ping of the other members."""
    world = play(design, [*starts(range(3)), MemberEvent(AT_MS, 3, "start")], size=4)
    assert latency_ms(world) <= most_ms
    assert len(owners(world)) == 4
    assert double_ms(world) == 0
    assert skipped_records(world) == 0


@pytest.mark.parametrize(
    ("design", "least_ms", "most_ms"),
    [
        ("option-1a", SESSION_MS - HEARTBEAT_MS, SESSION_MS + HEARTBEAT_MS),  # It notices missing pings only.
        ("option-1b", 0, 50),  # The connection is closed.
        ("option-1c", 0, 50),
    ],
)
@pytest.mark.parametrize("do", ["crash", "leave"])
def test_a_member_ends(design: str, do: MemberDo, least_ms: float, most_ms: float) -> None:
    world = after(design, member_event(do))
    assert least_ms <= latency_ms(world) <= most_ms
    assert sorted(owners(world)) == [1, 2]
    assert len(world.failures.noticed_ms) == (do == "crash")
    assert world.failures.mistakes == 0
    assert skipped_records(world) == 0


@pytest.mark.parametrize(
    ("design", "least_ms", "most_ms"),
    [
        ("option-1a", SESSION_MS - HEARTBEAT_MS, SESSION_MS + HEARTBEAT_MS),
        ("option-1b", SESSION_MS, 2 * SESSION_MS),  # A ping is sent after the failure, and expires.
        ("option-1c", SESSION_MS - HEARTBEAT_MS, SESSION_MS),
    ],
)
def test_a_member_vanishes(design: str, least_ms: float, most_ms: float) -> None:
    world = after(design, member_event("vanish"))
    assert least_ms <= latency_ms(world) <= most_ms + 50
    assert sorted(owners(world)) == [1, 2]
    assert len(world.failures.noticed_ms) == 1
    assert skipped_records(world) == 0


@pytest.mark.parametrize("design", OPTIONS)
def test_a_member_pauses_for_less_than_a_session(design: str) -> None:
    world = after(design, member_event("pause", for_ms=SESSION_MS / 2))
    assert world.failures.mistakes == 0
    assert rebalances(world, AT_MS) == []
    assert is_complete(world)


@pytest.mark.parametrize("design", OPTIONS)
def test_a_member_pauses_for_longer_than_a_session(design: str) -> None:
    """It is removed, and its partitions have two owners until it notices."""
    world = after(design, member_event("pause", for_ms=2.5 * SESSION_MS))
    assert world.failures.mistakes == 1
    assert double_ms(world) > 0
    assert is_complete(world)
    assert sorted(owners(world)) == [0, 1, 2]
    assert skipped_records(world) == 0


@pytest.mark.parametrize("design", OPTIONS)
@pytest.mark.parametrize("do", ["cut", "lose_request", "lose_response"])
def test_a_connection_breaks(design: str, do: MemberDo) -> None:
    """Options 1.b and 1.c remove the member, although it runs."""
    world = after(design, member_event(do))
    assert is_complete(world)
    assert world.failures.mistakes == (design != "option-1a")
    assert skipped_records(world) == 0


@pytest.mark.parametrize("design", OPTIONS)
def test_messages_are_slow(design: str) -> None:
    world = after(design, member_event("slow", for_ms=100_000.0, extra_ms=2_000.0))
    assert world.failures.mistakes == 0
    assert is_complete(world)


@pytest.mark.parametrize("design", OPTIONS)
@pytest.mark.parametrize("do", ["stop", "vanish"])
def test_a_broker_without_the_group_ends(design: str, do: BrokerDo) -> None:
    world = after(design, BrokerEvent(AT_MS, 1 + coordinator_of(0) % BROKERS, do))
    assert rebalances(world, AT_MS) == []
    assert is_complete(world)


@pytest.mark.parametrize("design", OPTIONS)
def test_the_coordinator_stops(design: str) -> None:
    world = after(design, BrokerEvent(AT_MS, coordinator_of(0), "stop"))
    assert latency_ms(world) <= HEARTBEAT_MS + 500
    assert is_complete(world)
    assert world.failures.mistakes == 0
    assert skipped_records(world) == 0


@pytest.mark.parametrize(("design", "sessions"), [("option-1a", 1), ("option-1b", 2), ("option-1c", 1)])
def test_the_coordinator_vanishes(design: str, sessions: int) -> None:
    """Members notice after one session timeout, with pings of the coordinator after two."""
    world = after(design, BrokerEvent(AT_MS, coordinator_of(0), "vanish"))
    assert (sessions - 1) * SESSION_MS <= latency_ms(world) <= sessions * SESSION_MS + 20_000
    assert is_complete(world)
    assert world.failures.mistakes == 0
    assert skipped_records(world) == 0


@pytest.mark.parametrize("design", OPTIONS)
def test_partitions_are_added(design: str) -> None:
    world = after(design, TopicEvent(AT_MS, TOPIC, 9))
    assert sorted(map(len, owners(world).values())) == [3, 3, 3]
    assert latency_ms(world) <= HEARTBEAT_MS + 100
    assert double_ms(world) == 0
    assert skipped_records(world) == 0


# What the designs lose


def test_option_1a_repeats_records_after_each_failover() -> None:
    """The first member to register gets all partitions, before the others have reported their consumed offsets."""
    world = after("option-1a", BrokerEvent(AT_MS, coordinator_of(0), "stop"))
    assert world.ownership.repeated_and_lost()[0] > 0


@pytest.mark.parametrize("design", STOPPING)
def test_a_failover_that_members_notice_at_different_times_causes_two_owners(design: str) -> None:
    """Members go on fetching until the new coordinator stops them, and it knows only those that have registered."""
    events = [*starts(range(5), every_ms=700.0), BrokerEvent(AT_MS, coordinator_of(0), "vanish")]
    world = play(design, events, size=5)
    assert double_ms(world) > 10_000
    assert is_complete(world)


PAUSE = member_event("pause", for_ms=12_000.0)
"""Longer than a phase of a rebalance, shorter than a session."""


@pytest.mark.parametrize("design", STOPPING)
def test_a_pause_during_a_rebalance_stops_the_group_forever(design: str) -> None:
    """A failed rebalance is not repeated, and the members that have stopped are not started again."""
    world = play(design, [*starts(range(3)), PAUSE, MemberEvent(AT_MS + 500, 3, "start")], size=4)
    assert not any(owners(world).values())
    assert world.failures.mistakes == 0
    (last,) = rebalances(world, AT_MS)
    assert (last.cause, last.until_ms) == ("start", None)


@pytest.mark.parametrize("design", STOPPING)
def test_another_change_starts_a_stopped_group_unless_the_registered_ownership_fits(design: str) -> None:
    """If the newcomer ends again, the new assignment is the registered one: a rebalance seems not to be necessary."""
    joined = [*starts(range(3)), PAUSE, MemberEvent(AT_MS + 500, 3, "start")]
    assert is_complete(play(design, [*joined, TopicEvent(2 * AT_MS, TOPIC, 7)], size=4))
    world = play(design, [*joined, MemberEvent(2 * AT_MS, 3, "crash")], size=4)
    assert not any(owners(world).values())
    assert not is_complete(world)


@pytest.mark.parametrize("design", STOPPING)
def test_rebalances_of_other_groups_wait_for_paused_members(design: str) -> None:
    """Each of a coordinator's four threads waits 10 s for a paused member before it rebalances the next group."""
    groups, size = 40, 2
    events: list[Event] = [*starts(range(groups * size), every_ms=10.0), TopicEvent(AT_MS + 500, TOPIC, 8)]
    events += [MemberEvent(AT_MS, group * size, "pause", 40_000.0) for group in range(0, groups, 2)]
    world = play(design, events, groups=groups, size=size)
    taken = {each.group_id: each for each in rebalances(world, AT_MS)}
    healthy = [taken[f"g-{group}"] for group in range(1, groups, 2)]
    assert max(each.until_ms - each.from_ms for each in healthy if each.until_ms is not None) > 9_000
    assert all(each.until_ms is not None for each in healthy)
    assert all(taken[f"g-{group}"].until_ms is None for group in range(0, groups, 2))


def test_option_1a_and_the_others_differ_in_requests() -> None:
    """In ten quiet minutes, option 1.b has one ping each session timeout, the others one each heartbeat interval."""
    pings = {}
    for design, kind in zip(OPTIONS, ("PingRequest", "CoordinatorPingRequest", "PingRequest"), strict=True):
        world = play(design, starts([0]), size=1)
        pings[design] = world.traffic.by_kind[kind].messages
    assert pings == {"option-1a": 199, "option-1b": 13, "option-1c": 199}
