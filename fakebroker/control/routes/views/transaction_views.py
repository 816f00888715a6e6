"""Transactional ids as JSON: rows of a list, and details of one id. Read-only."""

from typing import TypedDict

from fakebroker.cluster.cluster import Cluster
from fakebroker.cluster.inspect.explain_transaction import explain_transaction
from fakebroker.cluster.inspect.transaction_views import AwaitedMarker, TransactionView
from fakebroker.control.clusters import ServedCluster
from fakebroker.coordinator.history import DroppedMoments
from fakebroker.coordinator.transaction.history import TransactionMoment
from fakebroker.topic_partition import TopicPartition, format_partitions

_MAX_NAMES = 3


class MarkerRow(TypedDict):
    """A marker that was not written yet, and why, as a clause."""

    partition: str
    reason: str


class TransactionRow(TypedDict):
    """One transactional id; `coordinator` is a node id, `why` a short explanation.

    `pending_state` is the next state, whose record is being stored, or is held if `is_held`, or which follows when the
    `awaited_markers` are written. At `deadline_ms` an open transaction is aborted, or an id without one expires.
    """

    transactional_id: str
    state: str
    pending_state: str | None
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    start_ms: int | None
    last_update_ms: int
    partitions: list[str]
    coordinator: int | None
    is_held: bool
    awaited_markers: list[MarkerRow]
    deadline_ms: float | None
    why: str


class TransactionMomentRow(TypedDict):
    """One transition of a transactional id, or one that could not be stored, with its cause."""

    at_ms: float
    coordinator_id: int
    cause: str
    state_from: str
    state_to: str
    producer_id: int
    producer_epoch: int
    partitions: list[str]


class TransactionDetail(TypedDict):
    """One transactional id with an explanation and its newest moments."""

    transaction: TransactionRow
    explanation: str
    moments: list[TransactionMomentRow]
    dropped: DroppedMoments
    taken_ms: float


class TransactionTimelineView(TypedDict):
    """The history of a transactional id; `text` and `svg` are null unless requested.

    `dropped` are earlier moments that are no longer kept.
    """

    transactional_id: str
    taken_ms: float
    moments: list[TransactionMomentRow]
    dropped: DroppedMoments
    text: str | None
    svg: str | None


def partition_names(partitions: tuple[TopicPartition, ...]) -> list[str]:
    """Return the names of partitions, such as "orders-0"."""
    return [format_partitions([each]) for each in partitions]


def transaction_row(view: TransactionView) -> TransactionRow:
    """Return the row of a transactional id."""
    return {
        "transactional_id": view.transactional_id,
        "state": view.state,
        "pending_state": view.pending_state,
        "producer_id": view.producer_id,
        "producer_epoch": view.producer_epoch,
        "timeout_ms": view.timeout_ms,
        "start_ms": view.start_ms,
        "last_update_ms": view.last_update_ms,
        "partitions": partition_names(view.partitions),
        "coordinator": view.coordinator,
        "is_held": view.is_held,
        "awaited_markers": list(map(_marker_row, view.awaited_markers)),
        "deadline_ms": view.deadline_ms,
        "why": why(view),
    }


def _marker_row(marker: AwaitedMarker) -> MarkerRow:
    return {"partition": format_partitions([marker.partition]), "reason": marker.reason}


def why(view: TransactionView) -> str:
    """Return a short explanation: what is held, the markers that are awaited, or the cause of the last transition."""
    if view.is_held:
        return f"{view.pending_state} is held"
    if view.awaited_markers:
        named = [f"{format_partitions([each.partition])}, {each.reason}" for each in view.awaited_markers[:_MAX_NAMES]]
        more = len(view.awaited_markers) - len(named)
        return f"waiting for markers of {'; '.join(named)}" + (f" and {more} more" if more else "")
    return view.history.moments[-1].cause if view.history.moments else ""


def moment_row(moment: TransactionMoment) -> TransactionMomentRow:
    """Return the row of a moment."""
    return {
        "at_ms": moment.at_ms,
        "coordinator_id": moment.coordinator_id,
        "cause": moment.cause,
        "state_from": moment.state_from,
        "state_to": moment.state_to,
        "producer_id": moment.producer_id,
        "producer_epoch": moment.producer_epoch,
        "partitions": partition_names(moment.partitions),
    }


def transaction_detail(served: ServedCluster, view: TransactionView) -> TransactionDetail:
    """Return the details of a transactional id. The fields of the row are those of `view`."""
    core: Cluster = served.cluster.cluster
    return {
        "transaction": transaction_row(view),
        "explanation": explain_transaction(core, view.transactional_id, served.cluster.clock.now_ms()),
        "moments": list(map(moment_row, view.history.moments)),
        "dropped": view.history.dropped,
        "taken_ms": view.history.taken_ms,
    }
