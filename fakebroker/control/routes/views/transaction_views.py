"""Transactional ids as JSON: rows of a list, and details of one id. Read-only."""

from typing import TypedDict

import msgspec

from fakebroker.cluster.inspect.base import without_history
from fakebroker.cluster.inspect.explain_transaction import explain_transaction
from fakebroker.cluster.inspect.timelines import TransactionTimeline
from fakebroker.cluster.inspect.transaction_views import TransactionDescription, TransactionView
from fakebroker.control.clusters import ServedCluster
from fakebroker.coordinator.history import DroppedMoments
from fakebroker.coordinator.transaction.history import TransactionMoment

_MAX_NAMES = 3


class TransactionRow(TransactionDescription, frozen=True, kw_only=True):
    """One transactional id; `coordinator` is a node id, `why` a short explanation.

    `pending_state` is the next state, whose record is being stored, or is held if `is_held`, or which follows when the
    `awaited_markers` are written. At `deadline_ms` an open transaction is aborted, or an id without one expires.
    """

    why: str


class TransactionDetail(TypedDict):
    """One transactional id with an explanation and its newest moments."""

    transaction: TransactionRow
    explanation: str
    moments: tuple[TransactionMoment, ...]
    dropped: DroppedMoments
    taken_ms: float


class TransactionTimelineView(TransactionTimeline, frozen=True, kw_only=True):
    """The history of a transactional id; `text` and `svg` are null unless requested.

    `dropped` are earlier moments that are no longer kept.
    """

    drawn_text: str | None = msgspec.field(name="text")
    drawn_svg: str | None = msgspec.field(name="svg")


def transaction_row(view: TransactionView) -> TransactionRow:
    """Return the row of a transactional id."""
    return TransactionRow(**without_history(view), why=why(view))


def why(view: TransactionView) -> str:
    """Return a short explanation: what is held, the markers that are awaited, or the cause of the last transition."""
    if view.is_held:
        return f"{view.pending_state} is held"
    if view.awaited_markers:
        named = [f"{each.partition_name}, {each.reason}" for each in view.awaited_markers[:_MAX_NAMES]]
        more = len(view.awaited_markers) - len(named)
        return f"waiting for markers of {'; '.join(named)}" + (f" and {more} more" if more else "")
    return view.history.moments[-1].cause if view.history.moments else ""


def transaction_detail(served: ServedCluster, view: TransactionView) -> TransactionDetail:
    """Return the details of a transactional id. The row has the fields of `view`."""
    now_ms = served.now_ms()
    return {
        "transaction": transaction_row(view),
        "explanation": explain_transaction(served.core, view.transactional_id, now_ms),
        "moments": view.history.moments,
        "dropped": view.history.dropped,
        "taken_ms": view.history.taken_ms,
    }
