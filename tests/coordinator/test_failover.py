"""Failovers: the state that survives or is lost, and the answers to requests before the partition is loaded."""

from collections.abc import Callable
from typing import Any

import pytest

from fakebroker.coordinator.config import CoordinatorConfig
from fakebroker.coordinator.partitions import partition_for
from fakebroker.errors import ErrorCode
from fakebroker.protocol.messages.join_group import JoinGroupResponse
from fakebroker.protocol.messages.sync_group import SyncGroupResponse
from tests.support.coordinator.commits import commit
from tests.support.coordinator.coordinator_harness import (
    DELAY_MS,
    REBALANCE_MS,
    SESSION_MS,
    CoordinatorHarness,
    protocols,
)
from tests.support.coordinator.group_messages import identities, join_response, leave_errors, sync_response
from tests.support.subtests import subtest_for_each

NONE = ErrorCode.NONE
UNKNOWN_MEMBER_ID = ErrorCode.UNKNOWN_MEMBER_ID
ILLEGAL_GENERATION = ErrorCode.ILLEGAL_GENERATION
NOT_COORDINATOR = ErrorCode.NOT_COORDINATOR
LOADING = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
PARTITION = partition_for("g", 50)
TWO = protocols("range", "sticky")


# State that survives, and state that is lost


def test_stable_group_continues() -> None:
    harness = CoordinatorHarness()
    leader, follower, static = harness.create_stable_group(2, static=("i",))
    harness.fail_over()
    group = harness.group()
    assert (harness.state(), group.generation_id, group.leader_id) == ("Stable", 1, leader)
    assert list(group.members) == [leader, follower, static]
    assert group.static_members == {"i": static}
    for member_id in (leader, follower, static):
        assert harness.heartbeat(member_id, 1) is NONE
        assert harness.sync(member_id, 1).synced == sync_response(NONE, "consumer", "range", member_id.encode())


@subtest_for_each("state", ["PreparingRebalance", "CompletingRebalance"])
def test_rebalance_without_the_leaders_sync_is_lost(state: str) -> None:
    harness = CoordinatorHarness()
    leader, follower = harness.create_stable_group()
    newcomer = harness.join()
    harness.join(leader)
    if state == "CompletingRebalance":
        harness.join(follower)
    new_id = list(harness.group().members)[2]
    assert harness.state() == state
    harness.fail_over()
    assert newcomer.error is (NOT_COORDINATOR if state == "PreparingRebalance" else NONE)
    assert (harness.state(), list(harness.group().members)) == ("Stable", [leader, follower])
    assert harness.heartbeat(leader, 1) is NONE
    assert harness.heartbeat(leader, 2) is ILLEGAL_GENERATION
    assert harness.sync(leader, 2).error is ILLEGAL_GENERATION
    assert harness.commit(leader, 2) is ILLEGAL_GENERATION
    assert harness.heartbeat(new_id, 2) is UNKNOWN_MEMBER_ID
    assert harness.join(new_id).error is UNKNOWN_MEMBER_ID


@subtest_for_each("state", ["PreparingRebalance", "CompletingRebalance"])
def test_first_rebalance_without_the_leaders_sync_leaves_an_empty_group(state: str) -> None:
    harness = CoordinatorHarness()
    call = harness.join()
    (member_id,) = harness.group().members
    harness.advance(DELAY_MS if state == "CompletingRebalance" else 0)
    assert harness.state() == state
    harness.fail_over()
    group = harness.group()
    assert (harness.state(), group.generation_id, group.protocol_type) == ("Empty", 0, None)
    assert call.error is (NOT_COORDINATOR if state == "PreparingRebalance" else NONE)
    for error in (harness.heartbeat(member_id, 1), harness.sync(member_id, 1).error, harness.join(member_id).error):
        assert error is UNKNOWN_MEMBER_ID


def test_stored_assignment_can_be_fetched_if_the_response_was_lost() -> None:
    harness = CoordinatorHarness()
    leader, follower = harness.create_completing_group()
    harness.sync(leader, 1, [(leader, b"a"), (follower, b"b")])
    harness.fail_over()
    assert harness.sync(follower, 1).synced.assignment == b"b"
    assert harness.heartbeat(follower, 1) is NONE


