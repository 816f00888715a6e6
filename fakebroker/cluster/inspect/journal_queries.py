"""Queries and assertions on the requests and responses in a journal. Read-only."""

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from itertools import chain, islice
from math import inf
from typing import Any, NoReturn, TypedDict, Unpack

import msgspec
from msgspec.structs import replace

from fakebroker.cluster.call import Call
from fakebroker.cluster.cluster import Cluster
from fakebroker.cluster.inspect.phrases import columns
from fakebroker.cluster.journal.journal import DroppedCalls, DroppedKind, JournalMode
from fakebroker.cluster.request_ids import (
    TopicRef,
    names_generations,
    names_members,
    names_producers,
    names_topics,
    names_transactions,
)
from fakebroker.coordinator.classic.group import Group
from fakebroker.errors import (
    ConfigError,
    ErrorCode,
    IncompleteJournalError,
    check_integer,
    check_number,
    cut_line,
    one_of,
    shown,
)
from fakebroker.protocol.registry import API_BY_NAME
from fakebroker.topic_partition import PartitionName, parse_partition

# The last requests of a group's members


_MAX_CALLS = 5_000
"""How many of the newest calls are read."""


class MemberRequests:
    """The last requests of the members of one group.

    A member without requests in the journal is missing: the journal may be off, or have dropped its requests.
    """

    def __init__(self) -> None:
        self._last: dict[str, Call] = {}
        self._heartbeats: dict[str, list[float]] = {}

    def add_older(self, call: Call, since_ms: float) -> None:
        """Add a call that was received before all calls added so far.

        The time of a heartbeat is recorded only from `since_ms` on.
        """
        for member_id in call.member_ids[:1]:  # The response of a leader's JoinGroup names the other members.
            self._last.setdefault(member_id, call)
            if call.api.name == "Heartbeat" and call.received_ms >= since_ms:
                self._heartbeats.setdefault(member_id, []).insert(0, call.received_ms)

    def last(self, member_id: str) -> Call | None:
        """Return the last request that names a member."""
        return self._last.get(member_id)

    def heartbeats(self, member_id: str) -> list[float]:
        """Return when the heartbeats of a member were received, in milliseconds, oldest first."""
        return self._heartbeats.get(member_id, [])


def requests_of_members(cluster: Cluster, group: Group, since_ms: float) -> MemberRequests:
    """Return the last requests of a group's members, and their heartbeats since a time in milliseconds."""
    requests, group_id = MemberRequests(), group.group_id
    for call in islice(reversed(cluster.journal), _MAX_CALLS):
        # Administrators send the LeaveGroup and OffsetFetch of other members.
        if group_id in call.group_ids and call.api.name not in ("LeaveGroup", "OffsetFetch"):
            requests.add_older(call, since_ms)
    return requests


# A text table of requests, for failed assertions and reports


NEIGHBORS = 2
"""How many requests before and after each marked one are shown."""

MAX_LINES = 30

_HEAD = ("", "#", "api", "client", "connection", "broker", "error", "came", "answered")
_MAX_NAME = 60
"""Maximum number of characters of a client id in a table."""
_GAP = "  ..."  # Instead of requests that are omitted.

Numbered = tuple[int, Call]
"""A call and its sequence number, which starts at 1."""


def table(calls: Sequence[Numbered], marks: Mapping[int, str]) -> str:
    """Return a table of marked calls and their neighbors.

    Args:
        calls: All calls, with their numbers.
        marks: The text in the first column, by index in `calls`; may be empty. Only marked calls and their neighbors
            are in the table.
    """
    near_marks = {near for index in marks for near in range(index - NEIGHBORS, index + NEIGHBORS + 1)}
    shown = sorted(near_marks.intersection(range(len(calls))))
    lines, omitted = _lines(calls, shown[:MAX_LINES], marks), len(shown) - MAX_LINES
    return "\n".join([*lines, f"{_GAP} and {omitted} more"] if omitted > 0 else lines)


def tail(calls: Sequence[Numbered], count: int) -> str:
    """Return a table of the last `count` calls."""
    return "\n".join(_lines(calls, range(max(0, len(calls) - count), len(calls)), {}))


def _lines(calls: Sequence[Numbered], shown: Sequence[int], marks: Mapping[int, str]) -> list[str]:
    if not shown:
        return ["  (no requests)"]
    start_ms = calls[0][1].received_ms
    rows = [_HEAD, *(_cells(*calls[index], marks.get(index, ""), start_ms) for index in shown)]
    lines = columns(rows)
    for at in range(len(shown) - 1, 0, -1):
        if shown[at] != shown[at - 1] + 1:
            lines.insert(at + 1, _GAP)
    return lines


