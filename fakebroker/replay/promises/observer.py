"""Promises as observers: each sees the events of one group in order of time. Does not depend on Spark.

A request is two events: `sent` when it was sent, and `answered` when its response was read. At equal times, `sent`
comes first. A request without a response has an `unanswered` right after `sent`, and no `answered`. In `sent`, the
response is known already: a promise that uses it there knows more than the member that sends the request.

    class OneLeader(Promise):
        apis = frozenset({"JoinGroup", "SyncGroup"})

        def answered(self, request: Request) -> None: ...
        def end(self) -> None: ...

Events are in order by one clock only. Members may run on machines whose clocks differ by up to `CLOCK_SKEW_US`. So a
promise adds `CLOCK_SKEW_US` when it compares times of different members. A request takes effect between `sent_us` and
`done_us`. Without a response, it takes effect at any time after `sent_us`, or never.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache, partial
from heapq import heappop, heappush
from itertools import count
from typing import ClassVar, Literal, NamedTuple

import msgspec

from fakebroker.replay.members.events import PARKED_APIS
from fakebroker.replay.script.script import Script

CLOCK_SKEW_US = 100_000
"""Maximum difference between the clocks of the machines on which members run, in microseconds."""

BOUND_US = 5_000_000
"""Maximum delay of a coordinator, in microseconds.

It removes an expired member within this time. It also serves a group within this time after FindCoordinator names it.
"""

OVERDUE_US = 4_000_000
"""A parked request is overdue this long after the rebalance timeout. Members give up 5 s after the timeout."""

REQUEST_TIMEOUT_US = 30_000_000
"""Time that a client waits for responses to requests that are never parked (`request.timeout.ms`), in microseconds."""

LOADING_US = 60_000_000
"""Maximum time that a coordinator loads, in microseconds. Meanwhile, it answers all heartbeats without an error."""

RETENTION_US = 60_000_000
"""Minimum retention of offsets (`offsets.retention.minutes` = 1), in microseconds."""

TARGET_HEARTBEATS = 3
"""Number of heartbeats that a partition may need to move.

The first one tells the old owner to give up the partition. The next one says that it has. With one more, the new owner
gets the partition.
"""

SESSION_APIS = frozenset({"JoinGroup", "SyncGroup", "Heartbeat", "OffsetCommit"})
"""Requests that extend the session of a member of the classic protocol."""

COORDINATOR_APIS = SESSION_APIS | {"ConsumerGroupHeartbeat", "OffsetFetch"}
"""Requests that only the coordinator of a group serves."""

LOADING, NOT_AVAILABLE, NOT_COORDINATOR = 14, 15, 16
MOVED = (LOADING, NOT_AVAILABLE, NOT_COORDINATOR)
"""Errors that say nothing about the member: the coordinator is loading, or another broker is the coordinator."""
ILLEGAL_GENERATION, UNKNOWN_MEMBER_ID, REBALANCE_IN_PROGRESS, FENCED_INSTANCE_ID = 22, 25, 27, 82


class Request(NamedTuple):
    """A request with its response, or another row about a group.

    It has the fields of `events.Event` without `lookups`, and two more: `done_us` and `row`.

    Attributes:
        done_us: When its response was read; None without a response.
        row: The row, if this is the last request of a row that stands for several requests; else None. Observers get
            such a row as two requests. The first one has the `count`, and the last one has a `count` of 0. Between
            them, requests were sent at regular intervals, and all got the same response.
        found: In a FindCoordinator, the coordinator of this group, as in `events.Event`.
    """

    scheduled_us: int
    sent_us: int
    done_us: int | None
    api: str
    version: int
    broker: int
    group: str | None
    member: str | None
    generation: int | None
    error: int | None
    assigned: list[str] | None
    kind: str
    count: int  # type: ignore[assignment]  # hides `tuple.count`, for the name of the column
    until_us: int | None
    missing: str | None
    member_id: str | None
    instance_id: str | None
    leader: str | None
    protocol: str | None
    members: int | None
    offsets: list[tuple[str, int]] | None
    source: str
    transaction: tuple[int | None, int | None, int | None, bool | None] | None
    epoch: int | None
    owned: list[str] | None
    latency_us: int | None
    row: "Request | None" = None
    found: Sequence[tuple[str, int, int, bool]] | None = None

    @property
    def owner(self) -> str | None:
        """What identifies the member: the instance id if it is static, else the member id."""
        return self.instance_id or self.member_id


class Lookup(NamedTuple):
    """A coordinator in a FindCoordinator response.

    Attributes:
        node: Its node id; -1 with an error.
        error: The error.
        sent_us: When the request was sent.
        at_us: When the response was read.
        is_sign: Whether it shows that a member has lost its coordinator. A client that has just started also looks up
            its coordinator. Such a look-up is a sign only if the result has changed.
        request: The request.
    """

    node: int
    error: int
    sent_us: int
    at_us: int
    is_sign: bool
    request: Request


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of the whole run before the first event. Times are in microseconds.

    Attributes:
        end_us: When the last request of the run was sent, or the last action done.
        partitions: Partition counts of the topics whose count did not change.
        answering: Pairs of a broker and a second since the Unix epoch. In this second, the broker answered a request
            about a group that was less than a second old.
        listed_us: When the reader of committed records sent its last successful ListTransactions; None without one.
        delay_us: `group.initial.rebalance.delay.ms`.
        session_us: `group.consumer.session.timeout.ms`, the session timeout in the consumer protocol.
        heartbeat_us: `group.consumer.heartbeat.interval.ms`, the heartbeat interval in the consumer protocol.
    """

    end_us: int
    partitions: Mapping[str, int] = {}
    answering: frozenset[tuple[int, int]] = frozenset()
    listed_us: int | None = None
    delay_us: int = 3_000_000
    session_us: int = 45_000_000
    heartbeat_us: int = 5_000_000

    def answers_before(self, broker: int, at_us: int) -> bool:
        """Return whether a broker answered requests in the three whole seconds before a time."""
        second = at_us // 1_000_000
        return any((broker, second - before) in self.answering for before in (1, 2, 3))


