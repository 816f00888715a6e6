"""One end of the link between the two processes: bytes, taken and given as soon as they can be. Knows no frames.

A stream of trio's lets all other tasks have a turn after every piece. A turn of the brokers is long when they have much
to do, and more than one of them for every question would be most of what an answer takes.
"""

import socket

import trio

_READ_BYTES = 2**16


class Link:
    """One end.

    Args:
        end: Its socket; who enters this closes it at the end.
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
        """What has come, once there is something; nothing when the other end is closed."""
        while True:
            await trio.lowlevel.wait_readable(self._end)
            try:
                return self._end.recv(_READ_BYTES)
            except BlockingIOError:
                continue
            except OSError:  # It was closed with something unread.
                return b""

    def put(self, data: bytes) -> None:
        """Send something: at once as far as there is room, the rest by `keep_sending` or `drain`."""
        self._unsent += data
        self._send()
        if self._unsent:
            self._is_left_over.set()

    async def keep_sending(self) -> None:
        """Send whatever `put` leaves over, until this is canceled."""
        while True:
            await self._is_left_over.wait()
            self._is_left_over = trio.Event()
            await self.drain()

    async def drain(self) -> None:
        """Wait until all is sent; nothing to wait for is no turn for others."""
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
        except OSError:  # Who receives hears that the other end is closed.
            self._unsent.clear()
