"""Appends that complete later: the request is answered on completion, and later operations wait in order."""

from collections.abc import Callable
from functools import partial
from math import inf
from random import Random
from typing import Any

import pytest
from msgspec.structs import replace

from fakebroker.coordinator.group import controls
from fakebroker.coordinator.group.api import SyncResult
from fakebroker.coordinator.group.classic.group import Group
from fakebroker.coordinator.group.invariants import check
from fakebroker.coordinator.group.records import GroupRecord, GroupValue, Record
from fakebroker.errors import ErrorCode
from tests.support.coordinator.coordinator_harness import (
    REBALANCE_MS,
    SESSION_MS,
    CoordinatorHarness,
    Done,
    SentRequest,
    expected_member,
    joining_member,
    protocols,
)
from tests.support.coordinator.group_contents import contents
from tests.support.soak import cases, soak
from tests.support.subtests import subtest_for_each

NONE = ErrorCode.NONE
FAILED = ErrorCode.COORDINATOR_NOT_AVAILABLE
NOT_COORDINATOR = ErrorCode.NOT_COORDINATOR
if_stored_or_failed = subtest_for_each("error", [NONE, FAILED])


def stable_group_with_postponed_appends(
    size: int = 2, static: tuple[str, ...] = ()
) -> tuple[CoordinatorHarness, list[str]]:
    harness = CoordinatorHarness()
    member_ids = harness.create_stable_group(size, static)
    harness.postpone_appends()
    return harness, member_ids


# One request


@if_stored_or_failed
def test_commit_is_applied_and_answered_when_it_is_stored(error: ErrorCode) -> None:
    harness, (member_id, _) = stable_group_with_postponed_appends()
    results = harness.start_commit(member_id, 1, offset=5)
    assert (results, harness.committed()) == ([], None)
    assert harness.heartbeat(member_id, 1) is NONE
    harness.complete_append(error)
    assert (results, harness.committed()) == ([[error]], None if error else 5)


@if_stored_or_failed
def test_commit_creates_its_group_when_it_is_stored(error: ErrorCode) -> None:
    harness = CoordinatorHarness()
    harness.postpone_appends()
    results = harness.start_commit()
    assert (results, harness.state()) == ([], "-")
    harness.complete_append(error)
    assert (results, harness.state()) == ([[error]], "-" if error else "Empty")


@if_stored_or_failed
def test_first_join_waits_until_its_group_is_stored(error: ErrorCode) -> None:
    harness = CoordinatorHarness()
    harness.postpone_appends()
    call = harness.join()
    assert (call.is_parked, harness.state()) == (True, "PreparingRebalance")
    harness.complete_append(error)
    if error:
        assert (call.error, harness.state()) == (error, "-")
    harness.advance(1_000_000)
    assert call.error is error


@if_stored_or_failed
def test_syncs_are_answered_when_the_assignment_is_stored(error: ErrorCode) -> None:
    harness = CoordinatorHarness()
    leader, follower = harness.create_completing_group(2)
    harness.postpone_appends()
    early = harness.sync(follower, 1)
    call = harness.sync(leader, 1, [(leader, b"a"), (follower, b"b")])
    assert early.is_parked
    assert call.is_parked
    assert harness.state() == "CompletingRebalance"
    assert harness.heartbeat(leader, 1) is NONE
    harness.complete_append(error)
    if error:
        assert early.result == call.result == SyncResult(error)
        assert harness.state() == "PreparingRebalance"
    else:
        assert (early.synced.assignment, call.synced.assignment) == (b"b", b"a")
        assert harness.state() == "Stable"


@if_stored_or_failed
def test_replaced_static_member_is_answered_when_the_group_is_stored(error: ErrorCode) -> None:
    harness, (member_id,) = stable_group_with_postponed_appends(0, ("i",))
    before = contents(harness.group())
    call = harness.join(instance_id="i")
    assert call.is_parked
    harness.complete_append(error)
    assert call.error is error
    assert (contents(harness.group()) == before) == bool(error)
    assert harness.heartbeat(member_id, 1, "i") is (NONE if error else ErrorCode.FENCED_INSTANCE_ID)


