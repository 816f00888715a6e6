"""DescribeGroups: the states and members of groups.

A group that does not exist, or is a consumer group (KIP-848), is described as Dead; from version 6 on it also has an
error (KIP-1043).
"""

from typing import TYPE_CHECKING

from fakebroker.cluster.authorization import group_error, operations
from fakebroker.cluster.call import Call
from fakebroker.coordinator.classic.extension import ReservedPlace
from fakebroker.coordinator.classic.group import Group, Member
from fakebroker.coordinator.classic.states import DEAD, STABLE
from fakebroker.errors import ErrorCode
from fakebroker.protocol.messages.describe_groups import (
    EXPECTED_TAG,
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from fakebroker.protocol.releases import Release
from fakebroker.security.acls import AclOperation, ResourceType

if TYPE_CHECKING:
    from fakebroker.cluster.cluster import Cluster


def handle(cluster: "Cluster", call: Call, now_ms: float) -> DescribeGroupsResponse:
    request: DescribeGroupsRequest = call.request
    groups = [
        _without_members(group_id, "", error)
        if (error := group_error(cluster, call, AclOperation.DESCRIBE, group_id))
        else _described(call, group_id)
        for group_id in request.groups
    ]
    if request.include_authorized_operations:
        for group in groups:
            if not group.error_code:
                group.authorized_operations = operations(cluster, call, ResourceType.GROUP, group.group_id)
    return DescribeGroupsResponse(groups=groups)


def _described(call: Call, group_id: str) -> DescribedGroup:
    group = call.broker.coordinator.groups.classic.get(group_id)
    if group is not None:
        return _found(call, group)
    if error := call.broker.coordinator.error_for(group_id):
        return _without_members(group_id, "", error)
    missing = _without_members(group_id, DEAD.value)
    if call.api_version >= 6:
        missing.error_code = ErrorCode.GROUP_ID_NOT_FOUND
        is_consumer_group = group_id in call.broker.coordinator.groups.consumer
        reason = "is not a classic group" if is_consumer_group else "not found"
        missing.error_message = f"Group {group_id} {reason}."
    return missing


def _without_members(group_id: str, state: str, error: ErrorCode = ErrorCode.NONE) -> DescribedGroup:
    return DescribedGroup(
        error_code=error, group_id=group_id, group_state=state, protocol_type="", protocol_data="", members=[]
    )


def _found(call: Call, group: Group) -> DescribedGroup:
    """Describe an existing group. Its protocol and the metadata of members are included only in state Stable."""
    is_stable = group.state is STABLE
    # Before Kafka 4.0, assignments were also included only in state Stable (GroupMetadata.summary).
    has_assignments = is_stable or call.broker.release >= Release(4, 0)
    protocol_name = (group.protocol_name or "") if is_stable else ""
    return DescribedGroup(
        error_code=ErrorCode.NONE,
        group_id=group.group_id,
        group_state=group.state.value,
        protocol_type=group.protocol_type or "",
        protocol_data=protocol_name,
        members=[
            _member(
                member,
                metadata=member.metadata_for(protocol_name) if is_stable else b"",
                assignment=member.assignment if has_assignments else b"",
            )
            for member in group.members.values()
        ]
        + [_reserved(call, place) for place in group.extension.reserved_places],
    )


def _reserved(call: Call, place: ReservedPlace) -> DescribedGroupMember:
    """Describe a member that is expected. A tag distinguishes it from members, in versions that have tags."""
    member = DescribedGroupMember(
        member_id=place.member_id,
        group_instance_id=place.instance_id,
        client_id=place.client_id,
        client_host=place.client_host,
        member_metadata=b"",
        member_assignment=b"",
    )
    if call.api_version in DescribeGroupsResponse.FLEXIBLE:
        member.unknown_tags = ((EXPECTED_TAG, b""),)
    return member


def _member(member: Member, metadata: bytes, assignment: bytes) -> DescribedGroupMember:
    return DescribedGroupMember(
        member_id=member.member_id,
        group_instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        member_metadata=metadata,
        member_assignment=assignment,
    )
