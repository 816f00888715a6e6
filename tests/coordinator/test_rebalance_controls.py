"""Manual control of rebalances: holds, forced rebalances, removed members, chosen leaders."""

import pytest

from fakebroker.coordinator import controls
from fakebroker.coordinator.classic.states import GroupState
from fakebroker.errors import ConfigError, ErrorCode
from tests.support.coordinator.coordinator_harness import REBALANCE_MS, SESSION_MS, CoordinatorHarness, protocols
from tests.support.subtests import subtest_for_each

PREPARING = GroupState.PREPARING_REBALANCE
COMPLETING = GroupState.COMPLETING_REBALANCE
DAY_MS = 24 * 3600 * 1000


# Groups held in PreparingRebalance


def test_hold_can_be_set_before_the_group_exists() -> None:
    harness = CoordinatorHarness(group_initial_rebalance_delay_ms=0)
    harness.hold(PREPARING)
    first = harness.join()
    assert (harness.state(), first.is_parked) == ("PreparingRebalance", True)
    second = harness.join()
    harness.release()
    assert harness.state() == "CompletingRebalance"
    assert first.joined.generation_id == second.joined.generation_id == 1
    assert [member.member_id for member in first.joined.members] == [first.joined.member_id, second.joined.member_id]


def test_held_join_phase_ends_at_the_release() -> None:
    harness = CoordinatorHarness()
    ids = harness.create_stable_group()
    harness.hold(PREPARING)
    assert harness.state() == "Stable"
    calls = [harness.join(member_id) for member_id in ids]
    assert harness.state() == "PreparingRebalance"
    assert all(call.is_parked for call in calls)
    assert harness.heartbeat(ids[0], 1) is ErrorCode.REBALANCE_IN_PROGRESS
    assert harness.sync(ids[0], 1).error is ErrorCode.REBALANCE_IN_PROGRESS
    harness.release()
    assert [call.joined.generation_id for call in calls] == [2, 2]
    harness.sync_all(ids)


def test_join_timer_does_not_end_a_held_join_phase() -> None:
    harness = CoordinatorHarness()
    ids = harness.create_stable_group()
    harness.hold(PREPARING)
    call = harness.join(ids[0])
    for _ in range(10):
        harness.heartbeat(ids[1], 1)
        harness.advance(REBALANCE_MS / 10)
    harness.heartbeat(ids[1], 1)
    assert (harness.state(), list(harness.group().members)) == ("PreparingRebalance", ids)
    harness.release()
    assert [member.member_id for member in call.joined.members] == [ids[0]]
    assert harness.heartbeat(ids[1], 2) is ErrorCode.UNKNOWN_MEMBER_ID


def test_incomplete_join_phase_continues_after_the_release() -> None:
    harness = CoordinatorHarness()
    ids = harness.create_stable_group()
    harness.hold(PREPARING)
    call = harness.join(ids[0])
    harness.release()
    assert call.is_parked
    harness.join(ids[1])
    assert call.joined.generation_id == 2


def test_sessions_expire_while_the_group_is_held() -> None:
    harness = CoordinatorHarness()
    ids = harness.create_stable_group()
    harness.hold(PREPARING)
    call = harness.join(ids[0])
    harness.advance(SESSION_MS)
    assert list(harness.group().members) == [ids[0]]
    assert call.is_parked
    harness.release()
    assert call.joined.generation_id == 2


def test_held_group_without_members_becomes_empty_at_the_release() -> None:
    harness = CoordinatorHarness()
    ids = harness.create_stable_group()
    harness.hold(PREPARING)
    harness.leave(*((member_id, None) for member_id in ids))
    assert (harness.state(), list(harness.group().members)) == ("PreparingRebalance", [])
    harness.advance(DAY_MS)
    assert harness.state() == "PreparingRebalance"
    harness.release()
    assert (harness.state(), harness.group().generation_id) == ("Empty", 2)
    assert harness.last_group_record.value is not None
    assert harness.last_group_record.value.members == []


def test_held_group_without_members_accepts_new_members() -> None:
    harness = CoordinatorHarness()
    (member_id,) = harness.create_stable_group(1)
    harness.hold(PREPARING)
    harness.leave((member_id, None))
    call = harness.join()
    harness.release()
    assert call.joined.leader == call.joined.member_id


