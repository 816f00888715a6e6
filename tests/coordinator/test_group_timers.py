"""The timers of groups: when they start, their duration and effect, and the order in which they expire."""

from math import inf

from fakebroker.coordinator.records import CoordinatorRecord
from fakebroker.errors import ErrorCode
from fakebroker.protocol.messages.consumer_offsets import GroupMetadataKey
from tests.support.coordinator.coordinator_harness import (
    REBALANCE_MS,
    SESSION_MS,
    START_MS,
    CoordinatorHarness,
    protocols,
)
from tests.support.subtests import subtest_for_each

CHANGED = protocols("range", "roundrobin")


def keep_alive(harness: CoordinatorHarness, duration_ms: float, *member_ids: str) -> None:
    """Advance the clock while these members send heartbeats, six per session timeout."""
    end_ms = harness.now_ms + duration_ms
    while harness.now_ms < end_ms:
        harness.advance(min(SESSION_MS / 6, end_ms - harness.now_ms))
        for member_id in member_ids:
            harness.heartbeat(member_id, harness.group().generation_id)


# Sessions


def test_member_without_heartbeats_is_removed_when_its_session_expires() -> None:
    harness = CoordinatorHarness()
    leader, follower = harness.create_stable_group()
    harness.advance(SESSION_MS - 1)
    harness.heartbeat(leader, 1)
    assert harness.state() == "Stable"
    harness.advance(1)
    assert harness.state() == "PreparingRebalance"
    assert list(harness.group().members) == [leader]
    assert harness.heartbeat(follower, 1) is ErrorCode.UNKNOWN_MEMBER_ID


def test_expired_leader_is_succeeded_by_the_member_added_first() -> None:
    harness = CoordinatorHarness()
    _, second, third = harness.create_stable_group(3)
    keep_alive(harness, SESSION_MS, third, second)
    assert harness.group().leader_id == second


def test_group_becomes_empty_when_the_last_session_expires() -> None:
    harness = CoordinatorHarness()
    harness.create_stable_group(1)
    harness.advance(SESSION_MS)
    assert harness.state() == "Empty"
    assert harness.group().generation_id == 2
    assert harness.group().protocol_name is None
    assert harness.group().protocol_type == "consumer"
    assert harness.group().leader_id is None
    assert harness.group().earliest_deadline() == inf


@subtest_for_each("state", ["PreparingRebalance", "CompletingRebalance", "Stable"])
def test_heartbeat_extends_the_session(state: str) -> None:
    harness = CoordinatorHarness()
    leader, _ = harness.create_completing_group() if state == "CompletingRebalance" else harness.create_stable_group()
    if state == "PreparingRebalance":
        harness.join()
    harness.advance(SESSION_MS / 2)
    harness.heartbeat(leader, 1)
    assert harness.group().members[leader].deadline_ms == harness.now_ms + SESSION_MS


def test_commit_extends_the_session_even_if_its_metadata_is_too_long() -> None:
    harness = CoordinatorHarness(offset_metadata_max_bytes=3)
    leader, _ = harness.create_stable_group()
    harness.advance(SESSION_MS / 2)
    assert harness.commit(leader, 1, metadata="long") is ErrorCode.OFFSET_METADATA_TOO_LARGE
    assert harness.group().members[leader].deadline_ms == harness.now_ms + SESSION_MS


def test_joins_and_syncs_answered_at_once_do_not_extend_the_session() -> None:
    harness = CoordinatorHarness()
    _, follower = harness.create_stable_group()
    before_ms = harness.group().members[follower].deadline_ms
    harness.advance(SESSION_MS / 2)
    assert not harness.join(follower).is_parked
    assert not harness.sync(follower, 1).is_parked
    assert harness.group().members[follower].deadline_ms == before_ms


def test_new_generation_restarts_all_sessions() -> None:
    harness = CoordinatorHarness()
    leader, follower = harness.create_stable_group()
    harness.advance(SESSION_MS / 2)
    harness.join(leader)
    harness.join(follower)
    assert harness.group().generation_id == 2
    deadlines = [member.deadline_ms for member in harness.group().members.values()]
    assert deadlines == [harness.now_ms + SESSION_MS] * 2


