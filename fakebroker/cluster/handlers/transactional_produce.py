"""The verification of transactional batches before they are appended (KIP-98, KIP-890).

Follows KafkaApis.handleProduceRequest and ReplicaManager.maybeSendPartitionsToTransactionCoordinator. A batch is only
appended if its partition was added to the transaction: brokers of 3.6 and later ask the transaction coordinator, and
add the partition themselves in versions 12 and up.
"""

import struct
from collections.abc import Callable, Mapping, Sequence
from math import inf
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

    @property
    def place(self) -> TopicPartition:
        return self.partition.topic.name, self.partition.index


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


def verify(
    cluster: "Cluster", call: Call, batches: Sequence[TransactionalBatch], done: Callable[[Results], None]
) -> None:
    """Verify that the partitions of transactional batches are in the transaction, or add them to it.

    Args:
        cluster: The cluster.
        call: The request.
        batches: Its transactional batches, all of the same producer.
        done: Called with the results, immediately or later.
    """
    adds = call.api_version >= _FIRST_VERSION_THAT_ADDS
    if batches and (adds or (call.broker.release >= VERIFIES and is_enabled(cluster))):
        _Request(cluster, call, batches, done, adds=adds).attempt(cluster.now_ms)
    else:
        done({})


class _Request:
    """The verification of one request. Also an entry of the timer queue, while it waits for its next attempt.

    If the partitions are added and the coordinator answers CONCURRENT_TRANSACTIONS, because the last transaction is
    being completed, all is repeated for a while: that is faster than an error, after which the client sends the records
    again.
    """

    __slots__ = (
        "_batches",
        "_call",
        "_cluster",
        "_done",
        "_last_attempt_ms",
        "_stops",
        "_verification",
        "scheduled_ms",
        "timer_number",
    )

    def __init__(
        self,
        cluster: "Cluster",
        call: Call,
        batches: Sequence[TransactionalBatch],
        done: Callable[[Results], None],
        *,
        adds: bool,
    ) -> None:
        self._cluster, self._call, self._batches, self._done = cluster, call, batches, done
        self._stops = call.broker.stops
        self._verification = Verification(
            call.api.name,
            call.request.transactional_id,
            batches[0].batch.producer_id,
            batches[0].batch.producer_epoch,
            adds=adds,
            has_abortable=call.api_version >= _FIRST_VERSION_OF_ABORTABLE,
        )
        limit_ms = cluster.config.number("add.partitions.to.txn.retry.backoff.max.ms") if adds else 0
        self._last_attempt_ms = cluster.now_ms + limit_ms
        self.scheduled_ms, self.timer_number = inf, 0

    def attempt(self, due_ms: float) -> None:
        """Verify all partitions: those without an open transaction are asked about together."""
        if self._call.broker.stops != self._stops:
            return
        results: dict[TopicPartition, ErrorCode | PendingVerification] = {
            each.place: self._without_coordinator(each) for each in self._batches
        }
        asked = [
            place
            for place, result in results.items()
            if isinstance(result, PendingVerification) and result is not OPEN_TRANSACTION
        ]
        if asked:
            self._verification.ask(self._cluster, asked, lambda errors: self._asked({**results, **errors}, due_ms))
        else:
            self._done(results)

    def give_up(self) -> None:
        """Return CONCURRENT_TRANSACTIONS without another attempt."""
        self._done({each.place: ErrorCode.CONCURRENT_TRANSACTIONS for each in self._batches})

    def _without_coordinator(self, each: TransactionalBatch) -> ErrorCode | PendingVerification:
        """Return the result for a partition by its log alone; else the verification that begins."""
        partition, batch = each
        broker, verification = self._call.broker, self._verification
        if self._cluster.topics.get(partition.topic.name) is not partition.topic:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION  # deleted while the request waited
        if error := leadership_error(partition, broker) or verification.error_of_epoch(partition, broker.release):
            return error
        return partition.log.producers.begin_verification(batch, self._cluster.now_ms, adds=verification.adds)

    def _asked(self, results: dict[TopicPartition, ErrorCode | PendingVerification], due_ms: float) -> None:
        if ErrorCode.CONCURRENT_TRANSACTIONS in results.values() and due_ms < self._last_attempt_ms:
            backoff_ms = self._cluster.config.number("add.partitions.to.txn.retry.backoff.ms")
            self._cluster.transactions.repeat(self, due_ms + backoff_ms)
            return
        self._done(
            {
                place: self._error_in_version(result) if isinstance(result, ErrorCode) else result
                for place, result in results.items()
            }
        )

    def _error_in_version(self, error: ErrorCode) -> ErrorCode:
        if error is ErrorCode.CONCURRENT_TRANSACTIONS and not self._verification.adds:
            return ErrorCode.NOT_ENOUGH_REPLICAS
        return _ERRORS.get(error, error)