@if_stored_or_failed
def test_leave_of_the_last_member_is_answered_when_the_empty_group_is_stored(error: ErrorCode) -> None:
    harness, (member_id,) = stable_group_with_postponed_appends(1)
    results = harness.start_leave((member_id, None))
    assert (results, harness.state()) == ([], "Empty")
    assert harness.heartbeat(member_id, 1) is ErrorCode.UNKNOWN_MEMBER_ID
    harness.complete_append(error)
    assert results == [(error, []) if error else (NONE, [NONE])]
    assert (harness.state(), harness.group().generation_id) == ("Empty", 2)


@if_stored_or_failed
def test_group_is_deleted_when_its_tombstones_are_stored(error: ErrorCode) -> None:
    harness = CoordinatorHarness()
    harness.commit()
    harness.postpone_appends()
    results = harness.start_delete()
    assert (results, harness.committed()) == ([], 1)
    harness.complete_append(error)
    assert (results, harness.state()) == ([error], "Empty" if error else "-")


@if_stored_or_failed
def test_offsets_are_deleted_when_their_tombstones_are_stored(error: ErrorCode) -> None:
    harness = CoordinatorHarness()
    harness.commit()
    harness.commit(topic="u")
    harness.postpone_appends()
    results = harness.start_delete_offsets()
    harness.coordinator.offsets.delete_topic("u")
    assert (results, harness.committed(), len(harness.pending_appends)) == ([], 1, 1)
    harness.complete_append(error)
    assert results == [(error, []) if error else (NONE, [NONE])]
    assert (harness.committed(), harness.committed("u")) == (1 if error else None, 1)
    harness.complete_append(error)
    assert harness.committed("u") == (1 if error else None)


@if_stored_or_failed
def test_offsets_expire_when_their_tombstones_are_stored(error: ErrorCode) -> None:
    harness = CoordinatorHarness(offsets_retention_ms=1_000)
    harness.commit()
    harness.postpone_appends()
    harness.advance(600_000)
    assert (harness.committed(), harness.state()) == (1, "Empty")
    harness.complete_append(error)
    assert harness.state() == ("Empty" if error else "-")
    if error:  # The next check finds the expired offsets again.
        harness.advance(600_000)
        harness.complete_append()
        assert harness.state() == "-"


# Operations that arrive during an append


def test_requests_wait_for_the_append_and_run_in_order() -> None:
    harness, (leader, follower) = stable_group_with_postponed_appends()
    commits = [harness.start_commit(leader, 1, offset=offset) for offset in (1, 2)]
    left = harness.start_leave((follower, None))
    late_commit = harness.start_commit(follower, 1, offset=3)
    call = harness.join(leader)
    assert not any([*commits, left, late_commit])
    assert (call.is_parked, list(harness.group().members)) == (True, [leader, follower])
    harness.complete_append()
    assert (commits, harness.committed()) == ([[[NONE]], []], 1)
    harness.complete_append()
    assert (commits[1], harness.committed(), left) == ([[NONE]], 2, [(NONE, [NONE])])
    assert late_commit == [[ErrorCode.UNKNOWN_MEMBER_ID]]
    assert call.joined.generation_id == 2
    assert not harness.pending_appends


def test_waiting_requests_run_after_a_failed_append() -> None:
    harness, (leader, _) = stable_group_with_postponed_appends()
    first, second = (harness.start_commit(leader, 1, offset=offset) for offset in (1, 2))
    harness.complete_append(FAILED)
    harness.complete_append()
    assert (first, second, harness.committed()) == ([[FAILED]], [[NONE]], 2)


def test_heartbeats_and_fetches_do_not_wait() -> None:
    harness, (leader, _) = stable_group_with_postponed_appends()
    harness.start_commit(leader, 1, offset=7)
    harness.now_ms += 5
    assert harness.heartbeat(leader, 1) is NONE
    assert harness.group().members[leader].deadline_ms == harness.now_ms + SESSION_MS
    assert harness.committed() is None


