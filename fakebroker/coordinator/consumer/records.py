"""The records of consumer groups (Kafka's `GroupCoordinatorRecordHelpers`), and the partitions in them."""

from collections.abc import Iterable

from fakebroker.coordinator.consumer.member import ConsumerGroupMember, Partitions
from fakebroker.coordinator.consumer.subscriptions import ResolvedRegex
from fakebroker.coordinator.records import CoordinatorRecord, KeyedRecord
from fakebroker.protocol.messages import consumer_group_records as messages

_KIP_1251 = (4, 3)
"""The first release that stores the epoch in which a member got each partition."""


def partitions_in(
    stored: Iterable[messages.StoredTopicPartitions | messages.StoredPartitionsWithEpochs],
) -> Partitions:
    """Return the partitions in a record."""
    return {each.topic_id: frozenset(each.partitions) for each in stored}


def subscription_record(group_id: str, member: ConsumerGroupMember) -> KeyedRecord:
    """Return the record of a member's subscription, settings and client."""
    classic = member.classic
    value = messages.ConsumerGroupMemberMetadataValue(
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.subscribed_topic_names),
        subscribed_topic_regex=member.subscribed_topic_regex,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        server_assignor=member.server_assignor,
        classic_member_metadata=None
        if classic is None
        else messages.ClassicMemberMetadata(
            session_timeout_ms=classic.session_timeout_ms,
            supported_protocols=[
                messages.ClassicProtocol(name=name, metadata=metadata) for name, metadata in classic.protocols
            ],
        ),
    )
    return CoordinatorRecord(
        messages.ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member.member_id), value
    )


def group_epoch_record(group_id: str, epoch: int, metadata_hash: int) -> KeyedRecord:
    """Return the record of a group epoch, with the hash of the subscribed topics (KIP-1101)."""
    value = messages.ConsumerGroupMetadataValue(epoch=epoch, metadata_hash=metadata_hash)
    return CoordinatorRecord(messages.ConsumerGroupMetadataKey(group_id=group_id), value)


def target_assignment_record(group_id: str, member_id: str, partitions: Partitions) -> KeyedRecord:
    """Return the record of the target assignment of a member."""
    topics = [
        messages.StoredTopicPartitions(topic_id=topic_id, partitions=sorted(indexes))
        for topic_id, indexes in partitions.items()
    ]
    return CoordinatorRecord(
        messages.ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id),
        messages.ConsumerGroupTargetAssignmentMemberValue(topic_partitions=topics),
    )


def assignment_epoch_record(group_id: str, epoch: int, timestamp_ms: int = 0) -> KeyedRecord:
    """Return the record of the epoch of the target assignment, with its time (KIP-1263), or 0 if it is not known."""
    return CoordinatorRecord(
        messages.ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id),
        messages.ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=epoch, assignment_timestamp=timestamp_ms),
    )


def current_assignment_record(group_id: str, member: ConsumerGroupMember, release: tuple[int, ...]) -> KeyedRecord:
    """Return the record of a member's current assignment, in the form of a release."""

    def stored(partitions: Partitions) -> list[messages.StoredPartitionsWithEpochs]:
        return [
            messages.StoredPartitionsWithEpochs(
                topic_id=topic_id,
                partitions=sorted(indexes),
                assignment_epochs=None
                if release < _KIP_1251
                else [member.older_epochs.get((topic_id, index), member.member_epoch) for index in sorted(indexes)],
            )
            for topic_id, indexes in partitions.items()
        ]

    return CoordinatorRecord(
        messages.ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member.member_id),
        messages.ConsumerGroupCurrentMemberAssignmentValue(
            member_epoch=member.member_epoch,
            previous_member_epoch=member.previous_epoch,
            state=member.state.value,
            assigned_partitions=stored(member.assigned),
            partitions_pending_revocation=stored(member.pending_revocation),
        ),
    )


def regex_record(group_id: str, regex: str, resolved: ResolvedRegex | None) -> KeyedRecord:
    """Return the record of the topics that match a regular expression of members; None deletes it."""
    return CoordinatorRecord(
        messages.ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=regex),
        None
        if resolved is None
        else messages.ConsumerGroupRegularExpressionValue(
            topics=sorted(resolved.topics), version=resolved.version, timestamp=resolved.timestamp_ms
        ),
    )


def removal_records(group_id: str, member_id: str) -> list[KeyedRecord]:
    """Return the tombstones of a member."""
    return [
        CoordinatorRecord(key(group_id=group_id, member_id=member_id), None)
        for key in (
            messages.ConsumerGroupCurrentMemberAssignmentKey,
            messages.ConsumerGroupTargetAssignmentMemberKey,
            messages.ConsumerGroupMemberMetadataKey,
        )
    ]
