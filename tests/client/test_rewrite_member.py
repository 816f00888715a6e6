"""The consumer of the rewrite design: its states, its requests, and the reaction to each error."""

from typing import Any

import pytest

from fakebroker.client.member.effects import (
    Assigned,
    CommitRejected,
    Discover,
    Fatal,
    FetchMetadata,
    OffsetUnknown,
    Revoked,
)
from fakebroker.client.member.rewrite.reactions import OTHERWISE, REACTIONS
from fakebroker.client.member.rewrite.rewrite_settings import RewriteSettings
from fakebroker.client.member.rewrite.states import TRANSITIONS, RewriteMemberState as State
from fakebroker.errors import ConfigError, ErrorCode
from fakebroker.proposals.consumer_rewrite.messages import RewriteJoinGroupRequest
from fakebroker.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from fakebroker.protocol.messages.offset_commit import OffsetCommitRequest
from fakebroker.protocol.messages.offset_fetch import OffsetFetchRequest
from tests.support.client.rewrite_harness import (
    COMMIT_MS,
    HEARTBEAT_MS,
    RETRY_MS,
    SESSION_MS,
    RewriteHarness,
    join_answer,
)
from tests.support.group_responses import committed_offsets, offset_fetch_response, requested_partitions

P0, P1, P2 = ("t", 0), ("t", 1), ("t", 2)
ILLEGAL_GENERATION = ErrorCode.ILLEGAL_GENERATION
UNKNOWN_CONSUMER = ErrorCode.UNKNOWN_MEMBER_ID
NOT_COORDINATOR = ErrorCode.NOT_COORDINATOR
STARTUP_NOT_COMPLETE = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
ILLEGAL_PROTOCOL_STATE = ErrorCode.INVALID_REQUEST


# Down, and starting up


def test_a_consumer_discovers_its_coordinator_joins_without_an_id_and_learns_its_id() -> None:
    harness = RewriteHarness()
    assert harness.state() is State.DOWN
    harness.member.start(harness.now_ms)
    assert harness.state() is State.DISCOVERING
    harness.only(Discover)
    harness.discovered()
    join = harness.sent(RewriteJoinGroupRequest)
    assert (join.group_id, join.consumer_id, join.topics) == ("g", "", ["t"])
    assert (join.session_timeout_ms, join.partition_assignment_strategy) == (SESSION_MS, "range")
    assert harness.state() is State.DISCOVERING
    assert not harness.member.is_in_generation

    harness.respond(join, join_answer(3, "g-7", P0, P2))
    assigned, fetch = harness.effects()
    assert isinstance(assigned, Assigned)
    assert (assigned.partitions, assigned.generation_id) == ((P0, P2), 3)
    assert harness.state() is State.PART_OF_GROUP
    assert harness.member.is_in_generation
    assert (harness.member.member_id, harness.member.generation_id) == ("g-7", 3)
    request = fetch.request
    assert requested_partitions(request) == [P0, P2]
    harness.respond(request, offset_fetch_response({P0: 7, P2: -1}))
    assert harness.member.positions == {P0: 7, P2: 0}


def test_starting_twice_or_finding_the_coordinator_twice_changes_nothing() -> None:
    harness = RewriteHarness()
    harness.start_joining()
    harness.member.start(harness.now_ms)
    harness.discovered()
    assert harness.effects() == []


def test_an_unknown_offset_is_reported_on_request() -> None:
    harness = RewriteHarness(starts_at_zero=False)
    harness.respond(harness.start_joining(), join_answer(1, "g-1", P0, P1))
    harness.member.positions[P1] = 4
    harness.respond(harness.sent(OffsetFetchRequest), offset_fetch_response({P0: -1, P1: 9, P2: 1}))
    assert harness.only(OffsetUnknown).partitions == (P0,)
    assert harness.member.positions == {P1: 4}


def test_the_coordinator_is_looked_up_again_after_a_back_off() -> None:
    harness = RewriteHarness()
    harness.member.start(harness.now_ms)
    for delay_ms in (RETRY_MS, 2 * RETRY_MS):
        harness.effects()
        harness.member.discovery_failed(ErrorCode.COORDINATOR_NOT_AVAILABLE, harness.now_ms)
        harness.advance(delay_ms - 1)
        assert harness.effects() == []
        harness.advance(1)
        harness.only(Discover)
    harness.member.discovery_failed(ErrorCode.GROUP_AUTHORIZATION_FAILED, harness.now_ms)
    assert harness.only(Fatal).message == "ConsumerMetadata for group 'g' failed with GROUP_AUTHORIZATION_FAILED"
    assert harness.state() is State.DOWN
    harness.member.discovery_failed(ErrorCode.NETWORK_EXCEPTION, harness.now_ms)
    assert harness.effects() == []


