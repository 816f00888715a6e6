"""Waiting in the running event loop of trio or asyncio.

Functions import asyncio when they need it, because a cluster without tasks of asyncio does not need it.
"""

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import trio

if TYPE_CHECKING:
    import asyncio

T = TypeVar("T")


def is_trio_task() -> bool:
    """Whether the caller is a task of trio. Otherwise it must be a task of asyncio."""
    return trio.lowlevel.in_trio_task()


class LoopEvent:
    """An event for tasks of the event loop in which it was created; any thread can set it."""

    def __init__(self) -> None:
        self._set: Callable[[], object]
        self._event: "trio.Event | asyncio.Event"  # noqa: UP037  asyncio may not be imported
        if is_trio_task():
            self._event = trio.Event()
            self._set = partial(trio.lowlevel.current_trio_token().run_sync_soon, self._event.set)
        else:
            import asyncio

            self._event = asyncio.Event()
            self._set = partial(asyncio.get_running_loop().call_soon_threadsafe, self._event.set)

    def set(self) -> None:
        """Set the event. Has no effect if the event loop has ended."""
        with suppress(RuntimeError):  # trio.RunFinishedError is one.
            self._set()

    async def wait(self, timeout_s: float | None = None) -> None:
        """Wait until the event is set, or until the timeout."""
        if isinstance(self._event, trio.Event):
            with trio.move_on_after(float("inf") if timeout_s is None else timeout_s):
                await self._event.wait()
        else:
            import asyncio

            with suppress(TimeoutError):
                async with asyncio.timeout(timeout_s):
                    await self._event.wait()


async def checkpoint() -> None:
    """Let other tasks run, and allow cancellation."""
    if is_trio_task():
        await trio.lowlevel.checkpoint()
    else:
        import asyncio

        await asyncio.sleep(0)


async def run_in_thread(function: Callable[[], T]) -> T:
    """Run a blocking function in a worker thread. Returns when the function has ended, also if the task is canceled."""
    if is_trio_task():
        with trio.CancelScope(shield=True):
            return await trio.to_thread.run_sync(function)
        raise AssertionError("a shielded scope is not canceled")
    import asyncio

    running = asyncio.get_running_loop().run_in_executor(None, function)
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        await asyncio.wait([running])
        raise
