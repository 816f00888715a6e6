"""ConsumerGroupHeartbeat: a member of a consumer group joins, stays or leaves (KIP-848)."""

from typing import TYPE_CHECKING

from fakebroker.cluster.authorization import group_error, may_describe, topic_error
from fakebroker.cluster.call import Call
from fakebroker.cluster.configs.settings import KIP_848
from fakebroker.cluster.features import GROUP_VERSION
from fakebroker.errors import ErrorCode
from fakebroker.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
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
    call.may_describe = may_describe(cluster, call)
    return call.broker.coordinator.consumer_group_heartbeat(call.request, call, now_ms)


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