@subtest_for_each("error", [ErrorCode.COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR])
def test_assignment_that_was_not_stored_is_lost(error: ErrorCode) -> None:
    harness = CoordinatorHarness()
    leader, follower = harness.create_stable_group()
    for member_id in (leader, follower):
        harness.join(member_id)
    parked = harness.sync(follower, 2)
    harness.append_error = error
    assert harness.sync(leader, 2, [(leader, b"a")]).error is parked.error is error
    harness.append_error = NONE
    harness.fail_over()
    assert harness.sync(leader, 2).error is ILLEGAL_GENERATION
    assert harness.sync(leader, 1).synced.assignment == leader.encode()


def test_static_replacement_survives() -> None:
    harness = CoordinatorHarness()
    _, old_id = harness.create_stable_group(1, static=("i",))
    new_id = harness.join(instance_id="i").joined.member_id
    harness.fail_over()
    assert harness.heartbeat(old_id, 1, "i") is ErrorCode.FENCED_INSTANCE_ID
    assert harness.heartbeat(new_id, 1, "i") is NONE
    assert harness.sync(new_id, 1).synced.assignment == old_id.encode()


def test_pending_ids_are_lost() -> None:
    harness = CoordinatorHarness()
    harness.create_stable_group()
    pending_id = harness.request_member_id()
    harness.fail_over()
    assert harness.join(pending_id).error is UNKNOWN_MEMBER_ID


def test_departure_that_was_not_stored_is_lost_until_the_session_expires() -> None:
    harness = CoordinatorHarness()
    leader, follower = harness.create_stable_group()
    harness.leave((follower, None))
    harness.fail_over()
    assert list(harness.group().members) == [leader, follower]
    call = harness.join(leader)
    harness.advance(SESSION_MS - 1)
    assert call.is_parked
    harness.advance(1)
    assert call.joined.generation_id == 2


def test_empty_group_keeps_its_generation() -> None:
    harness = CoordinatorHarness()
    harness.leave((harness.create_stable_group(1)[0], None))
    harness.fail_over()
    assert (harness.state(), harness.group().generation_id, harness.group().protocol_type) == ("Empty", 2, "consumer")
    call = harness.join()
    harness.advance(DELAY_MS)
    assert call.joined.generation_id == 3


def test_acknowledged_commits_survive_and_rejected_ones_do_not() -> None:
    harness = CoordinatorHarness()
    harness.commit(offset=5)
    harness.append_error = NOT_COORDINATOR
    assert harness.commit(offset=6) is NOT_COORDINATOR
    assert harness.commit(group_id="h") is NOT_COORDINATOR
    harness.append_error = NONE
    harness.fail_over()
    assert harness.committed() == 5
    assert (harness.state(), harness.state("h")) == ("Empty", "-")


def test_deletions_survive() -> None:
    harness = CoordinatorHarness()
    for group_id in "gh":
        for topic in "tuv":
            harness.commit(group_id=group_id, topic=topic)
    harness.delete_group()
    harness.delete_offsets(("t", 0), group_id="h")
    harness.coordinator.offsets.delete_topic("u")
    harness.fail_over()
    assert harness.state("g") == "-"
    assert [harness.committed(topic, group_id="h") for topic in "tuv"] == [None, None, 1]


def test_sessions_restart_with_their_full_timeout() -> None:
    harness = CoordinatorHarness()
    leader, follower = harness.create_stable_group()
    harness.advance(SESSION_MS - 1)
    harness.fail_over()
    harness.advance(SESSION_MS - 1)
    assert list(harness.group().members) == [leader, follower]
    harness.advance(1)
    assert harness.state() == "Empty"


def test_join_and_sync_timers_are_lost() -> None:
    harness = CoordinatorHarness()
    leader, follower = harness.create_stable_group()
    harness.join(leader)
    harness.fail_over()
    for _ in range(20):
        harness.advance(REBALANCE_MS / 10)
        assert [harness.heartbeat(member_id, 1) for member_id in (leader, follower)] == [NONE, NONE]


