"""Produce: appends records. Versions 0-2 have message sets, later ones record batches; topic ids since version 13."""

from fakebroker.protocol.schema import Message, Struct, field
from fakebroker.protocol.types import ZERO_UUID, Int16, Int32, Int64, Records, String, Uuid


class PartitionProduceData(Struct):
    index: Int32
    records: Records | None


class TopicProduceData(Struct):
    name: String = field(versions="0-12", ignorable=True, default="")
    topic_id: Uuid = field(versions="13+", ignorable=True, default=ZERO_UUID)
    partition_data: list[PartitionProduceData]


class ProduceRequest(Message, api_key=0, versions="0-13", flexible="9+"):
    transactional_id: String | None = field(versions="3+", default=None)
    acks: Int16
    timeout_ms: Int32
    topic_data: list[TopicProduceData]


class BatchIndexAndErrorMessage(Struct):
    batch_index: Int32
    batch_index_error_message: String | None = None


class LeaderIdAndEpoch(Struct):
    leader_id: Int32 = -1
    leader_epoch: Int32 = -1


class PartitionProduceResponse(Struct):
    index: Int32
    error_code: Int16
    base_offset: Int64
    log_append_time_ms: Int64 = field(versions="2+", ignorable=True, default=-1)
    log_start_offset: Int64 = field(versions="5+", ignorable=True, default=-1)
    record_errors: list[BatchIndexAndErrorMessage] = field(versions="8+", ignorable=True, default_factory=list)
    error_message: String | None = field(versions="8+", ignorable=True, default=None)
    current_leader: LeaderIdAndEpoch = field(versions="10+", tag=0, default_factory=LeaderIdAndEpoch)


class TopicProduceResponse(Struct):
    name: String = field(versions="0-12", ignorable=True, default="")
    topic_id: Uuid = field(versions="13+", ignorable=True, default=ZERO_UUID)
    partition_responses: list[PartitionProduceResponse]


class NodeEndpoint(Struct):
    node_id: Int32
    host: String
    port: Int32
    rack: String | None = None


class ProduceResponse(Message, api_key=0, versions="0-13", flexible="9+"):
    responses: list[TopicProduceResponse]
    throttle_time_ms: Int32 = field(versions="1+", ignorable=True, default=0)
    node_endpoints: list[NodeEndpoint] = field(versions="10+", tag=0, default_factory=list)
