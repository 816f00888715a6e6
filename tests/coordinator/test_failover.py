"""What is there after a failover and what is not, and what requests get before it is over."""

from collections.abc import Callable
from typing import Any

import pytest

from fakebroker.coordinator.group.api import JoinGroup, JoinResult, OffsetToCommit, SyncGroup, SyncResult
from fakebroker.coordinator.group.config import CoordinatorConfig
from fakebroker.coordinator.runtime.placement import partition_for
from fakebroker.errors import ErrorCode
from tests.support.coordinator.coordinator_harness import (
    DELAY_MS,
    REBALANCE_MS,
    SESSION_MS,
    Call,
    CoordinatorHarness,
    protocols,
    result_of,
)

NONE = ErrorCode.NONE
UNKNOWN_MEMBER_ID = ErrorCode.UNKNOWN_MEMBER_ID
ILLEGAL_GENERATION = ErrorCode.ILLEGAL_GENERATION
NOT_COORDINATOR = ErrorCode.NOT_COORDINATOR
LOADING = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
PARTITION = partition_for("g", 50)
TWO = protocols("range", "sticky")


# What survives


def test_a_stable_group_goes_on() -> None:
    driver = CoordinatorHarness()
    leader, follower, static = driver.stable(2, static=("i",))
    driver.hand_over()
    group = driver.group()
    assert (driver.state(), group.generation_id, group.leader_id) == ("Stable", 1, leader)
    assert list(group.members) == [leader, follower, static]
    assert group.static_members == {"i": static}
    for member_id in (leader, follower, static):
        assert driver.heartbeat(member_id, 1) is NONE
        assert driver.sync(member_id, 1).synced == SyncResult(NONE, "consumer", "range", member_id.encode())


@pytest.mark.parametrize("state", ["PreparingRebalance", "CompletingRebalance"])
def test_a_round_that_was_not_synced_is_lost(state: str) -> None:
    driver = CoordinatorHarness()
    leader, follower = driver.stable()
    newcomer = driver.join()
    driver.join(leader)
    if state == "CompletingRebalance":
        driver.join(follower)
    new_id = list(driver.group().members)[2]
    assert driver.state() == state
    driver.hand_over()
    assert newcomer.error is (NOT_COORDINATOR if state == "PreparingRebalance" else NONE)
    assert (driver.state(), list(driver.group().members)) == ("Stable", [leader, follower])
    assert driver.heartbeat(leader, 1) is NONE
    assert driver.heartbeat(leader, 2) is ILLEGAL_GENERATION
    assert driver.sync(leader, 2).error is ILLEGAL_GENERATION
    assert driver.commit(leader, 2) is ILLEGAL_GENERATION
    assert driver.heartbeat(new_id, 2) is UNKNOWN_MEMBER_ID
    assert driver.join(new_id).error is UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("state", ["PreparingRebalance", "CompletingRebalance"])
def test_a_first_round_that_was_not_synced_leaves_an_empty_group(state: str) -> None:
    driver = CoordinatorHarness()
    call = driver.join()
    (member_id,) = driver.group().members
    driver.advance(DELAY_MS if state == "CompletingRebalance" else 0)
    assert driver.state() == state
    driver.hand_over()
    group = driver.group()
    assert (driver.state(), group.generation_id, group.protocol_type) == ("Empty", 0, None)
    assert call.error is (NOT_COORDINATOR if state == "PreparingRebalance" else NONE)
    for error in (driver.heartbeat(member_id, 1), driver.sync(member_id, 1).error, driver.join(member_id).error):
        assert error is UNKNOWN_MEMBER_ID


def test_answers_to_a_stored_sync_may_be_lost() -> None:
    driver = CoordinatorHarness()
    leader, follower = driver.complete()
    driver.sync(leader, 1, [(leader, b"a"), (follower, b"b")])
    driver.hand_over()
    assert driver.sync(follower, 1).synced.assignment == b"b"
    assert driver.heartbeat(follower, 1) is NONE


