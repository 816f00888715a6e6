"""Promises about the coordinator of a group: it answers, FindCoordinator names it, and there is only one."""

from bisect import bisect_left, bisect_right
from collections import Counter, deque

from fakebroker.errors import ErrorCode
from fakebroker.protocol.registry import APIS
from fakebroker.replay.members.events import PARKED_APIS
from fakebroker.replay.promises.observer import (
    BOUND_US,
    CLOCK_SKEW_US,
    COORDINATOR_APIS,
    MOVED,
    NOT_AVAILABLE,
    NOT_COORDINATOR,
    OVERDUE_US,
    REQUEST_TIMEOUT_US,
    SESSION_APIS,
    Group,
    Lookup,
    Promise,
    Request,
    Run,
)

_SECOND_US = 1_000_000

_MOST_EVENTS = 10
"""Maximum number of events that show a violation."""


class _Unanswered:
    """A request without a response.

    Attributes:
        request: The request.
        is_leaders: Whether it is the SyncGroup of the leader.
        is_repeated: Whether its member had sent a JoinGroup or SyncGroup shortly before that has no response either. A
            broker may handle the earlier of them last, and answer no other.
        beat: For a JoinGroup, the first successful heartbeat of another member to the same broker, at least `BOUND_US`
            later.
        ended_us: When the client gave up, or the replay ended. It is known only in `end`.
        stopped_us: When its member was stopped, or `ended_us`. It is known only in `end`. After this time, the broker
            may no longer have the request.
    """

    __slots__ = ("beat", "ended_us", "is_leaders", "is_repeated", "request", "stopped_us")

    def __init__(self, request: Request, *, is_leaders: bool, is_repeated: bool) -> None:
        self.request = request
        self.is_leaders = is_leaders
        self.is_repeated = is_repeated
        self.beat: Request | None = None
        self.ended_us = self.stopped_us = 0


class _Unassigned:
    """A member that has sent requests and never got an assignment.

    Attributes:
        first: Its first request.
        last: Its last request.
        until_us: When the response to its last request was read; without a response, when the request was sent.
        joins: The number of its successful JoinGroups.
        last_join: The last successful JoinGroup.
    """

    __slots__ = ("first", "joins", "last", "last_join", "until_us")

    def __init__(self, first: Request) -> None:
        self.first = self.last = first
        self.until_us = first.sent_us
        self.joins = 0
        self.last_join: Request | None = None


