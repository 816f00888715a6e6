"""Appends that fail: the error in the answers, and groups that are otherwise unchanged."""

from collections.abc import Callable
from functools import partial
from typing import Any

from fakebroker.errors import ErrorCode
from tests.support.coordinator.commits import commit
from tests.support.coordinator.coordinator_harness import (
    DELAY_MS,
    REBALANCE_MS,
    SESSION_MS,
    CoordinatorHarness,
    protocols,
)
from tests.support.coordinator.group_contents import contents
from tests.support.coordinator.group_messages import identities, join_response, leave_errors, sync_response
from tests.support.subtests import subtest_for_each

NONE = ErrorCode.NONE
ERRORS = (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR, ErrorCode.UNKNOWN_SERVER_ERROR)
every_error = subtest_for_each("error", ERRORS)


def with_failing_appends(harness: CoordinatorHarness, error: ErrorCode, act: Callable[[], Any]) -> Any:
    """Return the result of an action while all appends fail."""
    before = list(harness.batches)
    harness.append_error = error
    result = act()
    harness.append_error = NONE
    harness.settle()
    assert harness.batches == before
    return result


# JoinGroup


@every_error
@subtest_for_each("delay_ms", [DELAY_MS, 0])
def test_group_is_dropped_if_its_creation_cannot_be_stored(error: ErrorCode, delay_ms: int) -> None:
    harness = CoordinatorHarness(group_initial_rebalance_delay_ms=delay_ms)
    call = with_failing_appends(harness, error, harness.join)
    assert call.result == join_response(error)
    assert harness.state() == "-"
    harness.advance(1_000_000)
    assert harness.join().is_parked == bool(delay_ms)


@every_error
def test_pending_id_is_lost_if_the_new_group_cannot_be_stored(error: ErrorCode) -> None:
    harness = CoordinatorHarness()
    member_id = with_failing_appends(harness, error, harness.request_member_id)
    assert harness.state() == "-"
    assert harness.join(member_id).error is ErrorCode.UNKNOWN_MEMBER_ID


@every_error
@subtest_for_each("skip", [True, False])
def test_static_replacement_is_reverted_if_it_cannot_be_stored(error: ErrorCode, skip: bool) -> None:
    harness = CoordinatorHarness()
    static, _ = harness.create_stable_group(0, static=("i", "j"))
    harness.advance(1)
    before = contents(harness.group())
    offer = protocols("range", "sticky", metadata=b"new")
    join = partial(harness.join, instance_id="i", protocols=offer, session_ms=7_000, rebalance_ms=8_000, skip=skip)
    call = with_failing_appends(harness, error, join)
    assert call.result == join_response(error, 1, "consumer", "range", static, "")
    assert contents(harness.group()) == before
    assert harness.group().members[static].deadline_ms == harness.now_ms + SESSION_MS
    assert harness.heartbeat(static, 1, "i") is NONE
    assert harness.join(instance_id="i").error is NONE


# SyncGroup


@every_error
def test_new_rebalance_starts_if_the_assignment_cannot_be_stored(error: ErrorCode) -> None:
    harness = CoordinatorHarness()
    leader, follower = harness.create_stable_group()
    for member_id in (leader, follower):
        harness.join(member_id)
    parked = harness.sync(follower, 2)
    call = with_failing_appends(harness, error, lambda: harness.sync(leader, 2, [(leader, b"new")]))
    assert parked.result == call.result == sync_response(error)
    group = harness.group()
    assert (harness.state(), group.generation_id) == ("PreparingRebalance", 2)
    assert [member.assignment for member in group.members.values()] == [b"", b""]
    assert group.join_deadline_ms == harness.now_ms + REBALANCE_MS
    assert harness.heartbeat(leader, 2) is ErrorCode.REBALANCE_IN_PROGRESS
    calls = [harness.join(member_id) for member_id in (leader, follower)]
    assert [call.joined.generation_id for call in calls] == [3, 3]
    harness.sync_all([leader, follower])


# LeaveGroup and timers


@every_error
def test_group_becomes_empty_even_if_that_cannot_be_stored(error: ErrorCode) -> None:
    harness = CoordinatorHarness()
    (member_id,) = harness.create_stable_group(1)
    leave = partial(harness.coordinator.leave_group, "g", identities([(member_id, None)]), harness.now_ms)
    assert leave_errors(with_failing_appends(harness, error, leave)) == (error, [])
    assert (harness.state(), harness.group().generation_id) == ("Empty", 2)
    assert harness.heartbeat(member_id, 1) is ErrorCode.UNKNOWN_MEMBER_ID
    harness.fail_over()
    assert (harness.state(), harness.group().generation_id) == ("Stable", 1)
    harness.advance(SESSION_MS)
    assert (harness.state(), harness.group().generation_id) == ("Empty", 2)


@every_error
def test_session_expires_even_if_the_empty_group_cannot_be_stored(error: ErrorCode) -> None:
    harness = CoordinatorHarness()
    harness.create_stable_group(1)
    with_failing_appends(harness, error, lambda: harness.advance(SESSION_MS))
    assert (harness.state(), harness.group().generation_id) == ("Empty", 2)