def test_a_coordinator_lost_before_the_first_join_is_answered_is_looked_up_in_the_same_state() -> None:
    harness = RewriteHarness()
    join = harness.start_joining()
    harness.member.connection_lost(harness.now_ms)
    assert harness.state() is State.DISCOVERING
    harness.respond(join, join_answer(1, "g-1", P0))  # too late
    harness.advance(RETRY_MS)
    harness.only(Discover)
    harness.discovered()
    assert harness.sent(RewriteJoinGroupRequest).consumer_id == ""


@pytest.mark.parametrize(
    "error",
    [
        ErrorCode.INCONSISTENT_GROUP_PROTOCOL,  # InconsistentPartitioningStrategy
        ErrorCode.UNSUPPORTED_ASSIGNOR,  # UnknownPartitioningStrategy
        ErrorCode.INVALID_SESSION_TIMEOUT,  # SessionTimeoutTooHigh
    ],
)
def test_a_consumer_that_its_group_cannot_take_stops(error: ErrorCode) -> None:
    harness = RewriteHarness()
    harness.respond_error(harness.start_joining(), error)
    fatal = harness.only(Fatal)
    assert (fatal.error, fatal.message) == (error, f"JoinGroup for group 'g' failed with {error.name}")
    assert harness.state() is State.DOWN
    assert harness.member.next_deadline() is None


@pytest.mark.parametrize("error", [ILLEGAL_PROTOCOL_STATE, STARTUP_NOT_COMPLETE, ILLEGAL_GENERATION])
def test_a_join_is_repeated_after_a_back_off(error: ErrorCode) -> None:
    harness = RewriteHarness()
    harness.respond_error(harness.start_joining(), error)
    assert harness.effects() == []
    harness.advance(RETRY_MS)
    harness.respond(harness.sent(RewriteJoinGroupRequest), join_answer(1, "g-1", P0))
    assert harness.state() is State.PART_OF_GROUP


@pytest.mark.parametrize("error", [NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE])
def test_a_join_at_another_broker_starts_the_discovery_again(error: ErrorCode) -> None:
    harness = RewriteHarness()
    harness.respond_error(harness.start_joining(), error)
    assert harness.state() is State.DISCOVERING
    harness.advance(RETRY_MS)
    harness.only(Discover)


# Part of a group


def test_heartbeats_are_sent_at_the_frequency_with_id_and_generation() -> None:
    harness = RewriteHarness(heartbeat_frequency=9)
    harness.enter()
    entered_ms = harness.now_ms
    for number in (1, 2, 3):
        beat = harness.beat()
        assert harness.now_ms - entered_ms == number * SESSION_MS / 9
        assert (beat.group_id, beat.member_id, beat.generation_id) == ("g", "g-1", 1)
        harness.respond(beat, HeartbeatResponse())


def test_offsets_are_committed_at_intervals_with_id_and_generation() -> None:
    harness = RewriteHarness()
    harness.enter(P0, P1)
    harness.beat_and_pass()
    harness.member.positions[P0] = 8
    harness.advance(COMMIT_MS - HEARTBEAT_MS)
    commit = harness.sent(OffsetCommitRequest)
    assert (commit.member_id, commit.generation_id_or_member_epoch) == ("g-1", 1)
    assert committed_offsets(commit) == {P0: 8, P1: 5}
    harness.accept(commit)
    harness.member.positions[P0] = 9
    harness.member.commit(harness.now_ms)
    assert committed_offsets(harness.sent(OffsetCommitRequest)) == {P0: 9, P1: 5}


