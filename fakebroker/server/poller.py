"""Readiness of many sockets: epoll where available, else the best of `selectors` (kqueue)."""

import select
import selectors
from typing import Protocol

READ, WRITE = 1, 4
"""Readiness flags; the numbers are those of EPOLLIN and EPOLLOUT."""


class Poller(Protocol):
    """The readiness of many sockets behind one file descriptor, which is readable when any of them is ready."""

    def fileno(self) -> int: ...

    def register(self, fd: int, interest: int) -> None: ...

    def modify(self, fd: int, interest: int) -> None: ...

    def unregister(self, fd: int) -> None: ...

    def poll(self, timeout: float, max_events: int) -> list[tuple[int, int]]:
        """Return ready sockets as (file descriptor, readiness flags); do not wait if the timeout is 0 seconds."""
        ...

    def close(self) -> None: ...


class SelectorPoller:
    """A poller over `selectors`, for systems without epoll."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()

    def fileno(self) -> int:
        return self._selector.fileno()

    def register(self, fd: int, interest: int) -> None:
        self._selector.register(fd, _events(interest))

    def modify(self, fd: int, interest: int) -> None:
        self.unregister(fd)
        if interest:
            self.register(fd, interest)

    def unregister(self, fd: int) -> None:
        if fd in self._selector.get_map():
            self._selector.unregister(fd)

    def poll(self, timeout: float, max_events: int) -> list[tuple[int, int]]:
        ready = self._selector.select(timeout)[:max_events]
        return [(key.fd, (READ if events & 1 else 0) | (WRITE if events & 2 else 0)) for key, events in ready]

    def close(self) -> None:
        self._selector.close()


def _events(interest: int) -> int:
    read = selectors.EVENT_READ if interest & READ else 0
    return read | (selectors.EVENT_WRITE if interest & WRITE else 0)


def best_poller() -> Poller:
    """Return the fastest poller that this system has."""
    return select.epoll() if hasattr(select, "epoll") else SelectorPoller()
