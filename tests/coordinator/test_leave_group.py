"""LeaveGroup of one member or several."""

from fakebroker.errors import ErrorCode
from tests.support.coordinator.coordinator_harness import DELAY_MS, CoordinatorHarness

NONE = ErrorCode.NONE
UNKNOWN = ErrorCode.UNKNOWN_MEMBER_ID
FENCED = ErrorCode.FENCED_INSTANCE_ID


def test_members_of_a_leave_group_are_checked_one_by_one_in_order() -> None:
    harness = CoordinatorHarness()
    leader, follower, static = harness.create_stable_group(2, static=("i",))
    pending_id = harness.request_member_id()
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
    assert harness.leave(*batch) == [NONE, UNKNOWN, UNKNOWN, UNKNOWN, FENCED, UNKNOWN, NONE, UNKNOWN, NONE]
    assert list(harness.group().members) == [leader]
    assert harness.state() == "PreparingRebalance"


def test_leave_group_of_several_members_starts_one_rebalance() -> None:
    harness = CoordinatorHarness()
    ids = harness.create_stable_group(4)
    harness.leave((ids[0], None), (ids[1], None))
    assert (harness.state(), harness.group().leader_id) == ("PreparingRebalance", ids[2])
    assert harness.group().generation_id == 1


def test_leave_group_without_a_known_member_changes_nothing() -> None:
    harness = CoordinatorHarness()
    harness.create_stable_group()
    assert harness.leave(("x", None)) == [UNKNOWN]
    assert harness.leave() == []
    assert harness.state() == "Stable"


def test_group_becomes_empty_in_a_new_generation_when_the_last_member_leaves() -> None:
    harness = CoordinatorHarness()
    ids = harness.create_stable_group()
    assert harness.leave(*[(member_id, None) for member_id in ids]) == [NONE, NONE]
    group = harness.group()
    assert (harness.state(), group.generation_id, group.protocol_name) == ("Empty", 2, None)


def test_group_becomes_empty_even_if_an_id_is_pending() -> None:
    harness = CoordinatorHarness()
    (leader,) = harness.create_stable_group(1)
    pending_id = harness.request_member_id()
    harness.leave((leader, None))
    assert harness.state() == "Empty"
    assert harness.join(pending_id).is_parked


def test_parked_join_of_a_leaving_member_gets_unknown_member_id() -> None:
    harness = CoordinatorHarness()
    leader, follower = harness.create_stable_group()
    parked = harness.join(leader)
    harness.leave((leader, None))
    assert (parked.error, parked.joined.member_id) == (UNKNOWN, "")
    assert harness.join(follower).joined.leader == follower


def test_parked_sync_of_a_leaving_member_is_never_answered() -> None:
    harness = CoordinatorHarness()
    leader, follower, other = harness.create_completing_group(3)
    lost, given_up = harness.sync(follower, 1), harness.sync(other, 1)
    harness.leave((follower, None))
    assert lost.is_parked
    assert given_up.error is ErrorCode.REBALANCE_IN_PROGRESS
    assert leader in harness.group().members


def test_leave_group_during_the_initial_delay() -> None:
    harness = CoordinatorHarness()
    calls = [harness.join(instance_id="i"), harness.join()]
    harness.leave(("", "i"))
    assert calls[0].error is UNKNOWN
    harness.advance(2 * DELAY_MS)
    assert calls[1].joined.leader == calls[1].joined.member_id
