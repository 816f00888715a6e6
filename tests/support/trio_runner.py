"""Decorators that run an async test in its own trio run, in virtual or in real time."""

import functools
from collections.abc import Awaitable, Callable
from typing import Any

import trio
import trio.testing

AsyncTest = Callable[..., Awaitable[None]]


def in_trio(test: AsyncTest) -> Callable[..., None]:
    """Run a test with a clock that jumps to the next deadline when all tasks wait. Not for tests that use sockets."""
    return _run_with_clock(test, lambda: trio.testing.MockClock(autojump_threshold=0))


def in_trio_with_own_sockets(test: AsyncTest) -> Callable[..., None]:
    """Run a test with a clock that jumps, for sockets whose both ends are in its loop, or that nobody answers.

    Such sockets are ready at once, so that nothing happens for 20 ms only if all tasks wait for time. On a busy
    machine, timeouts of some milliseconds could pass in real time before a connection is made.
    """
    return _run_with_clock(test, lambda: trio.testing.MockClock(autojump_threshold=0.02))


def in_trio_with_sockets(test: AsyncTest) -> Callable[..., None]:
    """Run a test in real time. A clock that jumps would not wait for data on sockets."""
    return _run_with_clock(test, lambda: None)


def _run_with_clock(test: AsyncTest, new_clock: Callable[[], trio.abc.Clock | None]) -> Callable[..., None]:
    @functools.wraps(test)
    def run(**parameters: Any) -> None:
        trio.run(functools.partial(test, **parameters), clock=new_clock())

    return run
