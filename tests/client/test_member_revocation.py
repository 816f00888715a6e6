"""A group member whose application handles revocations (`awaits_revocation`), changes of subscription, and `expire`."""

from fakebroker.client.member.effects import OffsetUnknown, Revoked, Revoking, Send
from fakebroker.client.member.states import MemberState
from fakebroker.errors import ErrorCode
from fakebroker.protocol.consumer_protocol import decode_subscription
from fakebroker.protocol.messages.heartbeat import HeartbeatRequest
from fakebroker.protocol.messages.join_group import JoinGroupRequest
from fakebroker.protocol.messages.leave_group import LeaveGroupRequest
from fakebroker.protocol.messages.offset_commit import OffsetCommitRequest
from tests.support.client.member_harness import HEARTBEAT_MS, REBALANCE_MS, MemberHarness
from tests.support.group_responses import commit_response, committed_offsets, offset_fetch_response

P0, P1, P2 = ("t", 0), ("t", 1), ("t", 2)
AWAITS_REVOCATION = {"awaits_revocation": True, "starts_at_zero": False}


def rebalancing(**settings: object) -> MemberHarness:
    """Return a member with two partitions that has to rejoin."""
    harness = MemberHarness(**(AWAITS_REVOCATION | settings)).enter(P0, P1)
    harness.respond_error(harness.sent_heartbeat(), ErrorCode.REBALANCE_IN_PROGRESS)
    return harness


def test_an_eager_member_waits_until_the_application_has_given_up_all_partitions() -> None:
    harness = rebalancing(commit_interval_ms=0)
    assert harness.only(Revoking).partitions == (P0, P1)
    assert (harness.state(), harness.member.assigned, harness.member.revoking) == (
        MemberState.STOPPED,
        (P0, P1),
        (P0, P1),
    )
    harness.advance(HEARTBEAT_MS)
    assert isinstance(harness.only(Send).request, HeartbeatRequest)
    harness.member.revoked(harness.now_ms)
    revoked, join = harness.effects()
    assert revoked == Revoked((P0, P1), False, harness.now_ms)
    assert isinstance(join, Send)
    assert isinstance(join.request, JoinGroupRequest)


def test_commits_of_the_application_are_sent_and_awaited_before_joining() -> None:
    harness = rebalancing(commit_interval_ms=0)
    harness.effects()
    harness.member.commit(harness.now_ms)
    commit = harness.sent(OffsetCommitRequest)
    assert commit.generation_id_or_member_epoch == 1
    harness.member.revoked(harness.now_ms)
    assert harness.effects() == []
    harness.respond(commit, commit_response(commit))
    assert harness.sent(JoinGroupRequest)


def test_the_response_to_a_commit_does_not_end_the_wait_for_the_application() -> None:
    harness = rebalancing(commit_interval_ms=0)
    harness.member.commit(harness.now_ms)
    commit = harness.sent(OffsetCommitRequest)
    harness.respond(commit, commit_response(commit))
    assert (harness.effects(), harness.state()) == ([], MemberState.STOPPED)


def test_the_last_commit_follows_the_revocation() -> None:
    harness = rebalancing()
    harness.only(Revoking)
    harness.member.positions[P0] = 30
    harness.member.revoked(harness.now_ms)
    assert committed_offsets(harness.sent(OffsetCommitRequest)) == {P0: 30, P1: 10}


def test_the_application_is_awaited_up_to_the_rebalance_timeout() -> None:
    harness = rebalancing(commit_interval_ms=0, session_timeout_ms=2 * REBALANCE_MS)
    harness.advance(REBALANCE_MS)
    assert harness.state() is MemberState.JOINING
    harness.effects()
    harness.member.revoked(harness.now_ms)
    assert harness.effects() == []


