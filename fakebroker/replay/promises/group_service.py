"""Times without service: chains of requests in vain, and the observer of groups without service.

A request is in vain if it was lost, unanswered or rejected, or is still pending. Several such requests shortly after
each other form a chain. The availability checks judge how long the chains of groups and brokers lasted. Does not depend
on Spark.
"""

from collections.abc import Iterable
from heapq import heappop, heappush

from fakebroker.errors import ErrorCode
from fakebroker.replay.members.events import PARKED_APIS
from fakebroker.replay.members.request_outcomes import CUT_OFF, LOST
from fakebroker.replay.promises.group_availability import (
    MEMBER_APIS,
    MOST_NAMES,
    NEVER_US,
    RETRIABLE,
    STOPS,
    Conditions,
    Findings,
    GroupObserver,
    Interval,
    Longest,
    stops_member,
)
from fakebroker.replay.promises.observer import (
    BOUND_US,
    MOVED,
    OVERDUE_US,
    REBALANCE_IN_PROGRESS,
    Group,
    Lookup,
    Request,
    Run,
)
from fakebroker.replay.run_summary import Unavailability
from fakebroker.replay.wording import counted

CHAIN_US = BOUND_US
"""Maximum time between two requests in vain that belong together, in microseconds."""

LOOKUP = "FindCoordinator"

# Not JoinGroup: members of a group whose SyncGroups are not answered join again and again.
_SERVICE = frozenset({"SyncGroup", "Heartbeat", "ConsumerGroupHeartbeat", "OffsetCommit"})
"""Requests whose successful response shows that the group has service."""

_PLAIN = MEMBER_APIS - {*PARKED_APIS, "LeaveGroup"}
"""Requests that `sent` ignores if they succeed."""


class Chain:
    """Requests in vain that followed each other.

    Attributes:
        from_us: When the first request was sent.
        to_us: When the last request was given up.
        requests: Number of requests; for the check of brokers only.
        members: Their members; for the check of groups only.
        groups: Their groups; for the check of brokers only.
        apis: Their APIs; for the check of groups only.
        broker: The broker of the last request; None if it is unknown. For the check of groups only.
    """

    __slots__ = ("apis", "broker", "from_us", "groups", "members", "requests", "to_us")

    def __init__(self, from_us: int, to_us: int) -> None:
        self.from_us, self.to_us = from_us, to_us
        self.requests = 0
        self.members: set[str] = set()
        self.groups: set[str] = set()
        self.apis: set[str] = set()
        self.broker: int | None = None

    @property
    def length_us(self) -> int:
        """How long the requests were in vain."""
        return self.to_us - self.from_us


class Chains:
    """Chains of requests in vain. A request is sent at most `CHAIN_US` after the previous request was given up."""

    def __init__(self) -> None:
        self.all: list[Chain] = []

    def add(self, from_us: int, to_us: int) -> Chain:
        """Return the chain to which a request belongs. The request may join chains that were apart."""
        near = [each for each in self.all if each.from_us <= to_us + CHAIN_US and from_us <= each.to_us + CHAIN_US]
        if not near:
            self.all.append(Chain(from_us, to_us))
            return self.all[-1]
        chain, *others = near
        for other in others:
            self.all.remove(other)
            chain.requests += other.requests
            chain.members |= other.members
            chain.groups |= other.groups
            chain.apis |= other.apis
            if other.to_us > chain.to_us:
                chain.broker = other.broker
            chain.from_us, chain.to_us = min(chain.from_us, other.from_us), max(chain.to_us, other.to_us)
        chain.from_us, chain.to_us = min(chain.from_us, from_us), max(chain.to_us, to_us)
        return chain

    @property
    def longest_us(self) -> int:
        """The length of the longest chain."""
        return max((each.length_us for each in self.all), default=0)


def excused_until(excuses: Iterable[Interval], broker: int, from_us: int, to_us: int) -> int:
    """Return from when on a request in vain proves something: after the last excuse that it meets."""
    met = (
        each.until_us
        for each in excuses
        if each.from_us <= to_us and each.until_us >= from_us and (each.broker in (None, broker) or broker < 0)
    )
    return max(from_us, max(met, default=from_us))


