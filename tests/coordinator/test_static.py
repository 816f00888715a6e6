"""Static members (KIP-345): replaced under a new id, fenced under the old one, there until their session ends."""

import pytest

from fakebroker.coordinator.group.api import JoinResult, SyncResult
from fakebroker.errors import ErrorCode
from fakebroker.protocol.consumer_protocol import encode_subscription
from tests.support.coordinator.coordinator_harness import (
    DELAY_MS,
    REBALANCE_MS,
    SESSION_MS,
    CoordinatorHarness,
    protocols,
)


def test_a_static_member_is_never_told_to_come_back() -> None:
    driver = CoordinatorHarness()
    call = driver.join(instance_id="i", two_step=True)
    driver.advance(DELAY_MS)
    assert call.joined.member_id == "i-uuid1"


# Replaced in Stable


@pytest.mark.parametrize("skip", [True, False])
def test_a_replaced_follower_is_told_the_leader(skip: bool) -> None:
    driver = CoordinatorHarness()
    leader, _ = driver.stable(1, static=("i",))
    call = driver.join(instance_id="i", skip=skip)
    assert call.result == JoinResult(ErrorCode.NONE, 1, "consumer", "range", leader, "i-uuid3")
    assert driver.state() == "Stable"


def test_a_replaced_leader_that_may_skip_the_assignment_is_told_everything() -> None:
    driver = CoordinatorHarness()
    old, follower = driver.stable(0, static=("i", "j"))
    joined = driver.join(instance_id="i").joined
    assert (joined.leader, joined.member_id, joined.skip_assignment) == ("i-uuid3", "i-uuid3", True)
    assert [(member.member_id, member.instance_id) for member in joined.members] == [(follower, "j"), ("i-uuid3", "i")]
    assert driver.group().leader_id == "i-uuid3"
    assert driver.sync("i-uuid3", 1).synced.assignment == old.encode()


def test_a_replaced_leader_of_older_versions_is_told_its_former_id() -> None:
    driver = CoordinatorHarness()
    old, _ = driver.stable(0, static=("i", "j"))
    call = driver.join(instance_id="i", skip=False)
    assert call.result == JoinResult(ErrorCode.NONE, 1, "consumer", "range", old, "i-uuid3")
    assert driver.group().leader_id == "i-uuid3"


def test_other_metadata_needs_no_round_but_is_kept() -> None:
    driver = CoordinatorHarness()
    driver.stable(1, static=("i",))
    other = protocols("range", metadata=encode_subscription(["u"]))
    member_id = driver.join(instance_id="i", protocols=other, session_ms=7_000).joined.member_id
    assert driver.state() == "Stable"
    assert driver.group().members[member_id].protocols == other
    assert driver.group().members[member_id].session_timeout_ms == 7_000


def test_another_protocol_needs_a_round() -> None:
    driver = CoordinatorHarness()
    calls = [driver.join(protocols=protocols("range", "sticky"), instance_id=name) for name in "ij"]
    driver.advance(2 * DELAY_MS)
    driver.sync_all([call.joined.member_id for call in calls])
    assert driver.group().protocol_name == "range"
    call = driver.join(instance_id="j", protocols=protocols("sticky"))
    assert call.is_parked
    assert driver.state() == "PreparingRebalance"
    driver.join(calls[0].joined.member_id, protocols=protocols("range", "sticky"))
    assert call.joined.protocol_name == "sticky"


def test_the_session_starts_anew_with_the_old_timeout() -> None:
    driver = CoordinatorHarness()
    driver.stable(1, static=("i",))
    driver.advance(SESSION_MS / 2)
    member_id = driver.join(instance_id="i", session_ms=60_000).joined.member_id
    assert driver.group().members[member_id].deadline_ms == driver.now_ms + SESSION_MS
    driver.heartbeat(member_id, 1)
    assert driver.group().members[member_id].deadline_ms == driver.now_ms + 60_000


