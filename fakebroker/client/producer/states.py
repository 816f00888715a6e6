"""The states of a transactional producer and the transitions between them (Kafka's `TransactionManager.State`)."""

from enum import Enum


class ProducerState(Enum):
    """State of a transactional producer.

    NEW: Without a producer id. Ends with `initialize`.
    INITIALIZING: InitProducerId is in progress. Ends with the response.
    READY: Initialized, without a transaction. Ends with `begin`.
    IN_TRANSACTION: Records and offsets are sent. Ends with `commit`, `abort` or an error.
    COMMITTING: The remaining requests and EndTxn are in progress. Ends with the response.
    ABORTING: As COMMITTING, without the remaining requests.
    ABORTABLE_ERROR: The transaction has failed. Ends with `abort`.
    FATAL: Nothing can be sent any more; the application needs another producer.
    """

    NEW = "new"
    INITIALIZING = "initializing"
    READY = "ready"
    IN_TRANSACTION = "in transaction"
    COMMITTING = "committing"
    ABORTING = "aborting"
    ABORTABLE_ERROR = "abortable error"
    FATAL = "fatal"


_S = ProducerState

TRANSITIONS: dict[ProducerState, tuple[ProducerState, ...]] = {
    _S.NEW: (_S.INITIALIZING,),
    _S.INITIALIZING: (_S.READY, _S.ABORTABLE_ERROR, _S.FATAL),
    _S.READY: (_S.IN_TRANSACTION,),
    _S.IN_TRANSACTION: (_S.COMMITTING, _S.ABORTING, _S.ABORTABLE_ERROR, _S.FATAL),
    _S.COMMITTING: (_S.READY, _S.INITIALIZING, _S.ABORTABLE_ERROR, _S.FATAL),
    _S.ABORTING: (_S.READY, _S.INITIALIZING, _S.FATAL),
    _S.ABORTABLE_ERROR: (_S.ABORTING, _S.INITIALIZING),
    _S.FATAL: (),
}
"""The states that may follow each state; every other transition is a bug."""
