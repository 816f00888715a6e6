"""DeleteRecords: deletes the records of partitions before an offset (KIP-107)."""

from fakebroker.protocol.schema import Message, Struct, message, struct
from fakebroker.protocol.types import Int16, Int32, Int64, String


@struct
class DeleteRecordsPartition(Struct):
    partition_index: Int32
    offset: Int64


@struct
class DeleteRecordsTopic(Struct):
    name: String
    partitions: list[DeleteRecordsPartition]


@message(api_key=21, versions="0-2", flexible="2+")
class DeleteRecordsRequest(Message):
    topics: list[DeleteRecordsTopic]
    timeout_ms: Int32


@struct
class DeleteRecordsPartitionResult(Struct):
    partition_index: Int32
    low_watermark: Int64
    error_code: Int16


@struct
class DeleteRecordsTopicResult(Struct):
    name: String
    partitions: list[DeleteRecordsPartitionResult]


@message(api_key=21, versions="0-2", flexible="2+")
class DeleteRecordsResponse(Message):
    throttle_time_ms: Int32 = 0
    topics: list[DeleteRecordsTopicResult]
