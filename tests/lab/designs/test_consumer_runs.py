"""The design `consumer` in runs: what its members and its coordinator do differently from the classic protocol."""

import pytest

from fakebroker.lab.script import BrokerEvent, MemberDo, MemberEvent, TopicEvent
from tests.support.lab.runs import TOPIC, coordinator_of, double_ms, is_complete, owners, play, rebalances, starts

AT_MS = 200_000.0
HEARTBEAT_MS, SESSION_MS = 3_000, 45_000


def test_members_that_stay_consume_while_another_one_joins() -> None:
    joins = MemberEvent(AT_MS, 3, "start")
    found = {design: play(design, [*starts(range(3)), joins], size=4) for design in ("classic", "consumer")}
    unowned_ms = {}
    for design, world in found.items():
        assert is_complete(world)
        assert sorted(len(each) for each in owners(world).values()) == [1, 1, 2, 2]
        unowned_ms[design] = world.ownership.groups["g-0"].unowned_ms
    assert double_ms(found["consumer"]) == 0
    assert unowned_ms["consumer"] < unowned_ms["classic"] / 3
    last = rebalances(found["consumer"], AT_MS)[-1]
    # The owners of what moves learn it with their next heartbeats, the new member with the one after.
    assert 0 < (last.until_ms or 0) - found["consumer"].start_ms - AT_MS < 2 * HEARTBEAT_MS + 1_000


@pytest.mark.parametrize(
    ("do", "least_ms", "most_ms"),
    [("leave", 0, HEARTBEAT_MS + 1_000), ("crash", SESSION_MS - HEARTBEAT_MS, SESSION_MS + HEARTBEAT_MS)],
)
def test_a_member_leaves_with_a_message_and_is_missed_after_a_session(
    do: MemberDo, least_ms: int, most_ms: int
) -> None:
    world = play("consumer", [*starts(range(3)), MemberEvent(AT_MS, 0, do)])
    assert is_complete(world)
    assert sorted(owners(world)) == [1, 2]
    (rebalance,) = rebalances(world, AT_MS)
    assert least_ms <= (rebalance.until_ms or 0) - rebalance.from_ms <= most_ms
    assert world.failures.mistakes == 0


def test_new_partitions_are_assigned_at_the_next_heartbeats() -> None:
    world = play("consumer", [*starts(range(3)), TopicEvent(AT_MS, TOPIC, 9)])
    assert is_complete(world)
    assert [len(each) for each in owners(world).values()] == [3, 3, 3]
    (rebalance,) = rebalances(world, AT_MS)
    assert (rebalance.until_ms or 0) - rebalance.from_ms < 2 * HEARTBEAT_MS


def test_members_keep_their_partitions_while_the_coordinator_moves() -> None:
    fails = BrokerEvent(AT_MS, coordinator_of(0), "stop")
    before, after = play("consumer", starts(range(3))), play("consumer", [*starts(range(3)), fails])
    assert is_complete(after)
    assert owners(after) == owners(before)
    groups = [world.ownership.groups["g-0"] for world in (before, after)]
    assert groups[1].unowned_ms == groups[0].unowned_ms
    assert double_ms(after) == 0


def test_a_member_that_was_removed_during_a_pause_joins_again() -> None:
    world = play("consumer", [*starts(range(3)), MemberEvent(AT_MS, 1, "pause", 60_000.0)])
    assert is_complete(world)
    assert len(owners(world)[1]) == 2
    assert world.failures.mistakes == 1
