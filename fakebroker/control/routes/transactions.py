"""Operations on transactional ids."""

from operator import attrgetter
from typing import Literal, TypedDict

import msgspec

from fakebroker.cluster.inspect.timelines import TransactionTimeline
from fakebroker.cluster.inspect.transaction_views import (
    TransactionView,
    checked_filters,
    is_open,
    matching_transactions,
    view_transaction,
)
from fakebroker.control.clusters import ServedCluster
from fakebroker.control.problems import not_found
from fakebroker.control.routes.arguments import check_range
from fakebroker.control.routes.groups import MAX_LISTED, TimelineQuery, check_timeline
from fakebroker.control.routes.operations import CLUSTER, operation
from fakebroker.control.routes.views.transaction_views import (
    TransactionDetail,
    TransactionRow,
    TransactionTimelineView,
    transaction_detail,
    transaction_row,
)
from fakebroker.coordinator.transaction.transaction import Transaction
from fakebroker.errors import ConfigError

TRANSACTION = f"{CLUSTER}/transactions/{{transactional_id}}"


class TransactionQuery(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Filters; a transactional id must match all of them. `search` is a part of the id, case-insensitive.

    With `longer_than_s`, only ids whose transaction began more than so many seconds ago and has not ended. Sorted by
    "name", or with "waiting" first those whose transactions have not ended, longest first.
    """

    state: Literal["Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort"] | None = None
    producer_id: int | None = None
    longer_than_s: float | None = None
    search: str = ""
    sort: Literal["name", "waiting"] = "name"
    limit: int = 100
    offset: int = 0


class TransactionList(TypedDict):
    """Some transactional ids; `total` is the number without limit and offset."""

    total: int
    transactions: list[TransactionRow]


@operation("GET", f"{CLUSTER}/transactions")
def list_transactions(served: ServedCluster, query: TransactionQuery) -> TransactionList:
    """List transactional ids with explanations of their states."""
    check_range("limit", query.limit, 0, MAX_LISTED)
    check_range("offset", query.offset, 0, 2**31)
    core, now_ms = served.core, served.now_ms()
    filters = checked_filters(query.state, query.producer_id, query.longer_than_s)
    search = query.search.lower()
    found = (transaction for _, transaction in matching_transactions(core, now_ms, **filters))
    matching = [each for each in found if search in each.transactional_id.lower()]
    matching.sort(key=_waiting_first if query.sort == "waiting" else attrgetter("transactional_id"))
    chosen = matching[query.offset : query.offset + query.limit]
    rows = [transaction_row(view_transaction(core, each.transactional_id, now_ms)) for each in chosen]
    return {"total": len(matching), "transactions": rows}


def _waiting_first(transaction: Transaction) -> tuple[bool, int, str]:
    is_waiting = is_open(transaction) or transaction.pending is not None
    since_ms = transaction.value.start_ms if is_open(transaction) else transaction.value.last_update_ms
    return not is_waiting, since_ms, transaction.transactional_id


@operation("GET", TRANSACTION)
def get_transaction(served: ServedCluster, transactional_id: str) -> TransactionDetail:
    """Get a transactional id with an explanation and its history."""
    return transaction_detail(served, _existing(served, transactional_id))


def _existing(served: ServedCluster, transactional_id: str) -> TransactionView:
    try:
        return view_transaction(served.core, transactional_id, served.now_ms())
    except ConfigError as error:
        raise not_found("transaction", transactional_id, error.expected or "") from None


@operation("GET", f"{TRANSACTION}/timeline")
def get_transaction_timeline(
    served: ServedCluster, transactional_id: str, query: TimelineQuery
) -> TransactionTimelineView:
    """Get the history of a transactional id with causes: as data, and on request drawn as text and SVG."""
    check_timeline(query)
    whole = served.cluster.transaction(transactional_id).timeline()
    if not whole.moments and not whole.dropped:
        _existing(served, transactional_id)
    moments = whole.moments[-query.limit :]
    timeline = TransactionTimeline(transactional_id, moments, whole.taken_ms, whole.dropped)
    return TransactionTimelineView(
        **msgspec.structs.asdict(timeline),
        drawn_text=timeline.text() if query.text else None,
        drawn_svg=timeline.svg(query.width, query.max_rows) if query.svg and moments else None,
    )
