"""What happens when a record cannot be appended: who is told what, and that nothing else has changed."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from fakebroker.coordinator.group.api import JoinResult, OffsetToCommit, SyncResult
from fakebroker.coordinator.group.classic.group import Group
from fakebroker.coordinator.group.classic.member import Member
from fakebroker.errors import ErrorCode
from tests.support.coordinator.coordinator_harness import (
    DELAY_MS,
    REBALANCE_MS,
    SESSION_MS,
    CoordinatorHarness,
    protocols,
    result_of,
)

NONE = ErrorCode.NONE
ERRORS = (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR, ErrorCode.UNKNOWN_SERVER_ERROR)
every_error = pytest.mark.parametrize("error", ERRORS)
CLOCKS = ("deadline_ms", "scheduled_ms")


def contents(group: Group) -> dict[str, Any]:
    """All that can be seen of a group, in order, clocks aside."""
    found = {name: getattr(group, name) for name in Group.__slots__ if name not in CLOCKS}
    found["members"] = [
        {name: getattr(member, name) for name in Member.__slots__ if name not in CLOCKS}
        for member in group.members.values()
    ]
    found["offsets"] = list(group.offsets)
    return {name: list(value.items()) if isinstance(value, dict) else value for name, value in found.items()}


def fail(driver: CoordinatorHarness, error: ErrorCode, act: Callable[[], Any]) -> Any:
    """What an action comes to while nothing can be appended."""
    before = list(driver.batches)
    driver.append_error = error
    result = act()
    driver.append_error = NONE
    driver.settle()
    assert driver.batches == before
    return result


# JoinGroup


@every_error
@pytest.mark.parametrize("delay_ms", [DELAY_MS, 0])
def test_a_group_that_cannot_be_created_is_not_there(error: ErrorCode, delay_ms: int) -> None:
    driver = CoordinatorHarness(group_initial_rebalance_delay_ms=delay_ms)
    call = fail(driver, error, driver.join)
    if delay_ms:
        assert call.result == JoinResult(error)
    else:
        assert call.error is NONE  # Kafka has answered by then.
    assert driver.state() == "-"
    driver.advance(1_000_000)
    assert driver.join().is_parked == bool(delay_ms)


@every_error
def test_a_member_that_was_told_its_id_must_start_again(error: ErrorCode) -> None:
    driver = CoordinatorHarness()
    member_id = fail(driver, error, driver.pend)
    assert driver.state() == "-"
    assert driver.join(member_id).error is ErrorCode.UNKNOWN_MEMBER_ID


@every_error
@pytest.mark.parametrize("skip", [True, False])
def test_a_replaced_static_leader_is_put_back(error: ErrorCode, skip: bool) -> None:
    driver = CoordinatorHarness()
    static, _ = driver.stable(0, static=("i", "j"))
    driver.advance(1)
    before = contents(driver.group())
    offer = protocols("range", "sticky", metadata=b"new")
    join = partial(driver.join, instance_id="i", protocols=offer, session_ms=7_000, rebalance_ms=8_000, skip=skip)
    call = fail(driver, error, join)
    assert call.result == JoinResult(error, 1, "consumer", "range", static, "")
    assert contents(driver.group()) == before
    assert driver.group().members[static].deadline_ms == driver.now_ms + SESSION_MS
    assert driver.heartbeat(static, 1, "i") is NONE
    assert driver.join(instance_id="i").error is NONE


# SyncGroup


@every_error
def test_a_generation_that_cannot_be_stored_is_given_up(error: ErrorCode) -> None:
    driver = CoordinatorHarness()
    leader, follower = driver.stable()
    for member_id in (leader, follower):
        driver.join(member_id)
    parked = driver.sync(follower, 2)
    call = fail(driver, error, lambda: driver.sync(leader, 2, [(leader, b"new")]))
    assert parked.result == call.result == SyncResult(error)
    group = driver.group()
    assert (driver.state(), group.generation_id) == ("PreparingRebalance", 2)
    assert [member.assignment for member in group.members.values()] == [b"", b""]
    assert group.join_deadline_ms == driver.now_ms + REBALANCE_MS
    assert driver.heartbeat(leader, 2) is ErrorCode.REBALANCE_IN_PROGRESS
    calls = [driver.join(member_id) for member_id in (leader, follower)]
    assert [call.joined.generation_id for call in calls] == [3, 3]
    driver.sync_all([leader, follower])


# LeaveGroup and timers


@every_error
def test_a_group_that_becomes_empty_is_empty_all_the_same(error: ErrorCode) -> None:
    driver = CoordinatorHarness()
    (member_id,) = driver.stable(1)
    leave = partial(result_of, driver.coordinator.leave_group, "g", [(member_id, None)], driver.now_ms)
    assert fail(driver, error, leave) == (error, [])
    assert (driver.state(), driver.group().generation_id) == ("Empty", 2)
    assert driver.heartbeat(member_id, 1) is ErrorCode.UNKNOWN_MEMBER_ID
    driver.hand_over()
    assert (driver.state(), driver.group().generation_id) == ("Stable", 1)
    driver.advance(SESSION_MS)
    assert (driver.state(), driver.group().generation_id) == ("Empty", 2)


@every_error
def test_a_session_that_ends_needs_no_log(error: ErrorCode) -> None:
    driver = CoordinatorHarness()
    driver.stable(1)
    fail(driver, error, lambda: driver.advance(SESSION_MS))
    assert (driver.state(), driver.group().generation_id) == ("Empty", 2)


@every_error
def test_a_leave_that_writes_nothing_succeeds(error: ErrorCode) -> None:
    driver = CoordinatorHarness()
    leader, follower = driver.stable()
    assert fail(driver, error, lambda: driver.leave((follower, None))) == [NONE]
    assert list(driver.group().members) == [leader]


# Offsets


@every_error
@pytest.mark.parametrize("has_group", [True, False])
def test_a_commit_is_refused_as_a_whole(error: ErrorCode, has_group: bool) -> None:
    driver = CoordinatorHarness()
    member_id, generation_id = "", -1
    if has_group:
        (member_id,), generation_id = driver.stable(1), 1
        driver.commit(member_id, 1, offset=3)
    before = contents(driver.group()) if has_group else None
    driver.advance(1)
    offsets = [OffsetToCommit(topic="t", partition=index, offset=9, metadata="m" * 4096 * index) for index in range(3)]
    commit = partial(
        result_of, driver.coordinator.commit_offsets, "g", generation_id, member_id, None, offsets, driver.now_ms
    )
    assert fail(driver, error, commit) == [error] * 3
    assert driver.committed() == (3 if has_group else None)
    if has_group:
        assert contents(driver.group()) == before
        assert driver.group().members[member_id].deadline_ms == driver.now_ms + SESSION_MS
    else:
        assert driver.state() == "-"


@every_error
def test_a_commit_with_nothing_to_store_needs_no_log(error: ErrorCode) -> None:
    driver = CoordinatorHarness()
    assert fail(driver, error, lambda: driver.commit(metadata="m" * 4097)) is ErrorCode.OFFSET_METADATA_TOO_LARGE


@every_error
def test_deletions_are_refused(error: ErrorCode) -> None:
    driver = CoordinatorHarness()
    for topic in "tu":
        driver.commit(topic=topic)
    before = contents(driver.group())
    coordinator = driver.coordinator
    assert fail(driver, error, lambda: result_of(coordinator.delete_offsets, "g", [("t", 0), ("x", 0)])) == (error, [])
    assert fail(driver, error, lambda: result_of(coordinator.delete_offsets, "g", [("x", 0)])) == (NONE, [NONE])
    assert fail(driver, error, lambda: result_of(coordinator.delete_group, "g", driver.now_ms)) is error
    fail(driver, error, lambda: coordinator.delete_topic_offsets("t"))
    assert contents(driver.group()) == before


def test_a_topic_is_deleted_where_it_can_be() -> None:
    driver = CoordinatorHarness()
    for group_id in "gh":
        driver.commit(group_id=group_id)
    append = driver._append
    refused = driver.group().partition
    driver.coordinator._runtime._append = lambda partition, records, done: (
        done(ErrorCode.NOT_COORDINATOR) if partition == refused else append(partition, records, done)
    )
    driver.coordinator.delete_topic_offsets("t")
    assert (driver.committed(group_id="g"), driver.committed(group_id="h")) == (1, None)
