"""WriteTxnMarkers: end transactions in partitions that this broker leads.

Here coordinators write their markers without requests, so the request comes from admins that abort a hanging
transaction (KIP-664); its coordinator is not told.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from fakebroker.cluster.call import Call
from fakebroker.cluster.handlers.lookup import find_partition
from fakebroker.coordinator.transaction.api import Markers
from fakebroker.coordinator.transaction.records import NO_EPOCH, NO_PRODUCER_ID
from fakebroker.errors import ErrorCode
from fakebroker.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from fakebroker.protocol.types import ZERO_UUID
from fakebroker.topic_partition import TopicPartition, by_topic

if TYPE_CHECKING:
    from fakebroker.cluster.cluster import Cluster


def handle(cluster: "Cluster", call: Call, now_ms: float) -> WriteTxnMarkersResponse:
    request: WriteTxnMarkersRequest = call.request
    results: dict[int, dict[TopicPartition, ErrorCode]] = {}  # as in Kafka, the markers of a producer have one row
    for marker in request.markers:
        for topic in marker.topics:
            for index in topic.partition_indexes:
                of_producer = results.setdefault(marker.producer_id, {})
                of_producer[topic.name, index] = _result(cluster, call, marker, topic.name, index)
    rows = [
        WritableTxnMarkerResult(producer_id=producer_id, topics=_topics(errors))
        for producer_id, errors in results.items()
    ]
    return WriteTxnMarkersResponse(markers=rows)


def _topics(errors: Mapping[TopicPartition, ErrorCode]) -> list[WritableTxnMarkerTopicResult]:
    return [
        WritableTxnMarkerTopicResult(
            name=topic,
            partitions=[
                WritableTxnMarkerPartitionResult(partition_index=index, error_code=errors[topic, index])
                for index in indexes
            ],
        )
        for topic, indexes in by_topic(errors).items()
    ]


def _result(cluster: "Cluster", call: Call, marker: WritableTxnMarker, name: str, index: int) -> ErrorCode:
    partition = find_partition(cluster, name, ZERO_UUID, index, by_id=False)
    if isinstance(partition, ErrorCode):
        return partition
    if call.broker.node_id not in partition.replicas:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if marker.producer_id == NO_PRODUCER_ID or marker.producer_epoch == NO_EPOCH:
        return ErrorCode.UNKNOWN_SERVER_ERROR  # as in Kafka, which fails to build the control batch
    if call.broker.node_id != partition.leader_id:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    markers = Markers(
        transactional_id="",
        producer_id=marker.producer_id,
        epoch=marker.producer_epoch,
        is_commit=marker.transaction_result,
        coordinator_epoch=marker.coordinator_epoch,
        version=marker.transaction_version,
        partitions=((name, index),),
    )
    return cluster.transactions.write_at(call.broker, partition, markers)
