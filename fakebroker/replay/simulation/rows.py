"""The events of a simulation on their way into Arrow: counted, folded if that is wanted, handed over in batches.

Knows nothing of where events come from.
"""

import pyarrow as pa

from fakebroker.replay.members.events import BATCH_ROWS, ORDINARY_ERRORS, Event, Recorder
from fakebroker.replay.members.exchange import to_us


class Rows:
    """Takes events.

    Args:
        folds: Whether heartbeats without any event between two changes of a member become one row.

    Attributes:
        requests: How many there were.
        errors: Answers with an error outside of the ordinary ones, and requests without an answer.
    """

    def __init__(self, *, folds: bool) -> None:
        self.requests = self.errors = 0
        self._folds = folds
        self._rows: list[Event] = []
        self._runs: dict[str, Event] = {}  # By member: the heartbeats since its last change.

    def add(self, event: Event) -> None:
        """Take an event."""
        if event.kind == "request":
            self.requests += event.count
            self.errors += event.error not in ORDINARY_ERRORS
        if self._folds and event.member is not None:
            self._fold(event, event.member)
        else:
            self._rows.append(event)

    def add_heartbeats(self, first: Event, count: int, interval_ms: float, due_ms: float) -> None:
        """Take heartbeats that were sent on time, one an interval, and all answered alike.

        Args:
            first: The first of them.
            count: How many.
            interval_ms: Between two.
            due_ms: When the first one was due.
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
        """Whether there is enough for a batch."""
        return len(self._rows) >= BATCH_ROWS

    def take(self, *, all_of_it: bool = False) -> list[pa.RecordBatch]:
        """What there is, as Arrow batches; at the end also the heartbeats that more might still have come to."""
        if all_of_it:
            self._rows += self._runs.values()
            self._runs.clear()
        recorder = Recorder()
        for event in self._rows:
            recorder.add(event)
        self._rows.clear()
        return recorder.batches()

    def _fold(self, event: Event, member: str) -> None:
        if event.api == "Heartbeat" and event.error == 0:
            run = self._runs.get(member)
            if run is not None:
                if _is_like(run, event):
                    self._runs[member] = _joined(run, event)
                    return
                self._rows.append(run)
            self._runs[member] = event
            return
        if event.api != "OffsetCommit" or event.error != 0:
            run = self._runs.pop(member, None)
            if run is not None:
                self._rows.append(run)
        self._rows.append(event)


def _is_like(run: Event, event: Event) -> bool:
    return (
        run.generation == event.generation
        and run.member_id == event.member_id
        and run.broker == event.broker
        and run.version == event.version
    )


def _joined(run: Event, event: Event) -> Event:
    assert run.latency_us is not None
    assert event.latency_us is not None
    return run._replace(
        count=run.count + event.count,
        until_us=event.sent_us if event.until_us is None else event.until_us,
        latency_us=max(run.latency_us, event.latency_us),
    )
