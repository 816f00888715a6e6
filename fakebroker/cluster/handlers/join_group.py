"""JoinGroup: join a group. The coordinator parks the request until the members of the generation are known."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from fakebroker.cluster.authorization import group_error, may_describe
from fakebroker.cluster.call import Call
from fakebroker.coordinator.classic.group import join_error
from fakebroker.protocol.messages.join_group import JoinGroupRequest
from fakebroker.protocol.schema import Message, replaced
from fakebroker.security.acls import AclOperation

if TYPE_CHECKING:
    from fakebroker.cluster.cluster import Cluster

_LONGEST_NAME_BYTES = 32767 - 37
"""The longest client id or instance id from which a member id can be made: a hyphen and a UUID are appended to it."""


def handle(cluster: "Cluster", call: Call, now_ms: float) -> Message | None:
    request: JoinGroupRequest = call.request
    if cluster.acls is not None and (error := group_error(cluster, call, AclOperation.READ, request.group_id)):
        return join_error(call, error)
    if is_refused(cluster, call, (request.group_instance_id or "",), now_ms):
        return None
    if call.api_version == 0:  # It has one timeout for sessions and rebalances.
        request = replaced(request, rebalance_timeout_ms=request.session_timeout_ms)
    call.may_describe = may_describe(cluster, call)
    call.broker.coordinator.join_group(request, call, now_ms)
    return None


def is_refused(cluster: "Cluster", call: Call, instance_ids: Iterable[str], now_ms: float) -> bool:
    """Refuse a join if its client id or an instance id is too long to make a member id of it."""
    if not (_is_too_long(call.client_id) or any(map(_is_too_long, instance_ids))):
        return False
    # In Kafka, the response to such a join cannot be serialized, and the member stays in the group.
    reason = f"client id or instance id is too long: expected at most {_LONGEST_NAME_BYTES} bytes"
    cluster.requests.refuse(call, reason, now_ms)
    return True


def _is_too_long(name: str) -> bool:
    return 4 * len(name) > _LONGEST_NAME_BYTES and len(name.encode()) > _LONGEST_NAME_BYTES
