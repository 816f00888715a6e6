"""DescribeTransactions: the states of transactional ids at their coordinator (KIP-664)."""

from typing import TYPE_CHECKING

from fakebroker.cluster.authorization import topic_error, transaction_error
from fakebroker.cluster.call import Call
from fakebroker.errors import ErrorCode
from fakebroker.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TopicData,
    TransactionState,
)
from fakebroker.security.acls import AclOperation
from fakebroker.topic_partition import by_topic

if TYPE_CHECKING:
    from fakebroker.cluster.cluster import Cluster


def handle(cluster: "Cluster", call: Call, now_ms: float) -> DescribeTransactionsResponse:
    request: DescribeTransactionsRequest = call.request
    return DescribeTransactionsResponse(
        transaction_states=[_describe(cluster, call, each) for each in request.transactional_ids]
    )


def _describe(cluster: "Cluster", call: Call, transactional_id: str) -> TransactionState:
    if refused := transaction_error(cluster, call, AclOperation.DESCRIBE, transactional_id):
        return _failed(transactional_id, refused)
    coordinator = call.broker.transaction_coordinator
    transaction = coordinator.transaction(transactional_id)
    if not transactional_id:
        return _failed(transactional_id, ErrorCode.INVALID_REQUEST)
    if transaction is None:
        error = coordinator.error_for(transactional_id) or ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
        return _failed(transactional_id, error)
    value = transaction.value
    # Kafka forgets a partition when its marker is written.
    places = value.partitions if transaction.awaits_markers is None else tuple(transaction.awaits_markers)
    return TransactionState(
        error_code=ErrorCode.NONE,
        transactional_id=transactional_id,
        transaction_state=value.state.value,
        transaction_timeout_ms=value.timeout_ms,
        transaction_start_time_ms=value.start_ms,
        producer_id=value.producer_id,
        producer_epoch=value.epoch,
        topics=[
            TopicData(topic=name, partitions=indexes)
            for name, indexes in by_topic(places).items()
            if not topic_error(cluster, call, AclOperation.DESCRIBE, name)
        ],
    )


def _failed(transactional_id: str, error: ErrorCode) -> TransactionState:
    return TransactionState(
        error_code=error,
        transactional_id=transactional_id,
        transaction_state="",
        transaction_timeout_ms=0,
        transaction_start_time_ms=0,
        producer_id=0,
        producer_epoch=0,
        topics=[],
    )
