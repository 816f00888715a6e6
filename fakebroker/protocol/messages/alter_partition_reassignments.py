"""AlterPartitionReassignments: moves partitions to other brokers, or cancels such moves (KIP-455)."""

from fakebroker.protocol.schema import Message, Struct, field
from fakebroker.protocol.types import Boolean, Int16, Int32, String


class ReassignablePartition(Struct):
    partition_index: Int32
    replicas: list[Int32] | None = None


class ReassignableTopic(Struct):
    name: String
    partitions: list[ReassignablePartition]


class AlterPartitionReassignmentsRequest(Message, api_key=45, versions="0-1", flexible="0+"):
    timeout_ms: Int32 = 60000
    allow_replication_factor_change: Boolean = field(versions="1+", default=True)
    topics: list[ReassignableTopic]


class ReassignablePartitionResponse(Struct):
    partition_index: Int32
    error_code: Int16
    error_message: String | None


class ReassignableTopicResponse(Struct):
    name: String
    partitions: list[ReassignablePartitionResponse]


class AlterPartitionReassignmentsResponse(Message, api_key=45, versions="0-1", flexible="0+"):
    throttle_time_ms: Int32 = 0
    allow_replication_factor_change: Boolean = field(versions="1+", ignorable=True, default=True)
    error_code: Int16 = 0
    error_message: String | None
    responses: list[ReassignableTopicResponse]
