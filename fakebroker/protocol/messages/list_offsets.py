"""ListOffsets: the offset of a timestamp. Negative timestamps select special offsets, such as the earliest or latest.

Version 0 returns several offsets from before the timestamp.
"""

from fakebroker.protocol.schema import Message, Struct, field, message, struct
from fakebroker.protocol.types import Int8, Int16, Int32, Int64, String


@struct
class ListOffsetsPartition(Struct):
    partition_index: Int32
    current_leader_epoch: Int32 = field(versions="4+", ignorable=True, default=-1)
    timestamp: Int64
    max_num_offsets: Int32 = field(versions="0", default=1)


@struct
class ListOffsetsTopic(Struct):
    name: String
    partitions: list[ListOffsetsPartition]


@message(api_key=2, versions="0-11", flexible="6+")
class ListOffsetsRequest(Message):
    replica_id: Int32
    isolation_level: Int8 = field(versions="2+", default=0)
    topics: list[ListOffsetsTopic]
    timeout_ms: Int32 = field(versions="10+", ignorable=True, default=0)


@struct
class ListOffsetsPartitionResponse(Struct):
    partition_index: Int32
    error_code: Int16
    old_style_offsets: list[Int64] = field(versions="0", default_factory=list)
    timestamp: Int64 = field(versions="1+", default=-1)
    offset: Int64 = field(versions="1+", default=-1)
    leader_epoch: Int32 = field(versions="4+", default=-1)


@struct
class ListOffsetsTopicResponse(Struct):
    name: String
    partitions: list[ListOffsetsPartitionResponse]


@message(api_key=2, versions="0-11", flexible="6+")
class ListOffsetsResponse(Message):
    throttle_time_ms: Int32 = field(versions="2+", ignorable=True, default=0)
    topics: list[ListOffsetsTopicResponse]
