"""The checks of Produce requests with transactional batches, before anything is appended (KIP-98, KIP-890).

Follows KafkaApis.handleProduceRequest and ReplicaManager.maybeSendPartitionsToTransactionCoordinator. A batch is only
appended if its partition was added to the transaction: brokers of 3.6 and later ask the transaction coordinator, and
add the partition themselves in versions 12 and up.
"""

import struct
from typing import TYPE_CHECKING

from fakebroker.cluster.call import Call
from fakebroker.cluster.handlers.lookup import leadership_error
from fakebroker.cluster.handlers.transaction_verification import Verification
from fakebroker.cluster.topics import Partition
from fakebroker.errors import ErrorCode
from fakebroker.protocol.messages.produce import ProduceRequest
from fakebroker.protocol.releases import Release

if TYPE_CHECKING:
    from fakebroker.cluster.cluster import Cluster

_VERIFIES = Release(3, 6)
"""The first release that verifies partitions."""

_FIRST_VERSION_OF_ABORTABLE, _FIRST_VERSION_THAT_ADDS = 11, 12

_HEADER = struct.Struct(">16xb4xh20xqh")
"""Magic, attributes, producer id and producer epoch of a record batch."""

_MAGIC, _TRANSACTIONAL_BIT = 2, 0x10

_ERRORS = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_COORDINATOR: ErrorCode.NOT_ENOUGH_REPLICAS,
}


def producer_of(records: bytes | None) -> tuple[int, int] | None:
    """Return the producer id and epoch of a transactional batch; None for other records, which may be invalid."""
    if records is None or len(records) < _HEADER.size:
        return None
    magic, attributes, producer_id, epoch = _HEADER.unpack_from(records)
    return (producer_id, epoch) if magic == _MAGIC and attributes & _TRANSACTIONAL_BIT else None


def request_error(request: ProduceRequest) -> ErrorCode:
    """Return the error of all partitions of a request: it lacks a transactional id, or has batches of two producers."""
    found = {producer_of(data.records) for topic in request.topic_data for data in topic.partition_data} - {None}
    if not found:
        return ErrorCode.NONE
    if request.transactional_id is None:
        return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    return ErrorCode.INVALID_PRODUCER_ID_MAPPING if len(found) > 1 else ErrorCode.NONE


def partition_error(
    cluster: "Cluster", call: Call, partition: Partition, records: bytes | None, now_ms: float
) -> ErrorCode:
    """Return why a transactional batch may not be appended to a partition, else NONE."""
    producer = producer_of(records)
    adds = call.api_version >= _FIRST_VERSION_THAT_ADDS
    verifies = call.broker.release >= _VERIFIES and cluster.config.switch("transaction.partition.verification.enable")
    if producer is None or not (adds or verifies):
        return ErrorCode.NONE
    if error := leadership_error(partition, call.broker):
        return error
    has_abortable = call.api_version >= _FIRST_VERSION_OF_ABORTABLE
    verification = Verification(call.request.transactional_id, *producer, adds=adds, has_abortable=has_abortable)
    error = verification.error(cluster, partition, call.broker.release, now_ms)
    if error is ErrorCode.CONCURRENT_TRANSACTIONS and not adds:
        return ErrorCode.NOT_ENOUGH_REPLICAS
    return _ERRORS.get(error, error)
