"""Queries and assertions on the requests and responses in a journal. Read-only."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import NoReturn, Unpack

from fakebroker.cluster.call import Call
from fakebroker.cluster.cluster import Cluster
from fakebroker.cluster.inspect.journal_filters import Filters, Step, StepFilters, described, matcher, pair
from fakebroker.cluster.inspect.journal_table import Numbered, table, tail
from fakebroker.cluster.journal import JournalMode
from fakebroker.errors import ConfigError

_SHOWN = 10
"""Maximum number of requests that a failed assertion shows in place of the step that was not found."""


class JournalQueries:
    """Queries on a journal: that of a cluster in this process, of a cluster in another process, or from a file."""

    def journal_view(self) -> "JournalView":
        """Return the journal as it is now."""
        raise NotImplementedError

    def requests(self, api: str | None = None, client_id: str | None = None, **filters: Unpack[Filters]) -> list[Call]:
        """Return the requests in the journal, oldest first, with their responses.

        Args:
            api: Only requests of this API, by Kafka's name, such as "JoinGroup".
            client_id: Only requests of this client.
            filters: Only requests that match all of these filters; see `Filters`.

        Raises:
            ConfigError: An API, broker, error or filter is unknown; or the journal is off.
        """
        view = self.journal_view()
        matches = view.matcher(api, {"client_id": client_id, **filters})
        return [call for call in view.calls if matches(call)]

    def responses(self, api: str | None = None, client_id: str | None = None, **filters: Unpack[Filters]) -> list[Call]:
        """Return the matching requests that have a response, in the order of their responses; see `requests`."""
        view = self.journal_view()
        matches = view.matcher(api, {"client_id": client_id, **filters})
        answered = [numbered for numbered in view.numbered() if numbered[1].has_response and matches(numbered[1])]
        return [call for _, call in sorted(answered, key=_order_of_response)]

    def count(self, api: str | None = None, client_id: str | None = None, **filters: Unpack[Filters]) -> int:
        """Return the number of matching requests in the journal; see `requests`."""
        return len(self.requests(api, client_id, **filters))

    def assert_order(self, *steps: Step, **filters: Unpack[StepFilters]) -> None:
        """Assert that the journal contains matching requests in this order, possibly with other requests in between.

        Args:
            steps: Names of APIs, or pairs such as `("Heartbeat", {"client_id": "a"})`.
            filters: Filters for every step; see `StepFilters`.

        Raises:
            AssertionError: A step was not found; the message shows it and the requests in its place.
            ConfigError: An API, broker, error or filter is unknown, there is no step, or the journal is off.
        """
        view = self.journal_view()
        pairs = [pair(step) for step in steps]
        if not pairs:
            raise ConfigError.of("steps", (), "one or more")
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
        """Assert that the journal has no matching request; see `requests`.

        Raises:
            AssertionError: There are matching requests; the message shows them and their neighbors.
            ConfigError: An API, broker, error or filter is unknown; or the journal is off.
        """
        view = self.journal_view()
        given = {"client_id": client_id, **filters}
        matches = view.matcher(api, given)
        marks = {at: ">" for at, call in enumerate(view.calls) if matches(call)}
        if marks:
            view.fail(f"expected no {described(api, given)}, there are {len(marks)}", view.numbered(), marks)


def check_kept(mode: str) -> None:
    """Require a journal that is on.

    Raises:
        ConfigError: The mode is "off".
    """
    if mode == "off":
        raise ConfigError.of("journal", "off", "full or headers, because 'off' keeps no requests")


@dataclass(frozen=True, slots=True)
class JournalView(JournalQueries):
    """A journal at one point in time.

    Attributes:
        calls: The calls in it, oldest first.
        dropped: Number of older calls that were removed because of the journal's limits.
        node_ids: Node ids of the cluster's brokers.
        mode: "full", "headers" (no messages) or "off".
    """

    calls: Sequence[Call]
    dropped: int
    node_ids: tuple[int, ...]
    mode: JournalMode

    def journal_view(self) -> "JournalView":
        return self

    def numbered(self) -> list[Numbered]:
        """Return the calls with their sequence numbers, which start at 1."""
        return list(enumerate(self.calls, self.dropped + 1))

    def check_kept(self) -> None:
        """Require a journal that is on.

        Raises:
            ConfigError: The mode is "off".
        """
        check_kept(self.mode)

    def matcher(self, api: str | None, filters: Mapping[str, object]) -> Callable[[Call], bool]:
        """Return a function that tests whether a request matches; see `journal_filters.matcher`."""
        self.check_kept()
        return matcher(api, filters, chain(self.node_ids, (call.node_id for call in self.calls)))

    def fail(self, why: str, calls: Sequence[Numbered], marks: Mapping[int, str]) -> NoReturn:
        """Raise an AssertionError with a table of the marked calls and their neighbors, or of the last calls.

        Args:
            why: The first line of the message.
            calls: The calls to choose from, with their numbers.
            marks: Marks by index in `calls`; without marks, the last calls of the journal are shown.
        """
        shown = table(calls, marks) if marks else tail(self.numbered(), _SHOWN)
        raise AssertionError("\n".join([f"{why}:", shown, *self._warnings()]))

    def report(self, count: int) -> str:
        """Return a table of the last `count` requests."""
        if self.mode == "off":
            return "no requests: the journal is off"
        shown = min(count, len(self.calls))
        lines = [f"the last {shown} of {len(self.calls)} requests:", tail(self.numbered(), count), *self._warnings()]
        return "\n".join(lines)

    def _warnings(self) -> list[str]:
        if not self.dropped:
            return []
        return [f"The journal has dropped {self.dropped} older requests: journal_calls and journal_bytes limit it."]


def view_journal(cluster: Cluster) -> JournalView:
    """Return the journal of a cluster as it is now."""
    journal = cluster.journal
    return JournalView(tuple(journal), journal.dropped, tuple(cluster.brokers), journal.mode)


def _subsequence(calls: Sequence[Numbered], tests: Sequence[Callable[[Call], bool]]) -> list[int]:
    """Return the index of the first call that matches the first test, of the next that matches the second, and so on.

    The list is shorter if a test matches none of the remaining calls.
    """
    found: list[int] = []
    for index, (_, call) in enumerate(calls):
        if len(found) < len(tests) and tests[len(found)](call):
            found.append(index)
    return found


def _order_of_response(numbered: Numbered) -> tuple[int, bool, float]:
    """Return the sort key of a call by its response.

    Responses that were sent at once are in the order of their requests. A delayed response comes after that of the last
    request received before it was sent; several of those are ordered by time. Times alone are not sufficient, because a
    manual clock does not advance by itself.
    """
    number, call = numbered
    return call.answered_after or number, call.answered_after > 0, call.answered_ms or 0.0
