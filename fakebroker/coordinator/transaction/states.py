"""The states of a transaction, the answers to requests in each state, and the transitions between states."""

from collections.abc import Mapping
from enum import Enum


class TransactionState(Enum):
    """The states of a transactional id (Kafka's `TransactionState`), named as Kafka names them to clients.

    In every state these faults are rejected: another producer id (INVALID_PRODUCER_ID_MAPPING; InitProducerId:
    PRODUCER_FENCED) and another epoch (PRODUCER_FENCED). A request that changes the transaction gets
    CONCURRENT_TRANSACTIONS while a transition is pending, which it is until its record is stored. The answers to
    requests without these faults are listed below.

    EMPTY: The id has a producer id, and no transaction.
        InitProducerId: the next epoch, or a new producer id with epoch 0 if the epochs are exhausted.
        AddPartitionsToTxn, AddOffsetsToTxn: accepted.
        EndTxn: INVALID_TXN_STATE; with KIP-890, an abort is accepted.
        Transitions:
            InitProducerId -> EMPTY.
            A partition is added -> ONGOING.
            KIP-890: EndTxn with an abort -> PREPARE_ABORT.
            The id expires -> DEAD.
    ONGOING: Partitions have been added.
        InitProducerId: the transaction is aborted in a higher epoch; CONCURRENT_TRANSACTIONS once this is stored.
        AddPartitionsToTxn, AddOffsetsToTxn: accepted.
        EndTxn: accepted.
        In epoch 32767, EndTxn with KIP-890, and before 4.3 InitProducerId: UNKNOWN_SERVER_ERROR, as there is no higher
        epoch.
        Transitions:
            A partition is added -> ONGOING.
            EndTxn -> PREPARE_COMMIT or PREPARE_ABORT.
            InitProducerId, or the transaction times out -> PREPARE_EPOCH_FENCE, then PREPARE_ABORT.
    PREPARE_COMMIT, PREPARE_ABORT: The outcome is decided, and markers are written to the partitions.
        InitProducerId, AddPartitionsToTxn, AddOffsetsToTxn: CONCURRENT_TRANSACTIONS.
        EndTxn: CONCURRENT_TRANSACTIONS, since the next transition is pending from the start.
        Transitions:
            All markers are written -> COMPLETE_COMMIT or COMPLETE_ABORT.
    COMPLETE_COMMIT, COMPLETE_ABORT: The last transaction has ended, and there is no other.
        InitProducerId, AddPartitionsToTxn, AddOffsetsToTxn: as in EMPTY.
        EndTxn: NONE if it repeats the last one, else INVALID_TXN_STATE; with KIP-890, an abort in the new epoch is
        accepted, as in EMPTY.
        Transitions: as in EMPTY.
    DEAD: The tombstone of an expired id is being stored. Only ever pending.
    PREPARE_EPOCH_FENCE: The producer is being fenced. Only ever pending, until PREPARE_ABORT is.
    """

    EMPTY = "Empty"
    ONGOING = "Ongoing"
    PREPARE_COMMIT = "PrepareCommit"
    PREPARE_ABORT = "PrepareAbort"
    COMPLETE_COMMIT = "CompleteCommit"
    COMPLETE_ABORT = "CompleteAbort"
    DEAD = "Dead"
    PREPARE_EPOCH_FENCE = "PrepareEpochFence"


EMPTY = TransactionState.EMPTY
ONGOING = TransactionState.ONGOING
PREPARE_COMMIT = TransactionState.PREPARE_COMMIT
PREPARE_ABORT = TransactionState.PREPARE_ABORT
COMPLETE_COMMIT = TransactionState.COMPLETE_COMMIT
COMPLETE_ABORT = TransactionState.COMPLETE_ABORT
DEAD = TransactionState.DEAD
PREPARE_EPOCH_FENCE = TransactionState.PREPARE_EPOCH_FENCE

TRANSITIONS: Mapping[TransactionState, tuple[TransactionState, ...]] = {
    EMPTY: (EMPTY, ONGOING, PREPARE_ABORT, DEAD),
    ONGOING: (ONGOING, PREPARE_COMMIT, PREPARE_ABORT, PREPARE_EPOCH_FENCE),
    PREPARE_COMMIT: (COMPLETE_COMMIT,),
    PREPARE_ABORT: (COMPLETE_ABORT,),
    COMPLETE_COMMIT: (EMPTY, ONGOING, PREPARE_ABORT, DEAD),
    COMPLETE_ABORT: (EMPTY, ONGOING, PREPARE_ABORT, DEAD),
    DEAD: (),
    PREPARE_EPOCH_FENCE: (PREPARE_ABORT,),
}

STORED_STATES = (EMPTY, ONGOING, PREPARE_COMMIT, PREPARE_ABORT, COMPLETE_COMMIT, COMPLETE_ABORT)
"""The states in which a transactional id is stored."""

PREPARED = (PREPARE_COMMIT, PREPARE_ABORT)
"""The states in which markers are written."""

IDLE = (EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT)
"""The states without a transaction."""
