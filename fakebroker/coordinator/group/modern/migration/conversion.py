"""Online migration: a classic group becomes a consumer group, or back, while it has members.

A classic group is upgraded when a member with the consumer protocol joins it, and a consumer group is downgraded when
its last such member leaves it or is replaced (`group.consumer.migration.policy`). Source: `GroupMetadataManager`,
`ConsumerGroup.fromClassicGroup` and `ClassicGroup.fromConsumerGroup`, release 4.2.
"""

from collections.abc import Collection, Iterable, Mapping

from fakebroker.coordinator.group.classic.group import Group
from fakebroker.coordinator.group.classic.member import Member
from fakebroker.coordinator.group.classic.shared_values import shared_assignment
from fakebroker.coordinator.group.classic.states import CONSUMER_PROTOCOL_TYPE
from fakebroker.coordinator.group.modern.config import ConsumerGroupConfig
from fakebroker.coordinator.group.modern.errors import HeartbeatError
from fakebroker.coordinator.group.modern.group import ConsumerGroup
from fakebroker.coordinator.group.modern.heartbeat import current_assignment_record, subscription_record
from fakebroker.coordinator.group.modern.member import (
    NO_PARTITIONS,
    ClassicMemberMetadata,
    ConsumerGroupMember,
    Partitions,
)
from fakebroker.coordinator.group.modern.migration.embedded_protocol import (
    MalformedProtocolError,
    encode_assignment,
    parse_assignment,
    parse_subscription,
    with_topic_ids,
)
from fakebroker.coordinator.group.modern.records import (
    AssignmentEpochRecord,
    AssignmentEpochValue,
    ConsumerGroupRecord,
    GroupEpochRecord,
    GroupEpochValue,
    TargetAssignmentRecord,
)
from fakebroker.coordinator.group.modern.subscription.topics import TopicImage, metadata_hash
from fakebroker.errors import ErrorCode

# Upgrade


def check_upgrade(group: Group, config: ConsumerGroupConfig) -> None:
    """Check that a classic group with members may become a consumer group (Kafka's `validateOnlineUpgrade`).

    Raises:
        HeartbeatError: GROUP_ID_NOT_FOUND.
    """
    if not config.migration_policy.allows_upgrade:
        raise _not_upgraded(group, "online upgrade is disabled")
    if group.protocol_type != CONSUMER_PROTOCOL_TYPE:
        raise _not_upgraded(group, "the group does not use the consumer embedded protocol")
    if len(group.members) > config.max_size:
        raise _not_upgraded(group, "the group size exceeds the consumer group maximum size")


def upgrade(
    group: Group, partition: int, config: ConsumerGroupConfig
) -> tuple[ConsumerGroup, list[ConsumerGroupRecord]]:
    """Return the consumer group that a classic group becomes, and its records. The classic group stays as it is.

    Generation and assignments become epochs and targets. Members with the classic protocol stay in the group.

    Raises:
        HeartbeatError: GROUP_ID_NOT_FOUND: a subscription or an assignment is malformed, or has data of an assignor
            that is not Kafka's. UNKNOWN_SERVER_ERROR where Kafka fails unexpectedly: the group has had no generation,
            or two members have the same partition.
    """
    topics = config.topics
    members = [_consumer_member(group, member, topics) for member in group.members.values()]
    group_id, epoch = group.group_id, group.generation_id
    names = {name for member in members for name in member.subscribed_topic_names}
    records: list[ConsumerGroupRecord] = [
        *(subscription_record(group_id, member) for member in members),
        GroupEpochRecord(group_id, GroupEpochValue(epoch, metadata_hash(names, topics))),
        *(TargetAssignmentRecord(group_id, member.member_id, member.assigned) for member in members),
        AssignmentEpochRecord(group_id, AssignmentEpochValue(epoch)),
        *(current_assignment_record(group_id, member) for member in members),
    ]
    if _have_common_partitions(member.assigned for member in members):
        raise HeartbeatError(ErrorCode.UNKNOWN_SERVER_ERROR)
    upgraded = ConsumerGroup(group_id, partition, config.release)
    for record in records:
        upgraded.replay(record)
    upgraded.offsets = group.offsets
    upgraded.continue_history(group.state.value, group.state_since_ms, group.members.snapshot())
    return upgraded, records


