"""Availability checks: whether the cluster responded to its members during the whole replay. Does not depend on Spark.

A cluster that has died violates no promise, because promises are about responses. These checks require responses. They
apply to every cluster, and a workload cannot disable them. They ignore outages that the workload itself begins and
ends.

There are three steps. Any number of tasks do the first two, each for a part of the events. The results are plain data,
and are added up:

    sums = Sums()                                       # of all rows, in any order
    sums.add(sums_of(batch, run))
    conditions = conditions_of(sums, first_act_ms, run)
    findings = Findings()                               # of the rows of each group, in order of time
    Observation(observers(conditions, findings), ...)
    checks = checks_of(sums, conditions, findings, run)
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from math import inf
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from fakebroker.replay.members.events import PARKED_APIS
from fakebroker.replay.members.request_outcomes import CUT_OFF, LOST, UNANSWERED
from fakebroker.replay.promises.group_availability import (
    MEMBER_SILENCE_US,
    NEVER_US,
    Conditions,
    Findings,
    Interval,
    Listed,
    Longest,
    MembersAnswered,
    Names,
    RequestsAnswered,
    RequestsSent,
    ScriptsDone,
    is_disturbed,
)
from fakebroker.replay.promises.group_service import LOOKUP, Chain, Chains, GroupsServed, excused_until
from fakebroker.replay.promises.observer import BOUND_US
from fakebroker.replay.run_summary import AvailabilityCheck, Unavailability, VerdictOutcome
from fakebroker.replay.verify.outages import Outage, planned_outages
from fakebroker.replay.wording import counted, error_name
from fakebroker.replay.workload.timeline import CONDITION_EVENTS

SILENCE_US = 10_000_000
"""How long a cluster may leave all requests unanswered while members are waiting, in microseconds."""

SHORT_US = 8_000_000
"""Time without responses, in microseconds, after which the end of a member's replay leaves open whether it gets one.

More than `group.initial.rebalance.delay.ms`, for which a coordinator waits by default.
"""

LOST_SHARE = 0.05
"""Maximum share of the requests sent that may be lost, unanswered, or pending for more than `BOUND_US` at the end."""

SETTLING_US = BOUND_US
"""How long requests may be lost after an event of the workload, or after the end of its outage, in microseconds."""

LEAST_SHARE = 0.5
"""The share of its planned requests, or transactions, that a population has to send for a verdict."""

LEAST_PLANNED = 10
"""Minimum of planned requests, or transactions, of a population that is checked."""

_SECOND_US = 1_000_000
_NOT_KNOWN = "not known"

_OBSERVERS = (MembersAnswered, GroupsServed, ScriptsDone, RequestsSent, RequestsAnswered)


class Circumstances(msgspec.Struct, frozen=True, kw_only=True):
    """What the checks need to know about a replay in addition to its events.

    Attributes:
        is_reachable: Whether the cluster was reachable after the last member had left; None if the replay was killed
            before that.
        unreachable: Node ids of brokers that could be reached before the replay, but not after it.
        is_complete: Whether the replay ran to its end.
        timeline: The events of the workload, as in `timeline.EventOutcome`.
        speed: Speed of the members' clock, as a multiple of real time.
        is_simulated: Whether the replay was in memory. Its simulations may end at different times if it is interrupted.
            Then the time after a member's last response is not checked.
        initial_delay_ms: The broker config `group.initial.rebalance.delay.ms`.
        load_ms: Time that coordinators take to load.
        awaits_instances: Whether a coordinator may wait for all instances of a group (batch-join).
        expected_errors: Codes of errors that the workload expects.
    """

    is_reachable: bool | None = True
    unreachable: Sequence[int] = ()
    is_complete: bool = True
    timeline: Sequence[Mapping[str, Any]] = ()
    speed: float = 1.0
    is_simulated: bool = False
    initial_delay_ms: float = 3000.0
    load_ms: float = 0.0
    awaits_instances: bool = False
    expected_errors: Sequence[int] = ()

    @property
    def real_time_factor(self) -> float:
        """Microseconds of the members' clock per microsecond of real time, at least 1; 1 in memory."""
        return 1.0 if self.is_simulated else max(1.0, self.speed)


