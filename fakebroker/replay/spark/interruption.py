"""Interruption of a replay: the members stop, and the events recorded so far are kept."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from contextlib import contextmanager
from typing import TypeVar

T = TypeVar("T")

_SIGNAL_CHECK_S = 0.2


def wait_for_result(future: Future[T]) -> T:
    """Return the result of a future, or raise its exception, in the main thread. Ctrl-C raises `KeyboardInterrupt`.

    The system may deliver the signal to another thread. Then Python's handler runs when the main thread next wakes up.
    """
    while not wait([future], _SIGNAL_CHECK_S).done:
        pass
    return future.result()


class Interruption:
    """Ends work of another thread early. Thread-safe.

    Attributes:
        requested: Whether running work was interrupted.
        why: The reason as a sentence; empty if the user requested it.
    """

    def __init__(self) -> None:
        self.requested = False
        self.why = ""
        self._end: Callable[[], None] | None = None
        self._lock = threading.Lock()

    def request(self, why: str = "") -> bool:
        """Interrupt the running work. Only the first reason is kept.

        Args:
            why: The reason as a sentence; empty if the user requests it.

        Returns:
            Whether work was running.
        """
        with self._lock:
            if self._end is None:
                return False
            if not self.requested:
                self.requested, self.why = True, why
            self._end()
            return True

    @contextmanager
    def running(self, end: Callable[[], None]) -> Iterator[None]:
        """The body of the `with` is the running work. `request` calls `end`, which stops it and must not block.

        A context may be entered within another one, for a part of the work that ends in its own way; if the work was
        interrupted before, `end` is called on entering. When the inner context ends, no work is running.
        """
        with self._lock:
            self._end = end
            if self.requested:
                end()
        try:
            yield
        finally:
            with self._lock:
                self._end = None
