"""Availability checks: whether the cluster responded to its members during the whole replay. Spark SQL on events.

A cluster that has died violates no promise, because promises are about responses; these checks require responses. They
apply to every cluster, and a workload cannot disable them. Outages that the workload itself begins and ends are
excluded. `check_availability` creates the views and parameters of the queries.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from math import inf
from typing import Any

import msgspec
import pyarrow as pa
from pyspark.sql import DataFrame, Row, SparkSession

from fakebroker.client.member.consumer import reactions as consumer_reactions
from fakebroker.client.member.reactions import OTHERWISE, REACTIONS, Reaction
from fakebroker.errors import ErrorCode
from fakebroker.replay.members.request_outcomes import LOST, UNANSWERED
from fakebroker.replay.run_summary import AvailabilityCheck, Unavailability, VerdictOutcome
from fakebroker.replay.spark.query_settings import computed_once, free, local_table, rows_of, suited_to
from fakebroker.replay.verify.bounds import BOUND_US, OVERDUE_US, PARKED, REQUEST_TIMEOUT_US
from fakebroker.replay.verify.outages import Outage, planned_outages
from fakebroker.replay.verify.planned_requests import LEAST_SHARE, SLOW_POPULATIONS
from fakebroker.replay.verify.service import DOUBTFUL_GROUPS, SILENT_BROKERS, UNSERVED_GROUPS
from fakebroker.replay.wording import counted, error_name
from fakebroker.replay.workload.timeline import CONDITION_EVENTS

SILENCE_US = 10_000_000
"""How long a cluster may leave all requests unanswered while members are waiting, in microseconds."""

SHORT_US = 8_000_000
"""Time without responses, in microseconds, after which the end of a member's replay leaves open whether it gets one.

