"""WriteTxnMarkers: end transactions in partitions that this broker leads.

Here coordinators write their markers without requests, so the request comes from admins that abort a hanging
transaction (KIP-664); its coordinator is not told.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from fakebroker.cluster.authorization import cluster_error
from fakebroker.cluster.call import Call
from fakebroker.cluster.handlers.lookup import find_partition
from fakebroker.cluster.topics import OFFSETS_TOPIC, Partition
from fakebroker.coordinator.transaction.transaction import NO_EPOCH, NO_PRODUCER_ID, Markers
from fakebroker.errors import ErrorCode
from fakebroker.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from fakebroker.protocol.releases import Release
from fakebroker.protocol.schema import Message
from fakebroker.protocol.types import ZERO_UUID
from fakebroker.security.acls import AclOperation
from fakebroker.topic_partition import TopicPartition, by_topic

if TYPE_CHECKING:
    from fakebroker.cluster.cluster import Cluster


_UNKNOWN_VERSION = -1
_KIP_1037 = Release(3, 8)
"""The first release in which admins may write markers, with the permission to alter the cluster."""

_COUNTS_RESULTS = Release(4, 0)
"""A release that waits for a result for each partition of a marker, also for one that is named twice."""


def handle(cluster: "Cluster", call: Call, now_ms: float) -> Message | None:
    request: WriteTxnMarkersRequest = call.request
    if error := _permission_error(cluster, call):
        return _response({each.producer_id: dict.fromkeys(_places(each), error) for each in request.markers})
    results: dict[int, dict[TopicPartition, ErrorCode]] = {}  # as in Kafka, the markers of a producer have one row
    waits = False
    for marker in request.markers:
        places = _places(marker)
        if _fails(cluster, call, marker, places):
            results = {
                each.producer_id: dict.fromkeys(_places(each), ErrorCode.UNKNOWN_SERVER_ERROR)
                for each in request.markers
            }
            return _response(results)
        if call.broker.release >= _COUNTS_RESULTS and _has_repeated_log(cluster, call, places):
            places, waits = list(dict.fromkeys(places)), True
        for place in places:
            results.setdefault(marker.producer_id, {})[place] = _result(cluster, call, marker, place)
    return None if waits else _response(results)


def _response(results: Mapping[int, Mapping[TopicPartition, ErrorCode]]) -> WriteTxnMarkersResponse:
    rows = [
        WritableTxnMarkerResult(producer_id=producer_id, topics=_topics(errors))
        for producer_id, errors in results.items()
    ]
    return WriteTxnMarkersResponse(markers=rows)


def _permission_error(cluster: "Cluster", call: Call) -> ErrorCode:
    """Return the error if the client may neither alter the cluster nor act as a broker."""
    if call.broker.release >= _KIP_1037 and not cluster_error(cluster, call, AclOperation.ALTER):
        return ErrorCode.NONE
    return cluster_error(cluster, call, AclOperation.CLUSTER_ACTION)


def _places(marker: WritableTxnMarker) -> list[TopicPartition]:
    return [(topic.name, index) for topic in marker.topics for index in topic.partition_indexes]


def _has_repeated_log(cluster: "Cluster", call: Call, places: Sequence[TopicPartition]) -> bool:
    """Return whether a marker names a partition twice.

    Partitions of __consumer_offsets, and partitions without a replica on the broker, do not count.
    Kafka then writes the marker once, but waits for two results: the request is never answered.
    """
    logs = [each for each in places if each[0] != OFFSETS_TOPIC]
    if len(logs) == len(set(logs)):
        return False
    known = [each for each in logs if isinstance(_replica(cluster, call, each), Partition)]
    return len(known) > len(set(known))


def _fails(cluster: "Cluster", call: Call, marker: WritableTxnMarker, places: Iterable[TopicPartition]) -> bool:
    """Return whether the request fails at a marker, after those before it were written.

    Kafka fails to build the control batch of a marker without producer id or epoch, unless a group coordinator does.
    """
    if marker.producer_id != NO_PRODUCER_ID and marker.producer_epoch != NO_EPOCH:
        return False
    return any(place[0] != OFFSETS_TOPIC and isinstance(_replica(cluster, call, place), Partition) for place in places)


def _replica(cluster: "Cluster", call: Call, place: TopicPartition) -> Partition | ErrorCode:
    """Return a partition; UNKNOWN_TOPIC_OR_PARTITION if the broker has no replica of the partition."""
    partition = find_partition(cluster, place[0], ZERO_UUID, place[1], by_id=False)
    if isinstance(partition, Partition) and call.broker.node_id not in partition.replicas:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return partition


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


def _result(cluster: "Cluster", call: Call, marker: WritableTxnMarker, place: TopicPartition) -> ErrorCode:
    partition = _replica(cluster, call, place)
    if isinstance(partition, ErrorCode):
        return partition
    if marker.producer_id == NO_PRODUCER_ID or marker.producer_epoch == NO_EPOCH:
        return ErrorCode.UNKNOWN_SERVER_ERROR
    if call.broker.node_id != partition.leader_id:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    if marker.transaction_version == _UNKNOWN_VERSION:
        return ErrorCode.UNKNOWN_SERVER_ERROR  # as in Kafka, which fails here
    markers = Markers(
        transactional_id="",
        producer_id=marker.producer_id,
        epoch=marker.producer_epoch,
        is_commit=marker.transaction_result,
        coordinator_epoch=marker.coordinator_epoch,
        version=marker.transaction_version,
        partitions=(place,),
    )
    return cluster.transactions.write_at(call.broker, partition, markers)
