"""A group member during rebalances and after the loss of its coordinator. For errors see test_member_errors.py."""

from fakebroker.client.member.effects import Assigned, Discover, Revoked, Send
from fakebroker.client.member.states import MemberState
from fakebroker.errors import ErrorCode
from fakebroker.protocol.consumer_protocol import decode_subscription, encode_assignment
from fakebroker.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from fakebroker.protocol.messages.join_group import JoinGroupRequest
from fakebroker.protocol.messages.offset_commit import OffsetCommitRequest
from fakebroker.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from fakebroker.topic_partition import TopicPartition
from tests.support.client.member_harness import REBALANCE_MS, SESSION_MS, MemberHarness
from tests.support.group_responses import commit_response, committed_offsets, requested_partitions

P0, P1, P2 = ("t", 0), ("t", 1), ("t", 2)


# Rebalances


def rebalancing(**settings: object) -> tuple[MemberHarness, OffsetCommitRequest]:
    """Return a member that has to rejoin, and its last commit."""
    harness = MemberHarness(**settings).enter(P0, P1)
    harness.respond_error(harness.sent_heartbeat(), ErrorCode.REBALANCE_IN_PROGRESS)
    assert harness.state() is MemberState.STOPPED
    return harness, harness.sent(OffsetCommitRequest)


def test_a_member_keeps_its_partitions_until_its_last_commit_is_answered() -> None:
    harness, commit = rebalancing()
    assert (harness.member.assigned, committed_offsets(commit)) == ((P0, P1), {P0: 10, P1: 10})
    harness.respond(commit, commit_response(commit))
    assert harness.effects()[0] == Revoked((P0, P1), False, harness.now_ms)
    assert harness.state() is MemberState.JOINING
    assert (harness.member.assigned, harness.member.positions) == ((), {})


def test_earlier_commits_in_flight_are_awaited_before_joining() -> None:
    harness = MemberHarness().enter(P0)
    harness.member.commit(harness.now_ms)
    first = harness.sent(OffsetCommitRequest)
    harness.respond_error(harness.sent_heartbeat(), ErrorCode.REBALANCE_IN_PROGRESS)
    last = harness.sent(OffsetCommitRequest)
    harness.respond(first, commit_response(first))
    assert harness.state() is MemberState.STOPPED
    harness.respond(last, commit_response(last))
    assert harness.state() is MemberState.JOINING


