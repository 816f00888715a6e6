"""WriteTxnMarkers: end transactions in partitions that this broker leads.

Here coordinators write their markers without requests, so the request comes from admins that abort a hanging
transaction (KIP-664); its coordinator is not told.
"""

from typing import TYPE_CHECKING

from fakebroker.cluster.call import Call
from fakebroker.cluster.handlers.lookup import find_partition
from fakebroker.coordinator.transaction.api import Markers
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

if TYPE_CHECKING:
    from fakebroker.cluster.cluster import Cluster


def handle(cluster: "Cluster", call: Call, now_ms: float) -> WriteTxnMarkersResponse:
    request: WriteTxnMarkersRequest = call.request
    return WriteTxnMarkersResponse(markers=[_write(cluster, call, marker) for marker in request.markers])


def _write(cluster: "Cluster", call: Call, marker: WritableTxnMarker) -> WritableTxnMarkerResult:
    return WritableTxnMarkerResult(
        producer_id=marker.producer_id,
        topics=[
            WritableTxnMarkerTopicResult(
                name=topic.name,
                partitions=[
                    WritableTxnMarkerPartitionResult(
                        partition_index=index, error_code=_result(cluster, call, marker, topic.name, index)
                    )
                    for index in topic.partition_indexes
                ],
            )
            for topic in marker.topics
        ],
    )


def _result(cluster: "Cluster", call: Call, marker: WritableTxnMarker, name: str, index: int) -> ErrorCode:
    partition = find_partition(cluster, name, ZERO_UUID, index, by_id=False)
    if isinstance(partition, ErrorCode):
        return partition
    if call.broker.node_id not in partition.replicas:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
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
