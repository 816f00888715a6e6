"""Conversion between protocol messages and the coordinator's requests and results, for tests without a broker."""

from fakebroker.coordinator.api import JoinGroup, JoinResult, SyncGroup, SyncResult
from fakebroker.coordinator.consumer.heartbeat import ConsumerGroupHeartbeat, HeartbeatResult
from fakebroker.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    HeartbeatAssignment,
    HeartbeatTopicPartitions,
)
from fakebroker.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse, JoinGroupResponseMember
from fakebroker.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse


def to_join_group(request: JoinGroupRequest, client_id: str) -> JoinGroup:
    """Convert a JoinGroup request of the newest version, which requires a member id and supports skipAssignment."""
    return JoinGroup(
        member_id=request.member_id,
        instance_id=request.group_instance_id,
        client_id=client_id,
        client_host="/127.0.0.1",
        session_timeout_ms=request.session_timeout_ms,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        protocol_type=request.protocol_type,
        protocols=tuple((protocol.name, protocol.metadata) for protocol in request.protocols),
        requires_member_id=True,
        supports_skip_assignment=True,
    )


def to_sync_group(request: SyncGroupRequest) -> SyncGroup:
    """Convert a SyncGroup request."""
    return SyncGroup(
        generation_id=request.generation_id,
        member_id=request.member_id,
        instance_id=request.group_instance_id,
        protocol_type=request.protocol_type,
        protocol_name=request.protocol_name,
        assignments=tuple((item.member_id, item.assignment) for item in request.assignments),
    )


def to_consumer_group_heartbeat(request: ConsumerGroupHeartbeatRequest, client_id: str) -> ConsumerGroupHeartbeat:
    """Convert a ConsumerGroupHeartbeat request of the newest version."""
    names, owned = request.subscribed_topic_names, request.topic_partitions
    return ConsumerGroupHeartbeat(
        group_id=request.group_id,
        member_id=request.member_id,
        member_epoch=request.member_epoch,
        client_id=client_id,
        client_host="/127.0.0.1",
        instance_id=request.instance_id,
        rack_id=request.rack_id,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        subscribed_topic_names=None if names is None else tuple(names),
        subscribed_topic_regex=request.subscribed_topic_regex,
        server_assignor=request.server_assignor,
        owned=None if owned is None else {topic.topic_id: frozenset(topic.partitions) for topic in owned},
        requires_member_id=True,
    )


def to_heartbeat_response(result: HeartbeatResult) -> ConsumerGroupHeartbeatResponse:
    """Convert the result of a ConsumerGroupHeartbeat to its response."""
    assigned = None
    if result.assignment is not None:
        topics = result.assignment.items()
        assigned = HeartbeatAssignment(
            topic_partitions=[HeartbeatTopicPartitions(topic_id=each, partitions=sorted(some)) for each, some in topics]
        )
    return ConsumerGroupHeartbeatResponse(
        error_code=result.error,
        error_message=result.message,
        member_id=result.member_id,
        member_epoch=result.member_epoch,
        heartbeat_interval_ms=result.heartbeat_interval_ms,
        assignment=assigned,
    )


def to_response(result: JoinResult | SyncResult) -> JoinGroupResponse | SyncGroupResponse:
    """Convert the result of a JoinGroup or SyncGroup to its response."""
    if isinstance(result, SyncResult):
        return SyncGroupResponse(
            error_code=result.error,
            protocol_type=result.protocol_type,
            protocol_name=result.protocol_name,
            assignment=result.assignment,
        )
    return JoinGroupResponse(
        error_code=result.error,
        generation_id=result.generation_id,
        protocol_type=result.protocol_type,
        protocol_name=result.protocol_name,
        leader=result.leader,
        skip_assignment=result.skip_assignment,
        member_id=result.member_id,
        members=[
            JoinGroupResponseMember(member_id=m.member_id, group_instance_id=m.instance_id, metadata=m.metadata)
            for m in result.members
        ],
    )