@subtest_for_each("is_before_kip_848", [False, True])
def test_initial_delay_that_ends_during_a_hold(is_before_kip_848: bool) -> None:
    harness = CoordinatorHarness(group_initial_rebalance_delay_ms=3_000, is_before_kip_848=is_before_kip_848)
    harness.hold(PREPARING)
    call = harness.join()
    harness.advance(REBALANCE_MS)
    assert call.is_parked
    harness.release()
    assert call.joined.generation_id == 1


def test_initial_delay_that_ends_after_the_hold() -> None:
    harness = CoordinatorHarness(group_initial_rebalance_delay_ms=3_000)
    harness.hold(PREPARING)
    call = harness.join()
    harness.advance(1_000)
    harness.release()
    assert call.is_parked
    harness.advance(2_000)
    assert call.joined.generation_id == 1


def test_hold_stays_valid_after_a_failover() -> None:
    harness = CoordinatorHarness()
    ids = harness.create_stable_group()
    harness.hold(PREPARING)
    parked = harness.join(ids[0])
    harness.fail_over()
    assert parked.error is ErrorCode.NOT_COORDINATOR
    calls = [harness.join(member_id) for member_id in ids]
    assert harness.state() == "PreparingRebalance"
    harness.release()
    assert [call.joined.generation_id for call in calls] == [2, 2]


# Groups held in CompletingRebalance


def test_held_sync_of_the_leader_is_answered_at_the_release() -> None:
    harness = CoordinatorHarness()
    leader, follower = harness.create_completing_group()
    harness.hold(COMPLETING)
    follower_sync = harness.sync(follower, 1)
    leader_sync = harness.sync(leader, 1, [(leader, b"L"), (follower, b"F")])
    batches = len(harness.batches)
    assert (harness.state(), leader_sync.is_parked, follower_sync.is_parked) == ("CompletingRebalance", True, True)
    assert harness.heartbeat(leader, 1) is ErrorCode.NONE
    assert harness.commit(leader, 1) is ErrorCode.REBALANCE_IN_PROGRESS
    harness.release()
    assert (harness.state(), leader_sync.synced.assignment, follower_sync.synced.assignment) == ("Stable", b"L", b"F")
    assert len(harness.batches) == batches + 1


def test_session_does_not_expire_while_the_sync_is_held() -> None:
    harness = CoordinatorHarness()
    leader, follower = harness.create_completing_group()
    harness.hold(COMPLETING)
    harness.sync(follower, 1)
    sync = harness.sync(leader, 1)
    harness.advance(20 * REBALANCE_MS)
    assert (harness.state(), sync.is_parked) == ("CompletingRebalance", True)
    harness.release()
    assert sync.error is ErrorCode.NONE


def test_new_rebalance_answers_the_held_sync() -> None:
    harness = CoordinatorHarness()
    leader, follower = harness.create_completing_group()
    harness.hold(COMPLETING)
    syncs = [harness.sync(follower, 1), harness.sync(leader, 1)]
    harness.join()
    assert harness.state() == "PreparingRebalance"
    assert [sync.error for sync in syncs] == [ErrorCode.REBALANCE_IN_PROGRESS] * 2


def test_late_follower_is_removed_at_the_release() -> None:
    harness = CoordinatorHarness()
    leader, follower = harness.create_completing_group(session_ms=2 * REBALANCE_MS)
    harness.hold(COMPLETING)
    sync = harness.sync(leader, 1)
    harness.advance(REBALANCE_MS)
    assert list(harness.group().members) == [leader, follower]
    harness.release()
    assert sync.error is ErrorCode.NONE
    assert (harness.state(), list(harness.group().members)) == ("PreparingRebalance", [leader])


def test_late_leader_is_removed_at_the_release() -> None:
    harness = CoordinatorHarness()
    _, follower = harness.create_completing_group(session_ms=2 * REBALANCE_MS)
    harness.hold(COMPLETING)
    sync = harness.sync(follower, 1)
    harness.advance(REBALANCE_MS)
    harness.release()
    assert sync.error is ErrorCode.REBALANCE_IN_PROGRESS
    assert list(harness.group().members) == [follower]


