"""What a rebalance, and the loss of the coordinator, do to a member of a group; errors stand in test_reactions.py."""

import pytest

from fakebroker.client.member.effects import Assigned, Discover, Revoked, Send
from fakebroker.client.member.states import MemberState
from fakebroker.errors import ErrorCode
from fakebroker.protocol.consumer_protocol import decode_subscription, encode_assignment
from fakebroker.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from fakebroker.protocol.messages.join_group import JoinGroupRequest
from fakebroker.protocol.messages.offset_commit import OffsetCommitRequest
from fakebroker.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from fakebroker.topic_partition import TopicPartition
from tests.support.client.member_harness import (
    HEARTBEAT_MS,
    REBALANCE_MS,
    SESSION_MS,
    MemberHarness,
    committed,
    partitions_in,
    positions_in,
)

P0, P1, P2 = ("t", 0), ("t", 1), ("t", 2)


# Rebalances


def rebalancing(**settings: object) -> tuple[MemberHarness, OffsetCommitRequest]:
    """A member that was told of a rebalance, and its last commit."""
    bench = MemberHarness(**settings).enter(P0, P1)
    bench.advance(HEARTBEAT_MS)
    bench.refuse(bench.sent(HeartbeatRequest), 27)
    assert bench.state() is MemberState.STOPPED
    return bench, bench.sent(OffsetCommitRequest)


def test_before_it_joins_again_a_member_commits_and_keeps_its_partitions_until_that_is_answered() -> None:
    bench, commit = rebalancing()
    assert (bench.member.assigned, positions_in(commit)) == ((P0, P1), {P0: 10, P1: 10})
    bench.answer(commit, committed(commit))
    assert bench.effects()[0] == Revoked((P0, P1), False, bench.now_ms)
    assert bench.state() is MemberState.JOINING
    assert (bench.member.assigned, bench.member.positions) == ((), {})


def test_an_earlier_commit_that_is_still_out_is_waited_for_too() -> None:
    bench = MemberHarness().enter(P0)
    bench.member.commit(bench.now_ms)
    first = bench.sent(OffsetCommitRequest)
    bench.advance(HEARTBEAT_MS)
    bench.refuse(bench.sent(HeartbeatRequest), 27)
    last = bench.sent(OffsetCommitRequest)
    bench.answer(first, committed(first))
    assert bench.state() is MemberState.STOPPED
    bench.answer(last, committed(last))
    assert bench.state() is MemberState.JOINING


def test_the_last_commit_is_retried_while_the_rebalance_timeout_lasts() -> None:
    bench, commit = rebalancing()
    bench.refuse(commit, 14)
    bench.advance(100)
    again = bench.sent(OffsetCommitRequest)
    assert again == commit
    bench.answer(again, committed(again))
    assert bench.sent(JoinGroupRequest)


def test_a_last_commit_without_an_answer_holds_the_join_up_no_longer_than_the_rebalance_timeout() -> None:
    bench, _ = rebalancing(session_timeout_ms=2 * REBALANCE_MS)
    bench.advance(REBALANCE_MS - 1)
    assert bench.state() is MemberState.STOPPED
    bench.advance(1)
    assert bench.state() is MemberState.JOINING


@pytest.mark.parametrize(("error", "member_id"), [(22, "m"), (25, "")])
def test_a_last_commit_that_shows_the_generation_lost_joins_without_it(error: int, member_id: str) -> None:
    bench, commit = rebalancing()
    bench.refuse(commit, error)
    effects = bench.effects()
    assert Revoked((P0, P1), True, bench.now_ms) in effects
    sends = [effect.request for effect in effects if isinstance(effect, Send)]
    assert [type(request) for request in sends] == [JoinGroupRequest]
    assert bench.member.member_id == member_id


def test_a_leader_that_hears_of_other_partition_counts_rejoins() -> None:
    bench = MemberHarness(commit_interval_ms=0)
    bench.lead(bench.start_joining())
    bench.member.metadata({"t": 1}, bench.now_ms)
    bench.assign(bench.sent(SyncGroupRequest), P0)
    bench.member.metadata({"t": 1, "u": 5}, bench.now_ms)
    bench.member.metadata({}, bench.now_ms)
    assert bench.effects() == []
    bench.member.metadata({"t": 2}, bench.now_ms)
    assert bench.sent(JoinGroupRequest).member_id == "m"


def test_a_leader_that_hears_of_other_partition_counts_in_mid_round_rejoins_after_it() -> None:
    bench = MemberHarness(commit_interval_ms=0)
    bench.lead(bench.start_joining())
    bench.member.metadata({"t": 1}, bench.now_ms)
    sync = bench.sent(SyncGroupRequest)
    bench.member.metadata({"t": 2}, bench.now_ms)
    assert bench.effects() == []
    bench.answer(sync, SyncGroupResponse(assignment=assignment(P0)))
    assert bench.sent(JoinGroupRequest).member_id == "m"


