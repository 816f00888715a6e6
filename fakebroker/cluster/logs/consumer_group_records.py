"""Encodes and decodes the records of consumer groups, types 3 to 8 and 16 in `__consumer_offsets` (KIP-848).

Source: `GroupCoordinatorRecordHelpers`, release 4.4.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from fakebroker.cluster.logs.coordinator_records import VERSION, prefixed, version_of
from fakebroker.coordinator.consumer import records
from fakebroker.coordinator.consumer.member import ALL_IN_MEMBER_EPOCH, ClassicMemberMetadata, Partitions
from fakebroker.coordinator.consumer.records import ConsumerGroupRecord
from fakebroker.coordinator.consumer.states import MemberState
from fakebroker.coordinator.consumer.subscriptions import ResolvedRegex
from fakebroker.protocol.codec import decode
from fakebroker.protocol.messages import consumer_group_records as messages
from fakebroker.protocol.releases import Release
from fakebroker.protocol.schema import Message

_VALUE_VERSION = 0
_KIP_1251 = Release(4, 3)
"""The first release that writes in which epoch a member got each partition."""


class _Kind(NamedTuple):
    """The messages of one type of record, and the conversion of its values."""

    record: Any
    key: type[Message]
    value: type[Message]
    to_message: Callable[[Any], Message]
    from_message: Callable[[Any], object]

    @property
    def key_version(self) -> int:
        return self.key.VERSIONS.first


def record_key(record: ConsumerGroupRecord) -> bytes:
    """Return the encoded key of a record, prefixed by its version."""
    kind = _BY_RECORD[type(record)]
    rest: dict[str, Any] = {}
    if isinstance(record, records.RegexRecord):
        rest = {"regular_expression": record.regex}
    elif hasattr(record, "member_id"):
        rest = {"member_id": record.member_id}
    key_type: Callable[..., Message] = kind.key
    return prefixed(key_type(group_id=record.group_id, **rest), kind.key_version)


def record_value(record: ConsumerGroupRecord, release: Release) -> bytes | None:
    """Return the encoded value of a record as a release writes it, prefixed by its version; None for a tombstone."""
    if record.value is None:
        return None
    if isinstance(record, records.CurrentAssignmentRecord) and release < _KIP_1251:
        return prefixed(_current(record.value, has_epochs=False), _VALUE_VERSION)
    return prefixed(_BY_RECORD[type(record)].to_message(record.value), _VALUE_VERSION)


def parse_record(key_version: int, key: bytes, value: bytes | None) -> ConsumerGroupRecord | None:
    """Decode a record.

    Args:
        key_version: The version of the key.
        key: The key with its version.
        value: The value with its version; None for a tombstone.

    Returns:
        The record; None if the key version belongs to another type of record.

    Raises:
        ProtocolError: The key or the value is malformed.
    """
    kind = _BY_KEY_VERSION.get(key_version)
    if kind is None:
        return None
    decoded: Any = decode(kind.key, key, key_version, VERSION.size)
    converted = None
    if value is not None:
        converted = kind.from_message(decode(kind.value, value, version_of(value, "value"), VERSION.size))
    rest = [getattr(decoded, name) for name in ("member_id", "regular_expression") if hasattr(decoded, name)]
    parsed: ConsumerGroupRecord = kind.record(decoded.group_id, *rest, converted)
    return parsed


def _topic_partitions(partitions: Partitions) -> list[messages.StoredTopicPartitions]:
    return [
        messages.StoredTopicPartitions(topic_id=topic_id, partitions=sorted(indexes))
        for topic_id, indexes in partitions.items()
    ]


def _partitions(
    stored: Iterable[messages.StoredTopicPartitions | messages.StoredPartitionsWithEpochs],
) -> Partitions:
    return {each.topic_id: frozenset(each.partitions) for each in stored}


def _subscription(value: records.SubscriptionValue) -> Message:
    return messages.ConsumerGroupMemberMetadataValue(
        instance_id=value.instance_id,
        rack_id=value.rack_id,
        client_id=value.client_id,
        client_host=value.client_host,
        subscribed_topic_names=sorted(value.subscribed_topic_names),
        subscribed_topic_regex=value.subscribed_topic_regex,
        rebalance_timeout_ms=value.rebalance_timeout_ms,
        server_assignor=value.server_assignor,
        classic_member_metadata=None if value.classic is None else _classic(value.classic),
    )


def _classic(value: ClassicMemberMetadata) -> messages.ClassicMemberMetadata:
    return messages.ClassicMemberMetadata(
        session_timeout_ms=value.session_timeout_ms,
        supported_protocols=[messages.ClassicProtocol(name=name, metadata=data) for name, data in value.protocols],
    )


def _read_subscription(value: messages.ConsumerGroupMemberMetadataValue) -> records.SubscriptionValue:
    classic = value.classic_member_metadata
    return records.SubscriptionValue(
        instance_id=value.instance_id,
        rack_id=value.rack_id,
        client_id=value.client_id,
        client_host=value.client_host,
        subscribed_topic_names=frozenset(value.subscribed_topic_names),
        subscribed_topic_regex=value.subscribed_topic_regex or "",
        rebalance_timeout_ms=value.rebalance_timeout_ms,
        server_assignor=value.server_assignor,
        classic=None
        if classic is None
        else ClassicMemberMetadata(
            classic.session_timeout_ms, tuple((each.name, each.metadata) for each in classic.supported_protocols)
        ),
    )


def _current(value: records.CurrentAssignmentValue, *, has_epochs: bool = True) -> Message:
    def stored(partitions: Partitions) -> list[messages.StoredPartitionsWithEpochs]:
        return [
            messages.StoredPartitionsWithEpochs(
                topic_id=topic_id,
                partitions=sorted(indexes),
                assignment_epochs=[
                    value.older_epochs.get((topic_id, index), value.member_epoch) for index in sorted(indexes)
                ]
                if has_epochs
                else None,
            )
            for topic_id, indexes in partitions.items()
        ]

    return messages.ConsumerGroupCurrentMemberAssignmentValue(
        member_epoch=value.member_epoch,
        previous_member_epoch=value.previous_epoch,
        state=value.state.value,
        assigned_partitions=stored(value.assigned),
        partitions_pending_revocation=stored(value.pending_revocation),
    )


def _read_current(value: messages.ConsumerGroupCurrentMemberAssignmentValue) -> records.CurrentAssignmentValue:
    older_epochs = {
        (topic.topic_id, index): epoch
        for topic in (*value.assigned_partitions, *value.partitions_pending_revocation)
        for index, epoch in zip(topic.partitions, topic.assignment_epochs or (), strict=False)
        if epoch != value.member_epoch
    }
    return records.CurrentAssignmentValue(
        older_epochs=older_epochs or ALL_IN_MEMBER_EPOCH,
        member_epoch=value.member_epoch,
        previous_epoch=value.previous_member_epoch,
        state=_STATES.get(value.state, MemberState.UNKNOWN),
        assigned=_partitions(value.assigned_partitions),
        pending_revocation=_partitions(value.partitions_pending_revocation),
    )


def _subscribed_topics(value: tuple[records.StoredTopic, ...]) -> Message:
    topics = [
        messages.TopicMetadata(
            topic_id=each.topic_id, topic_name=each.name, num_partitions=each.partition_count, partition_metadata=[]
        )
        for each in value
    ]
    return messages.ConsumerGroupPartitionMetadataValue(topics=topics)


def _read_subscribed_topics(
    value: messages.ConsumerGroupPartitionMetadataValue,
) -> tuple[records.StoredTopic, ...]:
    return tuple(records.StoredTopic(each.topic_id, each.topic_name, each.num_partitions) for each in value.topics)


_STATES = {state.value: state for state in MemberState}

_KINDS = (
    _Kind(
        records.GroupEpochRecord,
        messages.ConsumerGroupMetadataKey,
        messages.ConsumerGroupMetadataValue,
        lambda value: messages.ConsumerGroupMetadataValue(epoch=value.epoch, metadata_hash=value.metadata_hash),
        lambda value: records.GroupEpochValue(value.epoch, value.metadata_hash),
    ),
    _Kind(
        records.SubscribedTopicsRecord,
        messages.ConsumerGroupPartitionMetadataKey,
        messages.ConsumerGroupPartitionMetadataValue,
        _subscribed_topics,
        _read_subscribed_topics,
    ),
    _Kind(
        records.MemberSubscriptionRecord,
        messages.ConsumerGroupMemberMetadataKey,
        messages.ConsumerGroupMemberMetadataValue,
        _subscription,
        _read_subscription,
    ),
    _Kind(
        records.AssignmentEpochRecord,
        messages.ConsumerGroupTargetAssignmentMetadataKey,
        messages.ConsumerGroupTargetAssignmentMetadataValue,
        lambda value: messages.ConsumerGroupTargetAssignmentMetadataValue(
            assignment_epoch=value.epoch, assignment_timestamp=value.timestamp_ms
        ),
        lambda value: records.AssignmentEpochValue(value.assignment_epoch, value.assignment_timestamp),
    ),
    _Kind(
        records.TargetAssignmentRecord,
        messages.ConsumerGroupTargetAssignmentMemberKey,
        messages.ConsumerGroupTargetAssignmentMemberValue,
        lambda value: messages.ConsumerGroupTargetAssignmentMemberValue(topic_partitions=_topic_partitions(value)),
        lambda value: _partitions(value.topic_partitions),
    ),
    _Kind(
        records.CurrentAssignmentRecord,
        messages.ConsumerGroupCurrentMemberAssignmentKey,
        messages.ConsumerGroupCurrentMemberAssignmentValue,
        _current,
        _read_current,
    ),
    _Kind(
        records.RegexRecord,
        messages.ConsumerGroupRegularExpressionKey,
        messages.ConsumerGroupRegularExpressionValue,
        lambda value: messages.ConsumerGroupRegularExpressionValue(
            topics=sorted(value.topics), version=value.version, timestamp=value.timestamp_ms
        ),
        lambda value: ResolvedRegex(frozenset(value.topics), value.version, value.timestamp),
    ),
)

_BY_RECORD: Mapping[type, _Kind] = {kind.record: kind for kind in _KINDS}
_BY_KEY_VERSION: Mapping[int, _Kind] = {kind.key_version: kind for kind in _KINDS}
