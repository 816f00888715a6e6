"""Results and effects of a transaction coordinator, as plain data.

Does not depend on wire formats or API versions: handlers replace PRODUCER_FENCED by INVALID_PRODUCER_EPOCH in versions
that do not have it (KIP-588).
"""

from collections.abc import Callable

import msgspec

from fakebroker.coordinator.transaction.records import NO_EPOCH, NO_PRODUCER_ID
from fakebroker.errors import ErrorCode
from fakebroker.topic_partition import TopicPartition


class ProducerResult(msgspec.Struct, frozen=True):
    """The result of InitProducerId or EndTxn: an error, or the producer id and the epoch to use next."""

    error: ErrorCode
    producer_id: int = NO_PRODUCER_ID
    epoch: int = NO_EPOCH


class Markers(msgspec.Struct, frozen=True):
    """The control records that end a transaction in its partitions.

    Attributes:
        transactional_id: The transactional id.
        producer_id: The producer id of the records.
        epoch: The producer epoch of the markers; with KIP-890, higher than that of the records.
        is_commit: Whether the transaction is committed, else aborted.
        coordinator_epoch: The leader epoch of the partition of `__transaction_state`.
        version: The transaction version, see `TransactionValue`.
        partitions: The partitions.
    """

    transactional_id: str
    producer_id: int
    epoch: int
    is_commit: bool
    coordinator_epoch: int
    version: int
    partitions: tuple[TopicPartition, ...]


SendMarkers = Callable[[Markers], None]
"""Write markers to their partitions: at once, or when the partitions can take them.

For each partition, the sender calls `TransactionCoordinator.marker_written`. It retries itself after errors that pass.
"""
