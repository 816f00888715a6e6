"""AddPartitionsToTxn: add partitions to a transaction (KIP-98); in versions 4 and up of several transactions (KIP-890).

Checks follow KafkaApis.handleAddPartitionsToTxnRequest. Versions 4 and up are for brokers, which may also add
partitions of internal topics, or only ask which partitions were added.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from fakebroker.cluster.authorization import cluster_error, refusal, topic_error, transaction_error
from fakebroker.cluster.call import Call
from fakebroker.cluster.handlers.transaction_errors import in_version
from fakebroker.cluster.late_response import LateResponse
from fakebroker.cluster.topics import INTERNAL_TOPICS
from fakebroker.coordinator.transaction.config import KIP_890
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
from fakebroker.protocol.releases import Release
from fakebroker.protocol.schema import Message
from fakebroker.security.acls import AclOperation
from fakebroker.topic_partition import TopicPartition

if TYPE_CHECKING:
    from fakebroker.cluster.cluster import Cluster

_FIRST_VERSION_OF_PRODUCER_FENCED = 2
_FIRST_VERSION_OF_BATCHES = 4

_KIP_890 = Release(3, 8)
"""The first release with TRANSACTION_ABORTABLE, which coordinators return in version 4, too."""

Rows = list[AddPartitionsToTxnTopicResult]


def handle(cluster: "Cluster", call: Call, now_ms: float) -> Message | None:
    request: AddPartitionsToTxnRequest = call.request
    if call.api_version >= _FIRST_VERSION_OF_BATCHES:
        if refused := cluster_error(cluster, call, AclOperation.CLUSTER_ACTION):
            return AddPartitionsToTxnResponse(error_code=refused)
        return _handle_batch(cluster, call, request.transactions, now_ms)
    if refused := transaction_error(cluster, call, AclOperation.WRITE, request.v3_and_below_transactional_id):
        return refusal(call, refused)
    transaction = AddPartitionsToTxnTransaction(
        transactional_id=request.v3_and_below_transactional_id,
        producer_id=request.v3_and_below_producer_id,
        producer_epoch=request.v3_and_below_producer_epoch,
        topics=request.v3_and_below_topics,
    )
    late: LateResponse[Rows] = LateResponse(lambda rows: AddPartitionsToTxnResponse(results_by_topic_v3_and_below=rows))
    _add_or_verify(cluster, call, transaction, transaction.topics, transaction.topics, late, now_ms)
    return late.take(cluster, call)


def _handle_batch(
    cluster: "Cluster", call: Call, transactions: Sequence[AddPartitionsToTxnTransaction], now_ms: float
) -> Message | None:
    """Handle the transactions one after the other; the request is answered when all have a result.

    As in Kafka, a request without transactions is never answered. If an id is named twice, each of its transactions is
    handled with the partitions of the last one, and answered with those of the first one.
    """
    found: list[AddPartitionsToTxnResult] = []
    late: LateResponse[None] = LateResponse(lambda _: AddPartitionsToTxnResponse(results_by_transaction=found))
    first = {each.transactional_id: each.topics for each in reversed(transactions)}
    last = {each.transactional_id: each.topics for each in transactions}

    def answer(transactional_id: str, rows: Rows) -> None:
        found.append(AddPartitionsToTxnResult(transactional_id=transactional_id, topic_results=rows))
        if len(found) == len(transactions):
            late(None)

    for each in transactions:
        name = each.transactional_id
        _add_or_verify(cluster, call, each, last[name], first[name], partial(answer, name), now_ms)
    return late.take(cluster, call)


def _add_or_verify(
    cluster: "Cluster",
    call: Call,
    transaction: AddPartitionsToTxnTransaction,
    topics: Sequence[AddPartitionsToTxnTopic],
    answered: Sequence[AddPartitionsToTxnTopic],
    done: Callable[[Rows], None],
    now_ms: float,
) -> None:
    """Add partitions to one transaction or verify them, unless one of them is unknown.

    Args:
        cluster: The cluster.
        call: The request.
        transaction: The transaction.
        topics: The partitions.
        answered: The partitions in the answer of the coordinator, which has one error for all.
        done: Called with the results.
        now_ms: The time.
    """
    is_of_broker = call.api_version >= _FIRST_VERSION_OF_BATCHES
    places = _places(topics)
    errors = {place: _error_of(cluster, call, place, is_of_broker=is_of_broker) for place in places}
    if any(errors.values()):
        done(_rows({place: error or ErrorCode.OPERATION_NOT_ATTEMPTED for place, error in errors.items()}))
        return
    if transaction.verify_only:
        done(_verified(call, transaction, places))
        return
    has_fenced = call.api_version >= _FIRST_VERSION_OF_PRODUCER_FENCED
    call.broker.transaction_coordinator.add_partitions(
        transaction.transactional_id,
        transaction.producer_id,
        transaction.producer_epoch,
        places,
        now_ms,
        lambda error: done(_same_rows(answered, in_version(error, has_fenced=has_fenced))),
        version=KIP_890 if is_of_broker else 0,
    )


def _verified(call: Call, transaction: AddPartitionsToTxnTransaction, places: Sequence[TopicPartition]) -> Rows:
    error, errors = call.broker.transaction_coordinator.verify_partitions(
        transaction.transactional_id, transaction.producer_id, transaction.producer_epoch, places
    )
    if error:
        return _rows(dict.fromkeys(places, error))
    unknown = ErrorCode.TRANSACTION_ABORTABLE if call.broker.release >= _KIP_890 else ErrorCode.INVALID_TXN_STATE
    return _rows({place: unknown if each else each for place, each in zip(places, errors, strict=True)})


def _error_of(cluster: "Cluster", call: Call, place: TopicPartition, *, is_of_broker: bool) -> ErrorCode:
    if not is_of_broker:
        if place[0] in INTERNAL_TOPICS:
            return ErrorCode.TOPIC_AUTHORIZATION_FAILED
        if refused := topic_error(cluster, call, AclOperation.WRITE, place[0]):
            return refused
    topic = cluster.topics.get(place[0])
    if topic is None or topic.partition(place[1]) is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return ErrorCode.NONE


def _places(topics: Sequence[AddPartitionsToTxnTopic]) -> list[TopicPartition]:
    return list(dict.fromkeys((topic.name, index) for topic in topics for index in topic.partitions))


def _same_rows(topics: Sequence[AddPartitionsToTxnTopic], error: ErrorCode) -> Rows:
    """Return the same error for each partition, as often as it was requested."""
    return [
        AddPartitionsToTxnTopicResult(
            name=topic.name,
            results_by_partition=[
                AddPartitionsToTxnPartitionResult(partition_index=index, partition_error_code=error)
                for index in topic.partitions
            ],
        )
        for topic in topics
    ]


def _rows(results: Mapping[TopicPartition, ErrorCode]) -> Rows:
    by_topic: dict[str, list[AddPartitionsToTxnPartitionResult]] = {}
    for (name, index), error in results.items():
        row = AddPartitionsToTxnPartitionResult(partition_index=index, partition_error_code=error)
        by_topic.setdefault(name, []).append(row)
    return [AddPartitionsToTxnTopicResult(name=name, results_by_partition=rows) for name, rows in by_topic.items()]
