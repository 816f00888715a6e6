"""Spark SQL queries for the numbers of a replay, on its events and scripts.

Does not depend on the verdict (replay/verify) or on reports. Spark does all aggregation: the number of rows returned
does not depend on the number of events. numbers.py converts these rows and reads their columns by name. states.py
creates the views `generations`, `member_states`, `group_states` and `unassigned_partitions`. A slice is the index of a
time slice: `:slice_us` is the length of a slice, and `:begin_us` is the start of slice 0.
"""

from collections.abc import Mapping
from functools import partial
from types import MappingProxyType
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession, functions as f

from fakebroker.replay.members.events import IS_ASSIGNED, PARKED_APIS
from fakebroker.replay.members.request_outcomes import CUT_OFF, IS_UNEXPECTED, LOST, UNANSWERED
from fakebroker.replay.report.chance import LOAD_QUANTILES
from fakebroker.replay.report.folded_requests import DDL, batches_in_slices, in_slices
from fakebroker.replay.report.numbers import numbers_of
from fakebroker.replay.report.quantiles import counted, three_digits
from fakebroker.replay.report.series import Row, Slices
from fakebroker.replay.report.states import create_states
from fakebroker.replay.run_summary import Numbers
from fakebroker.replay.script.generator import offsets_partition
from fakebroker.replay.spark.query_settings import computed_once, free, in_parallel, local_table, suited_to

SLOWEST_GROUPS = 10
_ACCURACY = 1_000_000
"""Number of rebalances up to which their quantiles are exact, and so do not depend on how Spark divides the rows.

`percentile_disc` would need all rows in memory.
"""

_BOUNDS = f"""
    select coalesce(
            min(scheduled_us) filter (where kind = 'act' and api = 'start')
                - (select bigint(1000 * min(acts[0].at_ms)) from members),
            min(scheduled_us)) begin_us,
        min(scheduled_us) filter (where kind = 'request') first_us,
        max(greatest(coalesce(scheduled_us + latency_us, sent_us), if(`count` > 1, until_us, sent_us))) end_us,
        any_value(all_joined_us) all_joined_us, count(transaction) transactions
    from events cross join (
        select if(count(*) >= (select count(*) from members), max(joined_us), null) all_joined_us
        from (select min(scheduled_us + latency_us) joined_us from events
            where {IS_ASSIGNED} and member is not null group by member))"""
"""Begin and end of the replay, when all members had joined for the first time (null if not all did), and rows about
transactions."""

# A row of folded heartbeats stands for `count` requests, evenly spaced from `sent_us` to `until_us`.
_FOLDED = f"""
    select api, source, error, missing, latency_us, {three_digits("latency_us")} key, `count`,
        sent_us - :begin_us since_us, coalesce(until_us, sent_us) - :begin_us last_us
    from requests where `count` > 1"""

# Numbers of requests by API, source, slice, error and latency, in any number of rows.
_TALLY = f"""
    select api, source, bigint(floor((sent_us - :begin_us) / :slice_us)) slice, error, missing,
        {three_digits("latency_us")} key, count(*) n, max(latency_us) max_us
    from requests where `count` = 1 group by all
    union all
    select api, source, slice, error, missing, key, sum(n), max(max_us) from folded group by all"""

_KINDS = {
    "unexpected_errors": IS_UNEXPECTED,
    "lost": f"missing = '{LOST}'",
    "unanswered": f"missing = '{UNANSWERED}'",
    "cut_off": f"missing = '{CUT_OFF}'",
}

_LATENCIES = (
    counted(
        f"(select *, api in {PARKED_APIS} is_parked, slice >= :steady_slice is_steady from tally)",
        "api, source, slice, is_parked, is_steady",
        "(api, source, slice, key), (api, source, key), (api, key), (source, is_parked, key), (is_parked, key),"
        "(is_steady, api, source, key), (is_steady, is_parked, key)",
        _KINDS,
    )
    + " order by api, source desc, slice"
)
"""Latencies by API, source, slice, phase and whether the API may be parked.

Null is the whole replay, all APIs, or both sources. Sums over APIs are apart for those that may be parked.
"""

_REBALANCES = f"""
    with sorted as (
        select *, round(edge, 3) from_ms from (
            select *, pow(10, power) * case when length_us / pow(10, power + 3) < 2 then 1
                when length_us / pow(10, power + 3) < 5 then 2 else 5 end edge
            from (select *, int(floor((began_us - :begin_us) / :slice_us)) slice,
                floor(log10(greatest(length_us, 1) / 1000)) power
                from generations left join (select distinct group, population from members) using (group)))
    )
    select from_ms, slice, population, count(*) generations, count(length_us) rebalances,
        round(percentile_approx(length_us, 0.5, {_ACCURACY}) / 1000, 3) p50_ms,
        round(percentile_approx(length_us, 0.99, {_ACCURACY}) / 1000, 3) p99_ms,
        round(max(length_us) / 1000, 3) max_ms,
        case when grouping(from_ms) = 0 then 'length' when grouping(population) = 0 then 'population'
            when grouping(slice) = 0 then 'slice' else 'all' end part
    from sorted group by grouping sets ((), (from_ms), (slice), (slice, population)) order by from_ms, slice"""
