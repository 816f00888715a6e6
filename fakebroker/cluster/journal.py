"""Journals keep the newest calls of a cluster, up to a limit, with their messages or with summaries; or nothing.

Queries are in `cluster/inspect/`. `Cluster.handle` adds each call before it is answered.
"""

from collections import deque
from collections.abc import Iterator
from itertools import islice
from typing import Literal

from fakebroker.cluster.call import Call
from fakebroker.errors import ConfigError, check_integer, one_of

JournalMode = Literal["off", "headers", "full"]

_MIN_PENDING = 8  # A HeadersJournal summarizes calls only when it has at least this many that are not summarized.


class Journal:
    """The newest calls of a cluster, in the order in which they were received.

    Args:
        max_calls: The largest number of calls to keep; 0 keeps none.
        max_bytes: The largest number of bytes of requests to keep, as measured on the wire.

    Attributes:
        mode: The kind of journal, by its name in the settings of a cluster.
        bytes: The size of the requests that are kept.
        dropped: How many calls were dropped because of the limits.
    """

    __slots__ = ("_calls", "bytes", "dropped", "max_bytes", "max_calls")
    mode: JournalMode = "full"

    def __init__(self, max_calls: int = 10_000, max_bytes: int = 64 * 1024 * 1024) -> None:
        self.max_calls = max_calls
        self.max_bytes = max_bytes
        self.bytes = 0
        self.dropped = 0
        self._calls: deque[Call] = deque()

    def add(self, call: Call) -> None:
        """Add a call, and drop the oldest ones if a limit is exceeded."""
        calls = self._calls
        calls.append(call)
        held_bytes = self.bytes + call.size
        if len(calls) > self.max_calls or held_bytes > self.max_bytes:
            # Usually one call is dropped for each call that is added.
            held_bytes -= calls.popleft().size
            self.dropped += 1
            while held_bytes > self.max_bytes:
                held_bytes -= calls.popleft().size
                self.dropped += 1
        self.bytes = held_bytes

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

    Calls are summarized soon after they are answered, and before the journal is read. The size of a summarized call is
    that of its client id, group ids and member ids.
    """

    __slots__ = ("_pending", "_summarize_at")
    mode = "headers"

    def __init__(self, max_calls: int = 10_000, max_bytes: int = 64 * 1024 * 1024) -> None:
        super().__init__(max_calls, max_bytes)
        # Calls that are not summarized: how many were added before, the call, the copy that the journal keeps.
        self._pending: list[tuple[int, Call, Call]] = []
        self._summarize_at = _MIN_PENDING

    def add(self, call: Call) -> None:
        if len(self._pending) >= self._summarize_at:
            self._summarize()
        kept = Call(call.peer, call.api, call.api_version, call.correlation_id, call.client_id, None, call.size)
        kept.received_ms = call.received_ms
        self._pending.append((self.added, call, kept))
        super().add(kept)

    def __iter__(self) -> Iterator[Call]:
        self._summarize()
        return super().__iter__()

    def newest(self, count: int) -> list[Call]:
        self._summarize()
        return super().newest(count)

    def at(self, number: int) -> Call | None:
        self._summarize()
        return super().at(number)

    def __reversed__(self) -> Iterator[Call]:
        self._summarize()
        return super().__reversed__()

    def _summarize(self) -> None:
        """Update the kept copies of pending calls, except those that the journal has dropped."""
        still_pending = []
        for number, call, kept in self._pending:
            if number < self.dropped:
                continue
            kept.summary = call.summarize()
            kept.fault, kept.response_version = call.fault, call.response_version
            kept.boundaries_or_none = call.boundaries_or_none
            kept.answered_ms, kept.answered_after = call.answered_ms, call.answered_after
            if call.answered_ms is None:
                still_pending.append((number, call, kept))
            else:
                kept.size = sum(map(len, (kept.client_id, *kept.group_ids, *kept.member_ids)))
                self.bytes -= call.size - kept.size
        self._pending = still_pending
        # Twice as many as remain, so that the amortized cost of a call is constant.
        self._summarize_at = 2 * len(still_pending) + _MIN_PENDING


class NoJournal(Journal):
    """A journal that keeps nothing."""

    __slots__ = ()
    mode = "off"

    def add(self, call: Call) -> None:
        """Do nothing."""


_BY_MODE: dict[str, type[Journal]] = {kind.mode: kind for kind in (NoJournal, HeadersJournal, Journal)}


def new_journal(mode: str, max_calls: int, max_bytes: int) -> Journal:
    """Return an empty journal.

    Args:
        mode: "full", "headers" (without messages) or "off".
        max_calls: The largest number of calls to keep.
        max_bytes: The largest total size of requests to keep, in bytes.

    Raises:
        ConfigError: The mode is unknown, or a limit is negative.
    """
    if mode not in _BY_MODE:
        raise ConfigError.of("journal", mode, one_of(_BY_MODE, mode))
    for name, limit in (("journal_calls", max_calls), ("journal_bytes", max_bytes)):
        check_integer(name, limit, least=0)
    return _BY_MODE[mode](max_calls, max_bytes)