class Answered(Promise):
    """Requests are answered, and members that join get an assignment.

    Requests without a response are judged in `end`. Before, it is not known whether a script stopped or paused the
    member. There are few such requests.
    """

    name = "answered"
    sentence = (
        "A broker that answers requests leaves none unanswered; JoinGroup and SyncGroup are answered within the "
        "rebalance timeout."
    )
    cases = "requests that were answered, or due for an answer by a broker that answered others"
    apis = frozenset(api.name for api in APIS)

    def __init__(self, group: Group, run: Run) -> None:
        super().__init__(group, run)
        scripts = group.scripts.values()
        # After this time, a parked request is overdue, and a silent member must have been removed.
        self._overdue_us = max((each.rebalance_timeout_ms for each in scripts), default=0) * 1_000 + OVERDUE_US
        self._removed_us = max((each.session_timeout_ms for each in scripts), default=0) * 1_000 + BOUND_US
        self._unanswered: list[_Unanswered] = []
        self._parked_us: dict[str | None, int] = {}  # By member, when it sent its last JoinGroup or SyncGroup of these.
        self._joining: dict[int, deque[_Unanswered]] = {}  # JoinGroups without a `beat`, by broker.
        self._leading: dict[str, int | None] = {}  # By member id, the generation that it leads by its last JoinGroup.
        self._lives: list[int] = []  # When the lives of the group after the first one began.
        self._completed: dict[tuple[int, int], Request] = {}  # The first SyncGroup of each life and generation.
        self._has_expected_instances = False
        self._busy_us = 0  # Until then, members have sent or got something.
        self._quiet: list[tuple[int, int]] = []  # Times of about `_removed_us` or more in which no member has.
        self._unassigned: dict[str, _Unassigned] = {}
        self._assigned: set[str] = set()
        self._is_refused = False  # A member without an assignment was referred to another coordinator.
        self._nodes: set[int] = set()
        self._acts: dict[str, list[Request]] = {}

    def looked_up(self, lookup: Lookup) -> None:
        if lookup.error == 0:
            self._nodes.add(lookup.node)

    def acted(self, act: Request) -> None:
        if act.member is not None and act.api != "start":
            self._acts.setdefault(act.member, []).append(act)

    def sent(self, request: Request) -> None:
        sent_us, end_us, api = request.sent_us, request.done_us, request.api
        if end_us is None:
            self._add_unanswered(request)
            end_us = sent_us
        elif api == "Heartbeat":
            if self._joining and request.error == 0 and request.member is not None:
                self._add_beat(request)
        elif api == "JoinGroup" and request.error == 0 and request.member_id is not None:
            # Only its last JoinGroup counts: a generation that was never complete may be used again, with another
            # leader. The SyncGroup may be sent at the moment at which this response is read. Then it comes before
            # `answered`, so that the response is used here.
            leads = request.generation is not None and request.leader == request.member_id
            self._leading[request.member_id] = request.generation if leads else None
        if request.member is None:
            return
        if sent_us - self._busy_us >= self._removed_us - _SECOND_US:
            self._quiet.append((self._busy_us, sent_us))
        if request.count > 1 and request.until_us is not None and request.until_us > end_us:
            end_us = request.until_us
        if end_us > self._busy_us:
            self._busy_us = end_us

    def answered(self, request: Request) -> None:
        if request.kind == "request":
            self.counted += request.count
        if self._unassigned or request.api in PARKED_APIS:
            self._note(request)

    def _add_unanswered(self, request: Request) -> None:
        """Keep a request without a response."""
        if request.until_us is not None and request.version < 0:
            return  # It was not sent, because there was no connection.
        is_leaders = (
            request.api == "SyncGroup"
            and request.generation is not None
            and self._leading.get(request.member_id or "") == request.generation
        )
        parked_us = self._parked_us.get(request.member)
        is_repeated = parked_us is not None and request.sent_us <= parked_us + BOUND_US
        if request.member is not None and request.api in PARKED_APIS and request.version >= 0:
            self._parked_us[request.member] = request.sent_us
        each = _Unanswered(request, is_leaders=is_leaders, is_repeated=is_repeated)
        self._unanswered.append(each)
        if request.api == "JoinGroup" and request.member is not None:
            self._joining.setdefault(request.broker, deque()).append(each)
        self._note(request)

    def _add_beat(self, beat: Request) -> None:
        """Keep a successful heartbeat with the JoinGroups before it that have no response."""
        joining = self._joining.get(beat.broker)
        while joining and joining[0].request.sent_us + BOUND_US < beat.sent_us:
            each = joining.popleft()
            # If the member itself sends heartbeats, it does not wait anymore.
            if each.request.member != beat.member:
                each.beat = beat
        if joining is not None and not joining:
            del self._joining[beat.broker]

    def _note(self, request: Request) -> None:
        """Take note of a request of the classic protocol."""
        api, member = request.api, request.member
        if api not in SESSION_APIS:
            return
        if member is None:
            self._has_expected_instances |= api == "JoinGroup"  # From a tool (KAFKA-8397).
            return
        is_successful = request.error == 0
        if member not in self._assigned:
            each = self._unassigned.get(member)
            if is_successful and api == "SyncGroup":
                self._assigned.add(member)
                self._unassigned.pop(member, None)
            elif each is not None or api == "JoinGroup":
                each = self._unassigned.setdefault(member, each or _Unassigned(request))
                each.last = request
                each.until_us = max(each.until_us, request.done_us or request.sent_us)
                if is_successful and api == "JoinGroup":
                    each.joins, each.last_join = each.joins + 1, request
                self._is_refused |= request.error in MOVED
        if is_successful and api in PARKED_APIS and not self.group.uses_consumer_protocol:
            assert request.generation is not None
            assert request.done_us is not None
            if self.group.life > len(self._lives):
                self._lives.append(request.done_us)
            if api == "SyncGroup":
                self._completed.setdefault((self.group.life, request.generation), request)

    def end(self) -> None:
        for each in self._unanswered:
            request = each.request
            each.ended_us = self.run.end_us if request.until_us is None else request.until_us
            stops = (act.sent_us for act in self._acts_of(request) if act.api in ("leave", "crash"))
            each.stopped_us = min((at_us for at_us in stops if at_us >= request.sent_us), default=each.ended_us)
            each.stopped_us = min(each.stopped_us, each.ended_us)
        leaders: dict[tuple[int, int], Request] = {}
        for each in self._unanswered:
            if each.is_leaders and each.stopped_us > each.request.sent_us + 2 * BOUND_US:
                leaders.setdefault(self._place(each.request), each.request)
        for each in self._unanswered:
            self._judge(each, self._shown_by(each, leaders.get(self._place(each.request))))
        self._judge_unassigned()

    def _place(self, request: Request) -> tuple[int, int]:
        """Return the life of the group when a request was sent, and the generation of the request; -1 for none."""
        return bisect_right(self._lives, request.sent_us), -1 if request.generation is None else request.generation

    def _acts_of(self, request: Request) -> list[Request]:
        return self._acts.get(request.member or "", [])

    def _judge(self, each: _Unanswered, shown_by: list[Request] | None) -> None:
        """Count a request without a response, and report it if other requests show that a response was overdue."""
        request, ended_us = each.request, each.ended_us
        is_over = request.until_us is not None
        # If the client gave up, the broker may be dead: it must have answered others. A request that is pending at the
        # end still has its connection.
        if is_over and not self._answers_around(request, ended_us, each.stopped_us):
            return
        # A paused member reads no responses.
        is_paused = any(
            act.api in ("pause", "zombie") and request.sent_us - BOUND_US <= act.sent_us <= ended_us
            for act in self._acts_of(request)
        )
        is_broken = shown_by is not None and not is_paused
        if is_broken or ended_us > request.sent_us + BOUND_US:
            self.case()
        if is_broken:
            subject = request.api if request.member is None else f"{request.api} of {request.member}"
            seconds = _seconds(ended_us - request.sent_us)
            self.violation(
                f"{subject} timed out after {seconds} s"
                if is_over
                else f"{subject} had no response for {seconds} s at the end of the replay",
                request,
                *shown_by or (),
                at_us=request.sent_us,
                until_us=ended_us,
                generation=request.generation,
                members=[request.member],
            )

    def _answers_around(self, request: Request, *times_us: int) -> bool:
        return any(self.run.answers_before(request.broker, at_us) for at_us in times_us)

    def _shown_by(self, each: _Unanswered, leaders_sync: Request | None) -> list[Request] | None:
        """Return other requests that show that a response was overdue; None if nothing shows it.

        An empty list means that it was overdue, and that no other request is needed to show it.
        """
        request, api, waited_us = each.request, each.request.api, each.ended_us - each.request.sent_us
        if api not in PARKED_APIS:
            # Loads and look-ups give up after the request timeout, give or take a second. Members give up before, after
            # their session timeout: that shows nothing.
            is_over = request.until_us is not None
            return [] if waited_us > REQUEST_TIMEOUT_US - (_SECOND_US if is_over else 0) else None

        if not self.group.scripts or each.is_repeated:
            return None  # The rebalance timeout of its group is unknown, or which of two requests is to be answered.
        if waited_us > self._overdue_us:
            return []
        if request.member is None:
            return None

        if api == "SyncGroup":
            shown = self._assignment_meanwhile(each) or self._leaders_sync(each, leaders_sync)
            if shown is not None:
                return [shown]
        if each.beat is not None and self._is_shown_by(each, each.beat):
            return [each.beat]
        return [] if self._are_others_quiet(each) else None

    def _assignment_meanwhile(self, sync: _Unanswered) -> Request | None:
        """Return a response with which another member got its assignment, while the member waited for its own.

        Once a member has its assignment, there is one for every member of the generation. A new coordinator may not
        have it.
        """
        place, sent_us = self._place(sync.request), sync.request.sent_us
        completed = self._completed.get(place)
        if completed is None or completed.done_us is None:
            return None
        joined_us = self.group.generations[place].joined_us
        since_us = sent_us if joined_us is None else min(sent_us, joined_us)
        until_us = max(sent_us, completed.done_us) + BOUND_US
        is_overdue = sync.ended_us > until_us and self.group.kept_coordinator(since_us, until_us)
        return completed if is_overdue else None

    def _leaders_sync(self, sync: _Unanswered, leaders: Request | None) -> Request | None:
        """Return the SyncGroup of the leader if it shows that another SyncGroup was overdue.

        It is not parked, but written to the log. Then all others are answered.
        """
        if leaders is None or sync.stopped_us <= max(sync.request.sent_us, leaders.sent_us) + 2 * BOUND_US:
            return None
        is_overdue = self.group.kept_coordinator(leaders.sent_us, sync.stopped_us) and self._answers_around(
            sync.request, sync.stopped_us
        )
        return leaders if is_overdue else None

    def _is_shown_by(self, each: _Unanswered, beat: Request) -> bool:
        """Return whether a heartbeat of another member shows that a JoinGroup was overdue.

        During a rebalance, heartbeats do not succeed, so a JoinGroup is answered if they do. It may be parked without
        a rebalance until all expected instances have joined. A coordinator that loads answers all heartbeats.
        """
        return (
            beat.sent_us < each.stopped_us
            and not self._has_expected_instances
            and self.group.kept_coordinator(each.request.sent_us, beat.sent_us)
        )

    def _are_others_quiet(self, each: _Unanswered) -> bool:
        """Return whether the other members were silent for so long that a parked request was overdue.

        After a silence of the longest session timeout, every other member has joined, too, or was removed. The first
        JoinGroups of a group also wait for the initial delay.
        """
        request, stopped_us = each.request, each.stopped_us
        quiet_us = stopped_us - self._removed_us
        first = next(iter(self._completed.values()), None)
        if request.api == "JoinGroup" and (first is None or first.done_us is None or first.done_us > stopped_us):
            quiet_us -= self.run.delay_us
        quiet = (*self._quiet, (self._busy_us, stopped_us))
        return (
            request.sent_us < quiet_us
            and any(since_us <= quiet_us and until_us >= stopped_us - _SECOND_US for since_us, until_us in quiet)
            and self.group.kept_coordinator(request.sent_us, stopped_us)
            and self._answers_around(request, stopped_us)
        )

    def _judge_unassigned(self) -> None:
        """Report members that have joined more than once, and waited too long for an assignment.

        All their requests may have been answered.
        """
        # A group is stuck if none of its members ever gets an assignment, although the coordinator stays the same and
        # refuses nobody. Lost connections do not explain that. Members of the consumer protocol have assignments
        # without a SyncGroup.
        is_stuck = (
            not self._assigned
            and not self._is_refused
            and len(self._nodes) <= 1
            and not self.group.uses_consumer_protocol
        )
        arrived_us = max((each.first.sent_us for each in self._unassigned.values()), default=0)
        acts_us = sorted(act.sent_us for acts in self._acts.values() for act in acts)
        for member, each in self._unassigned.items():
            if each.joins < 2 or each.last_join is None or not self.group.scripts:
                continue
            since_us, until_us = each.first.sent_us, each.until_us
            if is_stuck:
                # Only the time until a script stops or pauses a member counts. Once all members have joined, the time
                # until silent ones are removed is enough: those that do not join again are removed.
                next_act = bisect_left(acts_us, since_us)
                if next_act < len(acts_us):
                    until_us = min(until_us, acts_us[next_act])
                is_broken = until_us > arrived_us + self._removed_us + self.run.delay_us
            else:
                is_broken = (
                    until_us - since_us > max(self._overdue_us, self._removed_us)
                    and self.group.kept_coordinator(since_us, until_us)
                    and not any(since_us <= act.sent_us <= until_us for act in self._acts.get(member, ()))
                )
            if is_broken:
                self.violation(
                    f"{member} joined {self.group.name} for {_seconds(until_us - since_us)} s without an assignment"
                    f"{', as all members of the group' if is_stuck else ''}",
                    each.first,
                    each.last_join,
                    each.last,
                    at_us=since_us,
                    until_us=until_us,
                    members=[member],
                )