def _consumer_member(group: Group, member: Member, topics: TopicImage) -> ConsumerGroupMember:
    try:
        assigned = _assigned(group, member.assignment, topics)
        if group.protocol_name is None or not member.supports([group.protocol_name]):
            # The first join phase has no protocol yet; in a later one, new members need not support the last one.
            raise HeartbeatError(ErrorCode.UNKNOWN_SERVER_ERROR)
        subscription = parse_subscription(member.metadata_for(group.protocol_name))
    except MalformedProtocolError as error:
        if not error.is_schema_error:
            raise HeartbeatError(ErrorCode.UNKNOWN_SERVER_ERROR) from None
        raise _not_upgraded(group, "the embedded consumer protocol is malformed") from None
    return ConsumerGroupMember(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=subscription.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=frozenset(subscription.topics),
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        member_epoch=group.generation_id,
        previous_epoch=group.generation_id,
        assigned=assigned,
        classic=ClassicMemberMetadata(member.session_timeout_ms, member.protocols),
    )


def _assigned(group: Group, assignment: bytes, topics: TopicImage) -> Partitions:
    if not assignment:  # The member has not been assigned anything yet.
        return NO_PARTITIONS
    parsed = parse_assignment(assignment)
    if parsed.user_data:
        reason = (
            "an unsupported custom assignor is in use. "
            "Please refer to the documentation or switch to a default assignor before re-attempting the upgrade"
        )
        raise _not_upgraded(group, reason)
    return with_topic_ids(parsed.partitions, topics)


def _have_common_partitions(each: Iterable[Partitions]) -> bool:
    places = [(topic, index) for partitions in each for topic, indexes in partitions.items() for index in indexes]
    return len(set(places)) < len(places)


def _not_upgraded(group: Group, reason: str) -> HeartbeatError:
    text = f"Cannot upgrade classic group {group.group_id} to consumer group because {reason}."
    return HeartbeatError(ErrorCode.GROUP_ID_NOT_FOUND, text)


# Downgrade


def may_downgrade(config: ConsumerGroupConfig, member_count: int) -> bool:
    """Whether the settings allow a consumer group to become a classic group with this number of members."""
    return config.migration_policy.allows_downgrade and member_count <= config.classic_max_size


def is_downgraded_without(group: ConsumerGroup, leaving: Collection[str], config: ConsumerGroupConfig) -> bool:
    """Whether a group becomes a classic group when members leave (`validateOnlineDowngradeWithFencedMembers`)."""
    classic_leaving = sum(group.members[member_id].classic is not None for member_id in leaving)
    remaining = len(group.members) - len(leaving)
    return 0 < remaining == group.classic_count - classic_leaving and may_downgrade(config, remaining)


def downgrade(
    group: Group,
    former: ConsumerGroup,
    members: Iterable[ConsumerGroupMember],
    topics: TopicImage,
    renamed: Mapping[str, str],
) -> None:
    """Set the contents of the classic group that a consumer group becomes, which was just created as Stable.

    Each member gets its target as its assignment, and the group epoch becomes the generation.

    Args:
        group: The classic group.
        former: The consumer group. It stays as it is, except for its offsets, which both have then.
        members: The members of the classic group, which all use the classic protocol.
        topics: The topics of the cluster.
        renamed: The new ids of members that were replaced, by the ids in `former`.

    Raises:
        HeartbeatError: GROUP_ID_NOT_FOUND: the metadata of a member is malformed. UNKNOWN_SERVER_ERROR: there is no
            common protocol.
    """
    for member in members:
        assert member.classic is not None
        group.add(_classic_member(member, member.classic), CONSUMER_PROTOCOL_TYPE)
    group.generation_id = former.group_epoch
    name = group.protocol_name = group.select_protocol()
    if name is None:
        raise HeartbeatError(ErrorCode.UNKNOWN_SERVER_ERROR)
    targets = {renamed.get(member_id, member_id): target for member_id, target in former.target.items()}
    try:
        for classic in group.members.values():
            target = targets.get(classic.member_id, NO_PARTITIONS)
            classic.assignment = shared_assignment(encode_assignment(target, topics, classic.metadata_for(name)))
    except MalformedProtocolError as error:
        text = f"Cannot downgrade the classic group {group.group_id}: {error}."
        raise HeartbeatError(ErrorCode.GROUP_ID_NOT_FOUND, text) from None
    group.subscribed_topics = group.compute_subscribed_topics()
    group.offsets = former.offsets


def _classic_member(member: ConsumerGroupMember, classic: ClassicMemberMetadata) -> Member:
    return Member(
        member_id=member.member_id,
        instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        session_timeout_ms=classic.session_timeout_ms,
        protocols=classic.protocols,
        is_new=False,
    )
