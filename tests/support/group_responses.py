"""Builders of responses to a group member's requests, and readers of such requests.

Messages have the fields of their newest versions; the group is "g".
"""

from collections.abc import Mapping

from fakebroker.client.member.effects import GroupRequest, GroupResponse
from fakebroker.proposals.consumer_rewrite.messages import RewriteJoinGroupRequest, RewriteJoinGroupResponse
from fakebroker.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from fakebroker.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from fakebroker.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from fakebroker.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from fakebroker.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from fakebroker.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from fakebroker.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from fakebroker.topic_partition import TopicPartition, by_topic


def join_response(member_id: str, leader: str, generation_id: int = 1) -> JoinGroupResponse:
    """Build a JoinGroup response without a list of members, as followers receive it."""
    return JoinGroupResponse(
        generation_id=generation_id,
        protocol_type="consumer",
        protocol_name="range",
        leader=leader,
        member_id=member_id,
        members=[],
    )


def commit_response(request: OffsetCommitRequest, error: int = 0) -> OffsetCommitResponse:
    """Build the response to a commit, with the same error for each partition."""
    topics = [
        OffsetCommitResponseTopic(
            name=topic.name,
            partitions=[
                OffsetCommitResponsePartition(partition_index=partition.partition_index, error_code=error)
                for partition in topic.partitions
            ],
        )
        for topic in request.topics
    ]
    return OffsetCommitResponse(topics=topics)


def offset_fetch_response(offsets: Mapping[TopicPartition, int], error: int = 0) -> OffsetFetchResponse:
    """Build a response with these committed offsets (-1 is none), and the same error for each partition."""
    topics = [
        OffsetFetchResponseTopics(
            name=topic,
            partitions=[
                OffsetFetchResponsePartitions(
                    partition_index=index, committed_offset=offsets[topic, index], metadata="", error_code=error
                )
                for index in indexes
            ],
        )
        for topic, indexes in by_topic(offsets).items()
    ]
    return OffsetFetchResponse(groups=[OffsetFetchResponseGroup(group_id="g", topics=topics)])


def error_response(request: GroupRequest, error: int) -> GroupResponse:
    """Build the response to a request with an error, in the error field of the API."""
    match request:
        case JoinGroupRequest():
            return JoinGroupResponse(error_code=error, protocol_name=None, leader="", member_id="given", members=[])
        case SyncGroupRequest():
            return SyncGroupResponse(error_code=error, assignment=b"")
        case HeartbeatRequest():
            return HeartbeatResponse(error_code=error)
        case OffsetCommitRequest():
            return commit_response(request, error)
        case OffsetFetchRequest():
            return OffsetFetchResponse(groups=[OffsetFetchResponseGroup(group_id="g", topics=[], error_code=error)])
        case LeaveGroupRequest():
            return LeaveGroupResponse(error_code=error)
        case ConsumerGroupHeartbeatRequest():
            return ConsumerGroupHeartbeatResponse(error_code=error, error_message="the reason" if error else None)
        case RewriteJoinGroupRequest():
            return RewriteJoinGroupResponse(error_code=error, partitions_to_own=[])


def committed_offsets(request: OffsetCommitRequest) -> dict[TopicPartition, int]:
    """Return the offsets that a request commits."""
    return {(t.name, p.partition_index): p.committed_offset for t in request.topics for p in t.partitions}


def requested_partitions(request: OffsetFetchRequest) -> list[TopicPartition]:
    """Return the partitions whose offsets a request fetches, for a request about one group."""
    topics = request.groups[0].topics or []
    return [(topic.name, index) for topic in topics for index in topic.partition_indexes]
