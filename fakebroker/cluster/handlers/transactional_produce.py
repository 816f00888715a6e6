"""The verification of transactional batches before they are appended (KIP-98, KIP-890).

Follows KafkaApis.handleProduceRequest and ReplicaManager.maybeSendPartitionsToTransactionCoordinator. A batch is only
appended if its partition was added to the transaction: brokers of 3.6 and later ask the transaction coordinator, and
add the partition themselves in versions 12 and up.
"""

import struct
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from fakebroker.cluster.call import Call
from fakebroker.cluster.handlers.lookup import leadership_error
from fakebroker.cluster.handlers.transaction_verification import Verification, is_enabled
from fakebroker.cluster.logs.producer_state import OPEN_TRANSACTION, PendingVerification
from fakebroker.cluster.topics import Partition
from fakebroker.errors import ErrorCode
from fakebroker.protocol.messages.produce import ProduceRequest
from fakebroker.protocol.records import RecordBatch
from fakebroker.protocol.releases import Release
from fakebroker.topic_partition import TopicPartition

if TYPE_CHECKING:
    from fakebroker.cluster.cluster import Cluster

VERIFIES = Release(3, 6)
"""The first release that verifies partitions, and refuses requests with batches of several producers."""

_FIRST_VERSION_OF_ABORTABLE, _FIRST_VERSION_THAT_ADDS = 11, 12

_HEADER = struct.Struct(">16xb4xh")
"""Magic and attributes of a record batch."""

_MAGIC, _TRANSACTIONAL_BIT = 2, 0x10

_ERRORS = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_COORDINATOR: ErrorCode.NOT_ENOUGH_REPLICAS,
}

Results = Mapping[TopicPartition, ErrorCode | PendingVerification]
"""The error or the verification of each partition with a transactional batch, if it is verified at all."""


class TransactionalBatch(NamedTuple):
    """A transactional batch, and its partition."""

    partition: Partition
    batch: RecordBatch


def lacks_transactional_id(request: ProduceRequest) -> bool:
    """Return whether a request without a transactional id has a transactional batch."""
    return request.transactional_id is None and has_transactional_batch(request)


def has_transactional_batch(request: ProduceRequest) -> bool:
    """Return whether a request has a transactional batch."""
    return any(_is_transactional(data.records or b"") for topic in request.topic_data for data in topic.partition_data)


def _is_transactional(records: bytes) -> bool:
    """Return whether the first batch is transactional; not if the records are invalid."""
    if len(records) < _HEADER.size:
        return False
    magic, attributes = _HEADER.unpack_from(records)
    return magic == _MAGIC and bool(attributes & _TRANSACTIONAL_BIT)


def begin_verification(cluster: "Cluster", call: Call, batches: Sequence[TransactionalBatch]) -> Verification | None:
    """Return what is asked about transactional batches, all of the same producer; None if they are not verified."""
    adds = call.api_version >= _FIRST_VERSION_THAT_ADDS
    if not batches or not (adds or (call.broker.release >= VERIFIES and is_enabled(cluster))):
        return None
    return Verification(
        call.api.name,
        call.request.transactional_id,
        batches[0].batch.producer_id,
        batches[0].batch.producer_epoch,
        adds=adds,
        has_abortable=call.api_version >= _FIRST_VERSION_OF_ABORTABLE,
    )


def known_results(
    cluster: "Cluster", call: Call, verification: Verification, batches: Sequence[TransactionalBatch]
) -> dict[TopicPartition, ErrorCode | PendingVerification]:
    """Return the result for each partition by its log alone; else the verification that begins."""
    results: dict[TopicPartition, ErrorCode | PendingVerification] = {}
    for partition, batch in batches:
        if cluster.topics.get(partition.topic.name) is not partition.topic:
            result: ErrorCode | PendingVerification = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION  # deleted meanwhile
        else:
            result = leadership_error(partition, call.broker) or verification.error_of_epoch(
                partition, call.broker.release
            )
            if not result:
                result = partition.log.producers.begin_verification(batch, cluster.now_ms, adds=verification.adds)
        results[partition.topic.name, partition.index] = result
    return results


def is_asked(result: ErrorCode | PendingVerification) -> bool:
    """Return whether the transaction coordinator has to be asked about a partition: its transaction is not open."""
    return isinstance(result, PendingVerification) and result is not OPEN_TRANSACTION


def error_of_produce(error: ErrorCode, verification: Verification) -> ErrorCode:
    """Return the error of a Produce for the error of a verification."""
    if error is ErrorCode.CONCURRENT_TRANSACTIONS and not verification.adds:
        return ErrorCode.NOT_ENOUGH_REPLICAS
    return _ERRORS.get(error, error)