class GroupsServed(GroupObserver):
    """Groups without service: all requests that ask for it are in vain.

    A group has service while a member gets responses that accept it. Between two such responses, the requests in vain
    form chains. A chain that lasts too long is a failure.

    A member that has lost its coordinator only looks it up, again and again. Its look-ups ask for service, too.

    The coordinator may have to wait until a session ends: a member of the classic protocol has crashed, or its
    LeaveGroup was lost. Until then, a JoinGroup or SyncGroup that its own member cuts off proves nothing.
    """

    name = "groups-served"
    apis = MEMBER_APIS | {LOOKUP}

    def __init__(self, group: Group, run: Run, conditions: Conditions, findings: Findings) -> None:
        super().__init__(group, run, conditions, findings)
        scripts = group.scripts.values()
        self._session_us = max((each.session_timeout_ms * 1000 for each in scripts), default=0)
        self._rebalance_us = max((each.rebalance_timeout_ms * 1000 for each in scripts), default=0)
        self._interval_us = min((each.heartbeat_interval_ms * 1000 for each in scripts), default=0)
        self._limit_us = self._session_us + BOUND_US + conditions.patience_us
        if conditions.awaits_instances:
            self._limit_us += self._rebalance_us
        self._short_us = conditions.short_us + conditions.patience_us
        self._longest = Longest(least_allowed_us=self._limit_us, most_allowed_us=self._limit_us)

        # The last response that shows service; at first, the first request; None before it.
        self._since_us: int | None = None
        # A heap of requests in vain, by when they are given up. The number decides between equal times.
        self._in_vain: list[tuple[int, int, Request]] = []
        self._number = 0
        self._chains = Chains()  # The requests in vain that were given up since the last service.
        self._planned_too = Chains()  # The same with the time of planned outages.

        # What the coordinator may wait for.
        self._started_us = 0  # When a member was last started.
        self._suspended_us: dict[str, int] = {}  # By member, until when its script has suspended it.
        self._stops_us: list[int] = []  # When members stopped whose sessions have to end.
        self._joining_us: dict[str, int] = {}  # By member, when its last JoinGroup was answered or given up.
        self._wait_us = 0  # Until when the coordinator may wait for members that have stopped, or are slow.
        self._next_us: list[tuple[int, int]] = []  # Sessions that begin with the next generation; see `acted`.
        self._leaving: dict[str, tuple[int, int]] = {}  # Members that have not said yet that they leave.

        # How long the group heard nothing at all.
        self._running: dict[str, int] = {}  # Members that run, and until when their scripts have suspended them.
        self._heard_us = NEVER_US  # Until when a member got a response, or its JoinGroup or SyncGroup may be parked.
        self._notable_us = 0  # Shorter silences say nothing.

    def sent(self, request: Request) -> None:
        if request.error == 0 and request.api in _PLAIN and self._since_us is not None:
            return
        if request.member is None:
            if request.api == LOOKUP and request.done_us is None and request.source == "members":
                self._fail(request)
            return
        if request.row is not None:
            return
        if self._since_us is None:
            self._since_us = request.sent_us
        is_in_vain = request.error not in (0, REBALANCE_IN_PROGRESS)
        done_us = self.conditions.done_us(request)
        if request.api == "JoinGroup":
            self._joining_us[request.member] = max(done_us, self._joining_us.get(request.member, 0))
        if request.api in PARKED_APIS and request.version >= 0:
            is_answered = request.done_us is not None
            latest_us = done_us if is_answered else request.sent_us + self._rebalance_us + OVERDUE_US
            self._hear(request.sent_us, min(done_us, latest_us))
        if request.api == "LeaveGroup" and not is_in_vain and request.member in self._leaving:
            self._settle(request.sent_us)
            left_us, session_us = self._leaving.pop(request.member, (0, 0))
            if request.sent_us > left_us + BOUND_US:  # too late
                self._wait_us = max(self._wait_us, left_us + session_us)
        if is_in_vain:
            self._fail(request)

    def answered(self, request: Request) -> None:
        done_us = request.done_us
        if done_us is None or request.member is None:
            return
        from_us = until_us = done_us
        if request.count > 1:  # Between folded heartbeats, there were responses all the time.
            from_us, until_us = request.sent_us, max(done_us, request.until_us or 0)
        if from_us - self._heard_us > self._notable_us:
            self._hear(from_us, until_us)
        elif until_us > self._heard_us:
            self._heard_us = until_us
        if request.error not in (0, REBALANCE_IN_PROGRESS):
            if stops_member(request):
                self._stop(request.member)
        elif request.api in _SERVICE:
            if self._in_vain or self._planned_too.all:
                self._served(from_us)
            assert self._since_us is not None
            if until_us > self._since_us:
                self._since_us = until_us
        elif request.api == "JoinGroup" and self._next_us:
            self._settle(done_us)
            for latest_us, session_us in self._next_us:
                self._wait_us = max(self._wait_us, min(done_us, latest_us) + session_us)
            self._next_us.clear()

    def looked_up(self, lookup: Lookup) -> None:
        if lookup.error not in RETRIABLE:  # All members stop.
            self._running.clear()
        elif lookup.error and lookup.request.source == "members":
            self._fail(lookup.request)

    def acted(self, act: Request) -> None:
        assert act.member is not None
        script = self.group.scripts.get(act.member)
        if script is None:
            return
        action, at_us, session_us = act.api, act.sent_us, script.session_timeout_ms * 1000
        self._settle(at_us - 1)
        self._hear(at_us, 0)
        if action == "start":
            # A start extends the initial delay of a rebalance.
            self._started_us = at_us
            if not self._running:
                self._heard_us = at_us
            self._running.setdefault(act.member, 0)
            return
        if action in ("crash", "leave", "migrate"):
            self._stop(act.member)
        else:
            # A suspended member does not read responses.
            resumes_us = at_us + self.lasts_us(act)
            self._suspended_us[act.member] = max(resumes_us, self._suspended_us.get(act.member, 0))
            if act.member in self._running:
                self._running[act.member] = resumes_us
        is_static = script.instance_id is not None
        if action in (*STOPS, "slow") or (action == "leave" and is_static):
            self._stops_us.append(at_us)
        if action == "slow":
            # The coordinator waits until the member polls, and joins.
            self._wait_us = max(self._wait_us, at_us + self.lasts_us(act))
        elif self._joining_us.get(act.member, 0) >= at_us:
            # Its JoinGroup is parked: its session begins with the next generation. If it is the leader, the SyncGroups
            # of the others wait for so long.
            self._next_us.append((at_us + self._rebalance_us, session_us))
        elif action in STOPS or is_static:
            self._wait_us = max(self._wait_us, at_us + session_us)
        else:
            self._leaving[act.member] = at_us, session_us

    def end(self) -> None:
        if self._since_us is None or not self.group.scripts:
            return
        if self.conditions.checks_tail:
            self._hear(self.conditions.end_us, 0)
        self._served(self.conditions.end_us, is_last=True)
        self._longest.of, self._longest.long = 1, int(self._longest.us > self.conditions.pause_us)
        self.findings.outages.add(self._longest)

    def _fail(self, request: Request) -> None:
        """Take note that a request is in vain: it counts from when it is given up."""
        self._number += 1
        heappush(self._in_vain, (self.conditions.done_us(request), self._number, request))

    def _settle(self, at_us: int) -> None:
        """Take the requests in vain that were given up until a time."""
        in_vain = self._in_vain
        while in_vain and in_vain[0][0] <= at_us:
            done_us, _, request = heappop(in_vain)
            is_moved = request.error in MOVED or request.missing == LOST
            if is_moved and request.member is not None and self._waits_until(done_us) > 0:
                # If another broker loads the group, all sessions begin again.
                self._wait_us = max(self._wait_us, done_us + self._session_us)
            self._add(request, done_us)

    def _add(self, request: Request, to_us: int) -> None:
        """Add a request that was in vain until a time to its chain."""
        if request.member is None:
            self._add_lookup(request.sent_us, to_us)
            return
        if self._suspended_us.get(request.member, -1) >= request.sent_us:
            return
        from_us = max(request.sent_us, self._started_us)
        # The coordinator may have parked it until its member stopped, or was about to.
        is_cut_off = request.missing == CUT_OFF and request.api in PARKED_APIS and request.version >= 0
        if is_cut_off or request.error == ErrorCode.MEMBER_ID_REQUIRED:
            from_us = max(from_us, self._waits_until(to_us))
        chain = self._chain(from_us, to_us, request.api, request.broker)
        if chain is not None:
            chain.members.add(request.member)

    def _add_lookup(self, from_us: int, to_us: int) -> None:
        """Add a time of look-ups in vain. All running members wait for them, except suspended ones."""
        if any(resumed_us < to_us for resumed_us in self._running.values()):
            self._chain(from_us, to_us, LOOKUP, -1)

    def _chain(self, from_us: int, to_us: int, api: str, broker: int) -> Chain | None:
        """Return the chain of requests that were in vain during a time; None if they are excused."""
        if self._since_us is not None:
            from_us = max(from_us, self._since_us)
        if from_us <= to_us:
            self._planned_too.add(from_us, to_us)
        from_us = excused_until(self.conditions.excuses, broker, from_us, to_us)
        if from_us > to_us:
            return None
        chain = self._chains.add(from_us, to_us)
        chain.apis.add(api)
        if to_us == chain.to_us and broker >= 0:
            chain.broker = broker
        return chain

    def _stop(self, member: str) -> None:
        """Take note that a member stops. Until now, it waited for the look-ups in vain."""
        if self._running.pop(member, None) is not None:
            for chain in self._chains.all:
                if LOOKUP in chain.apis:
                    chain.members.add(member)

    def _waits_until(self, at_us: int) -> int:
        """Return until when the coordinator may wait for members that have stopped; 0 if it waits for none.

        Members whose LeaveGroup is overdue at this time count as stopped from now on.
        """
        for member, (left_us, session_us) in list(self._leaving.items()):
            if left_us + BOUND_US < at_us:  # It could not say that it leaves.
                del self._leaving[member]
                self._wait_us = max(self._wait_us, left_us + session_us)
        pending = [sum(each) for each in (*self._next_us, *self._leaving.values())]
        return max(self._wait_us, *pending) if pending else self._wait_us

    def _hear(self, from_us: int, until_us: int) -> None:
        """Measure the silence before a time in which the group had responses, or waited as it should.

        Args:
            from_us: When this time began.
            until_us: When it ended. 0 if the silence goes on: for an action, and at the end of the replay.
        """
        if self._running and from_us - self._heard_us > self._notable_us:
            resumed_us = min(self._running.values())
            silent_us = max(self._heard_us, resumed_us) + self._interval_us
            self._longest.us = max(self._longest.us, from_us - silent_us)
            # Look-ups of several groups do not name them: this group may have been among them while it heard nothing.
            for lookup in self.conditions.lookups:
                if lookup.from_us < from_us and lookup.until_us > silent_us:
                    self._add_lookup(max(silent_us, lookup.from_us), min(from_us, lookup.until_us))
            self._notable_us = self._interval_us + (0 if self.conditions.lookups else self._longest.us)
        self._heard_us = max(self._heard_us, until_us)

    def _served(self, at_us: int, *, is_last: bool = False) -> None:
        """Judge the requests in vain before a response that shows service, or before the end of the replay."""
        assert self._since_us is not None
        self._settle(at_us - 1)
        if at_us - self._since_us > min(self._short_us, self._longest.unplanned_us):
            for _, _, request in self._in_vain:
                if request.sent_us < at_us:
                    self._add(request, at_us)
            self._longest.us = max(self._longest.us, self._planned_too.longest_us)
            self._longest.unplanned_us = max(self._longest.unplanned_us, self._chains.longest_us)
            for chain in self._chains.all:
                self._judge(chain, is_last=is_last)
        self._chains.all.clear()
        self._planned_too.all.clear()

    def _judge(self, chain: Chain, *, is_last: bool) -> None:
        at_us, until_us = chain.from_us, chain.to_us
        is_failure = chain.length_us > self._limit_us
        if not is_failure:
            if not is_last or chain.length_us <= self._short_us:
                return
            # Service might have come in time, if the replay had not ended. The coordinator may be waiting for the end
            # of a session.
            if any(at_us - self._limit_us <= each <= until_us - self._short_us for each in self._stops_us):
                return
        assert self.group.name is not None
        members = chain.members | self._running.keys() if LOOKUP in chain.apis else chain.members
        broker = "" if chain.broker is None else f" from broker {chain.broker}"
        what = f"{self.group.name} had no service{broker} {self.conditions.for_time(at_us, until_us)}"
        if not is_failure:
            what += "; then the replay of its members ended"
        what += f": {counted(len(members), 'member')} waiting for {', '.join(sorted(chain.apis))}"
        found = Unavailability(
            group=self.group.name, members=sorted(members)[:MOST_NAMES], at_us=at_us, until_us=until_us, what=what
        )
        (self.findings.unserved if is_failure else self.findings.doubtful).add(1, found)
