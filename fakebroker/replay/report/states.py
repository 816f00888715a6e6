"""Spark SQL views of the states of members and groups over time, as observed by the members.

A member is `gone`, `waiting` for an assignment, or `assigned`; `unknown` if it is assigned and has got no response for
its session timeout. A group is `empty` without members, `rebalancing` from the first JoinGroup of a generation until
all members that joined have an assignment, else `stable` if a member is assigned, `unknown` if none is assigned and one
is unknown, and `rebalancing` if all are waiting. The coordinator's state may differ, for example for a group with
members that are not part of the replay.

With the consumer protocol (KIP-848), a generation is a group epoch, and a rebalance lasts from the first
ConsumerGroupHeartbeat whose response has the epoch until the last response with which a member reached the epoch or got
another partition in it.

The columns of `events` and `requests` are described in members/events.py. Times are in microseconds. `latency_us`
is null if there was no response.
"""

from pyspark.sql import DataFrame, SparkSession

from fakebroker.errors import ErrorCode
from fakebroker.replay.members.events import IS_ASSIGNED
from fakebroker.replay.spark.query_settings import computed_once

_MEMBERSHIP_ENDS = ", ".join(
    str(int(error))
    for error in (
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.FENCED_MEMBER_EPOCH,
    )
)
"""Codes of errors after which a member has lost its partitions, comma-separated."""

# A member that joins a complete generation, such as a static member that returns (KIP-345), only gets the current state
# and is not part of the rebalance. The same holds for the members of a group that starts again at generation 1, because
# the replay has seen this generation before.
_GENERATIONS = """
    with answered as (
        select group, generation, member, api, sent_us, scheduled_us + latency_us done_us,
            min(if(api = 'SyncGroup', scheduled_us + latency_us, null)) over (
                partition by group, generation) completed_us
        from requests where api in ('JoinGroup', 'SyncGroup') and error = 0 and member is not null
    ), steps as (
        select *, max(if(api = 'JoinGroup', sent_us, null)) over (
            partition by group, generation, member order by sent_us) joined_us
        from answered
    ), beats as (
        select *, row_number() over line number, last(assigned, true) over earlier former
        from (
            select group, generation, member, sent_us, scheduled_us + latency_us done_us, assigned from requests
            where api = 'ConsumerGroupHeartbeat' and error = 0 and epoch >= 0 and member is not null)
        window line as (partition by group, generation, member order by sent_us),
            earlier as (partition by group, member order by sent_us rows between unbounded preceding and 1 preceding)
    ), joins as (
        select group, generation, min(sent_us) began_us from (
            select group, generation, sent_us from steps where api = 'JoinGroup'
            union all select group, generation, sent_us from beats where number = 1)
        group by group, generation
    ), syncs as (
        select group, generation, max(synced_us) ended_us from (
            select group, generation, min(done_us) synced_us from steps
            where api = 'SyncGroup' and joined_us <= completed_us group by group, generation, member
            union all
            select group, generation, done_us from beats
            where number = 1 or size(array_except(assigned, coalesce(former, array()))) > 0)
        group by group, generation
    )
    select group, generation, began_us, ended_us, ended_us - began_us length_us,
        coalesce(ended_us, lead(began_us) over (partition by group order by generation), {end_us}) over_us
    from joins left join syncs using (group, generation)"""
"""The time of each rebalance. If no SyncGroup succeeded, `ended_us` is null.

`over_us` is then the time at which the next rebalance begins, or the end of the replay; else it equals `ended_us`.
"""

# From one response to a member until the next, or until the end. A row of folded heartbeats may end after others that
# begin later.
_SILENCES = """
    select group, member, session_timeout_ms * 1000L timeout_us,
        max(heard_us) over (partition by member order by from_us, heard_us
            rows between unbounded preceding and current row) heard_us,
        coalesce(lead(from_us) over (partition by member order by from_us, heard_us), {end_us} + 1) next_us
    from (
        select group, member, if(`count` > 1, sent_us, scheduled_us + latency_us) from_us,
            greatest(scheduled_us + latency_us, until_us) heard_us
        from requests where latency_us is not null and member is not null)
    join (select member, session_timeout_ms from members) using (member)"""

_IS_JOIN = "(api = 'JoinGroup' or api = 'ConsumerGroupHeartbeat' and epoch = 0)"
_IS_LEAVE = "(api = 'LeaveGroup' or api = 'ConsumerGroupHeartbeat' and epoch < 0)"