UNDISTURBED = Circumstances()
"""A complete replay over TCP without events."""


class Unanswered(NamedTuple):
    """A request without a response.

    Attributes:
        api: The API.
        broker: Node id; -1 if it is unknown.
        group: The group, if the request is about one.
        member: The member; None if a load or a tool sent it.
        version: The version; -1 if the request was not sent.
        sent_us: When it was sent.
        until_us: When the connection was lost or the wait ended; None if the request is pending at the end.
        missing: Why there is no response.
        source: What sent it, as in `Event`.
        count: Number of requests.
    """

    api: str
    broker: int
    group: str | None
    member: str | None
    version: int
    sent_us: int
    until_us: int | None
    missing: str | None
    source: str
    count: int  # type: ignore[assignment]  # hides `tuple.count`, as in `Event`

    def done_us(self, end_us: int) -> int:
        """Return when the wait for its response ended."""
        return end_us if self.until_us is None else self.until_us


class Sums(msgspec.Struct):
    """Sums over all rows of members, loads and tools. Times are in microseconds.

    Attributes:
        answered: Number of rows with a response.
        sent: Number of requests that were sent.
        unsent: Number of requests that could not be sent.
        late: Number of actions that were done too late.
        latest_us: Maximum delay of an action.
        start_us: When the first start of a member was due; None if no member starts.
        first_us: When the first row was due; None without rows.
        end_us: When the last request was sent, the last response read, or the last wait ended.
        seconds: First and last response of each broker by second.
        first_sent_us: By broker, when its first request was sent.
        unanswered: Requests without a response.
    """

    answered: int = 0
    sent: int = 0
    unsent: int = 0
    late: int = 0
    latest_us: int = 0
    start_us: int | None = None
    first_us: int | None = None
    end_us: int = 0
    seconds: dict[tuple[int, int], tuple[int, int]] = {}
    first_sent_us: dict[int, int] = {}
    unanswered: list[Unanswered] = []

    def add(self, other: "Sums") -> None:
        """Add the sums of other rows."""
        self.answered += other.answered
        self.sent += other.sent
        self.unsent += other.unsent
        self.late += other.late
        self.latest_us = max(self.latest_us, other.latest_us)
        self.start_us = min((us for us in (self.start_us, other.start_us) if us is not None), default=None)
        self.first_us = min((us for us in (self.first_us, other.first_us) if us is not None), default=None)
        self.end_us = max(self.end_us, other.end_us)
        for key, (first_us, last_us) in other.seconds.items():
            mine = self.seconds.get(key, (first_us, last_us))
            self.seconds[key] = min(mine[0], first_us), max(mine[1], last_us)
        for broker, sent_us in other.first_sent_us.items():
            self.first_sent_us[broker] = min(sent_us, self.first_sent_us.get(broker, sent_us))
        self.unanswered += other.unanswered


