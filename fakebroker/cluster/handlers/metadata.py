"""Metadata: brokers, topics and leaders. A topic that does not exist is created if the request allows it."""

from typing import TYPE_CHECKING

from fakebroker.cluster.authorization import (
    NOT_REQUESTED,
    cluster_operations,
    may_with_cluster_or_topic,
    operations,
    topic_error,
)
from fakebroker.cluster.call import Call
from fakebroker.cluster.topics import INTERNAL_TOPICS, Partition, Topic
from fakebroker.errors import ErrorCode
from fakebroker.protocol.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from fakebroker.protocol.types import ZERO_UUID
from fakebroker.security.acls import AclOperation, ResourceType
from fakebroker.topic_partition import is_legal_name

if TYPE_CHECKING:
    from fakebroker.cluster.cluster import Cluster

_FIRST_VERSION_OF_IDS, _FIRST_VERSION_OF_ERRORS = 12, 13


def handle(cluster: "Cluster", call: Call, now_ms: float) -> MetadataResponse:
    request: MetadataRequest = call.request
    error = _error(call)
    if error:
        return _refused(call, error)
    return MetadataResponse(
        brokers=[
            MetadataResponseBroker(node_id=broker.node_id, host=host, port=port, rack=broker.rack)
            for broker in cluster.brokers.values()
            if broker.up
            for host, port in (call.endpoint_of(broker),)
        ],
        cluster_id=cluster.cluster_id,
        controller_id=cluster.controller_id,
        topics=_topics(cluster, call),
        cluster_authorized_operations=cluster_operations(cluster, call)
        if request.include_cluster_authorized_operations
        else NOT_REQUESTED,
    )


def _error(call: Call) -> ErrorCode:
    """Return the error of the whole request.

    Topics have ids since version 12. Then Kafka fails if a topic has neither a name nor an id, and no other has an id.
    """
    requested = call.request.topics or []
    has_ids = any(topic.topic_id != ZERO_UUID for topic in requested)
    has_all_names = all(topic.name is not None for topic in requested)
    if call.api_version < _FIRST_VERSION_OF_IDS:
        return ErrorCode.INVALID_REQUEST if has_ids or not has_all_names else ErrorCode.NONE
    return ErrorCode.NONE if has_ids or has_all_names else ErrorCode.UNKNOWN_SERVER_ERROR


def _refused(call: Call, error: ErrorCode) -> MetadataResponse:
    """Return the response without brokers, in which all topics have the error (MetadataRequest.getErrorResponse)."""
    failed = [_failed(error, topic.name or "", topic.topic_id) for topic in call.request.topics]
    for each in failed:
        each.is_internal = False
    return MetadataResponse(
        brokers=[],
        cluster_id=None,
        controller_id=-1,
        topics=failed,
        cluster_authorized_operations=NOT_REQUESTED,
        error_code=error if call.api_version >= _FIRST_VERSION_OF_ERRORS else ErrorCode.NONE,
    )


def _topics(cluster: "Cluster", call: Call) -> list[MetadataResponseTopic]:
    """Return the requested topics without duplicates, or all. If one is requested by id, names are ignored."""
    requested = call.request.topics
    if requested is None or (call.api_version == 0 and not requested):
        return [
            _described(cluster, call, topic)
            for topic in cluster.topics
            if cluster.acls is None or not topic_error(cluster, call, AclOperation.DESCRIBE, topic.name)
        ]
    topic_ids = dict.fromkeys(topic.topic_id for topic in requested if topic.topic_id != ZERO_UUID)
    if topic_ids:
        return [_by_id(cluster, call, topic_id) for topic_id in topic_ids]
    return [_by_name(cluster, call, name or "") for name in dict.fromkeys(topic.name for topic in requested)]


def _by_id(cluster: "Cluster", call: Call, topic_id: bytes) -> MetadataResponseTopic:
    topic = cluster.topics.find("", topic_id, by_id=True)
    if topic is None:
        return _failed(ErrorCode.UNKNOWN_TOPIC_ID, None, topic_id)
    if error := topic_error(cluster, call, AclOperation.DESCRIBE, topic.name):
        return _failed(error, None, topic_id)
    return _described(cluster, call, topic)


def _by_name(cluster: "Cluster", call: Call, name: str) -> MetadataResponseTopic:
    if error := topic_error(cluster, call, AclOperation.DESCRIBE, name):
        hidden = _failed(error, name, ZERO_UUID)
        hidden.is_internal = False
        return hidden
    topic = cluster.topics.get(name) or _auto_created(cluster, call, name)
    if isinstance(topic, ErrorCode):
        failed = _failed(topic, name, ZERO_UUID)
        if topic is not ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            failed.topic_authorized_operations = _operations(cluster, call, name)
        return failed
    return _described(cluster, call, topic)


def _auto_created(cluster: "Cluster", call: Call, name: str) -> Topic | ErrorCode:
    """Create a topic if the request and the settings allow it, or return the error.

    Kafka creates the topic in the background, and returns UNKNOWN_TOPIC_OR_PARTITION until it exists.
    """
    allowed = call.request.allow_auto_topic_creation and cluster.config.switch("auto.create.topics.enable")
    if allowed and not may_with_cluster_or_topic(cluster, call, AclOperation.CREATE, name):
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    if not is_legal_name(name):
        return ErrorCode.INVALID_TOPIC_EXCEPTION
    if not allowed or cluster.topics.colliding(name) is not None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    growth_bytes = len(name) + cluster.config.number("num.partitions") * cluster.partition_bytes
    if cluster.storage is not None and not cluster.storage.claim(growth_bytes):
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if name in INTERNAL_TOPICS and not cluster.first_use.exists(name, cluster.now_ms):
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return cluster.auto_create_topic(name)


def _failed(error: ErrorCode, name: str | None, topic_id: bytes) -> MetadataResponseTopic:
    internal = name in INTERNAL_TOPICS
    return MetadataResponseTopic(error_code=error, name=name, topic_id=topic_id, is_internal=internal, partitions=[])


def _described(cluster: "Cluster", call: Call, topic: Topic) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        error_code=ErrorCode.NONE,
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.is_internal,
        partitions=[_partition(cluster, call, partition) for partition in topic.partitions],
        topic_authorized_operations=_operations(cluster, call, topic.name),
    )


def _operations(cluster: "Cluster", call: Call, name: str) -> int:
    """Return the authorized operations of a requested name. As in Kafka, a topic need not exist to have them."""
    if call.request.include_topic_authorized_operations:
        return operations(cluster, call, ResourceType.TOPIC, name)
    return NOT_REQUESTED


def _partition(cluster: "Cluster", call: Call, partition: Partition) -> MetadataResponsePartition:
    up = [node_id for node_id in partition.replicas if cluster.brokers[node_id].up]
    in_sync = cluster.in_sync(partition)
    # Version 0 lists only replicas on brokers that are up, with an error if others are missing.
    replicas = list(partition.replicas) if call.api_version > 0 else up
    error = ErrorCode.NONE if len(replicas) == len(partition.replicas) else ErrorCode.REPLICA_NOT_AVAILABLE
    leader_id = partition.leader_id
    if cluster.leader_of(partition) is None:
        error, leader_id = ErrorCode.LEADER_NOT_AVAILABLE, -1
    return MetadataResponsePartition(
        error_code=error,
        partition_index=partition.index,
        leader_id=leader_id,
        leader_epoch=partition.leader_epoch,
        replica_nodes=replicas,
        isr_nodes=in_sync if call.api_version > 0 else [node_id for node_id in in_sync if node_id in up],
        offline_replicas=[node_id for node_id in partition.replicas if node_id not in up],
    )