"""Rebalances in total, by duration, by slice, and by slice and population.

`part` is "all", "length", "slice" or "population".

Durations are grouped into intervals that begin at 1, 2, 5, 10 ... ms (`from_ms`).
"""

_ERRORS = """
    select error, api, source, slice, sum(n) n from tally where error != 0 group by all
    order by error, api, source desc"""

_REQUESTS = f"""
    with waits as (
        select 'all' scope, {three_digits("late_us")} key, sum(`count`) n, max(late_us) max_us
        from (select sent_us - scheduled_us late_us, `count` from requests) group by all
    ), of_groups as (
        select broker, api, source, group, bool_or(member is not null) has_members, sum(`count`) requests,
            sum(coalesce(lookups, 1) * `count`) keys, max(coalesce(lookups, 1)) most_in_one_request
        from requests group by broker, api, source, group
    ), totals as (
        select broker, api, source, sum(requests) requests, count(distinct group) filter (where has_members) groups,
            sum(keys) keys, max(most_in_one_request) most_in_one_request
        from of_groups group by grouping sets ((), (broker), (api, source))
    )
    select totals.*, p50_ms, p99_ms, max_ms
    from totals left join ({counted("waits", "scope", "(scope, key)")}) on broker is null and api is null
    order by broker, api, source desc"""
"""Requests by broker, by API and source, and in total. Only the total has quantiles: of the delay until a request was
sent."""

_POPULATIONS = """
    with sizes as (select population, count(*) members, count(distinct group) groups from members group by 1),
    rebalanced as (
        select population, count(*) generations, max(length_us) longest_us
        from generations join (select distinct group, population from members) using (group) group by 1
    ), assigned as (
        select population, count(distinct member) filter (where state = 'assigned') members_joined,
            sum(until_us - at_us) filter (where state = 'waiting') / 1e6 unassigned_member_s
        from member_states group by 1
    ), unused as (
        select population, sum(unassigned_us) / 1e6 unassigned_partition_s from unassigned_partitions group by 1
    )
    select population, groups, members, coalesce(members_joined, 0) members_joined,
        coalesce(generations, 0) generations, round(coalesce(unassigned_member_s, 0), 3) unassigned_member_s,
        round(longest_us / 1000, 3) longest_rebalance_ms,
        round(coalesce(unassigned_partition_s, 0), 3) unassigned_partition_s
    from sizes left join rebalanced using (population) left join assigned using (population)
        left join unused using (population)
    order by population"""

_PARTITIONS = f"""
    with requested as (
        select group, sum(`count`) requests, max_by(broker, sent_us) filter (where member is not null) broker
        from requests where group is not null group by group
    )
    select offsets_partition partition, max_by(broker, requests) broker, count(*) groups,
        coalesce(sum(requests), 0) requests,
        percentile_approx(coalesce(requests, 0), array({", ".join(map(str, LOAD_QUANTILES))})) loads
    from group_partitions left join requested using (group)
    group by grouping sets ((offsets_partition), ()) order by 1"""
"""Groups and requests by partition, and in total. `loads` are quantiles of the requests of a group."""

_SLOWEST = f"""
    with rebalanced as (
        select group, count(*) generations, max(length_us) longest_us from generations group by 1
    ), waits as (
        select group, any_value(population) population, count(distinct member) members,
            sum(until_us - at_us) filter (where state = 'waiting') / 1e6 unassigned_member_s
        from member_states group by 1
    )
    select group, population, members, generations, round(longest_us / 1000, 3) longest_rebalance_ms,
        round(coalesce(unassigned_member_s, 0), 3) unassigned_member_s
    from rebalanced join waits using (group) where longest_us is not null
    order by longest_us desc, group limit {SLOWEST_GROUPS}"""


_CHANGES = """
    select what, population, state, int(floor(at)) slice, sum(change) change,
        sum(change * (1 - at + floor(at))) part
    from (
        select what, population, (at_us - :begin_us) / :slice_us at,
            inline(array(struct(state, 1 change), struct(before state, -1 change)))
        from (
            select 'groups' what, population, at_us, state, before
            from group_states left join (select distinct group, population from members) using (group)
            union all select 'members', population, at_us, state, before from member_states
        ) where state != before
    ) group by all"""
"""Changes of the number of groups and members of each population in each state, as rows for `Slices.averages`."""