More than `group.initial.rebalance.delay.ms`, for which a coordinator waits by default.
"""

MEMBER_SILENCE_US = REQUEST_TIMEOUT_US
"""Maximum time that a member may be without a response, in microseconds, even if its session timeout is longer."""

LOST_SHARE = 0.05
"""Maximum share of the requests sent that may be lost, unanswered, or pending for more than `BOUND_US` at the end."""

SETTLING_US = BOUND_US
"""How long requests may be lost after an event of the workload, or after the end of its outage, in microseconds."""

MOST_LISTED = 5
"""Maximum number of failures listed per check; all are counted."""

_MOST_NAMES = 5
_NEVER_US = 2**62


def _stopped_by() -> Iterator[str]:
    """Yield, for each API, an SQL condition for the errors after which a member stops.

    For an API of both protocols, these are the errors after which members of either protocol stop.
    """
    otherwise = consumer_reactions.OTHERWISE | OTHERWISE
    for kind in otherwise:
        reactions = consumer_reactions.REACTIONS.get(kind, {}) | REACTIONS.get(kind, {})
        api = kind.__name__.removesuffix("Response")
        fatal = [error for error, reaction in reactions.items() if reaction is Reaction.FATAL]
        others = [error for error in reactions if error not in fatal]
        if otherwise[kind] is Reaction.FATAL:
            yield f"api = '{api}' and error not in ({_codes([ErrorCode.NONE, *others])})"
        elif fatal:
            yield f"api = '{api}' and error in ({_codes(fatal)})"


def _codes(errors: Sequence[ErrorCode]) -> str:
    return ", ".join(str(int(error)) for error in errors)


_STOPS = " or ".join(f"({each})" for each in _stopped_by())
_RETRIABLE = _codes([ErrorCode.NONE, *(error for error in ErrorCode if error.retriable)])

_BOUNDS = """
    select coalesce(
            min(scheduled_us) filter (where kind = 'act' and api = 'start')
                - (select bigint(1000 * min(acts[0].at_ms)) from members),
            min(scheduled_us)) begin_us,
        max(greatest(sent_us, coalesce(scheduled_us + latency_us, sent_us), coalesce(until_us, sent_us))) end_us
    from events"""

# The actions of members, with the time for which an action suspends the member.
_ACTS = """
    with acts as (
        select `group`, member, api action, scheduled_us, sent_us,
            first(if(api = 'start', sent_us, null), true) over later next_start_us,
            first(if(api <> 'start', sent_us, null), true) over later next_us
        from events where kind = 'act'
        window later as (
            partition by `group`, member order by sent_us, scheduled_us
            rows between 1 following and unbounded following)
    )
    select a.*, instance_id is not null is_static, session_timeout_ms * 1000L session_us,
        rebalance_timeout_ms * 1000L rebalance_us, 1000L * bigint(
        coalesce(get(filter(s.acts, each -> each.action = a.action
            and abs(:begin_us + each.at_ms * 1000 - a.scheduled_us) <= 1000), 0).for_ms, 0)
        + if(a.action = 'zombie', session_timeout_ms + heartbeat_interval_ms, 0)) lasts_us
    from acts a left join members s using (`group`, member)"""

# Intervals in which a missing response is no failure: the moment of a response (or the time of a row of several
# requests), the time that the coordinator may hold back a JoinGroup or SyncGroup (parked), and the time for which the
# member's script has stopped or paused it. `is_over`: the member has stopped because of an error.
_SPANS = f"""
    select `group`, member, broker, ({_STOPS}) is_over,
        case when {PARKED} then scheduled_us when `count` > 1 then sent_us else scheduled_us + latency_us end from_us,
        greatest(scheduled_us + latency_us, until_us) until_us, true is_response
    from events where kind = 'request' and latency_us is not null and member is not null
    union all
    select `group`, member, null, null, sent_us, least(
        coalesce(until_us, :end_us), sent_us + rebalance_timeout_ms * 1000L + {OVERDUE_US}), false
    from events left join members using (`group`, member)
    where kind = 'request' and latency_us is null and member is not null and version >= 0 and {PARKED}
    union all
    select `group`, member, null, if(action = 'start', false, null), sent_us, case
        when action = 'start' then sent_us
        when action in ('leave', 'crash') then coalesce(next_start_us, {_NEVER_US})
        else least(sent_us + lasts_us, coalesce(next_us, {_NEVER_US})) end, false
    from acts"""

# `gaps` are between the spans of a member, `long` are the gaps that may fail a check; `parts` exclude planned outages.
# A FindCoordinator response with a fatal error (`refusals`) stops the members of the group.
_SILENCES = f"""
    with gaps as (
        select `group`, member, max(until_us) over past since_us, lead(from_us, 1, :tail_us) over line until_us,
            lead(is_response, 1, false) over line is_response, last(broker, true) over past broker,
            coalesce(last(is_over, true) over past, false) is_over
        from ({_SPANS})
        window line as (partition by `group`, member order by from_us, until_us),
            past as (partition by `group`, member order by from_us, until_us
                rows between unbounded preceding and current row)
    ), refusals as (
        select place.key `group`, scheduled_us + latency_us at_us
        from events lateral view explode(found) as place where place.error not in ({_RETRIABLE})
    ), long as (
        select `group`, member, broker, since_us, until_us, heartbeat_interval_ms * 1000L interval_us,
            if(is_response, :pause_us, :short_us) least_us,
            greatest(:pause_us, least(session_timeout_ms * 1000L + {BOUND_US}, {MEMBER_SILENCE_US})) limit_us
        from gaps join members using (`group`, member)
        where not is_over
            and until_us - since_us - heartbeat_interval_ms * 1000L > if(is_response, :pause_us, :short_us)
    ), planned as (
        select long.*, filter(listed, each -> (long.broker is null or each.broker is null or each.broker = long.broker)
            and each.from_us < long.until_us and each.until_us > long.since_us) outages
        from long left anti join refusals
                on refusals.group = long.group and refusals.at_us between long.since_us and long.until_us
            cross join (select sort_array(collect_list(struct(from_us, until_us, broker))) listed from outages)
    ), parts as (
        select `group`, member, broker, interval_us, limit_us, least_us, inline(transform(
            sequence(0, size(outages)), n -> struct(
                if(n = 0, since_us, array_max(transform(slice(outages, 1, n), each -> each.until_us))) since_us,
                coalesce(get(outages, n).from_us, until_us) until_us)))
        from planned
    )
    select *, since_us + interval_us waiting_us from parts where until_us - since_us - interval_us > least_us"""
"""Intervals in which a member got no response for longer than `:pause_us` after its next heartbeat was due.

