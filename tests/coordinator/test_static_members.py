"""Static members (KIP-345): their replacement, fencing of the former id, and how long they stay members."""

from fakebroker.errors import ErrorCode
from fakebroker.protocol.consumer_protocol import encode_subscription
from tests.support.coordinator.coordinator_harness import (
    DELAY_MS,
    REBALANCE_MS,
    SESSION_MS,
    CoordinatorHarness,
    protocols,
)
from tests.support.coordinator.group_messages import join_response, sync_response
from tests.support.subtests import subtest_for_each

# Replaced in Stable


@subtest_for_each("skip", [True, False])
def test_replaced_follower_gets_the_leader_id(skip: bool) -> None:
    harness = CoordinatorHarness()
    leader, _ = harness.create_stable_group(1, static=("i",))
    call = harness.join(instance_id="i", skip=skip)
    assert call.result == join_response(ErrorCode.NONE, 1, "consumer", "range", leader, "i-uuid3")
    assert harness.state() == "Stable"


def test_replaced_leader_with_skip_assignment_gets_the_members() -> None:
    harness = CoordinatorHarness()
    old, follower = harness.create_stable_group(0, static=("i", "j"))
    joined = harness.join(instance_id="i").joined
    assert (joined.leader, joined.member_id, joined.skip_assignment) == ("i-uuid3", "i-uuid3", True)
    assert [(member.member_id, member.group_instance_id) for member in joined.members] == [
        (follower, "j"),
        ("i-uuid3", "i"),
    ]
    assert harness.group().leader_id == "i-uuid3"
    assert harness.sync("i-uuid3", 1).synced.assignment == old.encode()


def test_replaced_leader_without_skip_assignment_gets_its_former_id() -> None:
    harness = CoordinatorHarness()
    old, _ = harness.create_stable_group(0, static=("i", "j"))
    call = harness.join(instance_id="i", skip=False)
    assert call.result == join_response(ErrorCode.NONE, 1, "consumer", "range", old, "i-uuid3")
    assert harness.group().leader_id == "i-uuid3"


def test_changed_metadata_is_kept_without_a_rebalance() -> None:
    harness = CoordinatorHarness()
    harness.create_stable_group(1, static=("i",))
    other = protocols("range", metadata=encode_subscription(["u"]))
    member_id = harness.join(instance_id="i", protocols=other, session_ms=7_000).joined.member_id
    assert harness.state() == "Stable"
    assert harness.group().members[member_id].protocols == other
    assert harness.group().members[member_id].session_timeout_ms == 7_000


def test_changed_protocol_starts_a_rebalance() -> None:
    harness = CoordinatorHarness()
    calls = [harness.join(protocols=protocols("range", "sticky"), instance_id=name) for name in "ij"]
    harness.advance(2 * DELAY_MS)
    harness.sync_all([call.joined.member_id for call in calls])
    assert harness.group().protocol_name == "range"
    call = harness.join(instance_id="j", protocols=protocols("sticky"))
    assert call.is_parked
    assert harness.state() == "PreparingRebalance"
    harness.join(calls[0].joined.member_id, protocols=protocols("range", "sticky"))
    assert call.joined.protocol_name == "sticky"


def test_session_restarts_with_the_previous_timeout() -> None:
    harness = CoordinatorHarness()
    harness.create_stable_group(1, static=("i",))
    harness.advance(SESSION_MS / 2)
    member_id = harness.join(instance_id="i", session_ms=60_000).joined.member_id
    assert harness.group().members[member_id].deadline_ms == harness.now_ms + SESSION_MS
    harness.heartbeat(member_id, 1)
    assert harness.group().members[member_id].deadline_ms == harness.now_ms + 60_000


def test_client_and_assignment_are_kept() -> None:
    harness = CoordinatorHarness()
    _, old = harness.create_stable_group(1, static=("i",), client_id="first", client_host="/10.0.0.1")
    new = harness.join(instance_id="i", client_id="second", client_host="/10.0.0.2").joined.member_id
    member = harness.group().members[new]
    assert (member.client_id, member.client_host, member.assignment) == ("first", "/10.0.0.1", old.encode())


