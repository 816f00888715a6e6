"""How a group member reacts to each error in a response, and to which of several errors in one response."""

from collections.abc import Callable

import pytest

from fakebroker.client.member.effects import CommitRejected, Discover, Fatal, GroupRequest, Revoked, Send
from fakebroker.client.member.reactions import REACTIONS, Reaction, error_in, reaction_to
from fakebroker.client.member.states import MemberState
from fakebroker.errors import ErrorCode
from fakebroker.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from fakebroker.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from fakebroker.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from fakebroker.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)
from fakebroker.protocol.messages.sync_group import SyncGroupRequest
from tests.support.client.member_harness import COMMIT_MS, MemberHarness
from tests.support.group_responses import offset_fetch_response

P0 = ("t", 0)
E = ErrorCode
NOT_IN_KAFKA = 999
"""An error code that Kafka does not have."""


def assert_fatal(harness: MemberHarness, error: ErrorCode) -> None:
    """Assert that the member has lost its partitions, reported the error and stopped."""
    *revoked, fatal = harness.effects()
    assert isinstance(fatal, Fatal)
    assert fatal.error is error
    assert error.name in fatal.message
    assert all(isinstance(effect, Revoked) and effect.lost for effect in revoked)
    assert harness.state() is MemberState.DOWN
    assert harness.member.next_deadline() is None


def assert_rediscovers(harness: MemberHarness) -> None:
    """Assert that the member sends nothing until the first back-off has passed, and then looks up the coordinator."""
    assert harness.state() is MemberState.REDISCOVERING
    assert not harness.member.has_coordinator
    harness.advance(99)
    assert harness.effects() == []
    harness.advance(1)
    assert harness.only(Discover).scheduled_ms == harness.now_ms


# Members with a request in flight


def joining() -> tuple[MemberHarness, JoinGroupRequest]:
    """Return a member that has a member id, and its JoinGroup."""
    harness = MemberHarness()
    harness.respond_error(harness.start_joining(), E.MEMBER_ID_REQUIRED)
    return harness, harness.sent(JoinGroupRequest)


def syncing() -> tuple[MemberHarness, SyncGroupRequest]:
    harness = MemberHarness()
    return harness, harness.follow(harness.start_joining(), generation_id=5)


def heartbeating() -> tuple[MemberHarness, HeartbeatRequest]:
    """Return a member that does not commit before it joins, and its heartbeat."""
    harness = MemberHarness(commit_interval_ms=0).enter(P0)
    return harness, harness.sent_heartbeat()


def committing() -> tuple[MemberHarness, OffsetCommitRequest]:
    harness = MemberHarness().enter(P0)
    harness.member.positions[P0] = 42
    harness.advance(COMMIT_MS)
    return harness, harness.sent(OffsetCommitRequest)


def fetching_offsets() -> tuple[MemberHarness, OffsetFetchRequest]:
    harness = MemberHarness()
    fetch = harness.assign(harness.follow(harness.start_joining()), P0)
    assert fetch is not None
    return harness, fetch


# Errors of several APIs


def test_requests_are_repeated_at_the_new_coordinator(subtests: pytest.Subtests) -> None:
    """Except for SyncGroup: after an error the member joins again."""
    moved = (E.COORDINATOR_NOT_AVAILABLE, E.NOT_COORDINATOR)
    cases: dict[Callable[[], tuple[MemberHarness, GroupRequest]], tuple[ErrorCode, ...]] = {
        joining: moved,
        heartbeating: moved,
        committing: (*moved, E.REQUEST_TIMED_OUT),
        fetching_offsets: moved,
    }
    for new_member, errors in cases.items():
        for error in errors:
            with subtests.test(new_member.__name__, error=error):
                harness, request = new_member()
                harness.respond_error(request, error)
                assert_rediscovers(harness)
                harness.discovered()
                assert harness.sent(type(request)) == request


