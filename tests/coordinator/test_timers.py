"""Every timer: when it is armed, how long it is, what it does, and in which order timers run out."""

from math import inf

import pytest

from fakebroker.errors import ErrorCode
from tests.support.coordinator.coordinator_harness import (
    REBALANCE_MS,
    SESSION_MS,
    START_MS,
    CoordinatorHarness,
    protocols,
)

CHANGED = protocols("range", "roundrobin")


def keep_alive(driver: CoordinatorHarness, duration_ms: float, *member_ids: str) -> None:
    """Lets time pass while these members send heartbeats, six in a session."""
    end_ms = driver.now_ms + duration_ms
    while driver.now_ms < end_ms:
        driver.advance(min(SESSION_MS / 6, end_ms - driver.now_ms))
        for member_id in member_ids:
            driver.heartbeat(member_id, driver.group().generation_id)


# Sessions


def test_a_silent_member_is_removed_when_its_session_ends() -> None:
    driver = CoordinatorHarness()
    leader, follower = driver.stable()
    driver.advance(SESSION_MS - 1)
    driver.heartbeat(leader, 1)
    assert driver.state() == "Stable"
    driver.advance(1)
    assert driver.state() == "PreparingRebalance"
    assert list(driver.group().members) == [leader]
    assert driver.heartbeat(follower, 1) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_silent_leader_is_followed_by_the_member_added_first() -> None:
    driver = CoordinatorHarness()
    _, second, third = driver.stable(3)
    keep_alive(driver, SESSION_MS, third, second)
    assert driver.group().leader_id == second


def test_the_last_session_to_end_empties_the_group() -> None:
    driver = CoordinatorHarness()
    driver.stable(1)
    driver.advance(SESSION_MS)
    assert driver.state() == "Empty"
    assert driver.group().generation_id == 2
    assert driver.group().protocol_name is None
    assert driver.group().protocol_type == "consumer"
    assert driver.group().leader_id is None
    assert driver.group().earliest_deadline() == inf


@pytest.mark.parametrize("state", ["PreparingRebalance", "CompletingRebalance", "Stable"])
def test_a_heartbeat_starts_the_session_anew(state: str) -> None:
    driver = CoordinatorHarness()
    leader, _ = driver.complete() if state == "CompletingRebalance" else driver.stable()
    if state == "PreparingRebalance":
        driver.join()
    driver.advance(SESSION_MS / 2)
    driver.heartbeat(leader, 1)
    assert driver.group().members[leader].deadline_ms == driver.now_ms + SESSION_MS


def test_a_commit_starts_the_session_anew_even_if_the_metadata_is_too_long() -> None:
    driver = CoordinatorHarness(offset_metadata_max_bytes=3)
    leader, _ = driver.stable()
    driver.advance(SESSION_MS / 2)
    assert driver.commit(leader, 1, metadata="long") is ErrorCode.OFFSET_METADATA_TOO_LARGE
    assert driver.group().members[leader].deadline_ms == driver.now_ms + SESSION_MS


def test_joins_and_syncs_that_are_answered_at_once_do_not_start_the_session_anew() -> None:
    driver = CoordinatorHarness()
    _, follower = driver.stable()
    before_ms = driver.group().members[follower].deadline_ms
    driver.advance(SESSION_MS / 2)
    assert not driver.join(follower).is_parked
    assert not driver.sync(follower, 1).is_parked
    assert driver.group().members[follower].deadline_ms == before_ms


def test_a_new_generation_starts_all_sessions_anew() -> None:
    driver = CoordinatorHarness()
    leader, follower = driver.stable()
    driver.advance(SESSION_MS / 2)
    driver.join(leader)
    driver.join(follower)
    assert driver.group().generation_id == 2
    deadlines = [member.deadline_ms for member in driver.group().members.values()]
    assert deadlines == [driver.now_ms + SESSION_MS] * 2


def test_the_end_of_a_session_is_let_pass_while_a_join_is_parked() -> None:
    driver = CoordinatorHarness()
    leader, follower = driver.stable()
    parked = driver.join(leader)
    keep_alive(driver, 3 * SESSION_MS, follower)
    assert parked.is_parked
    assert driver.group().members[leader].deadline_ms == float("inf")
    driver.join(follower)
    assert parked.joined.generation_id == 2
    assert driver.group().members[leader].deadline_ms == driver.now_ms + SESSION_MS


def test_the_end_of_a_session_is_let_pass_while_a_sync_is_parked() -> None:
    driver = CoordinatorHarness()
    leader, follower = driver.complete()
    parked = driver.sync(follower, 1)
    keep_alive(driver, 3 * SESSION_MS, leader)
    assert parked.is_parked
    driver.sync(leader, 1)
    assert parked.error is ErrorCode.NONE
    assert driver.group().members[follower].deadline_ms == driver.now_ms + SESSION_MS


