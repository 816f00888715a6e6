"""A member of a consumer group (KIP-848): errors, lost connections and changes of the coordinator."""

from collections.abc import Callable

import pytest

from fakebroker.client.member.consumer.reactions import OTHERWISE, REACTIONS
from fakebroker.client.member.consumer.states import ConsumerMemberState as State
from fakebroker.client.member.effects import (
    CommitRejected,
    Discover,
    Fatal,
    GroupRequest,
    HeartbeatRejected,
    Revoked,
)
from fakebroker.client.member.reactions import Reaction
from fakebroker.errors import ErrorCode
from fakebroker.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from fakebroker.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from fakebroker.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from tests.support.client.consumer_member_harness import (
    INTERVAL_MS,
    REBALANCE_MS,
    REQUEST_MS,
    RETRY_MS,
    ConsumerMemberHarness,
    assignment,
    reported,
)
from tests.support.group_responses import commit_response, offset_fetch_response

P0, P1 = ("t", 0), ("t", 1)
HEARTBEATS = REACTIONS[ConsumerGroupHeartbeatResponse]


def heartbeating() -> tuple[ConsumerMemberHarness, GroupRequest]:
    harness = ConsumerMemberHarness().enter(P0)
    return harness, harness.beat()


def committing() -> tuple[ConsumerMemberHarness, GroupRequest]:
    harness = ConsumerMemberHarness().enter(P0)
    harness.member.commit(harness.now_ms)
    return harness, harness.sent(OffsetCommitRequest)


def fetching_offsets() -> tuple[ConsumerMemberHarness, GroupRequest]:
    harness = ConsumerMemberHarness().enter(P0)
    harness.member.seek_to_committed(harness.now_ms)
    return harness, harness.sent(OffsetFetchRequest)


REQUESTS: dict[type, Callable[[], tuple[ConsumerMemberHarness, GroupRequest]]] = {
    ConsumerGroupHeartbeatResponse: heartbeating,
    OffsetCommitResponse: committing,
    OffsetFetchResponse: fetching_offsets,
}


def test_the_coordinator_is_looked_up_after_errors_that_say_so(subtests: pytest.Subtests) -> None:
    for kind, reactions in REACTIONS.items():
        for error in [error for error, reaction in reactions.items() if reaction is Reaction.REDISCOVER]:
            with subtests.test(kind.__name__, error=error.name):
                harness, request = REQUESTS[kind]()
                harness.respond_error(request, error)
                assert (harness.member.has_coordinator, harness.member.assigned) == (False, (P0,))
                assert harness.effects() == []
                harness.advance(RETRY_MS)
                harness.only(Discover)


def test_fatal_errors_end_the_member_with_the_message_of_the_broker(subtests: pytest.Subtests) -> None:
    fatal = [error for error, reaction in HEARTBEATS.items() if reaction is Reaction.FATAL]
    for error in (*fatal, ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.GROUP_ID_NOT_FOUND):
        with subtests.test(error.name):
            harness, request = heartbeating()
            harness.respond_error(request, error)
            revoked, failed = harness.effects()
            assert revoked == Revoked((P0,), True, harness.now_ms)
            assert isinstance(failed, Fatal)
            assert failed.error is error
            assert failed.message.startswith(
                f"ConsumerGroupHeartbeat for group 'g' failed with {error.name}: the reason"
            )
            assert (harness.state(), harness.member.next_deadline()) == (State.FATAL, None)


def test_without_support_of_the_protocol_the_error_says_what_is_expected() -> None:
    harness, request = heartbeating()
    harness.respond_error(request, ErrorCode.UNSUPPORTED_VERSION)
    assert "expected brokers with group.version=1" in str(harness.effects()[-1])


def test_a_member_with_a_fatal_error_reports_it_again_when_it_is_started() -> None:
    harness, request = heartbeating()
    harness.respond_error(request, ErrorCode.UNRELEASED_INSTANCE_ID)
    harness.effects()
    harness.member.start(harness.now_ms)
    assert harness.only(Fatal).error is ErrorCode.UNRELEASED_INSTANCE_ID
    harness.member.leave(harness.now_ms)
    assert harness.state() is State.FATAL
    harness.member.crash(harness.now_ms)
    assert harness.start_joining().member_epoch == 0