def test_errors_that_rejoining_does_not_resolve_are_fatal(subtests: pytest.Subtests) -> None:
    """In SyncGroup, COORDINATOR_LOAD_IN_PROGRESS is fatal, too; Kafka's consumer handles it in all other responses."""
    not_allowed = (E.GROUP_AUTHORIZATION_FAILED, E.FENCED_INSTANCE_ID)
    invalid = (
        E.INCONSISTENT_GROUP_PROTOCOL,
        E.INVALID_GROUP_ID,
        E.INVALID_SESSION_TIMEOUT,
        E.GROUP_MAX_SIZE_REACHED,
        E.UNKNOWN_SERVER_ERROR,
    )
    cases: dict[Callable[[], tuple[MemberHarness, GroupRequest]], tuple[ErrorCode, ...]] = {
        joining: (*not_allowed, *invalid, E.UNSUPPORTED_VERSION),
        syncing: (*not_allowed, *invalid, E.COORDINATOR_LOAD_IN_PROGRESS),
        heartbeating: not_allowed,
        committing: not_allowed,
        fetching_offsets: (E.UNKNOWN_MEMBER_ID, E.GROUP_AUTHORIZATION_FAILED, E.UNKNOWN_SERVER_ERROR),
    }
    for new_member, errors in cases.items():
        for error in errors:
            with subtests.test(new_member.__name__, error=error):
                harness, request = new_member()
                harness.respond_error(request, error)
                assert_fatal(harness, error)


def test_errors_of_single_partitions_in_offset_fetch_are_fatal() -> None:
    for error in (E.UNKNOWN_TOPIC_OR_PARTITION, E.TOPIC_AUTHORIZATION_FAILED):
        harness, fetch = fetching_offsets()
        harness.respond(fetch, offset_fetch_response({P0: -1}, error))
        assert_fatal(harness, error)


# JoinGroup


def test_join_group_is_retried_after_a_back_off_while_the_coordinator_is_loading() -> None:
    harness, join = joining()
    sent_ms = harness.now_ms
    harness.respond_error(join, E.COORDINATOR_LOAD_IN_PROGRESS)
    assert (harness.effects(), harness.state()) == ([], MemberState.JOINING)
    harness.advance(100)
    retry = harness.only(Send)
    assert (retry.request, retry.scheduled_ms) == (join, sent_ms + 100)


def test_an_unknown_member_joins_again_at_once_without_its_member_id() -> None:
    harness, join = joining()
    assert join.member_id == "given"
    harness.respond_error(join, E.UNKNOWN_MEMBER_ID)
    assert harness.sent(JoinGroupRequest).member_id == ""


def test_join_group_is_repeated_at_once_during_a_rebalance() -> None:
    harness, join = joining()
    harness.respond_error(join, E.REBALANCE_IN_PROGRESS)
    assert harness.sent(JoinGroupRequest) == join


def test_a_member_joins_with_the_member_id_that_the_coordinator_requires() -> None:
    harness = MemberHarness()
    first = harness.start_joining()
    assert first.member_id == ""
    harness.respond_error(first, E.MEMBER_ID_REQUIRED)
    assert harness.sent(JoinGroupRequest).member_id == "given"
    assert (harness.member.member_id, harness.member.generation_id) == ("given", -1)


# SyncGroup


def test_a_member_joins_again_at_the_new_coordinator_after_sync_group(subtests: pytest.Subtests) -> None:
    for error in (E.COORDINATOR_NOT_AVAILABLE, E.NOT_COORDINATOR):
        with subtests.test(error=error):
            harness, sync = syncing()
            harness.respond_error(sync, error)
            assert_rediscovers(harness)
            harness.discovered()
            assert harness.sent(JoinGroupRequest).member_id == "m"


