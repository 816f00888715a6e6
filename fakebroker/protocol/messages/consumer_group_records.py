"""Keys and values of the records of consumer groups in `__consumer_offsets` (KIP-848).

Each key and value follows its version, an int16. The version of a key is the type of the record, 3 to 8 and 16.
"""

from fakebroker.protocol.schema import Message, Struct, field, message, struct
from fakebroker.protocol.types import Bytes, Int8, Int32, Int64, String, Uuid


@message(versions="3", flexible="none")
class ConsumerGroupMetadataKey(Message):
    group_id: String


@message(versions="0", flexible="0+")
class ConsumerGroupMetadataValue(Message):
    epoch: Int32
    metadata_hash: Int64 = field(tag=0, default=0)  # KIP-1101


@message(versions="4", flexible="none")
class ConsumerGroupPartitionMetadataKey(Message):
    group_id: String


@struct
class PartitionMetadata(Struct):
    partition: Int32
    racks: list[String]


@struct
class TopicMetadata(Struct):
    topic_id: Uuid
    topic_name: String
    num_partitions: Int32
    partition_metadata: list[PartitionMetadata]


@message(versions="0", flexible="0+")
class ConsumerGroupPartitionMetadataValue(Message):
    topics: list[TopicMetadata]


@message(versions="5", flexible="none")
class ConsumerGroupMemberMetadataKey(Message):
    group_id: String
    member_id: String


@struct
class ClassicProtocol(Struct):
    name: String
    metadata: Bytes


@struct
class ClassicMemberMetadata(Struct):
    session_timeout_ms: Int32
    supported_protocols: list[ClassicProtocol]


@message(versions="0", flexible="0+")
class ConsumerGroupMemberMetadataValue(Message):
    instance_id: String | None
    rack_id: String | None
    client_id: String
    client_host: String
    subscribed_topic_names: list[String]
    subscribed_topic_regex: String | None
    rebalance_timeout_ms: Int32 = -1
    server_assignor: String | None
    classic_member_metadata: ClassicMemberMetadata | None = field(tag=0, default=None)


@message(versions="6", flexible="none")
class ConsumerGroupTargetAssignmentMetadataKey(Message):
    group_id: String


@message(versions="0", flexible="0+")
class ConsumerGroupTargetAssignmentMetadataValue(Message):
    assignment_epoch: Int32
    assignment_timestamp: Int64 = field(tag=0, ignorable=True, default=0)  # KIP-1263


@struct
class StoredTopicPartitions(Struct):
    topic_id: Uuid
    partitions: list[Int32]


@message(versions="7", flexible="none")
class ConsumerGroupTargetAssignmentMemberKey(Message):
    group_id: String
    member_id: String


@message(versions="0", flexible="0+")
class ConsumerGroupTargetAssignmentMemberValue(Message):
    topic_partitions: list[StoredTopicPartitions]


@struct
class StoredPartitionsWithEpochs(Struct):
    topic_id: Uuid
    partitions: list[Int32]
    assignment_epochs: list[Int32] | None = field(tag=0, default=None)  # KIP-1251


@message(versions="8", flexible="none")
class ConsumerGroupCurrentMemberAssignmentKey(Message):
    group_id: String
    member_id: String


@message(versions="0", flexible="0+")
class ConsumerGroupCurrentMemberAssignmentValue(Message):
    member_epoch: Int32
    previous_member_epoch: Int32
    state: Int8
    assigned_partitions: list[StoredPartitionsWithEpochs]
    partitions_pending_revocation: list[StoredPartitionsWithEpochs]


@message(versions="16", flexible="none")
class ConsumerGroupRegularExpressionKey(Message):
    group_id: String
    regular_expression: String


@message(versions="0", flexible="0+")
class ConsumerGroupRegularExpressionValue(Message):
    topics: list[String]
    version: Int64
    timestamp: Int64