class Generation:
    """A generation of the classic protocol, as its members have seen it.

    Attributes:
        joined_us: When the first response to a JoinGroup was read; None if none was seen.
        completed_us: When the first response to a SyncGroup was read; None if none was seen. From then on, the
            generation is complete.
        listed: Number of members in the last list that the leader got; None if no list was seen.
    """

    __slots__ = ("completed_us", "joined_us", "listed")

    def __init__(self) -> None:
        self.joined_us: int | None = None
        self.completed_us: int | None = None
        self.listed: int | None = None


class Group:
    """What all promises know of a group. It is updated before they get an event.

    Attributes:
        name: The group; None for requests about no group.
        scripts: The scripts of its members, by name of the member.
        uses_consumer_protocol: Whether a member uses the consumer protocol (KIP-848), at least for a while.
        life: How often the group has started over at generation 1, because it was deleted or expired. A group may also
            return to generation 1 because generation 2 was never complete. Then its life stays the same.
        generations: All generations by life and number.
        moved_us: When look-ups showed that a member had lost its coordinator.
    """

    def __init__(
        self, name: str | None, scripts: Mapping[str, Script], *, uses_consumer_protocol: bool = False
    ) -> None:
        self.name = name
        self.scripts = scripts
        self.uses_consumer_protocol = uses_consumer_protocol
        self.life = 0
        self.generations: dict[tuple[int, int], Generation] = {}
        self.moved_us: list[int] = []
        self._node: int | None = None
        self._before: int | None = None
        self._complete: tuple[int, int] | None = None

    def kept_coordinator(self, since_us: int, until_us: int) -> bool:
        """Return whether no member has lost its coordinator between two times."""
        return bisect_right(self.moved_us, until_us) == bisect_right(self.moved_us, since_us)

    def step(self, request: Request) -> None:
        """Take note of a response to a JoinGroup or SyncGroup. The group uses the classic protocol."""
        if request.error != 0 or request.member is None:
            return
        number, at_us = request.generation, request.done_us
        assert number is not None
        assert at_us is not None
        if request.api == "JoinGroup" and number == 1 and (self._before or 0) > 1 and self._complete is not None:
            completed, completed_us = self._complete
            if completed > 1 and request.sent_us > completed_us:
                self.life += 1
        self._before = number
        generation = self.generations.setdefault((self.life, number), Generation())
        if request.api == "SyncGroup":
            self._complete = number, at_us
            if generation.completed_us is None:
                generation.completed_us = at_us
            return
        if generation.joined_us is None:
            generation.joined_us = at_us
        if request.members:
            generation.listed = request.members

    def lookup(self, request: Request, node: int, error: int, again: bool) -> Lookup:
        """Take note of a coordinator in a FindCoordinator response."""
        assert request.done_us is not None
        is_sign = error == 0 and (again or self._node not in (None, node))
        if error == 0:
            self._node = node
        if is_sign:
            self.moved_us.append(request.done_us)
        return Lookup(node, error, request.sent_us, request.done_us, is_sign, request)


