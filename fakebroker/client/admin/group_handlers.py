"""The admin client's requests about groups to coordinators: building them, and reading the responses."""

from collections.abc import Iterator, Sequence

from fakebroker.client import coordinators
from fakebroker.client.admin.descriptions import GroupDescription, MemberDescription, Node, Results
from fakebroker.client.admin.driver import AdminApiHandler
from fakebroker.client.errors import (
    AdminError,
    GroupError,
    MemberError,
    NoBatchedFindCoordinators,
    TransactionError,
    error_code,
)
from fakebroker.client.member.requests import PROTOCOL_TYPE
from fakebroker.errors import ErrorCode, ProtocolError
from fakebroker.proposals.batch_join.messages import (
    BatchJoinGroupRequest,
    BatchJoinGroupRequestMember,
    BatchJoinGroupResponse,
    BatchJoinGroupResponseResult,
)
from fakebroker.protocol.consumer_protocol import decode_assignment
from fakebroker.protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from fakebroker.protocol.messages.describe_groups import (
    EXPECTED_TAG,
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from fakebroker.protocol.messages.find_coordinator import FindCoordinatorResponse
from fakebroker.topic_partition import TopicPartition

_DEAD = "Dead"


def find_coordinators(key_type: str) -> AdminApiHandler[str, Node]:
    """Look up the coordinators of groups or transactions; any broker answers."""
    fails = TransactionError if key_type == "transaction" else GroupError

    def read(
        response: FindCoordinatorResponse, keys: Sequence[str], _node: Node | None
    ) -> Iterator[tuple[str, Node | AdminError]]:
        for found in response.coordinators:
            error = error_code(found.error_code)
            if error is ErrorCode.NONE:
                yield found.key, Node(found.node_id, found.host, found.port)
            else:
                yield found.key, fails(found.key, "FindCoordinator", error, found.error_message)

    return AdminApiHandler(
        api="FindCoordinator",
        request=lambda keys: coordinators.find_coordinators(keys, key_type),
        read=read,
        fails=fails,
        not_batched=NoBatchedFindCoordinators,
    )


def describe_groups() -> AdminApiHandler[str, GroupDescription]:
    """Describe classic groups. A missing group is an error in every version, not only since version 6 (KIP-1043)."""

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

    return AdminApiHandler(
        api="DescribeGroups",
        request=lambda groups: DescribeGroupsRequest(groups=list(groups)),
        read=read,
        fails=GroupError,
    )


def _described(group: DescribedGroup, coordinator: Node) -> GroupDescription:
    return GroupDescription(
        group_id=group.group_id,
        type="classic",
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
    """Decode an assignment of the consumer protocol; None for other bytes. Empty bytes mean no partitions."""
    if not data:
        return ()
    try:
        return decode_assignment(data) if protocol_type == PROTOCOL_TYPE else None
    except ProtocolError:
        return None


def delete_groups() -> AdminApiHandler[str, None]:
    """Delete groups with their committed offsets (KIP-229)."""

    def read(
        response: DeleteGroupsResponse, _groups: Sequence[str], _coordinator: Node | None
    ) -> Iterator[tuple[str, AdminError | None]]:
        for result in response.results:
            error = error_code(result.error_code)
            failed = error is not ErrorCode.NONE
            yield result.group_id, GroupError(result.group_id, "DeleteGroups", error) if failed else None

    return AdminApiHandler(
        api="DeleteGroups",
        request=lambda groups: DeleteGroupsRequest(groups_names=list(groups)),
        read=read,
        fails=GroupError,
    )


def add_members(
    instance_ids: Sequence[str], session_timeout_ms: int, rebalance_timeout_ms: int
) -> AdminApiHandler[str, Results[str, str]]:
    """Register the static members that a group expects, in one JoinGroup without protocols (proposal "batch-join")."""

    def request(groups: Sequence[str]) -> BatchJoinGroupRequest:
        (group,) = groups
        return add_members_request(group, instance_ids, session_timeout_ms, rebalance_timeout_ms)

    def read(
        response: BatchJoinGroupResponse, groups: Sequence[str], _: Node | None
    ) -> Iterator[tuple[str, Results[str, str] | AdminError]]:
        (group,) = groups
        results = {each.member.group_instance_id: each for each in response.member_join_response_list}
        outcomes = {instance_id: _added(instance_id, results.get(instance_id)) for instance_id in instance_ids}
        yield group, _group_error(group, list(outcomes.values())) or Results(outcomes)

    return AdminApiHandler(api="JoinGroup", request=request, read=read, fails=GroupError, max_keys=1)


def add_members_request(
    group: str, instance_ids: Sequence[str], session_timeout_ms: int, rebalance_timeout_ms: int
) -> BatchJoinGroupRequest:
    """Return the JoinGroup that registers the static members that a group expects."""
    return BatchJoinGroupRequest(
        group_id=group,
        session_timeout_ms=session_timeout_ms,
        rebalance_timeout_ms=rebalance_timeout_ms,
        protocol_type=PROTOCOL_TYPE,
        join_group_members=[
            BatchJoinGroupRequestMember(member_id="", group_instance_id=instance_id, protocols=[])
            for instance_id in instance_ids
        ],
    )


def _added(instance_id: str, result: BatchJoinGroupResponseResult | None) -> str | AdminError:
    if result is None:
        return MemberError(instance_id, "JoinGroup", ErrorCode.UNKNOWN_SERVER_ERROR, "no result in the response")
    error = error_code(result.error_code)
    if error is ErrorCode.NONE:
        return result.member.member_id
    known = result.member.member_id
    return MemberError(instance_id, "JoinGroup", error, f"its member id is {known!r}" if known else None)


def _group_error(group: str, outcomes: Sequence[str | AdminError]) -> AdminError | None:
    """Return an error for the whole group if all members have retriable errors: the coordinator cannot serve it now."""
    errors = [outcome.error for outcome in outcomes if isinstance(outcome, AdminError)]
    if len(errors) == len(outcomes) and all(error in coordinators.RETRIABLE_ERRORS for error in errors):
        return GroupError(group, "JoinGroup", errors[0])
    return None
