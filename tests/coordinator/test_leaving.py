"""LeaveGroup: one member or a batch of them."""

from fakebroker.errors import ErrorCode
from tests.support.coordinator.coordinator_harness import DELAY_MS, CoordinatorHarness, result_of

NONE = ErrorCode.NONE
UNKNOWN = ErrorCode.UNKNOWN_MEMBER_ID
FENCED = ErrorCode.FENCED_INSTANCE_ID


def test_each_entry_of_a_batch_is_judged_for_itself_in_order() -> None:
    driver = CoordinatorHarness()
    leader, follower, static = driver.stable(2, static=("i",))
    pending_id = driver.pend()
    batch = [
        (follower, None),
        (follower, None),
        ("", "j"),
        ("", None),
        (leader, "i"),
        (leader, "j"),
        ("", "i"),
        (static, "i"),
        (pending_id, "anything"),
    ]
    assert driver.leave(*batch) == [NONE, UNKNOWN, UNKNOWN, UNKNOWN, FENCED, UNKNOWN, NONE, UNKNOWN, NONE]
    assert list(driver.group().members) == [leader]
    assert driver.state() == "PreparingRebalance"


def test_a_batch_starts_one_round() -> None:
    driver = CoordinatorHarness()
    ids = driver.stable(4)
    driver.leave((ids[0], None), (ids[1], None))
    assert (driver.state(), driver.group().leader_id) == ("PreparingRebalance", ids[2])
    assert driver.group().generation_id == 1


def test_a_batch_without_success_or_entries_changes_nothing() -> None:
    driver = CoordinatorHarness()
    driver.stable()
    assert driver.leave(("x", None)) == [UNKNOWN]
    assert driver.leave() == []
    assert driver.state() == "Stable"


def test_the_last_member_leaves_an_empty_group_of_the_next_generation() -> None:
    driver = CoordinatorHarness()
    ids = driver.stable()
    assert driver.leave(*[(member_id, None) for member_id in ids]) == [NONE, NONE]
    group = driver.group()
    assert (driver.state(), group.generation_id, group.protocol_name) == ("Empty", 2, None)


def test_the_last_member_leaves_an_empty_group_even_if_an_id_is_pending() -> None:
    driver = CoordinatorHarness()
    (leader,) = driver.stable(1)
    pending_id = driver.pend()
    driver.leave((leader, None))
    assert driver.state() == "Empty"
    assert driver.join(pending_id).is_parked


def test_the_parked_join_of_a_member_that_leaves_is_answered() -> None:
    driver = CoordinatorHarness()
    leader, follower = driver.stable()
    parked = driver.join(leader)
    driver.leave((leader, None))
    assert (parked.error, parked.joined.member_id) == (UNKNOWN, "")
    assert driver.join(follower).joined.leader == follower


def test_the_parked_sync_of_a_member_that_leaves_is_never_answered() -> None:
    driver = CoordinatorHarness()
    leader, follower, other = driver.complete(3)
    lost, given_up = driver.sync(follower, 1), driver.sync(other, 1)
    driver.leave((follower, None))
    assert lost.is_parked
    assert given_up.error is ErrorCode.REBALANCE_IN_PROGRESS
    assert leader in driver.group().members


def test_in_a_round_leaving_may_complete_it() -> None:
    driver = CoordinatorHarness()
    leader, follower = driver.stable()
    parked = driver.join(leader)
    driver.leave((follower, None))
    assert parked.joined.generation_id == 2


def test_a_pending_id_that_leaves_makes_a_stable_group_rebalance() -> None:
    driver = CoordinatorHarness()
    driver.stable()
    driver.leave((driver.pend(), None))
    assert driver.state() == "PreparingRebalance"


def test_the_empty_group_id_is_refused_and_a_missing_group_knows_nobody() -> None:
    driver = CoordinatorHarness()
    assert result_of(driver.coordinator.leave_group, "", [("x", None)], driver.now_ms) == (
        ErrorCode.INVALID_GROUP_ID,
        [],
    )
    assert driver.leave(("x", None), ("", "i")) == [UNKNOWN, UNKNOWN]
    assert driver.state() == "-"


def test_leaving_during_the_initial_delay() -> None:
    driver = CoordinatorHarness()
    calls = [driver.join(instance_id="i"), driver.join()]
    driver.leave(("", "i"))
    assert calls[0].error is UNKNOWN
    driver.advance(2 * DELAY_MS)
    assert calls[1].joined.leader == calls[1].joined.member_id