def test_other_partitions_do_not_wait() -> None:
    harness, (leader, _) = stable_group_with_postponed_appends()
    harness.start_commit(leader, 1, offset=7)
    harness.complete_appends_at_once()
    assert harness.group().partition != harness.coordinator._runtime.partition_for("h")
    assert harness.commit(group_id="h") is NONE
    assert harness.join(group_id="h").is_parked
    assert harness.state("h") == "PreparingRebalance"


def test_sync_that_arrives_during_the_append_gets_its_assignment() -> None:
    harness = CoordinatorHarness()
    leader, follower = harness.create_completing_group(2)
    harness.postpone_appends()
    calls = [harness.sync(leader, 1, [(follower, b"b")]), harness.sync(follower, 1)]
    assert all(call.is_parked for call in calls)
    harness.complete_append()
    assert [call.synced.assignment for call in calls] == [b"", b"b"]


def test_waiting_join_finds_the_group_created_by_a_commit() -> None:
    harness = CoordinatorHarness()
    harness.postpone_appends()
    results = harness.start_commit()
    call = harness.join()
    harness.complete_append()
    assert (results, harness.state()) == ([[NONE]], "PreparingRebalance")
    harness.complete_appends()
    harness.advance(1_000_000)
    assert call.error is NONE


def test_timers_wait_for_the_append() -> None:
    harness, (leader, follower) = stable_group_with_postponed_appends()
    harness.advance(SESSION_MS - 1)
    harness.heartbeat(follower, 1)
    harness.start_commit(follower, 1)
    harness.advance(SESSION_MS / 2)
    assert (harness.state(), leader in harness.group().members) == ("Stable", True)
    harness.complete_append()
    assert (harness.state(), leader in harness.group().members) == ("PreparingRebalance", False)
    assert harness.group().join_deadline_ms == harness.group().state_since_ms + REBALANCE_MS


def test_session_extended_during_the_append_does_not_expire() -> None:
    harness, (leader, follower) = stable_group_with_postponed_appends()
    harness.advance(SESSION_MS - 1)
    harness.start_commit(follower, 1)
    harness.advance(1)
    harness.heartbeat(leader, 1)
    harness.complete_append()
    assert (harness.state(), list(harness.group().members)) == ("Stable", [leader, follower])
    harness.advance(SESSION_MS)
    harness.complete_appends()
    assert harness.state() == "Empty"


def test_manual_controls_wait_for_the_append() -> None:
    harness, (leader, _) = stable_group_with_postponed_appends()
    harness.start_commit(leader, 1)
    controls.force_rebalance(harness.coordinator, harness.group(), harness.now_ms)
    controls.expire(harness.coordinator, harness.group(), leader, harness.now_ms)
    harness.settle()
    assert harness.state() == "Stable"
    harness.complete_append()
    assert (harness.state(), leader in harness.group().members) == ("PreparingRebalance", False)


def test_manual_control_of_a_member_that_has_left_is_ignored() -> None:
    harness, (leader, follower) = stable_group_with_postponed_appends()
    harness.start_commit(leader, 1)
    harness.start_leave((follower, None))
    controls.expire(harness.coordinator, harness.group(), follower, harness.now_ms)
    controls.force_rebalance(harness.coordinator, harness.group(), harness.now_ms)
    harness.complete_append()
    assert (harness.state(), list(harness.group().members)) == ("PreparingRebalance", [leader])


# The partition is resigned during an append


def test_waiting_requests_get_not_coordinator_when_the_partition_is_resigned() -> None:
    harness, (leader, follower) = stable_group_with_postponed_appends()
    first = harness.start_commit(leader, 1)
    waiting = [
        harness.start_commit(leader, 1),
        harness.start_leave((follower, None)),
        harness.start_delete_offsets(),
        harness.start_delete(),
    ]
    calls = [harness.join(leader), harness.sync(follower, 1)]
    harness.advance(SESSION_MS)
    harness.coordinator.resign(harness.group().partition, harness.now_ms)
    harness.settle()
    assert (first, waiting) == (
        [[NOT_COORDINATOR]],
        [[[NOT_COORDINATOR]], [(NOT_COORDINATOR, [])], [(NOT_COORDINATOR, [])], [NOT_COORDINATOR]],
    )
    assert [call.error for call in calls] == [NOT_COORDINATOR] * 2
    assert harness.state() == "-"
    harness.complete_append()  # Ignored: the partition was resigned.
    assert (first, harness.state()) == ([[NOT_COORDINATOR]], "-")


