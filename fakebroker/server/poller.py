"""Readiness of many sockets: epoll on Linux, the default of `selectors` elsewhere, such as kqueue on macOS."""

import select
import selectors
from typing import Protocol

READ, WRITE = 1, 4
"""Readiness flags, with the numbers of EPOLLIN and EPOLLOUT."""


class Poller(Protocol):
    """Watches many sockets; the interface of `select.epoll`, as far as it is used.

    Sockets are identified by file descriptor. `interest` is a combination of readiness flags; 0 watches for none.
    """

    def fileno(self) -> int:
        """Return a file descriptor that is readable while any of the sockets is ready."""
        ...

    def register(self, fd: int, interest: int) -> None: ...

    def modify(self, fd: int, interest: int) -> None: ...

    def unregister(self, fd: int) -> None: ...

    def poll(self, timeout: float, max_events: int) -> list[tuple[int, int]]:
        """Wait until a socket is ready.

        Args:
            timeout: Maximum wait in seconds; 0 does not wait.
            max_events: Maximum number of results.

        Returns:
            File descriptor and readiness flags of each ready socket.
        """
        ...

    def close(self) -> None: ...


class SelectorPoller:
    """A poller that uses `selectors`, for systems without epoll."""

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
    """Return the fastest poller of this system."""
    return select.epoll() if hasattr(select, "epoll") else SelectorPoller()