@every_error
def test_leave_group_without_records_succeeds_while_appends_fail(error: ErrorCode) -> None:
    harness = CoordinatorHarness()
    leader, follower = harness.create_stable_group()
    assert with_failing_appends(harness, error, lambda: harness.leave((follower, None))) == [NONE]
    assert list(harness.group().members) == [leader]


# Offsets


@every_error
@subtest_for_each("has_group", [True, False])
def test_failed_append_rejects_all_partitions_of_a_commit(error: ErrorCode, has_group: bool) -> None:
    harness = CoordinatorHarness()
    member_id, generation_id = "", -1
    if has_group:
        (member_id,), generation_id = harness.create_stable_group(1), 1
        harness.commit(member_id, 1, offset=3)
    before = contents(harness.group()) if has_group else None
    harness.advance(1)
    offsets = [("t", index, 9, "m" * 4096 * index) for index in range(3)]
    send = partial(commit, harness.coordinator, offsets, harness.now_ms, generation_id, member_id)
    assert with_failing_appends(harness, error, send) == [error] * 3
    assert harness.committed() == (3 if has_group else None)
    if has_group:
        assert contents(harness.group()) == before
        assert harness.group().members[member_id].deadline_ms == harness.now_ms + SESSION_MS
    else:
        assert harness.state() == "-"


@every_error
def test_commit_without_records_does_not_append(error: ErrorCode) -> None:
    harness = CoordinatorHarness()
    assert (
        with_failing_appends(harness, error, lambda: harness.commit(metadata="m" * 4097))
        is ErrorCode.OFFSET_METADATA_TOO_LARGE
    )


@every_error
def test_failed_append_rejects_deletions(error: ErrorCode) -> None:
    harness = CoordinatorHarness()
    for topic in "tu":
        harness.commit(topic=topic)
    before = contents(harness.group())
    coordinator = harness.coordinator
    assert with_failing_appends(harness, error, lambda: coordinator.offsets.delete("g", [("t", 0), ("x", 0)])) == (
        error,
        [],
    )
    assert with_failing_appends(harness, error, lambda: coordinator.offsets.delete("g", [("x", 0)])) == (
        NONE,
        [NONE],
    )
    delete = partial(coordinator.delete_groups, ["g"], harness.now_ms)
    assert with_failing_appends(harness, error, delete) == {"g": error}
    with_failing_appends(harness, error, lambda: coordinator.offsets.delete_topic("t"))
    assert contents(harness.group()) == before


@every_error
def test_groups_of_one_partition_are_deleted_together_or_not_at_all(error: ErrorCode) -> None:
    """As in Kafka, an error of the append replaces all results of the partition."""
    harness = CoordinatorHarness(offsets_topic_num_partitions=1)
    for group_id in ("g", "h"):
        harness.commit(group_id=group_id)
    harness.create_stable_group(1, group_id="busy")
    delete = partial(harness.coordinator.delete_groups, ["g", "busy", "h", "absent"], harness.now_ms)
    assert with_failing_appends(harness, error, delete) == dict.fromkeys(["g", "busy", "h", "absent"], error)
    batches = len(harness.batches)
    assert delete() == {
        "g": NONE,
        "busy": ErrorCode.NON_EMPTY_GROUP,
        "h": NONE,
        "absent": ErrorCode.GROUP_ID_NOT_FOUND,
    }
    assert len(harness.batches) == batches + 1
    assert [group.group_id for group in harness.coordinator.groups.classic.values()] == ["busy"]


def test_groups_of_other_partitions_are_deleted_if_one_append_fails() -> None:
    harness = CoordinatorHarness()
    for group_id in "gh":
        harness.commit(group_id=group_id)
    harness.refused_partition = harness.group().partition
    results = harness.coordinator.delete_groups(["g", "h"], harness.now_ms)
    assert results == {"g": ErrorCode.NOT_COORDINATOR, "h": NONE}


@every_error
def test_before_kip_848_groups_are_deleted_and_created_in_spite_of_the_error(error: ErrorCode) -> None:
    harness = CoordinatorHarness(is_before_kip_848=True)
    assert with_failing_appends(harness, error, harness.commit) is error
    assert harness.state() == "Empty"
    delete = partial(harness.coordinator.delete_groups, ["g"], harness.now_ms)
    assert with_failing_appends(harness, error, delete) == {"g": NONE}
    assert harness.state() == "-"


def test_a_refused_first_commit_leaves_no_group() -> None:
    """Before KIP-848 the group is created before the offsets are checked, and stays."""
    for is_before_kip_848 in (False, True):
        harness = CoordinatorHarness(is_before_kip_848=is_before_kip_848)
        assert harness.commit(metadata="m" * 4097) is ErrorCode.OFFSET_METADATA_TOO_LARGE
        assert harness.state() == ("Empty" if is_before_kip_848 else "-")


def test_offsets_of_a_deleted_topic_are_deleted_in_partitions_whose_append_succeeds() -> None:
    harness = CoordinatorHarness()
    for group_id in "gh":
        harness.commit(group_id=group_id)
    harness.refused_partition = harness.group().partition
    harness.coordinator.offsets.delete_topic("t")
    assert (harness.committed(group_id="g"), harness.committed(group_id="h")) == (1, None)
