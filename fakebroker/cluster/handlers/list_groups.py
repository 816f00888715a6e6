"""ListGroups: the groups that this broker coordinates, optionally filtered by state (KIP-518) and type (KIP-848)."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from fakebroker.cluster.authorization import cluster_error, group_error
from fakebroker.cluster.call import Call
from fakebroker.coordinator.classic.group import Group
from fakebroker.coordinator.classic.states import CONSUMER_PROTOCOL_TYPE
from fakebroker.coordinator.consumer.group import ConsumerGroup
from fakebroker.errors import ErrorCode
from fakebroker.protocol.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from fakebroker.protocol.releases import Release
from fakebroker.security.acls import AclOperation

if TYPE_CHECKING:
    from fakebroker.cluster.cluster import Cluster

_CLASSIC, _CONSUMER = "classic", "consumer"
"""The types of groups."""


def handle(cluster: "Cluster", call: Call, now_ms: float) -> ListGroupsResponse:
    coordinator = call.broker.coordinator
    error = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if coordinator.is_loading else ErrorCode.NONE
    # Before Kafka 4.0, the response had both the error and the loaded groups (GroupCoordinator.handleListGroups).
    if error and call.broker.release >= Release(4, 0):
        return ListGroupsResponse(error_code=error, groups=[])
    listed = (_listed(group) for group in coordinator.groups)
    groups = _filtered(call.request, listed)
    if cluster_error(cluster, call, AclOperation.DESCRIBE):
        groups = [each for each in groups if not group_error(cluster, call, AclOperation.DESCRIBE, each.group_id)]
    return ListGroupsResponse(error_code=error, groups=groups)


def _filtered(request: ListGroupsRequest, groups: Iterable[ListedGroup]) -> list[ListedGroup]:
    """Return the groups that match the filters of a request.

    Filters are case-insensitive. Unknown states and types match no group. Spaces around states are ignored.
    """
    states = [state.lower().strip() for state in request.states_filter]
    types = [group_type.lower() for group_type in request.types_filter]
    return [
        group
        for group in groups
        if (not states or group.group_state.lower() in states) and (not types or group.group_type in types)
    ]


def _listed(group: Group | ConsumerGroup) -> ListedGroup:
    if isinstance(group, ConsumerGroup):
        protocol_type, group_type = CONSUMER_PROTOCOL_TYPE, _CONSUMER
    else:
        protocol_type, group_type = group.protocol_type or "", _CLASSIC
    return ListedGroup(
        group_id=group.group_id, protocol_type=protocol_type, group_state=group.state.value, group_type=group_type
    )
