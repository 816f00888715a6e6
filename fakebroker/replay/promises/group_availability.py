"""Observers for the availability checks: what the members of a group saw of the cluster. Does not depend on Spark.

Each observer sees the events of one group, and adds its results to a `Findings`, which is plain data. A task has one
`Findings` for all of its groups. The `Findings` of all tasks are merged, and `availability` makes the checks from them.

An observer keeps two maxima: the longest time without responses, and the longest such time outside of planned outages.
The first says what happened. The second decides the check.
"""

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import msgspec

from fakebroker.client.member.consumer import reactions as consumer_reactions
from fakebroker.client.member.reactions import OTHERWISE, REACTIONS, Reaction
from fakebroker.errors import ErrorCode
from fakebroker.replay.members.events import PARKED_APIS
from fakebroker.replay.members.request_outcomes import LOST, UNANSWERED
from fakebroker.replay.promises.observer import (
    BOUND_US,
    OVERDUE_US,
    REQUEST_TIMEOUT_US,
    Group,
    Lookup,
    Promise,
    Request,
    Run,
)
from fakebroker.replay.run_summary import Unavailability
from fakebroker.replay.script.script import Script
from fakebroker.replay.wording import counted

MEMBER_SILENCE_US = REQUEST_TIMEOUT_US
"""Maximum time that a member may be without a response, in microseconds, even if its session timeout is longer."""

MOST_LISTED = 5
"""Maximum number of failures listed per check; all are counted."""

MEMBER_APIS = frozenset(
    {
        *("JoinGroup", "SyncGroup", "Heartbeat", "ConsumerGroupHeartbeat", "LeaveGroup", "OffsetCommit", "OffsetFetch"),
        *("InitProducerId", "AddPartitionsToTxn", "AddOffsetsToTxn", "Produce", "TxnOffsetCommit", "EndTxn"),
    }
)
"""The requests of members, except those that look up coordinators and leaders."""

MOST_NAMES = 5
"""Maximum number of members named per failure."""

NEVER_US = 2**62
"""A time after all others."""

_PLANNED = frozenset({"Heartbeat", "ConsumerGroupHeartbeat", *PARKED_APIS})
"""A member plans one of these requests per heartbeat interval."""

STOPS = ("crash", "pause", "zombie")
"""Actions after which a member sends no heartbeats, and has not said so."""

RETRIABLE = frozenset({0, *(int(error) for error in ErrorCode if error.retriable)})
"""Errors after which a look-up is sent again."""


def _fatal_errors() -> dict[str, tuple[frozenset[int], bool]]:
    """Return by API errors, and whether a member of either protocol stops after these, or after all others."""
    found = {}
    otherwise = consumer_reactions.OTHERWISE | OTHERWISE
    for kind in otherwise:
        reactions = consumer_reactions.REACTIONS.get(kind, {}) | REACTIONS.get(kind, {})
        fatal = {int(error) for error, reaction in reactions.items() if reaction is Reaction.FATAL}
        is_listed = otherwise[kind] is not Reaction.FATAL
        errors = fatal if is_listed else {0, *map(int, reactions)} - fatal
        found[kind.__name__.removesuffix("Response")] = frozenset(errors), is_listed
    return found


_FATAL = _fatal_errors()
_NEVER_FATAL: tuple[frozenset[int], bool] = frozenset(), True


def stops_member(request: Request) -> bool:
    """Return whether a member stops after the error of this response."""
    errors, is_fatal = _FATAL.get(request.api, _NEVER_FATAL)
    return (request.error in errors) is is_fatal


class Interval(NamedTuple):
    """A time in which the events of the workload keep a broker from serving.

    Attributes:
        broker: Node id; None if all brokers are affected, or the affected ones are not known.
        from_us: When it begins.
        until_us: When it ends.
    """

    broker: int | None
    from_us: int
    until_us: int