def test_a_leader_that_hears_of_other_partition_counts_without_a_coordinator_rejoins_when_it_is_found() -> None:
    bench = MemberHarness(commit_interval_ms=0)
    bench.lead(bench.start_joining())
    bench.member.metadata({"t": 1}, bench.now_ms)
    bench.assign(bench.sent(SyncGroupRequest), P0)
    bench.member.connection_lost(bench.now_ms)
    bench.member.metadata({"t": 2}, bench.now_ms)
    assert bench.effects() == []
    bench.discovered()
    assert bench.sent(JoinGroupRequest).member_id == "m"


def test_a_follower_does_not_look_at_partition_counts() -> None:
    bench = MemberHarness().enter(P0)
    bench.member.metadata({"t": 2}, bench.now_ms)
    assert bench.effects() == []


def test_a_round_that_never_ends_loses_the_coordinator() -> None:
    """A JoinGroup may take the rebalance timeout and five seconds more, as in the Java client."""
    bench = MemberHarness()
    bench.start_joining()
    bench.advance(REBALANCE_MS + 5_000 - 1)
    assert bench.state() is MemberState.JOINING
    bench.advance(1)
    assert bench.state() is MemberState.REDISCOVERING


@pytest.mark.parametrize(("error", "member_id"), [(22, "m"), (25, "")])
def test_a_generation_lost_while_syncing_waits_for_the_answer_to_the_sync(error: int, member_id: str) -> None:
    """One JoinGroup or SyncGroup at a time: the next goes out when this one is answered, whatever it says."""
    bench = MemberHarness()
    sync = bench.follow(bench.start_joining())
    bench.advance(HEARTBEAT_MS)
    bench.refuse(bench.sent(HeartbeatRequest), error)
    bench.advance(2 * SESSION_MS)
    assert (bench.effects(), bench.state()) == ([], MemberState.SYNCING)
    bench.answer(sync, SyncGroupResponse(assignment=b""))
    assert bench.sent(JoinGroupRequest).member_id == member_id


def test_a_generation_lost_while_its_leader_waits_for_partition_counts_is_left_at_once() -> None:
    bench = MemberHarness()
    bench.lead(bench.start_joining())
    bench.advance(HEARTBEAT_MS)
    bench.refuse(bench.sent(HeartbeatRequest), 22)
    assert bench.sent(JoinGroupRequest).member_id == "m"
    bench.member.metadata({"t": 1}, bench.now_ms)
    assert bench.effects() == []


def test_sticky_tells_what_it_held_last() -> None:
    """Also after its partitions were lost: its generation says what that is worth."""
    bench = MemberHarness(assignor="sticky", commit_interval_ms=0)
    assert decode_subscription(bench.start_joining().protocols[0].metadata, "sticky", "", None).owned_partitions == ()
    bench = MemberHarness(assignor="sticky", commit_interval_ms=0).enter(P0, P1)
    bench.advance(HEARTBEAT_MS)
    bench.refuse(bench.sent(HeartbeatRequest), 25)
    told = decode_subscription(bench.sent(JoinGroupRequest).protocols[0].metadata, "sticky", "", None)
    assert (told.owned_partitions, told.generation_id) == ((P0, P1), 1)


# Cooperative rebalances (KIP-429)


def test_a_cooperative_member_keeps_its_partitions_through_a_rebalance() -> None:
    bench, commit = rebalancing(assignor="cooperative-sticky")
    bench.answer(commit, committed(commit))
    effects = bench.effects()
    assert [type(effect) for effect in effects] == [Send]
    assert bench.member.assigned == (P0, P1)
    join = effects[0]
    assert isinstance(join, Send)
    assert isinstance(join.request, JoinGroupRequest)
    told = decode_subscription(join.request.protocols[0].metadata, "cooperative-sticky", "m", None)
    assert (told.owned_partitions, told.generation_id) == ((P0, P1), 1)


def test_a_cooperative_member_gives_up_only_what_it_lost_and_then_joins_again() -> None:
    bench, commit = rebalancing(assignor="cooperative-sticky")
    bench.answer(commit, committed(commit))
    sync = bench.follow(bench.sent(JoinGroupRequest), generation_id=2)
    fetch = bench.assign(sync, P1, P2)
    assert fetch is not None
    assert partitions_in(fetch) == [P2]
    assert (bench.member.assigned, bench.member.positions) == ((P1, P2), {P1: 10})
    assert bench.state() is MemberState.STOPPED  # it commits what it kept, then joins