def test_client_and_assignment_stay() -> None:
    driver = CoordinatorHarness()
    _, old = driver.stable(1, static=("i",), client_id="first", client_host="/10.0.0.1")
    new = driver.join(instance_id="i", client_id="second", client_host="/10.0.0.2").joined.member_id
    member = driver.group().members[new]
    assert (member.client_id, member.client_host, member.assignment) == ("first", "/10.0.0.1", old.encode())


def test_the_old_id_is_fenced_with_and_unknown_without_the_instance_id() -> None:
    driver = CoordinatorHarness()
    _, old = driver.stable(1, static=("i",))
    driver.join(instance_id="i")
    for instance_id, error in (("i", ErrorCode.FENCED_INSTANCE_ID), (None, ErrorCode.UNKNOWN_MEMBER_ID)):
        assert driver.heartbeat(old, 1, instance_id) is error
        assert driver.commit(old, 1, instance_id) is error
        assert driver.sync(old, 1, instance_id=instance_id).error is error
        assert driver.join(old, instance_id=instance_id).error is error
        assert driver.leave((old, instance_id)) == [error]


# Replaced in other states


def test_in_completing_rebalance_there_is_always_a_round() -> None:
    driver = CoordinatorHarness()
    _, follower, old = driver.complete(2, static=("i",))
    fenced, waiting = driver.sync(old, 1), driver.sync(follower, 1)
    call = driver.join(instance_id="i")
    assert fenced.result == SyncResult(ErrorCode.FENCED_INSTANCE_ID)
    assert waiting.result == SyncResult(ErrorCode.REBALANCE_IN_PROGRESS)
    assert call.is_parked
    assert driver.state() == "PreparingRebalance"


def test_in_preparing_rebalance_the_old_join_is_fenced_and_the_new_one_takes_its_place() -> None:
    driver = CoordinatorHarness()
    leader, old = driver.stable(1, static=("i",))
    fenced = driver.join(old, protocols=protocols("range", "sticky"))
    call = driver.join(instance_id="i")
    assert fenced.result == JoinResult(ErrorCode.FENCED_INSTANCE_ID, member_id=old)
    assert call.is_parked
    driver.join(leader)
    assert call.joined.generation_id == 2


def test_in_preparing_rebalance_a_replacement_may_complete_the_round() -> None:
    driver = CoordinatorHarness()
    leader, _ = driver.stable(1, static=("i",))
    driver.join(leader)
    assert driver.join(instance_id="i").joined.generation_id == 2


def test_replaced_before_its_first_round_a_member_is_no_longer_new() -> None:
    driver = CoordinatorHarness(group_initial_rebalance_delay_ms=400_000)
    driver.join(instance_id="i")
    call = driver.join(instance_id="i")
    driver.advance(399_999)
    assert call.is_parked
    driver.advance(1)
    assert call.joined.generation_id == 1


# Staying and going


def test_a_static_member_that_does_not_rejoin_stays_and_is_part_of_the_generation() -> None:
    driver = CoordinatorHarness()
    leader, static = driver.stable(1, static=("i",), session_ms=REBALANCE_MS + 20_000)
    call = driver.join(leader)
    driver.advance(REBALANCE_MS)
    assert [member.member_id for member in call.joined.members] == [leader, static]
    assert driver.heartbeat(static, 2, "i") is ErrorCode.NONE


def test_a_known_static_follower_with_its_id_needs_no_round() -> None:
    driver = CoordinatorHarness()
    _, static = driver.stable(1, static=("i",))
    assert driver.join(static, instance_id="i").error is ErrorCode.NONE
    assert driver.state() == "Stable"


@pytest.mark.parametrize("by_instance_only", [True, False])
def test_leaving_frees_the_instance_id(by_instance_only: bool) -> None:
    driver = CoordinatorHarness()
    _, static = driver.stable(1, static=("i",))
    assert driver.leave(("" if by_instance_only else static, "i")) == [ErrorCode.NONE]
    assert driver.group().static_members == {}
    assert driver.join(static, instance_id="i").error is ErrorCode.UNKNOWN_MEMBER_ID
    assert driver.join(instance_id="i").is_parked
