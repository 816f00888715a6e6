"""A member of a consumer group (KIP-848): joining, reconciling, committing and leaving."""

import pytest

from fakebroker.client.member.consumer.consumer_member import ConsumerMember
from fakebroker.client.member.consumer.consumer_member_settings import ConsumerMemberSettings
from fakebroker.client.member.consumer.states import TRANSITIONS, ConsumerMemberState as State
from fakebroker.client.member.effects import (
    Assigned,
    CommitRejected,
    Discover,
    FetchMetadata,
    OffsetUnknown,
    Revoked,
    Revoking,
    Send,
)
from fakebroker.errors import ConfigError, ErrorCode
from fakebroker.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from fakebroker.protocol.messages.offset_commit import OffsetCommitRequest
from fakebroker.protocol.messages.offset_fetch import OffsetFetchRequest
from tests.support.client.consumer_member_harness import (
    COMMIT_MS,
    INTERVAL_MS,
    REBALANCE_MS,
    RETRY_MS,
    ConsumerMemberHarness,
    assignment,
    reported,
)
from tests.support.group_responses import commit_response, committed_offsets, offset_fetch_response

P0, P1, P2, U0 = ("t", 0), ("t", 1), ("t", 2), ("u", 0)


def reconciling(*partitions: tuple[str, int], **settings: object) -> tuple[ConsumerMemberHarness, OffsetCommitRequest]:
    """Return a member with t-0 and t-1 whose assignment becomes these partitions, and its last commit."""
    harness = ConsumerMemberHarness(**settings).enter(P0, P1)
    harness.accept(harness.beat(), 1, assignment(*partitions))
    return harness, harness.sent(OffsetCommitRequest)


def owned(harness: ConsumerMemberHarness) -> list[tuple[str, int]]:
    return list(harness.member.assigned)


# Joining


def test_a_member_joins_with_everything_and_acknowledges_its_assignment_at_once() -> None:
    harness = ConsumerMemberHarness(rack_id="r", server_assignor="range", pattern="x.*")
    join = harness.start_joining()
    assert join == ConsumerGroupHeartbeatRequest(
        group_id="g",
        member_id="m-1",
        member_epoch=0,
        rack_id="r",
        rebalance_timeout_ms=REBALANCE_MS,
        subscribed_topic_names=["t"],
        subscribed_topic_regex="x.*",
        server_assignor="range",
        topic_partitions=[],
    )
    harness.name_topics()
    harness.accept(join, 3, assignment(P0, P1))
    assigned, fetch, acknowledgement = harness.effects()
    assert assigned == Assigned((P0, P1), 3, harness.now_ms)
    assert isinstance(fetch, Send)
    assert isinstance(fetch.request, OffsetFetchRequest)
    assert (fetch.request.groups[0].member_id, fetch.request.groups[0].member_epoch) == ("m-1", 3)
    assert isinstance(acknowledgement, Send)
    assert acknowledgement.request == ConsumerGroupHeartbeatRequest(
        group_id="g", member_id="m-1", member_epoch=3, topic_partitions=assignment(P0, P1).topic_partitions
    )
    assert (harness.state(), harness.member.is_joined) == (State.STABLE, True)


def test_an_empty_assignment_is_acknowledged_too() -> None:
    harness = ConsumerMemberHarness()
    harness.accept(harness.start_joining(), 1, assignment())
    assert reported(harness.sent_heartbeat()) == []
    assert (harness.state(), harness.member.is_in_generation) == (State.STABLE, True)


def test_steady_heartbeats_have_no_fields_that_have_not_changed() -> None:
    harness = ConsumerMemberHarness(rack_id="r", server_assignor="range", instance_id="i").enter(P0)
    for _ in range(2):
        beat = harness.beat()
        assert beat == harness.member.heartbeat_request()
        assert beat == ConsumerGroupHeartbeatRequest(group_id="g", member_id="m-1", member_epoch=1, instance_id="i")
        harness.accept(beat, 1)


