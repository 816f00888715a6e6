"""The answers of a transaction coordinator to requests, by the state of the transactional id. Pure functions."""

from fakebroker.coordinator.transaction.records import EXHAUSTED_EPOCH, NO_EPOCH, NO_PRODUCER_ID, TransactionValue
from fakebroker.coordinator.transaction.states import (
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    ONGOING,
    PREPARE_ABORT,
    PREPARE_COMMIT,
    PREPARED,
    TransactionState,
)
from fakebroker.coordinator.transaction.transaction import Transaction
from fakebroker.errors import ErrorCode

CLIENT_ERRORS = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
}
"""The errors that clients get if an append to `__transaction_state` fails (`TransactionStateManager`)."""


def error_of_producer(transaction: Transaction, producer_id: int, epoch: int) -> ErrorCode:
    """Return the error of an InitProducerId with the producer id and epoch of an earlier one, if it has them."""
    value = transaction.value
    if transaction.pending is not None:
        return ErrorCode.CONCURRENT_TRANSACTIONS
    is_previous = producer_id == value.previous_producer_id and epoch >= EXHAUSTED_EPOCH
    if producer_id not in (NO_PRODUCER_ID, value.producer_id) and value.epoch != NO_EPOCH and not is_previous:
        return ErrorCode.PRODUCER_FENCED
    return ErrorCode.CONCURRENT_TRANSACTIONS if value.state in PREPARED else ErrorCode.NONE


def error_of_epoch(value: TransactionValue, producer_id: int, epoch: int) -> ErrorCode:
    """Return the error of a request with another producer id or epoch than the current one, else NONE."""
    if producer_id != value.producer_id:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    return ErrorCode.NONE if epoch == value.epoch else ErrorCode.PRODUCER_FENCED


def is_retry_of_end(value: TransactionValue, producer_id: int, epoch: int) -> bool:
    """Return whether an EndTxn has the epoch before the last end of a transaction, which has raised it (KIP-890)."""
    if producer_id == value.producer_id:
        return epoch == value.epoch - 1
    return producer_id == value.previous_producer_id and epoch == EXHAUSTED_EPOCH and value.epoch == 0


def answer_of_end(state: TransactionState, *, is_commit: bool, raises_epoch: bool, is_retry: bool) -> ErrorCode | None:
    """Return the answer to EndTxn in a state without a pending transition; None to end the transaction.

    Args:
        state: The state.
        is_commit: Whether the request commits.
        raises_epoch: Whether the request raises the epoch (KIP-890).
        is_retry: Whether the request has the epoch before the last end; see `is_retry_of_end`.
    """
    ended = {PREPARE_COMMIT: True, COMPLETE_COMMIT: True, PREPARE_ABORT: False, COMPLETE_ABORT: False}
    if state in ended and (is_retry or not raises_epoch):
        if ended[state] is not is_commit:
            return ErrorCode.INVALID_TXN_STATE
        return ErrorCode.CONCURRENT_TRANSACTIONS if state in PREPARED else ErrorCode.NONE
    if is_retry or state in PREPARED:
        return ErrorCode.PRODUCER_FENCED
    if state is ONGOING or (raises_epoch and not is_commit):
        return None
    return ErrorCode.INVALID_TXN_STATE
