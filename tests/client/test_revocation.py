"""A member whose driver has an application to ask: what goes waits for it; and new subscriptions of a live member."""

import pytest

from fakebroker.client.member.effects import OffsetUnknown, Revoked, Revoking, Send
from fakebroker.client.member.states import MemberState
from fakebroker.protocol.consumer_protocol import decode_subscription
from fakebroker.protocol.messages.heartbeat import HeartbeatRequest
from fakebroker.protocol.messages.join_group import JoinGroupRequest
from fakebroker.protocol.messages.leave_group import LeaveGroupRequest
from fakebroker.protocol.messages.offset_commit import OffsetCommitRequest
from tests.support.client.member_harness import (
    HEARTBEAT_MS,
    REBALANCE_MS,
    MemberHarness,
    committed,
    fetched,
    positions_in,
)

P0, P1, P2 = ("t", 0), ("t", 1), ("t", 2)
ASKS = {"awaits_revocation": True, "starts_at_zero": False}


def held(**settings: object) -> MemberHarness:
    """A member that was told of a rebalance and asks its application."""
    bench = MemberHarness(**(ASKS | settings)).enter(P0, P1)
    bench.advance(HEARTBEAT_MS)
    bench.refuse(bench.sent(HeartbeatRequest), 27)
    return bench


def test_an_eager_member_asks_for_all_that_it_has_and_waits() -> None:
    bench = held(commit_interval_ms=0)
    assert bench.only(Revoking).partitions == (P0, P1)
    assert (bench.state(), bench.member.assigned, bench.member.revoking) == (MemberState.STOPPED, (P0, P1), (P0, P1))
    bench.advance(HEARTBEAT_MS)
    assert isinstance(bench.only(Send).request, HeartbeatRequest)
    bench.member.revoked(bench.now_ms)
    revoked, join = bench.effects()
    assert revoked == Revoked((P0, P1), False, bench.now_ms)
    assert isinstance(join, Send)
    assert isinstance(join.request, JoinGroupRequest)


def test_commits_are_sent_meanwhile_and_waited_for() -> None:
    bench = held(commit_interval_ms=0)
    bench.effects()
    bench.member.commit(bench.now_ms)
    commit = bench.sent(OffsetCommitRequest)
    assert commit.generation_id_or_member_epoch == 1
    bench.member.revoked(bench.now_ms)
    assert bench.effects() == []
    bench.answer(commit, committed(commit))
    assert bench.sent(JoinGroupRequest)


def test_an_answered_commit_alone_does_not_let_it_go_on() -> None:
    bench = held(commit_interval_ms=0)
    bench.member.commit(bench.now_ms)
    commit = bench.sent(OffsetCommitRequest)
    bench.answer(commit, committed(commit))
    assert (bench.effects(), bench.state()) == ([], MemberState.STOPPED)


def test_what_was_consumed_is_committed_after_the_application_was_asked() -> None:
    bench = held()
    bench.only(Revoking)
    bench.member.positions[P0] = 30
    bench.member.revoked(bench.now_ms)
    assert positions_in(bench.sent(OffsetCommitRequest)) == {P0: 30, P1: 10}


def test_an_application_that_does_not_answer_is_waited_for_no_longer_than_the_rebalance_timeout() -> None:
    bench = held(commit_interval_ms=0, session_timeout_ms=2 * REBALANCE_MS)
    bench.advance(REBALANCE_MS)
    assert bench.state() is MemberState.JOINING
    bench.effects()
    bench.member.revoked(bench.now_ms)
    assert bench.effects() == []


def test_a_generation_that_is_lost_meanwhile_is_not_waited_for() -> None:
    bench = held(commit_interval_ms=0)
    bench.only(Revoking)
    bench.advance(HEARTBEAT_MS)
    bench.refuse(bench.sent(HeartbeatRequest), 25)
    assert bench.effects()[0] == Revoked((P0, P1), True, bench.now_ms)
    assert bench.member.revoking == ()


def test_a_coordinator_that_is_lost_meanwhile_does_not_make_it_ask_again() -> None:
    bench = held(commit_interval_ms=0)
    bench.member.connection_lost(bench.now_ms)
    bench.member.revoked(bench.now_ms)
    bench.effects()
    bench.discovered()
    assert [type(effect) for effect in bench.effects()] == [Send, Revoked, Send]
    assert bench.state() is MemberState.JOINING


def test_a_cooperative_member_asks_for_what_the_new_generation_takes_from_it() -> None:
    bench = held(assignor="cooperative-sticky", commit_interval_ms=0)
    sync = bench.follow(bench.sent(JoinGroupRequest), generation_id=2)
    bench.assign(sync, P1, P2)
    assert set(bench.member.assigned) == {P0, P1, P2}
    assert (bench.member.revoking, bench.state()) == ((P0,), MemberState.STOPPED)
    bench.member.revoked(bench.now_ms)
    revoked, join = bench.effects()
    assert revoked == Revoked((P0,), False, bench.now_ms)
    assert isinstance(join, Send)
    assert isinstance(join.request, JoinGroupRequest)
    told = decode_subscription(join.request.protocols[0].metadata, "cooperative-sticky", "m", None)
    assert (told.owned_partitions, told.generation_id) == ((P1, P2), 2)


def test_partitions_without_a_committed_offset_are_told_of() -> None:
    bench = MemberHarness(**ASKS)
    fetch = bench.assign(bench.follow(bench.start_joining()), P0, P1)
    assert fetch is not None
    bench.answer(fetch, fetched({P0: 7, P1: -1}))
    assert bench.only(OffsetUnknown).partitions == (P1,)
    assert bench.member.positions == {P0: 7}


# Subscriptions of a live member


def test_new_topics_are_joined_with_at_once() -> None:
    bench = MemberHarness(commit_interval_ms=0).enter(P0)
    bench.member.subscribe(["t", "u"], bench.now_ms)
    join = bench.sent(JoinGroupRequest)
    assert decode_subscription(join.protocols[0].metadata, "range", "m", None).topics == ("t", "u")


def test_new_topics_in_the_middle_of_a_round_are_joined_with_after_it() -> None:
    bench = MemberHarness(commit_interval_ms=0)
    sync = bench.follow(bench.start_joining())
    bench.member.subscribe(["u"], bench.now_ms)
    assert bench.effects() == []
    bench.assign(sync)
    assert bench.state() is MemberState.JOINING


def test_a_cooperative_member_asks_for_what_it_has_of_topics_that_it_leaves() -> None:
    bench = MemberHarness(assignor="cooperative-sticky", commit_interval_ms=0, **ASKS).enter(P0, ("u", 0))
    bench.member.subscribe(["u"], bench.now_ms)
    assert bench.only(Revoking).partitions == (P0,)
    bench.member.revoked(bench.now_ms)
    assert bench.member.assigned == (("u", 0),)


# Applications that do not poll


@pytest.mark.parametrize(("instance_id", "leaves"), [(None, 1), ("i", 0)])
def test_a_member_that_expires_loses_its_partitions_and_commits_nothing(instance_id: str | None, leaves: int) -> None:
    bench = MemberHarness(instance_id=instance_id).enter(P0)
    bench.member.expire(bench.now_ms)
    revoked, *sends = bench.effects()
    assert revoked == Revoked((P0,), True, bench.now_ms)
    assert [type(e.request) for e in sends if isinstance(e, Send)] == [LeaveGroupRequest] * leaves
    assert bench.state() is MemberState.DOWN
