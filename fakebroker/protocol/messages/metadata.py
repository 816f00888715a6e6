"""Metadata: the brokers, and the leaders and replicas of partitions; topic ids since version 10 (KIP-516)."""

from fakebroker.protocol.schema import Message, Struct, field
from fakebroker.protocol.types import ZERO_UUID, Boolean, Int16, Int32, String, Uuid


class MetadataRequestTopic(Struct):
    topic_id: Uuid = field(versions="10+", ignorable=True, default=ZERO_UUID)
    name: String | None = field(nullable="10+")


class MetadataRequest(Message, api_key=3, versions="0-13", flexible="9+"):
    topics: list[MetadataRequestTopic] | None = field(nullable="1+")
    allow_auto_topic_creation: Boolean = field(versions="4+", default=True)
    include_cluster_authorized_operations: Boolean = field(versions="8-10", default=False)
    include_topic_authorized_operations: Boolean = field(versions="8+", default=False)


class MetadataResponseBroker(Struct):
    node_id: Int32
    host: String
    port: Int32
    rack: String | None = field(versions="1+", ignorable=True, default=None)


class MetadataResponsePartition(Struct):
    error_code: Int16
    partition_index: Int32
    leader_id: Int32
    leader_epoch: Int32 = field(versions="7+", ignorable=True, default=-1)
    replica_nodes: list[Int32]
    isr_nodes: list[Int32]
    offline_replicas: list[Int32] = field(versions="5+", ignorable=True, default_factory=list)


class MetadataResponseTopic(Struct):
    error_code: Int16
    name: String | None = field(nullable="12+")
    topic_id: Uuid = field(versions="10+", ignorable=True, default=ZERO_UUID)
    is_internal: Boolean = field(versions="1+", ignorable=True, default=False)
    partitions: list[MetadataResponsePartition]
    topic_authorized_operations: Int32 = field(versions="8+", default=-2147483648)


class MetadataResponse(Message, api_key=3, versions="0-13", flexible="9+"):
    throttle_time_ms: Int32 = field(versions="3+", ignorable=True, default=0)
    brokers: list[MetadataResponseBroker]
    cluster_id: String | None = field(versions="2+", ignorable=True, default=None)
    controller_id: Int32 = field(versions="1+", ignorable=True, default=-1)
    topics: list[MetadataResponseTopic]
    cluster_authorized_operations: Int32 = field(versions="8-10", default=-2147483648)
    error_code: Int16 = field(versions="13+", ignorable=True, default=0)