def test_a_sync_that_is_given_up_starts_the_session_anew() -> None:
    driver = CoordinatorHarness()
    leader, follower = driver.complete()
    parked = driver.sync(follower, 1)
    keep_alive(driver, 2 * SESSION_MS, leader)
    driver.join(leader, protocols=CHANGED)
    assert parked.error is ErrorCode.REBALANCE_IN_PROGRESS
    assert driver.group().members[follower].deadline_ms == driver.now_ms + SESSION_MS


def test_a_session_timeout_that_was_shortened_counts_from_the_next_heartbeat() -> None:
    driver = CoordinatorHarness()
    driver.stable(0, static=("i",), session_ms=1_000_000)
    static = driver.join(instance_id="i", session_ms=6_000).joined.member_id
    driver.heartbeat(static, 1)
    assert driver.coordinator.next_deadline() == driver.now_ms + 6_000
    driver.advance(6_000)
    assert driver.state() == "Empty"


# New members and pending ids


def test_a_new_member_waits_five_minutes_and_no_longer() -> None:
    driver = CoordinatorHarness()
    (old,) = driver.stable(1, rebalance_ms=400_000)
    parked = driver.join(session_ms=6_000)
    keep_alive(driver, 299_999, old)
    assert parked.is_parked
    keep_alive(driver, 1, old)
    assert (parked.error, parked.joined.member_id) == (ErrorCode.UNKNOWN_MEMBER_ID, "")
    assert list(driver.group().members) == [old]


def test_a_pending_id_is_forgotten_when_its_session_ends() -> None:
    driver = CoordinatorHarness()
    member_id = driver.pend()
    driver.advance(SESSION_MS - 1)
    assert member_id in driver.group().pending_members
    driver.advance(1)
    assert driver.join(member_id).error is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_round_goes_on_once_the_pending_id_it_waits_for_is_forgotten() -> None:
    driver = CoordinatorHarness()
    (leader,) = driver.stable(1)
    driver.pend()
    parked = driver.join(leader)
    driver.advance(SESSION_MS - 1)
    assert parked.is_parked
    driver.advance(1)
    assert parked.joined.generation_id == 2


# The join timer


def test_the_join_phase_ends_after_the_largest_rebalance_timeout() -> None:
    driver = CoordinatorHarness()
    calls = [driver.join(rebalance_ms=20_000), driver.join(rebalance_ms=30_000)]
    driver.advance(6_000)
    leader, follower = [call.joined.member_id for call in calls]
    driver.sync_all([leader, follower])
    parked = driver.join(leader, rebalance_ms=10_000)
    keep_alive(driver, 29_999, follower)
    assert parked.is_parked
    keep_alive(driver, 1, follower)
    assert parked.joined.generation_id == 2


def test_late_dynamic_members_are_removed_and_static_ones_stay() -> None:
    driver = CoordinatorHarness()
    leader, follower, late, static = driver.stable(3, static=("i",))
    call = driver.join(follower, protocols=CHANGED)
    keep_alive(driver, REBALANCE_MS - 1, leader, late, static)
    assert call.is_parked
    keep_alive(driver, 1, leader, late, static)
    assert list(driver.group().members) == [follower, static]
    assert call.joined.leader == follower
    assert [member.member_id for member in call.joined.members] == [follower, static]
    assert list(driver.group().awaiting_sync) == [follower, static]


def test_static_members_alone_are_waited_for_until_their_sessions_end() -> None:
    driver = CoordinatorHarness()
    leader, static = driver.stable(1, static=("i",), rebalance_ms=20_000)
    driver.leave((leader, None))
    keep_alive(driver, 20_000, static)
    assert driver.state() == "PreparingRebalance"
    assert driver.group().generation_id == 1
    assert driver.group().join_deadline_ms == driver.now_ms + 20_000
    driver.advance(SESSION_MS)
    assert driver.state() == "Empty"


def test_a_leader_that_is_late_is_followed_by_the_first_added_that_is_in() -> None:
    driver = CoordinatorHarness()
    static_leader, second, third, fourth = [driver.join(instance_id=name) for name in "abcd"]
    driver.advance(6_000)
    ids = [call.joined.member_id for call in (static_leader, second, third, fourth)]
    driver.sync_all(ids)
    driver.join(ids[3], protocols=CHANGED)
    driver.join(ids[2], protocols=CHANGED)
    keep_alive(driver, REBALANCE_MS, *ids[:2])
    assert driver.group().leader_id == ids[2]
    assert list(driver.group().members) == ids


def test_a_rebalance_timeout_of_0_does_not_keep_a_tick_from_ending() -> None:
    driver = CoordinatorHarness()
    leader, static = driver.complete(1, static=("i",), rebalance_ms=0)
    driver.sync_all([leader, static])
    driver.leave((leader, None))
    driver.advance_at_once(1)
    assert driver.state() == "PreparingRebalance"
    assert driver.coordinator.next_deadline() == driver.now_ms + 1


# The sync timer


