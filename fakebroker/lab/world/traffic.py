"""Counts messages and their bytes by kind and by second, and requests by broker and second."""

from collections import defaultdict
from dataclasses import dataclass
from itertools import accumulate
from math import ceil

from fakebroker.client.versions import versions_of
from fakebroker.protocol.codec import encode
from fakebroker.protocol.registry import APIS
from fakebroker.protocol.schema import Message

_HEADER_BYTES = 4 + 2 + 2 + 4 + 2
"""Size, API key, version, correlation id and the length of the client id in a frame; a response has less."""

_SHORT_HEADER_BYTES = 4 + 2
"""Size and API key: the header of messages that have a version and a correlation id as fields of their own."""

_versions: dict[type[Message], int] = {}


@dataclass(slots=True)
class Count:
    """A number of messages, and their bytes with headers."""

    messages: int = 0
    bytes: int = 0

    def add(self, messages: int, size: int) -> None:
        self.messages += messages
        self.bytes += size


def frame_bytes(message: Message) -> int:
    """Return the size of a message with its header: in the version that it names, or the last one that clients use."""
    kind = type(message)
    own_version: int | None = getattr(message, "version", None)
    if own_version is not None:
        return _SHORT_HEADER_BYTES + len(encode(message, own_version))
    version = _versions.get(kind)
    if version is None:
        version = _versions[kind] = _newest_version(kind)
    return _HEADER_BYTES + len(encode(message, version))


def _newest_version(kind: type[Message]) -> int:
    for api in APIS:
        if api.key == kind.API_KEY and kind in (api.request, api.response):
            return versions_of(api.request).last
    return kind.VERSIONS.last  # Of a design, not of Kafka.


def kind_of(message: Message) -> str:
    """Return the name of a message in reports, such as "JoinGroupRequest"."""
    return type(message).__name__


class _PerSecond:
    """Amounts in each second of a run.

    Args:
        seconds: The length of the run.
    """

    __slots__ = ("_amounts", "_changes", "_last")

    def __init__(self, seconds: int) -> None:
        self._last = seconds - 1
        self._amounts = [0.0] * seconds
        self._changes = [0.0] * (seconds + 1)  # Of the rate, at the beginning of each second.

    def add(self, at_ms: float, amount: float) -> None:
        self._amounts[min(int(at_ms // 1000), self._last)] += amount

    def spread(self, from_ms: float, until_ms: float, amount: float) -> None:
        """Add an amount evenly to the seconds from `from_ms` until before the second of `until_ms`, at least to one."""
        first = min(int(from_ms // 1000), self._last)
        end = min(max(int(until_ms // 1000), first + 1), self._last + 1)
        rate = amount / (end - first)
        self._changes[first] += rate
        self._changes[end] -= rate

    def amounts(self) -> list[float]:
        rates = accumulate(self._changes[:-1])
        return [single + rate for single, rate in zip(self._amounts, rates, strict=True)]


class Traffic:
    """The messages of one run. Times are in milliseconds since its beginning.

    Args:
        duration_ms: The length of the run.

    Attributes:
        by_kind: Counts by name of the message.
    """

    def __init__(self, duration_ms: float) -> None:
        self.by_kind: defaultdict[str, Count] = defaultdict(Count)
        self._seconds = max(1, ceil(duration_ms / 1000))
        self._requests: defaultdict[int, _PerSecond] = defaultdict(lambda: _PerSecond(self._seconds))
        self._messages, self._bytes = _PerSecond(self._seconds), _PerSecond(self._seconds)

    def sent(self, message: Message, at_ms: float) -> int:
        """Count a message; return its size in bytes."""
        size = frame_bytes(message)
        self.by_kind[kind_of(message)].add(1, size)
        self._messages.add(at_ms, 1)
        self._bytes.add(at_ms, size)
        return size

    def requested(self, node_id: int, at_ms: float) -> None:
        """Count a request that arrives at a broker."""
        self._requests[node_id].add(at_ms, 1)

    def repeated(
        self, node_id: int, request: Message, response: Message, count: int, from_ms: float, until_ms: float
    ) -> None:
        """Count messages between a member and a broker that are exchanged `count` times, at equal distances.

        Args:
            node_id: The broker.
            request, response: The messages.
            count: How often they are exchanged.
            from_ms: When the first request is sent.
            until_ms: When the request after the last is due.
        """
        for message in (request, response):
            size = frame_bytes(message)
            self.by_kind[kind_of(message)].add(count, count * size)
            self._messages.spread(from_ms, until_ms, count)
            self._bytes.spread(from_ms, until_ms, count * size)
        self._requests[node_id].spread(from_ms, until_ms, count)

    def requests_per_s(self) -> dict[int, list[float]]:
        """Return the requests in each second, by broker."""
        return {node_id: self._requests[node_id].amounts() for node_id in sorted(self._requests)}

    def messages_per_s(self) -> list[float]:
        """Return the messages in each second, in both directions."""
        return self._messages.amounts()

    def bytes_per_s(self) -> list[float]:
        """Return the bytes in each second, in both directions."""
        return self._bytes.amounts()
