"""Every error that a coordinator may answer, and what the Java consumer does about it."""

import pytest

from fakebroker.client.member.effects import CommitRejected, Discover, Fatal, Revoked, Send
from fakebroker.client.member.states import MemberState
from fakebroker.errors import ErrorCode
from fakebroker.protocol.messages.heartbeat import HeartbeatRequest
from fakebroker.protocol.messages.join_group import JoinGroupRequest
from fakebroker.protocol.messages.offset_commit import (
    OffsetCommitRequest,
)
from fakebroker.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
)
from fakebroker.protocol.messages.sync_group import SyncGroupRequest
from tests.support.client.member_harness import COMMIT_MS, HEARTBEAT_MS, START_MS, MemberHarness, fetched

P0, P1 = ("t", 0), ("t", 1)
FATAL_TO_A_JOIN = [23, 24, 26, 30, 81, 82, 35, -1]


def assert_fatal(bench: MemberHarness, error: int) -> None:
    effects = bench.effects()
    fatal = effects[-1]
    assert isinstance(fatal, Fatal)
    assert fatal.error == error
    assert ErrorCode(error).name in fatal.message
    assert all(isinstance(effect, Revoked) and effect.lost for effect in effects[:-1])
    assert bench.state() is MemberState.DOWN
    assert bench.member.next_deadline() is None


def assert_rediscovers(bench: MemberHarness) -> None:
    """After the first back-off, holding on to its partitions and asking the old coordinator nothing more."""
    assert bench.state() is MemberState.REDISCOVERING
    assert bench.effects() == []
    assert not bench.member.has_coordinator
    bench.advance(99)
    assert bench.effects() == []
    bench.advance(1)
    assert bench.only(Discover).scheduled_ms == bench.now_ms


# JoinGroup


def rejoining(**settings: object) -> tuple[MemberHarness, JoinGroupRequest]:
    """A JoinGroup of a member that has an id."""
    bench = MemberHarness(**settings)
    bench.refuse(bench.start_joining(), 79)
    return bench, bench.sent(JoinGroupRequest)


def test_a_join_while_loading_is_retried_after_a_back_off() -> None:
    bench, join = rejoining()
    bench.refuse(join, 14)
    assert (bench.effects(), bench.state()) == ([], MemberState.JOINING)
    bench.advance(100)
    again = bench.only(Send)
    assert (again.request, again.scheduled_ms) == (join, START_MS + 100)


@pytest.mark.parametrize("error", [15, 16])
def test_a_join_to_the_wrong_coordinator_is_repeated_at_the_right_one(error: int) -> None:
    bench, join = rejoining()
    bench.refuse(join, error)
    assert_rediscovers(bench)
    bench.discovered()
    assert bench.sent(JoinGroupRequest) == join


def test_a_join_of_an_unknown_member_starts_anew_at_once() -> None:
    bench, join = rejoining()
    assert join.member_id == "given"
    bench.refuse(join, 25)
    assert bench.sent(JoinGroupRequest).member_id == ""


def test_a_join_during_a_rebalance_is_repeated_at_once() -> None:
    bench, join = rejoining()
    bench.refuse(join, 27)
    assert bench.sent(JoinGroupRequest) == join


def test_the_id_that_is_required_is_taken_and_joined_with() -> None:
    bench = MemberHarness()
    first = bench.start_joining()
    assert first.member_id == ""
    bench.refuse(first, 79)
    assert bench.sent(JoinGroupRequest).member_id == "given"
    assert (bench.member.member_id, bench.member.generation_id) == ("given", -1)


@pytest.mark.parametrize("error", FATAL_TO_A_JOIN)
def test_a_join_that_is_refused_for_good_is_fatal(error: int) -> None:
    bench, join = rejoining()
    bench.refuse(join, error)
    assert_fatal(bench, error)


# SyncGroup


def syncing(**settings: object) -> tuple[MemberHarness, SyncGroupRequest]:
    bench = MemberHarness(**settings)
    return bench, bench.follow(bench.start_joining(), generation_id=5)


@pytest.mark.parametrize("error", [15, 16])
def test_a_sync_at_the_wrong_coordinator_joins_again_at_the_right_one(error: int) -> None:
    bench, sync = syncing()
    bench.refuse(sync, error)
    assert_rediscovers(bench)
    bench.discovered()
    assert bench.sent(JoinGroupRequest).member_id == "m"


@pytest.mark.parametrize(("error", "member_id", "generation_id"), [(22, "m", -1), (25, "", -1), (27, "m", 5)])
def test_a_sync_of_another_round_joins_again(error: int, member_id: str, generation_id: int) -> None:
    bench, sync = syncing()
    bench.refuse(sync, error)
    assert bench.sent(JoinGroupRequest).member_id == member_id
    assert bench.member.generation_id == generation_id


@pytest.mark.parametrize("error", [14, 23, 24, 26, 30, 81, 82, -1])
def test_a_sync_that_is_refused_for_good_is_fatal(error: int) -> None:
    """COORDINATOR_LOAD_IN_PROGRESS too: the Java client expects it everywhere but here."""
    bench, sync = syncing()
    bench.refuse(sync, error)
    assert_fatal(bench, error)


