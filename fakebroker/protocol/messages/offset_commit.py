"""OffsetCommit: stores offsets of a group; topic ids since version 10 (KIP-848)."""

from fakebroker.protocol.schema import Message, Struct, field
from fakebroker.protocol.types import ZERO_UUID, Int16, Int32, Int64, String, Uuid


class OffsetCommitRequestPartition(Struct):
    partition_index: Int32
    committed_offset: Int64
    committed_leader_epoch: Int32 = field(versions="6+", ignorable=True, default=-1)
    commit_timestamp: Int64 = field(versions="1", default=-1)
    committed_metadata: String | None


class OffsetCommitRequestTopic(Struct):
    name: String = field(versions="0-9", ignorable=True, default="")
    topic_id: Uuid = field(versions="10+", ignorable=True, default=ZERO_UUID)
    partitions: list[OffsetCommitRequestPartition]


class OffsetCommitRequest(Message, api_key=8, versions="0-10", flexible="8+"):
    group_id: String
    generation_id_or_member_epoch: Int32 = field(versions="1+", ignorable=True, default=-1)
    member_id: String = field(versions="1+", ignorable=True, default="")
    group_instance_id: String | None = field(versions="7+", default=None)
    retention_time_ms: Int64 = field(versions="2-4", ignorable=True, default=-1)
    topics: list[OffsetCommitRequestTopic]


class OffsetCommitResponsePartition(Struct):
    partition_index: Int32
    error_code: Int16


class OffsetCommitResponseTopic(Struct):
    name: String = field(versions="0-9", ignorable=True, default="")
    topic_id: Uuid = field(versions="10+", ignorable=True, default=ZERO_UUID)
    partitions: list[OffsetCommitResponsePartition]


class OffsetCommitResponse(Message, api_key=8, versions="0-10", flexible="8+"):
    throttle_time_ms: Int32 = field(versions="3+", ignorable=True, default=0)
    topics: list[OffsetCommitResponseTopic]
