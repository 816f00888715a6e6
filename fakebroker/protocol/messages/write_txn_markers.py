"""WriteTxnMarkers: ends transactions in partitions; sent by coordinators, and by admins to abort one (KIP-664)."""

from fakebroker.protocol.schema import Message, Struct, field, message, struct
from fakebroker.protocol.types import Boolean, Int8, Int16, Int32, Int64, String


@struct
class WritableTxnMarkerTopic(Struct):
    name: String
    partition_indexes: list[Int32]


@struct
class WritableTxnMarker(Struct):
    producer_id: Int64
    producer_epoch: Int16
    transaction_result: Boolean
    topics: list[WritableTxnMarkerTopic]
    coordinator_epoch: Int32
    transaction_version: Int8 = field(versions="2+", ignorable=True, default=0)


@message(api_key=27, versions="0-2", flexible="1+")
class WriteTxnMarkersRequest(Message):
    markers: list[WritableTxnMarker]


@struct
class WritableTxnMarkerPartitionResult(Struct):
    partition_index: Int32
    error_code: Int16


@struct
class WritableTxnMarkerTopicResult(Struct):
    name: String
    partitions: list[WritableTxnMarkerPartitionResult]


@struct
class WritableTxnMarkerResult(Struct):
    producer_id: Int64
    topics: list[WritableTxnMarkerTopicResult]


@message(api_key=27, versions="0-2", flexible="1+")
class WriteTxnMarkersResponse(Message):
    markers: list[WritableTxnMarkerResult]
