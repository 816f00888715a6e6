"""ConsumerGroupHeartbeat: a member of a consumer group joins, stays or leaves (KIP-848)."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from fakebroker.cluster.authorization import group_error, may_describe, topic_error
from fakebroker.cluster.call import Call
from fakebroker.cluster.configs.settings import KIP_848
from fakebroker.cluster.features import GROUP_VERSION
from fakebroker.coordinator.consumer.heartbeat import ConsumerGroupHeartbeat, HeartbeatResult
from fakebroker.coordinator.consumer.member import Partitions
from fakebroker.errors import ErrorCode
from fakebroker.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    HeartbeatAssignment,
    HeartbeatTopicPartitions,
)
from fakebroker.protocol.releases import Release
from fakebroker.protocol.schema import Message
from fakebroker.security.acls import AclOperation

if TYPE_CHECKING:
    from fakebroker.cluster.cluster import Cluster


def handle(cluster: "Cluster", call: Call, now_ms: float) -> Message | None:
    if not is_enabled(cluster, call):
        return ConsumerGroupHeartbeatResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    if cluster.acls is not None and (error := _error(cluster, call)):
        return ConsumerGroupHeartbeatResponse(error_code=error)
    request: ConsumerGroupHeartbeatRequest = call.request
    if call.broker.release < _CHECKS_REQUESTS_FIRST and (error := call.broker.coordinator.error_for(request.group_id)):
        return ConsumerGroupHeartbeatResponse(error_code=error)
    if is_bare(request) and (interval_ms := _extend_session(call, request, now_ms)) is not None:
        return ConsumerGroupHeartbeatResponse(
            error_code=_NONE,
            member_id=request.member_id,
            member_epoch=request.member_epoch,
            heartbeat_interval_ms=interval_ms,
        )
    return response_of(call.broker.coordinator.consumer_group_heartbeat(_heartbeat(cluster, call), now_ms))


_NONE = ErrorCode.NONE

_CHECKS_REQUESTS_FIRST = Release(4, 1)
"""Before, the coordinator of the group checks requests; other brokers reject all of them."""

HIDES_TOPICS = Release(4, 0)
"""The first release that refuses consumers and admins that may not describe the topics of a group."""


def _error(cluster: "Cluster", call: Call) -> ErrorCode:
    """Return the error if the client may not read the group, or may not describe a topic that it subscribes to."""
    request: ConsumerGroupHeartbeatRequest = call.request
    if error := group_error(cluster, call, AclOperation.READ, request.group_id):
        return error
    names = (request.subscribed_topic_names or ()) if call.broker.release >= HIDES_TOPICS else ()
    hidden = any(topic_error(cluster, call, AclOperation.DESCRIBE, name) for name in dict.fromkeys(names))
    return ErrorCode.TOPIC_AUTHORIZATION_FAILED if hidden else ErrorCode.NONE


def is_enabled(cluster: "Cluster", call: Call) -> bool:
    """Return whether a broker handles the requests of consumer groups: by setting, and since 4.0 also by feature."""
    if not call.broker.coordinator.config.consumer.is_enabled:
        return False
    return cluster.features.level(GROUP_VERSION) >= 1 or call.broker.release < KIP_848


def is_bare(request: ConsumerGroupHeartbeatRequest) -> bool:
    """Return whether a request reports nothing: the member has what it had, and wants what it wanted."""
    return (
        request.topic_partitions is None
        and request.subscribed_topic_names is None
        and request.subscribed_topic_regex is None
        and request.rebalance_timeout_ms == -1
        and request.server_assignor is None
        and request.rack_id is None
    )


def _extend_session(call: Call, request: ConsumerGroupHeartbeatRequest, now_ms: float) -> int | None:
    peer = call.peer
    return peer.broker.coordinator.groups.consumer.extend_session(
        request.group_id,
        request.member_id,
        request.member_epoch,
        request.instance_id,
        (call.client_id, peer.client_host),
        now_ms,
    )


def _heartbeat(cluster: "Cluster", call: Call) -> ConsumerGroupHeartbeat:
    heartbeat = heartbeat_of(call.request, call.client_id, call.peer.client_host)
    heartbeat.may_describe = may_describe(cluster, call)
    heartbeat.requires_member_id = call.api_version >= 1
    return heartbeat


def heartbeat_of(request: ConsumerGroupHeartbeatRequest, client_id: str, client_host: str) -> ConsumerGroupHeartbeat:
    """Convert a request to plain data."""
    names, owned = request.subscribed_topic_names, request.topic_partitions
    return ConsumerGroupHeartbeat(
        group_id=request.group_id,
        member_id=request.member_id,
        member_epoch=request.member_epoch,
        client_id=client_id,
        client_host=client_host,
        instance_id=request.instance_id,
        rack_id=request.rack_id,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        subscribed_topic_names=None if names is None else tuple(names),
        subscribed_topic_regex=request.subscribed_topic_regex,
        server_assignor=request.server_assignor,
        owned=None if owned is None else _partitions(owned),
    )


def _partitions(owned: Iterable[HeartbeatTopicPartitions]) -> Partitions:
    """Convert the reported partitions. A topic without partitions stays, because checks depend on it."""
    partitions: dict[bytes, frozenset[int]] = {}
    for each in owned:
        partitions[each.topic_id] = partitions.get(each.topic_id, frozenset()).union(each.partitions)
    return partitions


def response_of(result: HeartbeatResult) -> ConsumerGroupHeartbeatResponse:
    """Convert a result to a response."""
    if result.error:
        # Errors that are not about the request have no message (Kafka's `ApiError.fromThrowable`).
        return ConsumerGroupHeartbeatResponse(error_code=result.error, error_message=result.message)
    return ConsumerGroupHeartbeatResponse(
        error_code=result.error,
        member_id=result.member_id,
        member_epoch=result.member_epoch,
        heartbeat_interval_ms=result.heartbeat_interval_ms,
        assignment=None if result.assignment is None else _assignment(result.assignment),
    )


def _assignment(partitions: Partitions) -> HeartbeatAssignment:
    return HeartbeatAssignment(
        topic_partitions=[
            HeartbeatTopicPartitions(topic_id=topic_id, partitions=sorted(indexes))
            for topic_id, indexes in partitions.items()
        ]
    )
