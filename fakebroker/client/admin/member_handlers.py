"""The admin client's requests that describe consumer groups (KIP-848) and that remove members from groups."""

from collections.abc import Iterator, Sequence

from fakebroker.client.admin import group_handlers
from fakebroker.client.admin.descriptions import GroupDescription, MemberDescription, Node, Results
from fakebroker.client.admin.driver import AdminApiHandler
from fakebroker.client.coordinators import COORDINATOR_BUSY, COORDINATOR_MOVED
from fakebroker.client.errors import AdminError, GroupError, MemberError, error_code
from fakebroker.client.member.requests import PROTOCOL_TYPE
from fakebroker.errors import ErrorCode
from fakebroker.protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedAssignment,
    DescribedConsumer,
    DescribedConsumerGroup,
)
from fakebroker.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from fakebroker.protocol.schema import replaced
from fakebroker.topic_partition import TopicPartition

NOT_A_CONSUMER_GROUP = (ErrorCode.UNSUPPORTED_VERSION, ErrorCode.GROUP_ID_NOT_FOUND)
"""Errors after which a group is described as a classic one: it is none of KIP-848, or its broker does not know them."""


def describe_groups() -> AdminApiHandler[str, GroupDescription]:
    """Describe groups of both types, groups of KIP-848 first (Kafka's `DescribeConsumerGroupsHandler`)."""

    def read(
        response: ConsumerGroupDescribeResponse, _groups: Sequence[str], coordinator: Node | None
    ) -> Iterator[tuple[str, GroupDescription | AdminError]]:
        assert coordinator is not None
        for group in response.groups:
            error = error_code(group.error_code)
            if error is ErrorCode.NONE:
                yield group.group_id, _described(group, coordinator)
            else:
                yield group.group_id, GroupError(group.group_id, "ConsumerGroupDescribe", error, group.error_message)

    return AdminApiHandler(
        api="ConsumerGroupDescribe",
        request=lambda groups: ConsumerGroupDescribeRequest(
            group_ids=list(groups), include_authorized_operations=False
        ),
        read=read,
        fails=GroupError,
        otherwise=group_handlers.describe_groups(),
        otherwise_after=NOT_A_CONSUMER_GROUP,
    )


def _described(group: DescribedConsumerGroup, coordinator: Node) -> GroupDescription:
    return GroupDescription(
        group_id=group.group_id,
        type="consumer",
        state=group.group_state,
        protocol_type=PROTOCOL_TYPE,
        protocol_name=group.assignor_name,
        members=tuple(_member(member) for member in group.members),
        coordinator=coordinator,
        group_epoch=group.group_epoch,
        assignment_epoch=group.assignment_epoch,
    )


def _member(member: DescribedConsumer) -> MemberDescription:
    return MemberDescription(
        member_id=member.member_id,
        group_instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        metadata=b"",
        assignment=_partitions(member.assignment),
        assignment_data=b"",
        rack_id=member.rack_id,
        member_epoch=member.member_epoch,
        target_assignment=_partitions(member.target_assignment),
        subscribed_topic_names=tuple(sorted(member.subscribed_topic_names)),
        subscribed_topic_regex=member.subscribed_topic_regex or None,
        is_classic=None if member.member_type < 0 else member.member_type == 0,
    )


def _partitions(assignment: DescribedAssignment) -> tuple[TopicPartition, ...]:
    return tuple(sorted((each.topic_name, index) for each in assignment.topic_partitions for index in each.partitions))


def remove_members(
    instance_ids: Sequence[str], member_ids: Sequence[str], reason: str
) -> AdminApiHandler[str, Results[str, None]]:
    """Remove static members by instance id, and other members by member id, in one LeaveGroup (KIP-345)."""
    members = [
        *(MemberIdentity(member_id="", group_instance_id=each, reason=reason) for each in instance_ids),
        *(MemberIdentity(member_id=each, reason=reason) for each in member_ids),
    ]

    def request(groups: Sequence[str]) -> LeaveGroupRequest:
        (group,) = groups
        return LeaveGroupRequest(group_id=group, members=[replaced(each) for each in members])

    def read(
        response: LeaveGroupResponse, groups: Sequence[str], _coordinator: Node | None
    ) -> Iterator[tuple[str, Results[str, None] | AdminError]]:
        (group,) = groups
        error = error_code(response.error_code)
        # Before version 3 the response has the error of the only member.
        is_about_group = error in (*COORDINATOR_BUSY, *COORDINATOR_MOVED) or (error and len(members) > 1)
        if is_about_group:
            yield group, GroupError(group, "LeaveGroup", error)
            return
        errors = [each.error_code for each in response.members] or [response.error_code] * len(members)
        keys = (*instance_ids, *member_ids)
        yield group, Results({key: _removed(key, code) for key, code in zip(keys, errors, strict=True)})

    return AdminApiHandler(api="LeaveGroup", request=request, read=read, fails=GroupError, max_keys=1)


def _removed(key: str, code: int) -> AdminError | None:
    error = error_code(code)
    return None if error is ErrorCode.NONE else MemberError(key, "LeaveGroup", error)
