"""DeleteRecords: increase log start offsets (KIP-107).

Checks follow KafkaApis.handleDeleteRecordsRequest, ReplicaManager.deleteRecordsOnLocalLog and
Partition.deleteRecordsOnLeader.
"""

from typing import TYPE_CHECKING

from fakebroker.cluster.authorization import topic_error
from fakebroker.cluster.call import Call
from fakebroker.cluster.configs.resolution import topic_config
from fakebroker.cluster.handlers.lookup import find_partition, leadership_error
from fakebroker.errors import ErrorCode
from fakebroker.protocol.messages.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from fakebroker.protocol.types import ZERO_UUID
from fakebroker.security.acls import AclOperation

if TYPE_CHECKING:
    from fakebroker.cluster.cluster import Cluster

HIGH_WATERMARK = -1
"""The offset in a request that stands for the high watermark, which is the end of the log."""

_NO_LOW_WATERMARK = -1


def handle(cluster: "Cluster", call: Call, now_ms: float) -> DeleteRecordsResponse:
    return DeleteRecordsResponse(
        topics=[
            DeleteRecordsTopicResult(
                name=name, partitions=[_result(cluster, call, name, index, offset) for index, offset in offsets.items()]
            )
            for name, offsets in _requested_offsets(call.request).items()
        ]
    )


def _requested_offsets(request: DeleteRecordsRequest) -> dict[str, dict[int, int]]:
    """Return the requested offsets by topic and partition, without topics that have no partitions.

    If a partition is named twice, the last offset applies.
    """
    requested: dict[str, dict[int, int]] = {}
    for topic in request.topics:
        requested.setdefault(topic.name, {}).update((each.partition_index, each.offset) for each in topic.partitions)
    return {name: offsets for name, offsets in requested.items() if offsets}


def _result(cluster: "Cluster", call: Call, name: str, index: int, offset: int) -> DeleteRecordsPartitionResult:
    low_watermark = _delete(cluster, call, name, index, offset)
    if isinstance(low_watermark, ErrorCode):
        return DeleteRecordsPartitionResult(
            partition_index=index, low_watermark=_NO_LOW_WATERMARK, error_code=low_watermark
        )
    return DeleteRecordsPartitionResult(partition_index=index, low_watermark=low_watermark, error_code=ErrorCode.NONE)


def _delete(cluster: "Cluster", call: Call, name: str, index: int, offset: int) -> int | ErrorCode:
    """Delete the records before an offset, and return the log start offset, or an error."""
    if error := topic_error(cluster, call, AclOperation.DELETE, name):
        return error
    partition = find_partition(cluster, name, ZERO_UUID, index, by_id=False)
    if isinstance(partition, ErrorCode):
        return partition
    if partition.topic.is_internal:
        return ErrorCode.INVALID_TOPIC_EXCEPTION
    error = leadership_error(partition, call.broker)
    if error is not ErrorCode.NONE:
        return error
    policies = topic_config(cluster, call.broker, partition.topic.configs, "cleanup.policy").value or ""
    if "delete" not in policies.split(","):
        return ErrorCode.POLICY_VIOLATION
    log = partition.log
    if offset == HIGH_WATERMARK:
        offset = log.high_watermark
    if not 0 <= offset <= log.high_watermark:
        return ErrorCode.OFFSET_OUT_OF_RANGE
    log.truncate_before(offset)
    return log.log_start_offset