@subtest_for_each("cause", ["failover", "replaced", "left"])
def test_held_sync_of_a_lost_leader(cause: str) -> None:
    harness = CoordinatorHarness()
    _, leader = harness.create_completing_group(1, static=("i",))
    assert harness.group().leader_id != leader
    harness.choose_leader("i")
    harness.force_rebalance()
    harness.join(harness.group().leader_id or "")
    harness.join(leader, instance_id="i")
    assert harness.group().leader_id == leader
    harness.hold(COMPLETING)
    sync = harness.sync(leader, 2)
    if cause == "failover":
        harness.fail_over()
        assert sync.error is ErrorCode.NOT_COORDINATOR
    elif cause == "replaced":
        harness.join(instance_id="i")
        assert sync.error is ErrorCode.FENCED_INSTANCE_ID
    else:
        harness.leave((leader, None))
        assert sync.is_parked  # Never answered, as in Kafka.
    assert harness.group().state is not COMPLETING


def test_last_of_several_held_syncs_is_used() -> None:
    harness = CoordinatorHarness()
    (leader,) = harness.create_completing_group(1)
    harness.hold(COMPLETING)
    first = harness.sync(leader, 1, [(leader, b"1")])
    second = harness.sync(leader, 1, [(leader, b"2")])
    harness.release()
    assert first.is_parked  # Never answered, as in Kafka.
    assert second.synced.assignment == b"2"


# Forced rebalances


def test_forced_rebalance() -> None:
    harness = CoordinatorHarness()
    ids = harness.create_stable_group()
    harness.force_rebalance()
    assert harness.heartbeat(ids[1], 1) is ErrorCode.REBALANCE_IN_PROGRESS
    calls = [harness.join(member_id) for member_id in ids]
    assert [call.joined.generation_id for call in calls] == [2, 2]


def test_forced_rebalance_ends_by_the_join_timer() -> None:
    harness = CoordinatorHarness()
    harness.create_stable_group(session_ms=2 * REBALANCE_MS)
    harness.force_rebalance()
    harness.advance(REBALANCE_MS)
    assert harness.state() == "Empty"


def test_rebalance_is_forced_during_completing_rebalance() -> None:
    harness = CoordinatorHarness()
    _, follower = harness.create_completing_group()
    sync = harness.sync(follower, 1)
    harness.force_rebalance()
    assert sync.error is ErrorCode.REBALANCE_IN_PROGRESS


@subtest_for_each("is_empty", [True, False])
def test_rebalance_cannot_be_forced_in_empty_or_preparing_rebalance(is_empty: bool) -> None:
    harness = CoordinatorHarness()
    (member_id,) = harness.create_stable_group(1)
    harness.leave((member_id, None)) if is_empty else harness.force_rebalance()
    state = "Empty" if is_empty else "PreparingRebalance"
    with pytest.raises(ConfigError, match=f"group_id='g': expected a group in state .*, not {state}$"):
        harness.force_rebalance()


def test_chosen_member_leads_the_next_generation() -> None:
    harness = CoordinatorHarness()
    ids = harness.create_stable_group(3)
    harness.choose_leader(ids[2])
    assert harness.group().leader_id == ids[0]
    harness.force_rebalance()
    calls = [harness.join(member_id) for member_id in ids]
    assert {call.joined.leader for call in calls} == {ids[2]}
    assert [len(call.joined.members) for call in calls] == [0, 0, 3]
    harness.sync_all(ids)
    harness.force_rebalance()
    harness.leave((ids[2], None))
    assert [harness.join(member_id) for member_id in ids[:2]][1].joined.leader == ids[0]


def test_chosen_leader_that_does_not_join_is_ignored() -> None:
    harness = CoordinatorHarness()
    ids = harness.create_stable_group(2)
    harness.choose_leader(ids[1])
    harness.force_rebalance()
    call = harness.join(ids[0])
    harness.evict(ids[1])
    assert call.joined.leader == ids[0]
    assert harness.controls["g"].next_leader == ""


# Members