@pytest.mark.parametrize("error", [ErrorCode.COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR])
def test_a_sync_that_was_not_stored_is_lost(error: ErrorCode) -> None:
    driver = CoordinatorHarness()
    leader, follower = driver.stable()
    for member_id in (leader, follower):
        driver.join(member_id)
    parked = driver.sync(follower, 2)
    driver.append_error = error
    assert driver.sync(leader, 2, [(leader, b"a")]).error is parked.error is error
    driver.append_error = NONE
    driver.hand_over()
    assert driver.sync(leader, 2).error is ILLEGAL_GENERATION
    assert driver.sync(leader, 1).synced.assignment == leader.encode()


def test_a_parked_sync_is_told_to_look_elsewhere() -> None:
    driver = CoordinatorHarness()
    _, follower = driver.complete()
    call = driver.sync(follower, 1)
    driver.hand_over()
    assert call.result == SyncResult(NOT_COORDINATOR)


def test_a_replaced_static_member_stays_replaced() -> None:
    driver = CoordinatorHarness()
    _, old_id = driver.stable(1, static=("i",))
    new_id = driver.join(instance_id="i").joined.member_id
    driver.hand_over()
    assert driver.heartbeat(old_id, 1, "i") is ErrorCode.FENCED_INSTANCE_ID
    assert driver.heartbeat(new_id, 1, "i") is NONE
    assert driver.sync(new_id, 1).synced.assignment == old_id.encode()


def test_ids_that_have_not_joined_are_forgotten() -> None:
    driver = CoordinatorHarness()
    driver.stable()
    pending_id = driver.pend()
    driver.hand_over()
    assert driver.join(pending_id).error is UNKNOWN_MEMBER_ID


def test_a_member_that_left_has_to_expire_again() -> None:
    driver = CoordinatorHarness()
    leader, follower = driver.stable()
    driver.leave((follower, None))
    driver.hand_over()
    assert list(driver.group().members) == [leader, follower]
    call = driver.join(leader)
    driver.advance(SESSION_MS - 1)
    assert call.is_parked
    driver.advance(1)
    assert call.joined.generation_id == 2


def test_a_group_that_became_empty_keeps_its_generation() -> None:
    driver = CoordinatorHarness()
    driver.leave((driver.stable(1)[0], None))
    driver.hand_over()
    assert (driver.state(), driver.group().generation_id, driver.group().protocol_type) == ("Empty", 2, "consumer")
    call = driver.join()
    driver.advance(DELAY_MS)
    assert call.joined.generation_id == 3


def test_acknowledged_commits_are_there_and_refused_ones_are_not() -> None:
    driver = CoordinatorHarness()
    driver.commit(offset=5)
    driver.append_error = NOT_COORDINATOR
    assert driver.commit(offset=6) is NOT_COORDINATOR
    assert driver.commit(group_id="h") is NOT_COORDINATOR
    driver.append_error = NONE
    driver.hand_over()
    assert driver.committed() == 5
    assert (driver.state(), driver.state("h")) == ("Empty", "-")


def test_what_was_deleted_stays_deleted() -> None:
    driver = CoordinatorHarness()
    for group_id in "gh":
        for topic in "tuv":
            driver.commit(group_id=group_id, topic=topic)
    result_of(driver.coordinator.delete_group, "g", driver.now_ms)
    result_of(driver.coordinator.delete_offsets, "h", [("t", 0)])
    driver.coordinator.delete_topic_offsets("u")
    driver.hand_over()
    assert driver.state("g") == "-"
    assert [driver.committed(topic, group_id="h") for topic in "tuv"] == [None, None, 1]


def test_sessions_start_anew_in_full() -> None:
    driver = CoordinatorHarness()
    leader, follower = driver.stable()
    driver.advance(SESSION_MS - 1)
    driver.hand_over()
    driver.advance(SESSION_MS - 1)
    assert list(driver.group().members) == [leader, follower]
    driver.advance(1)
    assert driver.state() == "Empty"


def test_join_and_sync_deadlines_do_not_go_on() -> None:
    driver = CoordinatorHarness()
    leader, follower = driver.stable()
    driver.join(leader)
    driver.hand_over()
    for _ in range(20):
        driver.advance(REBALANCE_MS / 10)
        assert [driver.heartbeat(member_id, 1) for member_id in (leader, follower)] == [NONE, NONE]


# What is different after loading