def sums_of(rows: pa.Table | pa.RecordBatch, run: Circumstances = UNDISTURBED) -> Sums:
    """Return the sums of rows as in `events.Event`."""
    table = pa.Table.from_batches([rows]) if isinstance(rows, pa.RecordBatch) else rows
    table = table.append_column("done_us", pc.add(table["scheduled_us"], table["latency_us"]))
    acts, requests = (table.filter(pc.equal(table["kind"], kind)) for kind in ("act", "request"))
    delays = pc.subtract(acts["sent_us"], acts["scheduled_us"])
    is_answered = pc.is_valid(requests["latency_us"])
    is_sent, is_missing = pc.greater_equal(requests["version"], 0), pc.is_in(requests["missing"], _MISSING)

    responses = requests.filter(is_answered)
    from_us = pc.if_else(pc.greater(responses["count"], 1), responses["sent_us"], responses["done_us"])
    until_us = pc.max_element_wise(responses["done_us"], responses["until_us"])
    spans = pa.table(
        [responses["broker"], pc.divide(from_us, _SECOND_US), from_us, until_us], ["broker", "second", "from", "until"]
    )
    spans = spans.group_by(["broker", "second"]).aggregate([("from", "min"), ("until", "max")])
    first = requests.group_by("broker").aggregate([("sent_us", "min")])
    unanswered = requests.filter(pc.invert(is_answered)).select(Unanswered._fields)
    last = (pc.max(table[name]).as_py() for name in ("sent_us", "done_us", "until_us"))
    return Sums(
        answered=table.num_rows - table["latency_us"].null_count,
        sent=pc.sum(requests.filter(is_sent)["count"]).as_py() or 0,
        unsent=pc.sum(requests.filter(pc.and_(pc.invert(is_sent), is_missing))["count"]).as_py() or 0,
        late=pc.sum(pc.greater(delays, BOUND_US * run.real_time_factor)).as_py() or 0,
        latest_us=pc.max(delays).as_py() or 0,
        start_us=pc.min(acts.filter(pc.equal(acts["api"], "start"))["scheduled_us"]).as_py(),
        first_us=pc.min(table["scheduled_us"]).as_py(),
        end_us=max((each for each in last if each is not None), default=0),
        seconds={
            (broker, second): (first_us, last_us)
            for broker, second, first_us, last_us in _rows_of(spans, "broker", "second", "from_min", "until_max")
        },
        first_sent_us=dict(_rows_of(first, "broker", "sent_us_min")),
        unanswered=[Unanswered(*row) for row in _rows_of(unanswered, *Unanswered._fields)],
    )


_MISSING = pa.array([LOST, UNANSWERED])


def _rows_of(table: pa.Table, *names: str) -> Iterator[tuple[Any, ...]]:
    return zip(*(table[name].to_pylist() for name in names), strict=True)


def conditions_of(sums: Sums, first_act_ms: float | None, run: Circumstances = UNDISTURBED) -> Conditions:
    """Return what the observers of the groups need to know.

    Args:
        sums: The sums of all rows.
        first_act_ms: When the first action of all scripts is due, from the start of the replay; None without scripts.
        run: The circumstances of the replay.
    """
    begin_us = sums.first_us or 0
    if sums.start_us is not None and first_act_ms is not None:
        begin_us = sums.start_us - int(1000 * first_act_ms)
    pause_us, load_us = round(SILENCE_US * run.real_time_factor), round(run.load_ms * 1000)

    def at_us(moment_s: float) -> int:
        return NEVER_US if moment_s == inf else begin_us + round(moment_s * 1e6)

    def ended(outages: Sequence[Outage], longer_us: int = 0) -> list[Interval]:
        return [
            Interval(each.broker, at_us(each.from_s), at_us(each.until_s) + longer_us)
            for each in outages
            if each.until_s is not None
        ]

    outages, refused = planned_outages(run.timeline), planned_outages(run.timeline, includes_errors=True)
    events_us = [at_us(each["at_s"]) for each in run.timeline if each["done"] and each["do"] not in CONDITION_EVENTS]
    return Conditions(
        begin_us=begin_us,
        end_us=sums.end_us,
        pause_us=pause_us,
        short_us=round(SHORT_US * run.real_time_factor),
        patience_us=round(1000 * max(0.0, run.initial_delay_ms - 3000.0)) + load_us,
        awaits_instances=run.awaits_instances,
        is_complete=run.is_complete,
        checks_tail=run.is_complete or not run.is_simulated,
        expected_errors=frozenset({*run.expected_errors, -1}),
        lookups=_lookups(sums),
        pauses=[(since, until) for since, until in _pauses(sums, begin_us) if until - since > pause_us],
        outages=sorted(ended(outages), key=lambda each: (each.from_us, each.until_us)),
        disturbances=[
            *ended(outages, SETTLING_US),
            *(Interval(None, us, us + SETTLING_US) for us in events_us),
            # A fault that never ends is the workload's: the requests that it affects are lost for good.
            *(
                Interval(None, at_us(each.from_s), NEVER_US)
                for each in outages
                if each.until_s is None and each.is_fault
            ),
        ],
        excuses=[
            *ended(refused, SETTLING_US + load_us),
            *(Interval(None, us, us + SETTLING_US + load_us) for us in events_us),
        ],
    )


