"""Events on their way out of a task while it plays: packed by the thread that records, taken by the one that hands on.

Knows nothing of Spark. A run that takes hours holds no more than a few batches.
"""

import threading
from collections.abc import Callable, Generator
from queue import SimpleQueue

import pyarrow as pa

from fakebroker.replay.members.events import Event
from fakebroker.replay.simulation.rows import Rows

STREAM_EVENTS = 4_096
"""How many go into a batch; packing one takes milliseconds, in which no socket is looked at."""


class EventStream:
    """What one thread records, for another one to take.

    Args:
        folds: Whether heartbeats between two changes of a member become one row.
    """

    def __init__(self, *, folds: bool = False) -> None:
        self._rows = Rows(folds=folds)
        self._events = 0
        self._packed: SimpleQueue[pa.RecordBatch | None] = SimpleQueue()
        pa.array([""])  # its first use loads pandas if that is there, which would hold up members for half a second

    def add(self, event: Event) -> None:
        """Record an event."""
        self._rows.add(event)
        self._events += 1
        if self._events == STREAM_EVENTS:
            self._events = 0
            self._hand_over()

    def during(self, play: Callable[[], None], stop: Callable[[], None]) -> Generator[pa.RecordBatch, None, None]:
        """The batches of a play in a thread of its own, as they fill.

        Args:
            play: Records until it is over.
            stop: Ends the play early, if nobody wants more batches.

        Raises:
            BaseException: What `play` raised, after all that was recorded.
        """
        raised: list[BaseException] = []

        def run() -> None:
            try:
                play()
            except BaseException as error:  # raised again in the thread that takes the batches
                raised.append(error)
            finally:
                self._hand_over(all_of_it=True)
                self._packed.put(None)

        player = threading.Thread(target=run, name="swarm")
        player.start()
        try:
            while (batch := self._packed.get()) is not None:
                yield batch
        finally:
            stop()
            player.join()
        if raised:
            raise raised[0]

    def _hand_over(self, *, all_of_it: bool = False) -> None:
        for batch in self._rows.take(all_of_it=all_of_it):
            self._packed.put(batch)
