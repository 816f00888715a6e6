"""One end of the link between the two processes: bytes, sent and received as soon as possible. Independent of frames.

A trio stream yields to other tasks after each operation. In the brokers' process a turn of all tasks takes long under
load, and several of them per request would dominate its latency.
"""

import socket

import trio

_READ_BYTES = 2**16


class Link:
    """One end of the link.

    Args:
        end: Its socket, closed on leaving the context.
    """

    def __init__(self, end: socket.socket) -> None:
        end.setblocking(False)
        self._end = end
        self._unsent = bytearray()
        self._is_left_over = trio.Event()
        self._lock = trio.Lock()

    def __enter__(self) -> "Link":
        return self

    def __exit__(self, *_: object) -> None:
        self._end.close()

    async def receive(self) -> bytes:
        """Return the bytes received, once there are some; empty when the other end is closed."""
        while True:
            await trio.lowlevel.wait_readable(self._end)
            try:
                return self._end.recv(_READ_BYTES)
            except BlockingIOError:
                continue
            except OSError:  # closed with unread data
                return b""

    def put(self, data: bytes) -> None:
        """Send data, as much as possible immediately, the rest by `keep_sending` or `drain`."""
        self._unsent += data
        self._send()
        if self._unsent:
            self._is_left_over.set()

    async def keep_sending(self) -> None:
        """Send the data that `put` could not send, until canceled."""
        while True:
            await self._is_left_over.wait()
            self._is_left_over = trio.Event()
            await self.drain()

    async def drain(self) -> None:
        """Wait until all data is sent. Does not yield if there is none."""
        while self._unsent:
            async with self._lock:
                if self._unsent:
                    await trio.lowlevel.wait_writable(self._end)
                    self._send()

    def _send(self) -> None:
        try:
            del self._unsent[: self._end.send(self._unsent)]
        except BlockingIOError:
            pass
        except OSError:  # the receiver notices that the other end is closed
            self._unsent.clear()
