"""DeleteTopics: deletes topics by name, or by id since version 6 (KIP-516)."""

from fakebroker.protocol.schema import Message, Struct, field
from fakebroker.protocol.types import ZERO_UUID, Int16, Int32, String, Uuid


class DeleteTopicState(Struct):
    name: String | None = None
    topic_id: Uuid


class DeleteTopicsRequest(Message, api_key=20, versions="0-6", flexible="4+"):
    topics: list[DeleteTopicState] = field(versions="6+", default_factory=list)
    topic_names: list[String] = field(versions="0-5", ignorable=True, default_factory=list)
    timeout_ms: Int32


class DeletableTopicResult(Struct):
    name: String | None = field(nullable="6+")
    topic_id: Uuid = field(versions="6+", ignorable=True, default=ZERO_UUID)
    error_code: Int16
    error_message: String | None = field(versions="5+", ignorable=True, default=None)


class DeleteTopicsResponse(Message, api_key=20, versions="0-6", flexible="4+"):
    throttle_time_ms: Int32 = field(versions="1+", ignorable=True, default=0)
    responses: list[DeletableTopicResult]
