"""OffsetDelete: deletes committed offsets of topics that the group does not subscribe to (KIP-496)."""

from fakebroker.protocol.schema import Message, Struct, message, struct
from fakebroker.protocol.types import Int16, Int32, String


@struct
class OffsetDeleteRequestPartition(Struct):
    partition_index: Int32


@struct
class OffsetDeleteRequestTopic(Struct):
    name: String
    partitions: list[OffsetDeleteRequestPartition]


@message(api_key=47, versions="0", flexible="none")
class OffsetDeleteRequest(Message):
    group_id: String
    topics: list[OffsetDeleteRequestTopic]


@struct
class OffsetDeleteResponsePartition(Struct):
    partition_index: Int32
    error_code: Int16


@struct
class OffsetDeleteResponseTopic(Struct):
    name: String
    partitions: list[OffsetDeleteResponsePartition]


@message(api_key=47, versions="0", flexible="none")
class OffsetDeleteResponse(Message):
    error_code: Int16 = 0
    throttle_time_ms: Int32 = 0
    topics: list[OffsetDeleteResponseTopic]