def test_sync_group_of_an_earlier_generation_leads_to_another_join(subtests: pytest.Subtests) -> None:
    for error, member_id, generation_id in (
        (E.ILLEGAL_GENERATION, "m", -1),
        (E.UNKNOWN_MEMBER_ID, "", -1),
        (E.REBALANCE_IN_PROGRESS, "m", 5),
    ):
        with subtests.test(error=error):
            harness, sync = syncing()
            harness.respond_error(sync, error)
            assert harness.sent(JoinGroupRequest).member_id == member_id
            assert harness.member.generation_id == generation_id


# Heartbeat


def test_a_member_keeps_its_partitions_and_generation_when_its_coordinator_changes() -> None:
    harness, heartbeat = heartbeating()
    harness.respond_error(heartbeat, E.NOT_COORDINATOR)
    assert_rediscovers(harness)
    assert harness.member.assigned == (P0,)
    harness.discovered()
    assert harness.sent(HeartbeatRequest) == heartbeat
    assert harness.state() is MemberState.PART_OF_GROUP


def test_a_member_whose_heartbeat_is_of_an_ended_generation_loses_its_partitions_and_joins(
    subtests: pytest.Subtests,
) -> None:
    for error, member_id in ((E.ILLEGAL_GENERATION, "m"), (E.UNKNOWN_MEMBER_ID, "")):
        with subtests.test(error=error):
            harness, heartbeat = heartbeating()
            harness.respond_error(heartbeat, error)
            revoked, join = harness.effects()
            assert revoked == Revoked((P0,), True, harness.now_ms)
            assert isinstance(join, Send)
            assert isinstance(join.request, JoinGroupRequest)
            assert (join.request.member_id, harness.member.generation_id) == (member_id, -1)


def test_a_heartbeat_during_a_rebalance_makes_the_member_rejoin() -> None:
    harness, heartbeat = heartbeating()
    harness.respond_error(heartbeat, E.REBALANCE_IN_PROGRESS)
    revoked, join = harness.effects()
    assert revoked == Revoked((P0,), False, harness.now_ms)
    assert isinstance(join, Send)
    assert isinstance(join.request, JoinGroupRequest)
    assert (join.request.member_id, harness.member.generation_id) == ("m", 1)


def test_a_member_that_is_joining_or_syncing_ignores_that_a_rebalance_is_in_progress() -> None:
    harness = MemberHarness(commit_interval_ms=0).enter(P0)
    first, second = harness.sent_heartbeat(), harness.sent_heartbeat()
    harness.respond_error(first, E.REBALANCE_IN_PROGRESS)
    join = harness.sent(JoinGroupRequest)
    harness.respond_error(second, E.REBALANCE_IN_PROGRESS)
    assert (harness.effects(), harness.state()) == ([], MemberState.JOINING)
    harness.follow(join, generation_id=2)
    harness.respond_error(harness.sent_heartbeat(), E.REBALANCE_IN_PROGRESS)
    assert (harness.effects(), harness.state()) == ([], MemberState.SYNCING)


def test_errors_of_heartbeats_of_an_earlier_generation_are_ignored(subtests: pytest.Subtests) -> None:
    for error in (E.ILLEGAL_GENERATION, E.UNKNOWN_MEMBER_ID, E.FENCED_INSTANCE_ID):
        with subtests.test(error=error):
            harness, heartbeat = heartbeating()
            harness.respond_error(harness.sent_heartbeat(), E.REBALANCE_IN_PROGRESS)
            harness.assign(harness.follow(harness.sent(JoinGroupRequest), generation_id=2), P0)
            harness.respond_error(heartbeat, error)
            assert (harness.effects(), harness.state()) == ([], MemberState.PART_OF_GROUP)


def test_after_other_errors_a_heartbeat_is_repeated_after_a_back_off(subtests: pytest.Subtests) -> None:
    for error in (E.COORDINATOR_LOAD_IN_PROGRESS, E.UNKNOWN_SERVER_ERROR, NOT_IN_KAFKA):
        with subtests.test(error=error):
            harness, heartbeat = heartbeating()
            harness.respond_error(heartbeat, error)
            assert harness.effects() == []
            harness.advance(100)
            retry = harness.only(Send)
            assert (retry.request, retry.scheduled_ms) == (heartbeat, harness.now_ms)


