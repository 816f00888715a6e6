"""CreateTopics: creates topics, with a partition count or an explicit replica assignment."""

from fakebroker.protocol.schema import Message, Struct, field
from fakebroker.protocol.types import ZERO_UUID, Boolean, Int8, Int16, Int32, String, Uuid


class CreatableReplicaAssignment(Struct):
    partition_index: Int32
    broker_ids: list[Int32]


class CreatableTopicConfig(Struct):
    name: String
    value: String | None


class CreatableTopic(Struct):
    name: String
    num_partitions: Int32
    replication_factor: Int16
    assignments: list[CreatableReplicaAssignment]
    configs: list[CreatableTopicConfig]


class CreateTopicsRequest(Message, api_key=19, versions="0-7", flexible="5+"):
    topics: list[CreatableTopic]
    timeout_ms: Int32 = 60000
    validate_only: Boolean = field(versions="1+", default=False)


class CreatableTopicConfigs(Struct):
    name: String
    value: String | None
    read_only: Boolean
    config_source: Int8 = -1
    is_sensitive: Boolean


class CreatableTopicResult(Struct):
    name: String
    topic_id: Uuid = field(versions="7+", ignorable=True, default=ZERO_UUID)
    error_code: Int16
    error_message: String | None = field(versions="1+", ignorable=True, default="")
    topic_config_error_code: Int16 = field(versions="5+", tag=0, ignorable=True, default=0)
    num_partitions: Int32 = field(versions="5+", ignorable=True, default=-1)
    replication_factor: Int16 = field(versions="5+", ignorable=True, default=-1)
    configs: list[CreatableTopicConfigs] | None = field(versions="5+", ignorable=True, default_factory=list)


class CreateTopicsResponse(Message, api_key=19, versions="0-7", flexible="5+"):
    throttle_time_ms: Int32 = field(versions="2+", ignorable=True, default=0)
    topics: list[CreatableTopicResult]