def _lookups(sums: Sums) -> list[Interval]:
    """Return when members' look-ups of the coordinators of several groups were in vain."""
    chains = Chains()
    for each in sums.unanswered:
        if each.api == LOOKUP and each.group is None and each.source == "members":
            chains.add(each.sent_us, each.done_us(sums.end_us))
    return [Interval(None, each.from_us, each.to_us) for each in chains.all]


def _pauses(sums: Sums, begin_us: int) -> list[tuple[int, int]]:
    """Return the times between responses of any broker, each at least about a second."""
    spans = [(begin_us, begin_us), *sums.seconds.values()]
    return [(since_us, until_us) for since_us, until_us, _ in _gaps(spans, sums.end_us)]


def _gaps(spans: Sequence[tuple[int, int]], end_us: int) -> Iterator[tuple[int, int, bool]]:
    """Yield the times between spans, and after the last one, with whether it is that."""
    first_us, *others = sorted(spans)
    since_us = first_us[1]
    for from_us, until_us in others:
        if from_us > since_us:
            yield since_us, from_us, False
        since_us = max(since_us, until_us)
    yield since_us, end_us, True


def observers(conditions: Conditions, findings: Findings) -> list[Any]:
    """Return what makes the observers of a group, for `Observation`."""
    return [partial(each, conditions=conditions, findings=findings) for each in _OBSERVERS]


def checks_of(
    sums: Sums, conditions: Conditions, findings: Findings, run: Circumstances = UNDISTURBED
) -> list[AvailabilityCheck]:
    """Return the results of the checks.

    Args:
        sums: The sums of all rows.
        conditions: What the observers of the groups knew.
        findings: What all of them have found.
        run: The circumstances of the replay.
    """
    return [
        _check_observed(sums, conditions, findings, run),
        _check_reachable(run),
        _check_cluster(sums, conditions, findings),
        _check_brokers(sums, conditions),
        _check_groups(conditions, findings),
        _check_members(conditions, findings),
        _check_scripts(findings),
        _check_lost(sums, conditions, findings),
    ]


def _check(
    name: str,
    sentence: str,
    observed: str,
    failures: int,
    failed: Sequence[Unavailability],
    doubts: Sequence[Unavailability] = (),
) -> AvailabilityCheck:
    outcome: VerdictOutcome = "failed" if failed else "inconclusive" if doubts else "passed"
    return AvailabilityCheck(name, sentence, outcome, failures, list(failed), list(doubts), observed)


def _check_listed(name: str, sentence: str, observed: str, failed: Listed, doubts: Listed) -> AvailabilityCheck:
    return _check(name, sentence, observed, failed.count, failed.first, doubts.first)