def test_members_that_do_not_sync_are_removed_together() -> None:
    driver = CoordinatorHarness()
    leader, *late = driver.complete(3, static=("i",))
    driver.sync(late[0], 1)
    keep_alive(driver, REBALANCE_MS - 1, leader, *late)
    assert driver.state() == "CompletingRebalance"
    keep_alive(driver, 1, leader, *late)
    assert driver.state() == "PreparingRebalance"
    assert list(driver.group().members) == [late[0]]


def test_members_that_do_not_sync_are_removed_even_from_a_stable_group() -> None:
    driver = CoordinatorHarness()
    leader, follower = driver.complete()
    driver.sync(leader, 1)
    keep_alive(driver, REBALANCE_MS - 1, leader, follower)
    assert driver.state() == "Stable"
    keep_alive(driver, 1, leader, follower)
    assert driver.state() == "PreparingRebalance"
    assert list(driver.group().members) == [leader]


def test_the_sync_timer_stops_with_the_last_sync() -> None:
    driver = CoordinatorHarness()
    leader, follower = driver.complete()
    driver.sync(leader, 1)
    driver.sync(follower, 1)
    keep_alive(driver, 3 * REBALANCE_MS, leader, follower)
    assert driver.state() == "Stable"


def test_a_static_member_replaced_before_its_first_sync_is_awaited_under_its_former_id() -> None:
    # Not what anybody would design, but what Kafka does: the round after the timeout finds nobody to remove.
    driver = CoordinatorHarness()
    leader, _ = driver.complete(1, static=("i",))
    driver.sync(leader, 1)
    static = driver.join(instance_id="i").joined.member_id
    driver.sync(static, 1)
    keep_alive(driver, REBALANCE_MS, leader, static)
    assert driver.state() == "PreparingRebalance"
    assert list(driver.group().members) == [leader, static]


# Order


def test_timers_run_out_in_order_of_deadline_across_groups() -> None:
    driver = CoordinatorHarness()
    calls: dict[object, str] = {}
    for group_id, session_ms in [("slow", 9_000), ("fast", 7_000), ("late", 8_000), ("tied", 7_000)]:
        (leader,) = driver.stable(1, group_id=group_id, session_ms=1_000_000)
        driver.now_ms = START_MS + 100_000
        driver.pend(group_id=group_id, session_ms=session_ms)
        calls[driver.join(leader, group_id=group_id)] = group_id
    driver.coordinator.tick(driver.now_ms + 10_000)
    answered = [calls[token] for token, _ in driver.coordinator.answers]
    assert answered == ["fast", "tied", "late", "slow"]


def test_groups_with_the_same_deadline_are_in_the_order_in_which_they_came() -> None:
    driver = CoordinatorHarness()
    members = {group_id: driver.stable(1, group_id=group_id)[0] for group_id in ("elder", "younger")}
    for beating in (["younger"], ["elder"], ["younger", "elder"]):  # The younger one's end is looked at first.
        driver.advance(SESSION_MS / 4)
        for group_id in beating:
            driver.heartbeat(members[group_id], 1, group_id=group_id)
    driver.batches.clear()
    driver.advance(SESSION_MS)
    assert [record.group_id for _, (record,) in driver.batches] == ["elder", "younger"]


def test_a_session_that_is_kept_goes_on_until_the_keeper_lets_go() -> None:
    driver = CoordinatorHarness()
    leader, follower = driver.stable()
    group, told = driver.group(), []
    kept = group.members[leader]

    def let_go(group_id: str) -> None:
        told.append((group_id, driver.now_ms, list(group.members)))
        driver.coordinator.resume_session(group, kept, driver.now_ms + SESSION_MS / 2)

    kept.keeper = let_go
    driver.advance(SESSION_MS - 1)
    assert (told, kept.session_ends_ms) == ([], inf)
    driver.advance(1)
    assert told == [("g", driver.now_ms, [leader, follower])]
    assert list(group.members) == [leader]
    driver.advance(SESSION_MS / 2)
    assert driver.state() == "Empty"


def test_inside_a_group_sessions_end_before_the_join_phase_does() -> None:
    driver = CoordinatorHarness()
    leader, static = driver.stable(1, static=("i",), rebalance_ms=SESSION_MS)
    driver.heartbeat(static, 1)
    driver.join(leader, rebalance_ms=SESSION_MS)
    driver.advance(SESSION_MS)
    assert list(driver.group().members) == [leader]
    assert driver.state() == "CompletingRebalance"


def test_a_look_at_a_group_is_never_late() -> None:
    driver = CoordinatorHarness()
    ids = driver.stable(3)
    for step in range(200):
        driver.heartbeat(ids[step % 3], 1)
        deadline_ms = driver.coordinator.next_deadline()
        assert deadline_ms is not None
        assert deadline_ms <= driver.group().earliest_deadline()
        driver.advance(1_000)


def test_after_a_late_tick_time_counts_from_then() -> None:
    driver = CoordinatorHarness()
    call = driver.join()
    driver.advance_at_once(1_000_000)
    assert call.joined.generation_id == 1
    assert driver.group().members[call.joined.member_id].deadline_ms == driver.now_ms + SESSION_MS