def test_session_expires_without_effect_while_a_join_is_parked() -> None:
    harness = CoordinatorHarness()
    leader, follower = harness.create_stable_group()
    parked = harness.join(leader)
    keep_alive(harness, 3 * SESSION_MS, follower)
    assert parked.is_parked
    assert harness.group().members[leader].deadline_ms == float("inf")
    harness.join(follower)
    assert parked.joined.generation_id == 2
    assert harness.group().members[leader].deadline_ms == harness.now_ms + SESSION_MS


def test_session_expires_without_effect_while_a_sync_is_parked() -> None:
    harness = CoordinatorHarness()
    leader, follower = harness.create_completing_group()
    parked = harness.sync(follower, 1)
    keep_alive(harness, 3 * SESSION_MS, leader)
    assert parked.is_parked
    harness.sync(leader, 1)
    assert parked.error is ErrorCode.NONE
    assert harness.group().members[follower].deadline_ms == harness.now_ms + SESSION_MS


def test_sync_that_ends_with_an_error_restarts_the_session() -> None:
    harness = CoordinatorHarness()
    leader, follower = harness.create_completing_group()
    parked = harness.sync(follower, 1)
    keep_alive(harness, 2 * SESSION_MS, leader)
    harness.join(leader, protocols=CHANGED)
    assert parked.error is ErrorCode.REBALANCE_IN_PROGRESS
    assert harness.group().members[follower].deadline_ms == harness.now_ms + SESSION_MS


def test_shortened_session_timeout_is_used_from_the_next_heartbeat() -> None:
    harness = CoordinatorHarness()
    harness.create_stable_group(0, static=("i",), session_ms=1_000_000)
    static = harness.join(instance_id="i", session_ms=6_000).joined.member_id
    harness.heartbeat(static, 1)
    assert harness.coordinator.queue.next_deadline() == harness.now_ms + 6_000
    harness.advance(6_000)
    assert harness.state() == "Empty"


# New members and pending ids


def test_a_new_member_whose_join_waits_is_removed_after_300_s_and_one_that_rejoins_is_not() -> None:
    harness = CoordinatorHarness()
    absent, old = harness.create_stable_group(2, rebalance_ms=400_000)
    parked, rejoined = harness.join(session_ms=6_000), harness.join(old, rebalance_ms=400_000)
    keep_alive(harness, 299_000, absent)
    assert (parked.is_parked, rejoined.is_parked) == (True, True)
    keep_alive(harness, 999, absent)
    assert parked.is_parked
    keep_alive(harness, 1_001, absent)
    assert (parked.error, parked.joined.member_id) == (ErrorCode.UNKNOWN_MEMBER_ID, "")
    assert rejoined.is_parked
    assert list(harness.group().members) == [absent, old]


def test_pending_id_expires_after_the_session_timeout() -> None:
    harness = CoordinatorHarness()
    member_id = harness.request_member_id()
    harness.advance(SESSION_MS - 1)
    assert member_id in harness.group().pending_members
    harness.advance(1)
    assert harness.join(member_id).error is ErrorCode.UNKNOWN_MEMBER_ID


def test_expired_pending_id_ends_the_join_phase() -> None:
    harness = CoordinatorHarness()
    (leader,) = harness.create_stable_group(1)
    harness.request_member_id()
    parked = harness.join(leader)
    harness.advance(SESSION_MS - 1)
    assert parked.is_parked
    harness.advance(1)
    assert parked.joined.generation_id == 2


# The join timer


def test_join_phase_ends_after_the_largest_rebalance_timeout() -> None:
    harness = CoordinatorHarness()
    calls = [harness.join(rebalance_ms=20_000), harness.join(rebalance_ms=30_000)]
    harness.advance(6_000)
    leader, follower = [call.joined.member_id for call in calls]
    harness.sync_all([leader, follower])
    parked = harness.join(leader, rebalance_ms=10_000)
    keep_alive(harness, 29_999, follower)
    assert parked.is_parked
    keep_alive(harness, 1, follower)
    assert parked.joined.generation_id == 2


