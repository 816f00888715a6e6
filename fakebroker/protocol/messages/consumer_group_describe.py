"""ConsumerGroupDescribe: the epochs, members and assignments of consumer groups (KIP-848).

Version 1 has the types of members (KIP-1099).
"""

from fakebroker.protocol.schema import Message, Struct, field
from fakebroker.protocol.types import Boolean, Int8, Int16, Int32, String, Uuid


class ConsumerGroupDescribeRequest(Message, api_key=69, versions="0-1", flexible="0+"):
    group_ids: list[String]
    include_authorized_operations: Boolean


class DescribedTopicPartitions(Struct):
    topic_id: Uuid
    topic_name: String
    partitions: list[Int32]


class DescribedAssignment(Struct):
    topic_partitions: list[DescribedTopicPartitions]


class DescribedConsumer(Struct):
    member_id: String
    instance_id: String | None = None
    rack_id: String | None = None
    member_epoch: Int32
    client_id: String
    client_host: String
    subscribed_topic_names: list[String]
    subscribed_topic_regex: String | None = None
    assignment: DescribedAssignment
    target_assignment: DescribedAssignment
    member_type: Int8 = field(versions="1+", ignorable=True, default=-1)


class DescribedConsumerGroup(Struct):
    error_code: Int16
    error_message: String | None = None
    group_id: String
    group_state: String
    group_epoch: Int32
    assignment_epoch: Int32
    assignor_name: String
    members: list[DescribedConsumer]
    authorized_operations: Int32 = -2147483648


class ConsumerGroupDescribeResponse(Message, api_key=69, versions="0-1", flexible="0+"):
    throttle_time_ms: Int32 = 0
    groups: list[DescribedConsumerGroup]
