"""DescribeQuorum: the leader, voters and observers of the metadata log (KIP-595, KIP-836, KIP-853)."""

from fakebroker.protocol.schema import Message, Struct, field
from fakebroker.protocol.types import ZERO_UUID, Int16, Int32, Int64, String, UInt16, Uuid


class RequestedPartition(Struct):
    partition_index: Int32


class RequestedTopic(Struct):
    topic_name: String
    partitions: list[RequestedPartition]


class DescribeQuorumRequest(Message, api_key=55, versions="0-2", flexible="0+"):
    topics: list[RequestedTopic]


class ReplicaState(Struct):
    replica_id: Int32
    replica_directory_id: Uuid = field(versions="2+", default=ZERO_UUID)
    log_end_offset: Int64
    last_fetch_timestamp: Int64 = field(versions="1+", ignorable=True, default=-1)
    last_caught_up_timestamp: Int64 = field(versions="1+", ignorable=True, default=-1)


class PartitionData(Struct):
    partition_index: Int32
    error_code: Int16
    error_message: String | None = field(versions="2+", nullable="2+", ignorable=True, default="")
    leader_id: Int32
    leader_epoch: Int32
    high_watermark: Int64
    current_voters: list[ReplicaState]
    observers: list[ReplicaState]


class TopicData(Struct):
    topic_name: String
    partitions: list[PartitionData]


class Listener(Struct):
    name: String
    host: String
    port: UInt16


class Node(Struct):
    node_id: Int32
    listeners: list[Listener]


class DescribeQuorumResponse(Message, api_key=55, versions="0-2", flexible="0+"):
    error_code: Int16
    error_message: String | None = field(versions="2+", nullable="2+", ignorable=True, default="")
    topics: list[TopicData]
    nodes: list[Node] = field(versions="2+", default_factory=list)