def test_the_last_commit_is_retried() -> None:
    harness, commit = rebalancing()
    harness.respond_error(commit, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    harness.advance(100)
    again = harness.sent(OffsetCommitRequest)
    assert again == commit
    harness.respond(again, commit_response(again))
    assert harness.sent(JoinGroupRequest)


def test_a_member_joins_after_the_rebalance_timeout_without_a_response_to_its_last_commit() -> None:
    harness, _ = rebalancing(session_timeout_ms=2 * REBALANCE_MS)
    harness.advance(REBALANCE_MS - 1)
    assert harness.state() is MemberState.STOPPED
    harness.advance(1)
    assert harness.state() is MemberState.JOINING


def test_a_member_loses_its_partitions_and_joins_if_its_last_commit_is_of_an_ended_generation() -> None:
    for error, member_id in ((ErrorCode.ILLEGAL_GENERATION, "m"), (ErrorCode.UNKNOWN_MEMBER_ID, "")):
        harness, commit = rebalancing()
        harness.respond_error(commit, error)
        effects = harness.effects()
        assert Revoked((P0, P1), True, harness.now_ms) in effects
        sent = [effect.request for effect in effects if isinstance(effect, Send)]
        assert [type(request) for request in sent] == [JoinGroupRequest]
        assert harness.member.member_id == member_id


def test_a_leader_rejoins_when_partition_counts_change() -> None:
    harness = MemberHarness(commit_interval_ms=0)
    harness.lead(harness.start_joining())
    harness.member.metadata({"t": 1}, harness.now_ms)
    harness.assign(harness.sent(SyncGroupRequest), P0)
    harness.member.metadata({"t": 1, "u": 5}, harness.now_ms)
    harness.member.metadata({}, harness.now_ms)
    assert harness.effects() == []
    harness.member.metadata({"t": 2}, harness.now_ms)
    assert harness.sent(JoinGroupRequest).member_id == "m"


def test_a_leader_rejoins_after_the_rebalance_in_which_partition_counts_change() -> None:
    harness = MemberHarness(commit_interval_ms=0)
    harness.lead(harness.start_joining())
    harness.member.metadata({"t": 1}, harness.now_ms)
    sync = harness.sent(SyncGroupRequest)
    harness.member.metadata({"t": 2}, harness.now_ms)
    assert harness.effects() == []
    harness.respond(sync, SyncGroupResponse(assignment=assignment(P0)))
    assert harness.sent(JoinGroupRequest).member_id == "m"


def test_a_leader_rejoins_at_the_new_coordinator_if_partition_counts_changed_during_the_look_up() -> None:
    harness = MemberHarness(commit_interval_ms=0)
    harness.lead(harness.start_joining())
    harness.member.metadata({"t": 1}, harness.now_ms)
    harness.assign(harness.sent(SyncGroupRequest), P0)
    harness.member.connection_lost(harness.now_ms)
    harness.member.metadata({"t": 2}, harness.now_ms)
    assert harness.effects() == []
    harness.discovered()
    assert harness.sent(JoinGroupRequest).member_id == "m"


def test_a_follower_ignores_partition_counts() -> None:
    harness = MemberHarness().enter(P0)
    harness.member.metadata({"t": 2}, harness.now_ms)
    assert harness.effects() == []


def test_the_coordinator_is_looked_up_if_join_group_takes_too_long() -> None:
    """The limit is the rebalance timeout plus five seconds, as in Kafka's consumer."""
    harness = MemberHarness()
    harness.start_joining()
    harness.advance(REBALANCE_MS + 5_000 - 1)
    assert harness.state() is MemberState.JOINING
    harness.advance(1)
    assert harness.state() is MemberState.REDISCOVERING


def test_a_member_that_loses_its_generation_while_syncing_joins_after_the_response_to_sync_group() -> None:
    """Only one JoinGroup or SyncGroup is in flight at a time; the content of the response does not matter."""
    for error, member_id in ((ErrorCode.ILLEGAL_GENERATION, "m"), (ErrorCode.UNKNOWN_MEMBER_ID, "")):
        harness = MemberHarness()
        sync = harness.follow(harness.start_joining())
        harness.respond_error(harness.sent_heartbeat(), error)
        harness.advance(2 * SESSION_MS)
        assert (harness.effects(), harness.state()) == ([], MemberState.SYNCING)
        harness.respond(sync, SyncGroupResponse(assignment=b""))
        assert harness.sent(JoinGroupRequest).member_id == member_id


def test_a_leader_that_loses_its_generation_while_it_waits_for_partition_counts_joins_at_once() -> None:
    harness = MemberHarness()
    harness.lead(harness.start_joining())
    harness.respond_error(harness.sent_heartbeat(), ErrorCode.ILLEGAL_GENERATION)
    assert harness.sent(JoinGroupRequest).member_id == "m"
    harness.member.metadata({"t": 1}, harness.now_ms)
    assert harness.effects() == []


def test_the_sticky_subscription_contains_the_last_assignment() -> None:
    """Lost partitions are included, too: the assignor compares generations."""
    harness = MemberHarness(assignor="sticky", commit_interval_ms=0)
    assert decode_subscription(harness.start_joining().protocols[0].metadata, "sticky", "", None).owned_partitions == ()
    harness = MemberHarness(assignor="sticky", commit_interval_ms=0).enter(P0, P1)
    harness.respond_error(harness.sent_heartbeat(), ErrorCode.UNKNOWN_MEMBER_ID)
    subscription = decode_subscription(harness.sent(JoinGroupRequest).protocols[0].metadata, "sticky", "", None)
    assert (subscription.owned_partitions, subscription.generation_id) == ((P0, P1), 1)


# Cooperative rebalances (KIP-429)


def test_a_cooperative_member_keeps_its_partitions_through_a_rebalance() -> None:
    harness, commit = rebalancing(assignor="cooperative-sticky")
    harness.respond(commit, commit_response(commit))
    effects = harness.effects()
    assert [type(effect) for effect in effects] == [Send]
    assert harness.member.assigned == (P0, P1)
    join = effects[0]
    assert isinstance(join, Send)
    assert isinstance(join.request, JoinGroupRequest)
    subscription = decode_subscription(join.request.protocols[0].metadata, "cooperative-sticky", "m", None)
    assert (subscription.owned_partitions, subscription.generation_id) == ((P0, P1), 1)


def test_a_cooperative_member_revokes_only_partitions_assigned_to_others_and_rejoins() -> None:
    harness, commit = rebalancing(assignor="cooperative-sticky")
    harness.respond(commit, commit_response(commit))
    sync = harness.follow(harness.sent(JoinGroupRequest), generation_id=2)
    fetch = harness.assign(sync, P1, P2)
    assert fetch is not None
    assert requested_partitions(fetch) == [P2]
    assert (harness.member.assigned, harness.member.positions) == ((P1, P2), {P1: 10})
    assert harness.state() is MemberState.STOPPED  # The last commit before the member rejoins.


def test_a_cooperative_member_reports_revoked_and_added_partitions() -> None:
    harness, commit = rebalancing(assignor="cooperative-sticky")
    harness.respond(commit, commit_response(commit))
    sync = harness.follow(harness.sent(JoinGroupRequest), generation_id=2)
    harness.respond(sync, SyncGroupResponse(assignment=assignment(P1, P2)))
    changes = [effect for effect in harness.effects() if isinstance(effect, Assigned | Revoked)]
    assert changes == [Revoked((P0,), False, harness.now_ms), Assigned((P2,), 2, harness.now_ms)]


def test_a_cooperative_member_that_has_to_rejoin_does_so_after_a_change_of_coordinator() -> None:
    harness, commit = rebalancing(assignor="cooperative-sticky")
    harness.respond(commit, commit_response(commit))
    harness.assign(harness.follow(harness.sent(JoinGroupRequest), generation_id=2), P1)
    harness.member.connection_lost(harness.now_ms)
    harness.advance(100)
    harness.effects()
    harness.discovered()
    last = harness.sent(OffsetCommitRequest)
    harness.respond(last, commit_response(last))
    assert harness.sent(JoinGroupRequest).member_id == "m"


def test_a_cooperative_member_loses_its_partitions_with_its_generation() -> None:
    harness = MemberHarness(assignor="cooperative-sticky").enter(P0)
    harness.respond_error(harness.sent_heartbeat(), ErrorCode.ILLEGAL_GENERATION)
    revoked, send = harness.effects()
    assert revoked == Revoked((P0,), True, harness.now_ms)
    assert isinstance(send, Send)


def assignment(*owned: TopicPartition) -> bytes:
    return encode_assignment(owned)


# Loss of the coordinator


def test_a_member_continues_in_its_generation_after_a_lost_connection() -> None:
    harness = MemberHarness().enter(P0)
    harness.member.connection_lost(harness.now_ms)
    assert harness.state() is MemberState.REDISCOVERING
    harness.member.positions[P0] = 50
    harness.advance(100)
    harness.only(Discover)
    harness.discovered()
    heartbeat, commit = harness.effects()
    assert isinstance(heartbeat, Send)
    assert heartbeat.request == HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
    assert isinstance(commit, Send)
    assert isinstance(commit.request, OffsetCommitRequest)
    assert committed_offsets(commit.request) == {P0: 50}
    assert {heartbeat.scheduled_ms, commit.scheduled_ms} == {harness.now_ms}


def test_back_offs_double_until_a_request_succeeds() -> None:
    harness = MemberHarness(commit_interval_ms=0).enter(P0)
    delays_ms = []
    for _ in range(3):
        harness.member.connection_lost(harness.now_ms)
        due_ms = harness.member.next_deadline()
        assert due_ms is not None
        delays_ms.append(due_ms - harness.now_ms)
        harness.advance(delays_ms[-1])
        harness.effects()
        harness.discovered()
    harness.respond(harness.sent(HeartbeatRequest), HeartbeatResponse())
    harness.member.connection_lost(harness.now_ms)
    harness.advance(100)
    harness.only(Discover)
    assert delays_ms == [100, 200, 400]


def test_responses_to_requests_sent_before_the_loss_are_ignored() -> None:
    harness = MemberHarness(commit_interval_ms=0).enter(P0)
    heartbeat = harness.sent_heartbeat()
    harness.member.connection_lost(harness.now_ms)
    harness.respond_error(heartbeat, ErrorCode.FENCED_INSTANCE_ID)
    assert (harness.effects(), harness.state()) == ([], MemberState.REDISCOVERING)


def test_a_leader_that_loses_the_coordinator_does_not_assign() -> None:
    harness = MemberHarness()
    harness.lead(harness.start_joining())
    harness.member.connection_lost(harness.now_ms)
    harness.member.metadata({"t": 1}, harness.now_ms)
    assert harness.effects() == []
    harness.advance(100)
    harness.only(Discover)
    harness.discovered()
    assert harness.sent(JoinGroupRequest).member_id == "m"


def test_a_lost_connection_has_no_effect_during_a_look_up() -> None:
    harness = MemberHarness()
    harness.member.start(harness.now_ms)
    harness.only(Discover)
    harness.member.connection_lost(harness.now_ms)
    assert (harness.effects(), harness.state()) == ([], MemberState.DISCOVERING)


def test_an_unexpected_result_of_a_look_up_is_ignored() -> None:
    harness = MemberHarness().enter(P0)
    harness.member.discovered(harness.now_ms)
    harness.member.discovery_failed(ErrorCode.GROUP_AUTHORIZATION_FAILED, harness.now_ms)
    assert harness.effects() == []
    assert harness.member.has_coordinator
