"""Availability checks: whether the cluster responded to its members during the whole replay. Spark SQL on events.

A cluster that has died violates no promise, because promises are about responses; these checks require responses. They
apply to every cluster, and a workload cannot disable them. Outages that the workload itself begins and ends are
excluded. `check_availability` creates the views and parameters of the queries.
"""

from collections.abc import Iterator, Mapping, Sequence
from math import inf
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.sql import DataFrame, Row, SparkSession

from fakebroker.client.member.reactions import OTHERWISE, REACTIONS, Reaction
from fakebroker.errors import ErrorCode
from fakebroker.replay.run_summary import AvailabilityCheck, Unavailability
from fakebroker.replay.spark.query_settings import computed_once, local_table, suited_to
from fakebroker.replay.verify.promise_views import BOUND_US, OVERDUE_US, PARKED, REQUEST_TIMEOUT_US
from fakebroker.replay.workload.timeline import actions_of

SILENCE_US = 10_000_000
"""How long a cluster may leave all requests unanswered while members are waiting, in microseconds."""

MEMBER_SILENCE_US = REQUEST_TIMEOUT_US
"""Maximum time that a member may be without a response, in microseconds, even if its session timeout is longer."""

LOST_SHARE = 0.05
"""Maximum share of the requests sent that may be lost or unanswered."""

SETTLING_US = BOUND_US
"""How long requests may be lost after an event of the workload, or after the end of its outage, in microseconds."""

MOST_LISTED = 5
"""Maximum number of failures listed per check; all are counted."""

_SUPPRESSES_RESPONSES = ("drop", "silent", "delay_s", "delay_before_s", "cut_bytes")
"""Options of the event `fail` that delay or suppress responses."""
_MATCHES_SOME = ("nth", "every", "probability", "times")
"""Options of the event `fail` that restrict the fault to some of the matching requests."""

_MOST_NAMES = 5
_NEVER_US = 2**62


class Outage(NamedTuple):
    """An interval in which the workload's own events keep a broker from responding.

    Attributes:
        broker: Node id; None if it affects all brokers, or if the affected ones are not known.
        from_s: Start, in seconds from the start of the replay.
        until_s: End of its effects on clients, in seconds from the start of the replay. None if the workload never ends
            it: then missing responses are failures. Infinite if it affects only some requests: then they are excused
            until the end of the replay.
        is_fault: Whether the broker is up and a fault suppresses responses.
    """

    broker: int | None
    from_s: float
    until_s: float | None = None
    is_fault: bool = False


def planned_outages(timeline: Sequence[Mapping[str, Any]]) -> list[Outage]:
    """Return the outages caused by those events of a replay that were performed.

    Args:
        timeline: Events as in `timeline.EventOutcome`.
    """
    done = sorted((event for event in timeline if event["done"]), key=lambda event: float(event["at_s"]))
    outages = []
    for index, event in enumerate(done):
        later = done[index + 1 :]
        outage = _outage(event)
        if outage is not None:
            ends = [outage.until_s, *(float(each["at_s"]) for each in later if _ends(each, event))]
            until_s = min((end + _lasts_s(event) for end in ends if end is not None), default=None)
            outages.append(outage._replace(until_s=until_s))
    return outages


def _outage(event: Mapping[str, Any]) -> Outage | None:
    """Return the outage that an event begins; `until_s` is set only if the event itself specifies the end."""
    at_s = float(event["at_s"])
    match event["do"]:
        case "stop_broker":
            return Outage(event["node_id"], at_s)
        case "set_broker":
            return Outage(event["node_id"], at_s, is_fault=True)
        case "move_coordinator" | "move_offsets_partition" if event.get("to") in (None, "none"):
            return Outage(None, at_s)
        case "fail" if any(event.get(what) for what in _SUPPRESSES_RESPONSES):
            from_s, for_s = at_s + float(event.get("after_s", 0.0)), event.get("for_s")
            until_s = None if for_s is None else from_s + float(for_s)
            if any(event.get(which) is not None for which in _MATCHES_SOME):
                until_s = inf  # only some requests match: affects the rest of the replay
            return Outage(event.get("broker"), from_s, until_s, is_fault=True)
        case "fail":
            # When an action begins its outage is not known: affects the rest of the replay.
            begun = [_outage({**action, "at_s": at_s}) for action in actions_of(event)]
            brokers = {outage.broker for outage in begun if outage is not None}
            if brokers:
                return Outage(brokers.pop() if len(brokers) == 1 else None, at_s, inf)
    return None


