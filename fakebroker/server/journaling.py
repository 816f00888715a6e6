"""The journal as a test sees it: picking requests, asserting their order, and keeping them in a file.

Looks at what was asked and answered; changes nothing of it. How a journal stands in a file is `journal_file.py`'s.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from os import PathLike
from typing import NoReturn, Unpack

from fakebroker.cluster.call import Call
from fakebroker.cluster.inspect.journal_filters import Filters, Step, StepFilters, described, matcher, pair
from fakebroker.cluster.inspect.journal_table import Numbered, table, tail
from fakebroker.cluster.journal import JournalMode
from fakebroker.errors import ConfigError
from fakebroker.server import journal_files
from fakebroker.server.lifecycle import RunningCluster

_SHOWN = 10
"""How many requests an assertion shows of those that might have been the one it missed."""


class JournalQueries:
    """What a journal can be asked, be it that of a running cluster or one from a file."""

    def journal_view(self) -> "JournalView":
        """The journal as it is now."""
        raise NotImplementedError

    def requests(self, api: str | None = None, client_id: str | None = None, **filters: Unpack[Filters]) -> list[Call]:
        """The requests that the journal still has, oldest first, with their responses.

        Args:
            api: Only requests of this API, by Kafka's name, such as "JoinGroup".
            client_id: Only requests of this client.
            filters: Only requests that are all of this; see `Filters`.

        Raises:
            ConfigError: There is no such API, broker, error or filter; or no journal is kept.
        """
        view = self.journal_view()
        matches = view.matcher(api, {"client_id": client_id, **filters})
        return [call for call in view.calls if matches(call)]

    def responses(self, api: str | None = None, client_id: str | None = None, **filters: Unpack[Filters]) -> list[Call]:
        """The requests that have got a response, in the order of their responses; see `requests`."""
        view = self.journal_view()
        matches = view.matcher(api, {"client_id": client_id, **filters})
        answered = [numbered for numbered in view.numbered() if numbered[1].has_response and matches(numbered[1])]
        return [call for _, call in sorted(answered, key=_order_of_answer)]

    def count(self, api: str | None = None, client_id: str | None = None, **filters: Unpack[Filters]) -> int:
        """How many such requests the journal has; see `requests`."""
        return len(self.requests(api, client_id, **filters))

    def assert_order(self, *steps: Step, **filters: Unpack[StepFilters]) -> None:
        """Assert that requests came in this order; others may have come between them.

        Args:
            steps: What came: names of APIs, or pairs such as `("Heartbeat", {"client_id": "a"})`.
            filters: What holds for every step; see `StepFilters`.

        Raises:
            AssertionError: They did not. It shows what came instead.
            ConfigError: There is no such API, broker, error or filter, or no step; or no journal is kept.
        """
        view = self.journal_view()
        pairs = [pair(step) for step in steps]
        if not pairs:
            raise ConfigError("an order without steps: expected one or more")
        in_scope = view.matcher(None, filters)
        calls = [numbered for numbered in view.numbered() if in_scope(numbered[1])]
        found = _subsequence(calls, [view.matcher(*each) for each in pairs])
        if len(found) < len(pairs):
            api, narrower = pairs[len(found)]
            after = found[-1] + 1 if found else 0
            what = described(api, {**filters, **narrower}) + (f" after #{calls[after - 1][0]}" if found else "")
            order = ", ".join(described(*each) for each in pairs)
            marks = dict.fromkeys(range(after, min(after + _SHOWN, len(calls))), "")
            marks |= {at: str(number) for number, at in enumerate(found, 1)}
            view.fail(f"no {what}, step {len(found) + 1} of: {order}", calls, marks)

    def assert_never(self, api: str | None = None, client_id: str | None = None, **filters: Unpack[Filters]) -> None:
        """Assert that the journal has no such request; see `requests`.

        Raises:
            AssertionError: It has. It shows which, and what came before and after.
            ConfigError: There is no such API, broker, error or filter; or no journal is kept.
        """
        view = self.journal_view()
        wanted = {"client_id": client_id, **filters}
        matches = view.matcher(api, wanted)
        marks = {at: ">" for at, call in enumerate(view.calls) if matches(call)}
        if marks:
            view.fail(f"expected no {described(api, wanted)}, there are {len(marks)}", view.numbered(), marks)

    def export_journal(self, path: str | PathLike[str]) -> None:
        """Write the journal to a file that `read_journal` reads: a JSON object a line, one for each request.

        Raises:
            ConfigError: No journal is kept.
        """
        view = self.journal_view()
        view.check_kept()
        journal_files.write(path, journal_files.Head(view.mode, view.dropped, view.node_ids), view.calls)


def check_kept(mode: str) -> None:
    """Refuse what only a journal that is kept can tell.

    Raises:
        ConfigError: It is off.
    """
    if mode == "off":
        raise ConfigError("journal='off' keeps no requests: expected 'headers' or 'full'")


@dataclass(frozen=True, slots=True)
class JournalView(JournalQueries):
    """A journal at one moment.

    Attributes:
        calls: The calls that it has, oldest first.
        dropped: How many older ones it has had.
        node_ids: The brokers that the cluster has.
        mode: Whether it has the messages, or headers only; or is off.
    """

    calls: Sequence[Call]
    dropped: int
    node_ids: tuple[int, ...]
    mode: JournalMode

    def journal_view(self) -> "JournalView":
        return self

    def numbered(self) -> list[Numbered]:
        """The calls with their numbers in the order in which all came, from 1 on."""
        return list(enumerate(self.calls, self.dropped + 1))

    def check_kept(self) -> None:
        """Refuse what only a journal that is kept can tell.

        Raises:
            ConfigError: It is not.
        """
        check_kept(self.mode)

    def matcher(self, api: str | None, filters: Mapping[str, object]) -> Callable[[Call], bool]:
        """What tells whether a request is meant; see `journal_filters.matcher`."""
        self.check_kept()
        return matcher(api, filters, chain(self.node_ids, (call.node_id for call in self.calls)))

    def fail(self, why: str, calls: Sequence[Numbered], marks: Mapping[int, str]) -> NoReturn:
        """Fail an assertion.

        Raises:
            AssertionError: Always, with the calls that are marked and their neighbors; or else the last ones of all.
        """
        shown = table(calls, marks) if marks else tail(self.numbered(), _SHOWN)
        raise AssertionError("\n".join([f"{why}:", shown, *self._warnings()]))

    def report(self, count: int) -> str:
        """The last so many requests, for a person."""
        if self.mode == "off":
            return "no requests: the journal is off"
        shown = min(count, len(self.calls))
        lines = [f"the last {shown} of {len(self.calls)} requests:", tail(self.numbered(), count), *self._warnings()]
        return "\n".join(lines)

    def _warnings(self) -> list[str]:
        if not self.dropped:
            return []
        return [f"The journal has dropped {self.dropped} older requests: journal_calls and journal_bytes limit it."]


class Journaling(RunningCluster, JournalQueries):
    """What a running cluster was asked, and what it answered."""

    def journal_view(self) -> JournalView:
        def view() -> JournalView:
            journal = self.cluster.journal
            return JournalView(tuple(journal), journal.dropped, tuple(self.cluster.brokers), journal.mode)

        return self._call(view)

    @property
    def journal_dropped(self) -> int:
        """How many requests the journal has forgotten, because it keeps no more of them."""
        return self.cluster.journal.dropped


def read_journal(path: str | PathLike[str]) -> JournalView:
    """Read a journal that was exported: its requests can be picked and asserted as those of a cluster.

    Raises:
        ConfigError: The file is none; it says at which line.
    """
    head, calls = journal_files.read(path)
    return JournalView(calls, head.dropped, head.node_ids, head.mode)


def parse_journal(lines: Iterable[str], source: str) -> JournalView:
    """Read a journal from the lines that `export_journal` writes; `source` says where they are from.

    Raises:
        ConfigError: They are none; it says at which line.
    """
    head, calls = journal_files.parse(lines, source)
    return JournalView(calls, head.dropped, head.node_ids, head.mode)


def _subsequence(calls: Sequence[Numbered], tests: Sequence[Callable[[Call], bool]]) -> list[int]:
    """Where each test is met, the earliest possible; it ends where one is not."""
    found: list[int] = []
    for at, (_, call) in enumerate(calls):
        if len(found) < len(tests) and tests[len(found)](call):
            found.append(at)
    return found


def _order_of_answer(numbered: Numbered) -> tuple[int, bool, float]:
    """An answer at once goes out before those that its request set free; what goes out together is in order of arrival.

    Times alone would not do: a manual clock stands still.
    """
    number, call = numbered
    return call.answered_after or number, call.answered_after > 0, call.answered_ms or 0.0
