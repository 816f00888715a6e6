"""SyncGroup: assignments handed in and handed out."""

from fakebroker.coordinator.group.api import SyncResult
from fakebroker.errors import ErrorCode
from tests.support.coordinator.coordinator_harness import CoordinatorHarness, protocols

CHANGED = protocols("range", "roundrobin")


def assigned(assignment: bytes) -> SyncResult:
    return SyncResult(ErrorCode.NONE, "consumer", "range", assignment)


def test_all_are_answered_with_the_leaders_sync_in_order_of_arrival() -> None:
    driver = CoordinatorHarness()
    leader, second, third = driver.complete(3)
    calls = [driver.sync(member_id, 1) for member_id in (third, second)]
    assert all(call.is_parked for call in calls)
    calls.append(driver.sync(leader, 1, [(leader, b"1"), (second, b"2"), (third, b"3")]))
    assert driver.answered[-3:] == calls
    assert [call.result for call in calls] == [assigned(b"3"), assigned(b"2"), assigned(b"1")]


def test_members_without_an_assignment_get_an_empty_one_and_strangers_none() -> None:
    driver = CoordinatorHarness()
    leader, follower = driver.complete()
    parked = driver.sync(follower, 1)
    driver.sync(leader, 1, [("stranger", b"x"), (leader, b"1")])
    assert parked.result == assigned(b"")
    assert "stranger" not in driver.group().members


def test_an_assignment_does_not_reach_into_the_next_generation() -> None:
    driver = CoordinatorHarness()
    leader, follower = driver.stable()
    driver.join(leader)
    driver.join(follower)
    driver.sync(leader, 2, [(leader, b"1")])
    assert driver.sync(follower, 2).result == assigned(b"")


def test_what_a_follower_hands_in_is_ignored() -> None:
    driver = CoordinatorHarness()
    leader, follower = driver.complete()
    parked = driver.sync(follower, 1, [(follower, b"mine")])
    driver.sync(leader, 1, [(follower, b"yours")])
    assert parked.synced.assignment == b"yours"


def test_in_a_stable_group_everybody_gets_what_is_stored_whatever_the_leader_hands_in() -> None:
    driver = CoordinatorHarness()
    leader, follower = driver.stable()
    assert driver.sync(leader, 1, [(leader, b"new"), (follower, b"new")]).result == assigned(leader.encode())
    assert driver.sync(follower, 1).result == assigned(follower.encode())


def test_the_last_of_several_assignments_for_one_member_counts() -> None:
    driver = CoordinatorHarness()
    (leader,) = driver.complete(1)
    assert driver.sync(leader, 1, [(leader, b"old"), (leader, b"new")]).result == assigned(b"new")


def test_a_second_sync_takes_the_place_of_the_first() -> None:
    driver = CoordinatorHarness()
    leader, follower = driver.complete()
    first, second = driver.sync(follower, 1), driver.sync(follower, 1)
    driver.sync(leader, 1)
    assert first.is_parked
    assert second.result == assigned(b"")


def test_a_new_round_gives_up_the_generation() -> None:
    driver = CoordinatorHarness()
    leader, follower = driver.complete()
    parked = driver.sync(follower, 1)
    driver.join()
    assert parked.result == SyncResult(ErrorCode.REBALANCE_IN_PROGRESS)
    assert driver.sync(leader, 1).result == SyncResult(ErrorCode.REBALANCE_IN_PROGRESS)


def test_assignments_outlive_a_stable_generation_but_not_one_that_was_given_up() -> None:
    driver = CoordinatorHarness()
    leader, follower = driver.stable()
    driver.join(leader)
    assert driver.group().members[follower].assignment == follower.encode()
    driver.join(follower)
    assert driver.group().members[follower].assignment == follower.encode()
    driver.join(leader, protocols=CHANGED)
    assert driver.group().members[follower].assignment == b""


def test_what_is_given_of_the_protocol_must_match() -> None:
    driver = CoordinatorHarness()
    leader, follower = driver.complete()
    assert driver.sync(follower, 1, protocol_type="consumer", protocol_name="range").is_parked
    inconsistent = SyncResult(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    assert driver.sync(leader, 1, protocol_type="connect", protocol_name="range").result == inconsistent
    assert driver.sync(leader, 1, protocol_type="consumer", protocol_name="sticky").result == inconsistent


def test_the_empty_group_id_is_refused() -> None:
    assert CoordinatorHarness().sync("x", 1, group_id="").result == SyncResult(ErrorCode.INVALID_GROUP_ID)