def _lasts_s(event: Mapping[str, Any]) -> float:
    """Return how many seconds an outage affects clients after it has ended.

    If the broker was silent, clients wait for the request timeout.
    """
    return REQUEST_TIMEOUT_US / 1e6 if event.get("silent") or event.get("accept") == "half_open" else 0.0


def _ends(event: Mapping[str, Any], begun_by: Mapping[str, Any]) -> bool:
    """Return whether an event ends the outage that an earlier one began."""
    if event["do"] == "reset":
        return True
    match begun_by["do"]:
        case "stop_broker":
            return bool(event["do"] == "start_broker" and event["node_id"] == begun_by["node_id"])
        case "set_broker":
            return bool(event["do"] in ("set_broker", "stop_broker") and event["node_id"] == begun_by["node_id"])
        case "fail":
            return bool(event["do"] == "clear_faults")
        case _:
            return bool(event["do"] == begun_by["do"] and event.get("to") not in (None, "none"))


def _stopped_by() -> Iterator[str]:
    """Yield, for each API, an SQL condition for the errors after which a member stops."""
    for kind, reactions in REACTIONS.items():
        api = kind.__name__.removesuffix("Response")
        fatal = [error for error, reaction in reactions.items() if reaction is Reaction.FATAL]
        others = [error for error in reactions if error not in fatal]
        if OTHERWISE[kind] is Reaction.FATAL:
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

# Intervals in which a missing response is no failure: the moment of a response (or the time of a row of several
# requests), the time that the coordinator may hold back a JoinGroup or SyncGroup (parked), and the time for which the
# member's script has stopped or paused it. `is_over`: the member has stopped because of an error.
_SPANS = f"""
    with acts as (
        select `group`, member, api action, scheduled_us, sent_us,
            first(if(api = 'start', sent_us, null), true) over later next_start_us,
            first(if(api <> 'start', sent_us, null), true) over later next_us
        from events where kind = 'act'
        window later as (
            partition by `group`, member order by sent_us, scheduled_us
            rows between 1 following and unbounded following)
    ), timed as (
        select a.*, 1000L * bigint(coalesce(get(filter(s.acts, each -> each.action = a.action
                and abs(:begin_us + each.at_ms * 1000 - a.scheduled_us) <= 1000), 0).for_ms, 0)
            + if(a.action = 'zombie', session_timeout_ms + heartbeat_interval_ms, 0)) lasts_us
        from acts a left join members s using (`group`, member)
    )
    select `group`, member, broker, ({_STOPS}) is_over,
        case when {PARKED} then scheduled_us when `count` > 1 then sent_us else scheduled_us + latency_us end from_us,
        greatest(scheduled_us + latency_us, until_us) until_us
    from events where kind = 'request' and latency_us is not null and member is not null
    union all
    select `group`, member, null, null, sent_us, least(
        coalesce(until_us, :end_us), sent_us + rebalance_timeout_ms * 1000L + {OVERDUE_US})
    from events left join members using (`group`, member)
    where kind = 'request' and latency_us is null and member is not null and version >= 0 and {PARKED}
    union all
    select `group`, member, null, if(action = 'start', false, null), sent_us, case
        when action = 'start' then sent_us
        when action in ('leave', 'crash') then coalesce(next_start_us, {_NEVER_US})
        else least(sent_us + lasts_us, coalesce(next_us, {_NEVER_US})) end
    from timed"""

