"""ListGroups: the groups that this broker coordinates, optionally filtered by state (KIP-518) and type (KIP-848)."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from fakebroker.cluster.call import Call
from fakebroker.coordinator.group.classic.group import Group
from fakebroker.errors import ErrorCode
from fakebroker.protocol.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from fakebroker.protocol.releases import Release

if TYPE_CHECKING:
    from fakebroker.cluster.cluster import Cluster

_CLASSIC = "classic"
"""The type of every group."""


def handle(cluster: "Cluster", call: Call, now_ms: float) -> ListGroupsResponse:
    coordinator = call.broker.coordinator
    error = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if coordinator.is_loading else ErrorCode.NONE
    # Before Kafka 4.0, the response had both the error and the loaded groups (GroupCoordinator.handleListGroups).
    if error and call.broker.release >= Release(4, 0):
        return ListGroupsResponse(error_code=error, groups=[])
    groups = [_listed(group) for group in _filtered(call.request, coordinator.groups())]
    return ListGroupsResponse(error_code=error, groups=groups)


def _filtered(request: ListGroupsRequest, groups: Iterable[Group]) -> list[Group]:
    """Return the groups that match the filters of a request.

    Filters are case-insensitive. Unknown states and types match no group. Spaces around states are ignored.
    """
    states = [state.lower().strip() for state in request.states_filter]
    types = [group_type.lower() for group_type in request.types_filter]
    if types and _CLASSIC not in types:
        return []
    return [group for group in groups if not states or group.state.value.lower() in states]


def _listed(group: Group) -> ListedGroup:
    return ListedGroup(
        group_id=group.group_id,
        protocol_type=group.protocol_type or "",
        group_state=group.state.value,
        group_type=_CLASSIC,
    )
