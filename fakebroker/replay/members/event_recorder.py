"""Collects events, optionally folds heartbeats, and converts rows to Arrow batches. Rows are not ordered by time."""

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from fakebroker.replay.members.consumption import Growth
from fakebroker.replay.members.events import OFFSET, SCHEMA, Event
from fakebroker.replay.members.request_events import to_us
from fakebroker.replay.members.request_outcomes import is_failure

BATCH_ROWS = 16_384
"""The number of rows from which on they are converted to a batch."""


_Numbers = np.ndarray[Any, Any]
"""Numbers of one type."""


class Series(NamedTuple):
    """The rows of periodic requests of a member, which differ in their times and committed offsets only.

    Attributes:
        first: The first row.
        count: Number of rows.
        interval_ms: Time between two of them.
        due_ms: When the first one was due, in milliseconds since the Unix epoch. Not rounded to microseconds, unlike
            the row, so that rounding errors do not add up.
        offsets: How the committed offsets grow, in the order of the rows' lists; None if the rows have no offsets.
    """

    first: Event
    count: int  # type: ignore[assignment]  # hides `tuple.count`, as `Event` does
    interval_ms: float
    due_ms: float
    offsets: Sequence[Growth] | None = None


class EventRecorder:
    """Collects the events of the members of one task.

    Args:
        folds: Whether to fold heartbeats: successive successful heartbeats of a member become one row. The row ends
            before any other event of the member, except successful commits and requests of its producer, and before a
            change of generation, member id, broker or version.

    Attributes:
        requests: Number of requests.
        errors: Number of failed requests: with an unexpected error, lost or unanswered.
    """

    def __init__(self, *, folds: bool = False) -> None:
        self.requests = self.errors = 0
        self._folds = folds
        self._rows: list[Event] = []
        self._series: list[Series] = []
        self._series_rows = 0
        self._folded: dict[str, Event] = {}  # By member: the row to which further heartbeats are added.

    def add(self, event: Event) -> None:
        """Record an event."""
        if event.kind == "request":
            self.requests += event.count
            if event.error != 0:
                self.errors += is_failure(event.error, event.missing)
        if self._folds and event.member is not None:
            self._fold(event, event.member)
        else:
            self._rows.append(event)

    def add_heartbeats(self, first: Event, count: int, interval_ms: float, due_ms: float) -> None:
        """Record heartbeats at regular intervals that were sent on time and got the same response.

        Args:
            first: The event of the first heartbeat.
            count: Number of heartbeats.
            interval_ms: Time between two of them.
            due_ms: When the first one was due, in milliseconds since the Unix epoch.
        """
        if self._folds:
            until_us = to_us(due_ms + (count - 1) * interval_ms) if count > 1 else None
            self.add(first.with_folded(count, until_us, first.latency_us))
        else:
            self._add_series(Series(first, count, interval_ms, due_ms))

    def add_commits(
        self, first: Event, count: int, interval_ms: float, due_ms: float, offsets: Sequence[Growth]
    ) -> None:
        """Record commits at regular intervals that were sent on time and were accepted.

        Args:
            first: The event of the first commit, without offsets.
            count: Number of commits.
            interval_ms: Time between two of them.
            due_ms: When the first one was due, in milliseconds since the Unix epoch.
            offsets: How the committed offsets grow.
        """
        self._add_series(Series(first, count, interval_ms, due_ms, offsets))

    def _add_series(self, series: Series) -> None:
        self.requests += series.count
        self._series.append(series)
        self._series_rows += series.count

    def folding(self) -> list[Event]:
        """Return the rows to which later heartbeats could be added, as they are now."""
        return list(self._folded.values())

    @property
    def is_batch(self) -> bool:
        """Whether there are enough rows for a batch."""
        return len(self._rows) >= BATCH_ROWS or self._series_rows >= BATCH_ROWS

    def take(self, *, flush: bool = False) -> list[pa.RecordBatch]:
        """Remove the rows collected so far and return them as Arrow batches.

        Args:
            flush: Whether these are the last rows. If so, include rows to which later heartbeats could be added.
        """
        if flush:
            self._rows += self._folded.values()
            self._folded.clear()
        rows, self._rows = self._rows, []
        batches = [batch_of(rows[start : start + BATCH_ROWS]) for start in range(0, len(rows), BATCH_ROWS)]
        batches += map(_batch_of_series, self._take_series())
        return batches

    def _take_series(self) -> Iterator[list[Series]]:
        """Remove all series and yield them in parts, each for one batch."""
        series, self._series, self._series_rows = self._series, [], 0
        part: list[Series] = []
        rows = 0
        for each in series:
            part.append(each)
            rows += each.count
            if rows >= BATCH_ROWS:
                yield part
                part, rows = [], 0
        if part:
            yield part

    def _fold(self, event: Event, member: str) -> None:
        if event.error == 0 and (event.api == "Heartbeat" or _is_plain_heartbeat(event)):
            folded = self._folded.get(member)
            if folded is not None:
                if _is_foldable(folded, event):
                    self._folded[member] = _merged(folded, event)
                    return
                self._rows.append(folded)
            self._folded[member] = event
            return
        if event.transaction is None and (event.api != "OffsetCommit" or event.error != 0):
            folded = self._folded.pop(member, None)
            if folded is not None:
                self._rows.append(folded)
        self._rows.append(event)


