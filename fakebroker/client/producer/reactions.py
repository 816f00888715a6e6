"""How a transactional producer reacts to each error in a response, as one table.

`Producer.answered` carries out the reactions. Sources: the response handlers in Kafka's `TransactionManager`, and
`Sender.failBatch` for Produce.
"""

from collections.abc import Iterator
from enum import Enum, auto

from fakebroker.client.coordinators import COORDINATOR_MOVED
from fakebroker.client.errors import error_code
from fakebroker.client.producer.effects import ProducerResponse
from fakebroker.errors import ErrorCode
from fakebroker.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnResponse
from fakebroker.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnResponse
from fakebroker.protocol.messages.end_txn import EndTxnResponse
from fakebroker.protocol.messages.init_producer_id import InitProducerIdResponse
from fakebroker.protocol.messages.produce import ProduceResponse
from fakebroker.protocol.messages.txn_offset_commit import TxnOffsetCommitResponse


class Reaction(Enum):
    """Reaction to an error.

    RETRY: Back off, then send the request again.
    REDISCOVER: Look up the broker again, then send the request again.
    IGNORE: The records are in the log already.
    ABORTABLE: The transaction must be aborted.
    FATAL: Report the error to the application and stop.
    """

    RETRY = auto()
    REDISCOVER = auto()
    IGNORE = auto()
    ABORTABLE = auto()
    FATAL = auto()


_E = ErrorCode

_OF_COORDINATORS = dict.fromkeys(COORDINATOR_MOVED, Reaction.REDISCOVER) | dict.fromkeys(
    (
        _E.COORDINATOR_LOAD_IN_PROGRESS,
        _E.CONCURRENT_TRANSACTIONS,
        _E.UNKNOWN_TOPIC_OR_PARTITION,
        _E.REQUEST_TIMED_OUT,
    ),
    Reaction.RETRY,
)
_LEADER_MOVED = (
    _E.NOT_LEADER_OR_FOLLOWER,
    _E.LEADER_NOT_AVAILABLE,
    _E.FENCED_LEADER_EPOCH,
    _E.KAFKA_STORAGE_ERROR,
    _E.UNKNOWN_TOPIC_OR_PARTITION,
)

REACTIONS: dict[type[ProducerResponse], dict[ErrorCode, Reaction]] = {
    InitProducerIdResponse: _OF_COORDINATORS
    | dict.fromkeys(
        (
            _E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
            _E.CLUSTER_AUTHORIZATION_FAILED,
            _E.TRANSACTION_ABORTABLE,
        ),
        Reaction.ABORTABLE,
    ),
    AddPartitionsToTxnResponse: _OF_COORDINATORS
    | dict.fromkeys(
        (
            _E.INVALID_PRODUCER_EPOCH,
            _E.PRODUCER_FENCED,
            _E.INVALID_TXN_STATE,
            _E.INVALID_PRODUCER_ID_MAPPING,
            _E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
            _E.CLUSTER_AUTHORIZATION_FAILED,
        ),
        Reaction.FATAL,
    ),
    AddOffsetsToTxnResponse: _OF_COORDINATORS
    | dict.fromkeys((_E.GROUP_AUTHORIZATION_FAILED, _E.TRANSACTION_ABORTABLE), Reaction.ABORTABLE),
    TxnOffsetCommitResponse: _OF_COORDINATORS
    | dict.fromkeys(
        (
            _E.GROUP_AUTHORIZATION_FAILED,
            _E.ILLEGAL_GENERATION,
            _E.UNKNOWN_MEMBER_ID,
            _E.FENCED_INSTANCE_ID,
            _E.TRANSACTION_ABORTABLE,
        ),
        Reaction.ABORTABLE,
    ),
    EndTxnResponse: _OF_COORDINATORS | {_E.TRANSACTION_ABORTABLE: Reaction.ABORTABLE},
    ProduceResponse: dict.fromkeys((each for each in ErrorCode if each.retriable), Reaction.RETRY)
    | dict.fromkeys(_LEADER_MOVED, Reaction.REDISCOVER)
    | dict.fromkeys(
        (
            _E.PRODUCER_FENCED,
            _E.INVALID_PRODUCER_ID_MAPPING,
            _E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
            _E.CLUSTER_AUTHORIZATION_FAILED,
        ),
        Reaction.FATAL,
    )
    | {_E.DUPLICATE_SEQUENCE_NUMBER: Reaction.IGNORE},
}
"""Reactions by response and error; for other errors see `OTHERWISE`."""

OTHERWISE: dict[type[ProducerResponse], Reaction] = {
    InitProducerIdResponse: Reaction.FATAL,
    AddPartitionsToTxnResponse: Reaction.ABORTABLE,
    AddOffsetsToTxnResponse: Reaction.FATAL,
    TxnOffsetCommitResponse: Reaction.FATAL,
    EndTxnResponse: Reaction.FATAL,
    ProduceResponse: Reaction.ABORTABLE,
}
"""The reaction to errors that are not in `REACTIONS`."""


def reaction_to(error: ErrorCode, response: ProducerResponse) -> Reaction:
    """Return how a producer reacts to an error in a response."""
    kind = type(response)
    return REACTIONS[kind].get(error, OTHERWISE[kind])


def error_in(response: ProducerResponse) -> ErrorCode:
    """Return the error of a response. Of several, OPERATION_NOT_ATTEMPTED comes last: another one is its cause."""
    errors = [error_code(code) for code in _codes(response) if code]
    causes = [error for error in errors if error is not ErrorCode.OPERATION_NOT_ATTEMPTED]
    return next(iter(causes or errors), ErrorCode.NONE)


def _codes(response: ProducerResponse) -> Iterator[int]:
    match response:
        case AddPartitionsToTxnResponse():
            for added in response.results_by_topic_v3_and_below:
                yield from (each.partition_error_code for each in added.results_by_partition)
        case ProduceResponse():
            for produced in response.responses:
                yield from (each.error_code for each in produced.partition_responses)
        case TxnOffsetCommitResponse():
            for committed in response.topics:
                yield from (each.error_code for each in committed.partitions)
        case _:
            yield response.error_code