def _check_observed(sums: Sums, conditions: Conditions, findings: Findings, run: Circumstances) -> AvailabilityCheck:
    doubts, shares = [], []
    if not sums.answered:
        doubts.append("no request was answered: nothing is known about the cluster")
    if not run.is_complete:
        length_s = (conditions.end_us - conditions.begin_us) / 1e6
        doubts.append(f"the replay ended early, after {length_s:.1f} s")
    if sums.late:
        late = counted(sums.late, "action")
        doubts.append(
            f"{late} of members were done up to {sums.latest_us / 1e6:.1f} s late: the machine of the replay is too "
            "slow"
        )
    for (population, what), (exactly, sent) in sorted(findings.plans.items()):
        planned = int(exactly)
        if planned >= LEAST_PLANNED:
            shares.append(sent / planned)
            if sent < LEAST_SHARE * planned and run.is_complete:
                of_planned = counted(planned, f"planned {what}")
                doubts.append(f"population {population} sent {sent:,} of {of_planned}")
    observed = f"{counted(sums.sent, 'request')} sent; actions at most {_s(sums.latest_us)} late"
    if not sums.answered:
        observed = f"{counted(sums.sent, 'request')} sent, and no response"
    if shares:
        observed += f"; populations sent at least {min(1.0, *shares):.0%} of what they planned"
    sentence = (
        "The replay gets responses, runs to its end, performs the actions of its members in time, and sends at least "
        f"{LEAST_SHARE:.0%} of the requests that it plans."
    )
    return _check("observed", sentence, observed, 0, [], [Unavailability(what=doubt) for doubt in doubts])


def _check_reachable(run: Circumstances) -> AvailabilityCheck:
    sentence = "Each broker is reachable at the end of the replay, unless an event of the workload prevents this."
    planned = {each.broker for each in planned_outages(run.timeline) if each.until_s is None}
    planned |= {event["node_id"] for event in run.timeline if event["do"] == "broker.remove" and event["done"]}
    gone = [node_id for node_id in run.unreachable if node_id not in planned]
    what = [f"broker {node_id} could not be reached after the last member had left" for node_id in gone]
    observed = f"{counted(len(run.unreachable), 'broker')} unreachable at the end"
    if len(gone) < len(run.unreachable):
        observed += f", {len(run.unreachable) - len(gone)} of them because of an event"
    if run.is_reachable is False:
        what = ["no broker could be reached after the last member had left"]
        observed = "all brokers unreachable at the end"
    doubts = []
    if run.is_reachable is None:
        doubts, observed = ["the replay was killed before the brokers were tried"], _NOT_KNOWN
    failed, unknown = ([Unavailability(what=each) for each in some] for some in (what, doubts))
    return _check("reachable", sentence, observed, len(what), failed, unknown)


def _check_cluster(sums: Sums, conditions: Conditions, findings: Findings) -> AvailabilityCheck:
    failed = Listed()
    for place, (members, groups) in findings.waiting.items():
        since_us, until_us = conditions.pauses[place]
        what = (
            f"no request was answered {conditions.for_time(since_us, until_us)}, with {counted(members, 'member')} of "
            f"{counted(groups, 'group')} waiting"
        )
        failed.add(1, Unavailability(at_us=since_us, until_us=until_us, what=what))
    observed = _NOT_KNOWN
    if sums.first_sent_us:
        length_us, place = max((until - since, since) for since, until in _pauses(sums, conditions.begin_us))
        at_s = (place - conditions.begin_us) / 1e6
        observed = f"longest time without a response to any client: {_s(length_us)}, starting at second {at_s:.1f}"
        if length_us > conditions.pause_us:
            waiting = max((members for members, _ in findings.waiting.values()), default=0)
            observed += f", with {counted(waiting, 'member')} waiting outside of planned outages"
        observed += f"; allowed: {conditions.pause_us / 1e6:g} s"
    sentence = (
        f"While members wait for responses, the cluster answers at least one request every "
        f"{conditions.pause_us / 1e6:g} s."
    )
    return _check("cluster-answers", sentence, observed, failed.count, failed.first)


