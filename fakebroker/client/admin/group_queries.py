"""What the admin client asks coordinators: each question with its request, and how its answers are read.

Knows messages in their newest shapes and plain values; no connections.
"""

from collections.abc import Iterator, Sequence

from fakebroker.client.admin.batching import NoBatchedFindCoordinators, Question
from fakebroker.client.admin.descriptions import GroupDescription, MemberDescription, Node
from fakebroker.client.admin.driver import ASK_AGAIN, LOOK_UP_AGAIN
from fakebroker.client.admin.results import AdminError, GroupError, MemberError, Results, TransactionError
from fakebroker.client.member.assignors import TopicPartition
from fakebroker.client.member.reactions import error_code
from fakebroker.client.member.requests import PROTOCOL_TYPE
from fakebroker.client.member.subscription import decode_assignment
from fakebroker.errors import ErrorCode, ProtocolError
from fakebroker.protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from fakebroker.protocol.messages.describe_groups import (
    EXPECTED_TAG,
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from fakebroker.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from fakebroker.protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestMember,
    JoinGroupResponse,
    JoinGroupResponseResult,
)

KEY_TYPES = {"group": 0, "transaction": 1, "share": 2}
"""What coordinators are looked up for (Kafka's `FindCoordinatorRequest.CoordinatorType`)."""

_DEAD = "Dead"


def find_coordinators(key_type: str) -> Question[Node]:
    """Who coordinates groups, or transactions; any broker knows."""
    fails = TransactionError if key_type == "transaction" else GroupError

    def read(
        response: FindCoordinatorResponse, _keys: Sequence[str], _node: Node | None
    ) -> Iterator[tuple[str, Node | AdminError]]:
        for found in response.coordinators:
            error = error_code(found.error_code)
            if error is ErrorCode.NONE:
                yield found.key, Node(found.node_id, found.host, found.port)
            else:
                yield found.key, fails(found.key, "FindCoordinator", error, found.error_message)

    return Question(
        api="FindCoordinator",
        request=lambda keys: FindCoordinatorRequest(coordinator_keys=list(keys), key_type=KEY_TYPES[key_type]),
        read=read,
        fails=fails,
        batched_since=4,
        not_batched=NoBatchedFindCoordinators,
    )


def describe_groups() -> Question[GroupDescription]:
    """Groups with their members. One that is not there is an error in every version, not only from 6 on (KIP-1043)."""

    def read(
        response: DescribeGroupsResponse, _groups: Sequence[str], coordinator: Node | None
    ) -> Iterator[tuple[str, GroupDescription | AdminError]]:
        assert coordinator is not None
        for group in response.groups:
            error = error_code(group.error_code)
            if error is ErrorCode.NONE and group.group_state == _DEAD:
                error = ErrorCode.GROUP_ID_NOT_FOUND
            if error is ErrorCode.NONE:
                yield group.group_id, _described(group, coordinator)
            else:
                yield group.group_id, GroupError(group.group_id, "DescribeGroups", error, group.error_message)

    return Question(
        api="DescribeGroups",
        request=lambda groups: DescribeGroupsRequest(groups=list(groups)),
        read=read,
        fails=GroupError,
    )


def _described(group: DescribedGroup, coordinator: Node) -> GroupDescription:
    return GroupDescription(
        group_id=group.group_id,
        state=group.group_state,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_data,
        members=tuple(_member(member, group.protocol_type) for member in group.members),
        coordinator=coordinator,
    )


def _member(member: DescribedGroupMember, protocol_type: str) -> MemberDescription:
    return MemberDescription(
        member_id=member.member_id,
        group_instance_id=member.group_instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        metadata=member.member_metadata,
        assignment=_assignment(member.member_assignment, protocol_type),
        assignment_data=member.member_assignment,
        is_expected=any(tag == EXPECTED_TAG for tag, _ in member.unknown_tags),
    )


def _assignment(data: bytes, protocol_type: str) -> tuple[TopicPartition, ...] | None:
    """No bytes are no partitions: those of a member that was given none, or has yet to be told."""
    if not data:
        return ()
    try:
        return decode_assignment(data) if protocol_type == PROTOCOL_TYPE else None
    except ProtocolError:
        return None


def delete_groups() -> Question[None]:
    """Groups to be deleted, with all that they have committed (KIP-229)."""

    def read(
        response: DeleteGroupsResponse, _groups: Sequence[str], _coordinator: Node | None
    ) -> Iterator[tuple[str, AdminError | None]]:
        for result in response.results:
            error = error_code(result.error_code)
            failed = error is not ErrorCode.NONE
            yield result.group_id, GroupError(result.group_id, "DeleteGroups", error) if failed else None

    return Question(
        api="DeleteGroups",
        request=lambda groups: DeleteGroupsRequest(groups_names=list(groups)),
        read=read,
        fails=GroupError,
    )


def add_members(
    instance_ids: Sequence[str], session_timeout_ms: int, rebalance_timeout_ms: int
) -> Question[Results[str]]:
    """Static members that a group is to expect, in one JoinGroup: they have no protocols (proposal "batch-join")."""

    def request(groups: Sequence[str]) -> JoinGroupRequest:
        (group,) = groups
        return add_members_request(group, instance_ids, session_timeout_ms, rebalance_timeout_ms)

    def read(
        response: JoinGroupResponse, groups: Sequence[str], _: Node | None
    ) -> Iterator[tuple[str, Results[str] | AdminError]]:
        (group,) = groups
        told = {each.member.group_instance_id: each for each in response.member_join_response_list}
        outcomes = {instance_id: _added(instance_id, told.get(instance_id)) for instance_id in instance_ids}
        yield group, _group_error(group, list(outcomes.values())) or Results(outcomes)

    return Question(api="JoinGroup", request=request, read=read, fails=GroupError, most=1)


def add_members_request(
    group: str, instance_ids: Sequence[str], session_timeout_ms: int, rebalance_timeout_ms: int
) -> JoinGroupRequest:
    """Registers static members that a group is to expect."""
    return JoinGroupRequest(
        group_id=group,
        session_timeout_ms=session_timeout_ms,
        rebalance_timeout_ms=rebalance_timeout_ms,
        protocol_type=PROTOCOL_TYPE,
        join_group_members=[
            JoinGroupRequestMember(member_id="", group_instance_id=instance_id, protocols=[])
            for instance_id in instance_ids
        ],
    )


def _added(instance_id: str, told: JoinGroupResponseResult | None) -> str | AdminError:
    if told is None:
        return MemberError(instance_id, "JoinGroup", ErrorCode.UNKNOWN_SERVER_ERROR, "the broker does not tell of it")
    error = error_code(told.error_code)
    if error is ErrorCode.NONE:
        return told.member.member_id
    known = told.member.member_id
    return MemberError(instance_id, "JoinGroup", error, f"its member id is {known!r}" if known else None)


def _group_error(group: str, outcomes: Sequence[str | AdminError]) -> AdminError | None:
    """The error that the coordinator has for every one of them, if it cannot act for the group now."""
    errors = [outcome.error for outcome in outcomes if isinstance(outcome, AdminError)]
    if len(errors) == len(outcomes) and all(error in (*ASK_AGAIN, *LOOK_UP_AGAIN) for error in errors):
        return GroupError(group, "JoinGroup", errors[0])
    return None
