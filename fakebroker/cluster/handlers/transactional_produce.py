"""The checks of Produce requests with transactional batches, before anything is appended (KIP-98, KIP-890).

Follows KafkaApis.handleProduceRequest and ReplicaManager.maybeSendPartitionsToTransactionCoordinator. A batch is only
appended if its partition was added to the transaction: brokers of 3.6 and later ask the transaction coordinator, and
add the partition themselves in versions 12 and up.
"""

import struct
from typing import TYPE_CHECKING

from fakebroker.cluster.call import Call
from fakebroker.cluster.handlers.lookup import leadership_error
from fakebroker.cluster.topics import Partition
from fakebroker.errors import ErrorCode
from fakebroker.protocol.messages.produce import ProduceRequest
from fakebroker.protocol.releases import Release

if TYPE_CHECKING:
    from fakebroker.cluster.cluster import Cluster

_VERIFIES, _REFUSES_OLD_EPOCHS_FIRST = Release(3, 6), Release(4, 1)
"""The first releases that verify partitions, and that do not ask the coordinator about old epochs."""

_FIRST_VERSION_OF_ABORTABLE, _FIRST_VERSION_THAT_ADDS = 11, 12

_HEADER = struct.Struct(">16xb4xh20xqh")
"""Magic, attributes, producer id and producer epoch of a record batch."""

_MAGIC, _TRANSACTIONAL_BIT = 2, 0x10

_ERRORS = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_COORDINATOR: ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.PRODUCER_FENCED: ErrorCode.INVALID_PRODUCER_EPOCH,
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
    producer_id, epoch = producer
    known = partition.log.producers.get(producer_id)
    if known is not None:
        if epoch < known.epoch and call.broker.release >= _REFUSES_OLD_EPOCHS_FIRST:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        if epoch == known.epoch and known.transaction_offset is not None:
            return ErrorCode.NONE
    error = _coordinator_error(cluster, call, partition, producer_id, epoch, now_ms)
    if error is ErrorCode.CONCURRENT_TRANSACTIONS and not adds:
        return ErrorCode.NOT_ENOUGH_REPLICAS
    if error is ErrorCode.TRANSACTION_ABORTABLE and call.api_version < _FIRST_VERSION_OF_ABORTABLE:
        return ErrorCode.INVALID_TXN_STATE
    return _ERRORS.get(error, error)


def _coordinator_error(
    cluster: "Cluster", call: Call, partition: Partition, producer_id: int, epoch: int, now_ms: float
) -> ErrorCode:
    """Ask the transaction coordinator about a partition; in versions 12 and up add it to the transaction."""
    transactional_id = call.request.transactional_id
    broker = cluster.transaction_coordinator_of(transactional_id)
    if broker is None:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    coordinator, place = broker.transaction_coordinator, (partition.topic.name, partition.index)
    if call.api_version < _FIRST_VERSION_THAT_ADDS:
        error, errors = coordinator.verify_partitions(transactional_id, producer_id, epoch, [place])
        return error or errors[0]
    found: list[ErrorCode] = []
    coordinator.add_partitions(transactional_id, producer_id, epoch, [place], now_ms, found.append)
    return found[0] if found else ErrorCode.CONCURRENT_TRANSACTIONS
