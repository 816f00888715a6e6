"""ListTransactions: the transactional ids of a coordinator, with filters (KIP-664, KIP-994, KIP-1152)."""

import re
from typing import TYPE_CHECKING

from fakebroker.cluster.call import Call
from fakebroker.coordinator.transaction.states import DEAD, TransactionState as State
from fakebroker.coordinator.transaction.transaction import Transaction
from fakebroker.errors import ErrorCode
from fakebroker.protocol.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
    TransactionState,
)

if TYPE_CHECKING:
    from fakebroker.cluster.cluster import Cluster

_STATES = frozenset(state.value for state in State)


def handle(cluster: "Cluster", call: Call, now_ms: float) -> ListTransactionsResponse:
    request: ListTransactionsRequest = call.request
    coordinator = call.broker.transaction_coordinator
    unknown = [each for each in request.state_filters if each not in _STATES]
    if coordinator.is_loading:
        return _failed(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    try:
        pattern = re.compile(request.transactional_id_pattern or ".*", re.DOTALL)
    except re.error:
        return _failed(ErrorCode.INVALID_REGULAR_EXPRESSION)
    return ListTransactionsResponse(
        unknown_state_filters=unknown,
        transaction_states=[
            TransactionState(
                transactional_id=each.transactional_id,
                producer_id=each.value.producer_id,
                transaction_state=each.state.value,
            )
            for each in coordinator.transactions()
            if _matches(each, request, now_ms) and pattern.fullmatch(each.transactional_id)
        ],
    )


def _matches(transaction: Transaction, request: ListTransactionsRequest, now_ms: float) -> bool:
    value = transaction.value
    if transaction.pending is DEAD:
        return False
    if request.producer_id_filters and value.producer_id not in request.producer_id_filters:
        return False
    if request.state_filters and value.state.value not in request.state_filters:
        return False
    # An id that never had a transaction started at -1, and so counts as old.
    return request.duration_filter < 0 or int(now_ms) - value.start_ms > request.duration_filter


def _failed(error: ErrorCode) -> ListTransactionsResponse:
    return ListTransactionsResponse(error_code=error, unknown_state_filters=[], transaction_states=[])
