"""Queries and assertions on the requests and responses in a journal. Read-only."""

from collections.abc import Callable, Generator, Mapping, Sequence
from itertools import chain
from math import inf
from typing import NoReturn, Unpack

import msgspec
from msgspec.structs import replace

from fakebroker.cluster.call import Call
from fakebroker.cluster.cluster import Cluster
from fakebroker.cluster.inspect.journal_filters import Filters, Matcher, Step, StepFilters, TopicName, described, pair
from fakebroker.cluster.inspect.journal_table import Numbered, table, tail
from fakebroker.cluster.journal.dropped_calls import DroppedCalls, DroppedKind
from fakebroker.cluster.journal.journal import JournalMode
from fakebroker.errors import ConfigError, IncompleteJournalError

_SHOWN = 10
"""Maximum number of requests that a failed assertion shows in place of the step that was not found."""


class JournalQueries:
    """Queries on a journal: that of a cluster in this process, of a cluster in another process, or from a file."""

    def journal_view(self) -> "JournalView":
        """Return the journal as it is now."""
        raise NotImplementedError

    def requests(self, api: str | None = None, client_id: str | None = None, **filters: Unpack[Filters]) -> list[Call]:
        """Return the requests in the journal, oldest first, with their responses.

        Requests that the journal has dropped are missing, see `journal_dropped`.

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
        """Return the number of matching requests since the start or the last reset; see `requests`.

        Raises:
            IncompleteJournalError: The journal has dropped requests that may match. The message says how many.
            ConfigError: An API, broker, error or filter is unknown; or the journal is off.
        """
        view = self.journal_view()
        given = {"client_id": client_id, **filters}
        matches = view.matcher(api, given)
        view.check_complete(f"{described(api, given)} cannot be counted:", [matches])
        return sum(map(matches, view.calls))

    def assert_order(self, *steps: Step, **filters: Unpack[StepFilters]) -> None:
        """Assert that the journal contains matching requests in this order, possibly with other requests in between.

        Args:
            steps: Names of APIs, or pairs such as `("Heartbeat", {"client_id": "a"})`.
            filters: Filters for every step; see `StepFilters`.

        Raises:
            AssertionError: A step was not found; the message shows it and the requests in its place.
            IncompleteJournalError: The first steps may be among the requests that the journal has dropped, and the
                others were found. It is an AssertionError, too.
            ConfigError: An API, broker, error or filter is unknown, there is no step, or the journal is off.
        """
        __tracebackhide__ = True  # pytest shows the test's call.
        view = self.journal_view()
        pairs = [pair(step) for step in steps]
        if not pairs:
            raise ConfigError.of("steps", (), "one or more")
        in_scope = view.matcher(None, filters)
        calls = [numbered for numbered in view.numbered() if in_scope(numbered[1])]
        tests = [view.matcher(*each) for each in pairs]
        found = _subsequence(calls, tests)
        if len(found) < len(pairs):
            view.check_undropped(in_scope, tests, calls)
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
            IncompleteJournalError: There are none, but the journal has dropped requests that may match. It is an
                AssertionError, too.
            ConfigError: An API, broker, error or filter is unknown; or the journal is off.
        """
        __tracebackhide__ = True
        view = self.journal_view()
        given = {"client_id": client_id, **filters}
        matches = view.matcher(api, given)
        marks = {at: ">" for at, call in enumerate(view.calls) if matches(call)}
        if marks:
            view.fail(f"expected no {described(api, given)}, there are {len(marks)}", view.numbered(), marks)
        view.check_complete(f"found no {described(api, given)}, but", [matches])


def _no_name(topic_id: bytes) -> str | None:
    return None


def check_kept(mode: str) -> None:
    """Require a journal that is on.

    Raises:
        ConfigError: The mode is "off".
    """
    if mode == "off":
        raise ConfigError.of("journal", "off", "full or headers, because 'off' keeps no requests")