_TRANSACTIONS = """
    with made as (
        select min(sent_us) begun_us, count_if(kind = 'request') requests,
            min(done_us) filter (where api = 'EndTxn' and error = 0 and committed) committed_us,
            min(done_us) filter (where api = 'EndTxn' and error = 0 and not committed) aborted_us,
            max(done_us) filter (where kind = 'seen' and committed) visible_us
        from (
            select `group`, member, kind, api, error, sent_us, scheduled_us + latency_us done_us, transaction.number,
                transaction.committed
            from events where transaction.number is not null)
        group by `group`, member, number
    ), timed as (
        select bigint(floor((begun_us - :begin_us) / :slice_us)) slice, committed_us, aborted_us,
            if(committed_us is null, null, committed_us - begun_us) / 1000 length_ms,
            if(committed_us is null, null, visible_us - begun_us) / 1000 visible_ms
        from made where requests > 0
    )
    select slice, count(*) begun, count(committed_us) committed,
        count_if(committed_us is null and aborted_us is not null) aborted,
        count_if(committed_us is null and aborted_us is null) not_ended,
        percentile(length_ms, 0.5) p50_ms, percentile(length_ms, 0.99) p99_ms, max(length_ms) max_ms,
        percentile(visible_ms, 0.5) visible_p50_ms, max(visible_ms) visible_max_ms
    from timed group by grouping sets ((slice), ())"""
"""Transactions by the slice in which they began; a null `slice` means the total."""


def compute_numbers(
    spark: SparkSession,
    events: DataFrame,
    members: DataFrame,
    offsets_partitions: int,
    measure_from_s: float | None = None,
    partitions: Mapping[str, int] = MappingProxyType({}),
) -> Numbers:
    """Return the numbers of a replay.

    Args:
        spark: The session.
        events: Rows as in `events.Event`; read several times.
        members: Rows as in `script.Script`.
        offsets_partitions: The number of partitions of `__consumer_offsets`.
        measure_from_s: Beginning of the steady state, in seconds from the start of the replay. If not given, when all
            members have joined for the first time.
        partitions: Partition counts by topic.
    """
    topics = pa.schema([("topic", pa.string()), ("partitions", pa.int32())])
    with suited_to(events) as few:
        local_table(spark, list(partitions.items()), topics).createOrReplaceTempView("topics")
        return _run_queries(spark, events, members, offsets_partitions, measure_from_s, few)


def _run_queries(
    spark: SparkSession,
    events: DataFrame,
    members: DataFrame,
    offsets_partitions: int,
    measure_from_s: float | None,
    few: bool,
) -> Numbers:
    """Run all queries. `few` is whether there are few events; see `computed_once`."""
    events.createOrReplaceTempView("events")
    members.createOrReplaceTempView("members")
    spark.sql("select * from events where kind = 'request'").createOrReplaceTempView("requests")
    bounds = _rows(spark, _BOUNDS)[0]
    begin_us, end_us = bounds["begin_us"] or 0, bounds["end_us"] or 0
    slices = Slices.of(begin_us, end_us)
    when = {"begin_us": begin_us, "slice_us": slices.length_us}
    if measure_from_s is not None:
        steady_slice = slices.first_from(begin_us + round(measure_from_s * 1e6))
    else:
        joined_us = bounds["all_joined_us"]
        steady_slice = None if joined_us is None else slices.first_from(joined_us)
    folded = spark.sql(_FOLDED, {"begin_us": begin_us})
    if few:  # Starting Python workers would take longer.
        folded = spark.createDataFrame(in_slices(folded.toArrow(), slices.length_us))
    else:
        folded = folded.mapInArrow(partial(batches_in_slices, slice_us=slices.length_us), DDL)
    folded.createOrReplaceTempView("folded")
    tally = computed_once(spark.sql(_TALLY, when), few)
    tally.createOrReplaceTempView("tally")
    states = create_states(spark, end_us, few)
    _create_offsets_partitions(spark, offsets_partitions)
    try:
        span_s = round((end_us - (bounds["first_us"] or end_us)) / 1e6, 3)
        steady = {"steady_slice": slices.count if steady_slice is None else steady_slice}
        queries: dict[str, tuple[str, Mapping[str, int]]] = {
            "latencies": (_LATENCIES, steady),
            "requests": (_REQUESTS, {}),
            "populations": (_POPULATIONS, {}),
            "rebalances": (_REBALANCES, when),
            "changes": (_CHANGES, when),
            "slowest_groups": (_SLOWEST, {}),
            "partitions": (_PARTITIONS, {}),
            "errors": (_ERRORS, {}),
        }
        if bounds["transactions"]:
            queries["transactions"] = (_TRANSACTIONS, when)
        calls = [partial(_rows, spark, query, **args) for query, args in queries.values()]
        rows = dict(zip(queries, in_parallel(calls, few), strict=True))
    finally:
        free([tally, *states], few)
    return numbers_of(rows, span_s, slices, offsets_partitions, steady_slice)


def _create_offsets_partitions(spark: SparkSession, partitions: int) -> None:
    """Create the view `group_partitions`: the offsets partition of each group."""
    partition = offsets_partition(f.col("group"), partitions)
    groups = spark.sql("select distinct group from members").withColumn("offsets_partition", partition)
    groups.createOrReplaceTempView("group_partitions")


def _rows(spark: SparkSession, query: str, **args: Any) -> list[Row]:
    return [row.asDict() for row in spark.sql(query, args).collect()]