# `gaps` are between the spans of a member, `long` are the gaps that may fail a check; `parts` exclude planned outages.
# A FindCoordinator response with a fatal error (`refusals`) stops the members of the group.
_SILENCES = f"""
    with gaps as (
        select `group`, member, max(until_us) over past since_us, lead(from_us, 1, :tail_us) over line until_us,
            last(broker, true) over past broker, coalesce(last(is_over, true) over past, false) is_over
        from ({_SPANS})
        window line as (partition by `group`, member order by from_us, until_us),
            past as (partition by `group`, member order by from_us, until_us
                rows between unbounded preceding and current row)
    ), refusals as (
        select place.key `group`, scheduled_us + latency_us at_us
        from events lateral view explode(found) as place where place.error not in ({_RETRIABLE})
    ), long as (
        select `group`, member, broker, since_us, until_us, heartbeat_interval_ms * 1000L interval_us,
            greatest(:pause_us, least(session_timeout_ms * 1000L + {BOUND_US}, {MEMBER_SILENCE_US})) limit_us
        from gaps join members using (`group`, member)
        where not is_over and until_us - since_us - heartbeat_interval_ms * 1000L > :pause_us
    ), planned as (
        select long.*, filter(listed, each -> (long.broker is null or each.broker is null or each.broker = long.broker)
            and each.from_us < long.until_us and each.until_us > long.since_us) outages
        from long left anti join refusals
                on refusals.group = long.group and refusals.at_us between long.since_us and long.until_us
            cross join (select sort_array(collect_list(struct(from_us, until_us, broker))) listed from outages)
    ), parts as (
        select `group`, member, broker, interval_us, limit_us, inline(transform(sequence(0, size(outages)), n -> struct(
            if(n = 0, since_us, array_max(transform(slice(outages, 1, n), each -> each.until_us))) since_us,
            coalesce(get(outages, n).from_us, until_us) until_us)))
        from planned
    )
    select *, since_us + interval_us waiting_us from parts where until_us - since_us - interval_us > :pause_us"""