class JournalView(JournalQueries, msgspec.Struct, frozen=True):
    """A journal at one point in time.

    Attributes:
        calls: The calls in it, oldest first.
        dropped: Number of older calls that were removed because of the journal's limits.
        node_ids: Node ids of the cluster's brokers.
        mode: "full", "headers" (no messages) or "off".
        dropped_kinds: The kinds of the calls that were removed.
        topic_name: Returns the name of a topic by its id, also if it was deleted.
        only: The filters of a part of a journal; None if the journal is complete, apart from dropped calls.
        left_out: The kinds of the calls that these filters leave out.
    """

    calls: Sequence[Call]
    dropped: int
    node_ids: tuple[int, ...]
    mode: JournalMode
    dropped_kinds: Sequence[DroppedKind] = ()
    topic_name: TopicName = _no_name
    only: Matcher | None = None
    left_out: Sequence[DroppedKind] = ()

    def journal_view(self) -> "JournalView":
        return self

    def numbered(self) -> list[Numbered]:
        """Return the calls with their sequence numbers, which start at 1."""
        if self.only is not None:
            return [(call.number, call) for call in self.calls]
        return list(enumerate(self.calls, self.dropped + 1))

    def part(self, api: str | None, filters: Mapping[str, object]) -> Generator[None, None, "JournalView"]:
        """Yield after each call, and return the part of the journal that matches filters.

        Raises:
            ConfigError: An API, broker, error or filter is unknown; or the journal is off.
        """
        only = self.matcher(api, filters)
        calls, left_out = list[Call](), DroppedCalls()
        for call in self.calls:
            if only(call):
                calls.append(call)
            else:
                left_out.add([call])
            yield
        return replace(self, calls=calls, only=only, left_out=tuple(left_out))

    def check_kept(self) -> None:
        """Require a journal that is on.

        Raises:
            ConfigError: The mode is "off".
        """
        check_kept(self.mode)

    def matcher(self, api: str | None, filters: Mapping[str, object]) -> Matcher:
        """Return a function that tests whether a request matches."""
        self.check_kept()
        dropped_node_ids = (kind.broker for kind in self.dropped_kinds if kind.broker is not None)
        node_ids = chain(self.node_ids, (call.node_id for call in self.calls), dropped_node_ids)
        return Matcher(api, filters, node_ids, self.topic_name)

    def check_complete(self, beginning: str, matchers: Sequence[Matcher]) -> None:
        """Require that no dropped request may match all of the matchers.

        Args:
            beginning: How the error message begins.
            matchers: The matchers.

        Raises:
            IncompleteJournalError: A dropped request, or one that is left out, may match.
        """
        kinds = [kind for kind in self.dropped_kinds if all(matcher.may_match(kind) for matcher in matchers)]
        if kinds:
            raise IncompleteJournalError(self._incomplete(beginning, kinds))
        self._check_not_left_out(beginning, matchers)

    def _check_not_left_out(self, beginning: str, matchers: Sequence[Matcher]) -> None:
        """Require that the filters of a part of a journal leave out no request that may match all of the matchers."""
        if self.only is None or any(matcher.implies(self.only) for matcher in matchers):
            return
        count = sum(kind.calls for kind in self.left_out if all(matcher.may_match(kind) for matcher in matchers))
        if count:
            raise IncompleteJournalError(
                f"{beginning} {count} request{'s' * (count > 1)} that may match {'were' if count > 1 else 'was'} left "
                f"out: this part of the journal has only {self._contents(self.only)}"
            )

    def _contents(self, only: Matcher) -> str:
        filters = only.given
        return described(filters.pop("api", None), filters)

    def check_undropped(self, in_scope: Matcher, steps: Sequence[Matcher], calls: Sequence[Numbered]) -> None:
        """Require that a sequence of requests, which is not in the journal as a whole, did not begin with dropped ones.

        Raises:
            IncompleteJournalError: The first steps may match dropped requests, and the others are found; or a step may
                match a request that is left out.
        """
        for step in steps:
            self._check_not_left_out("the order is not decided:", [in_scope, step])
        for count, step in enumerate(steps, 1):
            kinds = [kind for kind in self.dropped_kinds if in_scope.may_match(kind) and step.may_match(kind)]
            if not kinds:
                return
            if len(_subsequence(calls, steps[count:])) == len(steps) - count:
                raise IncompleteJournalError(self._incomplete("the order is not decided:", kinds))

    def _incomplete(self, beginning: str, kinds: Sequence[DroppedKind]) -> str:
        count = sum(kind.calls for kind in kinds)
        last_ms = max(inf if kind.last_ms is None else kind.last_ms for kind in kinds)
        later_ms = next((call.received_ms for call in self.calls if call.received_ms > last_ms), None)
        since = "" if later_ms is None else f", or filter with since={later_ms!r} or later"
        return (
            f"{beginning} the journal has dropped {count} older request{'s' * (count > 1)} that may match; "
            f"raise journal_calls or journal_bytes{since}"
        )

    def fail(self, why: str, calls: Sequence[Numbered], marks: Mapping[int, str]) -> NoReturn:
        """Raise an AssertionError with a table of the marked calls and their neighbors, or of the last calls.

        Args:
            why: The first line of the message.
            calls: The calls to choose from, with their numbers.
            marks: Marks by index in `calls`; without marks, the last calls of the journal are shown.
        """
        __tracebackhide__ = True
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
        warnings = [] if self.only is None else [f"This part of the journal has only {self._contents(self.only)}."]
        if not self.dropped:
            return warnings
        return [
            *warnings,
            f"The journal has dropped {self.dropped} older requests: journal_calls and journal_bytes limit it.",
        ]


def view_journal(cluster: Cluster) -> JournalView:
    """Return the journal of a cluster as it is now."""
    journal = cluster.journal
    kinds = tuple(journal.dropped_calls) if journal.dropped else ()
    topic_name = cluster.topics.past_or_present_name_of
    return JournalView(tuple(journal), journal.dropped, tuple(cluster.brokers), journal.mode, kinds, topic_name)


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