def test_commits_without_positions_or_outside_of_a_group() -> None:
    harness = RewriteHarness()
    harness.start_joining()
    harness.member.commit(harness.now_ms)
    assert harness.only(CommitRejected).error is ErrorCode.REBALANCE_IN_PROGRESS
    harness = RewriteHarness()
    harness.respond(harness.start_joining(), join_answer(1, "g-1"))
    harness.effects()
    harness.member.commit(harness.now_ms)
    assert harness.effects() == []  # nothing to commit
    harness.member.connection_lost(harness.now_ms)
    harness.member.commit(harness.now_ms)
    assert harness.only(CommitRejected).error is ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_illegal_generation_stops_fetching_commits_and_joins_by_id() -> None:
    harness = RewriteHarness()
    harness.enter(P0, P1)
    harness.member.positions[P0] = 11
    harness.respond_error(harness.beat(), ILLEGAL_GENERATION)
    assert harness.state() is State.STOPPED
    assert not harness.member.is_in_generation
    commit = harness.sent(OffsetCommitRequest)
    assert committed_offsets(commit) == {P0: 11, P1: 5}
    assert harness.member.assigned == (P0, P1)
    harness.accept(commit)
    revoked, join = harness.effects()
    assert isinstance(revoked, Revoked)
    assert (revoked.partitions, revoked.lost) == ((P0, P1), False)
    request: RewriteJoinGroupRequest = join.request  # type: ignore[union-attr, assignment]  # it is a Send
    assert request.consumer_id == "g-1"
    harness.respond(request, join_answer(2, "g-1", P1))
    assert harness.state() is State.PART_OF_GROUP
    assert harness.member.is_in_generation
    assert harness.member.assigned == (P1,)


def test_no_heartbeats_are_sent_until_the_join_is_answered() -> None:
    harness = RewriteHarness()
    harness.enter()
    harness.respond_error(harness.beat(), ILLEGAL_GENERATION)
    harness.accept(harness.sent(OffsetCommitRequest))
    join = harness.sent(RewriteJoinGroupRequest)
    harness.advance(2 * SESSION_MS - 1)
    assert harness.effects() == []
    harness.respond(join, join_answer(2, "g-1", P0))
    harness.respond(harness.sent(OffsetFetchRequest), offset_fetch_response({P0: 5}))
    harness.advance(HEARTBEAT_MS)
    assert harness.sent(HeartbeatRequest).generation_id == 2


def test_a_consumer_may_join_again_without_its_id() -> None:
    harness = RewriteHarness(sends_consumer_id=False, commit_interval_ms=0)
    harness.enter()
    harness.respond_error(harness.beat(), ILLEGAL_GENERATION)
    join = harness.sent(RewriteJoinGroupRequest)
    assert join.consumer_id == ""
    harness.respond(join, join_answer(2, "g-2", P0))
    assert harness.member.member_id == "g-2"


@pytest.mark.parametrize("error", [ILLEGAL_GENERATION, ErrorCode.OFFSET_METADATA_TOO_LARGE])
def test_the_consumer_joins_although_its_last_commit_fails(error: ErrorCode) -> None:
    harness = RewriteHarness()
    harness.enter()
    harness.respond_error(harness.beat(), ILLEGAL_GENERATION)
    harness.respond_error(harness.sent(OffsetCommitRequest), error)
    rejected, revoked, join = harness.effects()
    assert isinstance(rejected, CommitRejected)
    assert rejected.error is error
    assert isinstance(revoked, Revoked)
    assert isinstance(join.request, RewriteJoinGroupRequest)  # type: ignore[union-attr]  # it is a Send


def test_the_last_commit_is_repeated_while_the_coordinator_starts_up() -> None:
    harness = RewriteHarness()
    harness.enter()
    harness.respond_error(harness.beat(), ILLEGAL_GENERATION)
    harness.respond_error(harness.sent(OffsetCommitRequest), STARTUP_NOT_COMPLETE)
    assert harness.effects() == []
    harness.advance(RETRY_MS)
    harness.accept(harness.sent(OffsetCommitRequest))
    assert harness.sent(RewriteJoinGroupRequest).consumer_id == "g-1"


def test_heartbeats_and_commits_are_repeated_while_the_coordinator_starts_up() -> None:
    harness = RewriteHarness()
    harness.enter()
    harness.respond_error(harness.beat(), STARTUP_NOT_COMPLETE)
    assert harness.state() is State.PART_OF_GROUP
    assert harness.member.is_in_generation
    harness.advance(RETRY_MS)
    harness.respond(harness.sent(HeartbeatRequest), HeartbeatResponse())
    harness.member.commit(harness.now_ms)
    harness.respond_error(harness.sent(OffsetCommitRequest), STARTUP_NOT_COMPLETE)
    harness.advance(RETRY_MS)
    harness.accept(harness.sent(OffsetCommitRequest))


def test_offsets_are_fetched_again_while_the_coordinator_starts_up() -> None:
    harness = RewriteHarness()
    harness.respond(harness.start_joining(), join_answer(1, "g-1", P0))
    harness.respond_error(harness.sent(OffsetFetchRequest), STARTUP_NOT_COMPLETE)
    harness.advance(RETRY_MS)
    harness.respond(harness.sent(OffsetFetchRequest), offset_fetch_response({P0: 3}))
    assert harness.member.positions == {P0: 3}


