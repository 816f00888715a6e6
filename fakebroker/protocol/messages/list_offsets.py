"""ListOffsets: the offset of a timestamp. Negative timestamps select special offsets, such as the earliest or latest.

Version 0 returns several offsets from before the timestamp.
"""

from fakebroker.protocol.schema import Message, Struct, field
from fakebroker.protocol.types import Int8, Int16, Int32, Int64, String


class ListOffsetsPartition(Struct):
    partition_index: Int32
    current_leader_epoch: Int32 = field(versions="4+", ignorable=True, default=-1)
    timestamp: Int64
    max_num_offsets: Int32 = field(versions="0", default=1)


class ListOffsetsTopic(Struct):
    name: String
    partitions: list[ListOffsetsPartition]


class ListOffsetsRequest(Message, api_key=2, versions="0-11", flexible="6+"):
    replica_id: Int32
    isolation_level: Int8 = field(versions="2+", default=0)
    topics: list[ListOffsetsTopic]
    timeout_ms: Int32 = field(versions="10+", ignorable=True, default=0)


class ListOffsetsPartitionResponse(Struct):
    partition_index: Int32
    error_code: Int16
    old_style_offsets: list[Int64] = field(versions="0", default_factory=list)
    timestamp: Int64 = field(versions="1+", default=-1)
    offset: Int64 = field(versions="1+", default=-1)
    leader_epoch: Int32 = field(versions="4+", default=-1)


class ListOffsetsTopicResponse(Struct):
    name: String
    partitions: list[ListOffsetsPartitionResponse]


class ListOffsetsResponse(Message, api_key=2, versions="0-11", flexible="6+"):
    throttle_time_ms: Int32 = field(versions="2+", ignorable=True, default=0)
    topics: list[ListOffsetsTopicResponse]
