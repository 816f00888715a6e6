"""`fakebroker top`: screen and keys of the live view; prints one snapshot if there is no terminal."""

import contextlib
import os
import select
import signal
import sys
import termios
import time
import tty
from collections.abc import Iterator

from rich.console import Console
from rich.live import Live

from fakebroker.control.client.client import Client
from fakebroker.control.top.observer import Observer
from fakebroker.control.top.rendering import CHOICES, Frame, render
from fakebroker.errors import ConfigError

_MIN_INTERVAL_S, _MAX_INTERVAL_S = 0.1, 3600.0


def watch(control: str, cluster: str, token: str | None = None, *, every_s: float = 1.0, once: bool = False) -> None:
    """Show a cluster until the user quits.

    Args:
        control: The URL of the control API.
        cluster: The cluster's name.
        token: Bearer token of the API.
        every_s: The refresh interval, in seconds.
        once: Print one snapshot and return; the default without a terminal.

    Raises:
        ConfigError: The URL is invalid, or `every_s` is out of range.
        FakebrokerError: The API does not respond, or the cluster does not exist. The terminal is restored.
    """
    if not _MIN_INTERVAL_S <= every_s <= _MAX_INTERVAL_S:
        raise ConfigError(f"every={every_s:g}: expected {_MIN_INTERVAL_S:g} to {_MAX_INTERVAL_S:g} seconds")
    observer = Observer(Client(control if "://" in control else f"http://{control}", token, cluster))
    console = Console(highlight=False)
    if once or not (console.is_terminal and sys.stdin.isatty()) or console.is_dumb_terminal:
        console.print(render(observer.fetch(), Frame(console.width)))
        return
    with _signals() as received, contextlib.suppress(_Signaled):
        _live(observer, every_s, console, received)
    if signal.SIGTERM in received:
        sys.exit(128 + signal.SIGTERM)


class _Signaled(BaseException):
    """SIGINT or SIGTERM was received."""


@contextlib.contextmanager
def _signals() -> Iterator[list[int]]:
    """Raise `_Signaled` for SIGINT and SIGTERM; yields the signals that were received.

    They are also recorded, because Python discards an exception that is raised while a finalizer runs.
    """
    received: list[int] = []

    def receive(number: int, _: object) -> None:
        received.append(number)
        raise _Signaled

    before = {number: signal.signal(number, receive) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _live(observer: Observer, every_s: float, console: Console, received: list[int]) -> None:
    """Refresh and handle keys until the user quits or a signal is received."""
    state = observer.fetch()  # Before switching screens, so that an error appears on the normal screen.
    choice, is_paused, next_s = 0, False, time.monotonic() + every_s
    with _keys(), Live(console=console, screen=True, auto_refresh=False) as live:
        while not received:
            frame = Frame(console.width, console.height, CHOICES[choice], _footer(every_s, CHOICES[choice], is_paused))
            live.update(render(state, frame), refresh=True)
            match _key(every_s if is_paused else next_s - time.monotonic()):
                case "q" | "":
                    return
                case " ":
                    is_paused = not is_paused
                case "s":
                    choice = (choice + 1) % len(CHOICES)
                case None if not is_paused:
                    state, next_s = observer.fetch(), time.monotonic() + every_s


def _footer(every_s: float, choice: str, is_paused: bool) -> str:
    pause = "space resume (PAUSED)" if is_paused else f"space pause (every {every_s:g} s)"
    return f"q quit   {pause}   s groups: {choice}"


@contextlib.contextmanager
def _keys() -> Iterator[None]:
    """Read keys unbuffered and without echo; restores the terminal on exit."""
    before = termios.tcgetattr(sys.stdin)
    tty.setcbreak(sys.stdin)
    try:
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)


def _key(timeout_s: float) -> str | None:
    """Return the next key; None after the timeout, "" at the end of the input."""
    ready, _, _ = select.select([sys.stdin], [], [], max(timeout_s, 0.0))
    return os.read(sys.stdin.fileno(), 1).decode("latin-1") if ready else None