def test_late_dynamic_members_are_removed_and_static_ones_stay() -> None:
    harness = CoordinatorHarness()
    leader, follower, late, static = harness.create_stable_group(3, static=("i",))
    call = harness.join(follower, protocols=CHANGED)
    keep_alive(harness, REBALANCE_MS - 1, leader, late, static)
    assert call.is_parked
    keep_alive(harness, 1, leader, late, static)
    assert list(harness.group().members) == [follower, static]
    assert call.joined.leader == follower
    assert [member.member_id for member in call.joined.members] == [follower, static]
    assert list(harness.group().awaiting_sync) == [follower, static]


def test_join_phase_with_static_members_only_continues_until_their_sessions_expire() -> None:
    harness = CoordinatorHarness()
    leader, static = harness.create_stable_group(1, static=("i",), rebalance_ms=20_000)
    harness.leave((leader, None))
    keep_alive(harness, 20_000, static)
    assert harness.state() == "PreparingRebalance"
    assert harness.group().generation_id == 1
    assert harness.group().join_deadline_ms == harness.now_ms + 20_000
    harness.advance(SESSION_MS)
    assert harness.state() == "Empty"


def test_late_leader_is_succeeded_by_the_first_added_member_that_has_joined() -> None:
    harness = CoordinatorHarness()
    static_leader, second, third, fourth = [harness.join(instance_id=name) for name in "abcd"]
    harness.advance(6_000)
    ids = [call.joined.member_id for call in (static_leader, second, third, fourth)]
    harness.sync_all(ids)
    harness.join(ids[3], protocols=CHANGED)
    harness.join(ids[2], protocols=CHANGED)
    keep_alive(harness, REBALANCE_MS, *ids[:2])
    assert harness.group().leader_id == ids[2]
    assert list(harness.group().members) == ids


def test_rebalance_timeout_of_0_does_not_loop_within_a_tick() -> None:
    harness = CoordinatorHarness()
    leader, static = harness.create_completing_group(1, static=("i",), rebalance_ms=0)
    harness.sync_all([leader, static])
    harness.leave((leader, None))
    harness.advance_in_one_tick(1)
    assert harness.state() == "PreparingRebalance"
    assert harness.coordinator.queue.next_deadline() == harness.now_ms + 1


# The sync timer


def test_members_that_do_not_sync_are_removed_together() -> None:
    harness = CoordinatorHarness()
    leader, *late = harness.create_completing_group(3, static=("i",))
    harness.sync(late[0], 1)
    keep_alive(harness, REBALANCE_MS - 1, leader, *late)
    assert harness.state() == "CompletingRebalance"
    keep_alive(harness, 1, leader, *late)
    assert harness.state() == "PreparingRebalance"
    assert list(harness.group().members) == [late[0]]


def test_members_that_do_not_sync_are_removed_even_from_a_stable_group() -> None:
    harness = CoordinatorHarness()
    leader, follower = harness.create_completing_group()
    harness.sync(leader, 1)
    keep_alive(harness, REBALANCE_MS - 1, leader, follower)
    assert harness.state() == "Stable"
    keep_alive(harness, 1, leader, follower)
    assert harness.state() == "PreparingRebalance"
    assert list(harness.group().members) == [leader]


def test_sync_timer_stops_with_the_last_sync() -> None:
    harness = CoordinatorHarness()
    leader, follower = harness.create_completing_group()
    harness.sync(leader, 1)
    harness.sync(follower, 1)
    keep_alive(harness, 3 * REBALANCE_MS, leader, follower)
    assert harness.state() == "Stable"


