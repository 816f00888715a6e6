"""DescribeProducers: the active producers of partitions (KIP-664)."""

from fakebroker.protocol.schema import Message, Struct, message, struct
from fakebroker.protocol.types import Int16, Int32, Int64, String


@struct
class TopicRequest(Struct):
    name: String
    partition_indexes: list[Int32]


@message(api_key=61, versions="0", flexible="0+")
class DescribeProducersRequest(Message):
    topics: list[TopicRequest]


@struct
class ProducerState(Struct):
    producer_id: Int64
    producer_epoch: Int32
    last_sequence: Int32 = -1
    last_timestamp: Int64 = -1
    coordinator_epoch: Int32
    current_txn_start_offset: Int64 = -1


@struct
class PartitionResponse(Struct):
    partition_index: Int32
    error_code: Int16
    error_message: String | None = None
    active_producers: list[ProducerState]


@struct
class TopicResponse(Struct):
    name: String
    partitions: list[PartitionResponse]


@message(api_key=61, versions="0", flexible="0+")
class DescribeProducersResponse(Message):
    throttle_time_ms: Int32 = 0
    topics: list[TopicResponse]
