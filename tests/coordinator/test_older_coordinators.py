"""Differences between the coordinators before and since Kafka 4.0 (KIP-848)."""

from fakebroker.errors import ErrorCode
from tests.support.coordinator.coordinator_harness import DELAY_MS, SESSION_MS, CoordinatorHarness
from tests.support.subtests import subtest_for_each

with_both = subtest_for_each("is_before", [True, False], ids=["before", "since"])


@with_both
def test_error_of_a_sync_while_the_partition_is_loading(is_before: bool) -> None:
    harness = CoordinatorHarness(is_before_kip_848=is_before)
    (leader,) = harness.create_stable_group(1)
    errors: list[ErrorCode] = []

    def sync() -> None:
        call = harness.sync(leader, 1)
        errors.append(call.error)

    harness.fail_over(sync)
    expected = ErrorCode.REBALANCE_IN_PROGRESS if is_before else ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert errors == [expected]


@with_both
def test_error_of_a_member_commit_to_a_missing_group(is_before: bool) -> None:
    harness = CoordinatorHarness(is_before_kip_848=is_before)
    expected = ErrorCode.ILLEGAL_GENERATION if is_before else ErrorCode.GROUP_ID_NOT_FOUND
    assert harness.commit("m", 1) is expected


@with_both
def test_member_id_in_a_join_rejected_with_not_coordinator(is_before: bool) -> None:
    harness = CoordinatorHarness(is_before_kip_848=is_before)
    for partition in harness.partitions:
        harness.coordinator.resign(partition, harness.now_ms)
    refused = harness.join("m").joined
    assert (refused.error_code, refused.member_id) == (ErrorCode.NOT_COORDINATOR, "m" if is_before else "")


@with_both
def test_order_of_coordinator_and_session_timeout_checks(is_before: bool) -> None:
    harness = CoordinatorHarness(is_before_kip_848=is_before)
    for partition in harness.partitions:
        harness.coordinator.resign(partition, harness.now_ms)
    expected = ErrorCode.NOT_COORDINATOR if is_before else ErrorCode.INVALID_SESSION_TIMEOUT
    assert harness.join(session_ms=1).error is expected


@with_both
def test_new_group_is_stored_since_kip_848(is_before: bool) -> None:
    harness = CoordinatorHarness(is_before_kip_848=is_before)
    harness.join()
    assert len(harness.batches) == (0 if is_before else 1)


@with_both
def test_initial_delay_of_a_former_group_is_extended_since_kip_848(is_before: bool) -> None:
    harness = CoordinatorHarness(is_before_kip_848=is_before)
    (member_id,) = harness.create_stable_group(1)
    harness.leave((member_id, None))
    first, _ = harness.join(), harness.join()
    harness.advance(DELAY_MS)
    assert first.is_parked is not is_before
    harness.advance(DELAY_MS)
    assert not first.is_parked


@with_both
def test_initial_delay_of_the_first_generation_is_extended(is_before: bool) -> None:
    harness = CoordinatorHarness(is_before_kip_848=is_before)
    first, _ = harness.join(), harness.join()
    harness.advance(2 * DELAY_MS - 1)
    assert first.is_parked
    harness.advance(1)
    assert not first.is_parked


@with_both
def test_expired_pending_id_ends_the_initial_delay_since_kip_848(is_before: bool) -> None:
    harness = CoordinatorHarness(is_before_kip_848=is_before, group_initial_rebalance_delay_ms=2 * SESSION_MS)
    harness.request_member_id()
    first = harness.join()
    harness.advance(SESSION_MS)
    assert first.is_parked is is_before


@with_both
def test_leaving_pending_id_starts_a_rebalance_since_kip_848(is_before: bool) -> None:
    harness = CoordinatorHarness(is_before_kip_848=is_before)
    harness.create_stable_group(1)
    harness.leave((harness.request_member_id(), None))
    assert harness.state() == ("Stable" if is_before else "PreparingRebalance")


@with_both
def test_last_member_of_a_leave_group_ends_the_join_phase(is_before: bool) -> None:
    harness = CoordinatorHarness(is_before_kip_848=is_before)
    ids = harness.create_stable_group(3)
    rejoined = harness.join(ids[0])
    assert harness.leave((ids[1], None), ("", None), (ids[2], None)) == [
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.NONE,
    ]
    assert rejoined.joined.generation_id == 2
    assert harness.leave((ids[0], None)) == [ErrorCode.NONE]
    assert (harness.state(), harness.group().generation_id) == ("Empty", 3)


@with_both
def test_sync_in_a_stable_group_extends_the_session_before_kip_848(is_before: bool) -> None:
    harness = CoordinatorHarness(is_before_kip_848=is_before)
    (member_id,) = harness.create_stable_group(1)
    harness.advance(SESSION_MS - 1)
    assert harness.sync(member_id, 1).error is ErrorCode.NONE
    harness.advance(1)
    assert harness.state() == ("Stable" if is_before else "Empty")
