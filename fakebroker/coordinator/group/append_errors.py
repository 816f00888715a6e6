"""The errors that clients get if an append to the log of an offsets partition fails."""

from collections.abc import Sequence

from fakebroker.coordinator.group.config import CoordinatorConfig
from fakebroker.coordinator.group.records import OffsetRecord, PendingOffsetRecord, Record, TransactionEnd
from fakebroker.errors import ErrorCode

_TOO_LARGE = (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE, ErrorCode.INVALID_FETCH_SIZE)
_OF_REPLICAS = (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, ErrorCode.REQUEST_TIMED_OUT)

_CLIENT_ERRORS = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    **dict.fromkeys(_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
}
_FORMER_CLIENT_ERRORS = {
    **_CLIENT_ERRORS,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.REBALANCE_IN_PROGRESS,
}
_FORMER_COMMIT_ERRORS = {
    **_FORMER_CLIENT_ERRORS,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.REQUEST_TIMED_OUT,
    **dict.fromkeys(_TOO_LARGE, ErrorCode.INVALID_COMMIT_OFFSET_SIZE),
}

APPEND_ERRORS = (
    *(ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, ErrorCode.NOT_LEADER_OR_FOLLOWER),
    *(ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.REQUEST_TIMED_OUT),
    *(ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
)
"""The errors with which a broker may refuse records of a coordinator."""


def client_error(error: ErrorCode, records: Sequence[Record], config: CoordinatorConfig) -> ErrorCode:
    """Return the error for clients if an append fails.

    Before KIP-848, tombstones are appended with acks=0: errors of replicas do not occur, and NONE is returned. The end
    of a transaction has the error of the log, because it is appended for the transaction coordinator.

    Args:
        error: The error of the log.
        records: The records of the append.
        config: The settings of the coordinator.

    Source: Kafka's `CoordinatorOperationExceptionHelper`; before KIP-848, `GroupMetadataManager.storeGroup` and
    `maybeConvertOffsetCommitError`.
    """
    first = records[0]
    if isinstance(first, TransactionEnd):
        return error
    if not config.is_before_kip_848:
        return _CLIENT_ERRORS.get(error, error)
    if error in _OF_REPLICAS and all(_is_tombstone(record) for record in records):
        return ErrorCode.NONE
    is_commit = isinstance(first, OffsetRecord | PendingOffsetRecord)
    return (_FORMER_COMMIT_ERRORS if is_commit else _FORMER_CLIENT_ERRORS).get(error, error)


def _is_tombstone(record: Record) -> bool:
    return not isinstance(record, TransactionEnd) and record.value is None