@pytest.mark.parametrize(("offer", "is_parked"), [(protocols("range"), False), (TWO, True)])
def test_a_member_that_offers_more_than_the_chosen_protocol_has_changed(offer: Any, is_parked: bool) -> None:
    driver = CoordinatorHarness()
    _, follower = driver.stable(2, protocols=offer)
    assert driver.join(follower, protocols=offer).error is NONE
    driver.hand_over()
    assert driver.join(follower, protocols=offer).is_parked is is_parked


def test_a_static_member_that_offers_more_is_replaced_without_a_round() -> None:
    driver = CoordinatorHarness()
    driver.stable(1, static=("i",), protocols=TWO)
    driver.hand_over()
    assert driver.join(instance_id="i", protocols=TWO).joined.generation_id == 1


def test_a_group_with_too_many_members_rebalances_at_once() -> None:
    driver = CoordinatorHarness()
    leader, second, third = driver.stable(3)
    driver.hand_over(group_max_size=2)
    assert driver.state() == "PreparingRebalance"
    assert driver.group().join_deadline_ms == driver.now_ms + REBALANCE_MS
    assert driver.heartbeat(leader, 1) is ErrorCode.REBALANCE_IN_PROGRESS
    calls = [driver.join(member_id) for member_id in (leader, second, third)]
    assert [call.error for call in calls[2:]] == [ErrorCode.GROUP_MAX_SIZE_REACHED]
    driver.advance(REBALANCE_MS)
    assert [call.joined.generation_id for call in calls[:2]] == [2, 2]


def test_a_group_with_as_many_members_as_it_may_have_does_not() -> None:
    driver = CoordinatorHarness()
    driver.stable(2)
    driver.hand_over(group_max_size=2)
    assert driver.state() == "Stable"


# What requests get meanwhile


def join(driver: CoordinatorHarness, group_id: str, **changes: Any) -> JoinResult:
    fields: dict[str, Any] = {"member_id": "m", "session_timeout_ms": SESSION_MS} | changes
    request = JoinGroup(
        instance_id=None,
        client_id="c",
        client_host="/127.0.0.1",
        rebalance_timeout_ms=REBALANCE_MS,
        protocol_type="consumer",
        protocols=TWO,
        requires_member_id=True,
        supports_skip_assignment=True,
        **fields,
    )
    call = Call()
    driver.coordinator.join_group(group_id, request, call, driver.now_ms)
    driver.settle()
    return call.joined


def sync(driver: CoordinatorHarness, group_id: str) -> SyncResult:
    request = SyncGroup(
        generation_id=1, member_id="m", instance_id=None, protocol_type=None, protocol_name=None, assignments=()
    )
    call = Call()
    driver.coordinator.sync_group(group_id, request, call, driver.now_ms)
    driver.settle()
    return call.synced


def commit(driver: CoordinatorHarness, group_id: str, generation_id: int) -> list[ErrorCode]:
    offsets = [OffsetToCommit(topic="t", partition=index, offset=1) for index in range(2)]
    return result_of(driver.coordinator.commit_offsets, group_id, generation_id, "", None, offsets, driver.now_ms)


Ask = Callable[[CoordinatorHarness, str], object]
OUT_OF_BOUNDS = CoordinatorConfig().group_max_session_timeout_ms + 1
INVALID = ErrorCode.INVALID_GROUP_ID
ASKED: dict[str, tuple[Ask, Callable[[ErrorCode], object]]] = {
    # What is asked, and what the answer to an error is.
    "JoinGroup": (join, lambda error: JoinResult(error)),
    "JoinGroup of a new member": (lambda d, g: join(d, g, member_id=""), lambda error: JoinResult(error)),
    "SyncGroup": (sync, lambda error: SyncResult(error)),
    "Heartbeat": (lambda d, g: d.heartbeat("m", 1, group_id=g), lambda error: NONE if error is LOADING else error),
    "LeaveGroup": (
        lambda d, g: result_of(d.coordinator.leave_group, g, [("m", None)], d.now_ms),
        lambda error: (error, []),
    ),
    "OffsetCommit": (lambda d, g: commit(d, g, -1), lambda error: [error] * 2),
    "OffsetCommit of a member": (lambda d, g: commit(d, g, 1), lambda error: [error] * 2),
    "OffsetFetch": (lambda d, g: d.coordinator.fetch_offsets(g, [("t", 0)], d.now_ms), lambda error: (error, [])),
    "OffsetFetch of all": (lambda d, g: d.coordinator.fetch_offsets(g, None, d.now_ms), lambda error: (error, [])),
    "OffsetDelete": (lambda d, g: result_of(d.coordinator.delete_offsets, g, [("t", 0)]), lambda error: (error, [])),
    "DeleteGroups": (lambda d, g: result_of(d.coordinator.delete_group, g, d.now_ms), lambda error: error),
    "other requests": (lambda d, g: d.coordinator.error_for(g), lambda error: error),
}


