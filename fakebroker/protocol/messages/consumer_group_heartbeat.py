"""ConsumerGroupHeartbeat: joins a consumer group, stays in it, and leaves it (KIP-848).

Version 1 has a regular expression instead of names of topics, and requires the ids that members choose.
"""

from fakebroker.protocol.schema import Message, Struct, field
from fakebroker.protocol.types import Int16, Int32, String, Uuid


class HeartbeatTopicPartitions(Struct):
    topic_id: Uuid
    partitions: list[Int32]


class ConsumerGroupHeartbeatRequest(Message, api_key=68, versions="0-1", flexible="0+"):
    group_id: String
    member_id: String
    member_epoch: Int32
    instance_id: String | None = None
    rack_id: String | None = None
    rebalance_timeout_ms: Int32 = -1
    subscribed_topic_names: list[String] | None = None
    subscribed_topic_regex: String | None = field(versions="1+", default=None)
    server_assignor: String | None = None
    topic_partitions: list[HeartbeatTopicPartitions] | None = None


class HeartbeatAssignment(Struct):
    topic_partitions: list[HeartbeatTopicPartitions]


class ConsumerGroupHeartbeatResponse(Message, api_key=68, versions="0-1", flexible="0+"):
    throttle_time_ms: Int32 = 0
    error_code: Int16
    error_message: String | None = None
    member_id: String | None = None
    member_epoch: Int32 = 0
    heartbeat_interval_ms: Int32 = 0
    assignment: HeartbeatAssignment | None = None
