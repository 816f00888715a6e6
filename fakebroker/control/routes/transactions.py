"""Operations on transactional ids."""

from operator import attrgetter
from typing import Literal, TypedDict

import msgspec

from fakebroker.cluster.commands.cluster_commands import ClusterCommands
from fakebroker.cluster.commands.definition import Arguments, arguments_of
from fakebroker.cluster.inspect.timelines import TransactionTimeline
from fakebroker.cluster.inspect.transaction_views import (
    HangingTransaction,
    TransactionView,
    checked_filters,
    find_transaction,
    is_open,
    matching_transactions,
    view_transaction,
)
from fakebroker.control.clusters import ServedCluster
from fakebroker.control.problems import not_found
from fakebroker.control.routes.arguments import check_range
from fakebroker.control.routes.groups import MAX_LISTED, Explanation, TimelineQuery, check_timeline
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
from fakebroker.server.fake_cluster import FakeCluster

TRANSACTION = f"{CLUSTER}/transactions/{{transactional_id}}"


class TransactionQuery(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Filters of transactional ids, all of which must match; `search` is a part of the id, case-insensitive.

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


class HangingTransactionList(TypedDict):
    """The transactions that are open in partitions, but not at a coordinator."""

    hanging_transactions: list[HangingTransaction]


@operation("GET", f"{CLUSTER}/transactions")
def list_transactions(served: ServedCluster, query: TransactionQuery) -> TransactionList:
    """List transactional ids with explanations of their states."""
    check_range("limit", query.limit, 0, MAX_LISTED)
    check_range("offset", query.offset, 0, 2**31)
    core, now_ms = served.cluster.cluster, served.cluster.clock.now_ms()
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


@operation("GET", f"{CLUSTER}/hanging_transactions")
def list_hanging_transactions(served: ServedCluster) -> HangingTransactionList:
    """List the transactions that are open in partitions, but that no coordinator knows."""
    return {"hanging_transactions": served.cluster.hanging_transactions()}


@operation("GET", TRANSACTION)
def get_transaction(served: ServedCluster, transactional_id: str) -> TransactionDetail:
    """Get a transactional id with an explanation and its history."""
    return transaction_detail(served, _existing(served, transactional_id))


def _existing(served: ServedCluster, transactional_id: str) -> TransactionView:
    try:
        return served.cluster.transaction(transactional_id)
    except ConfigError as error:
        raise not_found("transaction", transactional_id, error.expected or "") from None


@operation("GET", f"{TRANSACTION}/timeline")
def get_transaction_timeline(
    served: ServedCluster, transactional_id: str, query: TimelineQuery
) -> TransactionTimelineView:
    """Get the history of a transactional id with causes: as data, and on request drawn as text and SVG."""
    check_timeline(query)
    whole = served.cluster.transaction_timeline(transactional_id)
    if not whole.moments and not whole.dropped:
        _existing(served, transactional_id)
    moments = whole.moments[-query.limit :]
    timeline = TransactionTimeline(transactional_id, moments, whole.taken_ms, whole.dropped)
    return TransactionTimelineView(
        **msgspec.structs.asdict(timeline),
        drawn_text=timeline.text() if query.text else None,
        drawn_svg=timeline.svg(query.width, query.max_rows) if query.svg and moments else None,
    )


@operation("GET", f"{TRANSACTION}/explain")
def explain_transaction(served: ServedCluster, transactional_id: str) -> Explanation:
    """Explain the state of a transactional id: its cause, awaited markers, and timeout; the id need not exist."""
    return {"text": served.cluster.explain_transaction(transactional_id)}


# Commands


class TransactionResult(TypedDict):
    """A transactional id after a command; null if it does not exist or its coordinator does not know it."""

    transaction: TransactionRow | None


def _result(served: ServedCluster, transactional_id: str) -> TransactionResult:
    exists = find_transaction(served.cluster.cluster, transactional_id) is not None
    return {"transaction": transaction_row(served.cluster.transaction(transactional_id)) if exists else None}


def _register_command(name: str, path: str, *, status: int = 200, needs_id: bool = False) -> None:
    """Register a method of `FakeCluster` that changes a transactional id as an operation."""
    method = getattr(FakeCluster, name)

    def run(served: ServedCluster, transactional_id: str, body: Arguments) -> TransactionResult:
        if needs_id:
            _existing(served, transactional_id)
        method(served.cluster, transactional_id, **body.given())
        return _result(served, transactional_id)

    run.__name__ = name if "transaction" in name else f"{name}_of_transaction"
    run.__doc__ = method.__doc__
    id_parameter = "group_id" if name in ("hold", "release") else "transactional_id"
    body = arguments_of(getattr(ClusterCommands, name), id_parameter)
    operation("POST", f"{TRANSACTION}/{path}", status=status, body=body)(run)


_register_command("abort_transaction", "abort", needs_id=True)
_register_command("fence_producer", "fence", needs_id=True)
for _name_of_command in ("hold", "release", "hold_markers", "release_markers"):  # The id need not exist yet.
    _register_command(_name_of_command, _name_of_command)
_register_command("move_transaction_coordinator", "move")
_register_command("seed_transaction", "seed", status=201)