def loading(driver: CoordinatorHarness) -> None:
    driver.coordinator.resign(PARTITION, driver.now_ms)
    driver.coordinator.start_loading(PARTITION)


def failed(driver: CoordinatorHarness) -> None:
    loading(driver)
    driver.coordinator.fail_loading(PARTITION)


def unloaded(driver: CoordinatorHarness) -> None:
    driver.coordinator.resign(PARTITION, driver.now_ms)


def unloaded_while_loading(driver: CoordinatorHarness) -> None:
    loading(driver)
    unloaded(driver)


def loading_again(driver: CoordinatorHarness) -> None:
    failed(driver)
    driver.coordinator.start_loading(PARTITION)


@pytest.mark.parametrize("name", ASKED)
@pytest.mark.parametrize(
    ("happen", "error"),
    [
        (unloaded, NOT_COORDINATOR),
        (loading, LOADING),
        (failed, NOT_COORDINATOR),
        (unloaded_while_loading, NOT_COORDINATOR),
        (loading_again, LOADING),
    ],
)
def test_who_is_told_what_without_the_groups(
    happen: Callable[[CoordinatorHarness], None], error: ErrorCode, name: str
) -> None:
    driver = CoordinatorHarness()
    driver.stable()
    driver.commit(group_id="a")
    happen(driver)
    driver.settle()
    ask, answer = ASKED[name]
    before = list(driver.batches)
    assert ask(driver, "g") == answer(error)
    assert driver.batches == before
    assert driver.state() == "-"
    assert driver.committed(group_id="a") == 1


def test_what_is_wrong_with_a_request_itself_comes_first() -> None:
    driver = CoordinatorHarness(offsets_topic_num_partitions=1)
    driver.coordinator.resign(0, driver.now_ms)
    driver.coordinator.start_loading(0)
    assert join(driver, "").error is sync(driver, "").error is driver.heartbeat("m", 1, group_id="") is INVALID
    assert result_of(driver.coordinator.leave_group, "", [], driver.now_ms) == (INVALID, [])
    assert result_of(driver.coordinator.delete_offsets, "", []) == (INVALID, [])
    assert join(driver, "g", session_timeout_ms=OUT_OF_BOUNDS).error is ErrorCode.INVALID_SESSION_TIMEOUT
    assert result_of(driver.coordinator.delete_group, "", driver.now_ms) is LOADING


def test_loading_ends_once() -> None:
    driver = CoordinatorHarness()
    loading(driver)
    driver.coordinator.finish_loading(PARTITION, [], driver.now_ms)
    assert driver.coordinator.error_for("g") is NONE
    with pytest.raises(RuntimeError, match=f"offsets partition {PARTITION} is not being loaded"):
        driver.coordinator.finish_loading(PARTITION, [], driver.now_ms)
    with pytest.raises(RuntimeError, match=f"offsets partition {PARTITION} is not being loaded"):
        driver.coordinator.fail_loading(PARTITION)


def test_a_partition_that_is_led_cannot_be_loaded() -> None:
    driver = CoordinatorHarness()
    driver.commit()
    with pytest.raises(RuntimeError, match=f"offsets partition {PARTITION} is led; it has to be resigned before"):
        driver.coordinator.start_loading(PARTITION)
    assert driver.committed() == 1


def test_leading_ends_loading() -> None:
    driver = CoordinatorHarness()
    loading(driver)
    driver.coordinator.lead(PARTITION, driver.now_ms)
    assert driver.coordinator.error_for("g") is NONE
    driver.coordinator.resign(PARTITION, driver.now_ms)
    assert driver.coordinator.error_for("g") is NOT_COORDINATOR
