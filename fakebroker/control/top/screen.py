"""`fakebroker top`: a cluster in a terminal, live; where there is no terminal, once. Knows the screen and the keys."""

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
from fakebroker.control.top.picture import CHOICES, Frame, picture
from fakebroker.errors import ConfigError

_SHORTEST_S, _LONGEST_S = 0.1, 3600.0


def watch(control: str, cluster: str, token: str | None = None, *, every_s: float = 1.0, once: bool = False) -> None:
    """Show a cluster until somebody has seen enough.

    Args:
        control: The URL of the control API.
        cluster: The cluster's name.
        token: What the API wants to be shown.
        every_s: How often to look, in seconds.
        once: Whether one look is enough; without a terminal, it always is.

    Raises:
        ConfigError: The URL is none, or `every_s` is too short or too long.
        FakebrokerError: There is no such API or cluster (any more); the terminal is then as it was before.
    """
    if not _SHORTEST_S <= every_s <= _LONGEST_S:
        raise ConfigError(f"every={every_s:g}: expected {_SHORTEST_S:g} to {_LONGEST_S:g} seconds")
    observer = Observer(Client(control if "://" in control else f"http://{control}", token, cluster))
    console = Console(highlight=False)
    if once or not (console.is_terminal and sys.stdin.isatty()) or console.is_dumb_terminal:
        console.print(picture(observer.look(), Frame(console.width)))
        return
    with contextlib.suppress(KeyboardInterrupt):
        _live(observer, every_s, console)


def _live(observer: Observer, every_s: float, console: Console) -> None:
    """Look, draw and do what keys say, until one says to end."""
    look = observer.look()  # Before the screen is taken: without a server nothing flickers.
    choice, is_paused, next_s = 0, False, time.monotonic() + every_s
    with _keys(), Live(console=console, screen=True, auto_refresh=False) as live:
        while True:
            frame = Frame(console.width, console.height, CHOICES[choice], _footer(every_s, CHOICES[choice], is_paused))
            live.update(picture(look, frame), refresh=True)
            match _key(every_s if is_paused else next_s - time.monotonic()):
                case "q" | "":
                    return
                case " ":
                    is_paused = not is_paused
                case "s":
                    choice = (choice + 1) % len(CHOICES)
                case None if not is_paused:
                    look, next_s = observer.look(), time.monotonic() + every_s


def _footer(every_s: float, choice: str, is_paused: bool) -> str:
    pace = "space go on (PAUSED)" if is_paused else f"space pause (every {every_s:g} s)"
    return f"q quit   {pace}   s groups: {choice}"


@contextlib.contextmanager
def _keys() -> Iterator[None]:
    """Have keys at once and without an echo; whatever ends this, the terminal is then as it was before."""
    before = termios.tcgetattr(sys.stdin)
    # By itself it would end the process where it stands.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    tty.setcbreak(sys.stdin)
    try:
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)


def _key(timeout_s: float) -> str | None:
    """The next key; None if none came in time, "" if none will ever come."""
    ready, _, _ = select.select([sys.stdin], [], [], max(timeout_s, 0.0))
    return os.read(sys.stdin.fileno(), 1).decode("latin-1") if ready else None