def _cells(number: int, call: Call, mark: str, start_ms: float) -> tuple[str, ...]:
    return (
        mark,
        str(number),
        f"{call.api.name} v{call.api_version}",
        cut_line(repr(call.client_id), _MAX_NAME),
        str(call.connection_id),
        str(call.node_id),
        ", ".join(error.name for error in call.errors) or "-",
        f"+{call.received_ms - start_ms:.1f} ms" + _handling(call, start_ms),
        ("not yet" if call.latency_ms is None else f"after {call.latency_ms:.1f} ms")
        + (" (fault)" if call.fault else "")
        + "".join(f" ({error})" for error in call.action_errors),
    )


def _handling(call: Call, start_ms: float) -> str:
    """Return when a request was handled, unless it was handled when it was received."""
    if call.handled_ms is None:
        return ", not handled"
    return f", handled +{call.handled_ms - start_ms:.1f} ms" if call.handled_ms != call.received_ms else ""


# Filters: validation, matching, and descriptions for error messages


class Filters(TypedDict, total=False):
    """Filters besides the API and the client id; a request must match all of them.

    Attributes:
        group: The request contains this group id.
        member: The request names this member by its member id, instance id or client id; or it is a JoinGroup whose
            response assigns this member id.
        instance_id: The request contains this `group.instance.id`.
        topic: The request names this topic, by name or by id; or it is a Fetch whose response has the topic.
        partition: The request names this partition: "orders-0" or ("orders", 0). A number matches any partition with
            this index; with `topic`, only the partition of this topic. The same requests and responses are searched as
            for `topic`.
        transactional_id: The request names this transactional id.
        producer_id: The request names this producer id, also in record batches; or its response assigns it.
        generation: The request has this generation, or in a consumer group (KIP-848) this member epoch.
        principal: The client is authenticated as this user, such as "alice" or "User:alice".
        broker: The request was sent to the broker with this node id.
        connection: The request was received on the connection with this number.
        version: The request has this version of the API.
        error: The response contains this error, by Kafka's name; "NONE" matches responses without errors.
        fault: Whether a fault was injected into the request.
        since: The request was received at this time or later: milliseconds since the epoch, by the brokers' clock.
        until: The request was received before this time, as `since`.
    """

    group: str
    member: str
    instance_id: str
    topic: str
    partition: int | PartitionName
    transactional_id: str
    producer_id: int
    generation: int
    principal: str
    broker: int
    connection: int
    version: int
    error: str | ErrorCode
    fault: bool
    since: float
    until: float


class StepFilters(Filters, total=False):
    """Filters besides the API."""

    client_id: str


Step = str | tuple[str, StepFilters]
"""One step of `assert_order`: the name of an API, or a pair of a name and filters."""

TopicName = Callable[[bytes], str | None]
"""A function that returns the name of the topic with an id; None if it is not known."""

_FILTERS: Mapping[str, Callable[[Call, Any], bool]] = {
    "client_id": lambda call, client_id: call.client_id == client_id,
    "group": lambda call, group_id: group_id in call.group_ids,
    "member": lambda call, member: _names_member(call, member),
    "instance_id": lambda call, instance_id: instance_id in call.instance_ids,
    "transactional_id": lambda call, transactional_id: transactional_id in call.transactional_ids,
    "producer_id": lambda call, producer_id: producer_id in call.producer_ids,
    "generation": lambda call, generation: generation in call.generations,
    "principal": lambda call, principal: principal in (call.principal, call.principal.removeprefix("User:")),
    "broker": lambda call, node_id: call.node_id == node_id,
    "connection": lambda call, connection_id: call.connection_id == connection_id,
    "version": lambda call, version: call.api_version == version,
    "error": lambda call, error: call.has_response and error in (call.errors or (ErrorCode.NONE,)),
    "fault": lambda call, fault: (call.fault is not None) == fault,
    "since": lambda call, since_ms: call.received_ms >= since_ms,
    "until": lambda call, until_ms: call.received_ms < until_ms,
}
_PLACES = ("topic", "partition")
"""Filters that are matched together: by the same partition of a request."""
_NAMES = (*_FILTERS, *_PLACES)
_TEXTS = ("client_id", "group", "member", "instance_id", "topic", "transactional_id", "principal")
_NUMBERS = ("producer_id", "generation", "connection", "version")
_TIMES = ("since", "until")

