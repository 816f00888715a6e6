"""Verification that a partition was added to a transaction, before records of the transaction are appended (KIP-890).

Follows Kafka's `AddPartitionsToTxnManager` and `Partition.maybeStartTransactionVerification`: the broker asks the
transaction coordinator, and from transaction version 2 on adds the partition itself.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from fakebroker.cluster.request_path import Parked
from fakebroker.cluster.topics import TRANSACTIONS_TOPIC, Partition
from fakebroker.coordinator.transaction.transaction import KIP_890
from fakebroker.errors import ErrorCode
from fakebroker.protocol.releases import Release
from fakebroker.topic_partition import TopicPartition

if TYPE_CHECKING:
    from fakebroker.cluster.cluster import Cluster

_ENABLE = "transaction.partition.verification.enable"

_REFUSES_OLD_EPOCHS_FIRST = Release(4, 1)
"""The first release that does not ask the coordinator about old epochs."""

Errors = dict[TopicPartition, ErrorCode]


class Verification(msgspec.Struct, frozen=True):
    """What a request of a transactional producer says about its transaction.

    Attributes:
        api: The API of the request, for the history of the id.
        transactional_id: The transactional id.
        producer_id: The producer id.
        epoch: The producer epoch.
        adds: Whether the partition is added to the transaction, instead of being verified.
        has_abortable: Whether the version of the request has TRANSACTION_ABORTABLE; else INVALID_TXN_STATE replaces it.
    """

    api: str
    transactional_id: str
    producer_id: int
    epoch: int
    adds: bool
    has_abortable: bool

    def error_of_epoch(self, partition: Partition, release: Release) -> ErrorCode:
        """Return INVALID_PRODUCER_EPOCH if the coordinator is not asked as the log has a newer epoch, else NONE."""
        known = partition.log.producers.get(self.producer_id)
        is_old = known is not None and self.epoch < known.epoch
        return ErrorCode.INVALID_PRODUCER_EPOCH if is_old and release >= _REFUSES_OLD_EPOCHS_FIRST else ErrorCode.NONE

    def ask(self, cluster: "Cluster", places: Sequence[TopicPartition], token: Parked) -> Errors | None:
        """Ask the transaction coordinator about partitions, or add them.

        Args:
            cluster: The cluster.
            places: The partitions.
            token: The request, which is parked if the record of the transaction is held.

        Returns:
            The errors of the partitions that are refused. None if the request is parked: then `token.released` is
            called with the error of all partitions, see `errors`.
        """
        # Only FindCoordinator creates the topic.
        is_known = TRANSACTIONS_TOPIC in cluster.topics
        broker = cluster.transaction_coordinator_of(self.transactional_id) if is_known else None
        if broker is None:
            return dict.fromkeys(places, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        coordinator, producer = broker.transaction_coordinator, (self.transactional_id, self.producer_id, self.epoch)
        if self.adds:
            added = coordinator.add_partitions(
                *producer, places, cluster.now_ms, token, version=KIP_890, cause=self.api
            )
            return None if added is None else self.errors(dict.fromkeys(places, added))
        error, errors = coordinator.verify_partitions(*producer, places)
        return self.errors(dict.fromkeys(places, error) if error else dict(zip(places, errors, strict=True)))

    def errors(self, found: Errors) -> Errors:
        """Return the errors of the partitions that are refused, in the version of the request."""
        return {place: self.in_version(error) for place, error in found.items() if error}

    def in_version(self, error: ErrorCode) -> ErrorCode:
        """Return the error that the version of the request has for an error of the coordinator; NONE for NONE."""
        if error is ErrorCode.PRODUCER_FENCED:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        if error is ErrorCode.TRANSACTION_ABORTABLE and not self.has_abortable:
            return ErrorCode.INVALID_TXN_STATE
        return error


def is_enabled(cluster: "Cluster") -> bool:
    """Return whether brokers verify partitions, which can be disabled while the cluster runs."""
    altered = cluster.broker_configs.get(_ENABLE)
    return cluster.config.switch(_ENABLE) if altered is None else altered == "true"