_OF_ANY_BROKER = frozenset(
    {
        ErrorCode.INVALID_GROUP_ID,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.UNSUPPORTED_VERSION,
        ErrorCode.INVALID_REQUEST,
    }
)
"""Errors that a broker may return without being the coordinator."""


class _Refusals:
    """A series of refusals by a broker that FindCoordinator names.

    Attributes:
        first: The look-up before the series, and the first refusal.
        since_us: When the first refusal was read.
        then: The last look-ups and refusals.
        still_named_us: When the first response was read that names the broker although the look-up was sent more than
            `BOUND_US` after `since_us`; None without one.
        until_us: When the last refusal after that was read; 0 without one.
        named_us: When the last look-up before this refusal was sent.
        members: The members that were refused.
    """

    def __init__(self, named: Lookup, refusal: Request) -> None:
        assert refusal.done_us is not None
        self.first, self.since_us = (named.request, refusal), refusal.done_us
        self.then: deque[Request] = deque(maxlen=_MOST_EVENTS - 2)
        self.still_named_us: int | None = None
        self.until_us = self.named_us = 0
        self.members: set[str | None] = {refusal.member}

    def named_again(self, lookup: Lookup) -> None:
        self.then.append(lookup.request)
        if self.still_named_us is None and lookup.sent_us > self.since_us + BOUND_US:
            self.still_named_us = lookup.at_us

    def refused_again(self, named: Lookup, refusal: Request) -> None:
        assert refusal.done_us is not None
        self.then.append(refusal)
        self.members.add(refusal.member)
        # A request that was sent before a look-up had its response may have been refused before the look-up.
        if self.still_named_us is not None and refusal.sent_us >= self.still_named_us:
            self.named_us, self.until_us = named.sent_us, refusal.done_us


