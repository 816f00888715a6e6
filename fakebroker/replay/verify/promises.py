"""Checks the promises of group coordinators on the events of a replay, by Spark SQL.

Counts the violations and lists the first ones; the promises themselves are in `promise_queries`.
"""

from collections.abc import Mapping, Sequence

from pyspark.sql import DataFrame, Row, SparkSession

from fakebroker.errors import ConfigError, one_of
from fakebroker.replay.run_summary import PromiseCheck, Violation
from fakebroker.replay.verify.promise_queries import PROMISES, Promise
from fakebroker.replay.verify.promise_views import promise_views

__all__ = ["PROMISES", "Promise", "check_promises"]

MOST_VIOLATIONS = 5
"""Maximum number of violations listed per promise, earliest first; all are counted."""

MOST_EVENTS = 20
"""Maximum number of events listed with each violation."""

AROUND_US = 2_000_000
"""Events this long before and after a violation are listed, in microseconds."""

_MOMENTS = ("e.sent_us", "e.scheduled_us + e.latency_us", "e.until_us")
"""The times of an event. One of them is the beginning or the end of the violation that the event is part of."""

_OTHERS = 4
"""Events of other members are listed only if they are this many times nearer to the violation."""

# Events at the beginning and at the end of the violation come first, then those next to them.
_DETAILS = f"""
    with listed as (
        select *, concat(promise, place) id from (
            select *, row_number() over (partition by promise order by at_us, `group`, generation, what) place
            from violations)
        where place <= :most
    ), around as (
        select /*+ broadcast(v) */ id, struct(e.*) event, row_number() over (
            partition by id order by
                if({" or ".join(f"{each} in (v.at_us, v.until_us)" for each in _MOMENTS)}, 0, 1),
                least(abs(e.sent_us - v.at_us), abs(e.sent_us - v.until_us))
                    * if(array_contains(v.members, e.member), 1, {_OTHERS}),
                e.sent_us) place
        from (select id, `group` about, members, at_us, until_us from listed) v join events e
            on e.group = about and e.sent_us <= v.until_us + {AROUND_US}
                and greatest({", ".join(_MOMENTS)}) >= v.at_us - {AROUND_US}
    )
    select listed.*, shown from listed left join (
        select id, sort_array(collect_list(event)) shown from around where place <= {MOST_EVENTS} group by id
    ) using (id) order by promise, place"""


def check_promises(
    spark: SparkSession,
    events: DataFrame,
    members: DataFrame,
    partitions: Mapping[str, int],
    wanted: Sequence[str] | None = None,
) -> list[PromiseCheck]:
    """Check the promises of group coordinators.

    Args:
        spark: The session.
        events: Rows as in `events.Event`. Cache them: they are read several times.
        members: Rows as in `script.Script`.
        partitions: Partition counts by topic. Leave out a topic whose count changed during the replay. Assignments of
            a missing topic are not checked.
        wanted: Names of the promises to check; all if not given.

    Returns:
        The result for each promise, with its first violations and the events around them.

    Raises:
        ConfigError: A name in `wanted` is not the name of a promise.
    """
    names = _checked_names(wanted)
    with promise_views(spark, events, members, partitions):
        counts = _count(spark, names)
        broken = [name for name in names if name in counts]
        violations = _violations(spark, broken) if broken else {}
    return [
        PromiseCheck(
            name=name,
            promise=PROMISES[name].sentence,
            kept=name not in counts,
            broken=counts.get(name, 0),
            violations=violations.get(name, []),
        )
        for name in names
    ]


def _checked_names(wanted: Sequence[str] | None) -> list[str]:
    """Return the names of the promises to check, in the order of `PROMISES`."""
    for name in wanted or ():
        if name not in PROMISES:
            raise ConfigError.of("promises.check", name, one_of(PROMISES, name))
    return [name for name in PROMISES if wanted is None or name in wanted]


def _union(names: Sequence[str]) -> str:
    return " union all ".join(
        f"select '{name}' promise, `group`, generation, members, at_us, until_us, what from ({PROMISES[name].query})"
        for name in names
    )


def _count(spark: SparkSession, names: Sequence[str]) -> dict[str, int]:
    """Return the number of violations of each promise that has any."""
    # One by one: Spark takes longer for one large plan, and sends the whole plan to each task.
    counts = {name: spark.sql(PROMISES[name].query).count() for name in names}
    return {name: count for name, count in counts.items() if count}


def _violations(spark: SparkSession, names: Sequence[str]) -> dict[str, list[Violation]]:
    spark.sql(_union(names)).createOrReplaceTempView("violations")
    listed: dict[str, list[Violation]] = {}
    for row in spark.sql(_DETAILS, {"most": MOST_VIOLATIONS}).collect():
        listed.setdefault(row["promise"], []).append(_violation(row))
    return listed


def _violation(row: Row) -> Violation:
    return Violation(
        group=row["group"],
        generation=row["generation"],
        members=row["members"],
        at_us=row["at_us"],
        until_us=row["until_us"],
        what=row["what"],
        events=[event.asDict(recursive=True) for event in row["shown"] or ()],
    )
