"""ListTransactions: the transactional ids of a coordinator, with filters (KIP-664, KIP-994, KIP-1152)."""

import re
from typing import TYPE_CHECKING

from fakebroker.cluster.authorization import transaction_error
from fakebroker.cluster.call import Call
from fakebroker.coordinator.transaction.transaction import Transaction, TransactionState as State
from fakebroker.errors import ErrorCode
from fakebroker.protocol.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
    TransactionState,
)
from fakebroker.security.acls import AclOperation

if TYPE_CHECKING:
    from fakebroker.cluster.cluster import Cluster

_TOKENS = re.compile(
    r"\[\^?\]?(?:\\.|[^\]\\])*\]"  # a set of characters
    r"|\\(?P<backreference>[1-9])|\\."
    r"|(?P<group>\(\?(?:[=!>(#]|<[=!]|P=))",  # lookarounds, atomic groups, conditions, comments
    re.DOTALL,
)
"""The parts of a pattern that are not RE2, by name, and the parts in which these are literal."""

_STATES = frozenset(state.value for state in State)


def handle(cluster: "Cluster", call: Call, now_ms: float) -> ListTransactionsResponse:
    request: ListTransactionsRequest = call.request
    coordinator = call.broker.transaction_coordinator
    unknown = [each for each in dict.fromkeys(request.state_filters) if each not in _STATES]
    if coordinator.is_loading:
        return _failed(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    pattern = _compiled(request.transactional_id_pattern or ".*")
    if pattern is None:
        return _failed(ErrorCode.INVALID_REGULAR_EXPRESSION)
    producer_ids, states = set(request.producer_id_filters), set(request.state_filters)

    def matches(transaction: Transaction) -> bool:
        value = transaction.value
        # An id that never had a transaction started at -1, and so counts as old.
        is_long = request.duration_filter < 0 or int(now_ms) - value.start_ms > request.duration_filter
        return (
            is_long
            and (not producer_ids or value.producer_id in producer_ids)
            and (not states or value.state.value in states)
            and pattern.fullmatch(transaction.transactional_id) is not None
        )

    return ListTransactionsResponse(
        unknown_state_filters=unknown,
        transaction_states=[
            TransactionState(
                transactional_id=each.transactional_id,
                producer_id=each.value.producer_id,
                transaction_state=each.state.value,
            )
            for each in coordinator.transactions()
            if matches(each) and not transaction_error(cluster, call, AclOperation.DESCRIBE, each.transactional_id)
        ],
    )


def _compiled(pattern: str) -> re.Pattern[str] | None:
    """Return a compiled pattern; None if it is malformed, or has groups or backreferences that RE2 lacks.

    Unlike RE2, matching takes exponential time for some patterns with nested repetitions, such as "(a+)+".
    """
    if any(token.lastgroup for token in _TOKENS.finditer(pattern)):
        return None
    try:
        return re.compile(pattern, re.DOTALL)
    except (re.error, OverflowError, RecursionError):
        return None


def _failed(error: ErrorCode) -> ListTransactionsResponse:
    return ListTransactionsResponse(error_code=error, unknown_state_filters=[], transaction_states=[])
