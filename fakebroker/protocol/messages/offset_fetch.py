"""OffsetFetch: the committed offsets of a group, of several groups since version 8 (KIP-709); topic ids since 10."""

from fakebroker.protocol.schema import Message, Struct, field
from fakebroker.protocol.types import ZERO_UUID, Boolean, Int16, Int32, Int64, String, Uuid


class OffsetFetchRequestTopic(Struct):
    name: String
    partition_indexes: list[Int32]


class OffsetFetchRequestTopics(Struct):
    name: String = field(versions="8-9", ignorable=True, default="")
    topic_id: Uuid = field(versions="10+", ignorable=True, default=ZERO_UUID)
    partition_indexes: list[Int32]


class OffsetFetchRequestGroup(Struct):
    group_id: String
    member_id: String | None = field(versions="9+", ignorable=True, default=None)
    member_epoch: Int32 = field(versions="9+", ignorable=True, default=-1)
    topics: list[OffsetFetchRequestTopics] | None


class OffsetFetchRequest(Message, api_key=9, versions="0-10", flexible="6+"):
    group_id: String = field(versions="0-7", default="")
    topics: list[OffsetFetchRequestTopic] | None = field(versions="0-7", nullable="2-7", default_factory=list)
    groups: list[OffsetFetchRequestGroup] = field(versions="8+", default_factory=list)
    require_stable: Boolean = field(versions="7+", default=False)


class OffsetFetchResponsePartition(Struct):
    partition_index: Int32
    committed_offset: Int64
    committed_leader_epoch: Int32 = field(versions="5-7", ignorable=True, default=-1)
    metadata: String | None
    error_code: Int16


class OffsetFetchResponseTopic(Struct):
    name: String
    partitions: list[OffsetFetchResponsePartition]


class OffsetFetchResponsePartitions(Struct):
    partition_index: Int32
    committed_offset: Int64
    committed_leader_epoch: Int32 = -1
    metadata: String | None
    error_code: Int16


class OffsetFetchResponseTopics(Struct):
    name: String = field(versions="8-9", ignorable=True, default="")
    topic_id: Uuid = field(versions="10+", ignorable=True, default=ZERO_UUID)
    partitions: list[OffsetFetchResponsePartitions]


class OffsetFetchResponseGroup(Struct):
    group_id: String
    topics: list[OffsetFetchResponseTopics]
    error_code: Int16 = 0


class OffsetFetchResponse(Message, api_key=9, versions="0-10", flexible="6+"):
    throttle_time_ms: Int32 = field(versions="3+", ignorable=True, default=0)
    topics: list[OffsetFetchResponseTopic] = field(versions="0-7", default_factory=list)
    error_code: Int16 = field(versions="2-7", ignorable=True, default=0)
    groups: list[OffsetFetchResponseGroup] = field(versions="8+", default_factory=list)
