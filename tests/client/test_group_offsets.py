"""What an application commits and asks for: tried again at the coordinator, but never so that old news win."""

from fakebroker.client.consumer.group_offsets import GroupOffsets, OffsetsRequest
from fakebroker.client.member.reactions import Reaction
from fakebroker.client.member.requests import Identity
from fakebroker.errors import ErrorCode
from fakebroker.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

WHO = Identity("g", None)
P0, P1 = ("orders", 0), ("orders", 1)


def answer(error: ErrorCode) -> OffsetCommitResponse:
    partition = OffsetCommitResponsePartition(partition_index=0, error_code=error)
    return OffsetCommitResponse(topics=[OffsetCommitResponseTopic(name="orders", partitions=[partition])])


def committed(request: OffsetsRequest) -> dict[int, int]:
    assert isinstance(request, OffsetCommitRequest)
    return {each.partition_index: each.committed_offset for topic in request.topics for each in topic.partitions}


def test_a_commit_that_is_tried_again_leaves_out_what_a_later_one_has_committed() -> None:
    offsets = GroupOffsets(retry_backoff_ms=5)
    older = offsets.commit(WHO, {P0: 3, P1: 4})
    newer = offsets.commit(WHO, {P0: 5})
    first, second = offsets.requests(0)
    assert offsets.answered(first, answer(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS), 0) is Reaction.RETRY
    assert offsets.answered(second, answer(ErrorCode.NONE), 0) is None
    assert (older.error, newer.error) == (None, ErrorCode.NONE)
    (again,) = offsets.requests(5)
    assert committed(again) == {1: 4}
    offsets.answered(again, answer(ErrorCode.NONE), 5)
    assert older.error is ErrorCode.NONE
    assert not offsets.is_pending


def test_what_is_to_be_sent_again_is_not_awaited_from_whom_it_was_sent_to_first() -> None:
    offsets = GroupOffsets(retry_backoff_ms=5)
    offsets.commit(WHO, {P0: 3})
    offsets.look_up(WHO, [P0])
    requests = offsets.requests(0)
    assert [offsets.awaits(request) for request in requests] == [True, True]
    offsets.unanswered(0)
    assert [offsets.awaits(request) for request in requests] == [False, False]
    assert offsets.requests(5) == requests


def test_a_commit_that_a_later_one_has_replaced_is_not_tried_again() -> None:
    offsets = GroupOffsets(retry_backoff_ms=5)
    older = offsets.commit(WHO, {P0: 3})
    (first,) = offsets.requests(0)
    offsets.unanswered(0)
    newer = offsets.commit(WHO, {P0: 5})
    assert (older.error, offsets.awaits(first)) == (ErrorCode.NONE, False)
    (only,) = offsets.requests(5)
    assert committed(only) == {0: 5}
    offsets.answered(only, answer(ErrorCode.NONE), 5)
    assert newer.error is ErrorCode.NONE
    assert offsets.next_deadline() is None
