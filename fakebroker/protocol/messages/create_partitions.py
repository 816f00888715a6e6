"""CreatePartitions: adds partitions to topics (KIP-195)."""

from fakebroker.protocol.schema import Message, Struct, message, struct
from fakebroker.protocol.types import Boolean, Int16, Int32, String


@struct
class CreatePartitionsAssignment(Struct):
    broker_ids: list[Int32]


@struct
class CreatePartitionsTopic(Struct):
    name: String
    count: Int32
    assignments: list[CreatePartitionsAssignment] | None


@message(api_key=37, versions="0-3", flexible="2+")
class CreatePartitionsRequest(Message):
    topics: list[CreatePartitionsTopic]
    timeout_ms: Int32
    validate_only: Boolean


@struct
class CreatePartitionsTopicResult(Struct):
    name: String
    error_code: Int16
    error_message: String | None = None


@message(api_key=37, versions="0-3", flexible="2+")
class CreatePartitionsResponse(Message):
    throttle_time_ms: Int32 = 0
    results: list[CreatePartitionsTopicResult]