def test_what_a_cooperative_member_gives_up_and_gets_is_told_apart() -> None:
    bench, commit = rebalancing(assignor="cooperative-sticky")
    bench.answer(commit, committed(commit))
    sync = bench.follow(bench.sent(JoinGroupRequest), generation_id=2)
    bench.answer(sync, SyncGroupResponse(assignment=assignment(P1, P2)))
    news = [effect for effect in bench.effects() if isinstance(effect, Assigned | Revoked)]
    assert news == [Revoked((P0,), False, bench.now_ms), Assigned((P2,), 2, bench.now_ms)]


def test_a_cooperative_member_that_owes_a_round_does_not_forget_it_when_the_coordinator_is_lost() -> None:
    bench, commit = rebalancing(assignor="cooperative-sticky")
    bench.answer(commit, committed(commit))
    bench.assign(bench.follow(bench.sent(JoinGroupRequest), generation_id=2), P1)
    bench.member.connection_lost(bench.now_ms)
    bench.advance(100)
    bench.effects()
    bench.discovered()
    last = bench.sent(OffsetCommitRequest)
    bench.answer(last, committed(last))
    assert bench.sent(JoinGroupRequest).member_id == "m"


def test_a_cooperative_member_that_lost_its_generation_loses_its_partitions() -> None:
    bench = MemberHarness(assignor="cooperative-sticky").enter(P0)
    bench.advance(HEARTBEAT_MS)
    bench.refuse(bench.sent(HeartbeatRequest), 22)
    revoked, send = bench.effects()
    assert revoked == Revoked((P0,), True, bench.now_ms)
    assert isinstance(send, Send)


def assignment(*owned: TopicPartition) -> bytes:
    return encode_assignment(owned)


# Loss of the coordinator


def test_a_lost_connection_leaves_the_partitions_and_resumes_in_the_same_generation() -> None:
    bench = MemberHarness().enter(P0)
    bench.member.connection_lost(bench.now_ms)
    assert bench.state() is MemberState.REDISCOVERING
    bench.member.positions[P0] = 50
    bench.advance(100)
    bench.only(Discover)
    bench.discovered()
    heartbeat, commit = bench.effects()
    assert isinstance(heartbeat, Send)
    assert heartbeat.request == HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
    assert isinstance(commit, Send)
    assert isinstance(commit.request, OffsetCommitRequest)
    assert positions_in(commit.request) == {P0: 50}
    assert {heartbeat.scheduled_ms, commit.scheduled_ms} == {bench.now_ms}


def test_back_offs_grow_until_a_request_succeeds() -> None:
    bench = MemberHarness(commit_interval_ms=0).enter(P0)
    waits = []
    for _ in range(3):  # each new coordinator refuses the heartbeat
        bench.member.connection_lost(bench.now_ms)
        due_ms = bench.member.next_deadline()
        assert due_ms is not None
        waits.append(due_ms - bench.now_ms)
        bench.advance(waits[-1])
        bench.effects()
        bench.discovered()
    bench.answer(bench.sent(HeartbeatRequest), HeartbeatResponse())
    bench.member.connection_lost(bench.now_ms)
    bench.advance(100)
    bench.only(Discover)
    assert waits == [100, 200, 400]


def test_answers_from_before_the_loss_are_ignored() -> None:
    bench = MemberHarness(commit_interval_ms=0).enter(P0)
    bench.advance(HEARTBEAT_MS)
    heartbeat = bench.sent(HeartbeatRequest)
    bench.member.connection_lost(bench.now_ms)
    bench.refuse(heartbeat, 82)
    assert (bench.effects(), bench.state()) == ([], MemberState.REDISCOVERING)


def test_a_leader_that_loses_the_coordinator_forgets_what_it_was_to_assign() -> None:
    bench = MemberHarness()
    bench.lead(bench.start_joining())
    bench.member.connection_lost(bench.now_ms)
    bench.member.metadata({"t": 1}, bench.now_ms)
    assert bench.effects() == []
    bench.advance(100)
    bench.only(Discover)
    bench.discovered()
    assert bench.sent(JoinGroupRequest).member_id == "m"


def test_a_connection_that_is_lost_while_the_coordinator_is_looked_for_changes_nothing() -> None:
    bench = MemberHarness()
    bench.member.start(bench.now_ms)
    bench.only(Discover)
    bench.member.connection_lost(bench.now_ms)
    assert (bench.effects(), bench.state()) == ([], MemberState.DISCOVERING)


def test_news_of_the_coordinator_that_nobody_asked_for_is_ignored() -> None:
    bench = MemberHarness().enter(P0)
    bench.member.discovered(bench.now_ms)
    bench.member.discovery_failed(ErrorCode.GROUP_AUTHORIZATION_FAILED, bench.now_ms)
    assert bench.effects() == []
    assert bench.member.has_coordinator