def test_an_unknown_consumer_loses_its_partitions_and_joins_as_a_new_one() -> None:
    harness = RewriteHarness()
    harness.enter()
    harness.respond_error(harness.beat(), UNKNOWN_CONSUMER)
    revoked, join = harness.effects()
    assert isinstance(revoked, Revoked)
    assert revoked.lost
    assert harness.state() is State.STOPPED
    request: RewriteJoinGroupRequest = join.request  # type: ignore[union-attr, assignment]  # it is a Send
    assert request.consumer_id == ""
    harness.respond(request, join_answer(4, "g-2", P0))
    assert harness.state() is State.PART_OF_GROUP


def test_an_unknown_consumer_learns_that_from_its_commit_or_its_join_too() -> None:
    harness = RewriteHarness()
    harness.enter()
    harness.member.commit(harness.now_ms)
    harness.respond_error(harness.sent(OffsetCommitRequest), UNKNOWN_CONSUMER)
    rejected, _, _ = harness.effects()
    assert isinstance(rejected, CommitRejected)
    harness = RewriteHarness(commit_interval_ms=0)
    harness.enter()
    harness.respond_error(harness.beat(), ILLEGAL_GENERATION)
    harness.respond_error(harness.sent(RewriteJoinGroupRequest), UNKNOWN_CONSUMER)
    assert harness.sent(RewriteJoinGroupRequest).consumer_id == ""


def test_illegal_generation_of_a_commit_stops_consumption_as_well() -> None:
    harness = RewriteHarness(commit_interval_ms=0)
    harness.enter()
    harness.member.commit(harness.now_ms)
    harness.respond_error(harness.sent(OffsetCommitRequest), ILLEGAL_GENERATION)
    assert harness.state() is State.STOPPED


def test_errors_of_the_previous_generation_have_no_effect() -> None:
    harness = RewriteHarness()
    harness.enter()
    harness.member.commit(harness.now_ms)
    old_commit = harness.sent(OffsetCommitRequest)
    old_beat = harness.beat()
    harness.member.subscribe(("t", "u"), harness.now_ms)
    last_commit = harness.sent(OffsetCommitRequest)
    harness.accept(last_commit)
    assert harness.effects() == []  # the first commit is not answered yet
    harness.accept(old_commit)
    join = harness.sent(RewriteJoinGroupRequest)
    assert join.topics == ["t", "u"]
    harness.respond_error(old_beat, ILLEGAL_GENERATION)
    assert harness.effects() == []
    harness.respond(join, join_answer(2, "g-1", P0))
    assert harness.state() is State.PART_OF_GROUP


# Re-discovering


@pytest.mark.parametrize("how", ["no response", "closed", "NotCoordinatorForGroup"])
def test_consumption_goes_on_while_the_coordinator_is_looked_up_again(how: str) -> None:
    harness = RewriteHarness(commit_interval_ms=0)
    harness.enter()
    if how == "no response":
        harness.advance(SESSION_MS - 1)
        assert harness.state() is State.PART_OF_GROUP
        harness.effects()
        harness.advance(1)
        harness.effects()
    elif how == "closed":
        harness.member.connection_lost(harness.now_ms)
    else:
        harness.respond_error(harness.beat(), NOT_COORDINATOR)
    assert harness.state() is State.REDISCOVERING
    assert harness.member.is_in_generation
    assert harness.member.assigned == (P0,)
    harness.advance(RETRY_MS)
    harness.only(Discover)
    harness.discovered()
    assert harness.state() is State.PART_OF_GROUP
    harness.respond(harness.sent(HeartbeatRequest), HeartbeatResponse())
    assert harness.member.is_in_generation


def test_a_response_restarts_the_session_timeout() -> None:
    harness = RewriteHarness(commit_interval_ms=0)
    harness.enter()
    harness.beat_and_pass()
    harness.advance(SESSION_MS - 1)
    assert harness.state() is State.PART_OF_GROUP
    harness.advance(1)
    assert harness.state() is State.REDISCOVERING