def test_a_fenced_member_loses_its_partitions_and_joins_again_at_once_with_its_id(subtests: pytest.Subtests) -> None:
    for error in (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID):
        with subtests.test(error.name):
            harness, request = heartbeating()
            harness.respond_error(request, error)
            assert harness.member.effects[0] == Revoked((P0,), True, harness.now_ms)
            join = harness.sent_heartbeat()
            assert (join.member_id, join.member_epoch, join.topic_partitions) == ("m-1", 0, [])
            assert join.subscribed_topic_names == ["t"]
            assert (harness.state(), harness.member.next_commit_ms) == (State.JOINING, float("inf"))


def test_a_member_that_is_fenced_while_it_joins_backs_off() -> None:
    harness = ConsumerMemberHarness()
    join = harness.start_joining()
    for delay_ms in (100, 200, 400):
        harness.respond_error(join, ErrorCode.FENCED_MEMBER_EPOCH)
        harness.advance(delay_ms - 1)
        assert harness.effects() == []
        harness.advance(1)
        join = harness.sent_heartbeat()
        assert join.member_epoch == 0


def test_a_member_that_is_fenced_does_not_wait_for_its_application() -> None:
    harness = ConsumerMemberHarness(awaits_revocation=True).enter(P0, P1)
    harness.accept(harness.beat(), 1, assignment(P1))
    harness.effects()
    harness.respond_error(harness.beat(), ErrorCode.UNKNOWN_MEMBER_ID)
    assert harness.member.effects[0] == Revoked((P0, P1), True, harness.now_ms)
    harness.assign(harness.sent_heartbeat(), 5, P0)
    harness.member.revoked(harness.now_ms)
    assert (harness.effects(), harness.member.assigned, harness.state()) == ([], (P0,), State.STABLE)