Also those longer than `:short_us` that ended without a response, because the member's script or the replay ended.
"""

_PAUSES = """
    select since_us, until_us from (
        select max(last_us) over (order by second) since_us, lead(first_us, 1, :end_us) over (order by second) until_us
        from (
            select from_us div 1000000 second, min(from_us) first_us, max(until_us) last_us from (
                select if(`count` > 1, sent_us, scheduled_us + latency_us) from_us,
                    greatest(scheduled_us + latency_us, until_us) until_us
                from events where kind = 'request' and latency_us is not null
                union all select :begin_us, :begin_us)
            group by 1)
    ) where until_us - since_us > :pause_us"""
"""Intervals longer than `:pause_us` in which no request of any client was answered."""

_CLUSTER_FAILURES = """
    select since_us at_us, until_us, members, groups, round((until_us - since_us) / 1e6, 1) length_s,
        count(*) over () failures
    from (
        select p.since_us, p.until_us, count(distinct s.group, s.member) members, count(distinct s.group) groups
        from pauses p join silences s
            on least(p.until_us, s.until_us) - greatest(p.since_us, s.waiting_us) > :pause_us
        group by p.since_us, p.until_us)
    order by at_us limit :most"""

_MEMBER_FAILURES = """
    with found as (
        select until_us - waiting_us > limit_us is_failure, `group`, min(since_us) at_us, max(until_us) until_us,
            array_sort(collect_set(member)) members, count(distinct member) n,
            round(max(until_us - since_us) / 1e6, 1) length_s, max_by(broker, until_us - since_us) broker,
            min_by((since_us - :begin_us) / 1e6, since_us - until_us) from_s
        from silences where until_us - waiting_us > limit_us or least_us < :pause_us
        group by 1, `group`
    ), numbered as (
        select *, row_number() over (partition by is_failure order by at_us, `group`) place,
            sum(n) over (partition by is_failure) failures
        from found
    )
    select * from numbered where place <= :most order by at_us, `group`"""
"""Groups whose members were silent for too long, or (not `is_failure`) that stopped before this can be said."""

# Excluded: pending requests of a member that stops, and requests sent so shortly before the end that they may be
# pending.
_LOST = f"""
    with missing as (
        select `group`, member, api, `count`, missing, until_us, sent_us, coalesce(until_us, :end_us) ended_us
        from events where kind = 'request' and latency_us is null and version >= 0
    ), counted as (
        select missing.* from missing left join members using (`group`, member)
        where missing in ('{LOST}', '{UNANSWERED}')
            or until_us is null and ended_us - sent_us > if(
                {PARKED}, rebalance_timeout_ms * 1000L + {OVERDUE_US}, {BOUND_US})
    )
    select api, sum(`count`) requests from counted c
        left anti join (select `group`, member, api action, sent_us at_us from events where kind = 'act') a
            on a.group = c.group and a.member = c.member and a.at_us between c.sent_us and c.ended_us
            and ({PARKED} or a.action <> 'leave')
        left anti join disturbances d on d.from_us <= c.ended_us and d.until_us >= c.sent_us
    group by api order by requests desc, api"""


# Members that did not do all actions of their scripts, and those that a fatal error has stopped.
# A zombie may be fenced, because its script lets it send requests of a former session. A static member of the consumer
# protocol that stopped without an answered goodbye is refused until its session ends, which may begin again meanwhile.
# If its successor leaves before it knows that, its goodbye is refused, too.
_UNDONE = f"""
    with silent as (
        select a.group, a.member, a.sent_us at_us, session_us from acts a
            left anti join events e on e.group = a.group and e.member = a.member and e.epoch < 0 and e.error = 0
                and e.sent_us between a.sent_us and a.sent_us + {BOUND_US}
        where is_static and action in ('crash', 'pause', 'zombie', 'leave', 'migrate')
    )
    select if(error is null, 'undone', 'stopped') why, error, count(*) failures,
        slice(array_sort(collect_list(member)), 1, {_MOST_NAMES}) members
    from (
        select member, cast(null as smallint) error from members left join (
            select `group`, member, count(*) n from events where kind = 'act' group by 1, 2) using (`group`, member)
        where :is_complete and coalesce(n, 0) < size(acts)
        union all
        select distinct e.member, error from events e
            left anti join (select `group`, member from acts where action = 'zombie') z
                on z.group = e.group and z.member = e.member
            left anti join silent on silent.group = e.group and silent.member = e.member
                and (error = {int(ErrorCode.UNRELEASED_INSTANCE_ID)}
                    or error = {int(ErrorCode.FENCED_INSTANCE_ID)} and coalesce(epoch < 0, false))
                and sent_us between at_us and at_us + 2 * session_us + {BOUND_US}
        where kind = 'request' and e.member is not null and error is not null and ({_STOPS})
            and not array_contains(:expected_errors, int(error)))
    group by 1, 2 order by 1, 2"""

_SLOW_POPULATIONS = SLOW_POPULATIONS.format(stops=_STOPS)

_OBSERVED = f"""
    select count_if(latency_us is not null) answered,
        sum(if(version >= 0, `count`, 0)) filter (where kind = 'request') sent,
        count_if(kind = 'act' and sent_us - scheduled_us > {BOUND_US} * :speed) late,
        round(max(if(kind = 'act', sent_us - scheduled_us, null)) / 1e6, 1) latest_s
    from events"""


class Circumstances(msgspec.Struct, frozen=True, kw_only=True):
    """What `check_availability` needs to know about a replay in addition to its events.

    Attributes:
        is_reachable: Whether the cluster was reachable after the last member had left; None if the replay was killed
            before that.
        unreachable: Node ids of brokers that could be reached before the replay, but not after it.
        is_complete: Whether the replay ran to its end.
        timeline: The events of the workload, as in `timeline.EventOutcome`.
        speed: Speed of the members' clock, as a multiple of real time.
        is_simulated: Whether the replay was in memory. If it was also interrupted, the time after a member's last
            response is not checked, because its simulations ended at different times.
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