class Found(msgspec.Struct, frozen=True):
    """A violation of a promise.

    Attributes:
        promise: Name of the promise, as in `[promises]`.
        group: The group, if the violation concerns one.
        generation: The generation, if the violation concerns one.
        members: Names of the members, sorted.
        at_us: Start of the violation.
        until_us: End of the violation.
        what: What happened, as a sentence for reports.
        events: The events that show it.
    """

    promise: str
    group: str | None
    generation: int | None
    members: list[str]
    at_us: int
    until_us: int
    what: str
    events: Sequence[Request]


class Promise:
    """A promise to the members of one group.

    Read a subclass from top to bottom: each situation in which the promise does not apply is a branch.

    A case is a situation in which a violation would have been seen. Each violation belongs to a case.

    Attributes:
        name: Its name in `[promises]`.
        sentence: What is promised.
        cases: What a case is, in the plural.
        apis: The APIs whose requests it sees.
        protocol: "consumer" if it sees only groups in which a member uses the consumer protocol, "classic" if it sees
            only the other groups, None if it sees all groups.
        group: What is known of the group.
        run: What is known of the run.
        counted: The number of cases so far.
        found: The violations so far.
    """

    name: ClassVar[str]
    sentence: ClassVar[str]
    cases: ClassVar[str]
    apis: ClassVar[frozenset[str]] = frozenset()
    protocol: ClassVar[Literal["classic", "consumer"] | None] = None

    def __init__(self, group: Group, run: Run) -> None:
        self.group = group
        self.run = run
        self.counted = 0
        self.found: list[Found] = []

    def sent(self, request: Request) -> None:
        """A request was sent."""

    def unanswered(self, request: Request) -> None:
        """A request was sent that has no response. This comes after `sent`."""

    def answered(self, request: Request) -> None:
        """A response was read."""

    def looked_up(self, lookup: Lookup) -> None:
        """A FindCoordinator response that names the group was read."""

    def acted(self, act: Request) -> None:
        """A member did an action of its script: `act.api` is the action, `act.sent_us` is when."""

    def seen(self, request: Request) -> None:
        """The reader of committed records has seen a batch (Fetch), or an open transaction (ListTransactions)."""

    def end(self) -> None:
        """The replay is over: all events were given."""

    def case(self, count: int = 1) -> None:
        """Count situations in which a violation would have been seen."""
        self.counted += count

    def violation(
        self,
        what: str,
        *events: Request,
        at_us: int,
        until_us: int,
        generation: int | None = None,
        members: Iterable[str | None] | None = None,
    ) -> None:
        """Report a violation.

        Args:
            what: What happened.
            events: The events that show it.
            at_us: When it began.
            until_us: When it ended.
            generation: The generation; None if the violation is about no generation.
            members: Names of the members; by default, the members of the events.
        """
        names = (each.member for each in events) if members is None else members
        listed = sorted({each for each in names if each is not None})
        rows = (each.row or each for each in events)
        shown = {id(row): row for row in rows}  # requests contain lists, so they have no hash
        self.found.append(
            Found(self.name, self.group.name, generation, listed, at_us, until_us, what, tuple(shown.values()))
        )


