"""ElectLeaders: elects preferred leaders, since version 1 also unclean ones (KIP-183, KIP-460)."""

from fakebroker.protocol.schema import Message, Struct, field
from fakebroker.protocol.types import Int8, Int16, Int32, String


class TopicPartitions(Struct):
    topic: String
    partitions: list[Int32]


class ElectLeadersRequest(Message, api_key=43, versions="0-2", flexible="2+"):
    election_type: Int8 = field(versions="1+", default=0)
    topic_partitions: list[TopicPartitions] | None
    timeout_ms: Int32 = 60000


class PartitionResult(Struct):
    partition_id: Int32
    error_code: Int16
    error_message: String | None


class ReplicaElectionResult(Struct):
    topic: String
    partition_result: list[PartitionResult]


class ElectLeadersResponse(Message, api_key=43, versions="0-2", flexible="2+"):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = field(versions="1+", default=0)
    replica_election_results: list[ReplicaElectionResult]