# Differences after loading


@subtest_for_each(("offer", "is_parked"), [(protocols("range"), False), (TWO, True)])
def test_member_with_more_protocols_than_the_stored_one_counts_as_changed(offer: Any, is_parked: bool) -> None:
    harness = CoordinatorHarness()
    _, follower = harness.create_stable_group(2, protocols=offer)
    assert harness.join(follower, protocols=offer).error is NONE
    harness.fail_over()
    assert harness.join(follower, protocols=offer).is_parked is is_parked


def test_static_member_with_more_protocols_is_replaced_without_a_rebalance() -> None:
    harness = CoordinatorHarness()
    harness.create_stable_group(1, static=("i",), protocols=TWO)
    harness.fail_over()
    assert harness.join(instance_id="i", protocols=TWO).joined.generation_id == 1


def test_group_above_max_size_rebalances_at_once() -> None:
    harness = CoordinatorHarness()
    leader, second, third = harness.create_stable_group(3)
    harness.fail_over(group_max_size=2)
    assert harness.state() == "PreparingRebalance"
    assert harness.group().join_deadline_ms == harness.now_ms + REBALANCE_MS
    assert harness.heartbeat(leader, 1) is ErrorCode.REBALANCE_IN_PROGRESS
    calls = [harness.join(member_id) for member_id in (leader, second, third)]
    assert [call.error for call in calls[2:]] == [ErrorCode.GROUP_MAX_SIZE_REACHED]
    harness.advance(REBALANCE_MS)
    assert [call.joined.generation_id for call in calls[:2]] == [2, 2]


def test_group_of_max_size_does_not_rebalance() -> None:
    harness = CoordinatorHarness()
    harness.create_stable_group(2)
    harness.fail_over(group_max_size=2)
    assert harness.state() == "Stable"


# Requests without a leader of the partition


def join(harness: CoordinatorHarness, group_id: str, **changes: Any) -> JoinGroupResponse:
    options: dict[str, Any] = {"member_id": "m", "two_step": True, "group_id": group_id, "protocols": TWO}
    return harness.join(**options | changes).joined


def sync(harness: CoordinatorHarness, group_id: str) -> SyncGroupResponse:
    return harness.sync("m", 1, group_id=group_id).synced


def commit_two(harness: CoordinatorHarness, group_id: str, generation_id: int) -> list[ErrorCode]:
    offsets = [("t", 0, 1), ("t", 1, 1)]
    return commit(harness.coordinator, offsets, harness.now_ms, generation_id, group_id=group_id)


Send = Callable[[CoordinatorHarness, str], object]
OUT_OF_BOUNDS = CoordinatorConfig().group_max_session_timeout_ms + 1
INVALID = ErrorCode.INVALID_GROUP_ID
REQUESTS: dict[str, tuple[Send, Callable[[ErrorCode], object]]] = {
    # Name: how to send the request, and its result with an error.
    "JoinGroup": (join, join_response),
    "JoinGroup of a new member": (lambda h, g: join(h, g, member_id=""), join_response),
    "SyncGroup": (sync, sync_response),
    "Heartbeat": (lambda h, g: h.heartbeat("m", 1, group_id=g), lambda error: NONE if error is LOADING else error),
    "LeaveGroup": (
        lambda h, g: leave_errors(h.coordinator.leave_group(g, identities([("m", None)]), h.now_ms)),
        lambda error: (error, []),
    ),
    "OffsetCommit": (lambda h, g: commit_two(h, g, -1), lambda error: [error] * 2),
    "OffsetCommit of a member": (lambda h, g: commit_two(h, g, 1), lambda error: [error] * 2),
    "OffsetFetch": (lambda h, g: h.coordinator.offsets.fetch(g, [("t", 0)]), lambda error: (error, [])),
    "OffsetFetch of all": (lambda h, g: h.coordinator.offsets.fetch(g, None), lambda error: (error, [])),
    "OffsetDelete": (lambda h, g: h.coordinator.offsets.delete(g, [("t", 0)]), lambda error: (error, [])),
    "DeleteGroups": (lambda h, g: h.coordinator.delete_groups([g], h.now_ms)[g], lambda error: error),
    "other requests": (lambda h, g: h.coordinator.error_for(g), lambda error: error),
}