# OffsetCommit


def test_a_commit_is_retried_while_the_coordinator_is_loading_or_does_not_know_the_topic(
    subtests: pytest.Subtests,
) -> None:
    for error in (E.COORDINATOR_LOAD_IN_PROGRESS, E.UNKNOWN_TOPIC_OR_PARTITION):
        with subtests.test(error=error):
            harness, commit = committing()
            harness.respond_error(commit, error)
            assert harness.effects() == []
            harness.advance(100)
            assert harness.sent(OffsetCommitRequest) == commit


def test_a_commit_of_an_ended_generation_is_rejected_and_the_member_joins(subtests: pytest.Subtests) -> None:
    for error, member_id in ((E.ILLEGAL_GENERATION, "m"), (E.UNKNOWN_MEMBER_ID, "")):
        with subtests.test(error=error):
            harness, commit = committing()
            harness.respond_error(commit, error)
            rejected, revoked, join = harness.effects()
            assert rejected == CommitRejected(error, harness.now_ms)
            assert revoked == Revoked((P0,), True, harness.now_ms)
            assert isinstance(join, Send)
            assert isinstance(join.request, JoinGroupRequest)
            assert join.request.member_id == member_id


def test_a_commit_during_a_rebalance_is_rejected_and_the_member_rejoins() -> None:
    """The member commits again before it joins, and joins although the second commit is rejected, too."""
    harness, commit = committing()
    harness.respond_error(commit, E.REBALANCE_IN_PROGRESS)
    rejected, last_commit = harness.effects()
    assert rejected == CommitRejected(E.REBALANCE_IN_PROGRESS, harness.now_ms)
    assert isinstance(last_commit, Send)
    harness.respond_error(last_commit.request, E.REBALANCE_IN_PROGRESS)
    assert harness.sent(JoinGroupRequest).member_id == "m"


def test_errors_of_commits_of_an_earlier_generation_are_only_reported(subtests: pytest.Subtests) -> None:
    for error in (E.ILLEGAL_GENERATION, E.UNKNOWN_MEMBER_ID, E.REBALANCE_IN_PROGRESS, E.FENCED_INSTANCE_ID):
        with subtests.test(error=error):
            harness, commit = committing()
            harness.respond_error(harness.sent_heartbeat(), E.UNKNOWN_MEMBER_ID)
            harness.assign(harness.follow(harness.sent(JoinGroupRequest), generation_id=2, member_id="n"), P0)
            harness.respond_error(commit, error)
            assert harness.only(CommitRejected).error is error
            assert harness.state() is MemberState.PART_OF_GROUP


def test_other_errors_of_commits_are_only_reported(subtests: pytest.Subtests) -> None:
    for error in (
        E.OFFSET_METADATA_TOO_LARGE,
        E.INVALID_COMMIT_OFFSET_SIZE,
        E.GROUP_ID_NOT_FOUND,
        E.INCONSISTENT_GROUP_PROTOCOL,
        E.INVALID_GROUP_ID,
        E.INVALID_SESSION_TIMEOUT,
        E.GROUP_MAX_SIZE_REACHED,
        E.TOPIC_AUTHORIZATION_FAILED,
        E.UNKNOWN_SERVER_ERROR,
    ):
        with subtests.test(error=error):
            harness, commit = committing()
            harness.respond_error(commit, error)
            assert harness.only(CommitRejected).error is error
            assert harness.state() is MemberState.PART_OF_GROUP


# OffsetFetch


def test_offsets_are_fetched_again_after_a_back_off_while_loading_or_unstable(subtests: pytest.Subtests) -> None:
    for error in (E.COORDINATOR_LOAD_IN_PROGRESS, E.UNSTABLE_OFFSET_COMMIT):
        with subtests.test(error=error):
            harness, fetch = fetching_offsets()
            harness.respond_error(fetch, error)
            assert (harness.effects(), harness.member.positions) == ([], {})
            harness.advance(100)
            assert harness.sent(OffsetFetchRequest) == fetch