# Heartbeat


def heartbeating() -> tuple[MemberHarness, HeartbeatRequest]:
    """Without commits, so that none comes before a JoinGroup."""
    bench = MemberHarness(commit_interval_ms=0).enter(P0)
    bench.advance(HEARTBEAT_MS)
    return bench, bench.sent(HeartbeatRequest)


@pytest.mark.parametrize("error", [15, 16])
def test_a_heartbeat_to_the_wrong_coordinator_goes_to_the_right_one_in_the_same_generation(error: int) -> None:
    bench, heartbeat = heartbeating()
    bench.refuse(heartbeat, error)
    assert_rediscovers(bench)
    assert bench.member.assigned == (P0,)
    bench.discovered()
    assert bench.sent(HeartbeatRequest) == heartbeat
    assert bench.state() is MemberState.PART_OF_GROUP


@pytest.mark.parametrize(("error", "member_id"), [(22, "m"), (25, "")])
def test_a_heartbeat_of_a_lost_generation_loses_the_partitions_and_joins_again(error: int, member_id: str) -> None:
    bench, heartbeat = heartbeating()
    bench.refuse(heartbeat, error)
    revoked, send = bench.effects()
    assert revoked == Revoked((P0,), True, bench.now_ms)
    assert isinstance(send, Send)
    assert isinstance(send.request, JoinGroupRequest)
    assert (send.request.member_id, bench.member.generation_id) == (member_id, -1)


def test_a_heartbeat_during_a_rebalance_rejoins() -> None:
    bench, heartbeat = heartbeating()
    bench.refuse(heartbeat, 27)
    revoked, send = bench.effects()
    assert revoked == Revoked((P0,), False, bench.now_ms)
    assert isinstance(send, Send)
    assert isinstance(send.request, JoinGroupRequest)
    assert (send.request.member_id, bench.member.generation_id) == ("m", 1)


def test_a_heartbeat_during_a_rebalance_is_ignored_by_a_member_that_is_joining_or_syncing() -> None:
    bench = MemberHarness(commit_interval_ms=0).enter(P0)
    bench.advance(HEARTBEAT_MS)
    first = bench.sent(HeartbeatRequest)
    bench.advance(HEARTBEAT_MS)
    second = bench.sent(HeartbeatRequest)
    bench.refuse(first, 27)
    join = bench.sent(JoinGroupRequest)
    bench.refuse(second, 27)
    assert (bench.effects(), bench.state()) == ([], MemberState.JOINING)
    bench.follow(join, generation_id=2)
    bench.advance(HEARTBEAT_MS)
    bench.refuse(bench.sent(HeartbeatRequest), 27)
    assert (bench.effects(), bench.state()) == ([], MemberState.SYNCING)


@pytest.mark.parametrize("error", [30, 82])
def test_a_heartbeat_that_is_fenced_or_forbidden_is_fatal(error: int) -> None:
    bench, heartbeat = heartbeating()
    bench.refuse(heartbeat, error)
    assert_fatal(bench, error)


@pytest.mark.parametrize("error", [22, 25, 82])
def test_a_heartbeat_of_an_earlier_generation_has_no_consequences(error: int) -> None:
    bench, heartbeat = heartbeating()
    bench.advance(HEARTBEAT_MS)
    bench.refuse(bench.sent(HeartbeatRequest), 27)
    bench.assign(bench.follow(bench.sent(JoinGroupRequest), generation_id=2), P0)
    bench.refuse(heartbeat, error)
    assert (bench.effects(), bench.state()) == ([], MemberState.PART_OF_GROUP)


@pytest.mark.parametrize("error", [14, -1, 999])
def test_a_heartbeat_with_any_other_error_is_repeated_after_a_back_off(error: int) -> None:
    bench, heartbeat = heartbeating()
    bench.refuse(heartbeat, error)
    assert bench.effects() == []
    bench.advance(100)
    again = bench.only(Send)
    assert (again.request, again.scheduled_ms) == (heartbeat, bench.now_ms)


# OffsetCommit


def committing() -> tuple[MemberHarness, OffsetCommitRequest]:
    bench = MemberHarness().enter(P0)
    bench.member.positions[P0] = 42
    bench.advance(COMMIT_MS)
    return bench, bench.sent(OffsetCommitRequest)


@pytest.mark.parametrize("error", [14, 3])
def test_a_commit_while_loading_or_before_a_topic_is_known_is_retried(error: int) -> None:
    bench, commit = committing()
    bench.refuse(commit, error)
    assert bench.effects() == []
    bench.advance(100)
    assert bench.sent(OffsetCommitRequest) == commit


@pytest.mark.parametrize("error", [15, 16, 7])
def test_a_commit_to_the_wrong_coordinator_is_repeated_at_the_right_one(error: int) -> None:
    bench, commit = committing()
    bench.refuse(commit, error)
    assert_rediscovers(bench)
    bench.discovered()
    assert bench.sent(OffsetCommitRequest) == commit


