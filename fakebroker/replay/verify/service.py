"""Queries for groups without service and for brokers without responses. Spark SQL on the views of `availability`.

A group has service while a member gets responses to SyncGroup, Heartbeat, ConsumerGroupHeartbeat or OffsetCommit that
accept it as a member; a broker is in service while it responds to any client. The queries look for times in which
requests were in vain: each was lost, unanswered, rejected or is still pending, and the next one followed soon. Times of
planned outages do not count.
"""

from fakebroker.errors import ErrorCode
from fakebroker.replay.members.request_outcomes import CUT_OFF, LOST
from fakebroker.replay.verify.bounds import BOUND_US, PARKED

CHAIN_US = BOUND_US
"""Maximum time between two requests in vain that belong together, in microseconds."""

# Not JoinGroup: members of a group whose SyncGroups are not answered join again and again.
_ACCEPTED = (
    "api in ('SyncGroup', 'Heartbeat', 'ConsumerGroupHeartbeat', 'OffsetCommit') "
    f"and coalesce(error, -1) in ({int(ErrorCode.NONE)}, {int(ErrorCode.REBALANCE_IN_PROGRESS)})"
)
_IN_VAIN = f"coalesce(error, -1) not in ({int(ErrorCode.NONE)}, {int(ErrorCode.REBALANCE_IN_PROGRESS)})"
_MOVED = ", ".join(
    str(int(error))
    for error in (
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    )
)
_DONE_US = "coalesce(scheduled_us + latency_us, until_us, :end_us)"

# The long intervals between two responses that show service. `key` is a group or a broker; the first interval begins
# with the first request.
_GAPS = """
    select g.*, limit_us from (
        select key, max(until_us) over (
                partition by key order by from_us rows between unbounded preceding and current row) since_us,
            coalesce(lead(from_us) over line, :end_us) until_us, lead(from_us) over line is null is_last
        from (
            select key, min(from_us) from_us, max(until_us) until_us from (
                select {key} key, if(`count` > 1, sent_us, scheduled_us + latency_us) from_us,
                    greatest(scheduled_us + latency_us, until_us) until_us
                from events where kind = 'request' and {of_key} and {good}
                union all
                select {key}, min(sent_us), min(sent_us) from events where kind = 'request' and {of_key} group by {key})
            group by key, from_us div 1000000)
        window line as (partition by key order by from_us)
    ) g {limits} where g.until_us - g.since_us > if(g.is_last, :short_us, limit_us)"""

# The failures of groups or brokers in the intervals `gaps`, by the requests in vain (`vain`). If the last interval of
# the replay is too short to be a failure, it is not known whether service would have ended.
_CHAINS = """
    with clipped as (
        select v.*, g.since_us, g.is_last, limit_us, greatest(v.sent_us, g.since_us) begun_us,
            least(v.done_us, g.until_us) to_us
        from ({gaps}) g join ({vain}) v on v.key = g.key and v.sent_us < g.until_us and v.done_us >= g.since_us
    ), planned as (
        select c.*, greatest(begun_us, array_max(transform(filter(listed, each -> each.from_us <= to_us
            and each.until_us >= begun_us and (each.broker is null or c.broker < 0 or each.broker = c.broker)),
            each -> each.until_us))) from_us
        from clipped c cross join (select collect_list(struct(from_us, until_us, broker)) listed from excuses)
    ), marks as (
        select *, coalesce(int(from_us > {chain_us} + max(to_us) over (partition by key, since_us
            order by from_us, to_us rows between unbounded preceding and 1 preceding)), 0) is_new
        from planned where from_us <= to_us
    ), chains as (
        select *, sum(is_new) over (partition by key, since_us order by from_us, to_us
            rows between unbounded preceding and current row) chain
        from marks
    ), found as (
        select key, is_last, limit_us, min(from_us) at_us, max(to_us) until_us, array_sort(collect_set(member)) members,
            count(distinct `group`) groups, count(*) requests, array_sort(collect_set(api)) apis,
            max_by(if(broker < 0, null, broker), to_us) broker
        from chains group by key, since_us, is_last, limit_us, chain
    ), judged as (
        select *, until_us - at_us > limit_us is_failure from found
        where until_us - at_us > if(is_last, :short_us, limit_us)
    ), numbered as (
        select *, row_number() over (partition by is_failure order by at_us, key) place,
            count(*) over (partition by is_failure) failures
        from judged {excused}
    )
    select * from numbered where place <= :most order by at_us, key"""

# Requests in vain, JoinGroups and LeaveGroups with a response, and actions of members. `is_held`: the coordinator may
# have parked the request until the member stopped or left, or was about to; `is_moved`: the coordinator may be
# another one.
_MARKS = f"""
    select `group`, member, null action, api, broker, sent_us, {_DONE_US} done_us, {_IN_VAIN} is_vain,
        {PARKED} and coalesce(missing = '{CUT_OFF}', false) and version >= 0
            or coalesce(error = {int(ErrorCode.MEMBER_ID_REQUIRED)}, false) is_held,
        coalesce(error in ({_MOVED}), missing = '{LOST}') is_moved, null lasts_us, null session_us, null rebalance_us,
        null is_static
    from events left semi join doubtful on doubtful.key = events.group
    where kind = 'request' and member is not null and ({_IN_VAIN} or api in ('JoinGroup', 'LeaveGroup'))
    union all
    select `group`, member, action, null, null, sent_us, sent_us, false, false, false, lasts_us, session_us,
        rebalance_us, is_static
    from acts left semi join doubtful on doubtful.key = acts.group"""

