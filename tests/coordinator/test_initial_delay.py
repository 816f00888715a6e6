"""The first round of an empty group waits for more members: D, the initial delay; at most R, a rebalance timeout."""

import pytest

from fakebroker.errors import ErrorCode
from tests.support.coordinator.coordinator_harness import SESSION_MS, CoordinatorHarness


def completion_ms(driver: CoordinatorHarness, arrivals_ms: list[int], rebalance_ms: int) -> float:
    """When, after the first, members that arrive at these times are told that the round is complete."""
    start_ms = driver.now_ms
    calls = []
    for arrival_ms in arrivals_ms:
        driver.advance(start_ms + arrival_ms - driver.now_ms)
        calls.append(driver.join(rebalance_ms=rebalance_ms))
    while any(call.is_parked for call in calls):
        deadline_ms = driver.coordinator.next_deadline()
        assert deadline_ms is not None
        driver.advance(deadline_ms - driver.now_ms)
    assert driver.group().state_since_ms == driver.now_ms
    assert {call.joined.generation_id for call in calls} == {1}
    return driver.now_ms - start_ms


@pytest.mark.parametrize(
    ("delay_ms", "rebalance_ms", "arrivals_ms", "expected_ms"),
    [
        pytest.param(3_000, 60_000, [0], 3_000, id="alone: D"),
        pytest.param(3_000, 60_000, [0, 2_999], 6_000, id="one more: D again"),
        pytest.param(3_000, 60_000, [0, 1, 2, 3], 6_000, id="several in one wait count as one"),
        pytest.param(3_000, 60_000, [0, 2_000, 4_000, 7_000], 12_000, id="one in every wait"),
        pytest.param(3_000, 8_000, [0, 1_000, 4_000, 7_000], 8_000, id="the last wait ends at R"),
        pytest.param(3_000, 8_000, [0, 1_000, 4_000, 6_500, 7_900], 8_000, id="R is the end, whoever comes"),
        pytest.param(3_000, 5_000, [0, 1_000], 5_000, id="R below two waits"),
        pytest.param(3_000, 3_000, [0, 1_000], 3_000, id="R equal to D"),
        pytest.param(3_000, 1_000, [0, 1_000], 3_000, id="R below D: D all the same"),
        pytest.param(0, 60_000, [0], 0, id="no delay"),
        pytest.param(20_000, 30_000, [0, 1_000, 25_000], 30_000, id="a long delay"),
    ],
)
def test_how_long_it_takes(delay_ms: int, rebalance_ms: int, arrivals_ms: list[int], expected_ms: int) -> None:
    driver = CoordinatorHarness(group_initial_rebalance_delay_ms=delay_ms)
    assert completion_ms(driver, arrivals_ms, rebalance_ms) == expected_ms


def test_without_delay_the_first_is_alone_and_the_second_starts_a_round() -> None:
    driver = CoordinatorHarness(group_initial_rebalance_delay_ms=0)
    first = driver.join()
    assert first.joined.generation_id == 1
    second = driver.join()
    assert second.is_parked
    assert driver.join(first.joined.member_id).joined.generation_id == 2
    assert second.joined.generation_id == 2


def test_r_is_that_of_the_members_there_at_the_start() -> None:
    driver = CoordinatorHarness()
    first = driver.join(rebalance_ms=4_000)
    driver.join(rebalance_ms=60_000)
    driver.advance(3_999)
    assert first.is_parked
    driver.advance(1)
    assert first.joined.generation_id == 1


def test_a_group_that_is_empty_again_waits_again() -> None:
    driver = CoordinatorHarness()
    driver.leave((driver.stable(1)[0], None))
    assert driver.group().generation_id == 2
    call = driver.join()
    driver.advance(2_999)
    assert call.is_parked
    driver.advance(1)
    assert call.joined.generation_id == 3


def test_a_member_that_came_in_the_very_last_wait_makes_the_next_first_round_longer() -> None:
    # Kafka's flag is not taken down at the end of a round: it stands until an initial delay looks at it again.
    driver = CoordinatorHarness()
    calls = [driver.join(rebalance_ms=3_000), driver.join(rebalance_ms=3_000)]
    driver.advance(3_000)
    driver.leave(*[(call.joined.member_id, None) for call in calls])
    call = driver.join()
    driver.advance(3_000)
    assert call.is_parked
    driver.advance(3_000)
    assert not call.is_parked


def test_pending_ids_neither_extend_the_delay_nor_are_waited_for() -> None:
    driver = CoordinatorHarness()
    call = driver.join()
    driver.advance(1_000)
    pending_id = driver.pend()
    driver.advance(2_000)
    assert call.joined.generation_id == 1
    assert driver.join(pending_id).is_parked


def test_leaving_does_not_cut_it_short() -> None:
    driver = CoordinatorHarness()
    pending_id = driver.pend()
    stays = driver.join()
    assert driver.leave((pending_id, None)) == [ErrorCode.NONE]
    assert stays.is_parked


def test_if_all_leave_the_group_is_empty_when_it_ends() -> None:
    driver = CoordinatorHarness()
    call = driver.join(instance_id="i")
    assert driver.leave(("", "i")) == [ErrorCode.NONE]
    assert (call.error, call.joined.member_id) == (ErrorCode.UNKNOWN_MEMBER_ID, "")
    driver.advance(2_999)
    assert driver.state() == "PreparingRebalance"
    driver.advance(1)
    assert (driver.state(), driver.group().generation_id) == ("Empty", 1)


def test_an_expiry_cuts_it_short_if_nobody_else_is_missing() -> None:
    driver = CoordinatorHarness(group_initial_rebalance_delay_ms=60_000)
    pending_id = driver.pend()
    call = driver.join()
    driver.advance(SESSION_MS - 1)
    assert call.is_parked
    driver.advance(1)
    assert call.joined.generation_id == 1
    assert driver.join(pending_id).error is ErrorCode.UNKNOWN_MEMBER_ID


def test_an_expiry_does_not_cut_it_short_while_others_are_missing() -> None:
    driver = CoordinatorHarness(group_initial_rebalance_delay_ms=60_000)
    driver.pend()
    call = driver.join()
    driver.advance(1_000)
    driver.pend(session_ms=20_000)
    driver.advance(SESSION_MS)
    assert call.is_parked