@pytest.mark.parametrize(("error", "member_id"), [(22, "m"), (25, "")])
def test_a_commit_of_a_lost_generation_fails_and_joins_again(error: int, member_id: str) -> None:
    bench, commit = committing()
    bench.refuse(commit, error)
    failed, revoked, send = bench.effects()
    assert failed == CommitRejected(ErrorCode(error), bench.now_ms)
    assert revoked == Revoked((P0,), True, bench.now_ms)
    assert isinstance(send, Send)
    assert isinstance(send.request, JoinGroupRequest)
    assert send.request.member_id == member_id


def test_a_commit_during_a_rebalance_fails_and_rejoins() -> None:
    """The rejoin tries to commit once more, is refused again, and goes on."""
    bench, commit = committing()
    bench.refuse(commit, 27)
    failed, send = bench.effects()
    assert failed == CommitRejected(ErrorCode.REBALANCE_IN_PROGRESS, bench.now_ms)
    assert isinstance(send, Send)
    bench.refuse(send.request, 27)
    assert bench.sent(JoinGroupRequest).member_id == "m"


@pytest.mark.parametrize("error", [30, 82])
def test_a_commit_that_is_fenced_or_forbidden_is_fatal(error: int) -> None:
    bench, commit = committing()
    bench.refuse(commit, error)
    assert_fatal(bench, error)


@pytest.mark.parametrize("error", [22, 25, 27, 82])
def test_a_commit_of_an_earlier_generation_only_fails(error: int) -> None:
    bench, commit = committing()
    bench.advance(HEARTBEAT_MS)
    bench.refuse(bench.sent(HeartbeatRequest), 25)
    bench.assign(bench.follow(bench.sent(JoinGroupRequest), generation_id=2, member_id="n"), P0)
    bench.refuse(commit, error)
    assert bench.only(CommitRejected).error == error
    assert bench.state() is MemberState.PART_OF_GROUP


@pytest.mark.parametrize("error", [12, 28, 69, 23, 24, 26, 81, 29, -1])
def test_a_commit_that_is_refused_for_itself_is_reported_and_nothing_else(error: int) -> None:
    bench, commit = committing()
    bench.refuse(commit, error)
    assert bench.only(CommitRejected).error == error
    assert bench.state() is MemberState.PART_OF_GROUP


# OffsetFetch


def fetching() -> tuple[MemberHarness, OffsetFetchRequest]:
    bench = MemberHarness()
    fetch = bench.assign(bench.follow(bench.start_joining()), P0)
    assert fetch is not None
    return bench, fetch


@pytest.mark.parametrize("error", [14, 88])
def test_a_fetch_of_offsets_while_loading_or_unstable_is_retried(error: int) -> None:
    bench, fetch = fetching()
    bench.refuse(fetch, error)
    assert (bench.effects(), bench.member.positions) == ([], {})
    bench.advance(100)
    assert bench.sent(OffsetFetchRequest) == fetch


@pytest.mark.parametrize("error", [15, 16])
def test_a_fetch_of_offsets_from_the_wrong_coordinator_is_repeated_at_the_right_one(error: int) -> None:
    bench, fetch = fetching()
    bench.refuse(fetch, error)
    assert_rediscovers(bench)
    bench.discovered()
    assert bench.sent(OffsetFetchRequest) == fetch


@pytest.mark.parametrize("error", [25, 30, -1])
def test_a_fetch_of_offsets_that_is_refused_is_fatal(error: int) -> None:
    bench, fetch = fetching()
    bench.refuse(fetch, error)
    assert_fatal(bench, error)


@pytest.mark.parametrize("error", [3, 29])
def test_a_partition_whose_offset_cannot_be_had_is_fatal(error: int) -> None:
    bench, fetch = fetching()
    bench.answer(fetch, fetched({P0: -1}, error))
    assert_fatal(bench, error)


def test_an_unstable_partition_is_asked_for_again() -> None:
    bench, fetch = fetching()
    bench.answer(fetch, fetched({P0: -1}, 88))
    bench.advance(100)
    assert bench.sent(OffsetFetchRequest) == fetch


# FindCoordinator


@pytest.mark.parametrize("error", [ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NETWORK_EXCEPTION])
def test_a_coordinator_that_is_not_found_is_looked_for_again_ever_later(error: ErrorCode) -> None:
    bench = MemberHarness()
    bench.member.start(bench.now_ms)
    waits = []
    for _ in range(6):
        asked_ms = bench.now_ms
        bench.only(Discover)
        bench.member.discovery_failed(error, bench.now_ms)
        due_ms = bench.member.next_deadline()
        assert due_ms is not None
        waits.append(due_ms - asked_ms)
        bench.advance(due_ms - bench.now_ms)
    assert waits == [100, 200, 400, 800, 1000, 1000]


@pytest.mark.parametrize("error", [ErrorCode.GROUP_AUTHORIZATION_FAILED, ErrorCode.INVALID_GROUP_ID])
def test_a_coordinator_that_may_not_be_looked_for_is_fatal(error: ErrorCode) -> None:
    bench = MemberHarness()
    bench.member.start(bench.now_ms)
    bench.only(Discover)
    bench.member.discovery_failed(error, bench.now_ms)
    assert_fatal(bench, error)