def loading(harness: CoordinatorHarness) -> None:
    harness.coordinator.resign(PARTITION, harness.now_ms)
    harness.coordinator.start_loading(PARTITION)


def failed(harness: CoordinatorHarness) -> None:
    loading(harness)
    harness.coordinator.fail_loading(PARTITION)


def resigned(harness: CoordinatorHarness) -> None:
    harness.coordinator.resign(PARTITION, harness.now_ms)


def resigned_while_loading(harness: CoordinatorHarness) -> None:
    loading(harness)
    resigned(harness)


def loading_again(harness: CoordinatorHarness) -> None:
    failed(harness)
    harness.coordinator.start_loading(PARTITION)


CHANGES: dict[str, tuple[Callable[[CoordinatorHarness], None], ErrorCode]] = {
    # Name: how the partition is changed, and the error of requests after the change.
    "resigned": (resigned, NOT_COORDINATOR),
    "loading": (loading, LOADING),
    "failed": (failed, NOT_COORDINATOR),
    "resigned while loading": (resigned_while_loading, NOT_COORDINATOR),
    "loading again": (loading_again, LOADING),
}


@subtest_for_each("partition", CHANGES)
@subtest_for_each("request", REQUESTS)
def test_errors_of_requests_for_a_partition_that_is_not_led(partition: str, request: str) -> None:
    harness = CoordinatorHarness()
    harness.create_stable_group()
    harness.commit(group_id="a")
    change, error = CHANGES[partition]
    change(harness)
    harness.settle()
    send, result = REQUESTS[request]
    before = list(harness.batches)
    assert send(harness, "g") == result(error)
    assert harness.batches == before
    assert harness.state() == "-"
    assert harness.committed(group_id="a") == 1


def test_faults_of_the_request_are_reported_before_loading() -> None:
    harness = CoordinatorHarness(offsets_topic_num_partitions=1)
    harness.coordinator.resign(0, harness.now_ms)
    harness.coordinator.start_loading(0)
    assert join(harness, "").error_code == sync(harness, "").error_code == INVALID
    assert harness.heartbeat("m", 1, group_id="") is INVALID
    assert leave_errors(harness.coordinator.leave_group("", [], harness.now_ms)) == (INVALID, [])
    assert harness.coordinator.offsets.delete("", []) == (INVALID, [])
    assert join(harness, "g", session_ms=OUT_OF_BOUNDS).error_code == ErrorCode.INVALID_SESSION_TIMEOUT
    assert harness.delete_group("") is LOADING


def test_only_a_loading_partition_can_finish_or_fail_loading() -> None:
    harness = CoordinatorHarness()
    loading(harness)
    harness.coordinator.finish_loading(PARTITION, [], harness.now_ms)
    assert harness.coordinator.error_for("g") is NONE
    with pytest.raises(RuntimeError, match=f"offsets partition {PARTITION} is not being loaded"):
        harness.coordinator.finish_loading(PARTITION, [], harness.now_ms)
    with pytest.raises(RuntimeError, match=f"offsets partition {PARTITION} is not being loaded"):
        harness.coordinator.fail_loading(PARTITION)


def test_led_partition_cannot_be_loaded() -> None:
    harness = CoordinatorHarness()
    harness.commit()
    with pytest.raises(RuntimeError, match=f"offsets partition {PARTITION} is led; it has to be resigned before"):
        harness.coordinator.start_loading(PARTITION)
    assert harness.committed() == 1


def test_lead_ends_loading() -> None:
    harness = CoordinatorHarness()
    loading(harness)
    harness.coordinator.lead(PARTITION, harness.now_ms)
    assert harness.coordinator.error_for("g") is NONE
    harness.coordinator.resign(PARTITION, harness.now_ms)
    assert harness.coordinator.error_for("g") is NOT_COORDINATOR