_Method = Callable[[Request], None]
_GENERAL = ("looked_up", "acted", "seen")
_OF_APIS = ("sent", "unanswered", "answered")


@lru_cache(16)
def _overridden(kinds: tuple[type[Promise], ...]) -> dict[str, list[tuple[int, type[Promise]]]]:
    """Return, by name of a method, the classes that override it, each with its place."""
    return {
        name: [(place, kind) for place, kind in enumerate(kinds) if getattr(kind, name) is not getattr(Promise, name)]
        for name in (*_GENERAL, *_OF_APIS)
    }


Observer = Callable[[Group, Run], Promise]
"""Makes a promise, or an availability check, for a group."""


class Observation:
    """Gives the events of one group to its promises, in order of time.

    Args:
        promises: Make the promises.
        group: What is known of the group.
        run: What is known of the run.
    """

    def __init__(self, promises: Sequence[Observer], group: Group, run: Run) -> None:
        self.promises = [promise(group, run) for promise in promises]
        self.group = group
        self._overridden = _overridden(tuple(map(type, self.promises)))
        self._looked_up, self._acted, self._seen = (
            [getattr(self.promises[place], name) for place, _ in self._overridden[name]] for name in _GENERAL
        )
        self._methods: dict[str, Sequence[list[_Method]]] = {}  # By API, as in `_OF_APIS`.
        self._number = count()
        # A heap of later events: responses, and the last requests of rows that stand for several.
        self._later: list[tuple[int, int, int, Request, bool]] = []
        # Time of the event, time of sending, number, request, and whether it is such a last request.

    def row(self, request: Request) -> None:
        """Take the next row about the group.

        Rows come in the order of `sent_us`. At equal times, actions come first.
        """
        sent_us, later = request.sent_us, self._later
        if later and later[0][0] < sent_us:
            self._until(sent_us)
        if request.kind != "request" and request.api != "OffsetFetch":  # A seen OffsetFetch is a part of a response.
            for method in self._acted if request.kind == "act" else self._seen:
                method(request)
            return
        if request.count > 1 and (at_us := request.until_us) is not None:
            last = request._replace(sent_us=at_us, scheduled_us=at_us, done_us=at_us, count=0, row=request)
            heappush(later, (at_us, 0, next(self._number), last, True))  # before the responses at this time
        sent, unanswered, _ = self._methods.get(request.api) or self._methods_of(request.api)
        for method in sent:
            method(request)
        if request.done_us is None:
            for method in unanswered:
                method(request)
        else:
            heappush(later, (request.done_us, sent_us, next(self._number), request, False))

    def end(self) -> None:
        """Give the remaining events to the promises, and then the end."""
        self._until(2**63)
        for promise in self.promises:
            promise.end()

    def _methods_of(self, api: str) -> Sequence[list[_Method]]:
        """Return the methods that get the requests of an API, as in `_OF_APIS`."""
        sent, unanswered, answered = self._methods[api] = [
            [getattr(self.promises[place], name) for place, kind in self._overridden[name] if api in kind.apis]
            for name in _OF_APIS
        ]
        if api == "FindCoordinator":
            # Without a reference to `self`: a cycle would keep it until the garbage collector runs.
            answered.insert(0, partial(_find, self.group, self._looked_up))
        elif api in PARKED_APIS and not self.group.uses_consumer_protocol:
            answered.insert(0, self.group.step)
        return sent, unanswered, answered

    def _until(self, at_us: int) -> None:
        """Give the promises all events that happen before a time."""
        later, methods = self._later, self._methods
        while later and later[0][0] < at_us:
            request, is_last = heappop(later)[3:]
            sent, _, answered = methods[request.api]
            if not is_last:
                for method in answered:
                    method(request)
                continue
            for method in sent:
                method(request)
            heappush(later, (request.sent_us, request.sent_us, next(self._number), request, False))


def _find(group: Group, looked_up: Iterable[Callable[[Lookup], None]], request: Request) -> None:
    """Give the promises the coordinators that a response names."""
    for _, node, error, again in request.found or ():
        lookup = group.lookup(request, node, error, again)
        for method in looked_up:
            method(lookup)
