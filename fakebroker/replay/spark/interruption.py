"""Interruption of a replay: the members stop, the events recorded so far are kept, and the process ends soon."""

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from contextlib import contextmanager, suppress
from math import inf
from types import FrameType, TracebackType
from typing import Self, TypeVar

from fakebroker.replay.options import INTERRUPTED

T = TypeVar("T")

REPORT_LIMIT_S = 6.0
"""How long an interrupted replay may take to stop its members and to compute the report."""

_END_LIMIT_S = 10.0
"""How long the process may take to end after the first Ctrl-C."""

_QUIT_LIMIT_S = 1.0
"""How long it may take to end after another Ctrl-C."""

_SIGNAL_CHECK_S = 0.2
_SHOW_CURSOR = "\x1b[?25h"

_at_quit: list[Callable[[], object]] = []


def wait_for_result(future: Future[T], limit_s: float = inf) -> T:
    """Return the result of a future, or raise its exception, in the main thread. Ctrl-C raises `KeyboardInterrupt`.

    The system may deliver the signal to another thread. Then Python's handler runs when the main thread next wakes up.

    Args:
        future: The future.
        limit_s: How long to wait, in seconds.

    Raises:
        TimeoutError: There is no result in time.
    """
    until_s = time.monotonic() + limit_s
    while not wait([future], _SIGNAL_CHECK_S).done:
        if time.monotonic() > until_s:
            raise TimeoutError
    return future.result()


@contextmanager
def at_quit(clean_up: Callable[[], object]) -> Iterator[None]:
    """Call a function if `PromptEnd` quits within the context. Functions of inner contexts are called first."""
    _at_quit.append(clean_up)
    try:
        yield
    finally:
        _at_quit.remove(clean_up)


class PromptEnd:
    """A context in which the process ends soon after Ctrl-C or SIGTERM, even if something does not return.

    The signals raise `KeyboardInterrupt` in the main thread, as usual. If the context does not end within 10 s, or 1 s
    after a second signal, another thread cleans up (see `at_quit`) and ends the process. The processes that it has
    started end when their standard input does.
    """

    def __init__(self) -> None:
        self._end_s = inf
        self._is_interrupted = False
        self._is_over = threading.Event()
        # The thread is started before the signal: a handler must not start one.
        self._watcher = threading.Thread(target=self._watch, name="replay end", daemon=True)
        self._previous = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def __enter__(self) -> Self:
        self._watcher.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._is_over.set()
        self._watcher.join()
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def handle_signals(self) -> None:
        """Limit the time from now on. Not called before: Trio only works with Python's own handler of Ctrl-C."""
        for number in self._previous:
            signal.signal(number, self._interrupt)

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        limit_s = _QUIT_LIMIT_S if self._is_interrupted else _END_LIMIT_S
        self._is_interrupted = True
        self._end_s = min(self._end_s, time.monotonic() + limit_s)
        raise KeyboardInterrupt

    def _watch(self) -> None:
        while not self._is_over.wait(_SIGNAL_CHECK_S):
            if time.monotonic() > self._end_s:
                quit_now()


def quit_now() -> None:
    """Clean up, and end the process as interrupted, whatever its threads do."""
    for clean_up in reversed(_at_quit):
        with suppress(Exception):
            clean_up()
    with suppress(OSError, ValueError):
        if sys.stdout.isatty():
            print(_SHOW_CURSOR, end="")
        sys.stdout.flush()
        print("fakebroker: interrupted", file=sys.stderr, flush=True)
    os._exit(INTERRUPTED)


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