def test_the_broker_decides_on_the_interval_of_heartbeats() -> None:
    harness = ConsumerMemberHarness().enter(P0)
    start_ms = harness.now_ms
    harness.accept(harness.beat(), 1)
    assert harness.now_ms == start_ms + INTERVAL_MS
    assert harness.member.next_heartbeat_ms == harness.now_ms + INTERVAL_MS
    beat = harness.beat()
    harness.advance(200)
    harness.accept(beat, 1, interval_ms=1_000)
    assert harness.member.heartbeat_interval_ms == 1_000
    assert harness.member.next_heartbeat_ms == harness.now_ms + 1_000


def test_a_heartbeat_waits_for_the_response_to_the_one_before() -> None:
    harness = ConsumerMemberHarness().enter(P0)
    first = harness.beat()
    harness.advance(INTERVAL_MS + 1_000)
    assert not any(isinstance(each, ConsumerGroupHeartbeatRequest) for each in harness.requests())
    harness.accept(first, 1)
    assert reported(harness.sent_heartbeat()) is None


def test_a_new_subscription_is_in_the_next_heartbeat_and_only_there() -> None:
    harness = ConsumerMemberHarness().enter(P0)
    harness.member.subscribe(["t", "u"], harness.now_ms, pattern="a.*")
    assert harness.effects() == []
    beat = harness.beat()
    assert (beat.subscribed_topic_names, beat.subscribed_topic_regex) == (["t", "u"], "a.*")
    harness.accept(beat, 1)
    beat = harness.beat()
    assert (beat.subscribed_topic_names, beat.subscribed_topic_regex) == (None, None)
    harness.accept(beat, 1)
    harness.member.subscribe(["t", "u"], harness.now_ms)
    assert harness.beat().subscribed_topic_regex == ""


# Names of topics


def test_names_of_topics_are_looked_up_until_they_are_known() -> None:
    harness = ConsumerMemberHarness(topics=("t", "u"))
    harness.member.start(harness.now_ms)
    assert harness.effects() == [FetchMetadata(("t", "u"), harness.now_ms), Discover(harness.now_ms)]
    harness.discovered()
    harness.name_topics("t")
    harness.accept(harness.sent_heartbeat(), 1, assignment(P0, U0))
    effects = harness.effects()
    assert FetchMetadata(("t", "u"), harness.now_ms) in effects
    assert harness.member.assigned == (P0,), "what is known is assigned already"
    (acknowledgement,) = [
        each.request
        for each in effects
        if isinstance(each, Send) and isinstance(each.request, ConsumerGroupHeartbeatRequest)
    ]
    assert reported(acknowledgement) == [P0]
    assert harness.state() is State.RECONCILING
    harness.accept(acknowledgement, 1)
    assert harness.requests() == [], "it is acknowledged once"
    harness.name_topics("t")
    assert harness.effects() == []
    harness.advance(RETRY_MS)
    harness.only(FetchMetadata)
    harness.name_topics("u")
    assert reported(harness.sent_heartbeat()) == [P0, U0]
    assert (owned(harness), harness.state()) == ([P0, U0], State.STABLE)


def test_with_a_pattern_all_topics_are_looked_up() -> None:
    harness = ConsumerMemberHarness(topics=(), pattern=".*")
    harness.member.start(harness.now_ms)
    assert harness.effects()[0] == FetchMetadata((), harness.now_ms)


# Reconciliation


def test_a_revoked_partition_is_committed_before_it_is_given_up() -> None:
    harness, commit = reconciling(P1, P2)
    assert committed_offsets(commit) == {P0: 10, P1: 10}
    assert commit.generation_id_or_member_epoch == 1
    assert (harness.member.assigned, harness.state()) == ((P0, P1), State.RECONCILING)
    harness.respond(commit, commit_response(commit))
    revoked, assigned, fetch, acknowledgement = harness.effects()
    assert revoked == Revoked((P0,), False, harness.now_ms)
    assert assigned == Assigned((P2,), 1, harness.now_ms)
    assert isinstance(fetch, Send)
    assert isinstance(acknowledgement, Send)
    assert isinstance(acknowledgement.request, ConsumerGroupHeartbeatRequest)
    assert reported(acknowledgement.request) == [P1, P2]
    assert (owned(harness), harness.state()) == ([P1, P2], State.STABLE)