_DROPPED_FILTERS: Mapping[str, Callable[[DroppedKind, Any], bool]] = {
    "client_id": lambda kind, client_id: kind.client_id in (None, client_id),
    "group": lambda kind, group_id: kind.groups is None or group_id in kind.groups,
    "member": lambda kind, _: kind.api is None or names_members(kind.api),
    "instance_id": lambda kind, _: kind.api is None or names_members(kind.api),
    "topic": lambda kind, _: kind.api is None or names_topics(API_BY_NAME[kind.api]),
    "partition": lambda kind, _: kind.api is None or names_topics(API_BY_NAME[kind.api]),
    "transactional_id": lambda kind, _: kind.api is None or names_transactions(kind.api),
    "producer_id": lambda kind, _: kind.api is None or names_producers(kind.api),
    "generation": lambda kind, _: kind.api is None or names_generations(kind.api),
    "principal": lambda kind, _: True,
    "broker": lambda kind, node_id: kind.broker in (None, node_id),
    "connection": lambda kind, connection_id: kind.connection in (None, connection_id),
    "version": lambda kind, version: kind.version in (None, version),
    "error": lambda kind, _: True,
    "fault": lambda kind, fault: kind.has_fault in (None, fault),
    "since": lambda kind, since_ms: kind.last_ms is None or kind.last_ms >= since_ms,
    "until": lambda kind, _: True,  # The time of the first request of a kind is not known.
}
"""Whether dropped requests of a kind may match, by filter. They do not if one of the functions returns False."""


class Matcher:
    """Tests whether requests match.

    Args:
        api: The name of the API; None matches any.
        filters: The other filters, by name; a filter that is None matches any request.
        node_ids: The node ids that `broker` may have: the ids of present and of removed brokers.
        topic_name: Returns the name of a topic by its id.

    Raises:
        ConfigError: There is no such API, broker, error or filter, or a filter has the wrong type.
    """

    def __init__(
        self, api: str | None, filters: Mapping[str, object], node_ids: Iterable[int], topic_name: TopicName
    ) -> None:
        self._api = api
        self._given = _checked(api, filters, node_ids)
        self._tests = [(_FILTERS[name], value) for name, value in self._given.items() if name not in _PLACES]
        self._topic, self._partition = self._given.get("topic"), self._given.get("partition")
        self._finds_places = len(self._tests) < len(self._given)
        self._topic_name = topic_name

    def __call__(self, call: Call) -> bool:
        if self._api not in (None, call.api.name):
            return False
        if not all(test(call, value) for test, value in self._tests):
            return False
        return not self._finds_places or any(self._is_place(*place) for place in call.partitions)

    def _is_place(self, topic: TopicRef, partition: int | None) -> bool:
        if self._partition not in (None, partition):
            return False
        name = topic if isinstance(topic, str) else self._topic_name(topic)
        return self._topic in (None, name)

    @property
    def given(self) -> dict[str, Any]:
        """The filters that are given, by name, as plain values; `api` is one of them."""
        named = {} if self._api is None else {"api": self._api}
        return named | {
            name: value.name if isinstance(value, ErrorCode) else value for name, value in self._given.items()
        }

    def implies(self, other: "Matcher") -> bool:
        """Return whether this matcher has all filters of another, so that it matches only what the other matches."""
        return other.given.items() <= self.given.items()

    def may_match(self, kind: DroppedKind) -> bool:
        """Return whether dropped requests of a kind may match."""
        if self._api is not None and kind.api not in (None, self._api):
            return False
        return all(_DROPPED_FILTERS[name](kind, value) for name, value in self._given.items())


def _checked(api: str | None, filters: Mapping[str, object], node_ids: Iterable[int]) -> dict[str, Any]:
    """Validate filters, and return those that are given."""
    for name, value in filters.items():
        if name not in _NAMES:
            raise ConfigError.unknown(name, value, one_of(_NAMES, name), kind="filter")
    given = {name: value for name, value in filters.items() if value is not None}
    if api is not None:
        _check_known("api", api, API_BY_NAME)
    for name in _TEXTS:
        if not isinstance(given.get(name, ""), str):
            raise ConfigError.of(name, given[name], "a string")
    for name in _NUMBERS:
        check_integer(name, given.get(name, 0), least=-2 if name == "generation" else 0)
    if "broker" in given:
        _check_known("broker", given["broker"], dict.fromkeys(node_ids))
    for name in _TIMES:
        check_number(name, given.get(name, 0), least=0)
    if "error" in given:
        given["error"] = _error(given["error"])
    if not isinstance(given.get("fault", False), bool):
        raise ConfigError.of("fault", given["fault"], "True or False")
    if "partition" in given:
        topic, given["partition"] = _partition(given["partition"])
        if topic is not None and given.setdefault("topic", topic) != topic:
            raise ConfigError.of("partition", filters["partition"], f"a partition of topic {given['topic']!r}")
    return given


def _partition(partition: object) -> tuple[str | None, int]:
    """Return the topic and the index of the filter `partition`; the topic is None if the filter is a number."""
    if isinstance(partition, tuple) or (isinstance(partition, str) and not partition.isdecimal()):
        return parse_partition(partition)
    if isinstance(partition, str):
        return None, int(partition)
    check_integer("partition", partition, least=0)
    assert isinstance(partition, int)
    return None, partition