def check_availability(
    spark: SparkSession, events: DataFrame, members: DataFrame, run: Circumstances = UNDISTURBED
) -> list[AvailabilityCheck]:
    """Check that a cluster was available during a replay.

    Args:
        spark: The session.
        events: Rows as in `events.Event`; read several times.
        members: Rows as in `script.Script`.
        run: The circumstances of the replay.

    Returns:
        The results of the checks, each with up to `MOST_LISTED` failures.
    """
    pause_us, short_us = round(SILENCE_US * run.real_time_factor), round(SHORT_US * run.real_time_factor)
    with suited_to(events) as few:
        events.createOrReplaceTempView("events")
        members.createOrReplaceTempView("members")
        (bounds,) = spark.sql(_BOUNDS).collect()
        begin_us, end_us = bounds["begin_us"] or 0, bounds["end_us"] or 0
        _create_outages(spark, run.timeline, begin_us, round(run.load_ms * 1000))
        when = {"pause_us": pause_us, "short_us": short_us, "begin_us": begin_us, "end_us": end_us}
        acts = computed_once(spark.sql(_ACTS, when), few)
        acts.createOrReplaceTempView("acts")
        ends_together = run.is_complete or not run.is_simulated
        silences = computed_once(spark.sql(_SILENCES, {**when, "tail_us": end_us if ends_together else None}), few)
        most = {"most": MOST_LISTED}
        patience_us = round(1000 * (max(0.0, run.initial_delay_ms - 3000.0) + run.load_ms))
        of_groups = {"short_us": short_us + patience_us, "end_us": end_us}
        limits = {"patience_us": patience_us, "awaits_instances": run.awaits_instances}
        doubtful = computed_once(spark.sql(DOUBTFUL_GROUPS, {**of_groups, **limits}), few)
        queries: dict[str, tuple[str, dict[str, Any]]] = {
            "brokers": (SILENT_BROKERS, {"short_us": short_us, "end_us": end_us, "pause_us": pause_us, **most}),
            "undone": (_UNDONE, {"is_complete": run.is_complete, "expected_errors": [*run.expected_errors, -1]}),
            "lost": (_LOST, {"end_us": end_us}),
            "observed": (_OBSERVED, {"speed": run.real_time_factor}),
        }
        if run.is_complete:
            queries["slow"] = _SLOW_POPULATIONS, {"end_us": end_us}
        try:
            if doubtful.count():
                doubtful.createOrReplaceTempView("doubtful")
                queries["unserved"] = UNSERVED_GROUPS, {**of_groups, **most}
            if silences.count():
                silences.createOrReplaceTempView("silences")
                spark.sql(_PAUSES, when).createOrReplaceTempView("pauses")
                queries["pauses"] = _CLUSTER_FAILURES, {"pause_us": pause_us, **most}
                queries["groups"] = _MEMBER_FAILURES, {"begin_us": begin_us, "pause_us": pause_us, **most}
            found = rows_of(spark, queries, few)
        finally:
            free([doubtful, silences, acts], few)
    lost = {row["api"]: row["requests"] for row in found["lost"]}
    (observed,) = found["observed"]
    return [
        _check_observed(observed, found.get("slow", []), run, (end_us - begin_us) / 1e6),
        _check_reachable(run),
        _check_cluster(found.get("pauses", []), pause_us, begin_us),
        _check_brokers(found["brokers"], pause_us, begin_us),
        _check_groups(found.get("unserved", []), begin_us),
        _check_members(found.get("groups", []), pause_us),
        _check_scripts(found["undone"]),
        _check_lost(lost, observed["sent"] or 0),
    ]