def test_the_last_commit_is_repeated_with_the_new_epoch_if_its_epoch_is_stale() -> None:
    harness, commit = reconciling(P1)
    harness.respond_error(commit, ErrorCode.STALE_MEMBER_EPOCH)
    harness.advance(RETRY_MS)
    again = harness.sent(OffsetCommitRequest)
    assert again.generation_id_or_member_epoch == 1
    harness.accept(harness.beat(), 2)
    harness.respond_error(again, ErrorCode.STALE_MEMBER_EPOCH)
    harness.advance(2 * RETRY_MS)
    again = harness.sent(OffsetCommitRequest)
    assert again.generation_id_or_member_epoch == 2
    harness.respond(again, commit_response(again))
    assert harness.member.assigned == (P1,)


def test_partitions_are_given_up_although_the_last_commit_fails(subtests: pytest.Subtests) -> None:
    with subtests.test("an error that is not retried"):
        harness, commit = reconciling(P1)
        harness.respond_error(commit, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        assert CommitRejected(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, harness.now_ms) in harness.effects()
        assert harness.member.assigned == (P1,)
    with subtests.test("no success within the rebalance timeout"):
        harness, commit = reconciling(P1)
        harness.respond_error(commit, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        harness.advance(REBALANCE_MS - 1)
        assert harness.member.assigned == (P0, P1)
        harness.advance(1)
        assert owned(harness) == [P1]


def test_without_automatic_commits_partitions_are_given_up_at_once() -> None:
    harness = ConsumerMemberHarness(commit_interval_ms=0).enter(P0, P1)
    harness.accept(harness.beat(), 1, assignment(P1))
    assert reported(harness.sent_heartbeat()) == [P1]


def test_the_application_gives_up_partitions_before_the_last_commit() -> None:
    harness = ConsumerMemberHarness(awaits_revocation=True).enter(P0, P1)
    harness.accept(harness.beat(), 1, assignment(P1, P2))
    harness.only(Revoking)
    assert (harness.member.revoking, harness.member.assigned) == ((P0,), (P0, P1))
    harness.accept(harness.beat(), 1)
    harness.effects()
    harness.member.positions[P0] = 20
    harness.member.revoked(harness.now_ms)
    commit = harness.sent(OffsetCommitRequest)
    assert committed_offsets(commit) == {P0: 20, P1: 10}
    harness.respond(commit, commit_response(commit))
    assert (harness.member.revoking, owned(harness)) == ((), [P1, P2])


def test_an_assignment_during_a_reconciliation_is_reconciled_after_it() -> None:
    harness, commit = reconciling(P1)
    harness.accept(harness.beat(), 1, assignment(P1, P2))
    harness.effects()
    harness.respond(commit, commit_response(commit))
    requests = harness.requests()
    assert [reported(each) for each in requests if isinstance(each, ConsumerGroupHeartbeatRequest)] == [[P1]]
    assert harness.state() is State.RECONCILING
    (second,) = [each for each in requests if isinstance(each, OffsetCommitRequest)]
    harness.respond(second, commit_response(second))
    assert owned(harness) == [P1], "the heartbeat in flight does not report t-2"
    (first,) = [each for each in requests if isinstance(each, ConsumerGroupHeartbeatRequest)]
    harness.accept(first, 2)
    assert reported(harness.sent_heartbeat()) == [P1, P2]
    assert harness.state() is State.STABLE


def test_a_partition_that_is_taken_back_during_a_reconciliation_is_not_added() -> None:
    harness, commit = reconciling(P1, P2)
    harness.accept(harness.beat(), 1, assignment(P1))
    harness.effects()
    harness.respond(commit, commit_response(commit))
    assert harness.member.effects[:2] == [
        Revoked((P0,), False, harness.now_ms),
        Assigned((), 1, harness.now_ms),
    ]
    assert (owned(harness), harness.state()) == ([P1], State.ACKNOWLEDGING)


def test_an_assignment_that_is_taken_back_is_acknowledged_again() -> None:
    harness, commit = reconciling(P1)
    harness.accept(harness.beat(), 1, assignment(P0, P1))
    harness.effects()
    harness.respond(commit, commit_response(commit))
    acknowledged = [reported(each) for each in harness.requests() if isinstance(each, ConsumerGroupHeartbeatRequest)]
    assert acknowledged == [[P1]]
    assert harness.state() is State.RECONCILING


def test_partitions_without_a_committed_offset_are_reported() -> None:
    harness = ConsumerMemberHarness(starts_at_zero=False)
    harness.name_topics()
    harness.accept(harness.start_joining(), 1, assignment(P0))
    harness.respond(harness.sent(OffsetFetchRequest), offset_fetch_response({P0: -1}))
    assert harness.effects() == [OffsetUnknown((P0,), harness.now_ms)]


# Commits


def test_positions_are_committed_at_their_interval_with_the_member_epoch() -> None:
    harness = ConsumerMemberHarness().enter(P0, epoch=4)
    harness.member.positions[P0] = 12
    harness.advance(COMMIT_MS)
    commit = harness.sent(OffsetCommitRequest)
    assert (commit.member_id, commit.generation_id_or_member_epoch) == ("m-1", 4)
    assert committed_offsets(commit) == {P0: 12}


def test_a_commit_with_a_stale_epoch_is_repeated_with_the_new_one() -> None:
    harness = ConsumerMemberHarness().enter(P0)
    harness.member.commit(harness.now_ms)
    commit, beat = harness.sent(OffsetCommitRequest), harness.beat()
    harness.respond_error(commit, ErrorCode.STALE_MEMBER_EPOCH)
    harness.accept(beat, 2)
    harness.advance(100)
    assert harness.sent(OffsetCommitRequest).generation_id_or_member_epoch == 2


def test_a_commit_outside_of_the_group_is_rejected_at_once(subtests: pytest.Subtests) -> None:
    for has_lost, expected in (
        (True, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (False, ErrorCode.REBALANCE_IN_PROGRESS),
    ):
        with subtests.test(expected.name):
            harness = ConsumerMemberHarness().enter(P0) if has_lost else ConsumerMemberHarness()
            if has_lost:
                harness.member.connection_lost(harness.now_ms)
            harness.member.commit(harness.now_ms)
            assert harness.only(CommitRejected).error is expected


# Leaving


def test_a_member_commits_gives_up_its_partitions_and_leaves_with_epoch_minus_one() -> None:
    harness = ConsumerMemberHarness().enter(P0)
    harness.member.leave(harness.now_ms)
    commit, revoked, leave = harness.effects()
    assert isinstance(commit, Send)
    assert isinstance(commit.request, OffsetCommitRequest)
    assert revoked == Revoked((P0,), False, harness.now_ms)
    assert isinstance(leave, Send)
    assert leave.request == ConsumerGroupHeartbeatRequest(
        group_id="g", member_id="m-1", member_epoch=-1, topic_partitions=[]
    )
    assert (harness.state(), harness.member.next_deadline()) == (State.UNSUBSCRIBED, None)


def test_a_static_member_leaves_with_epoch_minus_two_unless_it_is_to_be_removed(subtests: pytest.Subtests) -> None:
    for removed, epoch in ((False, -2), (True, -1)):
        with subtests.test(removed=removed):
            harness = ConsumerMemberHarness(instance_id="i").enter(P0)
            harness.member.leave(harness.now_ms, remove_static=removed)
            leave = harness.sent_heartbeat()
            assert (leave.member_epoch, leave.instance_id) == (epoch, "i")


def test_without_a_coordinator_a_member_leaves_without_a_heartbeat() -> None:
    harness = ConsumerMemberHarness().enter(P0)
    harness.member.connection_lost(harness.now_ms)
    harness.member.leave(harness.now_ms)
    assert harness.effects() == [Revoked((P0,), False, harness.now_ms)]


def test_a_member_that_is_not_polled_leaves_and_joins_again_with_its_id() -> None:
    harness = ConsumerMemberHarness().enter(P0)
    harness.member.expire(harness.now_ms)
    revoked, leave = harness.effects()
    assert revoked == Revoked((P0,), True, harness.now_ms)
    assert isinstance(leave, Send)
    assert isinstance(leave.request, ConsumerGroupHeartbeatRequest)
    assert leave.request.member_epoch == -1
    assert (harness.state(), harness.member.is_down, harness.member.next_deadline()) == (State.STALE, True, None)
    join = harness.start_joining()
    assert (join.member_id, join.member_epoch, join.topic_partitions) == ("m-1", 0, [])


def test_a_member_that_is_stale_can_leave() -> None:
    harness = ConsumerMemberHarness().enter(P0)
    harness.member.expire(harness.now_ms)
    harness.effects()
    harness.member.leave(harness.now_ms)
    assert (harness.effects(), harness.state()) == ([], State.UNSUBSCRIBED)


def test_a_crash_has_no_effects_and_the_next_process_has_another_id() -> None:
    harness = ConsumerMemberHarness().enter(P0)
    harness.member.crash(harness.now_ms)
    assert (harness.effects(), harness.member.assigned, harness.state()) == ([], (), State.UNSUBSCRIBED)
    assert harness.start_joining().member_id == "m-2"


# The interface


def test_a_stable_member_is_idle_between_heartbeats_and_commits() -> None:
    harness = ConsumerMemberHarness().enter(P0)
    member = harness.member
    assert member.idle_until() == float("inf")
    member.heartbeats_skipped(harness.now_ms + 60_000, harness.now_ms + 55_000)
    assert member.commits_skipped(harness.now_ms + 61_000) == {P0: 10}
    assert (member.next_heartbeat_ms, member.next_commit_ms) == (harness.now_ms + 60_000, harness.now_ms + 61_000)
    member.heartbeat_now(harness.now_ms)
    harness.sent_heartbeat()
    assert member.idle_until() == -float("inf")


def test_a_member_that_reconciles_is_not_idle() -> None:
    harness = ConsumerMemberHarness(awaits_revocation=True).enter(P0, P1)
    harness.accept(harness.beat(), 1, assignment(P1))
    assert harness.member.idle_until() == -float("inf")


def test_seeking_to_committed_offsets_looks_them_up_again() -> None:
    harness = ConsumerMemberHarness().enter(P0)
    harness.member.seek_to_committed(harness.now_ms)
    assert harness.sent(OffsetFetchRequest).groups[0].member_epoch == 1


def test_invalid_settings_are_rejected(subtests: pytest.Subtests) -> None:
    for setting, value in (("instance_id", ""), ("request_timeout_ms", 0), ("commit_interval_ms", -1)):
        with subtests.test(setting), pytest.raises(ConfigError, match=setting):
            ConsumerMemberHarness(**{setting: value})


def test_every_state_is_reachable_and_can_end() -> None:
    reachable = {State.UNSUBSCRIBED}
    while more := {after for state in reachable for after in TRANSITIONS[state]} - reachable:
        reachable |= more
    assert reachable == set(State)
    assert all(TRANSITIONS.values())


def test_a_transition_that_is_not_in_the_table_is_an_assertion_error() -> None:
    member = ConsumerMember(ConsumerMemberSettings(group_id="g", client_id="c"), lambda: "m")
    with pytest.raises(AssertionError, match="no transition from"):
        member._enter(State.STABLE)


def test_a_member_starts_once() -> None:
    harness = ConsumerMemberHarness()
    harness.name_topics()
    harness.member.start(harness.now_ms)
    harness.member.start(harness.now_ms)
    harness.only(Discover)