def test_evicted_member_is_unknown() -> None:
    harness = CoordinatorHarness()
    ids = harness.create_stable_group()
    harness.evict(ids[1])
    assert harness.heartbeat(ids[1], 1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert harness.heartbeat(ids[0], 1) is ErrorCode.REBALANCE_IN_PROGRESS


def test_group_becomes_empty_when_the_last_member_is_evicted() -> None:
    harness = CoordinatorHarness()
    (member_id,) = harness.create_stable_group(1)
    harness.evict(member_id)
    assert harness.state() == "Empty"
    assert harness.last_group_record.value is not None
    assert harness.last_group_record.value.generation == 2


def test_parked_join_of_an_evicted_member_gets_unknown_member_id() -> None:
    harness = CoordinatorHarness()
    ids = harness.create_stable_group()
    call = harness.join(ids[0])
    harness.evict(ids[0])
    assert call.error is ErrorCode.UNKNOWN_MEMBER_ID


def test_expire_ends_a_session() -> None:
    harness = CoordinatorHarness()
    ids = harness.create_stable_group()
    harness.expire(ids[0])
    assert (harness.state(), list(harness.group().members)) == ("PreparingRebalance", [ids[1]])


def test_expire_is_ignored_while_a_request_of_the_member_is_parked() -> None:
    harness = CoordinatorHarness()
    ids = harness.create_stable_group()
    call = harness.join(ids[0])
    harness.expire(ids[0])
    assert call.is_parked
    assert harness.join(ids[1]).error is ErrorCode.NONE
    assert call.error is ErrorCode.NONE


def test_expire_removes_a_new_member_whose_join_is_parked() -> None:
    harness = CoordinatorHarness()
    ids = harness.create_stable_group()
    call = harness.join()
    (new,) = set(harness.group().members) - set(ids)
    harness.expire(new)
    assert call.error is ErrorCode.UNKNOWN_MEMBER_ID
    assert (harness.state(), list(harness.group().members)) == ("PreparingRebalance", ids)


def test_fence_replaces_a_static_member_without_rebalance() -> None:
    harness = CoordinatorHarness()
    ids = harness.create_stable_group(1, static=("i",))
    harness.fence("i")
    assert harness.state() == "Stable"
    assert harness.heartbeat(ids[1], 1, "i") is ErrorCode.FENCED_INSTANCE_ID
    assert harness.group().static_members["i"] != ids[1]
    assert harness.last_group_record.value is not None
    assert harness.last_group_record.value.members[1].member_id == harness.group().static_members["i"]
    harness.heartbeat(ids[0], 1)
    harness.advance(SESSION_MS)
    assert "i" not in harness.group().static_members


def test_fence_answers_a_parked_join() -> None:
    harness = CoordinatorHarness()
    ids = harness.create_stable_group(1, static=("i",))
    harness.force_rebalance()
    call = harness.join(ids[1], instance_id="i")
    harness.fence("i")
    assert call.error is ErrorCode.FENCED_INSTANCE_ID
    assert harness.join(ids[0]).joined.generation_id == 2


# Names


def test_member_is_found_by_member_instance_and_client_id() -> None:
    harness = CoordinatorHarness()
    harness.create_completing_group(1, client_id="a")
    harness.join(instance_id="i", client_id="b")
    group = harness.group()
    first, second = group.members.values()
    assert controls.member_of(group, first.member_id) is controls.member_of(group, "a") is first
    assert controls.member_of(group, "i") is controls.member_of(group, "b") is second


@subtest_for_each(
    ("name", "error"),
    [
        ("unknown", "group 'g': member='unknown': expected one of client-uuid1, client-uuid2"),
        (
            "client",
            "group 'g': member='client': expected the id of one of the 2 members with this client id, one of "
            "client-uuid1, client-uuid2",
        ),
    ],
)
def test_unknown_and_ambiguous_member_names_are_rejected(name: str, error: str) -> None:
    harness = CoordinatorHarness()
    harness.create_completing_group(1)
    harness.join()
    with pytest.raises(ConfigError, match=error):
        controls.member_of(harness.group(), name)


def test_unknown_groups_states_and_instance_ids_are_rejected() -> None:
    harness = CoordinatorHarness()
    with pytest.raises(ConfigError, match="group_id='g': expected an existing group; its coordinator has none"):
        controls.group_of(harness.coordinator, "g")
    for number in range(22):
        harness.create_completing_group(1, group_id=f"g{number}")
    with pytest.raises(
        ConfigError, match=r"^group_id='h': expected a group of this coordinator, one of g0, .*g19 and 2 more$"
    ):
        controls.group_of(harness.coordinator, "h")
    with pytest.raises(ConfigError, match="group 'g0': member='i': expected a static member; the group has none"):
        controls.fence(harness.coordinator, harness.group("g0"), "i", harness.now_ms)


def test_rejoin_all_completes_the_join_phase() -> None:
    harness = CoordinatorHarness()
    ids = harness.create_stable_group(2, protocols=protocols("range", "sticky"))
    harness.force_rebalance()
    controls.rejoin_all(harness.coordinator, harness.group(), harness.now_ms)
    harness.settle()
    assert (harness.state(), list(harness.group().members)) == ("CompletingRebalance", ids)