def test_the_last_commit_and_unknown_offsets_are_sent_again_to_the_new_coordinator() -> None:
    harness = RewriteHarness()
    harness.respond(harness.start_joining(), join_answer(1, "g-1", P0, P1))
    harness.effects()
    harness.member.positions[P0] = 6
    harness.member.connection_lost(harness.now_ms)
    harness.advance(RETRY_MS)
    harness.discovered()
    kinds = [type(effect.request) for effect in harness.effects() if not isinstance(effect, Discover)]  # type: ignore[union-attr]
    assert kinds == [HeartbeatRequest, OffsetFetchRequest, OffsetCommitRequest]


@pytest.mark.parametrize("phase", ["commit", "join"])
def test_a_coordinator_lost_after_consumption_has_stopped(phase: str) -> None:
    """The consumer does not consume meanwhile, and joins at the new coordinator without a heartbeat."""
    harness = RewriteHarness()
    harness.enter()
    harness.respond_error(harness.beat(), ILLEGAL_GENERATION)
    commit = harness.sent(OffsetCommitRequest)
    if phase == "join":
        harness.accept(commit)
        harness.sent(RewriteJoinGroupRequest)
    harness.member.connection_lost(harness.now_ms)
    assert harness.state() is State.REDISCOVERING
    assert not harness.member.is_in_generation
    harness.advance(RETRY_MS)
    harness.only(Discover)
    harness.discovered()
    assert harness.state() is State.STOPPED
    if phase == "commit":
        harness.accept(harness.sent(OffsetCommitRequest))
    assert harness.sent(RewriteJoinGroupRequest).consumer_id == "g-1"


def test_a_join_that_is_not_answered_is_sent_again_after_a_look_up() -> None:
    harness = RewriteHarness(commit_interval_ms=0, join_timeout_ms=4_000)
    harness.enter()
    harness.respond_error(harness.beat(), ILLEGAL_GENERATION)
    first = harness.sent(RewriteJoinGroupRequest)
    harness.advance(4_000)
    assert harness.state() is State.REDISCOVERING
    harness.advance(RETRY_MS)
    harness.only(Discover)
    harness.discovered()
    second = harness.sent(RewriteJoinGroupRequest)
    harness.respond(first, join_answer(2, "g-1", P0))
    assert harness.state() is State.STOPPED
    harness.respond(second, join_answer(3, "g-1", P0))
    assert harness.member.generation_id == 3


def test_a_last_commit_that_is_not_answered_is_sent_to_the_next_coordinator() -> None:
    harness = RewriteHarness()
    harness.enter()
    harness.respond_error(harness.beat(), ILLEGAL_GENERATION)
    harness.effects()
    harness.advance(SESSION_MS)
    assert harness.state() is State.REDISCOVERING
    assert harness.member.assigned == (P0,)


# Subscriptions


def test_a_changed_subscription_is_a_join() -> None:
    harness = RewriteHarness(commit_interval_ms=0)
    harness.enter()
    harness.member.subscribe(["u"], harness.now_ms)
    assert harness.state() is State.STOPPED
    join = harness.sent(RewriteJoinGroupRequest)
    assert join.topics == ["u"]
    harness.member.subscribe(["v"], harness.now_ms)
    harness.respond(join, join_answer(2, "g-1", ("u", 0)))
    assert harness.state() is State.STOPPED  # one more rebalance
    harness.respond(harness.sent_join(), join_answer(3, "g-1", ("v", 0)))
    assert harness.state() is State.PART_OF_GROUP


def test_a_subscription_that_changes_during_the_look_up_is_a_join_afterwards() -> None:
    harness = RewriteHarness(commit_interval_ms=0)
    harness.enter()
    harness.member.connection_lost(harness.now_ms)
    harness.member.subscribe(["u"], harness.now_ms)
    assert harness.member.is_in_generation
    harness.advance(RETRY_MS)
    harness.discovered()
    assert harness.sent_join().topics == ["u"]


def test_a_wildcard_is_resolved_by_the_consumer_from_the_metadata_of_all_topics() -> None:
    harness = RewriteHarness(topics=(), pattern="t.*", commit_interval_ms=0)
    harness.member.start(harness.now_ms)
    metadata, discover = harness.effects()
    assert isinstance(metadata, FetchMetadata)
    assert metadata.topics == ()
    assert isinstance(discover, Discover)
    harness.discovered()
    assert harness.effects() == []
    harness.member.metadata({"u": 1, "t2": 1, "t1": 4, "not-t": 1}, harness.now_ms)
    join = harness.sent(RewriteJoinGroupRequest)
    assert join.topics == ["t1", "t2"]
    harness.respond(join, join_answer(1, "g-1", ("t1", 0)))
    harness.effects()
    harness.member.metadata({"t2": 5, "t1": 4, "new": 1}, harness.now_ms)
    assert harness.state() is State.PART_OF_GROUP  # partition counts are the coordinator's concern
    harness.member.metadata({"t2": 5, "t1": 4, "t3": 1}, harness.now_ms)
    assert harness.sent(RewriteJoinGroupRequest).topics == ["t1", "t2", "t3"]


