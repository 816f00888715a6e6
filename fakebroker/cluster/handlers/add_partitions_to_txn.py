"""AddPartitionsToTxn: add partitions to a transaction (KIP-98); in versions 4 and up of several transactions (KIP-890).

Checks follow KafkaApis.handleAddPartitionsToTxnRequest. Versions 4 and up are for brokers, which may also add
partitions of internal topics, or only ask which partitions were added.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from fakebroker.cluster.authorization import cluster_error, refusal, topic_error, transaction_error
from fakebroker.cluster.call import Call
from fakebroker.cluster.handlers.transaction_errors import in_version
from fakebroker.cluster.topics import INTERNAL_TOPICS
from fakebroker.coordinator.transaction.transaction import KIP_890
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
    results = _Results(cluster, call, 1)
    results.add("", _add_or_verify(cluster, call, transaction, transaction.topics, transaction.topics, results, now_ms))
    return results.response


def _handle_batch(
    cluster: "Cluster", call: Call, transactions: Sequence[AddPartitionsToTxnTransaction], now_ms: float
) -> Message | None:
    """Handle the transactions one after the other; the request is answered when all have a result.

    As in Kafka, a request without transactions is never answered. Of two transactions with the same id, both are
    handled with the partitions of the second. The coordinator's answer names the partitions of the first.
    """
    first = {each.transactional_id: each.topics for each in reversed(transactions)}
    last = {each.transactional_id: each.topics for each in transactions}
    results = _Results(cluster, call, len(transactions))
    for each in transactions:
        name = each.transactional_id
        results.add(name, _add_or_verify(cluster, call, each, last[name], first[name], results, now_ms))
    return results.response


class _Results:
    """The results of the transactions of one request, which is answered when all are known.

    Attributes:
        call: The request.
        response: The response; None until it is known.
    """

    def __init__(self, cluster: "Cluster", call: Call, count: int) -> None:
        self._cluster, self.call, self._count = cluster, call, count
        self._found: list[AddPartitionsToTxnResult] = []
        self.response: AddPartitionsToTxnResponse | None = None

    def add(self, transactional_id: str, rows: Rows | None) -> None:
        """Add the results of one transaction; None if they are not known yet."""
        if rows is None:
            return
        self._found.append(AddPartitionsToTxnResult(transactional_id=transactional_id, topic_results=rows))
        if len(self._found) == self._count:
            if self.call.api_version >= _FIRST_VERSION_OF_BATCHES:
                self.response = AddPartitionsToTxnResponse(results_by_transaction=self._found)
            else:
                self.response = AddPartitionsToTxnResponse(results_by_topic_v3_and_below=rows)

    def answer_if_known(self) -> None:
        """Answer the request, which was parked, if the results of all transactions are known."""
        if self.response is not None:
            self._cluster.requests.answer(self.call, self.response, self._cluster.now_ms)


class _Added(NamedTuple):
    """The partitions of one transaction that are being added while its record is held."""

    results: _Results
    transactional_id: str
    topics: Sequence[AddPartitionsToTxnTopic]

    def released(self, error: ErrorCode) -> None:
        self.results.add(self.transactional_id, _same_rows(self.results.call, self.topics, error))
        self.results.answer_if_known()


def _add_or_verify(
    cluster: "Cluster",
    call: Call,
    transaction: AddPartitionsToTxnTransaction,
    topics: Sequence[AddPartitionsToTxnTopic],
    answered: Sequence[AddPartitionsToTxnTopic],
    results: _Results,
    now_ms: float,
) -> Rows | None:
    """Add partitions to one transaction or verify them, unless one of them is unknown.

    Args:
        cluster: The cluster.
        call: The request.
        transaction: The transaction.
        topics: The partitions.
        answered: The partitions in the answer of the coordinator, which has one error for all.
        results: The results of the request, for a transaction whose record is held.
        now_ms: The time.

    Returns:
        The results; None if the record is held.
    """
    is_of_broker = call.api_version >= _FIRST_VERSION_OF_BATCHES
    places = _places(topics)
    errors = {place: _error_of(cluster, call, place, is_of_broker=is_of_broker) for place in places}
    if any(errors.values()):
        return _rows({place: error or ErrorCode.OPERATION_NOT_ATTEMPTED for place, error in errors.items()})
    if transaction.verify_only:
        return _verified(call, transaction, places)
    error = call.broker.transaction_coordinator.add_partitions(
        transaction.transactional_id,
        transaction.producer_id,
        transaction.producer_epoch,
        places,
        now_ms,
        _Added(results, transaction.transactional_id, answered),
        version=KIP_890 if is_of_broker else 0,
    )
    return None if error is None else _same_rows(call, answered, error)


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


def _same_rows(call: Call, topics: Sequence[AddPartitionsToTxnTopic], error: ErrorCode) -> Rows:
    """Return the error of the coordinator for each partition, as often as it was requested."""
    error = in_version(error, has_fenced=call.api_version >= _FIRST_VERSION_OF_PRODUCER_FENCED)
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
