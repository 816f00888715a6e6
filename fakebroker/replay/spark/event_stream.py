"""Passes events, in batches, from the thread of the members to the thread that returns them to Spark.

Because events are returned while the members play, long replays need little memory. Does not depend on Spark.
"""

import threading
from collections.abc import Callable, Generator
from queue import SimpleQueue

import pyarrow as pa

from fakebroker.replay.members.event_recorder import EventRecorder
from fakebroker.replay.members.events import Event

STREAM_EVENTS = 4_096
"""Events per batch. Converting a batch takes milliseconds, during which the members' thread reads no sockets."""


class EventStream:
    """Records events in one thread, and yields batches in another.

    Args:
        folds: Whether to fold heartbeats; see `EventRecorder`.
    """

    def __init__(self, *, folds: bool = False) -> None:
        self._recorder = EventRecorder(folds=folds)
        self._events = 0  # Since the last batch.
        self._batches: SimpleQueue[pa.RecordBatch | None] = SimpleQueue()  # None is the end.
        pa.array([""])  # The first call imports pandas; later it would delay members by half a second.

    def add(self, event: Event) -> None:
        """Record an event."""
        self._recorder.add(event)
        self._events += 1
        if self._events == STREAM_EVENTS:
            self._events = 0
            self._hand_over()

    def during(self, play: Callable[[], None], stop: Callable[[], None]) -> Generator[pa.RecordBatch, None, None]:
        """Run `play` in another thread, and yield its events in batches: full ones at once, the rest at the end.

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
                self._hand_over(flush=True)
                self._batches.put(None)

        player = threading.Thread(target=run, name="members")
        player.start()
        try:
            while (batch := self._batches.get()) is not None:
                yield batch
        finally:
            stop()
            player.join()
        if raised:
            raise raised[0]

    def _hand_over(self, *, flush: bool = False) -> None:
        for batch in self._recorder.take(flush=flush):
            self._batches.put(batch)