@subtest_for_each("act", ["sync", "replace", "join", "leave"])
def test_suspended_procedure_ends_when_the_partition_is_resigned(act: str) -> None:
    harness = CoordinatorHarness()
    if act == "sync":
        (member_id,) = harness.create_completing_group(1)
    elif act != "join":
        (member_id,) = harness.create_stable_group(0, ("i",))
    harness.postpone_appends()
    results: list[Any] = []
    call = SentRequest()
    if act == "sync":
        call = harness.sync(member_id, 1)
    elif act == "leave":
        results = harness.start_leave(("", "i"))
    else:
        call = harness.join(instance_id="i")
    assert len(harness.pending_appends) == 1
    harness.coordinator.resign(harness.group().partition, harness.now_ms)
    harness.settle()
    assert results == [(NOT_COORDINATOR, [])] if act == "leave" else call.error is NOT_COORDINATOR
    assert harness.state() == "-"
    harness.complete_append()
    assert harness.state() == "-"
    harness.advance(1_000_000)


def test_partition_that_is_led_again_is_not_blocked_by_a_former_append() -> None:
    harness, (leader, _) = stable_group_with_postponed_appends()
    harness.start_commit(leader, 1)
    partition = harness.group().partition
    harness.coordinator.resign(partition, harness.now_ms)
    harness.coordinator.lead(partition, harness.now_ms)
    second = harness.start_commit()
    harness.complete_append()  # The append from before is ignored.
    assert (second, harness.state()) == ([], "-")
    harness.complete_append()
    assert (second, harness.state()) == ([[NONE]], "Empty")


# Batches (KAFKA-8397)


@if_stored_or_failed
def test_batch_waits_until_its_registrations_are_stored(error: ErrorCode) -> None:
    harness = CoordinatorHarness()
    harness.postpone_appends()
    call = harness.join_batch(expected_member("x"), joining_member(protocols=protocols("range")))
    assert call.is_parked
    harness.complete_append(error)
    if error:
        assert (call.errors, harness.state()) == ([error] * 2, "-")
        return
    assert (call.is_parked, harness.state()) == (True, "PreparingRebalance")
    assert not harness.pending_appends
    harness.advance(REBALANCE_MS)
    assert call.errors == [NONE, NONE]


def test_static_replacements_in_a_batch_are_stored_one_by_one() -> None:
    harness, former = stable_group_with_postponed_appends(0, ("i", "j"))
    call = harness.join_batch(joining_member(instance_id="i"), joining_member(instance_id="j"))
    assert (call.is_parked, len(harness.pending_appends)) == (True, 1)
    harness.complete_append(FAILED)
    assert (call.is_parked, len(harness.pending_appends)) == (True, 1)
    harness.complete_append()
    assert call.errors == [FAILED, NONE]
    assert former[0] in harness.group().members
    assert former[1] not in harness.group().members


def test_joins_at_the_end_of_a_wait_are_answered_when_the_partition_is_resigned() -> None:
    harness = CoordinatorHarness()
    harness.create_stable_group(1)
    harness.register("x", "y")
    harness.postpone_appends()
    calls = [harness.join(instance_id=instance_id) for instance_id in "xy"]
    assert (harness.state(), len(harness.pending_appends)) == ("Stable", 1)
    harness.coordinator.resign(harness.group().partition, harness.now_ms)
    harness.settle()
    assert [call.error for call in calls] == [NOT_COORDINATOR] * 2


def test_append_that_raises_does_not_block_the_partition() -> None:
    harness, (leader, _) = stable_group_with_postponed_appends()

    def fail(partition: int, records: tuple[Record, ...], done: Done) -> None:
        raise ValueError("cannot be encoded")

    append, harness.coordinator._runtime._append = harness.coordinator._runtime._append, fail
    with pytest.raises(ValueError, match="encoded"):
        harness.start_commit(leader, 1)
    harness.coordinator._runtime._append = append
    results = harness.start_commit(leader, 1)
    harness.complete_append()
    assert results == [[NONE]]