def test_static_member_replaced_before_its_first_sync_is_awaited_under_its_former_id() -> None:
    # As in Kafka: a rebalance starts when the sync timer expires, but no member is removed.
    harness = CoordinatorHarness()
    leader, _ = harness.create_completing_group(1, static=("i",))
    harness.sync(leader, 1)
    static = harness.join(instance_id="i").joined.member_id
    harness.sync(static, 1)
    keep_alive(harness, REBALANCE_MS, leader, static)
    assert harness.state() == "PreparingRebalance"
    assert list(harness.group().members) == [leader, static]


# Order of expiry


def test_timers_expire_in_order_of_deadline_across_groups() -> None:
    harness = CoordinatorHarness()
    calls: dict[object, str] = {}
    for group_id, session_ms in [("slow", 9_000), ("fast", 7_000), ("late", 8_000), ("tied", 7_000)]:
        (leader,) = harness.create_stable_group(1, group_id=group_id, session_ms=1_000_000)
        harness.now_ms = START_MS + 100_000
        harness.request_member_id(group_id=group_id, session_ms=session_ms)
        calls[harness.join(leader, group_id=group_id)] = group_id
    harness.coordinator.queue.run(harness.now_ms + 10_000)
    answered = [calls[token] for token, _ in harness.coordinator.answers]
    assert answered == ["fast", "tied", "late", "slow"]


def test_groups_with_the_same_deadline_expire_in_order_of_creation() -> None:
    harness = CoordinatorHarness()
    members = {group_id: harness.create_stable_group(1, group_id=group_id)[0] for group_id in ("elder", "younger")}
    for alive in (["younger"], ["elder"], ["younger", "elder"]):  # The session of "younger" is checked first.
        harness.advance(SESSION_MS / 4)
        for group_id in alive:
            harness.heartbeat(members[group_id], 1, group_id=group_id)
    harness.batches.clear()
    harness.advance(SESSION_MS)
    stored = [record.key for _, (record,) in harness.batches if isinstance(record, CoordinatorRecord)]
    groups = [key.group for key in stored if isinstance(key, GroupMetadataKey)]
    assert groups == ["elder", "younger"]


def test_suspended_session_does_not_expire_until_the_keeper_resumes_it() -> None:
    harness = CoordinatorHarness()
    leader, follower = harness.create_stable_group()
    group, calls = harness.group(), []
    kept = group.members[leader]

    def resume(group_id: str) -> None:
        calls.append((group_id, harness.now_ms, list(group.members)))
        harness.coordinator.groups.resume_session(group, kept, harness.now_ms + SESSION_MS / 2)

    kept.keeper = resume
    harness.advance(SESSION_MS - 1)
    assert (calls, kept.session_ends_ms) == ([], inf)
    harness.advance(1)
    assert calls == [("g", harness.now_ms, [leader, follower])]
    assert list(group.members) == [leader]
    harness.advance(SESSION_MS / 2)
    assert harness.state() == "Empty"


def test_sessions_expire_before_the_join_timer_at_the_same_deadline() -> None:
    harness = CoordinatorHarness()
    leader, static = harness.create_stable_group(1, static=("i",), rebalance_ms=SESSION_MS)
    harness.heartbeat(static, 1)
    harness.join(leader, rebalance_ms=SESSION_MS)
    harness.advance(SESSION_MS)
    assert list(harness.group().members) == [leader]
    assert harness.state() == "CompletingRebalance"


def test_next_deadline_is_never_late() -> None:
    harness = CoordinatorHarness()
    ids = harness.create_stable_group(3)
    for step in range(200):
        harness.heartbeat(ids[step % 3], 1)
        deadline_ms = harness.coordinator.queue.next_deadline()
        assert deadline_ms is not None
        assert deadline_ms <= harness.group().earliest_deadline()
        harness.advance(1_000)


def test_timers_started_by_a_late_tick_count_from_that_tick() -> None:
    harness = CoordinatorHarness()
    call = harness.join()
    harness.advance_in_one_tick(1_000_000)
    assert call.joined.generation_id == 1
    assert harness.group().members[call.joined.member_id].deadline_ms == harness.now_ms + SESSION_MS