class CoordinatorFound(Promise):
    """A broker that FindCoordinator names has `BOUND_US` to serve the group.

    For example, the broker refuses a request. After `BOUND_US`, FindCoordinator still names it, and it refuses again.
    Then the promise is broken. A series of refusals ends when the broker serves or loads the group. It also ends when
    FindCoordinator names another broker.
    """

    name = "coordinator-found"
    sentence = "The coordinator that FindCoordinator names serves the group."
    cases = "look-ups followed by a request to the named broker"
    apis = COORDINATOR_APIS

    def __init__(self, group: Group, run: Run) -> None:
        super().__init__(group, run)
        self._unused: Counter[int] = Counter()  # Look-ups by the named broker, until it is asked.
        self._named: Lookup | None = None
        self._refusals: _Refusals | None = None

    def looked_up(self, lookup: Lookup) -> None:
        if lookup.error:
            return
        self._unused[lookup.node] += 1
        if self._named is not None and self._named.node != lookup.node:
            self._end_series()
        self._named = lookup
        if self._refusals is not None:
            self._refusals.named_again(lookup)

    def answered(self, request: Request) -> None:
        if request.error == 0 and self._refusals is None and not self._unused:
            return
        if request.error == NOT_AVAILABLE or request.error in _OF_ANY_BROKER:
            return  # It does not say whether the broker is the coordinator.
        if self._unused:
            self.case(self._unused.pop(request.broker, 0))
        if self._named is None or self._named.node != request.broker:
            return
        if request.error != NOT_COORDINATOR:
            self._end_series()
        elif self._refusals is None:
            self._refusals = _Refusals(self._named, request)
        else:
            self._refusals.refused_again(self._named, request)

    def end(self) -> None:
        self._end_series()

    def _end_series(self) -> None:
        refusals, self._refusals = self._refusals, None
        if refusals is None or not refusals.until_us:
            return
        node = refusals.first[1].broker
        self.violation(
            f"FindCoordinator named broker {node} as coordinator of {self.group.name} for "
            f"{_seconds(refusals.named_us - refusals.since_us)} s, and this broker answered NOT_COORDINATOR",
            *refusals.first,
            *refusals.then,
            at_us=refusals.since_us,
            until_us=refusals.until_us,
            members=refusals.members,
        )