def _check_brokers(sums: Sums, conditions: Conditions) -> AvailabilityCheck:
    failed, doubts = Listed(), Listed()
    in_vain: dict[int, list[Unanswered]] = {}
    for each in sums.unanswered:
        # A coordinator may hold back its response to a JoinGroup or SyncGroup until the member stops.
        if not (each.missing == CUT_OFF and each.api in PARKED_APIS):
            in_vain.setdefault(each.broker, []).append(each)
    silent_us, silent_broker = 0, -1
    longest_us = unplanned_us = 0
    brokers = sorted(broker for broker in sums.first_sent_us if broker >= 0)
    for broker in brokers:
        first_us = sums.first_sent_us[broker]
        spans = [span for (responding, _), span in sums.seconds.items() if responding == broker]
        gaps = sorted(_gaps([(first_us, first_us), *spans], conditions.end_us), key=lambda gap: gap[0] - gap[1])
        since_us, until_us, _ = gaps[0]
        if until_us - since_us > silent_us:
            silent_us, silent_broker = until_us - since_us, broker
        for since_us, until_us, is_last in gaps if broker in in_vain else ():
            if until_us - since_us <= min(conditions.short_us, unplanned_us):
                break  # Shorter ones neither fail the check nor are the longest.
            chains, planned_too = Chains(), Chains()
            for each in in_vain[broker]:
                from_us = max(each.sent_us, since_us)
                to_us = min(each.done_us(conditions.end_us), until_us)
                if from_us > to_us or each.sent_us >= until_us:
                    continue
                planned_too.add(from_us, to_us)
                from_us = excused_until(conditions.excuses, broker, from_us, to_us)
                if from_us <= to_us:
                    chain = chains.add(from_us, to_us)
                    chain.requests += 1
                    if each.group is not None:
                        chain.groups.add(each.group)
            longest_us, unplanned_us = max(longest_us, planned_too.longest_us), max(unplanned_us, chains.longest_us)
            for chain in chains.all:
                if chain.length_us > conditions.pause_us:
                    failed.add(1, _silent(broker, chain, conditions))
                elif is_last and chain.length_us > conditions.short_us:
                    doubts.add(1, _silent(broker, chain, conditions, "; then the replay of its members ended"))
    observed = _NOT_KNOWN
    if brokers:
        observed = (
            f"longest time without a response of a broker: {_s(silent_us)}, broker {silent_broker}; with requests in "
            f"vain: {_s(longest_us)}{_unless_same(unplanned_us, longest_us)}; {counted(len(brokers), 'broker')}; "
            f"allowed: {conditions.pause_us / 1e6:g} s"
        )
    sentence = (
        f"Each broker to which requests are sent answers at least one of them every {conditions.pause_us / 1e6:g} s."
    )
    return _check_listed("brokers-answer", sentence, observed, failed, doubts)


def _silent(broker: int, chain: Chain, conditions: Conditions, how: str = "") -> Unavailability:
    what = (
        f"broker {broker} answered no request {conditions.for_time(chain.from_us, chain.to_us)}{how}: "
        f"{counted(chain.requests, 'request')}"
    )
    groups = f" of {counted(len(chain.groups), 'group')}" if chain.groups else ""
    return Unavailability(at_us=chain.from_us, until_us=chain.to_us, what=f"{what}{groups} lost or unanswered")


def _check_groups(conditions: Conditions, findings: Findings) -> AvailabilityCheck:
    sentence = (
        "No group is without service, although its members request it, for longer than its session timeout plus "
        f"{BOUND_US // 1_000_000} s."
    )
    found = findings.outages
    how = f"longest time without service: {_s(found.us)}; with requests in vain outside of planned outages: "
    observed = _longest(f"{how}{_s(found.unplanned_us)}", "group", found, conditions)
    return _check_listed("groups-served", sentence, observed, findings.unserved, findings.doubtful)


def _check_members(conditions: Conditions, findings: Findings) -> AvailabilityCheck:
    sentence = (
        f"No member waits for a response longer than its session timeout plus {BOUND_US // 1_000_000} s, or longer "
        f"than {max(MEMBER_SILENCE_US, conditions.pause_us) / 1e6:g} s."
    )
    found = findings.waits
    how = f"longest wait for a response: {_s(found.us)}{_unless_same(found.unplanned_us, found.us)}"
    observed = _longest(how, "member", found, conditions)
    return _check_listed("members-answered", sentence, observed, findings.silent, findings.unsure)


