"""ConsumerGroupDescribe: epochs, members and assignments of consumer groups (KIP-848)."""

from typing import TYPE_CHECKING

from fakebroker.cluster.authorization import group_error, operations, topic_error
from fakebroker.cluster.call import Call
from fakebroker.cluster.handlers.consumer_group_heartbeat import HIDES_TOPICS, is_enabled
from fakebroker.coordinator.consumer.group import ConsumerGroup
from fakebroker.coordinator.consumer.member import NO_PARTITIONS, ConsumerGroupMember, Partitions
from fakebroker.errors import ErrorCode
from fakebroker.protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedAssignment,
    DescribedConsumer,
    DescribedConsumerGroup,
    DescribedTopicPartitions,
)
from fakebroker.security.acls import AclOperation, ResourceType

if TYPE_CHECKING:
    from fakebroker.cluster.cluster import Cluster


_HIDDEN_TOPIC = "The group has described topic(s) that the client is not authorized to describe."

_WITH_PENDING = (4, 3)
"""The first release that describes the partitions that a member still has to give up, too (KAFKA-20431)."""

_CLASSIC, _CONSUMER = 0, 1
"""The types of members, by the protocol that they use (KIP-1099)."""


def handle(cluster: "Cluster", call: Call, now_ms: float) -> ConsumerGroupDescribeResponse:
    request: ConsumerGroupDescribeRequest = call.request
    groups = [_described(cluster, call, group_id) for group_id in request.group_ids]
    if request.include_authorized_operations:
        for group in groups:
            if not group.error_code:
                group.authorized_operations = operations(cluster, call, ResourceType.GROUP, group.group_id)
    return ConsumerGroupDescribeResponse(groups=groups)


def _described(cluster: "Cluster", call: Call, group_id: str) -> DescribedConsumerGroup:
    if not is_enabled(cluster, call):
        return _error(group_id, ErrorCode.UNSUPPORTED_VERSION)
    if refused := group_error(cluster, call, AclOperation.DESCRIBE, group_id):
        return _error(group_id, refused)
    if not group_id:
        return _error(group_id, ErrorCode.INVALID_GROUP_ID)
    coordinator = call.broker.coordinator
    if error := coordinator.error_for(group_id):
        return _error(group_id, error)
    group = coordinator.groups.consumer.get(group_id)
    if group is None:
        is_classic = coordinator.groups.classic.get(group_id) is not None
        text = f"Group {group_id} is not a consumer group." if is_classic else f"Group {group_id} not found."
        return _error(group_id, ErrorCode.GROUP_ID_NOT_FOUND, text)
    members = [_member(cluster, group, member) for member in group.members.values()]
    if cluster.acls is not None and call.broker.release >= HIDES_TOPICS and _names_hidden_topic(cluster, call, members):
        return _error(group_id, ErrorCode.TOPIC_AUTHORIZATION_FAILED, _HIDDEN_TOPIC)
    return DescribedConsumerGroup(
        error_code=ErrorCode.NONE,
        group_id=group_id,
        group_state=group.state.value,
        group_epoch=group.group_epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=coordinator.groups.consumer.assignor_of(group),
        members=members,
    )


def _names_hidden_topic(cluster: "Cluster", call: Call, members: list[DescribedConsumer]) -> bool:
    """Return whether an assignment has a topic that the client may not describe."""
    names = {
        each.topic_name
        for member in members
        for assignment in (member.assignment, member.target_assignment)
        for each in assignment.topic_partitions
    }
    return any(topic_error(cluster, call, AclOperation.DESCRIBE, name) for name in names)


def _error(group_id: str, error: ErrorCode, message: str | None = None) -> DescribedConsumerGroup:
    return DescribedConsumerGroup(
        error_code=error,
        error_message=message,
        group_id=group_id,
        group_state="",
        group_epoch=0,
        assignment_epoch=0,
        assignor_name="",
        members=[],
    )


def _member(cluster: "Cluster", group: ConsumerGroup, member: ConsumerGroupMember) -> DescribedConsumer:
    held = member.assigned
    if group.release >= _WITH_PENDING:
        held = {
            topic_id: held.get(topic_id, frozenset()) | member.pending_revocation.get(topic_id, frozenset())
            for topic_id in {**held, **member.pending_revocation}
        }
    return DescribedConsumer(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.member_epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.subscribed_topic_names),
        subscribed_topic_regex=member.subscribed_topic_regex,
        assignment=_assignment(cluster, held),
        target_assignment=_assignment(cluster, group.target.get(member.member_id, NO_PARTITIONS)),
        member_type=_CONSUMER if member.classic is None else _CLASSIC,
    )


def _assignment(cluster: "Cluster", partitions: Partitions) -> DescribedAssignment:
    """Convert an assignment, without topics that were deleted."""
    return DescribedAssignment(
        topic_partitions=[
            DescribedTopicPartitions(topic_id=topic_id, topic_name=name, partitions=sorted(indexes))
            for topic_id, indexes in partitions.items()
            if (name := cluster.topics.name_of(topic_id)) is not None
        ]
    )