def test_offsets_are_fetched_again_after_a_back_off_while_a_partition_is_unstable() -> None:
    harness, fetch = fetching_offsets()
    harness.respond(fetch, offset_fetch_response({P0: -1}, E.UNSTABLE_OFFSET_COMMIT))
    harness.advance(100)
    assert harness.sent(OffsetFetchRequest) == fetch


# FindCoordinator


def test_look_ups_of_the_coordinator_back_off_up_to_one_second(subtests: pytest.Subtests) -> None:
    for error in (E.COORDINATOR_NOT_AVAILABLE, E.NETWORK_EXCEPTION):
        with subtests.test(error=error):
            harness = MemberHarness()
            harness.member.start(harness.now_ms)
            delays_ms = []
            for _ in range(6):
                failed_ms = harness.now_ms
                harness.only(Discover)
                harness.member.discovery_failed(error, failed_ms)
                due_ms = harness.member.next_deadline()
                assert due_ms is not None
                delays_ms.append(due_ms - failed_ms)
                harness.advance(due_ms - failed_ms)
            assert delays_ms == [100, 200, 400, 800, 1000, 1000]


def test_errors_of_find_coordinator_that_cannot_be_retried_are_fatal(subtests: pytest.Subtests) -> None:
    for error in (E.GROUP_AUTHORIZATION_FAILED, E.INVALID_GROUP_ID):
        with subtests.test(error=error):
            harness = MemberHarness()
            harness.member.start(harness.now_ms)
            harness.only(Discover)
            harness.member.discovery_failed(error, harness.now_ms)
            assert_fatal(harness, error)


# Responses with several errors


def test_errors_of_a_commit_that_concern_more_than_one_partition_take_precedence() -> None:
    def partition(error: int) -> OffsetCommitResponsePartition:
        return OffsetCommitResponsePartition(partition_index=0, error_code=error)

    errors = [E.NONE, E.TOPIC_AUTHORIZATION_FAILED, E.NOT_COORDINATOR]
    topics = [OffsetCommitResponseTopic(name="t", partitions=[partition(error) for error in errors])]
    assert error_in(OffsetCommitResponse(topics=topics)) is E.NOT_COORDINATOR
    topics[0].partitions.pop()
    assert error_in(OffsetCommitResponse(topics=topics)) is E.TOPIC_AUTHORIZATION_FAILED
    assert error_in(OffsetCommitResponse(topics=[])) is E.NONE


def test_the_error_of_an_offset_fetch_before_version_8_is_found() -> None:
    assert error_in(OffsetFetchResponse(error_code=E.NOT_COORDINATOR)) is E.NOT_COORDINATOR
    unstable = OffsetFetchResponsePartition(
        partition_index=0, committed_offset=-1, metadata="", error_code=E.UNSTABLE_OFFSET_COMMIT
    )
    response = OffsetFetchResponse(topics=[OffsetFetchResponseTopic(name="t", partitions=[unstable])])
    assert error_in(response) is E.UNSTABLE_OFFSET_COMMIT


def test_an_error_code_that_kafka_does_not_have_is_an_unknown_server_error() -> None:
    assert error_in(HeartbeatResponse(error_code=NOT_IN_KAFKA)) is E.UNKNOWN_SERVER_ERROR


def test_only_member_id_required_gives_a_member_its_id() -> None:
    takers = [error for error, reaction in REACTIONS[JoinGroupResponse].items() if reaction is Reaction.TAKE_MEMBER_ID]
    assert takers == [E.MEMBER_ID_REQUIRED]
    assert reaction_to(E.MEMBER_ID_REQUIRED, HeartbeatResponse()) is Reaction.RETRY
