"""DescribeProducers: the active producers of partitions (KIP-664). Leaders and followers answer."""

from typing import TYPE_CHECKING

from fakebroker.cluster.authorization import topic_error
from fakebroker.cluster.call import Call
from fakebroker.cluster.faults.error_catalog import MESSAGES
from fakebroker.cluster.handlers.lookup import find_partition, leadership_error
from fakebroker.cluster.logs.producer_state import Producer
from fakebroker.errors import ErrorCode
from fakebroker.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from fakebroker.protocol.types import ZERO_UUID
from fakebroker.security.acls import AclOperation
from fakebroker.topic_partition import name_error

if TYPE_CHECKING:
    from fakebroker.cluster.cluster import Cluster

_NO_TRANSACTION = -1


def handle(cluster: "Cluster", call: Call, now_ms: float) -> DescribeProducersResponse:
    request: DescribeProducersRequest = call.request
    return DescribeProducersResponse(
        topics=[
            TopicResponse(
                name=topic.name,
                partitions=[_describe(cluster, call, topic.name, index) for index in topic.partition_indexes],
            )
            for topic in request.topics
        ]
    )


def _describe(cluster: "Cluster", call: Call, name: str, index: int) -> PartitionResponse:
    message = name_error(name)
    if message is not None:
        return _refused(index, ErrorCode.INVALID_TOPIC_EXCEPTION, message)
    if refused := topic_error(cluster, call, AclOperation.READ, name):
        return _refused(index, refused, MESSAGES[refused])
    if name not in cluster.topics:
        return _refused(index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name!r}")
    partition = find_partition(cluster, name, ZERO_UUID, index, by_id=False)
    if isinstance(partition, ErrorCode):
        return _refused(index, partition)
    error = leadership_error(partition, call.broker, leader_only=False)
    if error is not ErrorCode.NONE:
        return _refused(index, error)
    cluster.expire_producers(partition.log, call.broker)
    return PartitionResponse(
        partition_index=index,
        error_code=ErrorCode.NONE,
        active_producers=[_state(producer) for producer in partition.log.producers.all()],
    )


def _refused(index: int, error: ErrorCode, message: str | None = None) -> PartitionResponse:
    return PartitionResponse(partition_index=index, error_code=error, error_message=message, active_producers=[])


def _state(producer: Producer) -> ProducerState:
    return ProducerState(
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        last_sequence=producer.last_sequence,
        last_timestamp=producer.last_timestamp_ms,
        coordinator_epoch=producer.coordinator_epoch,
        current_txn_start_offset=_NO_TRANSACTION
        if producer.transaction_offset is None
        else producer.transaction_offset,
    )
