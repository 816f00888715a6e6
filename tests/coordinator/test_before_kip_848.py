"""Where the coordinator of Kafka before 4.0 decides otherwise, each beside what the newer one does."""

import pytest

from fakebroker.errors import ErrorCode
from tests.coordinator.test_expiry import CHECK_MS, LONG, RETENTION_MS, pass_checks
from tests.support.coordinator.coordinator_harness import DELAY_MS, SESSION_MS, CoordinatorHarness

with_each = pytest.mark.parametrize("is_before", [True, False], ids=["before", "since"])


@with_each
def test_a_sync_while_the_group_is_being_loaded(is_before: bool) -> None:
    driver = CoordinatorHarness(is_before_kip_848=is_before)
    (leader,) = driver.stable(1)
    errors: list[ErrorCode] = []

    def sync() -> None:
        call = driver.sync(leader, 1)
        errors.append(call.error)

    driver.hand_over(sync)
    expected = ErrorCode.REBALANCE_IN_PROGRESS if is_before else ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert errors == [expected]


@with_each
def test_a_member_of_a_generation_commits_to_a_group_that_is_not_there(is_before: bool) -> None:
    driver = CoordinatorHarness(is_before_kip_848=is_before)
    expected = ErrorCode.ILLEGAL_GENERATION if is_before else ErrorCode.GROUP_ID_NOT_FOUND
    assert driver.commit("m", 1) is expected


@with_each
def test_a_join_that_is_refused_gets_its_member_id_back(is_before: bool) -> None:
    driver = CoordinatorHarness(is_before_kip_848=is_before)
    for partition in driver.partitions:
        driver.coordinator.resign(partition, driver.now_ms)
    refused = driver.join("m").joined
    assert (refused.error, refused.member_id) == (ErrorCode.NOT_COORDINATOR, "m" if is_before else "")


@with_each
def test_who_coordinates_is_looked_at_before_the_session_timeout(is_before: bool) -> None:
    driver = CoordinatorHarness(is_before_kip_848=is_before)
    for partition in driver.partitions:
        driver.coordinator.resign(partition, driver.now_ms)
    expected = ErrorCode.NOT_COORDINATOR if is_before else ErrorCode.INVALID_SESSION_TIMEOUT
    assert driver.join(session_ms=1).error is expected


@with_each
def test_a_new_group_is_not_in_the_log(is_before: bool) -> None:
    driver = CoordinatorHarness(is_before_kip_848=is_before)
    driver.join()
    assert len(driver.batches) == (0 if is_before else 1)


@with_each
def test_a_group_that_was_empty_waits_one_delay(is_before: bool) -> None:
    driver = CoordinatorHarness(is_before_kip_848=is_before)
    (member_id,) = driver.stable(1)
    driver.leave((member_id, None))
    first, _ = driver.join(), driver.join()
    driver.advance(DELAY_MS)
    assert first.is_parked is not is_before
    driver.advance(DELAY_MS)
    assert not first.is_parked


@with_each
def test_the_first_generation_waits_for_whoever_comes(is_before: bool) -> None:
    driver = CoordinatorHarness(is_before_kip_848=is_before)
    first, _ = driver.join(), driver.join()
    driver.advance(2 * DELAY_MS - 1)
    assert first.is_parked
    driver.advance(1)
    assert not first.is_parked


@with_each
def test_a_pending_id_that_expires_cuts_the_initial_delay_short(is_before: bool) -> None:
    driver = CoordinatorHarness(is_before_kip_848=is_before, group_initial_rebalance_delay_ms=2 * SESSION_MS)
    driver.pend()
    first = driver.join()
    driver.advance(SESSION_MS)
    assert first.is_parked is is_before


@with_each
def test_a_pending_id_that_leaves_is_not_missed(is_before: bool) -> None:
    driver = CoordinatorHarness(is_before_kip_848=is_before)
    driver.stable(1)
    driver.leave((driver.pend(), None))
    assert driver.state() == ("Stable" if is_before else "PreparingRebalance")


@with_each
def test_the_last_of_a_batch_that_leaves_ends_the_join_phase(is_before: bool) -> None:
    driver = CoordinatorHarness(is_before_kip_848=is_before)
    ids = driver.stable(3)
    rejoined = driver.join(ids[0])
    assert driver.leave((ids[1], None), ("", None), (ids[2], None)) == [
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.NONE,
    ]
    assert rejoined.joined.generation_id == 2
    assert driver.leave((ids[0], None)) == [ErrorCode.NONE]
    assert (driver.state(), driver.group().generation_id) == ("Empty", 3)


@with_each
def test_a_sync_in_a_stable_group_keeps_the_session_alive(is_before: bool) -> None:
    driver = CoordinatorHarness(is_before_kip_848=is_before)
    (member_id,) = driver.stable(1)
    driver.advance(SESSION_MS - 1)
    assert driver.sync(member_id, 1).error is ErrorCode.NONE
    driver.advance(1)
    assert driver.state() == ("Stable" if is_before else "Empty")


@with_each
def test_offsets_of_members_expire_before_kip_211(is_before: bool) -> None:
    driver = CoordinatorHarness(offsets_retention_ms=RETENTION_MS, is_before_kip_211=is_before)
    member_id, _ = driver.stable(2, **LONG)
    driver.commit(member_id, 1)
    pass_checks(driver, 1 + RETENTION_MS // CHECK_MS)
    assert driver.committed() == (None if is_before else 1)
    assert driver.state() == "Stable"
