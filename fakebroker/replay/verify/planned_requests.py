"""Query for populations that sent much less than planned. Spark SQL on the views of `availability`.

A member plans a heartbeat per interval while it runs, except while its script suspends it, and while its JoinGroup or
SyncGroup may be parked. A transactional producer plans a transaction per interval, except while it has stopped. It
misses one for each interval that a transaction, or a request for a producer id, lasts.
"""

from fakebroker.replay.verify.bounds import PARKED

LEAST_SHARE = 0.5
"""The share of its planned requests, or transactions, that a population has to send for a verdict."""

LEAST_PLANNED = 10
"""Minimum of planned requests, or transactions, of a population that is checked."""

_DONE_US = "coalesce(scheduled_us + latency_us, until_us, :end_us)"
_SENT = "api in ('Heartbeat', 'ConsumerGroupHeartbeat', 'JoinGroup', 'SyncGroup')"

# `{stops}`: the condition for responses after which a member stops. `initializations` is the number of producer ids
# that the member has got before, so that a request of a former producer does not belong to its transaction.
SLOW_POPULATIONS = f"""
    with edges as (
        select `group`, member, action = 'start' is_start, sent_us at_us from acts
        where action in ('start', 'leave', 'migrate', 'crash')
        union all
        select `group`, member, false, scheduled_us + latency_us from events
        where kind = 'request' and member is not null and latency_us is not null and ({{stops}})
    ), running as (
        select `group`, member, sum(if(is_start, next_us - at_us, 0)) running_us
        from (select *, lead(at_us, 1, :end_us) over (partition by `group`, member order by at_us) next_us from edges)
        group by `group`, member
    ), suspended as (
        select `group`, member, sum(lasts_us) suspended_us from acts group by `group`, member
    ), sent as (
        select `group`, member, sum(`count`) filter (where {_SENT}) sent,
            coalesce(sum({_DONE_US} - sent_us) filter (where {PARKED}), 0) parked_us
        from events where kind = 'request' and member is not null and version >= 0
        group by `group`, member
    ), transactions as (
        select `group`, member, number, initializations, max(is_sent) is_sent,
            max(done_us) - min(scheduled_us) lasted_us
        from (
            select `group`, member, scheduled_us, {_DONE_US} done_us, version >= 0 is_sent,
                coalesce(transaction.number, -scheduled_us) number,
                count_if(api = 'InitProducerId' and error = 0) over (
                    partition by `group`, member order by scheduled_us) initializations
            from events where kind = 'request' and transaction is not null)
        group by `group`, member, number, initializations
    ), produced as (
        select `group`, member, count(distinct if(number > 0 and is_sent, number, null)) produced,
            sum(lasted_us div (transactions.interval_ms * 1000L)) missed
        from transactions join members using (`group`, member)
        group by `group`, member
    ), plans as (
        select population, 'request' what, greatest(0, running_us - coalesce(suspended_us, 0) - coalesce(parked_us, 0))
                / (heartbeat_interval_ms * 1000L) planned, coalesce(sent, 0) sent
        from members join running using (`group`, member) left join suspended using (`group`, member)
            left join sent using (`group`, member)
        union all
        select population, 'transaction', produced
                + greatest(0, missed - coalesce(suspended_us, 0) / (members.transactions.interval_ms * 1000L)), produced
        from members join produced using (`group`, member) left join suspended using (`group`, member)
    )
    select population, what, bigint(sum(planned)) planned, sum(sent) sent from plans group by population, what
    having planned >= {LEAST_PLANNED} and sent < {LEAST_SHARE} * planned
    order by population, what"""
"""Populations that sent less than `LEAST_SHARE` of what they planned: requests of members, or transactions."""