def _check_observed(row: Row, slow: Sequence[Row], run: Circumstances, length_s: float) -> AvailabilityCheck:
    doubts = []
    if not row["answered"]:
        doubts.append("no request was answered: nothing is known about the cluster")
    if not run.is_complete:
        doubts.append(f"the replay was interrupted after {length_s:.1f} s")
    if row["late"]:
        late = counted(row["late"], "action")
        doubts.append(
            f"{late} of members were done up to {row['latest_s']} s late: the machine of the replay is too slow"
        )
    for each in slow:
        planned = counted(each["planned"], f"planned {each['what']}")
        doubts.append(f"population {each['population']} sent {each['sent']:,} of {planned}")
    sentence = (
        "The replay gets responses, runs to its end, performs the actions of its members in time, and sends at least "
        f"{LEAST_SHARE:.0%} of the requests that it plans."
    )
    return _check("observed", sentence, 0, [], [Unavailability(what=doubt) for doubt in doubts])


def _check_brokers(brokers: Sequence[Row], pause_us: int, begin_us: int) -> AvailabilityCheck:
    sentence = f"Each broker to which requests are sent answers at least one of them every {pause_us / 1e6:g} s."

    def described(row: Row) -> Unavailability:
        requests = counted(row["requests"], "request")
        what = f"broker {row['key']} answered no request {_for_time(row, begin_us)}: {requests}"
        groups = f" of {counted(row['groups'], 'group')}" if row["groups"] else ""
        return Unavailability(at_us=row["at_us"], until_us=row["until_us"], what=f"{what}{groups} lost or unanswered")

    return _check_rows("brokers-answer", sentence, brokers, described)


