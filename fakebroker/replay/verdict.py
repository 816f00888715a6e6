"""Whether a replay went well: promises that every group coordinator keeps, and the workload's own expectations.

Promises are checked on the events by Spark SQL. Each query finds what breaks its promise, a sentence a row.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from fakebroker.replay.summary import NAME_OF_ERROR, ORDINARY
from fakebroker.replay.workload import COMPARISONS, Expectation

_EXAMPLES = 3

_PROMISES = {
    "every member got an assignment": """
        select concat(member, ' got none') what from members
        left anti join events on events.member = members.member and api = 'SyncGroup' and assigned is not null""",
    "in each group's last generation every partition was assigned exactly once": """
        with last as (
            select group, max(generation) generation from events where api = 'JoinGroup' and error = 0 group by group
        ), wanted as (
            select group, explode(transform(sequence(0, partitions - 1), n -> concat(topic, '-', n))) partition,
                true is_wanted
            from (select distinct group, explode(topics) topic from members) join topics using (topic)
        ), given as (
            select group, partition, count(*) times from (
                select group, generation, explode(assigned) partition from events
                where api = 'SyncGroup' and assigned is not null
            ) join last using (group, generation) group by group, partition
        )
        select concat(partition, ' of ', group, ' was assigned ',
            if(is_wanted, concat(coalesce(times, 0), ' times'), 'but is none of its partitions')) what
        from wanted full join given using (group, partition)
        where times is distinct from 1 or is_wanted is null""",
    "no member was ever given an older generation than it had": """
        select concat(member, ' went from ', before, ' to ', generation) what from (
            select member, generation,
                lag(generation) over (partition by member order by scheduled_us + latency_us) before
            from events where api = 'JoinGroup' and error = 0
        ) where generation < before""",
    "every request was answered": """
        select concat(api, coalesce(concat(' of ', member), '')) what from events where latency_us is null""",
    "no answer had an error outside the ordinary ones": f"""
        select concat(api, ' of ', coalesce(member, group, '?'), ': ', {NAME_OF_ERROR}) what from events
        where error not in ({ORDINARY})""",
}


def judge(
    spark: SparkSession,
    events: DataFrame,
    scripts: DataFrame,
    partitions: Mapping[str, int],
    expected: Sequence[Expectation],
    summary: Mapping[str, Any],
) -> dict[str, Any]:
    """The verdict as it stands in `summary.json`. For the arguments see `promises` and `expectations`."""
    promised = promises(spark, events, scripts, partitions)
    compared = expectations(expected, summary)
    passed = all(check["kept"] for check in promised) and all(check["met"] for check in compared)
    return {"passed": passed, "promises": promised, "expectations": compared}


def promises(
    spark: SparkSession, events: DataFrame, scripts: DataFrame, partitions: Mapping[str, int]
) -> list[dict[str, Any]]:
    """Check the promises.

    Args:
        events: Rows as in `events.Event`.
        scripts: Rows as in `scripts.Script`: who should have been there.
        partitions: How many partitions each topic really has.

    Returns:
        For each promise whether it was `kept`, how often it was `broken`, and a few `examples`.
    """
    events.createOrReplaceTempView("events")
    scripts.createOrReplaceTempView("members")
    spark.createDataFrame(list(partitions.items()), "topic string, partitions int").createOrReplaceTempView("topics")
    breaches = " union all ".join(
        f"select {number} promise, what from ({query})" for number, query in enumerate(_PROMISES.values())
    )
    counted = (
        f"select promise, count(*), slice(sort_array(collect_list(what)), 1, {_EXAMPLES}) from ({breaches}) group by 1"
    )
    broken = {number: (count, examples) for number, count, examples in spark.sql(counted).collect()}
    checked = []
    for number, promise in enumerate(_PROMISES):
        count, examples = broken.get(number, (0, []))
        checked.append({"promise": promise, "kept": count == 0, "broken": count, "examples": examples})
    return checked


def expectations(expected: Sequence[Expectation], summary: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Compare what the workload expects with the summary; a number that there is not meets nothing."""
    checked = []
    for expectation in expected:
        actual = metric(expectation, summary)
        met = actual is not None and COMPARISONS[expectation.comparison](actual, expectation.value)
        checked.append({"expectation": str(expectation), "met": met, "actual": actual})
    return checked


def metric(expectation: Expectation, summary: Mapping[str, Any]) -> float | None:
    """The number of the summary that an expectation is about; `None` if there were no such requests."""
    match expectation.metric:
        case "rebalances":
            return summary["rebalances"]["count"]  # type: ignore[no-any-return]  # the summary is JSON
        case "rebalance_p99_ms":
            return summary["rebalances"]["p99_ms"]  # type: ignore[no-any-return]
        case "broker_share":
            return max((broker["share"] for broker in summary["brokers"]), default=None)
        case name:
            rows = [summary["total"]] if expectation.api is None else summary["apis"]
            return next((row[name] for row in rows if expectation.api in (None, row["api"])), None)