def test_heartbeats_are_full_after_an_error() -> None:
    harness, request = heartbeating()
    harness.respond_error(request, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    harness.advance(RETRY_MS)
    again = harness.sent_heartbeat()
    assert (again.member_epoch, again.rebalance_timeout_ms) == (1, REBALANCE_MS)
    assert (again.subscribed_topic_names, reported(again)) == (["t"], [P0])
    harness.accept(again, 1)
    assert harness.beat() == harness.member.heartbeat_request()


def test_an_error_about_a_topic_is_reported_and_the_heartbeat_repeated() -> None:
    harness, request = heartbeating()
    harness.respond_error(request, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    assert harness.only(HeartbeatRejected).error is ErrorCode.TOPIC_AUTHORIZATION_FAILED
    harness.advance(RETRY_MS)
    harness.sent_heartbeat()
    assert (harness.state(), harness.member.assigned) == (State.STABLE, (P0,))


# Offsets


def test_commits_and_look_ups_of_offsets_are_retried_after_a_back_off(subtests: pytest.Subtests) -> None:
    for kind in (OffsetCommitResponse, OffsetFetchResponse):
        for error in [error for error, reaction in REACTIONS[kind].items() if reaction is Reaction.RETRY]:
            with subtests.test(kind.__name__, error=error.name):
                harness, request = REQUESTS[kind]()
                harness.respond_error(request, error)
                harness.advance(RETRY_MS - 1)
                assert harness.effects() == []
                harness.advance(1)
                assert isinstance(harness.sent(type(request)), type(request))


def test_other_errors_of_commits_are_reported_and_the_next_heartbeat_decides(subtests: pytest.Subtests) -> None:
    assert OTHERWISE[OffsetCommitResponse] is Reaction.REPORT
    for error in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.GROUP_AUTHORIZATION_FAILED):
        with subtests.test(error.name):
            harness, request = committing()
            harness.respond_error(request, error)
            assert harness.effects() == [CommitRejected(error, harness.now_ms)]
            assert (harness.state(), harness.member.assigned) == (State.STABLE, (P0,))


def test_other_errors_of_look_ups_of_offsets_are_fatal() -> None:
    harness, request = fetching_offsets()
    harness.respond_error(request, ErrorCode.GROUP_AUTHORIZATION_FAILED)
    assert isinstance(harness.effects()[-1], Fatal)


# The coordinator


def test_a_member_keeps_its_partitions_while_the_coordinator_is_looked_up() -> None:
    harness = ConsumerMemberHarness().enter(P0)
    harness.member.connection_lost(harness.now_ms)
    assert (harness.member.is_joined, harness.member.is_in_generation) == (False, True)
    assert (harness.member.is_rediscovering, harness.member.is_discovering) == (True, True)
    harness.advance(3 * INTERVAL_MS)
    harness.only(Discover)
    harness.discovered()
    beat, commit = harness.requests()
    assert isinstance(beat, ConsumerGroupHeartbeatRequest)
    assert isinstance(commit, OffsetCommitRequest)
    assert (beat.member_epoch, reported(beat), beat.subscribed_topic_names) == (1, [P0], ["t"])
    assert (harness.member.assigned, harness.state()) == ((P0,), State.STABLE)


def test_the_coordinator_is_lost_if_a_heartbeat_is_not_answered_within_the_request_timeout() -> None:
    harness, answered = heartbeating()
    harness.respond(
        answered, ConsumerGroupHeartbeatResponse(error_code=0, member_epoch=1, heartbeat_interval_ms=INTERVAL_MS)
    )
    assert harness.member.session_deadline_ms == float("inf")
    harness.beat()
    assert harness.member.session_deadline_ms == harness.now_ms + REQUEST_MS
    harness.advance(REQUEST_MS - 1)
    assert harness.member.has_coordinator
    harness.advance(1)
    assert not harness.member.has_coordinator


def test_a_lost_coordinator_during_the_last_commit_lets_it_be_repeated() -> None:
    harness = ConsumerMemberHarness().enter(P0, P1)
    harness.accept(harness.beat(), 1, assignment(P1))
    lost = harness.sent(OffsetCommitRequest)
    harness.member.connection_lost(harness.now_ms)
    harness.respond(lost, commit_response(lost))
    assert harness.member.assigned == (P0, P1), "the response is ignored"
    harness.advance(RETRY_MS)
    harness.only(Discover)
    harness.discovered()
    requests = harness.requests()
    (commit,) = [each for each in requests if isinstance(each, OffsetCommitRequest)]
    (beat,) = [each for each in requests if isinstance(each, ConsumerGroupHeartbeatRequest)]
    assert reported(beat) == [P0, P1]
    harness.respond(commit, commit_response(commit))
    assert (list(harness.member.assigned), harness.state()) == ([P1], State.ACKNOWLEDGING)
    harness.accept(beat, 1)
    assert reported(harness.sent_heartbeat()) == [P1]


def test_an_acknowledgement_waits_for_the_coordinator() -> None:
    harness = ConsumerMemberHarness(awaits_revocation=True, commit_interval_ms=0).enter(P0, P1)
    harness.accept(harness.beat(), 1, assignment(P1))
    harness.effects()
    harness.member.connection_lost(harness.now_ms)
    harness.member.revoked(harness.now_ms)
    assert harness.effects() == []
    harness.advance(RETRY_MS)
    harness.effects()
    harness.discovered()
    assert [reported(each) for each in harness.requests() if isinstance(each, ConsumerGroupHeartbeatRequest)] == [
        [P0, P1]
    ]
    assert harness.member.assigned == (P1,)


def test_unknown_offsets_are_looked_up_at_the_new_coordinator() -> None:
    harness, lost = fetching_offsets()
    harness.member.connection_lost(harness.now_ms)
    harness.respond(lost, offset_fetch_response({P0: 3}))
    assert harness.member.positions == {}
    harness.advance(RETRY_MS)
    harness.effects()
    harness.discovered()
    fetch = harness.sent(OffsetFetchRequest)
    harness.respond(fetch, offset_fetch_response({P0: 4}))
    assert harness.member.positions == {P0: 4}


def test_a_look_up_that_fails_is_repeated_unless_the_error_is_fatal(subtests: pytest.Subtests) -> None:
    for error, state in (
        (ErrorCode.COORDINATOR_NOT_AVAILABLE, State.JOINING),
        (ErrorCode.GROUP_AUTHORIZATION_FAILED, State.FATAL),
    ):
        with subtests.test(error.name):
            harness = ConsumerMemberHarness()
            harness.name_topics()
            harness.member.start(harness.now_ms)
            harness.only(Discover)
            harness.member.discovery_failed(error, harness.now_ms)
            assert harness.state() is state
            if state is State.JOINING:
                harness.advance(RETRY_MS)
                harness.only(Discover)
