"""Keys and values of the records of consumer groups in `__consumer_offsets` (KIP-848).

Each key and value follows its version, an int16. The version of a key is the type of the record, 3 to 8 and 16.
"""

from fakebroker.protocol.schema import Message, Struct, field
from fakebroker.protocol.types import Bytes, Int8, Int32, Int64, String, Uuid


class ConsumerGroupMetadataKey(Message, versions="3", flexible="none"):
    group_id: String


class ConsumerGroupMetadataValue(Message, versions="0", flexible="0+"):
    epoch: Int32
    metadata_hash: Int64 = field(tag=0, default=0)  # KIP-1101


class ConsumerGroupPartitionMetadataKey(Message, versions="4", flexible="none"):
    group_id: String


class PartitionMetadata(Struct):
    partition: Int32
    racks: list[String]


class TopicMetadata(Struct):
    topic_id: Uuid
    topic_name: String
    num_partitions: Int32
    partition_metadata: list[PartitionMetadata]


class ConsumerGroupPartitionMetadataValue(Message, versions="0", flexible="0+"):
    topics: list[TopicMetadata]


class ConsumerGroupMemberMetadataKey(Message, versions="5", flexible="none"):
    group_id: String
    member_id: String


class ClassicProtocol(Struct):
    name: String
    metadata: Bytes


class ClassicMemberMetadata(Struct):
    session_timeout_ms: Int32
    supported_protocols: list[ClassicProtocol]


class ConsumerGroupMemberMetadataValue(Message, versions="0", flexible="0+"):
    instance_id: String | None
    rack_id: String | None
    client_id: String
    client_host: String
    subscribed_topic_names: list[String]
    subscribed_topic_regex: String | None
    rebalance_timeout_ms: Int32 = -1
    server_assignor: String | None
    classic_member_metadata: ClassicMemberMetadata | None = field(tag=0, default=None)


class ConsumerGroupTargetAssignmentMetadataKey(Message, versions="6", flexible="none"):
    group_id: String


class ConsumerGroupTargetAssignmentMetadataValue(Message, versions="0", flexible="0+"):
    assignment_epoch: Int32
    assignment_timestamp: Int64 = field(tag=0, ignorable=True, default=0)  # KIP-1263


class StoredTopicPartitions(Struct):
    topic_id: Uuid
    partitions: list[Int32]


class ConsumerGroupTargetAssignmentMemberKey(Message, versions="7", flexible="none"):
    group_id: String
    member_id: String


class ConsumerGroupTargetAssignmentMemberValue(Message, versions="0", flexible="0+"):
    topic_partitions: list[StoredTopicPartitions]


class StoredPartitionsWithEpochs(Struct):
    topic_id: Uuid
    partitions: list[Int32]
    assignment_epochs: list[Int32] | None = field(tag=0, default=None)  # KIP-1251


class ConsumerGroupCurrentMemberAssignmentKey(Message, versions="8", flexible="none"):
    group_id: String
    member_id: String


class ConsumerGroupCurrentMemberAssignmentValue(Message, versions="0", flexible="0+"):
    member_epoch: Int32
    previous_member_epoch: Int32
    state: Int8
    assigned_partitions: list[StoredPartitionsWithEpochs]
    partitions_pending_revocation: list[StoredPartitionsWithEpochs]


class ConsumerGroupRegularExpressionKey(Message, versions="16", flexible="none"):
    group_id: String
    regular_expression: String


class ConsumerGroupRegularExpressionValue(Message, versions="0", flexible="0+"):
    topics: list[String]
    version: Int64
    timestamp: Int64
