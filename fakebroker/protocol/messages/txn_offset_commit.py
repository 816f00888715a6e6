"""TxnOffsetCommit: stores offsets of a group when a transaction is committed (KIP-98)."""

from fakebroker.protocol.schema import Message, Struct, field
from fakebroker.protocol.types import ZERO_UUID, Int16, Int32, Int64, String, Uuid


class TxnOffsetCommitRequestPartition(Struct):
    partition_index: Int32
    committed_offset: Int64
    committed_leader_epoch: Int32 = field(versions="2+", ignorable=True, default=-1)
    committed_metadata: String | None


class TxnOffsetCommitRequestTopic(Struct):
    name: String = field(versions="0-5", ignorable=True, default="")
    topic_id: Uuid = field(versions="6+", ignorable=True, default=ZERO_UUID)  # KIP-1319
    partitions: list[TxnOffsetCommitRequestPartition]


class TxnOffsetCommitRequest(Message, api_key=28, versions="0-6", flexible="3+"):
    transactional_id: String
    group_id: String
    producer_id: Int64
    producer_epoch: Int16
    generation_id_or_member_epoch: Int32 = field(versions="3+", default=-1)
    member_id: String = field(versions="3+", default="")
    group_instance_id: String | None = field(versions="3+", default=None)
    topics: list[TxnOffsetCommitRequestTopic]


class TxnOffsetCommitResponsePartition(Struct):
    partition_index: Int32
    error_code: Int16


class TxnOffsetCommitResponseTopic(Struct):
    name: String = field(versions="0-5", ignorable=True, default="")
    topic_id: Uuid = field(versions="6+", ignorable=True, default=ZERO_UUID)  # KIP-1319
    partitions: list[TxnOffsetCommitResponsePartition]


class TxnOffsetCommitResponse(Message, api_key=28, versions="0-6", flexible="3+"):
    throttle_time_ms: Int32 = 0
    topics: list[TxnOffsetCommitResponseTopic]
