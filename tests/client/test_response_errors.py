"""Which of the errors in a response is the one that counts."""

from fakebroker.client.member.reactions import REACTIONS, Reaction, error_in, reaction_to
from fakebroker.errors import ErrorCode
from fakebroker.protocol.messages.heartbeat import HeartbeatResponse
from fakebroker.protocol.messages.join_group import JoinGroupResponse
from fakebroker.protocol.messages.offset_commit import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from fakebroker.protocol.messages.offset_fetch import (
    OffsetFetchResponse,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)


def test_the_error_of_a_commit_is_the_first_that_is_not_a_topics_own() -> None:
    def partition(error: int) -> OffsetCommitResponsePartition:
        return OffsetCommitResponsePartition(partition_index=0, error_code=error)

    topics = [OffsetCommitResponseTopic(name="t", partitions=[partition(0), partition(29), partition(16)])]
    assert error_in(OffsetCommitResponse(topics=topics)) is ErrorCode.NOT_COORDINATOR
    topics[0].partitions.pop()
    assert error_in(OffsetCommitResponse(topics=topics)) is ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert error_in(OffsetCommitResponse(topics=[])) is ErrorCode.NONE


def test_the_error_of_a_fetch_is_found_in_old_versions_too() -> None:
    assert error_in(OffsetFetchResponse(error_code=16)) is ErrorCode.NOT_COORDINATOR
    partition = OffsetFetchResponsePartition(partition_index=0, committed_offset=-1, metadata="", error_code=88)
    old = OffsetFetchResponse(topics=[OffsetFetchResponseTopic(name="t", partitions=[partition])])
    assert error_in(old) is ErrorCode.UNSTABLE_OFFSET_COMMIT


def test_a_code_that_kafka_does_not_have_is_an_unknown_server_error() -> None:
    assert error_in(HeartbeatResponse(error_code=999)) is ErrorCode.UNKNOWN_SERVER_ERROR


def test_a_join_takes_an_id_from_nothing_but_member_id_required() -> None:
    takers = [error for error, reaction in REACTIONS[JoinGroupResponse].items() if reaction is Reaction.TAKE_MEMBER_ID]
    assert takers == [ErrorCode.MEMBER_ID_REQUIRED]
    assert reaction_to(ErrorCode.MEMBER_ID_REQUIRED, HeartbeatResponse()) is Reaction.RETRY