def test_former_member_id_is_fenced_with_and_unknown_without_the_instance_id() -> None:
    harness = CoordinatorHarness()
    _, old = harness.create_stable_group(1, static=("i",))
    harness.join(instance_id="i")
    for instance_id, error in (("i", ErrorCode.FENCED_INSTANCE_ID), (None, ErrorCode.UNKNOWN_MEMBER_ID)):
        assert harness.heartbeat(old, 1, instance_id) is error
        assert harness.commit(old, 1, instance_id) is error
        assert harness.sync(old, 1, instance_id=instance_id).error is error
        assert harness.join(old, instance_id=instance_id).error is error
        assert harness.leave((old, instance_id)) == [error]


# Replaced in other states


def test_replacement_in_completing_rebalance_starts_a_rebalance() -> None:
    harness = CoordinatorHarness()
    _, follower, old = harness.create_completing_group(2, static=("i",))
    fenced, waiting = harness.sync(old, 1), harness.sync(follower, 1)
    call = harness.join(instance_id="i")
    assert fenced.result == sync_response(ErrorCode.FENCED_INSTANCE_ID)
    assert waiting.result == sync_response(ErrorCode.REBALANCE_IN_PROGRESS)
    assert call.is_parked
    assert harness.state() == "PreparingRebalance"


def test_replacement_in_preparing_rebalance_fences_the_parked_join() -> None:
    harness = CoordinatorHarness()
    leader, old = harness.create_stable_group(1, static=("i",))
    fenced = harness.join(old, protocols=protocols("range", "sticky"))
    call = harness.join(instance_id="i")
    assert fenced.result == join_response(ErrorCode.FENCED_INSTANCE_ID, member_id=old)
    assert call.is_parked
    harness.join(leader)
    assert call.joined.generation_id == 2


def test_replacement_in_preparing_rebalance_can_end_the_join_phase() -> None:
    harness = CoordinatorHarness()
    leader, _ = harness.create_stable_group(1, static=("i",))
    harness.join(leader)
    assert harness.join(instance_id="i").joined.generation_id == 2


def test_member_replaced_before_its_first_generation_is_not_new() -> None:
    harness = CoordinatorHarness(group_initial_rebalance_delay_ms=400_000)
    harness.join(instance_id="i")
    call = harness.join(instance_id="i")
    harness.advance(399_999)
    assert call.is_parked
    harness.advance(1)
    assert call.joined.generation_id == 1


# How long static members stay


def test_static_member_that_does_not_rejoin_stays_in_the_generation() -> None:
    harness = CoordinatorHarness()
    leader, static = harness.create_stable_group(1, static=("i",), session_ms=REBALANCE_MS + 20_000)
    call = harness.join(leader)
    harness.advance(REBALANCE_MS)
    assert [member.member_id for member in call.joined.members] == [leader, static]
    assert harness.heartbeat(static, 2, "i") is ErrorCode.NONE


def test_unchanged_static_follower_rejoins_without_a_rebalance() -> None:
    harness = CoordinatorHarness()
    _, static = harness.create_stable_group(1, static=("i",))
    assert harness.join(static, instance_id="i").error is ErrorCode.NONE
    assert harness.state() == "Stable"


@subtest_for_each("by_instance_only", [True, False])
def test_leave_group_releases_the_instance_id(by_instance_only: bool) -> None:
    harness = CoordinatorHarness()
    _, static = harness.create_stable_group(1, static=("i",))
    assert harness.leave(("" if by_instance_only else static, "i")) == [ErrorCode.NONE]
    assert harness.group().static_members == {}
    assert harness.join(static, instance_id="i").error is ErrorCode.UNKNOWN_MEMBER_ID
    assert harness.join(instance_id="i").is_parked
