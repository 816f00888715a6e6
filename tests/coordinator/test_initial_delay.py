"""The delay of the first rebalance of an empty group: the initial delay D, extended up to the rebalance timeout R."""

from fakebroker.errors import ErrorCode
from tests.support.coordinator.coordinator_harness import SESSION_MS, CoordinatorHarness
from tests.support.subtests import subtest_for_each


def completion_ms(harness: CoordinatorHarness, arrivals_ms: list[int], rebalance_ms: int) -> float:
    """Join members at these times; return when the generation starts. Times are relative to the first join."""
    start_ms = harness.now_ms
    calls = []
    for arrival_ms in arrivals_ms:
        harness.advance(start_ms + arrival_ms - harness.now_ms)
        calls.append(harness.join(rebalance_ms=rebalance_ms))
    while any(call.is_parked for call in calls):
        deadline_ms = harness.coordinator.queue.next_deadline()
        assert deadline_ms is not None
        harness.advance(deadline_ms - harness.now_ms)
    assert harness.group().state_since_ms == harness.now_ms
    assert {call.joined.generation_id for call in calls} == {1}
    return harness.now_ms - start_ms


TIMES: list[tuple[str, int, int, list[int], int]] = [
    # Description, initial delay D, rebalance timeout R, arrivals of members, expected time; in ms.
    ("alone: D", 3_000, 60_000, [0], 3_000),
    ("a second member: D again", 3_000, 60_000, [0, 2_999], 6_000),
    ("several members in one delay count as one", 3_000, 60_000, [0, 1, 2, 3], 6_000),
    ("one member in every delay", 3_000, 60_000, [0, 2_000, 4_000, 7_000], 12_000),
    ("the last delay ends at R", 3_000, 8_000, [0, 1_000, 4_000, 7_000], 8_000),
    ("R is the limit, even with new members", 3_000, 8_000, [0, 1_000, 4_000, 6_500, 7_900], 8_000),
    ("R below two delays", 3_000, 5_000, [0, 1_000], 5_000),
    ("R equal to D", 3_000, 3_000, [0, 1_000], 3_000),
    ("R below D: D", 3_000, 1_000, [0, 1_000], 3_000),
    ("no delay", 0, 60_000, [0], 0),
    ("a long delay", 20_000, 30_000, [0, 1_000, 25_000], 30_000),
]


@subtest_for_each(
    ("delay_ms", "rebalance_ms", "arrivals_ms", "expected_ms"),
    [row[1:] for row in TIMES],
    ids=[row[0] for row in TIMES],
)
def test_time_until_the_first_generation(
    delay_ms: int, rebalance_ms: int, arrivals_ms: list[int], expected_ms: int
) -> None:
    harness = CoordinatorHarness(group_initial_rebalance_delay_ms=delay_ms)
    assert completion_ms(harness, arrivals_ms, rebalance_ms) == expected_ms


def test_without_delay_the_second_member_starts_a_rebalance() -> None:
    harness = CoordinatorHarness(group_initial_rebalance_delay_ms=0)
    first = harness.join()
    assert first.joined.generation_id == 1
    second = harness.join()
    assert second.is_parked
    assert harness.join(first.joined.member_id).joined.generation_id == 2
    assert second.joined.generation_id == 2


def test_limit_is_the_rebalance_timeout_of_the_first_member() -> None:
    harness = CoordinatorHarness()
    first = harness.join(rebalance_ms=4_000)
    harness.join(rebalance_ms=60_000)
    harness.advance(3_999)
    assert first.is_parked
    harness.advance(1)
    assert first.joined.generation_id == 1


def test_group_that_became_empty_is_delayed_again() -> None:
    harness = CoordinatorHarness()
    harness.leave((harness.create_stable_group(1)[0], None))
    assert harness.group().generation_id == 2
    call = harness.join()
    harness.advance(2_999)
    assert call.is_parked
    harness.advance(1)
    assert call.joined.generation_id == 3


def test_member_added_in_the_last_delay_extends_the_next_initial_rebalance() -> None:
    # As in Kafka, the flag `new_member_added` is not reset at the end of a rebalance, only by the next initial delay.
    harness = CoordinatorHarness()
    calls = [harness.join(rebalance_ms=3_000), harness.join(rebalance_ms=3_000)]
    harness.advance(3_000)
    harness.leave(*[(call.joined.member_id, None) for call in calls])
    call = harness.join()
    harness.advance(3_000)
    assert call.is_parked
    harness.advance(3_000)
    assert not call.is_parked


def test_pending_ids_do_not_extend_the_delay() -> None:
    harness = CoordinatorHarness()
    call = harness.join()
    harness.advance(1_000)
    pending_id = harness.request_member_id()
    harness.advance(2_000)
    assert call.joined.generation_id == 1
    assert harness.join(pending_id).is_parked


def test_leave_group_does_not_end_the_delay() -> None:
    harness = CoordinatorHarness()
    pending_id = harness.request_member_id()
    stays = harness.join()
    assert harness.leave((pending_id, None)) == [ErrorCode.NONE]
    assert stays.is_parked


def test_group_without_members_becomes_empty_at_the_end_of_the_delay() -> None:
    harness = CoordinatorHarness()
    call = harness.join(instance_id="i")
    assert harness.leave(("", "i")) == [ErrorCode.NONE]
    assert (call.error, call.joined.member_id) == (ErrorCode.UNKNOWN_MEMBER_ID, "")
    harness.advance(2_999)
    assert harness.state() == "PreparingRebalance"
    harness.advance(1)
    assert (harness.state(), harness.group().generation_id) == ("Empty", 1)


def test_expiry_of_the_last_pending_id_ends_the_delay() -> None:
    harness = CoordinatorHarness(group_initial_rebalance_delay_ms=60_000)
    pending_id = harness.request_member_id()
    call = harness.join()
    harness.advance(SESSION_MS - 1)
    assert call.is_parked
    harness.advance(1)
    assert call.joined.generation_id == 1
    assert harness.join(pending_id).error is ErrorCode.UNKNOWN_MEMBER_ID


def test_expiry_does_not_end_the_delay_while_another_id_is_pending() -> None:
    harness = CoordinatorHarness(group_initial_rebalance_delay_ms=60_000)
    harness.request_member_id()
    call = harness.join()
    harness.advance(1_000)
    harness.request_member_id(session_ms=20_000)
    harness.advance(SESSION_MS)
    assert call.is_parked
