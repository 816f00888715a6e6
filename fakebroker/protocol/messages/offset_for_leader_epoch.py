"""OffsetForLeaderEpoch: the end offset of a leader epoch, by which clients detect log truncation (KIP-320)."""

from fakebroker.protocol.schema import Message, Struct, field
from fakebroker.protocol.types import Int16, Int32, Int64, String


class OffsetForLeaderPartition(Struct):
    partition: Int32
    current_leader_epoch: Int32 = field(versions="2+", ignorable=True, default=-1)
    leader_epoch: Int32


class OffsetForLeaderTopic(Struct):
    topic: String
    partitions: list[OffsetForLeaderPartition]


class OffsetForLeaderEpochRequest(Message, api_key=23, versions="0-4", flexible="4+"):
    replica_id: Int32 = field(versions="3+", ignorable=True, default=-2)
    topics: list[OffsetForLeaderTopic]


class EpochEndOffset(Struct):
    error_code: Int16
    partition: Int32
    leader_epoch: Int32 = field(versions="1+", ignorable=True, default=-1)
    end_offset: Int64 = -1


class OffsetForLeaderTopicResult(Struct):
    topic: String
    partitions: list[EpochEndOffset]


class OffsetForLeaderEpochResponse(Message, api_key=23, versions="0-4", flexible="4+"):
    throttle_time_ms: Int32 = field(versions="2+", ignorable=True, default=0)
    topics: list[OffsetForLeaderTopicResult]
