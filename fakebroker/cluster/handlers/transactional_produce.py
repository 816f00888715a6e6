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
from fakebroker.cluster.logs.producer_state import OPEN_TRANSACTION, Verification
from fakebroker.cluster.topics import TRANSACTIONS_TOPIC, Partition
from fakebroker.errors import ErrorCode
from fakebroker.protocol.messages.produce import ProduceRequest
from fakebroker.protocol.records import RecordBatch
from fakebroker.protocol.releases import Release
from fakebroker.topic_partition import TopicPartition

if TYPE_CHECKING:
    from fakebroker.cluster.cluster import Cluster

_VERIFICATION = "transaction.partition.verification.enable"

_FIRST_RELEASE, _REFUSES_OLD_EPOCHS_FIRST = Release(3, 6), Release(4, 1)
"""The first releases that verify partitions, and that do not ask the coordinator about old epochs."""

_FIRST_VERSION_OF_ABORTABLE, _FIRST_VERSION_THAT_ADDS = 11, 12

_HEADER = struct.Struct(">16xb4xh")
"""Magic and attributes of a record batch."""

_MAGIC, _TRANSACTIONAL_BIT = 2, 0x10

_ERRORS = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_COORDINATOR: ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.PRODUCER_FENCED: ErrorCode.INVALID_PRODUCER_EPOCH,
}

Results = Mapping[TopicPartition, ErrorCode | Verification]
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
    return request.transactional_id is None and any(
        _is_transactional(data.records or b"") for topic in request.topic_data for data in topic.partition_data
    )


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
    if batches and (adds or _verifies(cluster, call)):
        _Request(cluster, call, batches, done, adds=adds).attempt(cluster.now_ms)
    else:
        done({})


def _verifies(cluster: "Cluster", call: Call) -> bool:
    """Return whether the broker verifies partitions, which can be disabled while the cluster runs."""
    altered = cluster.broker_configs.get(_VERIFICATION)
    is_enabled = cluster.config.switch(_VERIFICATION) if altered is None else altered == "true"
    return is_enabled and call.broker.release >= _FIRST_RELEASE


class _Request:
    """The verification of one request. Also an entry of the timer queue, while it waits for its next attempt.

    If the partitions are added and the coordinator answers CONCURRENT_TRANSACTIONS, because the last transaction is
    being completed, all is repeated for a while: that is faster than an error, after which the client sends the records
    again.
    """

    __slots__ = (
        "_adds",
        "_batches",
        "_call",
        "_cluster",
        "_done",
        "_last_attempt_ms",
        "_stops",
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
        self._cluster, self._call, self._batches, self._done, self._adds = cluster, call, batches, done, adds
        self._stops = call.broker.stops
        limit_ms = cluster.config.number("add.partitions.to.txn.retry.backoff.max.ms") if adds else 0
        self._last_attempt_ms = cluster.now_ms + limit_ms
        self.scheduled_ms, self.timer_number = inf, 0

    def attempt(self, due_ms: float) -> None:
        """Verify all partitions: those without an open transaction are asked about together."""
        if self._call.broker.stops != self._stops:
            return
        results: dict[TopicPartition, ErrorCode | Verification] = {
            each.place: self._without_coordinator(each) for each in self._batches
        }
        asked = [
            place
            for place, result in results.items()
            if isinstance(result, Verification) and result is not OPEN_TRANSACTION
        ]
        if asked:
            self._ask(asked, lambda errors: self._asked({**results, **errors}, due_ms))
        else:
            self._done(results)

    def give_up(self) -> None:
        """Return CONCURRENT_TRANSACTIONS without another attempt."""
        self._done({each.place: ErrorCode.CONCURRENT_TRANSACTIONS for each in self._batches})

    def _without_coordinator(self, each: TransactionalBatch) -> ErrorCode | Verification:
        """Return the result for a partition by its log alone; else the verification that begins."""
        partition, batch = each
        if error := leadership_error(partition, self._call.broker):
            return error
        known = partition.log.producers.get(batch.producer_id)
        refuses_old_epochs = self._call.broker.release >= _REFUSES_OLD_EPOCHS_FIRST
        if known is not None and refuses_old_epochs and batch.producer_epoch < known.epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        return partition.log.producers.begin_verification(batch, self._cluster.now_ms, adds=self._adds)

    def _ask(self, places: Sequence[TopicPartition], done: Callable[[dict[TopicPartition, ErrorCode]], None]) -> None:
        """Ask the transaction coordinator, which answers with an error for each partition that it refuses."""
        cluster, transactional_id, batch = self._cluster, self._call.request.transactional_id, self._batches[0].batch
        # Only FindCoordinator creates the topic.
        is_known = TRANSACTIONS_TOPIC in cluster.topics
        broker = cluster.transaction_coordinator_of(transactional_id) if is_known else None
        if broker is None:
            done(dict.fromkeys(places, ErrorCode.COORDINATOR_NOT_AVAILABLE))
            return
        coordinator, producer = broker.transaction_coordinator, (batch.producer_id, batch.producer_epoch)
        if self._adds:
            coordinator.add_partitions(
                transactional_id,
                *producer,
                places,
                cluster.now_ms,
                lambda error: done(dict.fromkeys(places, error) if error else {}),
            )
        else:
            error, errors = coordinator.verify_partitions(transactional_id, *producer, places)
            found = dict.fromkeys(places, error) if error else dict(zip(places, errors, strict=True))
            done({place: error for place, error in found.items() if error})

    def _asked(self, results: dict[TopicPartition, ErrorCode | Verification], due_ms: float) -> None:
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
        if error is ErrorCode.CONCURRENT_TRANSACTIONS and not self._adds:
            return ErrorCode.NOT_ENOUGH_REPLICAS
        if error is ErrorCode.TRANSACTION_ABORTABLE and self._call.api_version < _FIRST_VERSION_OF_ABORTABLE:
            return ErrorCode.INVALID_TXN_STATE
        return _ERRORS.get(error, error)