def _names_member(call: Call, member: str) -> bool:
    ids = (*call.member_ids, *call.instance_ids)
    return member in ids or (call.client_id == member and bool(ids))


def pair(step: Step) -> tuple[str, StepFilters]:
    """Return the name of the API and the filters of a step.

    Raises:
        ConfigError: The step is neither a name nor a pair.
    """
    if isinstance(step, str):
        return step, {}
    if not (isinstance(step, tuple) and [type(part) for part in step] == [str, dict]):
        raise ConfigError.of("step", step, "the name of an API, or a pair of a name and a dict of filters")
    return step


def described(api: str | None, filters: Mapping[str, object]) -> str:
    """Describe filters for an error message, such as "Heartbeat with client_id='a'"."""
    named = ", ".join(f"{name}={shown(value)}" for name, value in filters.items() if value is not None)
    return str(api or "request") + (f" with {named}" if named else "")


def _check_known(field: str, name: object, known: Iterable[object]) -> None:
    if name not in known:
        raise ConfigError.of(field, name, one_of(known, name))


def _error(error: object) -> ErrorCode:
    name = error.name if isinstance(error, ErrorCode) else error
    _check_known("error", name, ErrorCode.__members__)
    return ErrorCode[str(name)]


# Queries and assertions


_SHOWN = 10
"""Maximum number of requests that a failed assertion shows in place of the step that was not found."""


class JournalQueries:
    """Queries on a journal, which belongs to a cluster in this or another process, or comes from a file."""

    def view(self) -> "JournalView":
        """Return the journal as it is now."""
        raise NotImplementedError

    def requests(self, api: str | None = None, client_id: str | None = None, **filters: Unpack[Filters]) -> list[Call]:
        """Return the requests in the journal, oldest first, with their responses.

        Requests that the journal has dropped are missing, see `JournalView.dropped`.

        Args:
            api: Only requests of this API, by Kafka's name, such as "JoinGroup".
            client_id: Only requests of this client.
            filters: Only requests that match all of these filters; see `Filters`.

        Raises:
            ConfigError: An API, broker, error or filter is unknown; or the journal is off.
        """
        view = self.view()
        matches = view.matcher(api, {"client_id": client_id, **filters})
        return [call for call in view.calls if matches(call)]

    def responses(self, api: str | None = None, client_id: str | None = None, **filters: Unpack[Filters]) -> list[Call]:
        """Return the matching requests that have a response, in the order of their responses; see `requests`."""
        view = self.view()
        matches = view.matcher(api, {"client_id": client_id, **filters})
        answered = [numbered for numbered in view.numbered() if numbered[1].has_response and matches(numbered[1])]
        return [call for _, call in sorted(answered, key=_order_of_response)]

    def count(self, api: str | None = None, client_id: str | None = None, **filters: Unpack[Filters]) -> int:
        """Return the number of matching requests since the start or the last reset; see `requests`.

        Raises:
            IncompleteJournalError: The journal has dropped requests that may match. The message says how many.
            ConfigError: An API, broker, error or filter is unknown; or the journal is off.
        """
        view = self.view()
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
            IncompleteJournalError: The journal has dropped requests that may match the first steps, and it contains the
                rest of the steps. It is an AssertionError, too.
            ConfigError: An API, broker, error or filter is unknown, there is no step, or the journal is off.
        """
        __tracebackhide__ = True  # pytest shows the test's call.
        view = self.view()
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
        view = self.view()
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

    def view(self) -> "JournalView":
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
        """Require that a sequence, which is not complete in the journal, did not begin with dropped requests.

        Raises:
            IncompleteJournalError: The first steps may match dropped requests, and the rest of the steps is found. Or a
                step may match a request that is left out.
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
        raise AssertionError("\n".join([f"{why}:", shown, *self.warnings()]))

    def report(self, count: int) -> str:
        """Return a table of the last `count` requests."""
        if self.mode == "off":
            return "no requests: the journal is off"
        shown = min(count, len(self.calls))
        lines = [f"the last {shown} of {len(self.calls)} requests:", tail(self.numbered(), count), *self.warnings()]
        return "\n".join(lines)

    def warnings(self) -> list[str]:
        """Return lines that say which requests are missing."""
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

    Responses that were sent at once are in the order of their requests. A delayed response comes after the response to
    the last request that was received before the delayed response was sent. Several such delayed responses are ordered
    by time. Times alone are not sufficient, because a manual clock does not advance by itself.
    """
    number, call = numbered
    return call.answered_after or number, call.answered_after > 0, call.answered_ms or 0.0
