"""What was asked and answered, the newest so many of it: decoded, or its headers alone, or nothing.

Keeps calls; picking some of them out and judging them is for those who look.
"""

from collections import deque
from collections.abc import Iterator
from itertools import islice
from typing import Literal

from fakebroker.cluster.call import Call
from fakebroker.errors import ConfigError, ErrorCode

JournalMode = Literal["off", "headers", "full"]

_SLACK = 8


class Journal:
    """The newest calls of a cluster, in the order in which they came.

    Args:
        max_calls: How many are kept; 0 keeps none.
        max_bytes: How many bytes of requests are kept, counted as they came over the wire.

    Attributes:
        dropped: How many calls it has forgotten, for the limits' sake.
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
        """Keep a call, and forget the oldest ones over the limits."""
        calls = self._calls
        calls.append(call)
        held_bytes = self.bytes + call.size
        if len(calls) > self.max_calls or held_bytes > self.max_bytes:
            # One goes as one comes, as a rule: then there is nothing more to look at.
            held_bytes -= calls.popleft().size
            self.dropped += 1
            while held_bytes > self.max_bytes:
                held_bytes -= calls.popleft().size
                self.dropped += 1
        self.bytes = held_bytes

    def newest(self, count: int) -> list[Call]:
        """The newest so many calls, oldest first; all, if there are fewer."""
        return list(islice(reversed(self._calls), count))[::-1]

    def at(self, number: int) -> Call | None:
        """The call with this number in the order in which all came, from 1 on; None if it is not here."""
        index = number - self.dropped - 1
        return self._calls[index] if 0 <= index < len(self._calls) else None

    def __reversed__(self) -> Iterator[Call]:
        """The calls, newest first; none must come meanwhile."""
        return reversed(self._calls)

    @property
    def added(self) -> int:
        """How many calls have come."""
        return self.dropped + len(self._calls)

    def __iter__(self) -> Iterator[Call]:
        return iter(tuple(self._calls))

    def __len__(self) -> int:
        return len(self._calls)


class Recorded(Call):
    """A call of which only so much is known as was recorded: it goes nowhere, and its messages may be missing."""

    __slots__ = ("errors", "group_ids", "has_response", "member_ids")
    group_ids: tuple[str, ...]
    member_ids: tuple[str, ...]
    has_response: bool
    errors: tuple[ErrorCode, ...]

    @classmethod
    def headers_of(cls, call: Call) -> "Recorded":
        """A call without its messages, and still without what `note` takes over."""
        made = cls(call.peer, call.api, call.api_version, call.correlation_id, call.client_id, None, call.size)
        made.received_ms = call.received_ms
        return made

    def note(self, call: Call) -> None:
        """Take over what the messages of a call say, and what has become of it."""
        self.group_ids, self.member_ids = call.group_ids, call.member_ids
        self.has_response, self.errors = call.has_response, call.errors
        self.fault, self.response_version = call.fault, call.response_version
        self.answered_ms, self.answered_after = call.answered_ms, call.answered_after


class HeadersJournal(Journal):
    """A journal that keeps no messages: each call loses them soon after it is answered, at the latest at a look.

    From then on it counts for the bytes of the names that are kept of it.
    """

    __slots__ = ("_look_at", "_owed")
    mode = "headers"

    def __init__(self, max_calls: int = 10_000, max_bytes: int = 64 * 1024 * 1024) -> None:
        super().__init__(max_calls, max_bytes)
        # The calls that may be unanswered: how many came before, the call, what is kept of it.
        self._owed: list[tuple[int, Call, Recorded]] = []
        self._look_at = _SLACK

    def add(self, call: Call) -> None:
        if len(self._owed) >= self._look_at:
            self._note_answers()
        kept = Recorded.headers_of(call)
        self._owed.append((self.added, call, kept))
        super().add(kept)

    def __iter__(self) -> Iterator[Call]:
        self._note_answers()
        return super().__iter__()

    def newest(self, count: int) -> list[Call]:
        self._note_answers()
        return super().newest(count)

    def at(self, number: int) -> Call | None:
        self._note_answers()
        return super().at(number)

    def __reversed__(self) -> Iterator[Call]:
        self._note_answers()
        return super().__reversed__()

    def _note_answers(self) -> None:
        """Take note of what has happened since the last time; a call that is forgotten itself is not waited for."""
        still_owed = []
        for number, call, kept in self._owed:
            if number < self.dropped:
                continue
            kept.note(call)
            if call.answered_ms is None:
                still_owed.append((number, call, kept))
            else:
                kept.size = sum(map(len, (kept.client_id, *kept.group_ids, *kept.member_ids)))
                self.bytes -= call.size - kept.size
        self._owed = still_owed
        # Twice as many as stay: what looking costs is spread over as many calls.
        self._look_at = 2 * len(still_owed) + _SLACK


class NoJournal(Journal):
    """A journal that keeps nothing."""

    __slots__ = ()
    mode = "off"

    def add(self, call: Call) -> None:
        """Forget a call at once."""


_BY_MODE: dict[str, type[Journal]] = {kind.mode: kind for kind in (NoJournal, HeadersJournal, Journal)}


def new_journal(mode: str, max_calls: int, max_bytes: int) -> Journal:
    """An empty journal.

    Args:
        mode: "full", "headers" (no messages) or "off".
        max_calls: How many calls it keeps.
        max_bytes: How many bytes it keeps.

    Raises:
        ConfigError: There is no such mode, or a limit is negative.
    """
    if mode not in _BY_MODE:
        raise ConfigError(f"journal={mode!r}: expected one of {', '.join(map(repr, _BY_MODE))}")
    for name, limit in (("journal_calls", max_calls), ("journal_bytes", max_bytes)):
        if limit < 0:
            raise ConfigError(f"{name}={limit}: expected 0 or more")
    return _BY_MODE[mode](max_calls, max_bytes)
