"""Produce: one record batch for each partition, checked and appended. As there is one copy, all replicas have it.

Checks follow KafkaApis.handleProduceRequest, ProduceRequest.validateRecords and ReplicaManager.appendToLocalLog.
"""

from typing import TYPE_CHECKING

from fakebroker.cluster.call import Call
from fakebroker.cluster.handlers import fetch
from fakebroker.cluster.handlers.lookup import find_partition, leaders_of, leadership_error
from fakebroker.cluster.topics import Partition, Topic
from fakebroker.errors import ErrorCode
from fakebroker.protocol.compression import Compression
from fakebroker.protocol.messages.produce import (
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from fakebroker.protocol.records import InvalidBatchError, RecordBatch, split_batches, validate_produced

if TYPE_CHECKING:
    from fakebroker.cluster.cluster import Cluster

ADMIN_CLIENT_ID = "__admin_client"
"""The one client id that may write to internal topics (AdminUtils)."""


def handle(cluster: "Cluster", call: Call, now_ms: float) -> ProduceResponse | None:
    request: ProduceRequest = call.request
    moved: list[Partition] = []
    topics = [
        TopicProduceResponse(
            name=topic.name,
            topic_id=topic.topic_id,
            partition_responses=[_produce(cluster, call, topic, data, moved, now_ms) for data in topic.partition_data],
        )
        for topic in request.topic_data
    ]
    if request.acks == 0:
        call.closes_connection = any(each.error_code for topic in topics for each in topic.partition_responses)
        cluster.answer(call, None, now_ms)
        return None
    return ProduceResponse(
        responses=topics,
        node_endpoints=[
            NodeEndpoint(node_id=broker.node_id, host=broker.host, port=broker.port)
            for broker in leaders_of(cluster, moved)
        ],
    )


def _produce(
    cluster: "Cluster",
    call: Call,
    topic: TopicProduceData,
    data: PartitionProduceData,
    moved: list[Partition],
    now_ms: float,
) -> PartitionProduceResponse:
    """Append one partition's batch, or refuse it; `moved` gets the partition if another broker leads it."""
    if call.api_version < 3:
        return _refused(data, ErrorCode.UNSUPPORTED_VERSION)
    partition = find_partition(cluster, topic.name, topic.topic_id, data.index, by_id=call.api_version >= 13)
    if isinstance(partition, ErrorCode):
        return _refused(data, partition)
    try:
        batch = _checked(cluster, call, partition, data.records or b"")
    except InvalidBatchError as fault:
        return _refused(data, fault.error_code, str(fault))
    if isinstance(batch, ErrorCode):
        response = _refused(data, batch)
        if batch is ErrorCode.NOT_LEADER_OR_FOLLOWER and call.api_version >= 10:
            response.current_leader = LeaderIdAndEpoch(
                leader_id=partition.leader_id, leader_epoch=partition.leader_epoch
            )
            moved.append(partition)
        return response
    base_offset = partition.log.append(batch.data, partition.leader_epoch)
    fetch.wake(cluster, partition, batch.size_bytes, now_ms)
    return PartitionProduceResponse(
        index=data.index,
        error_code=ErrorCode.NONE,
        base_offset=base_offset,
        log_start_offset=partition.log.log_start_offset,
    )


def _refused(data: PartitionProduceData, error: ErrorCode, message: str | None = None) -> PartitionProduceResponse:
    return PartitionProduceResponse(index=data.index, error_code=error, base_offset=-1, error_message=message)


def _checked(cluster: "Cluster", call: Call, partition: Partition, records: bytes) -> RecordBatch | ErrorCode:
    """The batch to append, or why it may not be.

    Raises:
        InvalidBatchError: The bytes are not one sound batch.
    """
    if call.request.acks not in (-1, 0, 1):
        return ErrorCode.INVALID_REQUIRED_ACKS
    batches = split_batches(records)
    if call.api_version < 7 and any(batch.compression is Compression.ZSTD for batch in batches):
        return ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    if any(batch.is_transactional for batch in batches):
        # No transaction can have begun: InitProducerId refuses transactional ids.
        return ErrorCode.INVALID_TXN_STATE
    if partition.topic.is_internal and call.client_id != ADMIN_CLIENT_ID:
        return ErrorCode.INVALID_TOPIC_EXCEPTION
    error = leadership_error(partition, call.broker)
    if error is not ErrorCode.NONE:
        return error
    if any(batch.size_bytes > _limit_bytes(cluster, partition.topic) for batch in batches):
        return ErrorCode.MESSAGE_TOO_LARGE
    return validate_produced(records)


def _limit_bytes(cluster: "Cluster", topic: Topic) -> int:
    return int(topic.configs.get("max.message.bytes", cluster.config.number("message.max.bytes")))
