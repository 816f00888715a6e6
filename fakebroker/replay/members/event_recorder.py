"""Collects events, folds uneventful heartbeats if wanted, and packs rows into Arrow batches."""

import pyarrow as pa

from fakebroker.replay.members.events import ORDINARY_ERRORS, SCHEMA, Event
from fakebroker.replay.members.request_events import to_us

BATCH_ROWS = 16_384


class EventRecorder:
    """Collects the events of members that are played together.

    Args:
        folds: Whether heartbeats without any event between two changes of a member become one row.

    Attributes:
        requests: How many requests there were.
        errors: Answers with an error outside of the ordinary ones, and requests without an answer.
    """

    def __init__(self, *, folds: bool = False) -> None:
        self.requests = self.errors = 0
        self._folds = folds
        self._rows: list[Event] = []
        self._folded: dict[str, Event] = {}  # By member: the heartbeats since its last change.

    def add(self, event: Event) -> None:
        """Record an event."""
        if event.kind == "request":
            self.requests += event.count
            self.errors += event.error not in ORDINARY_ERRORS
        if self._folds and event.member is not None:
            self._fold(event, event.member)
        else:
            self._rows.append(event)

    def add_heartbeats(self, first: Event, count: int, interval_ms: float, due_ms: float) -> None:
        """Record heartbeats that were sent on time, one per interval, and all answered alike.

        Args:
            first: The first of them.
            count: How many.
            interval_ms: Between two of them.
            due_ms: When the first one was due, in milliseconds since the Unix epoch.
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
            flush: At the end: include heartbeats that could still be folded with later ones.
        """
        if flush:
            self._rows += self._folded.values()
            self._folded.clear()
        rows, self._rows = self._rows, []
        return [_packed(rows[start : start + BATCH_ROWS]) for start in range(0, len(rows), BATCH_ROWS)]

    def _fold(self, event: Event, member: str) -> None:
        if event.api == "Heartbeat" and event.error == 0:
            folded = self._folded.get(member)
            if folded is not None:
                if _is_like(folded, event):
                    self._folded[member] = _joined(folded, event)
                    return
                self._rows.append(folded)
            self._folded[member] = event
            return
        if event.api != "OffsetCommit" or event.error != 0:
            folded = self._folded.pop(member, None)
            if folded is not None:
                self._rows.append(folded)
        self._rows.append(event)


def _packed(rows: list[Event]) -> pa.RecordBatch:
    columns = [pa.array(column, field.type) for column, field in zip(zip(*rows, strict=True), SCHEMA, strict=True)]
    return pa.record_batch(columns, schema=SCHEMA)


def _is_like(folded: Event, event: Event) -> bool:
    return (
        folded.generation == event.generation
        and folded.member_id == event.member_id
        and folded.broker == event.broker
        and folded.version == event.version
    )


def _joined(folded: Event, event: Event) -> Event:
    assert folded.latency_us is not None
    assert event.latency_us is not None
    return folded._replace(
        count=folded.count + event.count,
        until_us=event.sent_us if event.until_us is None else event.until_us,
        latency_us=max(folded.latency_us, event.latency_us),
    )