def test_the_metadata_may_arrive_before_the_coordinator_is_found() -> None:
    harness = RewriteHarness(topics=(), pattern="t", commit_interval_ms=0)
    harness.member.start(harness.now_ms)
    harness.effects()
    harness.member.metadata({"t": 1}, harness.now_ms)
    assert harness.effects() == []
    harness.discovered()
    assert harness.sent(RewriteJoinGroupRequest).topics == ["t"]


def test_metadata_has_no_effect_without_a_pattern_or_when_down() -> None:
    harness = RewriteHarness()
    harness.enter()
    harness.member.metadata({"t": 9}, harness.now_ms)
    harness = RewriteHarness(topics=(), pattern="t")
    harness.member.metadata({"t": 9}, harness.now_ms)
    assert harness.effects() == []


# Stopping


def test_leaving_commits_and_tells_the_coordinator_nothing() -> None:
    harness = RewriteHarness()
    harness.enter()
    harness.member.leave(harness.now_ms)
    commit, revoked = harness.effects()
    assert isinstance(commit.request, OffsetCommitRequest)  # type: ignore[union-attr]  # it is a Send
    assert isinstance(revoked, Revoked)
    assert not revoked.lost
    assert harness.state() is State.DOWN
    assert harness.start_joining().consumer_id == ""


def test_a_crash_has_no_effects() -> None:
    harness = RewriteHarness()
    harness.enter()
    harness.member.commit(harness.now_ms)
    harness.member.crash(harness.now_ms)
    assert harness.effects() == []
    assert harness.state() is State.DOWN
    assert harness.member.next_deadline() is None
    harness.member.crash(harness.now_ms)
    harness.member.connection_lost(harness.now_ms)
    assert harness.state() is State.DOWN


# Simulations


def test_heartbeats_and_commits_can_be_sent_on_the_consumers_behalf() -> None:
    harness = RewriteHarness()
    harness.respond(harness.start_joining(), join_answer(1, "g-1", P0))
    assert harness.member.idle_until() == -float("inf")
    harness.respond(harness.sent(OffsetFetchRequest), offset_fetch_response({P0: 5}))
    member, start_ms = harness.member, harness.now_ms
    assert member.idle_until() == float("inf")
    assert member.next_heartbeat_ms == start_ms + HEARTBEAT_MS
    assert member.next_commit_ms == start_ms + COMMIT_MS
    assert member.session_deadline_ms == start_ms + SESSION_MS
    member.heartbeats_skipped(start_ms + 100 * HEARTBEAT_MS, start_ms + 99 * HEARTBEAT_MS)
    assert member.commits_skipped(start_ms + 60 * COMMIT_MS + 1) == {P0: 5}
    assert member.session_deadline_ms == start_ms + 99 * HEARTBEAT_MS + SESSION_MS
    harness.advance(100 * HEARTBEAT_MS)
    assert harness.sent(HeartbeatRequest).generation_id == 1


# Tables and settings


def test_every_transition_is_in_the_table() -> None:
    assert set(TRANSITIONS) == set(State)
    harness = RewriteHarness()
    with pytest.raises(AssertionError, match="no transition"):
        harness.member._enter(State.STOPPED)


def test_each_response_has_reactions() -> None:
    assert REACTIONS.keys() == OTHERWISE.keys()


@pytest.mark.parametrize(
    ("settings", "field"),
    [
        ({"session_timeout_ms": 0}, "session_timeout_ms"),
        ({"heartbeat_frequency": 1}, "heartbeat_frequency"),
        ({"commit_interval_ms": -1}, "commit_interval_ms"),
        ({"retry_backoff_ms": -1}, "retry_backoff_ms"),
        ({"join_timeout_ms": 0}, "join_timeout_ms"),
        ({"pattern": "("}, "pattern"),
        ({"pattern": "t", "topics": ("t",)}, "topics"),
    ],
)
def test_invalid_settings(settings: dict[str, Any], field: str) -> None:
    with pytest.raises(ConfigError) as caught:
        RewriteSettings(group_id="g", client_id="c", **settings)
    assert caught.value.field == field
