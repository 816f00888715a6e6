"""Journals keep the newest calls of a cluster, up to a limit, with their messages or with summaries; or nothing.

Queries are in `cluster/inspect/`. `RequestPath.handle` adds each call before it is answered.
"""

from collections import deque
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Literal, NamedTuple

from fakebroker.cluster.call import MAX_MEMO_BYTES, Call
from fakebroker.cluster.journal.message_size import OBJECT_FACTOR, held_bytes, request_bytes
from fakebroker.errors import ConfigError, check_integer, one_of

# A summary of the calls that a journal has dropped: how many of each kind. Its size is limited.


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


# Journals


SMALL_RESPONSE_BYTES = 64
"""The size that each call counts for its response in advance, so that counting a heartbeat costs less."""

_PORTIONS = 64
"""Above the largest number of calls, a 64th of them is dropped: many at once take less time than one by one."""

JournalMode = Literal["off", "headers", "full"]


class Journal:
    """The newest calls of a cluster, in the order in which they were received.

    Args:
        max_calls: The largest number of calls to keep; 0 keeps none. Above it, many are dropped at once (`_PORTIONS`).
        max_bytes: The largest number of bytes that calls may hold: requests (`request_bytes`) and responses
            (`held_bytes`), both estimated. If one call exceeds it alone, a copy with a summary is kept instead.

    Attributes:
        mode: The kind of journal, by its name in the settings of a cluster.
        bytes: How many bytes the calls hold.
        dropped: How many calls were dropped because of the limits.
        dropped_calls: A summary of the calls that were dropped.
        min_response_bytes: `add_response` need not be called for smaller responses, unless a copy of the call is kept:
            each call counts `SMALL_RESPONSE_BYTES` for its response in advance.
    """

    __slots__ = ("_calls", "bytes", "dropped", "dropped_calls", "max_bytes", "max_calls")
    mode: JournalMode = "full"
    min_response_bytes: int = SMALL_RESPONSE_BYTES

    def __init__(self, max_calls: int = 10_000, max_bytes: int = 64 * 1024 * 1024) -> None:
        self.max_calls = max_calls
        self.max_bytes = max_bytes
        self.bytes = 0
        self.dropped = 0
        self.dropped_calls = DroppedCalls()
        self._calls: deque[Call] = deque()

    def add(self, call: Call) -> None:
        """Add a call, and drop the oldest ones if a limit is exceeded."""
        size_bytes = SMALL_RESPONSE_BYTES * OBJECT_FACTOR
        size_bytes += request_bytes(call.request if call.is_decoded else None, call.size)
        if size_bytes > self.max_bytes:
            self._append_copy(call)
        else:
            self._append(call, size_bytes)

    def add_response(self, call: Call, wire_bytes: int) -> None:
        """Count the response to a call, unless the call was dropped; and drop the oldest calls if a limit is exceeded.

        Args:
            call: The call, with its response unless it gets none. `min_response_bytes` says for which calls this method
                need not be called.
            wire_bytes: The size of the response's frame; 0 without a response.
        """
        dropped = self.dropped
        if not dropped < call.number <= dropped + len(self._calls):
            return
        size_bytes = held_bytes(call.response if call.is_decoded else None, wire_bytes)
        call_bytes = call.held_bytes + size_bytes
        if call.kept is not None:
            self._summarize(call, call.kept)
        elif call_bytes > self.max_bytes:
            self._calls[call.number - dropped - 1] = kept = _copy(call)
            kept.held_bytes = call.held_bytes
            self._summarize(call, kept)
        else:
            call.held_bytes = call_bytes
            self.bytes += size_bytes
            while self.bytes > self.max_bytes:
                self._drop(1)

    def _append_copy(self, call: Call) -> None:
        """Add a copy of a call without its messages."""
        kept = call.kept = _copy(call)
        kept.summary = call.summarize()
        self._append(kept, kept.summary.text_bytes + len(kept.client_id))
        call.number = kept.number

    def _append(self, call: Call, size_bytes: int) -> None:
        calls = self._calls
        calls.append(call)
        calls_kept = len(calls)
        call.number = self.dropped + calls_kept
        call.held_bytes = size_bytes
        self.bytes += size_bytes
        if calls_kept > self.max_calls:
            self._drop(calls_kept - self.max_calls + self.max_calls // _PORTIONS)
        while self.bytes > self.max_bytes:
            self._drop(1)

    def _summarize(self, call: Call, kept: Call) -> None:
        """Update the copy of a call after its response is known."""
        _update(call, kept)
        assert kept.summary is not None
        more_bytes = kept.summary.text_bytes + len(kept.client_id) - kept.held_bytes
        kept.held_bytes += more_bytes
        self.bytes += more_bytes
        while self.bytes > self.max_bytes:
            self._drop(1)

    def _drop(self, count: int) -> None:
        """Drop the oldest calls."""
        next_call = self._calls.popleft
        calls = [next_call() for _ in range(count)]
        self.bytes -= sum([call.held_bytes for call in calls])
        self.dropped += count
        self.dropped_calls.add(calls)

    def newest(self, count: int) -> list[Call]:
        """Return the newest `count` calls, or all if there are fewer, oldest first."""
        return list(islice(reversed(self._calls), count))[::-1]

    def at(self, number: int) -> Call | None:
        """Return the call with this sequence number, counted from 1; None if it is not kept."""
        index = number - self.dropped - 1
        return self._calls[index] if 0 <= index < len(self._calls) else None

    def __reversed__(self) -> Iterator[Call]:
        """Iterate over the calls, newest first. No call may be added during the iteration."""
        return reversed(self._calls)

    @property
    def added(self) -> int:
        """How many calls were added, including those that were dropped."""
        return self.dropped + len(self._calls)

    def __iter__(self) -> Iterator[Call]:
        return iter(tuple(self._calls))

    def __len__(self) -> int:
        return len(self._calls)


class HeadersJournal(Journal):
    """A journal that keeps summaries instead of messages.

    A call is summarized when its response is sent, and before the journal is read. The size of a summarized call is
    the size of its texts.
    """

    __slots__ = ("_pending",)
    mode = "headers"
    min_response_bytes = 0  # The copy is updated after each response.

    def __init__(self, max_calls: int = 10_000, max_bytes: int = 64 * 1024 * 1024) -> None:
        super().__init__(max_calls, max_bytes)
        # Calls without a response: the call and the copy that the journal keeps, by sequence number.
        self._pending: dict[int, tuple[Call, Call]] = {}

    def add(self, call: Call) -> None:
        size_bytes = request_bytes(call.request, call.size)
        if size_bytes > self.max_bytes:
            self._append_copy(call)
            return
        kept = call.kept = _copy(call)
        call.number = self.added + 1
        self._pending[call.number] = (call, kept)
        self._append(kept, size_bytes)

    def add_response(self, call: Call, wire_bytes: int) -> None:
        kept = call.kept
        if kept is None:
            return
        if kept is super().at(call.number):
            self._pending.pop(call.number, None)
            self._summarize(call, kept)
        else:  # It was dropped, but a wait may still refer to the copy.
            _update(call, kept)

    def _drop(self, count: int) -> None:
        for number in range(self.dropped + 1, self.dropped + 1 + count):
            pending = self._pending.pop(number, None)
            if pending is not None:
                _update(*pending)
        super()._drop(count)

    def __iter__(self) -> Iterator[Call]:
        self._summarize_pending()
        return super().__iter__()

    def newest(self, count: int) -> list[Call]:
        self._summarize_pending()
        return super().newest(count)

    def at(self, number: int) -> Call | None:
        self._summarize_pending()
        return super().at(number)

    def __reversed__(self) -> Iterator[Call]:
        self._summarize_pending()
        return super().__reversed__()

    def _summarize_pending(self) -> None:
        for call, kept in self._pending.values():
            _update(call, kept)


def _copy(call: Call) -> Call:
    """Return a copy of a call without its messages."""
    kept = Call(call.peer, call.api, call.api_version, call.correlation_id, call.client_id, None, call.size)
    kept.received_ms, kept.number = call.received_ms, call.number
    return kept


def _update(call: Call, kept: Call) -> None:
    """Update the copy of a call."""
    kept.summary = call.summarize()
    kept.fault, kept.response_version = call.fault, call.response_version
    kept.boundaries_or_none = call.boundaries_or_none
    kept.answered_ms, kept.answered_after = call.answered_ms, call.answered_after


class NoJournal(Journal):
    """A journal that keeps nothing."""

    __slots__ = ()
    mode = "off"

    def add(self, call: Call) -> None:
        """Do nothing."""

    def add_response(self, call: Call, wire_bytes: int) -> None:
        """Do nothing."""


_BY_MODE: dict[str, type[Journal]] = {kind.mode: kind for kind in (NoJournal, HeadersJournal, Journal)}


def new_journal(mode: str, max_calls: int, max_bytes: int) -> Journal:
    """Return an empty journal.

    Args:
        mode: "full", "headers" (without messages) or "off".
        max_calls: The largest number of calls to keep.
        max_bytes: The largest number of bytes that requests and responses may hold.

    Raises:
        ConfigError: The mode is unknown, or a limit is negative.
    """
    if mode not in _BY_MODE:
        raise ConfigError.of("journal", mode, one_of(_BY_MODE, mode))
    for name, limit in (("journal_calls", max_calls), ("journal_bytes", max_bytes)):
        check_integer(name, limit, least=0)
    return _BY_MODE[mode](max_calls, max_bytes)
