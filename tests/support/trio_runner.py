"""Async tests as plain ones: each runs in its own trio."""

import functools
from collections.abc import Awaitable, Callable
from typing import Any

import trio
import trio.testing

AsyncTest = Callable[..., Awaitable[None]]

_PATIENCE_S = 5.0
"""So long nothing happens only if something broken makes a test wait."""


def in_trio(test: AsyncTest) -> Callable[..., None]:
    """Run an async test on a clock that jumps to the next deadline as soon as all tasks wait. Not for sockets."""
    return _plain(test, lambda: trio.testing.MockClock(autojump_threshold=0))


def in_trio_with_sockets(test: AsyncTest) -> Callable[..., None]:
    """Run an async test on the clock of the machine: to the clock that jumps, waiting for a socket is just waiting."""
    return _plain(test, lambda: None)


def in_trio_on_own_time(test: AsyncTest) -> Callable[..., None]:
    """Run an async test, sockets or not, on a clock that stands until it is moved, or until the test hangs."""
    return _plain(test, lambda: trio.testing.MockClock(autojump_threshold=_PATIENCE_S))


def _plain(test: AsyncTest, new_clock: Callable[[], trio.abc.Clock | None]) -> Callable[..., None]:
    @functools.wraps(test)
    def run(**parameters: Any) -> None:
        trio.run(functools.partial(test, **parameters), clock=new_clock())

    return run
