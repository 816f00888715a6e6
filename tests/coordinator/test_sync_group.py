"""SyncGroup: assignments sent by the leader and returned to members."""

from fakebroker.errors import ErrorCode
from fakebroker.protocol.messages.sync_group import SyncGroupResponse
from tests.support.coordinator.coordinator_harness import CoordinatorHarness, protocols
from tests.support.coordinator.group_messages import sync_response

CHANGED = protocols("range", "roundrobin")


def assigned(assignment: bytes) -> SyncGroupResponse:
    return sync_response(ErrorCode.NONE, "consumer", "range", assignment)


def test_parked_syncs_are_answered_with_the_leaders_in_order_of_arrival() -> None:
    harness = CoordinatorHarness()
    leader, second, third = harness.create_completing_group(3)
    calls = [harness.sync(member_id, 1) for member_id in (third, second)]
    assert all(call.is_parked for call in calls)
    calls.append(harness.sync(leader, 1, [(leader, b"1"), (second, b"2"), (third, b"3")]))
    assert harness.answered[-3:] == calls
    assert [call.result for call in calls] == [assigned(b"3"), assigned(b"2"), assigned(b"1")]


def test_members_without_an_assignment_get_an_empty_one() -> None:
    harness = CoordinatorHarness()
    leader, follower = harness.create_completing_group()
    parked = harness.sync(follower, 1)
    harness.sync(leader, 1, [("unknown", b"x"), (leader, b"1")])
    assert parked.result == assigned(b"")
    assert "unknown" not in harness.group().members


def test_assignment_is_not_kept_in_the_next_generation() -> None:
    harness = CoordinatorHarness()
    leader, follower = harness.create_stable_group()
    harness.join(leader)
    harness.join(follower)
    harness.sync(leader, 2, [(leader, b"1")])
    assert harness.sync(follower, 2).result == assigned(b"")


def test_assignments_of_a_follower_are_ignored() -> None:
    harness = CoordinatorHarness()
    leader, follower = harness.create_completing_group()
    parked = harness.sync(follower, 1, [(follower, b"mine")])
    harness.sync(leader, 1, [(follower, b"yours")])
    assert parked.synced.assignment == b"yours"


def test_syncs_in_a_stable_group_get_the_stored_assignment() -> None:
    harness = CoordinatorHarness()
    leader, follower = harness.create_stable_group()
    assert harness.sync(leader, 1, [(leader, b"new"), (follower, b"new")]).result == assigned(leader.encode())
    assert harness.sync(follower, 1).result == assigned(follower.encode())


def test_last_of_several_assignments_for_one_member_is_used() -> None:
    harness = CoordinatorHarness()
    (leader,) = harness.create_completing_group(1)
    assert harness.sync(leader, 1, [(leader, b"old"), (leader, b"new")]).result == assigned(b"new")


def test_repeated_sync_supersedes_the_first() -> None:
    harness = CoordinatorHarness()
    leader, follower = harness.create_completing_group()
    first, second = harness.sync(follower, 1), harness.sync(follower, 1)
    harness.sync(leader, 1)
    assert first.is_parked
    assert second.result == assigned(b"")


def test_new_rebalance_answers_parked_syncs() -> None:
    harness = CoordinatorHarness()
    leader, follower = harness.create_completing_group()
    parked = harness.sync(follower, 1)
    harness.join()
    assert parked.result == sync_response(ErrorCode.REBALANCE_IN_PROGRESS)
    assert harness.sync(leader, 1).result == sync_response(ErrorCode.REBALANCE_IN_PROGRESS)


def test_assignments_are_cleared_if_the_leader_has_not_synced() -> None:
    harness = CoordinatorHarness()
    leader, follower = harness.create_stable_group()
    harness.join(leader)
    assert harness.group().members[follower].assignment == follower.encode()
    harness.join(follower)
    assert harness.group().members[follower].assignment == follower.encode()
    harness.join(leader, protocols=CHANGED)
    assert harness.group().members[follower].assignment == b""


def test_protocol_type_and_name_have_to_match_if_given() -> None:
    harness = CoordinatorHarness()
    leader, follower = harness.create_completing_group()
    assert harness.sync(follower, 1, protocol_type="consumer", protocol_name="range").is_parked
    inconsistent = sync_response(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    assert harness.sync(leader, 1, protocol_type="connect", protocol_name="range").result == inconsistent
    assert harness.sync(leader, 1, protocol_type="consumer", protocol_name="sticky").result == inconsistent


def test_empty_group_id_is_rejected() -> None:
    assert CoordinatorHarness().sync("x", 1, group_id="").result == sync_response(ErrorCode.INVALID_GROUP_ID)
