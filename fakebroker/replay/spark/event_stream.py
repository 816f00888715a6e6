"""Passes events, in batches, from the thread of the members to the thread that writes them.

Because events are written while the members play, long replays need little memory. Does not depend on Spark.
"""

import threading
import time
from collections.abc import Callable, Generator
from queue import SimpleQueue
from typing import NamedTuple

import pyarrow as pa

from fakebroker.replay.members.event_recorder import EventRecorder
from fakebroker.replay.members.events import Event

STREAM_EVENTS = 4_096
"""Events per batch. Converting a batch takes milliseconds, during which the members' thread reads no sockets."""

_PART_EVERY_S = 1.0
"""Shortest time between two parts, in real time. Members report at least once a second, so a part ends within two."""


class Recorded(NamedTuple):
    """Rows on their way to the files.

    Attributes:
        batches: Rows.
        open_rows: At the end of a part, the rows that may still change, as they are; else None.
    """

    batches: list[pa.RecordBatch]
    open_rows: list[Event] | None = None


class EventStream:
    """Records events in one thread, and yields batches in another.

    Args:
        folds: Whether to fold heartbeats; see `EventRecorder`.
    """

    def __init__(self, *, folds: bool = False) -> None:
        self._recorder = EventRecorder(folds=folds)
        self._events = 0  # Since the last batch.
        self._part_s = time.monotonic()  # When the last part ended.
        self._recorded: SimpleQueue[Recorded | None] = SimpleQueue()  # None is the end.
        pa.array([""])  # The first call imports pandas; later it would delay members by half a second.

    def add(self, event: Event) -> None:
        """Record an event."""
        self._recorder.add(event)
        self._events += 1
        if self._events == STREAM_EVENTS:
            self._events = 0
            self._recorded.put(Recorded(self._recorder.take()))

    def end_part(self, pending: Callable[[], list[Event]]) -> None:
        """Pass on all rows, unless this was done less than a second ago. Called in the thread that calls `add`.

        Args:
            pending: Returns rows about the requests that are pending.
        """
        now_s = time.monotonic()
        if now_s - self._part_s >= _PART_EVERY_S:
            self._part_s, self._events = now_s, 0
            self._recorded.put(Recorded(self._recorder.take(), [*self._recorder.folding(), *pending()]))

    def during(self, play: Callable[[], None], stop: Callable[[], None]) -> Generator[Recorded, None, None]:
        """Run `play` in another thread, and yield its events: full batches and parts at once, the rest at the end.

        Args:
            play: Plays the members, and calls `add` for each event.
            stop: Makes `play` return early. Called when the generator is closed, and also after `play` has returned.

        Raises:
            BaseException: The exception of `play`, after all batches.
        """
        raised: list[BaseException] = []

        def run() -> None:
            try:
                play()
            except BaseException as error:  # raised again in the thread of the generator
                raised.append(error)
            finally:
                self._recorded.put(Recorded(self._recorder.take(flush=True)))
                self._recorded.put(None)

        player = threading.Thread(target=run, name="members")
        player.start()
        try:
            while (recorded := self._recorded.get()) is not None:
                yield recorded
        finally:
            stop()
            player.join()
        if raised:
            raise raised[0]