def _check_groups(groups: Sequence[Row], begin_us: int) -> AvailabilityCheck:
    sentence = (
        "No group is without service, although its members request it, for longer than its session timeout plus "
        f"{BOUND_US // 1_000_000} s."
    )

    def described(row: Row) -> Unavailability:
        broker = "" if row["broker"] is None else f" from broker {row['broker']}"
        what = (
            f"{row['key']} had no service{broker} {_for_time(row, begin_us)}: "
            f"{counted(len(row['members']), 'member')} waiting for {', '.join(row['apis'])}"
        )
        members = row["members"][:_MOST_NAMES]
        return Unavailability(
            group=row["key"], members=members, at_us=row["at_us"], until_us=row["until_us"], what=what
        )

    return _check_rows("groups-served", sentence, groups, described)


def _for_time(row: Row, begin_us: int) -> str:
    """Return a description of the interval of a failure."""
    length_s, from_s = (row["until_us"] - row["at_us"]) / 1e6, (row["at_us"] - begin_us) / 1e6
    text = f"for {length_s:.1f} s, starting at second {from_s:.1f}"
    return text if row["is_failure"] else f"{text}; then the replay of its members ended"


def _check_scripts(rows: Sequence[Row]) -> AvailabilityCheck:
    failed, doubts = [], []
    for row in rows:
        names = row["members"]
        undone = f"{counted(row['failures'], 'member')} could not do their script"
        if row["why"] == "undone":
            what = f"{undone}: the replay ended before their last action"
            doubts.append(Unavailability(members=names, what=f"{what}: {_listed(names, row['failures'])}"))
        else:
            what = f"{undone}: stopped by {error_name(row['error'])}"
            failed.append(Unavailability(members=names, what=f"{what}: {_listed(names, row['failures'])}"))
    sentence = "All members do their scripts: they perform all actions, and no fatal error stops them."
    count = sum(row["failures"] for row in rows if row["why"] == "stopped")
    return _check("scripts-done", sentence, count, failed, doubts)


def _listed(names: Sequence[str], count: int) -> str:
    return ", ".join(names) + (f" and {count - len(names):,} more" if count > len(names) else "")


def _check_rows(
    name: str, sentence: str, rows: Sequence[Row], described: Callable[[Row], Unavailability]
) -> AvailabilityCheck:
    """Return a check of rows with `is_failure`, their number `failures`, and a description."""
    failed = [described(row) for row in rows if row["is_failure"]]
    doubts = [described(row) for row in rows if not row["is_failure"]]
    return _check(
        name, sentence, max((row["failures"] for row in rows if row["is_failure"]), default=0), failed, doubts
    )


def _check_reachable(run: Circumstances) -> AvailabilityCheck:
    sentence = "Each broker is reachable at the end of the replay, unless an event of the workload prevents this."
    planned = {each.broker for each in planned_outages(run.timeline) if each.until_s is None}
    planned |= {event["node_id"] for event in run.timeline if event["do"] == "broker.remove" and event["done"]}
    gone = [f"broker {node_id}" for node_id in run.unreachable if node_id not in planned]
    what = [f"{name} could not be reached after the last member had left" for name in gone]
    if run.is_reachable is False:
        what = ["no broker could be reached after the last member had left"]
    doubts = ["the replay was killed before the brokers were tried"] if run.is_reachable is None else []
    failed, unknown = ([Unavailability(what=each) for each in some] for some in (what, doubts))
    return _check("reachable", sentence, len(what), failed, unknown)


def _check_cluster(pauses: Sequence[Row], pause_us: int, begin_us: int) -> AvailabilityCheck:
    violations = [
        Unavailability(
            at_us=row["at_us"],
            until_us=row["until_us"],
            what=f"no request was answered for {row['length_s']} s, starting at second "
            f"{(row['at_us'] - begin_us) / 1e6:.1f}, with {counted(row['members'], 'member')} of "
            f"{counted(row['groups'], 'group')} waiting",
        )
        for row in pauses
    ]
    sentence = f"While members wait for responses, the cluster answers at least one request every {pause_us / 1e6:g} s."
    return _check("cluster-answers", sentence, pauses[0]["failures"] if pauses else 0, violations)


