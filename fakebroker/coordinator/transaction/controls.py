"""Manual control of transactions: look up an id, abort a transaction, fence a producer, states that can be held.

Transactions are changed by the functions for requests and timers, so that records and answers are as in Kafka.
`cluster/handles/transaction.py` calls these functions with the coordinator of the id.
"""

from fakebroker.coordinator.transaction.coordinator import TransactionCoordinator
from fakebroker.coordinator.transaction.transaction import (
    DEAD,
    NO_EPOCH,
    NO_PRODUCER_ID,
    ONGOING,
    STORED_STATES,
    Transaction,
)
from fakebroker.errors import ConfigError, ErrorCode, one_of

HOLDABLE_STATES = (*STORED_STATES, DEAD)
"""The states whose records can be held. The record of Dead is the tombstone."""

_MOST_LISTED = 20


def transaction_of(coordinator: TransactionCoordinator, transactional_id: str) -> Transaction:
    """Return a transactional id of a coordinator.

    Raises:
        ConfigError: There is no such id.
    """
    transaction = coordinator.transaction(transactional_id)
    if transaction is None:
        ids = (each.transactional_id for each in coordinator.transactions())
        known = one_of(ids, transactional_id, none="", most=_MOST_LISTED)
        expected = f"an id of this coordinator, {known}" if known else "an existing id; its coordinator has none"
        raise ConfigError.of("transactional_id", transactional_id, expected)
    return transaction


def abort(coordinator: TransactionCoordinator, transaction: Transaction, now_ms: float) -> ErrorCode:
    """Abort an open transaction in a higher epoch, as its timeout does.

    Returns:
        NONE, also while the record is held; or the error of the append.

    Raises:
        ConfigError: No transaction is open, or a transition is pending.
    """
    _check_not_pending(transaction)
    if transaction.state is not ONGOING:
        expected = f"an id with an open transaction (Ongoing), not {transaction.state.value}"
        raise ConfigError.of("transactional_id", transaction.transactional_id, expected)
    result = coordinator.fence(transaction, "transaction.abort", now_ms)
    return ErrorCode.NONE if result is None else result.error


def fence(coordinator: TransactionCoordinator, transaction: Transaction, now_ms: float) -> ErrorCode:
    """Fence the producer of an id as Admin.fenceProducers does, with InitProducerId; an open transaction is aborted.

    Like a client, this sends InitProducerId again when an open transaction is aborted at once.

    Returns:
        NONE, also while a record is held or markers wait; or the error of the append.

    Raises:
        ConfigError: A transition is pending.
    """
    _check_not_pending(transaction)
    was_open = transaction.state is ONGOING
    error = _init(coordinator, transaction, now_ms)
    if was_open and error is ErrorCode.CONCURRENT_TRANSACTIONS:
        error = _init(coordinator, transaction, now_ms)
        return ErrorCode.NONE if error is ErrorCode.CONCURRENT_TRANSACTIONS else error
    return error


def _init(coordinator: TransactionCoordinator, transaction: Transaction, now_ms: float) -> ErrorCode:
    name, timeout_ms = transaction.transactional_id, transaction.value.timeout_ms
    result = coordinator.init_producer_id(name, timeout_ms, NO_PRODUCER_ID, NO_EPOCH, now_ms)
    return ErrorCode.NONE if result is None else result.error


def _check_not_pending(transaction: Transaction) -> None:
    if transaction.pending is not None:
        expected = f"an id without a pending transition; {transaction.pending.value} is pending"
        raise ConfigError.of("transactional_id", transaction.transactional_id, expected)
