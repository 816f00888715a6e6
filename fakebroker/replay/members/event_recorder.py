"""Collects events, optionally folds heartbeats, and converts rows to Arrow batches. Rows are not ordered by time."""

import pyarrow as pa

from fakebroker.replay.members.events import SCHEMA, Event
from fakebroker.replay.members.request_events import to_us
from fakebroker.replay.members.request_outcomes import is_failure

BATCH_ROWS = 16_384
"""The maximum number of rows in a batch."""


class EventRecorder:
    """Collects the events of the members of one task.

    Args:
        folds: Whether to fold heartbeats: successive successful heartbeats of a member become one row. The row ends
            before any other event of the member, except successful commits, and before a change of generation, member
            id, broker or version.

    Attributes:
        requests: Number of requests.
        errors: Number of failed requests: with an unexpected error, lost or unanswered.
    """

    def __init__(self, *, folds: bool = False) -> None:
        self.requests = self.errors = 0
        self._folds = folds
        self._rows: list[Event] = []
        self._folded: dict[str, Event] = {}  # By member: the row to which further heartbeats are added.

    def add(self, event: Event) -> None:
        """Record an event."""
        if event.kind == "request":
            self.requests += event.count
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
            due_ms: When the first one was due, in milliseconds since the Unix epoch. Not rounded to microseconds,
                unlike the event, so that rounding errors do not add up.
        """
        if self._folds:
            until_us = to_us(due_ms + (count - 1) * interval_ms) if count > 1 else None
            self.add(first._replace(count=count, until_us=until_us))
            return
        for number in range(count):
            at_us = to_us(due_ms + number * interval_ms)
            self.add(first._replace(scheduled_us=at_us, sent_us=at_us))

    @property
    def is_batch(self) -> bool:
        """Whether there are enough rows for a batch."""
        return len(self._rows) >= BATCH_ROWS

    def take(self, *, flush: bool = False) -> list[pa.RecordBatch]:
        """Remove the rows collected so far and return them as Arrow batches.

        Args:
            flush: Whether these are the last rows. If so, include rows to which later heartbeats could be added.
        """
        if flush:
            self._rows += self._folded.values()
            self._folded.clear()
        rows, self._rows = self._rows, []
        return [_batch_of(rows[start : start + BATCH_ROWS]) for start in range(0, len(rows), BATCH_ROWS)]

    def _fold(self, event: Event, member: str) -> None:
        if event.api == "Heartbeat" and event.error == 0:
            folded = self._folded.get(member)
            if folded is not None:
                if _is_foldable(folded, event):
                    self._folded[member] = _merged(folded, event)
                    return
                self._rows.append(folded)
            self._folded[member] = event
            return
        if event.api != "OffsetCommit" or event.error != 0:
            folded = self._folded.pop(member, None)
            if folded is not None:
                self._rows.append(folded)
        self._rows.append(event)


def _batch_of(rows: list[Event]) -> pa.RecordBatch:
    columns = [pa.array(column, field.type) for column, field in zip(zip(*rows, strict=True), SCHEMA, strict=True)]
    return pa.record_batch(columns, schema=SCHEMA)


def _is_foldable(folded: Event, event: Event) -> bool:
    return (
        folded.generation == event.generation
        and folded.member_id == event.member_id
        and folded.broker == event.broker
        and folded.version == event.version
    )


def _merged(folded: Event, event: Event) -> Event:
    assert folded.latency_us is not None
    assert event.latency_us is not None
    return folded._replace(
        count=folded.count + event.count,
        until_us=event.sent_us if event.until_us is None else event.until_us,
        latency_us=max(folded.latency_us, event.latency_us),
    )
