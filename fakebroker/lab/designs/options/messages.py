"""The messages of options 1.a, 1.b and 1.c, with the fields of the document.

The document declares no ping. Consumers send PingRequest (1.a and 1.c). Coordinators send CoordinatorPingRequest (1.b);
its response has the consumed offsets, since the coordinator records them. Version 1 of RegisterConsumer is for 1.a: the
request has the consumed offsets, and its response the owned partitions.
"""

from collections.abc import Mapping

from fakebroker.errors import ErrorCode
from fakebroker.protocol.schema import Message, Struct, field
from fakebroker.protocol.types import Int16, Int64, String
from fakebroker.topic_partition import TopicPartition

NOT_COORDINATOR = ErrorCode.NOT_COORDINATOR
TOPIC_PARTITION_NOT_VALID = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
SESSION_TIMEOUT_NOT_VALID = ErrorCode.INVALID_SESSION_TIMEOUT
REBALANCE = ErrorCode.REBALANCE_IN_PROGRESS
"""The error in replies to pings, by which consumers learn that they have to register again (1.a)."""

UNKNOWN_CONSUMER = ErrorCode.UNKNOWN_MEMBER_ID
"""The document names no error for pings and commits of consumers that the coordinator does not have."""

ANY_PARTITION = -1
"""In `TopicPartitions.partition_ids`: the consumer takes any partitions."""

UNKNOWN_OFFSET = -1
"""In `PartitionAndOffset.offset`: no offset is committed."""


class TopicPartitions(Struct):
    topic: String
    partition_ids: list[Int16]


class PartitionAndOffset(Struct):
    topic: String
    partition: Int16
    offset: Int64


class RegisterConsumerRequest(Message, versions="0-1", flexible="none"):
    version: Int16 = 0
    correlation_id: Int64
    group_id: String
    consumer_id: String
    session_timeout: Int64
    subscribing: list[TopicPartitions]
    consumed_so_far: list[PartitionAndOffset] = field(versions="1+", default_factory=list)


class RegisterConsumerResponse(Message, versions="0-1", flexible="none"):
    version: Int16 = 0
    correlation_id: Int64
    error_code: Int16 = 0
    group_id: String
    consumer_id: String
    partitions_to_own: list[PartitionAndOffset] = field(versions="1+", default_factory=list)


class PingRequest(Message, versions="0", flexible="none"):
    version: Int16 = 0
    correlation_id: Int64
    group_id: String
    consumer_id: String


class PingResponse(Message, versions="0", flexible="none"):
    version: Int16 = 0
    correlation_id: Int64
    error_code: Int16 = 0


class CoordinatorPingRequest(Message, versions="0", flexible="none"):
    version: Int16 = 0
    correlation_id: Int64
    consumer_id: String


class CoordinatorPingResponse(Message, versions="0", flexible="none"):
    version: Int16 = 0
    correlation_id: Int64
    error_code: Int16 = 0
    consumer_id: String
    consumed_so_far: list[PartitionAndOffset]


class StopFetcherRequest(Message, versions="0", flexible="none"):
    version: Int16 = 0
    correlation_id: Int64
    consumer_id: String


class StopFetcherResponse(Message, versions="0", flexible="none"):
    version: Int16 = 0
    correlation_id: Int64
    error_code: Int16 = 0
    consumer_id: String
    consumed_so_far: list[PartitionAndOffset]


class StartFetcherRequest(Message, versions="0", flexible="none"):
    version: Int16 = 0
    correlation_id: Int64
    consumer_id: String
    partitions_to_own: list[PartitionAndOffset]


class StartFetcherResponse(Message, versions="0", flexible="none"):
    version: Int16 = 0
    correlation_id: Int64
    error_code: Int16 = 0
    consumer_id: String


class OffsetCommitRequest(Message, versions="0", flexible="none"):
    version: Int16 = 0
    correlation_id: Int64
    consumer_id: String
    offset_info: list[PartitionAndOffset]


class OffsetCommitResponse(Message, versions="0", flexible="none"):
    version: Int16 = 0
    correlation_id: Int64
    error_code: Int16 = 0


def to_wire(offsets: Mapping[TopicPartition, int]) -> list[PartitionAndOffset]:
    """Convert offsets to the form of messages."""
    return [
        PartitionAndOffset(topic=topic, partition=index, offset=offset) for (topic, index), offset in offsets.items()
    ]


def from_wire(offsets: list[PartitionAndOffset]) -> dict[TopicPartition, int]:
    """Convert offsets from the form of messages."""
    return {(each.topic, each.partition): each.offset for each in offsets}
