"""Counts messages and their bytes, by kind, and requests by broker and second."""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from fakebroker.client.versions import versions_of
from fakebroker.protocol.codec import encode
from fakebroker.protocol.registry import APIS
from fakebroker.protocol.schema import Message

_HEADER_BYTES = 4 + 2 + 2 + 4 + 2
"""Size, API key, version, correlation id and the length of the client id in a frame; a response has less."""

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
    """Return the size of a message with its header, in the last version that clients use."""
    kind = type(message)
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


class Traffic:
    """The messages of one run.

    Args:
        duration_ms: The length of the run.

    Attributes:
        by_kind: Counts by name of the message.
    """

    def __init__(self, duration_ms: float) -> None:
        self.by_kind: defaultdict[str, Count] = defaultdict(Count)
        self._seconds = int(duration_ms // 1000) + 2
        # Changes of the rate of requests at the beginning of each second, by broker; and single requests.
        self._rates: defaultdict[int, list[float]] = defaultdict(lambda: [0.0] * (self._seconds + 1))
        self._requests: defaultdict[int, list[float]] = defaultdict(lambda: [0.0] * (self._seconds + 1))

    def sent(self, message: Message) -> int:
        """Count a message; return its size in bytes."""
        size = frame_bytes(message)
        self.by_kind[kind_of(message)].add(1, size)
        return size

    def requested(self, node_id: int, at_ms: float) -> None:
        """Count a request that arrives at a broker, or one that it sends.

        Args:
            node_id: The broker.
            at_ms: The time since the beginning of the run.
        """
        self._requests[node_id][min(int(at_ms // 1000), self._seconds)] += 1

    def repeated(self, message: Message, count: int) -> None:
        """Count messages that are sent `count` times."""
        self.by_kind[kind_of(message)].add(count, count * frame_bytes(message))

    def requested_steadily(self, node_id: int, from_ms: float, until_ms: float, count: int) -> None:
        """Count requests at equal distances, from the second of `from_ms` to that of `until_ms`."""
        first, last = int(from_ms // 1000), min(int(until_ms // 1000), self._seconds - 1)
        rate = count / (last - first + 1)
        self._rates[node_id][first] += rate
        self._rates[node_id][last + 1] -= rate

    def requests_per_s(self) -> Iterator[tuple[int, list[float]]]:
        """Yield each broker with its requests in each second."""
        for node_id in sorted(self._requests.keys() | self._rates.keys()):
            rate, found = 0.0, []
            for change, single in zip(self._rates[node_id], self._requests[node_id], strict=True):
                rate += change
                found.append(rate + single)
            yield node_id, found[: self._seconds - 1]
