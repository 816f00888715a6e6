"""The records of consumer groups in `__consumer_offsets` (types 3 to 8 and 16), as plain data.

A record without a value is a tombstone. The encoding is in `cluster/logs/`.
"""

import msgspec

from fakebroker.coordinator.consumer.member import (
    ALL_IN_MEMBER_EPOCH,
    AssignmentEpochs,
    ClassicMemberMetadata,
    Partitions,
)
from fakebroker.coordinator.consumer.states import MemberState
from fakebroker.coordinator.consumer.subscriptions import ResolvedRegex


class GroupEpochValue(msgspec.Struct, frozen=True):
    """The value of a `GroupEpochRecord`; the hash is that of the subscribed topics (KIP-1101)."""

    epoch: int
    metadata_hash: int


class GroupEpochRecord(msgspec.Struct, frozen=True):
    """Type 3, `ConsumerGroupMetadata`: the group epoch."""

    group_id: str
    value: GroupEpochValue | None


class StoredTopic(msgspec.Struct, frozen=True):
    """A topic in a `SubscribedTopicsRecord`."""

    topic_id: bytes
    name: str
    partition_count: int


class SubscribedTopicsRecord(msgspec.Struct, frozen=True):
    """Type 4, `ConsumerGroupPartitionMetadata`: the subscribed topics. Written before 4.1; later only deleted."""

    group_id: str
    value: tuple[StoredTopic, ...] | None


class SubscriptionValue(msgspec.Struct, frozen=True):
    """The value of a `MemberSubscriptionRecord`; `classic` is set for a member that uses the classic protocol."""

    instance_id: str | None
    rack_id: str | None
    client_id: str
    client_host: str
    subscribed_topic_names: frozenset[str]
    rebalance_timeout_ms: int
    server_assignor: str | None
    subscribed_topic_regex: str = ""
    classic: ClassicMemberMetadata | None = None


class MemberSubscriptionRecord(msgspec.Struct, frozen=True):
    """Type 5, `ConsumerGroupMemberMetadata`: what a member has reported about itself."""

    group_id: str
    member_id: str
    value: SubscriptionValue | None


class AssignmentEpochValue(msgspec.Struct, frozen=True):
    """The value of an `AssignmentEpochRecord`; the time is when the target was computed, 0 if that is not known."""

    epoch: int
    timestamp_ms: int = 0


class AssignmentEpochRecord(msgspec.Struct, frozen=True):
    """Type 6, `ConsumerGroupTargetAssignmentMetadata`: the epoch of the target assignment."""

    group_id: str
    value: AssignmentEpochValue | None


class TargetAssignmentRecord(msgspec.Struct, frozen=True):
    """Type 7, `ConsumerGroupTargetAssignmentMember`: the target assignment of a member."""

    group_id: str
    member_id: str
    value: Partitions | None


class CurrentAssignmentValue(msgspec.Struct, frozen=True):
    """The value of a `CurrentAssignmentRecord`; for `older_epochs` see `ConsumerGroupMember`."""

    member_epoch: int
    previous_epoch: int
    state: MemberState
    assigned: Partitions
    pending_revocation: Partitions
    older_epochs: AssignmentEpochs = ALL_IN_MEMBER_EPOCH


class CurrentAssignmentRecord(msgspec.Struct, frozen=True):
    """Type 8, `ConsumerGroupCurrentMemberAssignment`: what a member has, and its epoch."""

    group_id: str
    member_id: str
    value: CurrentAssignmentValue | None


class RegexRecord(msgspec.Struct, frozen=True):
    """Type 16, `ConsumerGroupRegularExpression`: the topics that match a regular expression of members."""

    group_id: str
    regex: str
    value: ResolvedRegex | None


ConsumerGroupRecord = (
    GroupEpochRecord
    | SubscribedTopicsRecord
    | MemberSubscriptionRecord
    | AssignmentEpochRecord
    | TargetAssignmentRecord
    | CurrentAssignmentRecord
    | RegexRecord
)
"""Any record of a consumer group."""
