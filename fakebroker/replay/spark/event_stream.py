"""Passes events from the thread that records them to the one that returns them to Spark, while a task plays.

A run of hours holds no more than a few batches in memory. Does not depend on Spark.
"""

import threading
from collections.abc import Callable, Generator
from queue import SimpleQueue

import pyarrow as pa

from fakebroker.replay.members.event_recorder import EventRecorder
from fakebroker.replay.members.events import Event

STREAM_EVENTS = 4_096
"""Events per batch. Packing one takes milliseconds, in which no socket is read."""


class EventStream:
    """Records events in one thread, and yields batches in another.

    Args:
        folds: Whether heartbeats between two changes of a member become one row.
    """

    def __init__(self, *, folds: bool = False) -> None:
        self._recorder = EventRecorder(folds=folds)
        self._events = 0
        self._packed: SimpleQueue[pa.RecordBatch | None] = SimpleQueue()
        pa.array([""])  # its first use imports pandas if installed, which would delay members by half a second

    def add(self, event: Event) -> None:
        """Record an event."""
        self._recorder.add(event)
        self._events += 1
        if self._events == STREAM_EVENTS:
            self._events = 0
            self._hand_over()

    def during(self, play: Callable[[], None], stop: Callable[[], None]) -> Generator[pa.RecordBatch, None, None]:
        """Run `play` in a thread of its own, and yield batches as they fill.

        Args:
            play: Records events until it returns.
            stop: Ends `play` early; called if the generator is closed.

        Raises:
            BaseException: What `play` raised, after all batches.
        """
        raised: list[BaseException] = []

        def run() -> None:
            try:
                play()
            except BaseException as error:  # raised again in the thread that takes the batches
                raised.append(error)
            finally:
                self._hand_over(flush=True)
                self._packed.put(None)

        player = threading.Thread(target=run, name="members")
        player.start()
        try:
            while (batch := self._packed.get()) is not None:
                yield batch
        finally:
            stop()
            player.join()
        if raised:
            raise raised[0]

    def _hand_over(self, *, flush: bool = False) -> None:
        for batch in self._recorder.take(flush=flush):
            self._packed.put(batch)