"""Intervals in which a member got no response for longer than `:pause_us` after its next heartbeat was due."""

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
    select `group`, min(since_us) at_us, max(until_us) until_us, array_sort(collect_set(member)) members,
        round(max(until_us - since_us) / 1e6, 1) length_s, max_by(broker, until_us - since_us) broker,
        min_by((since_us - :begin_us) / 1e6, since_us - until_us) from_s, sum(count(distinct member)) over () failures
    from silences where until_us - waiting_us > limit_us
    group by `group` order by at_us, `group` limit :most"""

# Excluded: pending requests of a member that stops, and requests sent so shortly before the end that they may be
# pending.
_LOST = f"""
    with missing as (
        select `group`, member, api, `count`, lost, sent_us, coalesce(until_us, :end_us) ended_us
        from events where kind = 'request' and latency_us is null and version >= 0
    ), counted as (
        select missing.* from missing left join members using (`group`, member)
        where lost or ended_us - sent_us > if({PARKED}, rebalance_timeout_ms * 1000L + {OVERDUE_US}, {BOUND_US})
    )
    select api, sum(`count`) requests from counted c
        left anti join (select `group`, member, api action, sent_us at_us from events where kind = 'act') a
            on a.group = c.group and a.member = c.member and a.at_us between c.sent_us and c.ended_us
            and ({PARKED} or a.action <> 'leave')
        left anti join disturbances d on d.from_us <= c.ended_us and d.until_us >= c.sent_us
    group by api order by requests desc, api"""


def check_availability(
    spark: SparkSession,
    events: DataFrame,
    members: DataFrame,
    *,
    is_reachable: bool = True,
    timeline: Sequence[Mapping[str, Any]] = (),
    speed: float = 1.0,
    is_simulated: bool = False,
) -> list[AvailabilityCheck]:
    """Check that a cluster was available during a replay.

    Args:
        spark: The session.
        events: Rows as in `events.Event`; read several times.
        members: Rows as in `script.Script`.
        is_reachable: Whether the cluster was reachable after the last member had left.
        timeline: The events of the workload, as in `timeline.EventOutcome`.
        speed: Speed of the members' clock, as a multiple of real time.
        is_simulated: Whether the replay was in memory. Then the time after a member's last response is not checked: if
            the replay is interrupted, its simulations end at different times.

    Returns:
        The results of the four checks, each with up to `MOST_LISTED` failures.
    """
    pause_us = round(SILENCE_US * (1.0 if is_simulated else max(1.0, speed)))
    with suited_to(events) as few:
        events.createOrReplaceTempView("events")
        members.createOrReplaceTempView("members")
        (bounds,) = spark.sql(_BOUNDS).collect()
        begin_us, end_us = bounds["begin_us"] or 0, bounds["end_us"] or 0
        _create_outages(spark, planned_outages(timeline), timeline, begin_us)
        when = {"pause_us": pause_us, "begin_us": begin_us, "end_us": end_us}
        waiting = spark.sql(_SILENCES, {**when, "tail_us": None if is_simulated else end_us})
        silences = computed_once(waiting, few)
        pauses: list[Row] = []
        groups: list[Row] = []
        try:
            if silences.count():
                silences.createOrReplaceTempView("silences")
                spark.sql(_PAUSES, when).createOrReplaceTempView("pauses")
                most = {"most": MOST_LISTED}
                pauses = spark.sql(_CLUSTER_FAILURES, {"pause_us": pause_us, **most}).collect()
                groups = spark.sql(_MEMBER_FAILURES, {"begin_us": begin_us, **most}).collect()
        finally:
            silences.unpersist()
        lost = {row["api"]: row["requests"] for row in spark.sql(_LOST, {"end_us": end_us}).collect()}
        sent = spark.sql("select sum(`count`) n from events where kind = 'request' and version >= 0").collect()[0]["n"]
    return [
        _check_reachable(is_reachable),
        _check_cluster(pauses, pause_us, begin_us),
        _check_members(groups, pause_us),
        _check_lost(lost, sent or 0),
    ]


def _check_reachable(is_reachable: bool) -> AvailabilityCheck:
    sentence = "The cluster is reachable at the end of the replay."
    violation = Unavailability(what="no broker could be reached after the last member had left")
    return _check("reachable", sentence, 0, []) if is_reachable else _check("reachable", sentence, 1, [violation])


def _check_cluster(pauses: Sequence[Row], pause_us: int, begin_us: int) -> AvailabilityCheck:
    violations = [
        Unavailability(
            at_us=row["at_us"],
            until_us=row["until_us"],
            what=f"no request was answered for {row['length_s']} s, starting at second "
            f"{(row['at_us'] - begin_us) / 1e6:.1f}, with {_counted(row['members'], 'member')} of "
            f"{_counted(row['groups'], 'group')} waiting",
        )
        for row in pauses
    ]
    sentence = f"While members wait for responses, the cluster answers at least one request every {pause_us / 1e6:g} s."
    return _check("cluster-answers", sentence, pauses[0]["failures"] if pauses else 0, violations)


def _check_members(groups: Sequence[Row], pause_us: int) -> AvailabilityCheck:
    violations = [
        Unavailability(
            group=row["group"],
            members=row["members"][:_MOST_NAMES],
            at_us=row["at_us"],
            until_us=row["until_us"],
            what=f"{_counted(len(row['members']), 'member')} of {row['group']} got no response for up to "
            f"{row['length_s']} s, starting at second {row['from_s']:.1f}"
            + ("" if row["broker"] is None else f"; last response from broker {row['broker']}"),
        )
        for row in groups
    ]
    sentence = (
        f"No member waits for a response longer than its session timeout plus {BOUND_US // 1_000_000} s, or longer "
        f"than {max(MEMBER_SILENCE_US, pause_us) / 1e6:g} s."
    )
    return _check("members-answered", sentence, groups[0]["failures"] if groups else 0, violations)


def _check(name: str, sentence: str, failures: int, violations: list[Unavailability]) -> AvailabilityCheck:
    return AvailabilityCheck(name, sentence, not failures, failures, violations)


def _counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def _check_lost(lost: Mapping[str, int], sent: int) -> AvailabilityCheck:
    count = sum(lost.values())
    is_too_many = count > LOST_SHARE * sent
    apis = ", ".join(f"{n:,} {api}" for api, n in lost.items())
    what = f"{count:,} of {sent:,} requests were lost or unanswered ({count / max(sent, 1):.1%}): {apis}"
    return _check(
        "requests-answered",
        f"At most {LOST_SHARE:.0%} of the requests sent are lost or unanswered.",
        count if is_too_many else 0,
        [Unavailability(what=what)] if is_too_many else [],
    )


def _create_outages(
    spark: SparkSession, outages: Sequence[Outage], timeline: Sequence[Mapping[str, Any]], begin_us: int
) -> None:
    """Create the views `outages` (those that end) and `disturbances` (intervals in which requests may be lost)."""

    def at_us(moment_s: float) -> int:
        return _NEVER_US if moment_s == inf else begin_us + round(moment_s * 1e6)

    ended = [(each.broker, at_us(each.from_s), at_us(each.until_s)) for each in outages if each.until_s is not None]
    disturbed = [
        *((from_us, until_us + SETTLING_US) for _, from_us, until_us in ended),
        *((at_us(each.from_s), _NEVER_US) for each in outages if each.until_s is None and each.is_fault),
        *((at_us(event["at_s"]), at_us(event["at_s"]) + SETTLING_US) for event in timeline if event["done"]),
    ]
    times = [("from_us", pa.int64()), ("until_us", pa.int64())]
    local_table(spark, ended, pa.schema([("broker", pa.int32()), *times])).createOrReplaceTempView("outages")
    local_table(spark, disturbed, pa.schema(times)).createOrReplaceTempView("disturbances")
