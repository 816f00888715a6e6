"""The settings of a transaction coordinator. Plain data."""

import msgspec

KIP_890 = 2
"""The first transaction version (`transaction.version`) in which each end of a transaction raises the epoch."""


class TransactionConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The broker settings that a transaction coordinator uses, with Kafka's defaults.

    Attributes:
        partition_count: `transaction.state.log.num.partitions`.
        max_timeout_ms: `transaction.max.timeout.ms`.
        id_expiration_ms: `transactional.id.expiration.ms`.
        abort_check_interval_ms: `transaction.abort.timed.out.transaction.cleanup.interval.ms`.
        expiration_check_interval_ms: `transaction.remove.expired.transaction.cleanup.interval.ms`.
        version: The finalized level of the feature `transaction.version`.
        checks_pending_first: Whether AddPartitionsToTxn looks for a pending transition before the epoch, as since 4.0.
        rotates_when_fenced: Whether an aborted producer without an epoch left gets a new producer id, as since 4.3.
    """

    partition_count: int = 50
    max_timeout_ms: int = 900_000
    id_expiration_ms: int = 604_800_000
    abort_check_interval_ms: int = 10_000
    expiration_check_interval_ms: int = 3_600_000
    version: int = KIP_890
    checks_pending_first: bool = True
    rotates_when_fenced: bool = True