def test_the_application_is_not_awaited_after_the_generation_is_lost() -> None:
    harness = rebalancing(commit_interval_ms=0)
    harness.only(Revoking)
    harness.respond_error(harness.sent_heartbeat(), ErrorCode.UNKNOWN_MEMBER_ID)
    assert harness.effects()[0] == Revoked((P0, P1), True, harness.now_ms)
    assert harness.member.revoking == ()


def test_the_application_is_not_asked_again_after_a_change_of_coordinator() -> None:
    harness = rebalancing(commit_interval_ms=0)
    harness.member.connection_lost(harness.now_ms)
    harness.member.revoked(harness.now_ms)
    harness.effects()
    harness.discovered()
    assert [type(effect) for effect in harness.effects()] == [Send, Revoked, Send]
    assert harness.state() is MemberState.JOINING


def test_a_cooperative_member_asks_only_for_partitions_that_the_new_generation_revokes() -> None:
    harness = rebalancing(assignor="cooperative-sticky", commit_interval_ms=0)
    sync = harness.follow(harness.sent(JoinGroupRequest), generation_id=2)
    harness.assign(sync, P1, P2)
    assert set(harness.member.assigned) == {P0, P1, P2}
    assert (harness.member.revoking, harness.state()) == ((P0,), MemberState.STOPPED)
    harness.member.revoked(harness.now_ms)
    revoked, join = harness.effects()
    assert revoked == Revoked((P0,), False, harness.now_ms)
    assert isinstance(join, Send)
    assert isinstance(join.request, JoinGroupRequest)
    subscription = decode_subscription(join.request.protocols[0].metadata, "cooperative-sticky", "m", None)
    assert (subscription.owned_partitions, subscription.generation_id) == ((P1, P2), 2)


def test_partitions_without_a_committed_offset_are_reported() -> None:
    harness = MemberHarness(**AWAITS_REVOCATION)
    fetch = harness.assign(harness.follow(harness.start_joining()), P0, P1)
    assert fetch is not None
    harness.respond(fetch, offset_fetch_response({P0: 7, P1: -1}))
    assert harness.only(OffsetUnknown).partitions == (P1,)
    assert harness.member.positions == {P0: 7}


# Changes of subscription


def test_a_new_subscription_starts_a_rebalance() -> None:
    harness = MemberHarness(commit_interval_ms=0).enter(P0)
    harness.member.subscribe(["t", "u"], harness.now_ms)
    join = harness.sent(JoinGroupRequest)
    assert decode_subscription(join.protocols[0].metadata, "range", "m", None).topics == ("t", "u")


def test_a_new_subscription_during_a_rebalance_starts_another_one_after_it() -> None:
    harness = MemberHarness(commit_interval_ms=0)
    sync = harness.follow(harness.start_joining())
    harness.member.subscribe(["u"], harness.now_ms)
    assert harness.effects() == []
    harness.assign(sync)
    assert harness.state() is MemberState.JOINING


def test_a_cooperative_member_revokes_partitions_of_topics_no_longer_subscribed_to() -> None:
    harness = MemberHarness(assignor="cooperative-sticky", commit_interval_ms=0, **AWAITS_REVOCATION).enter(
        P0, ("u", 0)
    )
    harness.member.subscribe(["u"], harness.now_ms)
    assert harness.only(Revoking).partitions == (P0,)
    harness.member.revoked(harness.now_ms)
    assert harness.member.assigned == (("u", 0),)


# Applications that do not poll


def test_a_member_that_expires_loses_its_partitions_without_a_commit() -> None:
    """A static member does not send LeaveGroup when it expires."""
    for instance_id, requests in ((None, [LeaveGroupRequest]), ("i", [])):
        harness = MemberHarness(instance_id=instance_id).enter(P0)
        harness.member.expire(harness.now_ms)
        revoked, *sends = harness.effects()
        assert revoked == Revoked((P0,), True, harness.now_ms)
        assert [type(effect.request) for effect in sends if isinstance(effect, Send)] == requests
        assert harness.state() is MemberState.DOWN
