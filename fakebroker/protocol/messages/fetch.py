"""Fetch: returns records from an offset, and waits for them if there are none.

Versions 0-3 return message sets, later versions record batches. Fetch sessions since version 7 (KIP-227), topic ids
since version 13 (KIP-516).
"""

from fakebroker.protocol.schema import Message, Struct, field
from fakebroker.protocol.types import ZERO_UUID, Int8, Int16, Int32, Int64, Records, String, Uuid


class ReplicaState(Struct):
    replica_id: Int32 = -1
    replica_epoch: Int64 = -1


class FetchPartition(Struct):
    partition: Int32
    current_leader_epoch: Int32 = field(versions="9+", ignorable=True, default=-1)
    fetch_offset: Int64
    last_fetched_epoch: Int32 = field(versions="12+", default=-1)
    log_start_offset: Int64 = field(versions="5+", ignorable=True, default=-1)
    partition_max_bytes: Int32
    replica_directory_id: Uuid = field(versions="17+", tag=0, ignorable=True, default=ZERO_UUID)
    high_watermark: Int64 = field(versions="18+", tag=1, ignorable=True, default=0x7FFFFFFFFFFFFFFF)


class FetchTopic(Struct):
    topic: String = field(versions="0-12", ignorable=True, default="")
    topic_id: Uuid = field(versions="13+", ignorable=True, default=ZERO_UUID)
    partitions: list[FetchPartition]


class ForgottenTopic(Struct):
    topic: String = field(versions="7-12", ignorable=True, default="")
    topic_id: Uuid = field(versions="13+", ignorable=True, default=ZERO_UUID)
    partitions: list[Int32]


class FetchRequest(Message, api_key=1, versions="0-18", flexible="12+"):
    cluster_id: String | None = field(versions="12+", tag=0, ignorable=True, default=None)
    replica_id: Int32 = field(versions="0-14", default=-1)
    replica_state: ReplicaState = field(versions="15+", tag=1, default_factory=ReplicaState)
    max_wait_ms: Int32
    min_bytes: Int32
    max_bytes: Int32 = field(versions="3+", ignorable=True, default=0x7FFFFFFF)
    isolation_level: Int8 = field(versions="4+", ignorable=True, default=0)
    session_id: Int32 = field(versions="7+", ignorable=True, default=0)
    session_epoch: Int32 = field(versions="7+", ignorable=True, default=-1)
    topics: list[FetchTopic]
    forgotten_topics_data: list[ForgottenTopic] = field(versions="7+", default_factory=list)
    rack_id: String = field(versions="11+", ignorable=True, default="")


class EpochEndOffset(Struct):
    epoch: Int32 = -1
    end_offset: Int64 = -1


class LeaderIdAndEpoch(Struct):
    leader_id: Int32 = -1
    leader_epoch: Int32 = -1


class SnapshotId(Struct):
    end_offset: Int64 = -1
    epoch: Int32 = -1


class AbortedTransaction(Struct):
    producer_id: Int64
    first_offset: Int64


class PartitionData(Struct):
    partition_index: Int32
    error_code: Int16
    high_watermark: Int64
    last_stable_offset: Int64 = field(versions="4+", ignorable=True, default=-1)
    log_start_offset: Int64 = field(versions="5+", ignorable=True, default=-1)
    diverging_epoch: EpochEndOffset = field(versions="12+", tag=0, default_factory=EpochEndOffset)
    current_leader: LeaderIdAndEpoch = field(versions="12+", tag=1, default_factory=LeaderIdAndEpoch)
    snapshot_id: SnapshotId = field(versions="12+", tag=2, default_factory=SnapshotId)
    aborted_transactions: list[AbortedTransaction] | None = field(versions="4+", ignorable=True, default_factory=list)
    preferred_read_replica: Int32 = field(versions="11+", default=-1)
    records: Records | None


class FetchableTopicResponse(Struct):
    topic: String = field(versions="0-12", ignorable=True, default="")
    topic_id: Uuid = field(versions="13+", ignorable=True, default=ZERO_UUID)
    partitions: list[PartitionData]


class NodeEndpoint(Struct):
    node_id: Int32
    host: String
    port: Int32
    rack: String | None = None


class FetchResponse(Message, api_key=1, versions="0-18", flexible="12+"):
    throttle_time_ms: Int32 = field(versions="1+", ignorable=True, default=0)
    error_code: Int16 = field(versions="7+", ignorable=True, default=0)
    session_id: Int32 = field(versions="7+", default=0)
    responses: list[FetchableTopicResponse]
    node_endpoints: list[NodeEndpoint] = field(versions="16+", tag=0, default_factory=list)