class OneCoordinator(Promise):
    """If two brokers serve a group in turn, for longer than a move may take, both coordinate it.

    A rejected or lost request may be part of a move, and so may a look-up that names another broker. So the turns
    before it are not compared with the turns after it.
    """

    name = "one-coordinator"
    sentence = "No two brokers serve a group at the same time."
    cases = "changes of the broker that serves a group"
    apis = COORDINATOR_APIS

    def __init__(self, group: Group, run: Run) -> None:
        super().__init__(group, run)
        self._broker: int | None = None  # The broker whose turn it is; None after a request was rejected or lost.
        self._last_broker: int | None = None  # The last broker whose turn it was.
        self._since_us = 0  # The turn, or the move, began at that time or before.
        self._turns: list[Request] = []  # Responses that began a turn after one of another broker.

    def looked_up(self, lookup: Lookup) -> None:
        if lookup.is_sign and lookup.node != self._broker:
            self._move(lookup.at_us)

    def unanswered(self, request: Request) -> None:
        if request.broker >= 0:
            self._move(request.sent_us)

    def answered(self, request: Request) -> None:
        broker, error = request.broker, request.error
        if broker == self._broker and error == 0:
            return
        if broker < 0 or error in _OF_ANY_BROKER:
            return
        assert request.done_us is not None
        if error in MOVED:
            self._move(request.done_us)
            return
        if broker == self._broker:
            return
        # A broker may have served a request before the turn of another one, although its response was read later.
        if request.sent_us <= self._since_us + CLOCK_SKEW_US:
            return
        if self._last_broker is not None and broker != self._last_broker:
            self.case()
            if self._broker is not None:
                self._turns.append(request)
        self._broker = self._last_broker = broker
        self._since_us = request.done_us

    def end(self) -> None:
        self._end_turns()

    def _move(self, at_us: int) -> None:
        """Take note that another broker may serve the group from a time on."""
        self._end_turns()
        self._broker = None
        self._since_us = max(self._since_us, at_us)

    def _end_turns(self) -> None:
        """Report the turns if they show that several brokers coordinate the group."""
        turns, self._turns = self._turns, []
        if len(turns) < 3:
            return
        first_us, last_us = turns[0].done_us, turns[-1].done_us
        assert first_us is not None
        assert last_us is not None
        if last_us > first_us + BOUND_US:
            brokers = sorted({each.broker for each in turns})
            self.violation(
                f"{self.group.name} was served by the brokers {' and '.join(map(str, brokers))} at the same time",
                *turns[:_MOST_EVENTS],
                at_us=first_us,
                until_us=last_us,
                generation=max((each.generation for each in turns if each.generation is not None), default=None),
                members={each.member for each in turns},
            )


def _seconds(duration_us: int) -> float:
    """Return a duration in seconds, for a sentence."""
    return round(duration_us / 1e6, 1)
