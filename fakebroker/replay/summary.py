"""What the events come to: the numbers of a replay, worked out by Spark SQL.

Knows events; makes no judgment (verdict.py) and no tables for people (report.py).
"""

from typing import Any

from pyspark.sql import DataFrame, SparkSession

from fakebroker.errors import ErrorCode
from fakebroker.replay.events import ORDINARY_ERRORS

ORDINARY = ", ".join(str(int(error)) for error in ORDINARY_ERRORS)
"""The same as SQL."""

NAME_OF_ERROR = (
    "coalesce(element_at(map("
    + ", ".join(f"{error:d}, '{error.name}'" for error in ErrorCode)
    + "), int(error)), string(error))"
)
"""SQL for Kafka's name of the column `error`, or its number where Kafka has none."""

QUANTILE_ACCURACY = 100_000
"""For Spark's approx_percentile: a quantile is off by at most one in so many ranks."""

_LATENCY = f"""
    round(approx_percentile(latency_us, 0.5, {QUANTILE_ACCURACY}) / 1000, 3) p50_ms,
    round(approx_percentile(latency_us, 0.99, {QUANTILE_ACCURACY}) / 1000, 3) p99_ms,
    round(approx_percentile(latency_us, 0.999, {QUANTILE_ACCURACY}) / 1000, 3) p99_9_ms,
    round(max(latency_us) / 1000, 3) max_ms"""

_APIS = f"""
    select coalesce(api, 'all') api, count(*) requests, round(count(*) / :span_s, 1) requests_per_s, {_LATENCY},
        count_if(error is not null and error not in ({ORDINARY})) unexpected_errors,
        count_if(latency_us is null) unanswered
    from events group by rollup (api) order by grouping(events.api), events.api"""

_SPAN = "select (max(coalesce(scheduled_us + latency_us, sent_us)) - min(scheduled_us)) / 1e6 span_s from events"

_REBALANCES = f"""
    with joins as (
        select group, generation, min(sent_us) began_us from events
        where api = 'JoinGroup' and error = 0 group by group, generation
    ), syncs as (
        select group, generation, max(scheduled_us + latency_us) ended_us from events
        where api = 'SyncGroup' and error = 0 group by group, generation
    ), rebalances as (select ended_us - began_us latency_us from joins join syncs using (group, generation))
    select count(*) count, {_LATENCY} from rebalances"""

_ERRORS = f"""
    select {NAME_OF_ERROR} name, error code, api, count(*) requests, error in ({ORDINARY}) ordinary from events
    where error != 0 group by error, api order by ordinary, requests desc, code, api"""

_BROKERS = """
    select broker, count(*) requests, round(count(*) / :requests, 4) share,
        count(distinct group) filter (where member is not null) groups
    from events group by broker order by broker"""

_SENDER = f"""
    select round(approx_percentile(sent_us - scheduled_us, 0.5, {QUANTILE_ACCURACY}) / 1000, 3) p50_ms,
        round(approx_percentile(sent_us - scheduled_us, 0.99, {QUANTILE_ACCURACY}) / 1000, 3) p99_ms
    from events"""

_LOOKUPS = """
    select count(*) requests, coalesce(sum(lookups), 0) lookups, coalesce(max(lookups), 0) most_in_one_request
    from events where api = 'FindCoordinator'"""

MEANING = {
    "latency": "milliseconds from the moment a member wanted to send a request until its answer was read; "
    "a JoinGroup is answered when all members of its group have joined",
    "quantiles": f"Spark's approx_percentile; off by at most 1 in {QUANTILE_ACCURACY:,} ranks",
    "requests_per_s": "requests divided by span_s, from the first one scheduled to the last one answered",
    "rebalances": "one per group and generation, from its first JoinGroup sent to its last SyncGroup answered",
    "sent_late": "how long requests waited in the swarm itself before they were sent; counted in their latency",
    "unexpected_errors": "answers with an error other than "
    + " and ".join(f"{error.name} ({error:d})" for error in ORDINARY_ERRORS if error),
    "brokers": "requests by the broker that they were sent to; -1 is an address that no broker has for its own",
    "find_coordinator": "lookups is the number of groups asked for, often several in one request (KIP-699)",
}
"""What the numbers mean; part of the summary."""


def summarize(spark: SparkSession, events: DataFrame) -> dict[str, Any]:
    """All numbers of a replay, as they stand in `summary.json`.

    Args:
        events: Rows as in `events.Event`; read several times.
    """
    events.createOrReplaceTempView("events")
    span_s = round(_rows(spark, _SPAN)[0]["span_s"] or 0.0, 3)
    *apis, total = _rows(spark, _APIS, span_s=max(span_s, 0.001))
    return {
        "span_s": span_s,
        "total": total,
        "apis": apis,
        "rebalances": _rows(spark, _REBALANCES)[0],
        "errors": _rows(spark, _ERRORS),
        "brokers": _rows(spark, _BROKERS, requests=total["requests"]),
        "sent_late": _rows(spark, _SENDER)[0],
        "find_coordinator": _rows(spark, _LOOKUPS)[0],
    }


def _rows(spark: SparkSession, query: str, **args: Any) -> list[dict[str, Any]]:
    return [row.asDict() for row in spark.sql(query, args).collect()]