_MARKS = f"""
    select group, member, sent_us at_us, 2 turn, if(api = 'start', 1, 0) present, 0 assigned, 0 owned, false is_join,
        0 silent
    from events where kind = 'act' and api in ('start', 'leave', 'migrate', 'crash')
    union all
    select group, member, sent_us, 2, if({_IS_JOIN}, 1, 0), 0, 0, api = 'JoinGroup', null
    from requests where ({_IS_JOIN} or {_IS_LEAVE}) and member is not null
    union all
    select group, member, scheduled_us + latency_us, 0, null, 1, size(assigned), false, null
    from requests where {IS_ASSIGNED} and (assigned is not null or epoch is null or epoch = 0)
    union all
    select group, member, scheduled_us + latency_us, 1, null, 0, 0, false, null
    from requests where error in ({_MEMBERSHIP_ENDS}) and member is not null
    union all
    select group, member, change.at_us, if(change.silent = 1, 2, 0), null, null, null, false, change.silent
    from (
        select group, member, explode(array(
            named_struct('at_us', heard_us + timeout_us, 'silent', 1),
            named_struct('at_us', next_us, 'silent', 0))) change
        from ({_SILENCES}) where next_us - heard_us > timeout_us)
    where change.at_us <= {{end_us}}"""
"""Changes of members' states; `turn` orders simultaneous changes. Null means unchanged.

`owned` is the number of partitions that the member may use.
"""

_MEMBER_STATES = f"""
    with marks as ({_MARKS}), kept as (
        select marks.group, member, population, at_us, turn, present,
            if(is_join and assignor = 'cooperative-sticky', null, assigned) assigned,
            if(is_join and assignor = 'cooperative-sticky', null, owned) owned, silent
        from marks left join members using (member)
    ), known as (
        select group, member, population, at_us, turn, last(present, true) over latest present,
            last(assigned, true) over latest assigned, last(owned, true) over latest owned,
            last(silent, true) over latest silent
        from kept window latest as (partition by member order by at_us, turn)
    ), states as (
        select distinct group, member, population, at_us, turn,
            case when present = 0 then 'gone' when assigned = 0 then 'waiting' when silent = 1 then 'unknown'
                else 'assigned' end state, greatest(owned, 0) owned
        from known
    )
    select *, coalesce(lag(state) over following, 'gone') before,
        coalesce(lead(at_us) over following, {{end_us}}) until_us
    from states window following as (partition by member order by at_us, turn)"""

_GROUP_STATES = """
    with marks as (
        select group, began_us at_us, 1 rebalances, 0 present, 0 assigned, 0 unknown from generations
        union all select group, over_us, -1, 0, 0, 0 from generations
        union all select group, at_us, 0, int(state != 'gone') - int(before != 'gone'),
            int(state = 'assigned') - int(before = 'assigned'), int(state = 'unknown') - int(before = 'unknown')
        from member_states where state != before
    ), counted as (
        select group, at_us, sum(rebalances) over (partition by group order by at_us) rebalances,
            sum(present) over (partition by group order by at_us) present,
            sum(assigned) over (partition by group order by at_us) assigned,
            sum(unknown) over (partition by group order by at_us) unknown
        from marks
    ), states as (
        select distinct group, at_us,
            case when present <= 0 then 'empty' when rebalances > 0 then 'rebalancing'
                when assigned > 0 then 'stable' when unknown > 0 then 'unknown' else 'rebalancing' end state
        from counted
    )
    select *, coalesce(lag(state) over (partition by group order by at_us), 'empty') before from states"""

_UNASSIGNED_PARTITIONS = """
    with sizes as (
        select group, population, sum(partitions) partitions
        from (select distinct group, population, explode(topics) topic from members) join topics using (topic)
        group by group, population
    ), lasting as (
        select group, sum(until_us - at_us) filter (where state != 'empty') present_us from (
            select *, coalesce(lead(at_us) over (partition by group order by at_us), {end_us}) until_us
            from group_states)
        group by group
    ), used as (
        select group, sum(owned * (until_us - at_us)) filter (where state = 'assigned') owned_us
        from member_states group by group
    )
    select group, population, greatest(partitions * coalesce(present_us, 0) - coalesce(owned_us, 0), 0) unassigned_us
    from sizes left join lasting using (group) left join used using (group)"""
"""The time for which no member had a partition while its group had members, summed over the partitions of a group."""

_VIEWS = {
    "generations": _GENERATIONS,
    "member_states": _MEMBER_STATES,
    "group_states": _GROUP_STATES,
    "unassigned_partitions": _UNASSIGNED_PARTITIONS,
}


def create_states(spark: SparkSession, end_us: int, few: bool) -> list[DataFrame]:
    """Create the views `generations`, `member_states`, `group_states` and `unassigned_partitions`; return their rows.

    Args:
        spark: A session with the views `events`, `requests` (events of kind "request"), `members` (the scripts) and
            `topics` (partition counts).
        end_us: The end of the replay, in microseconds since the Unix epoch.
        few: Whether there are few events, as for `computed_once`.
    """
    stored = []
    for name, query in _VIEWS.items():
        stored.append(computed_once(spark.sql(query.format(end_us=end_us)), few))
        stored[-1].createOrReplaceTempView(name)
    return stored