# Random histories


def run_history(harness: CoordinatorHarness, seed: int) -> list[Any]:
    """Send random requests to two groups; return the answers."""
    random = Random(seed)
    answers: list[Any] = []
    for _ in range(250):
        group_id = random.choice("gh")
        group = harness.coordinator.groups.classic.get(group_id)
        members = list(group.members) if group else []
        member_id = random.choice([*members, "", "unknown"])
        generation_id = group.generation_id if group else 0
        instance_id = random.choice([None, "i", "j"])
        actions: list[Callable[[], Any]] = [
            partial(harness.join, group_id=group_id, instance_id=instance_id, two_step=random.random() < 0.3),
            partial(harness.join, member_id, group_id=group_id),
            *[partial(harness.sync, each, generation_id, [(each, b"a")], group_id=group_id) for each in members],
            partial(harness.start_leave, (member_id, None), group_id=group_id),
            partial(harness.start_commit, member_id, generation_id, random.randrange(9), group_id=group_id),
            partial(harness.start_commit, offset=random.randrange(9), topic=random.choice("tu"), group_id=group_id),
            partial(harness.start_delete_offsets, group_id=group_id),
            partial(harness.start_delete, group_id),
            partial(harness.coordinator.offsets.delete_topic, "u"),
            partial(harness.join_batch, expected_member("i"), joining_member(), group_id=group_id),
            partial(
                harness.join_batch, joining_member(instance_id="i"), joining_member(instance_id="j"), group_id=group_id
            ),
        ]
        answers.append(random.choice(actions)())
        harness.advance(random.choice([100, 100, 1_000, 3_000]))
    return [answer.result if isinstance(answer, SentRequest) else answer for answer in answers]


@soak
@subtest_for_each("seed", cases(2, soak=300))
@subtest_for_each("delay_ms", [0, 1_000])
def test_results_do_not_depend_on_when_appends_complete(seed: int, delay_ms: int) -> None:
    config: dict[str, Any] = {"group_initial_rebalance_delay_ms": delay_ms, "offsets_topic_num_partitions": 1}
    immediate, delayed = CoordinatorHarness(**config), CoordinatorHarness(**config)
    delayed.postpone_appends(delays=Random(seed))
    assert run_history(delayed, seed) == run_history(immediate, seed)
    assert comparable_batches(delayed) == comparable_batches(immediate)
    assert {group.group_id: comparable_contents(group) for group in delayed.coordinator.groups.classic.values()} == {
        group.group_id: comparable_contents(group) for group in immediate.coordinator.groups.classic.values()
    }
    assert len(delayed.batches) > 15


def without_delay(time_ms: float) -> float:
    """Round a time down to the 100 ms between requests: a timer may expire up to 40 ms late, after an append."""
    return time_ms if time_ms == inf else time_ms // 100 * 100


def comparable_value(value: GroupValue) -> GroupValue:
    return replace(value, state_timestamp_ms=int(without_delay(value.state_timestamp_ms)))


def comparable_batches(harness: CoordinatorHarness) -> list[list[Record]]:
    return [
        [
            GroupRecord(record.group_id, comparable_value(record.value))
            if isinstance(record, GroupRecord) and record.value
            else record
            for record in records
        ]
        for _, records in harness.batches
    ]


def comparable_contents(group: Group) -> dict[str, Any]:
    check(group)
    found = contents(group)
    for name in ("context", "controls", "pending_change", "timer_number", "extension"):
        del found[name]
    for name in ("state_since_ms", "join_deadline_ms", "sync_deadline_ms"):
        found[name] = without_delay(found[name])
    return found | {
        "stored": group.stored and comparable_value(group.stored),
        "stored_values": group.extension.stored_values(),
        "pending_members": [(member_id, without_delay(end_ms)) for member_id, end_ms in group.pending_members.items()],
        "parked_joins": list(group.parked_joins),
        "parked_syncs": list(group.parked_syncs),
    }