def _longest(how: str, of: str, longest: Longest, conditions: Conditions) -> str:
    """Return a description of the longest times of members or groups."""
    if not longest.of:
        return _NOT_KNOWN
    least_s, most_s = longest.least_allowed_us / 1e6, longest.most_allowed_us / 1e6
    allowed = f"{most_s:g} s" if least_s == most_s else f"{least_s:g} to {most_s:g} s"
    pause = f"{conditions.pause_us / 1e6:g} s"
    return f"{how}; more than {pause} for {longest.long:,} of {counted(longest.of, of)}; allowed: {allowed}"


def _unless_same(unplanned_us: int, longest_us: int) -> str:
    return "" if _s(unplanned_us) == _s(longest_us) else f", and {_s(unplanned_us)} outside of planned outages"


def _check_scripts(findings: Findings) -> AvailabilityCheck:
    def described(names: Names, why: str) -> Unavailability:
        listed = ", ".join(names.first)
        if names.count > len(names.first):
            listed += f" and {names.count - len(names.first):,} more"
        what = f"{counted(names.count, 'member')} could not do their script: {why}: {listed}"
        return Unavailability(members=names.first, what=what)

    failed = [described(names, f"stopped by {error_name(error)}") for error, names in sorted(findings.stopped.items())]
    doubts = [described(findings.undone, "the replay ended before their last action")] if findings.undone.count else []
    stopped = sum(names.count for names in findings.stopped.values())
    observed = _NOT_KNOWN
    if findings.members:
        actions, members = counted(findings.planned, "action"), counted(findings.members, "member")
        observed = f"{findings.done:,} of {actions} of {members} done; {counted(stopped, 'member')} stopped by an error"
    sentence = "All members do their scripts: they perform all actions, and no fatal error stops them."
    return _check("scripts-done", sentence, observed, stopped, failed, doubts)


def _check_lost(sums: Sums, conditions: Conditions, findings: Findings) -> AvailabilityCheck:
    lost, excused = dict(findings.lost), findings.excused
    for each in sums.unanswered:
        if each.member is not None or each.version < 0:
            continue
        ended_us = each.done_us(conditions.end_us)
        is_pending = each.until_us is None and ended_us - each.sent_us > BOUND_US and each.api not in PARKED_APIS
        if each.missing not in (LOST, UNANSWERED) and not is_pending:
            continue
        if is_disturbed(conditions, each.sent_us, ended_us):
            excused += each.count
        else:
            lost[each.api] = lost.get(each.api, 0) + each.count
    count, sent = sum(lost.values()), sums.sent
    is_too_many = count > LOST_SHARE * sent
    share = f"{count:,} of {sent:,} requests ({count / max(sent, 1):.1%})"
    observed = f"{share} lost"
    if excused:
        observed += f", and {excused:,} ({excused / max(sent, 1):.1%}) during events of the workload"
    if sums.unsent:
        observed += f"; {sums.unsent:,} more could not be sent"
    apis = ", ".join(f"{n:,} {api}" for api, n in sorted(lost.items(), key=lambda each: (-each[1], each[0])))
    what = f"{share} were lost, unanswered, or pending for more than {BOUND_US / 1e6:g} s at the end: {apis}"
    return _check(
        "requests-answered",
        f"Outside of planned outages, at most {LOST_SHARE:.0%} of the requests sent are lost, unanswered, or pending "
        f"for more than {BOUND_US / 1e6:g} s at the end.",
        observed if sent or sums.unsent else _NOT_KNOWN,
        count if is_too_many else 0,
        [Unavailability(what=what)] if is_too_many else [],
    )


def _s(microseconds: int) -> str:
    return f"{microseconds / 1e6:.1f} s"