def batch_of(rows: Sequence[Event]) -> pa.RecordBatch:
    """Return rows as an Arrow batch."""
    fields = zip(*rows, strict=True) if rows else [()] * len(SCHEMA)
    columns = [pa.array(column, field.type) for column, field in zip(fields, SCHEMA, strict=True)]
    return pa.record_batch(columns, schema=SCHEMA)


def _batch_of_series(series: list[Series]) -> pa.RecordBatch:
    firsts, counts, intervals_ms, dues_ms, offsets = zip(*series, strict=True)
    of_series, number = _repeated(counts)
    at_ms = np.array(dues_ms)[of_series] + number * np.array(intervals_ms)[of_series]
    at_us = pa.array(np.rint(at_ms * 1000).astype(np.int64))  # as `to_us` rounds
    batch = batch_of(firsts).take(pa.array(of_series))
    columns = dict(zip(SCHEMA.names, batch.columns, strict=True))
    columns |= {"scheduled_us": at_us, "sent_us": at_us, "offsets": _offsets_of(offsets, of_series, at_ms)}
    return pa.record_batch(list(columns.values()), schema=SCHEMA)


def _offsets_of(offsets: Sequence[Sequence[Growth] | None], of_series: _Numbers, at_ms: _Numbers) -> pa.Array:
    """Return the column of the committed offsets of series.

    Args:
        offsets: The offsets of each series.
        of_series: The index of each row's series.
        at_ms: When the request of each row was sent.
    """
    growths = list(chain.from_iterable(each or () for each in offsets))
    if not growths:
        return pa.nulls(len(of_series), SCHEMA.field("offsets").type)
    names, positions, since_ms, per_ms = zip(*growths, strict=True)
    sizes = np.array([len(each or ()) for each in offsets])
    first = np.cumsum(sizes) - sizes  # The index of each series' first partition in `growths`.
    of_row, number = _repeated(sizes[of_series])
    growth = first[of_series][of_row] + number
    grown = (at_ms[of_row] - np.array(since_ms)[growth]) * np.array(per_ms)[growth]
    values = np.array(positions)[growth] + grown.astype(np.int64)
    partitions = pa.array(names, pa.string()).take(pa.array(growth))
    ends = np.concatenate(([0], np.cumsum(sizes[of_series]))).astype(np.int32)
    is_null = pa.array(np.array([each is None for each in offsets])[of_series])
    structs = pa.StructArray.from_arrays([partitions, pa.array(values)], fields=list(OFFSET))
    return pa.ListArray.from_arrays(pa.array(ends), structs, mask=is_null)


def _repeated(counts: Sequence[int] | _Numbers) -> tuple[_Numbers, _Numbers]:
    """Repeat each index i `counts[i]` times, and number the copies: [2, 1] gives [0, 0, 1] and [0, 1, 0]."""
    index = np.repeat(np.arange(len(counts)), counts)
    first = np.cumsum(counts) - np.array(counts)
    return index, np.arange(len(index)) - first[index]


def _is_plain_heartbeat(event: Event) -> bool:
    """Return whether an event is a heartbeat of the consumer protocol that reports and changes nothing."""
    return (
        event.api == "ConsumerGroupHeartbeat"
        and event.epoch == event.generation
        and event.owned is None
        and event.assigned is None
    )


def _is_foldable(folded: Event, event: Event) -> bool:
    return (
        folded.api == event.api
        and folded.generation == event.generation
        and folded.member_id == event.member_id
        and folded.broker == event.broker
        and folded.version == event.version
    )


def _merged(folded: Event, event: Event) -> Event:
    assert folded.latency_us is not None
    assert event.latency_us is not None
    until_us = event.sent_us if event.until_us is None else event.until_us
    return folded.with_folded(folded.count + event.count, until_us, max(folded.latency_us, event.latency_us))
