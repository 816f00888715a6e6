"""A summary of the calls that a journal has dropped: how many of each kind. Its size is limited."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from fakebroker.cluster.call import MAX_MEMO_BYTES, Call

MAX_KINDS = 1_000
"""Maximum number of kinds. Further calls are counted by their API only."""


class DroppedKind(NamedTuple):
    """Calls of one kind that were dropped. An attribute that is None is not known.

    Attributes:
        api: The name of the API.
        version: The version.
        broker: The node id of the broker.
        client_id: The client id.
        connection: The number of the connection.
        groups: The group ids that the request names.
        has_fault: Whether a fault was injected.
        calls: How many were dropped.
        last_ms: When the last of them was received, by the brokers' time in milliseconds since the epoch.
    """

    api: str | None = None
    version: int | None = None
    broker: int | None = None
    client_id: str | None = None
    connection: int | None = None
    groups: tuple[str, ...] | None = None
    has_fault: bool | None = None
    calls: int = 0
    last_ms: float | None = None


class DroppedCalls:
    """Counts dropped calls by kind. Iterating yields the kinds."""

    __slots__ = ("_kinds",)

    def __init__(self) -> None:
        # The number of calls and the time of the last one, by the first attributes of `DroppedKind`.
        self._kinds: dict[tuple[object, ...], list[float]] = {}

    def add(self, calls: Iterable[Call]) -> None:
        """Count calls that are dropped. Calls are dropped in the order in which they were received."""
        for call in calls:
            # Copies without messages have no request that identifies their kind, and others are not decoded for that.
            is_plain = call.is_decoded and call.fault is None and call.answered_ms is not None
            request = call.request if is_plain else None
            last = call.peer.last_dropped
            if request is not None and last is not None and last[1] is request and last[0] is self:
                known = last[2]  # Repeated requests of a connection share the decoded message; see `read_call`.
            else:
                known = self._known(call)
                if request is not None and call.size <= MAX_MEMO_BYTES:
                    call.peer.last_dropped = self, request, known
            known[0] += 1
            known[1] = call.received_ms

    def _known(self, call: Call) -> list[float]:
        """Return the number and the last time of the dropped calls of the same kind."""
        key: tuple[object, ...] = (
            call.api.name,
            call.api_version,
            call.node_id,
            call.client_id,
            call.peer.connection_id,
            call.group_ids if call.is_decoded else None,
            # A call that was dropped before its response may still get a fault.
            call.fault is not None or (None if call.answered_ms is None else False),
        )
        known = self._kinds.get(key)
        if known is None:
            if len(self._kinds) >= MAX_KINDS:
                key = (call.api.name, None, None, None, None, None, None)
            known = self._kinds.setdefault(key, [0, 0.0])
        return known

    def __iter__(self) -> Iterator[DroppedKind]:
        for key, (count, last_ms) in self._kinds.items():
            yield DroppedKind._make((*key, int(count), last_ms))