class Conditions(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a replay before its groups are checked. Times are in microseconds.

    Attributes:
        begin_us: Start of the replay.
        end_us: When the last request was sent, the last response read, or the last wait ended.
        pause_us: How long a cluster may leave all requests unanswered while members are waiting.
        short_us: If a member's replay ends after a longer time without responses, it is open whether the member would
            have got one.
        patience_us: How much longer than usual coordinators may take, to load and to begin a first rebalance.
        awaits_instances: Whether a coordinator may wait for all instances of a group (batch-join).
        is_complete: Whether the replay ran to its end.
        checks_tail: Whether the time after a member's last response is checked.
        expected_errors: Codes of errors that the workload expects.
        lookups: Intervals in which members' look-ups of the coordinators of several groups were in vain.
        pauses: Start and end of each time longer than `pause_us` in which no request of any client was answered.
        outages: Planned outages that end, sorted by their start.
        disturbances: Intervals in which requests may be lost.
        excuses: Intervals in which groups and brokers may be out of service.
    """

    begin_us: int
    end_us: int
    pause_us: int
    short_us: int
    patience_us: int = 0
    awaits_instances: bool = False
    is_complete: bool = True
    checks_tail: bool = True
    expected_errors: frozenset[int] = frozenset()
    lookups: list[Interval] = []
    pauses: list[tuple[int, int]] = []
    outages: list[Interval] = []
    disturbances: list[Interval] = []
    excuses: list[Interval] = []

    def done_us(self, request: Request) -> int:
        """Return when the wait for a response ended."""
        if request.done_us is not None:
            return request.done_us
        return self.end_us if request.until_us is None else request.until_us

    def for_time(self, at_us: int, until_us: int) -> str:
        """Return a description of an interval."""
        return f"for {(until_us - at_us) / 1e6:.1f} s, starting at second {(at_us - self.begin_us) / 1e6:.1f}"


class Listed(msgspec.Struct):
    """Failures, or doubts, of a check.

    Attributes:
        count: Their number, in the unit of the check.
        first: The first ones, at most `MOST_LISTED`.
    """

    count: int = 0
    first: list[Unavailability] = []

    def add(self, count: int, *found: Unavailability) -> None:
        """Count failures, and list them if they are among the first."""
        self.count += count
        self.first = sorted([*self.first, *found], key=_place)[:MOST_LISTED]


def _place(found: Unavailability) -> tuple[Any, ...]:
    return found.at_us, found.group, found.what


class Names(msgspec.Struct):
    """Members with something in common.

    Attributes:
        count: Their number.
        first: Names of the first ones, sorted.
    """

    count: int = 0
    first: list[str] = []

    def add(self, names: Iterable[str], count: int) -> None:
        """Add `count` members. Not all of their names need to be given."""
        self.count += count
        self.first = sorted([*self.first, *names])[:MOST_NAMES]


class Longest(msgspec.Struct):
    """The longest times without responses, or without service, in microseconds.

    Attributes:
        of: Number of members or groups that were observed.
        us: The longest time.
        unplanned_us: The longest time, not counting planned outages and the time shortly after events.
        long: Number of members or groups whose longest time was longer than `Conditions.pause_us`.
        least_allowed_us: The smallest limit of a member or group.
        most_allowed_us: The largest limit of a member or group.
    """

    of: int = 0
    us: int = 0
    unplanned_us: int = 0
    long: int = 0
    least_allowed_us: int = NEVER_US
    most_allowed_us: int = 0

    def add(self, other: "Longest") -> None:
        """Take the longest times of both."""
        self.of += other.of
        self.us = max(self.us, other.us)
        self.unplanned_us = max(self.unplanned_us, other.unplanned_us)
        self.long += other.long
        self.least_allowed_us = min(self.least_allowed_us, other.least_allowed_us)
        self.most_allowed_us = max(self.most_allowed_us, other.most_allowed_us)


class Findings(msgspec.Struct):
    """What the observers of some groups have seen.

    Attributes:
        waits: Times in which members waited for a response.
        silent: Groups whose members waited for too long. Its count is the number of members.
        unsure: Groups whose members waited until their replay ended, but not long enough for a failure.
        waiting: For each of `Conditions.pauses`, by index: how many members and groups waited.
        outages: Times in which groups had no service.
        unserved: Groups without service for too long.
        doubtful: Groups without service until the end of the replay, but not long enough for a failure.
        members: Number of members with a script.
        planned: Number of actions in the scripts.
        done: Number of actions that were done.
        undone: Members that did not do all actions.
        stopped: Members that stopped because of an error, by error code.
        lost: Number of lost requests by API, except during `Conditions.disturbances`.
        excused: Number of lost requests during `Conditions.disturbances`.
        plans: Planned and sent numbers, by population and kind: requests or transactions.
    """

    waits: Longest = msgspec.field(default_factory=Longest)
    silent: Listed = msgspec.field(default_factory=Listed)
    unsure: Listed = msgspec.field(default_factory=Listed)
    waiting: dict[int, tuple[int, int]] = {}
    outages: Longest = msgspec.field(default_factory=Longest)
    unserved: Listed = msgspec.field(default_factory=Listed)
    doubtful: Listed = msgspec.field(default_factory=Listed)
    members: int = 0
    planned: int = 0
    done: int = 0
    undone: Names = msgspec.field(default_factory=Names)
    stopped: dict[int, Names] = {}
    lost: dict[str, int] = {}
    excused: int = 0
    plans: dict[tuple[str, str], tuple[float, int]] = {}

    def add(self, other: "Findings") -> None:
        """Add what the observers of other groups have seen."""
        self.waits.add(other.waits)
        self.outages.add(other.outages)
        for name in ("silent", "unsure", "unserved", "doubtful"):
            listed: Listed = getattr(other, name)
            getattr(self, name).add(listed.count, *listed.first)
        for place, (members, groups) in other.waiting.items():
            self.add_waiting(place, members, groups)
        self.members += other.members
        self.planned += other.planned
        self.done += other.done
        self.undone.add(other.undone.first, other.undone.count)
        for error, names in other.stopped.items():
            self.stopped.setdefault(error, Names()).add(names.first, names.count)
        for api, count in other.lost.items():
            self.lost[api] = self.lost.get(api, 0) + count
        self.excused += other.excused
        for (population, what), (planned, sent) in other.plans.items():
            self.add_plan(population, what, planned, sent)

    def add_waiting(self, place: int, members: int, groups: int) -> None:
        """Count members and groups that waited while no request was answered."""
        before = self.waiting.get(place, (0, 0))
        self.waiting[place] = before[0] + members, before[1] + groups

    def add_plan(self, population: str, what: str, planned: float, sent: int) -> None:
        """Count planned and sent requests, or transactions, of a population."""
        before = self.plans.get((population, what), (0.0, 0))
        self.plans[population, what] = before[0] + planned, before[1] + sent


class GroupObserver(Promise):
    """An observer of a group.

    Args:
        group: What is known of the group.
        run: What is known of the run.
        conditions: What is known of the replay.
        findings: Its results are added to this.
    """

    apis = MEMBER_APIS

    def __init__(self, group: Group, run: Run, conditions: Conditions, findings: Findings) -> None:
        super().__init__(group, run)
        self.conditions = conditions
        self.findings = findings

    def lasts_us(self, act: Request) -> int:
        """Return for how long an action suspends its member."""
        assert act.member is not None
        script = self.group.scripts.get(act.member)
        if script is None:
            return 0
        due_us = act.scheduled_us - self.conditions.begin_us
        planned = (each for each in script.acts if each.action == act.api and abs(each.at_ms * 1e3 - due_us) <= 1000)
        lasts_ms = next((each.for_ms for each in planned), 0.0)
        if act.api == "zombie":  # It sends nothing until its session has expired.
            lasts_ms += script.session_timeout_ms + script.heartbeat_interval_ms
        return int(lasts_ms * 1e3)


class _Wait:
    """A member that waits for responses.

    Attributes:
        heard_us: When its wait can begin at the earliest: at its last response, or when the coordinator may no longer
            hold back its JoinGroup or SyncGroup.
        suspended_us: Until when its script has suspended it; `NEVER_US` while it is stopped.
        interval_us: Its heartbeat interval. One interval after a response, the next response can be expected.
        rebalance_us: Its rebalance timeout.
        limit_us: How long it may wait.
        broker: The broker of the last response.
        is_stopped: Whether it has stopped because of an error.
    """

    __slots__ = ("broker", "heard_us", "interval_us", "is_stopped", "limit_us", "rebalance_us", "suspended_us")

    def __init__(self, script: Script | None, pause_us: int, at_us: int) -> None:
        self.heard_us = at_us
        self.suspended_us = 0
        self.interval_us = NEVER_US if script is None else script.heartbeat_interval_ms * 1000
        self.rebalance_us = 0 if script is None else script.rebalance_timeout_ms * 1000
        session_us = 0 if script is None else script.session_timeout_ms * 1000
        self.limit_us = max(pause_us, min(session_us + BOUND_US, MEMBER_SILENCE_US))
        self.broker: int | None = None
        self.is_stopped = False


class _Silence:
    """The members of a group that waited for too long, and the longest of their waits."""

    def __init__(self) -> None:
        self.members: set[str] = set()
        self.at_us, self.until_us = NEVER_US, 0
        self.longest_us = self.longest_from_us = 0
        self.broker: int | None = None

    def add(self, member: str, since_us: int, until_us: int, broker: int | None) -> None:
        self.members.add(member)
        self.at_us, self.until_us = min(self.at_us, since_us), max(self.until_us, until_us)
        if until_us - since_us > self.longest_us:
            self.longest_us, self.longest_from_us, self.broker = until_us - since_us, since_us, broker


class MembersAnswered(GroupObserver):
    """Members that wait for a response. A response with an error counts as a response."""

    name = "members-answered"

    def __init__(self, group: Group, run: Run, conditions: Conditions, findings: Findings) -> None:
        super().__init__(group, run, conditions, findings)
        self._waits: dict[str | None, _Wait] = {}
        self._refused_us: list[int] = []
        self._longest = Longest()
        self._notable_us = 0  # Shorter waits neither fail a check nor are the longest.
        self._long: set[str] = set()
        self._silent, self._unsure = _Silence(), _Silence()
        self._waiting: dict[int, set[str]] = {}

    def sent(self, request: Request) -> None:
        if request.api not in PARKED_APIS or request.member is None:
            return
        # A coordinator may hold back its response to a JoinGroup or SyncGroup: that is no waiting.
        if request.done_us is not None:
            wait = self._hear(request.member, request.scheduled_us, request.done_us)
            wait.broker, wait.is_stopped = request.broker, stops_member(request)
        elif request.version >= 0:
            wait = self._waits.get(request.member) or self._begin(request.member, request.sent_us)
            until_us = min(self.conditions.done_us(request), request.sent_us + wait.rebalance_us + OVERDUE_US)
            self._hear(request.member, request.sent_us, until_us, is_response=False)

    def answered(self, request: Request) -> None:
        done_us = request.done_us
        if request.api in PARKED_APIS or done_us is None:
            return
        from_us = until_us = done_us
        if request.count > 1:  # Between folded heartbeats, the member had responses all the time.
            from_us, until_us = request.sent_us, max(done_us, request.until_us or 0)
        wait = self._hear(request.member, from_us, until_us)
        wait.broker = request.broker
        wait.is_stopped = request.error != 0 and stops_member(request)

    def acted(self, act: Request) -> None:
        wait = self._hear(act.member, act.sent_us, act.sent_us, is_response=False)
        is_running = wait.suspended_us != NEVER_US
        match act.api:
            case "start":
                wait.is_stopped = False
                if not is_running:
                    wait.suspended_us = act.sent_us
            case "leave" | "crash" | "migrate":
                wait.suspended_us = NEVER_US
            case _ if is_running:
                wait.suspended_us = act.sent_us + self.lasts_us(act)

    def looked_up(self, lookup: Lookup) -> None:
        # If the look-up is refused for good, the members of the group stop.
        if lookup.error not in RETRIABLE:
            self._refused_us.append(lookup.at_us)

    def end(self) -> None:
        scripted = {name: wait for name, wait in self._waits.items() if name is not None and name in self.group.scripts}
        if self.conditions.checks_tail:
            for name, wait in scripted.items():
                self._waited(name, wait, self.conditions.end_us, is_response=False)
        self._longest.of, self._longest.long = len(scripted), len(self._long)
        for wait in scripted.values():
            self._longest.least_allowed_us = min(self._longest.least_allowed_us, wait.limit_us)
            self._longest.most_allowed_us = max(self._longest.most_allowed_us, wait.limit_us)
        self.findings.waits.add(self._longest)
        for place, members in self._waiting.items():
            self.findings.add_waiting(place, len(members), 1)
        for silence, listed, how in (
            (self._silent, self.findings.silent, ""),
            (self._unsure, self.findings.unsure, ", until their replay ended"),
        ):
            if silence.members:
                listed.add(len(silence.members), self._described(silence, how))

    def _described(self, silence: _Silence, how: str) -> Unavailability:
        assert self.group.name is not None
        from_s = (silence.longest_from_us - self.conditions.begin_us) / 1e6
        what = (
            f"{counted(len(silence.members), 'member')} of {self.group.name} got no response for up to "
            f"{silence.longest_us / 1e6:.1f} s, starting at second {from_s:.1f}{how}"
        )
        if silence.broker is not None:
            what += f"; last response from broker {silence.broker}"
        members = sorted(silence.members)[:MOST_NAMES]
        return Unavailability(
            group=self.group.name, members=members, at_us=silence.at_us, until_us=silence.until_us, what=what
        )

    def _begin(self, member: str | None, at_us: int) -> _Wait:
        script = None if member is None else self.group.scripts.get(member)
        wait = self._waits[member] = _Wait(script, self.conditions.pause_us, at_us)
        return wait

    def _hear(self, member: str | None, from_us: int, until_us: int, *, is_response: bool = True) -> _Wait:
        """Take note of a time in which a member did not wait, and return the member."""
        wait = self._waits.get(member)
        if wait is None:
            wait = self._begin(member, from_us)
        elif from_us - wait.heard_us - wait.interval_us > self._notable_us:
            assert member is not None
            self._waited(member, wait, from_us, is_response=is_response)
        if until_us > wait.heard_us:
            wait.heard_us = until_us
        return wait

    def _waited(self, member: str, wait: _Wait, until_us: int, *, is_response: bool) -> None:
        """Judge a time for which a member waited. It ends with a response, or by the script, or with the replay."""
        since_us, conditions = max(wait.heard_us, wait.suspended_us), self.conditions
        waited_us = until_us - since_us - wait.interval_us
        if wait.is_stopped or waited_us <= 0 or any(since_us <= at_us <= until_us for at_us in self._refused_us):
            return
        self._longest.us = max(self._longest.us, waited_us)
        if waited_us > conditions.pause_us:
            self._long.add(member)
        least_us = conditions.pause_us if is_response else conditions.short_us
        for from_us, to_us in _outside(conditions.outages, wait.broker, since_us, until_us):
            waiting_us = from_us + wait.interval_us
            self._longest.unplanned_us = max(self._longest.unplanned_us, to_us - waiting_us)
            if to_us - waiting_us <= least_us:
                continue
            for place, (pause_us, resumed_us) in enumerate(conditions.pauses):
                if min(resumed_us, to_us) - max(pause_us, waiting_us) > conditions.pause_us:
                    self._waiting.setdefault(place, set()).add(member)
            if to_us - waiting_us > wait.limit_us:
                self._silent.add(member, from_us, to_us, wait.broker)
            elif not is_response:  # It might have got a response in time, if it had waited on.
                self._unsure.add(member, from_us, to_us, wait.broker)
        self._notable_us = min(self._longest.unplanned_us, conditions.short_us)


def _outside(
    outages: Iterable[Interval], broker: int | None, since_us: int, until_us: int
) -> Iterator[tuple[int, int]]:
    """Yield the parts of a time that are outside of the outages of a broker; None for an unknown broker."""
    for outage in outages:
        is_its = broker is None or outage.broker is None or outage.broker == broker
        if is_its and outage.from_us < until_us and outage.until_us > since_us:
            yield since_us, outage.from_us
            since_us = max(since_us, outage.until_us)
    yield since_us, until_us


class ScriptsDone(GroupObserver):
    """Members that did not do all actions of their scripts, and members that an error has stopped."""

    name = "scripts-done"

    def __init__(self, group: Group, run: Run, conditions: Conditions, findings: Findings) -> None:
        super().__init__(group, run, conditions, findings)
        self._done: dict[str, int] = {}
        self._zombies: set[str] = set()
        self._stopped: set[tuple[str, int]] = set()
        self._silent_us: dict[str, list[int]] = {}  # When static members stopped without an answered goodbye.

    def acted(self, act: Request) -> None:
        assert act.member is not None
        self._done[act.member] = self._done.get(act.member, 0) + 1
        if act.api == "zombie":
            self._zombies.add(act.member)
        script = self.group.scripts.get(act.member)
        if script is not None and script.instance_id is not None and act.api not in ("start", "slow"):
            self._silent_us.setdefault(act.member, []).append(act.sent_us)

    def answered(self, request: Request) -> None:
        member, error = request.member, request.error
        if error == 0:
            if request.epoch is not None and request.epoch < 0 and member in self._silent_us:  # a goodbye
                self._silent_us[member] = [
                    each for each in self._silent_us[member] if not each <= request.sent_us <= each + BOUND_US
                ]
            return
        if member is None or error is None or not stops_member(request) or error in self.conditions.expected_errors:
            return
        # A static member of the consumer protocol that could not say goodbye is refused until its session ends, which
        # may begin again meanwhile. If its successor leaves before it knows that, its goodbye is refused, too.
        if error == ErrorCode.UNRELEASED_INSTANCE_ID or (
            error == ErrorCode.FENCED_INSTANCE_ID and (request.epoch or 0) < 0
        ):
            script = self.group.scripts.get(member)
            session_us = 0 if script is None else script.session_timeout_ms * 1000
            silent_us = self._silent_us.get(member, ())
            if any(each <= request.sent_us <= each + 2 * session_us + BOUND_US for each in silent_us):
                return
        self._stopped.add((member, error))

    def end(self) -> None:
        for member, error in self._stopped:
            # A zombie may be fenced: its script lets it send requests of a former session.
            if member not in self._zombies:
                self.findings.stopped.setdefault(error, Names()).add([member], 1)
        for member, script in self.group.scripts.items():
            done = self._done.get(member, 0)
            self.findings.members += 1
            self.findings.planned += len(script.acts)
            self.findings.done += done
            if done < len(script.acts) and self.conditions.is_complete:
                self.findings.undone.add([member], 1)


class _Plan:
    """The requests that a member plans and sends.

    Attributes:
        since_us: Since when it runs; None while it does not run.
        running_us: For how long it ran before `since_us`.
        suspended_us: For how long its script suspended it.
        parked_us: For how long its JoinGroups and SyncGroups were pending.
        sent: Number of planned requests that it has sent.
        transaction: The number of its current transaction, and how many producer ids it had got before this
            transaction; None without a transaction.
        begun_us: When the current transaction began.
        ended_us: When its last request was answered, or given up.
        last: Number of its last transaction with a request that was sent.
        producers: Number of producer ids that it has got.
        produced: Number of transactions sent.
        missed: Number of intervals that passed during transactions and requests for producer ids.
        is_producer: Whether it is a transactional producer.
    """

    def __init__(self, script: Script) -> None:
        self.script = script
        self.since_us: int | None = None
        self.running_us = self.suspended_us = self.parked_us = self.sent = 0
        self.transaction: tuple[int, int] | None = None
        self.begun_us = self.ended_us = 0
        self.last: int | None = None
        self.producers = self.produced = self.missed = 0
        self.is_producer = False

    def stop(self, at_us: int) -> None:
        """Take note that the member stops."""
        if self.since_us is not None:
            self.running_us += at_us - self.since_us
            self.since_us = None

    def end_transaction(self) -> None:
        """Count the intervals that the current transaction has lasted: the member begins no other one meanwhile."""
        if self.transaction is not None and self.script.transactions is not None:
            self.missed += (self.ended_us - self.begun_us) // (self.script.transactions.interval_ms * 1000)
        self.transaction = None


class RequestsSent(GroupObserver):
    """The number of requests that populations send, compared with their plans.

    A member plans one heartbeat per interval while it runs. It plans none while its script suspends it, or while its
    JoinGroup or SyncGroup may be parked. A transactional producer plans one transaction per interval. While a
    transaction or a request for a producer id lasts, it misses one transaction per interval.
    """

    name = "observed"

    def __init__(self, group: Group, run: Run, conditions: Conditions, findings: Findings) -> None:
        super().__init__(group, run, conditions, findings)
        self._plans = {name: _Plan(script) for name, script in group.scripts.items()}

    def sent(self, request: Request) -> None:
        plan = self._plans.get(request.member or "")
        if plan is None:
            return
        if request.version >= 0 and request.api in _PLANNED:
            plan.sent += request.count
            if request.api in PARKED_APIS:
                plan.parked_us += self.conditions.done_us(request) - request.sent_us
        if request.transaction is not None:
            self._take_transaction(plan, request, request.transaction[2])

    def _take_transaction(self, plan: _Plan, request: Request, number: int | None) -> None:
        plan.is_producer = True
        done_us = self.conditions.done_us(request)
        if request.api == "InitProducerId" and request.error == 0:
            plan.producers += 1
        if number is None:
            plan.end_transaction()
            plan.transaction, plan.begun_us, plan.ended_us = (-1, plan.producers), request.scheduled_us, done_us
            plan.end_transaction()
            return
        # A request of a former producer does not belong to the transaction.
        if plan.transaction != (number, plan.producers):
            plan.end_transaction()
            plan.transaction, plan.begun_us, plan.ended_us = (number, plan.producers), request.scheduled_us, done_us
        plan.begun_us, plan.ended_us = min(plan.begun_us, request.scheduled_us), max(plan.ended_us, done_us)
        if number > 0 and request.version >= 0 and number != plan.last:
            plan.last = number
            plan.produced += 1

    def answered(self, request: Request) -> None:
        if request.error and (plan := self._plans.get(request.member or "")) and stops_member(request):
            assert request.done_us is not None
            plan.stop(request.done_us)

    def acted(self, act: Request) -> None:
        plan = self._plans.get(act.member or "")
        if plan is None:
            return
        if act.api == "start" and plan.since_us is None:
            plan.since_us = act.sent_us
        elif act.api in ("leave", "migrate", "crash"):
            plan.stop(act.sent_us)
        plan.suspended_us += self.lasts_us(act)

    def end(self) -> None:
        for plan in self._plans.values():
            has_run = plan.since_us is not None or plan.running_us
            plan.stop(self.conditions.end_us)
            plan.end_transaction()
            script = plan.script
            if has_run:
                running_us = max(0, plan.running_us - plan.suspended_us - plan.parked_us)
                planned = running_us / (script.heartbeat_interval_ms * 1000)
                self.findings.add_plan(script.population, "request", planned, plan.sent)
            if plan.is_producer and script.transactions is not None:
                suspended = plan.suspended_us / (script.transactions.interval_ms * 1000)
                planned = plan.produced + max(0.0, plan.missed - suspended)
                self.findings.add_plan(script.population, "transaction", planned, plan.produced)


class RequestsAnswered(GroupObserver):
    """Requests of members that were lost, unanswered, or are pending for too long at the end of the replay.

    `availability` counts the requests of loads and tools.
    """

    name = "requests-answered"

    def __init__(self, group: Group, run: Run, conditions: Conditions, findings: Findings) -> None:
        super().__init__(group, run, conditions, findings)
        self._pending: dict[str, list[tuple[int, Request]]] = {}  # By member, with the end of the wait.
        self._last_act: dict[str, Request] = {}

    def unanswered(self, request: Request) -> None:
        if request.member is None or request.version < 0:
            return
        ended_us = self.conditions.done_us(request)
        if request.missing not in (LOST, UNANSWERED):
            # Requests that were sent shortly before the end may be pending.
            bound_us = BOUND_US
            if request.api in PARKED_APIS:
                script = self.group.scripts.get(request.member)
                bound_us = NEVER_US if script is None else script.rebalance_timeout_ms * 1000 + OVERDUE_US
            if request.until_us is not None or ended_us - request.sent_us <= bound_us:
                return
        act = self._last_act.get(request.member)
        if act is None or act.sent_us < request.sent_us or not _gives_up(act, request):
            pending = self._unsettled(request.member, request.sent_us)
            self._pending[request.member] = [*pending, (ended_us, request)]

    def acted(self, act: Request) -> None:
        assert act.member is not None
        self._last_act[act.member] = act
        if act.member in self._pending:
            pending = self._unsettled(act.member, act.sent_us)
            self._pending[act.member] = [each for each in pending if not _gives_up(act, each[1])]

    def end(self) -> None:
        for member in self._pending:
            self._unsettled(member, NEVER_US)

    def _unsettled(self, member: str, at_us: int) -> list[tuple[int, Request]]:
        """Count requests that were given up before a time, and return the others: actions from then on matter."""
        unsettled = []
        for ended_us, request in self._pending.get(member, ()):
            if ended_us < at_us:
                self._count(ended_us, request)
            else:
                unsettled.append((ended_us, request))
        return unsettled

    def _count(self, ended_us: int, request: Request) -> None:
        if is_disturbed(self.conditions, request.sent_us, ended_us):
            self.findings.excused += request.count
        else:
            self.findings.lost[request.api] = self.findings.lost.get(request.api, 0) + request.count


def _gives_up(act: Request, request: Request) -> bool:
    """Return whether a member gives up a pending request with an action. A member that leaves waits for responses."""
    return request.api in PARKED_APIS or act.api != "leave"


def is_disturbed(conditions: Conditions, sent_us: int, ended_us: int) -> bool:
    """Return whether a request may be lost because of an event of the workload."""
    return any(each.from_us <= ended_us and each.until_us >= sent_us for each in conditions.disturbances)
