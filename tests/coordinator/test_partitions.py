"""Which groups a coordinator has, and what happens when it hands them over."""

from fakebroker.coordinator.group.api import JoinResult, SyncResult
from fakebroker.coordinator.group.classic.states import GroupState
from fakebroker.coordinator.runtime.placement import partition_for
from fakebroker.errors import ErrorCode
from tests.support.coordinator.coordinator_harness import DELAY_MS, CoordinatorHarness, result_of

NOT_COORDINATOR = ErrorCode.NOT_COORDINATOR
PARTITION = partition_for("g", 50)


def test_a_group_of_another_broker_is_refused_everywhere() -> None:
    driver = CoordinatorHarness()
    driver.coordinator.resign(PARTITION, driver.now_ms)
    coordinator, now_ms = driver.coordinator, driver.now_ms
    assert coordinator.error_for("g") is NOT_COORDINATOR
    assert coordinator.error_for("a") is ErrorCode.NONE
    assert driver.join().result == JoinResult(NOT_COORDINATOR)
    assert driver.sync("x", 1).result == SyncResult(NOT_COORDINATOR)
    assert driver.heartbeat("x", 1) is NOT_COORDINATOR
    assert driver.commit() is NOT_COORDINATOR
    assert driver.commit("x", 1) is NOT_COORDINATOR
    assert result_of(coordinator.leave_group, "g", [("x", None)], now_ms) == (NOT_COORDINATOR, [])
    assert coordinator.fetch_offsets("g", None, now_ms) == (NOT_COORDINATOR, [])
    assert result_of(coordinator.delete_offsets, "g", [("t", 0)]) == (NOT_COORDINATOR, [])
    assert result_of(coordinator.delete_group, "g", now_ms) is NOT_COORDINATOR
    assert driver.state() == "-"


def test_parked_joins_are_told_with_their_own_ids() -> None:
    driver = CoordinatorHarness()
    calls = [driver.join(client_id=name) for name in "ab"]
    driver.coordinator.resign(PARTITION, driver.now_ms)
    driver.settle()
    assert [call.result for call in calls] == [
        JoinResult(NOT_COORDINATOR, member_id="a-uuid1"),
        JoinResult(NOT_COORDINATOR, member_id="b-uuid2"),
    ]


def test_parked_syncs_are_told() -> None:
    driver = CoordinatorHarness()
    _, follower = driver.complete()
    call = driver.sync(follower, 1)
    driver.coordinator.resign(PARTITION, driver.now_ms)
    driver.settle()
    assert call.result == SyncResult(NOT_COORDINATOR)


def test_nothing_is_left_of_the_groups_and_others_stay() -> None:
    driver = CoordinatorHarness()
    driver.stable()
    group = driver.group()
    driver.commit(group_id="other")
    driver.coordinator.resign(PARTITION, driver.now_ms)
    assert group.state is GroupState.DEAD
    assert [group.group_id for group in driver.coordinator.groups()] == ["other"]
    result_of(driver.coordinator.delete_group, "other", driver.now_ms)
    driver.advance(1_000_000)
    assert driver.coordinator.next_deadline() is None


def test_whoever_leads_again_starts_without_groups() -> None:
    driver = CoordinatorHarness()
    (member_id,) = driver.stable(1)
    driver.coordinator.resign(PARTITION, driver.now_ms)
    driver.coordinator.lead(PARTITION, driver.now_ms)
    assert driver.heartbeat(member_id, 1) is ErrorCode.UNKNOWN_MEMBER_ID
    call = driver.join()
    driver.advance(DELAY_MS)
    assert call.joined.generation_id == 1


def test_groups_are_listed_in_order_of_creation() -> None:
    driver = CoordinatorHarness()
    for group_id in "zay":
        driver.commit(group_id=group_id)
    result_of(driver.coordinator.delete_group, "a", driver.now_ms)
    driver.commit(group_id="a")
    assert [group.group_id for group in driver.coordinator.groups()] == ["z", "y", "a"]