def _check_members(groups: Sequence[Row], pause_us: int) -> AvailabilityCheck:
    def described(row: Row) -> Unavailability:
        return Unavailability(
            group=row["group"],
            members=row["members"][:_MOST_NAMES],
            at_us=row["at_us"],
            until_us=row["until_us"],
            what=f"{counted(len(row['members']), 'member')} of {row['group']} got no response for up to "
            f"{row['length_s']} s, starting at second {row['from_s']:.1f}"
            + ("" if row["is_failure"] else ", until their replay ended")
            + ("" if row["broker"] is None else f"; last response from broker {row['broker']}"),
        )

    sentence = (
        f"No member waits for a response longer than its session timeout plus {BOUND_US // 1_000_000} s, or longer "
        f"than {max(MEMBER_SILENCE_US, pause_us) / 1e6:g} s."
    )
    return _check_rows("members-answered", sentence, groups, described)


def _check(
    name: str, sentence: str, failures: int, failed: list[Unavailability], doubts: Sequence[Unavailability] = ()
) -> AvailabilityCheck:
    outcome: VerdictOutcome = "failed" if failed else "inconclusive" if doubts else "passed"
    return AvailabilityCheck(name, sentence, outcome, failures, failed, list(doubts))


def _check_lost(lost: Mapping[str, int], sent: int) -> AvailabilityCheck:
    count = sum(lost.values())
    is_too_many = count > LOST_SHARE * sent
    apis = ", ".join(f"{n:,} {api}" for api, n in lost.items())
    share = f"{count:,} of {sent:,} requests ({count / max(sent, 1):.1%})"
    what = f"{share} were lost, unanswered, or pending for more than {BOUND_US / 1e6:g} s at the end: {apis}"
    return _check(
        "requests-answered",
        f"Outside of planned outages, at most {LOST_SHARE:.0%} of the requests sent are lost, unanswered, or pending "
        f"for more than {BOUND_US / 1e6:g} s at the end.",
        count if is_too_many else 0,
        [Unavailability(what=what)] if is_too_many else [],
    )


def _create_outages(spark: SparkSession, timeline: Sequence[Mapping[str, Any]], begin_us: int, load_us: int) -> None:
    """Create views of intervals, in microseconds since the Unix epoch.

    `outages` are planned outages that end. In `disturbances`, requests may be lost. In `excuses`, groups and brokers
    may be out of service: in these outages, while faults return errors, and shortly after each event that is no
    condition.
    """

    def at_us(moment_s: float) -> int:
        return _NEVER_US if moment_s == inf else begin_us + round(moment_s * 1e6)

    def ended(outages: Sequence[Outage], longer_us: int = 0) -> list[tuple[int | None, int, int]]:
        return [
            (each.broker, at_us(each.from_s), at_us(each.until_s) + longer_us)
            for each in outages
            if each.until_s is not None
        ]

    schema = pa.schema([("broker", pa.int32()), ("from_us", pa.int64()), ("until_us", pa.int64())])
    outages = planned_outages(timeline)
    events = [
        (None, at_us(each["at_s"]), at_us(each["at_s"]) + SETTLING_US)
        for each in timeline
        if each["done"] and each["do"] not in CONDITION_EVENTS
    ]
    endless = [(None, at_us(each.from_s), _NEVER_US) for each in outages if each.until_s is None and each.is_fault]
    refused = planned_outages(timeline, includes_errors=True)
    for name, rows in (
        ("outages", ended(outages)),
        ("disturbances", [*ended(outages, SETTLING_US), *endless, *events]),
        ("excuses", [*ended(refused, SETTLING_US + load_us), *((None, at, end + load_us) for _, at, end in events)]),
    ):
        local_table(spark, rows, schema).createOrReplaceTempView(name)
