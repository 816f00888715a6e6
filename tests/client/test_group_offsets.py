"""Commits and look-ups of an application: retries wait longer each time, and never overwrite later commits."""

import pytest

from fakebroker.client.consumer.consumer_core import ConsumerCore
from fakebroker.client.consumer.consumer_settings import ConsumerSettings
from fakebroker.client.consumer.group_offsets import Committer, GroupOffsets, OffsetsRequest
from fakebroker.client.member.reactions import Reaction
from fakebroker.client.member.requests import Identity
from fakebroker.errors import ErrorCode
from fakebroker.protocol.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from fakebroker.protocol.messages.offset_commit import OffsetCommitRequest
from fakebroker.topic_partition import TopicPartition
from tests.support.group_responses import commit_response, committed_offsets

IDENTITY = Identity("g", None)
P0, P1 = ("orders", 0), ("orders", 1)


def respond(offsets: GroupOffsets, request: OffsetsRequest, error: ErrorCode, now_ms: float) -> Reaction | None:
    assert isinstance(request, OffsetCommitRequest)
    return offsets.answered(request, commit_response(request, error), now_ms)


def committed(request: OffsetsRequest) -> dict[TopicPartition, int]:
    assert isinstance(request, OffsetCommitRequest)
    return committed_offsets(request)


def test_a_retry_omits_partitions_that_a_later_commit_contains() -> None:
    offsets = GroupOffsets(retry_backoff_ms=5)
    older = offsets.commit(IDENTITY, {P0: 3, P1: 4})
    newer = offsets.commit(IDENTITY, {P0: 5})
    first, second = offsets.requests(0)
    assert respond(offsets, first, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, 0) is Reaction.RETRY
    assert respond(offsets, second, ErrorCode.NONE, 0) is None
    assert (older.error, newer.error) == (None, ErrorCode.NONE)
    (retry,) = offsets.requests(5)
    assert committed(retry) == {P1: 4}
    respond(offsets, retry, ErrorCode.NONE, 5)
    assert older.error is ErrorCode.NONE
    assert not offsets.is_pending


def test_responses_from_a_lost_coordinator_are_not_awaited() -> None:
    offsets = GroupOffsets(retry_backoff_ms=5)
    offsets.commit(IDENTITY, {P0: 3})
    offsets.look_up(IDENTITY, [P0])
    requests = offsets.requests(0)
    assert [offsets.awaits(request) for request in requests] == [True, True]
    offsets.unanswered(0)
    assert [offsets.awaits(request) for request in requests] == [False, False]
    assert offsets.requests(5) == requests


def test_a_commit_replaced_by_a_later_one_is_not_retried() -> None:
    offsets = GroupOffsets(retry_backoff_ms=5)
    older = offsets.commit(IDENTITY, {P0: 3})
    (first,) = offsets.requests(0)
    offsets.unanswered(0)
    newer = offsets.commit(IDENTITY, {P0: 5})
    assert (older.error, offsets.awaits(first)) == (ErrorCode.NONE, False)
    (only,) = offsets.requests(5)
    assert committed(only) == {P0: 5}
    respond(offsets, only, ErrorCode.NONE, 5)
    assert newer.error is ErrorCode.NONE
    assert offsets.next_deadline() is None


def test_retries_wait_twice_as_long_each_time() -> None:
    offsets, now_ms, waits = GroupOffsets(retry_backoff_ms=5), 0.0, []
    offsets.commit(IDENTITY, {P0: 3})
    for _ in range(4):
        (request,) = offsets.requests(now_ms)
        respond(offsets, request, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, now_ms)
        due_ms = offsets.next_deadline()
        assert due_ms is not None
        waits.append(due_ms - now_ms)
        now_ms = due_ms
    assert waits == [5, 10, 20, 40]


def member(epoch: int, *assigned: TopicPartition) -> Committer:
    return Committer(Identity("g", None, "m", epoch), assigned)


@pytest.mark.parametrize("error", [ErrorCode.NOT_COORDINATOR, ErrorCode.STALE_MEMBER_EPOCH])
def test_a_retry_of_a_member_has_the_epoch_that_it_has_then(error: ErrorCode) -> None:
    offsets = GroupOffsets(retry_backoff_ms=5)
    offsets.commit(member(1).identity, {P0: 3})
    (first,) = offsets.requests(0, member(1, P0))
    assert isinstance(first, OffsetCommitRequest)
    offsets.answered(first, commit_response(first, error), 0, member(2, P0))
    (retry,) = offsets.requests(5, member(2, P0))
    assert isinstance(retry, OffsetCommitRequest)
    assert (retry.generation_id_or_member_epoch, committed(retry)) == (2, {P0: 3})


def test_a_commit_of_partitions_that_have_been_revoked_does_not_get_a_later_epoch() -> None:
    offsets = GroupOffsets(retry_backoff_ms=5)
    operation = offsets.commit(member(1).identity, {P0: 3, P1: 4})
    (first,) = offsets.requests(0, member(2, P1))
    assert isinstance(first, OffsetCommitRequest)
    assert first.generation_id_or_member_epoch == 1
    offsets.answered(first, commit_response(first, ErrorCode.STALE_MEMBER_EPOCH), 0, member(2, P1))
    assert operation.error is ErrorCode.STALE_MEMBER_EPOCH


def test_a_stale_epoch_is_an_error_without_a_later_one() -> None:
    offsets = GroupOffsets(retry_backoff_ms=5)
    operation = offsets.commit(member(1).identity, {P0: 3})
    (first,) = offsets.requests(0, member(1, P0))
    assert isinstance(first, OffsetCommitRequest)
    offsets.answered(first, commit_response(first, ErrorCode.STALE_MEMBER_EPOCH), 0, member(1, P0))
    assert operation.error is ErrorCode.STALE_MEMBER_EPOCH


def test_look_ups_of_the_coordinator_for_commits_wait_twice_as_long_each_time() -> None:
    core = ConsumerCore(ConsumerSettings(group_id="g", retry_backoff_ms=5), lambda: "m")
    core.assign({("orders", 0): 0}, 0)
    core.commit({("orders", 0): 1}, 0)
    failed = Coordinator(key="g", node_id=-1, host="", port=-1, error_code=15, error_message=None)
    now_ms, waits = 0.0, []
    for _ in range(3):
        (look_up,) = [each for each in core.outbound if isinstance(each.request, FindCoordinatorRequest)]
        core.outbound.clear()
        core.answered(look_up, FindCoordinatorResponse(coordinators=[failed]), now_ms)
        due_ms = core.next_deadline()
        assert due_ms is not None
        waits.append(due_ms - now_ms)
        now_ms = due_ms
        core.tick(now_ms)
    assert waits == [5, 10, 20]
