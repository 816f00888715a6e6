"""AddPartitionsToTxn: add partitions to a transaction (KIP-98); in versions 4 and up of several transactions (KIP-890).

Checks follow KafkaApis.handleAddPartitionsToTxnRequest. Versions 4 and up are for brokers, which may also add
partitions of internal topics, or only ask which partitions were added.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from fakebroker.cluster.call import Call
from fakebroker.cluster.handlers.transaction_errors import in_version
from fakebroker.cluster.late_response import LateResponse
from fakebroker.errors import ErrorCode
from fakebroker.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)
from fakebroker.protocol.schema import Message
from fakebroker.topic_partition import TopicPartition

if TYPE_CHECKING:
    from fakebroker.cluster.cluster import Cluster

_FIRST_VERSION_OF_PRODUCER_FENCED = 2
_FIRST_VERSION_OF_BATCHES = 4

Results = Mapping[TopicPartition, ErrorCode]


def handle(cluster: "Cluster", call: Call, now_ms: float) -> Message | None:
    request: AddPartitionsToTxnRequest = call.request
    if call.api_version >= _FIRST_VERSION_OF_BATCHES:
        return _handle_batch(cluster, call, request.transactions, now_ms)
    transaction = AddPartitionsToTxnTransaction(
        transactional_id=request.v3_and_below_transactional_id,
        producer_id=request.v3_and_below_producer_id,
        producer_epoch=request.v3_and_below_producer_epoch,
        topics=request.v3_and_below_topics,
    )
    has_fenced = call.api_version >= _FIRST_VERSION_OF_PRODUCER_FENCED
    late: LateResponse[Results] = LateResponse(
        lambda results: AddPartitionsToTxnResponse(results_by_topic_v3_and_below=_rows(results, has_fenced=has_fenced))
    )
    _add(cluster, call, transaction, late, now_ms, may_be_internal=False)
    return late.take(cluster, call)


def _handle_batch(
    cluster: "Cluster", call: Call, transactions: Sequence[AddPartitionsToTxnTransaction], now_ms: float
) -> Message | None:
    """Handle the transactions one after the other; the request is answered when all have a result.

    As in Kafka, a request without transactions is never answered.
    """
    found: list[AddPartitionsToTxnResult] = []
    late: LateResponse[None] = LateResponse(lambda _: AddPartitionsToTxnResponse(results_by_transaction=found))

    def answer(transactional_id: str, results: Results) -> None:
        rows = _rows(results, has_fenced=True)
        found.append(AddPartitionsToTxnResult(transactional_id=transactional_id, topic_results=rows))
        if len(found) == len(transactions):
            late(None)

    for each in transactions:
        done = partial(answer, each.transactional_id)
        if each.verify_only:
            done(_verified(call, each))
        else:
            _add(cluster, call, each, done, now_ms, may_be_internal=True)
    return late.take(cluster, call)


def _add(
    cluster: "Cluster",
    call: Call,
    transaction: AddPartitionsToTxnTransaction,
    done: Callable[[Results], None],
    now_ms: float,
    *,
    may_be_internal: bool,
) -> None:
    """Add the partitions of one transaction, or none if one of them is unknown."""
    places = _places(transaction.topics)
    errors = {place: _error_of(cluster, place, may_be_internal=may_be_internal) for place in places}
    if any(errors.values()):
        done({place: error or ErrorCode.OPERATION_NOT_ATTEMPTED for place, error in errors.items()})
        return
    call.broker.transaction_coordinator.add_partitions(
        transaction.transactional_id,
        transaction.producer_id,
        transaction.producer_epoch,
        places,
        now_ms,
        lambda error: done(dict.fromkeys(places, error)),
    )


def _verified(call: Call, transaction: AddPartitionsToTxnTransaction) -> Results:
    places = _places(transaction.topics)
    error, errors = call.broker.transaction_coordinator.verify_partitions(
        transaction.transactional_id, transaction.producer_id, transaction.producer_epoch, places
    )
    if error:
        return dict.fromkeys(places, error)
    # Version 4 does not have TRANSACTION_ABORTABLE.
    unknown = ErrorCode.TRANSACTION_ABORTABLE if call.api_version > 4 else ErrorCode.INVALID_TXN_STATE
    return {place: unknown if each else each for place, each in zip(places, errors, strict=True)}


def _error_of(cluster: "Cluster", place: TopicPartition, *, may_be_internal: bool) -> ErrorCode:
    topic = cluster.topics.get(place[0])
    if topic is not None and topic.is_internal and not may_be_internal:
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    if topic is None or topic.partition(place[1]) is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return ErrorCode.NONE


def _places(topics: Sequence[AddPartitionsToTxnTopic]) -> list[TopicPartition]:
    return list(dict.fromkeys((topic.name, index) for topic in topics for index in topic.partitions))


def _rows(results: Results, *, has_fenced: bool) -> list[AddPartitionsToTxnTopicResult]:
    by_topic: dict[str, list[AddPartitionsToTxnPartitionResult]] = {}
    for (name, index), error in results.items():
        row = AddPartitionsToTxnPartitionResult(
            partition_index=index, partition_error_code=in_version(error, has_fenced=has_fenced)
        )
        by_topic.setdefault(name, []).append(row)
    return [AddPartitionsToTxnTopicResult(name=name, results_by_partition=rows) for name, rows in by_topic.items()]
