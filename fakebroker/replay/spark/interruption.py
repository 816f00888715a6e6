"""An end in the middle of a replay: the members stop, and what they recorded is kept. Knows no signals and no disks."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class Interruption:
    """A way to end what another thread does, while it does it.

    Attributes:
        requested: Whether it was ended early.
        why: In a sentence, unless the user wanted it.
    """

    def __init__(self) -> None:
        self.requested = False
        self.why = ""
        self._end: Callable[[], None] | None = None
        self._lock = threading.Lock()

    def request(self, why: str = "") -> bool:
        """End it.

        Args:
            why: In a sentence, unless the user wants it.

        Returns:
            Whether there was anything to end.
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
        """While this lasts, `end` ends it."""
        with self._lock:
            self._end = end
        try:
            yield
        finally:
            with self._lock:
                self._end = None
