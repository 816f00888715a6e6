"""Verification that a partition was added to a transaction, before records of the transaction are appended (KIP-890).

Follows Kafka's `AddPartitionsToTxnManager` and `Partition.maybeStartTransactionVerification`: the broker asks the
transaction coordinator, and from transaction version 2 on adds the partition itself.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fakebroker.cluster.topics import Partition
from fakebroker.errors import ErrorCode
from fakebroker.protocol.releases import Release

if TYPE_CHECKING:
    from fakebroker.cluster.cluster import Cluster

_REFUSES_OLD_EPOCHS_FIRST = Release(4, 1)
"""The first release that does not ask the coordinator about old epochs."""


@dataclass(frozen=True, slots=True)
class Verification:
    """What a request of a transactional producer says about its transaction.

    Attributes:
        transactional_id: The transactional id.
        producer_id: The producer id.
        epoch: The producer epoch.
        adds: Whether the partition is added to the transaction, instead of being verified.
        has_abortable: Whether the version of the request has TRANSACTION_ABORTABLE; else INVALID_TXN_STATE replaces it.
    """

    transactional_id: str
    producer_id: int
    epoch: int
    adds: bool
    has_abortable: bool

    def error(self, cluster: "Cluster", partition: Partition, release: Release, now_ms: float) -> ErrorCode:
        """Return why records of the transaction may not be appended to a partition, else NONE.

        The coordinator is not asked if the partition has an open transaction of this producer id and epoch.

        Args:
            cluster: The cluster.
            partition: The partition.
            release: The release that the leader of the partition emulates.
            now_ms: The time.
        """
        known = partition.log.producers.get(self.producer_id)
        if known is not None:
            if self.epoch < known.epoch and release >= _REFUSES_OLD_EPOCHS_FIRST:
                return ErrorCode.INVALID_PRODUCER_EPOCH
            if self.epoch == known.epoch and known.transaction_offset is not None:
                return ErrorCode.NONE
        error = self._coordinator_error(cluster, partition, now_ms)
        if error is ErrorCode.PRODUCER_FENCED:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        if error is ErrorCode.TRANSACTION_ABORTABLE and not self.has_abortable:
            return ErrorCode.INVALID_TXN_STATE
        return error

    def _coordinator_error(self, cluster: "Cluster", partition: Partition, now_ms: float) -> ErrorCode:
        """Ask the transaction coordinator about the partition, or add it."""
        broker = cluster.transaction_coordinator_of(self.transactional_id)
        if broker is None:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        coordinator, places = broker.transaction_coordinator, [(partition.topic.name, partition.index)]
        producer = self.transactional_id, self.producer_id, self.epoch
        if not self.adds:
            error, errors = coordinator.verify_partitions(*producer, places)
            return error or errors[0]
        found: list[ErrorCode] = []
        coordinator.add_partitions(*producer, places, now_ms, found.append)
        return found[0] if found else ErrorCode.CONCURRENT_TRANSACTIONS