# With the classic protocol, a coordinator waits for a member that has stopped, or could not say that it leaves, until
# its session ends (`stopped_us`), and for a slow one until it polls. If the member stops while its JoinGroup is
# parked, its session begins with the next generation; if it is the leader, the SyncGroups of the others wait for so
# long. All sessions begin again if another broker loads the group meanwhile. Until then (`wait_us`), requests that
# may be held prove nothing.
_WAITS = f"""
    select *, max(if(is_moved and stopped_us is not null, done_us + longest_us, stopped_us)) over (
        partition by `group` order by done_us) wait_us
    from (
        select *, max(case
                when action = 'slow' then sent_us + lasts_us
                when joining_us >= sent_us and action <> 'start'
                then least(joined_us, sent_us + longest_rebalance_us) + session_us
                when action in ('crash', 'pause', 'zombie') or action in ('leave', 'migrate')
                    and (is_static or coalesce(left_us > sent_us + {BOUND_US}, true)) then sent_us + session_us
                end) over (partition by `group` order by done_us) stopped_us
        from (
            select *, max(session_us) over (partition by `group`) longest_us,
                max(rebalance_us) over (partition by `group`) longest_rebalance_us,
                max(if(api = 'JoinGroup', done_us, null)) over (
                    partition by `group`, member order by sent_us) joining_us,
                min(if(api = 'LeaveGroup' and not is_vain, sent_us, null)) over (partition by `group`, member
                    order by sent_us range between current row and unbounded following) left_us,
                min(if(api = 'JoinGroup' and not is_vain, done_us, null)) over (partition by `group` order by done_us
                    range between current row and unbounded following) joined_us
            from ({_MARKS})))"""

_GROUPS_GAPS = _GAPS.format(
    key="`group`",
    good=_ACCEPTED,
    of_key="member is not null",
    limits=f"""join (
        select `group` key, max(session_timeout_ms) * 1000L + {BOUND_US} + :patience_us
            + if(:awaits_instances, max(rebalance_timeout_ms) * 1000L, 0) limit_us from members group by `group`
        ) l on l.key = g.key""",
)

DOUBTFUL_GROUPS = f"""
    select g.* from ({_GROUPS_GAPS}) g join (
        select `group` key, sent_us, {_DONE_US} done_us from events
        where kind = 'request' and member is not null and {_IN_VAIN}
    ) v on v.key = g.key and v.sent_us < g.until_us and v.done_us >= g.since_us
    group by all
    having max(least(v.done_us, g.until_us)) - min(greatest(v.sent_us, g.since_us)) > if(is_last, :short_us, limit_us)
"""
"""Intervals in which groups may have had no service: the view `doubtful` of `UNSERVED_GROUPS`. Few groups remain."""

UNSERVED_GROUPS = _CHAINS.format(
    gaps="select * from doubtful",
    # A start extends the initial delay of a rebalance. Members that their script suspends do not read responses.
    vain=f"""
        select `group` key, `group`, member, api, broker, done_us,
            greatest(sent_us, started_us, if(is_held, wait_us, null)) sent_us
        from (
            select *, max(if(action = 'start', sent_us, null)) over (partition by `group` order by done_us) started_us,
                max(if(action in ('pause', 'zombie', 'slow'), sent_us + lasts_us, null)) over (
                    partition by `group`, member order by done_us) suspended_us
            from ({_WAITS}))
        where is_vain and coalesce(suspended_us < sent_us, true)""",
    chain_us=CHAIN_US,
    # The coordinator may be waiting for the end of a session.
    excused="""left anti join (
            select `group`, sent_us from acts
            where action in ('crash', 'pause', 'zombie', 'slow') or action = 'leave' and is_static) a
        on not is_failure and a.group = judged.key
            and a.sent_us between judged.at_us - limit_us and judged.until_us - :short_us""",
)
"""Groups without service, and (not `is_failure`) groups without service at the end of a replay that was too short."""

SILENT_BROKERS = _CHAINS.format(
    gaps=_GAPS.format(
        key="broker",
        good="latency_us is not null",
        of_key="broker >= 0",
        limits="cross join (select :pause_us limit_us)",
    ),
    vain=f"""
        select broker key, `group`, member, api, broker, {_DONE_US} done_us, sent_us from events
        where kind = 'request' and latency_us is null and broker >= 0 and not (missing = '{CUT_OFF}' and {PARKED})""",
    chain_us=CHAIN_US,
    excused="",
)
"""Brokers that did not respond, and (not `is_failure`) those that did not at the end of a replay that was too short."""
