"""Times from requests until their responses are sent, measured by the reactor while statistics need them."""

from collections import defaultdict

from fakebroker.server.connections.connection import UnsentResponse


class ResponseTimes:
    """The wire times of the responses since the last `take`; measured only while it is on.

    The wire time of a response is the real time from when its request was read, or taken from the connection's queue,
    until the operating system accepted the last byte of the response. Kafka's TotalTimeMs is similar. It includes
    waiting for other requests that became readable at the same time, the time until the response was known, injected
    latency of the network, and waiting for a client that does not read.

    Attributes:
        is_on: Whether times are measured.
    """

    __slots__ = ("_taken", "is_on")

    def __init__(self) -> None:
        self.is_on = False
        self._taken: defaultdict[str, list[float]] = defaultdict(list)

    def start(self) -> None:
        """Measure from now on."""
        self.is_on = True

    def stop(self) -> None:
        """Measure no longer."""
        self.is_on = False
        self._taken.clear()

    def take(self) -> dict[str, list[float]]:
        """Remove and return the measured times by the name of the API, in milliseconds."""
        taken, self._taken = self._taken, defaultdict(list)
        return taken

    def record(self, waiting: list[UnsentResponse], size_bytes: int, now_ms: float) -> None:
        """Record and remove the responses of a connection that are complete after more bytes were sent.

        Args:
            waiting: The unsent responses of the connection.
            size_bytes: The number of bytes that the socket has accepted.
            now_ms: The real time.
        """
        if len(waiting) == 1 and waiting[0][2] <= size_bytes:  # The usual case, made fast.
            api, read_ms, _ = waiting.pop()
            if self.is_on:
                self._taken[api].append(now_ms - read_ms)
            return
        complete = 0
        for api, read_ms, unsent_bytes in waiting:
            if unsent_bytes > size_bytes:
                waiting[complete] = api, read_ms, unsent_bytes - size_bytes
                break
            size_bytes -= unsent_bytes
            complete += 1
            if self.is_on:
                self._taken[api].append(now_ms - read_ms)
        del waiting[:complete]
