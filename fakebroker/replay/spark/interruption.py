"""Ends a replay early: the members stop, and what they recorded is kept."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class Interruption:
    """A way to end early what another thread does.

    Attributes:
        requested: Whether it was ended early.
        why: The reason as a sentence; empty if the user requested it.
    """

    def __init__(self) -> None:
        self.requested = False
        self.why = ""
        self._end: Callable[[], None] | None = None
        self._lock = threading.Lock()

    def request(self, why: str = "") -> bool:
        """Request the end.

        Args:
            why: The reason as a sentence; empty if the user requests it.

        Returns:
            Whether anything was running.
        """
        with self._lock:
            if self._end is None:
                return False
            if not self.requested:
                self.requested, self.why = True, why
            self._end()
            return True

    @contextmanager
    def ends(self, end: Callable[[], None]) -> Iterator[None]:
        """Call `end` for requests within the context."""
        with self._lock:
            self._end = end
        try:
            yield
        finally:
            with self._lock:
                self._end = None
