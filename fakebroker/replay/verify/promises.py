"""Checks the promises of coordinators on the events of a replay, by Spark SQL.

Counts the cases and the violations, writes the violations to a file and lists the first ones. The promises themselves
are in `promise_queries`.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial, reduce
from pathlib import Path

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.functions import lit

from fakebroker.errors import ConfigError, one_of
from fakebroker.replay.run_summary import PromiseCheck, PromiseOutcome, Violation
from fakebroker.replay.spark.query_settings import computed_once, free, in_parallel, local_table
from fakebroker.replay.verify.promise_queries import CONSUMER_PROMISES, PROMISES, TRANSACTION_PROMISES, Promise
from fakebroker.replay.verify.promise_views import DEFAULT_TIMES, BrokerTimes, PromiseViews, promise_views
from fakebroker.replay.verify.violations import SCHEMA, ViolationRow

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

_COLUMNS = ", ".join(f"`{column}`" for column in ViolationRow._fields if column != "promise")

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
            on e.group <=> about and e.sent_us <= v.until_us + {AROUND_US}
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
    required: Sequence[str] = (),
    file: Path | None = None,
    brokers: BrokerTimes = DEFAULT_TIMES,
) -> list[PromiseCheck]:
    """Check the promises of coordinators.

    Args:
        spark: The session.
        events: Rows as in `events.Event`. Cache them: they are read several times.
        members: Rows as in `script.Script`.
        partitions: Partition counts by topic. Leave out a topic whose count changed during the replay. Assignments of
            a missing topic are not checked.
        wanted: Names of the promises to check; all if not given.
        required: Names of promises that must have a case.
        file: Path for all violations, as Parquet with the columns of `ViolationRow`, overwritten if it exists; it has
            no rows if there are none. If not given, they are not written.
        brokers: Settings of the brokers.

    Returns:
        The result for each promise, with its first violations and the events around them.

    Raises:
        ConfigError: A name in `wanted` is not the name of a promise.
    """
    names = _checked_names(wanted)
    with promise_views(spark, events, members, partitions, brokers, _queries(names)) as views:
        return checked_promises(views, names, required, file)


def checked_promises(
    views: PromiseViews, names: Sequence[str], required: Sequence[str] = (), file: Path | None = None
) -> list[PromiseCheck]:
    """Check promises on the views of a run; see `check_promises`."""
    cases, is_suspected = _cases(views, names)
    broken, violations = _violations(views, [name for name in names if cases[name] and is_suspected[name]], file)
    return [
        PromiseCheck(
            name=name,
            promise=PROMISES[name].sentence,
            outcome=_outcome(cases[name], broken.get(name, 0)),
            cases=cases[name],
            case=PROMISES[name].case,
            required=name in required,
            broken=broken.get(name, 0),
            violations=violations.get(name, []),
        )
        for name in names
    ]


def countable_promises(views: PromiseViews, names: Iterable[str] = PROMISES) -> list[str]:
    """Return those of the promises whose views exist."""
    missing = (
        *(() if views.has_transactions else TRANSACTION_PROMISES),
        *(() if views.has_consumers else CONSUMER_PROMISES),
    )
    return [name for name in names if name not in missing]


def violations_query(views: PromiseViews, name: str) -> str:
    """Return the query for the violations of a promise, in groups of both protocols if there are such."""
    promise = PROMISES[name]
    if promise.consumer is None or not views.has_consumers:
        return promise.query
    queries = promise.query, promise.consumer[0]
    return " union all ".join(f"select {_COLUMNS} from ({query})" for query in queries)


def cases_query(views: PromiseViews, name: str) -> str:
    """Return the query for the cases of a promise, in groups of both protocols if there are such."""
    promise = PROMISES[name]
    if promise.consumer is None or not views.has_consumers:
        return promise.cases
    return " union all ".join(f"select `group`, cases from ({query})" for query in (promise.cases, promise.consumer[1]))


def _queries(names: Iterable[str]) -> Iterator[str]:
    """Yield all queries of promises, for groups of both protocols."""
    for name in names:
        promise = PROMISES[name]
        yield from (promise.query, promise.cases, promise.suspects or "", *(promise.consumer or ()))


def _checked_names(wanted: Sequence[str] | None) -> list[str]:
    """Return the names of the promises to check, in the order of `PROMISES`."""
    for name in wanted or ():
        if name not in PROMISES:
            raise ConfigError.of("promises.check", name, one_of(PROMISES, name))
    return [name for name in PROMISES if wanted is None or name in wanted]


def _outcome(cases: int, broken: int) -> PromiseOutcome:
    return "broken" if broken else "kept" if cases else "not exercised"


def _cases(views: PromiseViews, names: Sequence[str]) -> tuple[dict[str, int], dict[str, bool]]:
    """Return the number of cases of each promise, and whether there may be violations of it."""
    counted = countable_promises(views, names)
    counts = {("cases", name): f"select sum(cases) n from ({cases_query(views, name)})" for name in counted}
    suspects = {("suspects", name): PROMISES[name].suspects for name in counted}
    counts |= {key: f"select count(*) n from ({query})" for key, query in suspects.items() if query is not None}
    with _rows(views, {"/".join(key): query for key, query in counts.items()}) as frames:
        rows = reduce(DataFrame.union, frames.values()).collect() if frames else []
    found = {row["name"]: row["n"] or 0 for row in rows}
    return (
        {name: found.get(f"cases/{name}", 0) for name in names},
        {name: bool(found.get(f"suspects/{name}", True)) for name in names},
    )


@contextmanager
def _rows(views: PromiseViews, queries: Mapping[str, str]) -> Iterator[dict[str, DataFrame]]:
    """Store the rows of queries within the context, with the name of the query as the first column.

    Each query is planned by itself, because planning takes longer for one large query.
    """

    def planned(name: str, query: str) -> DataFrame:
        return computed_once(views.sql(f"select '{name}' name, * from ({query})"), views.few)

    frames = in_parallel([partial(planned, name, query) for name, query in queries.items()], views.few)
    try:
        yield dict(zip(queries, frames, strict=True))
    finally:
        free(frames, views.few)


def _violations(
    views: PromiseViews, names: Sequence[str], file: Path | None
) -> tuple[dict[str, int], dict[str, list[Violation]]]:
    """Return the number of violations of each of these promises, and the first ones; write all."""
    listed: dict[str, list[Violation]] = {}
    queries = {name: f"select {_COLUMNS} from ({violations_query(views, name)})" for name in names}
    with _rows(views, queries) as frames:
        counts = reduce(DataFrame.union, frames.values()).groupBy("name").count().collect() if frames else []
        numbers = {row["name"]: row["count"] for row in counts}
        found = _in_order(views, [frames[name] for name in names if name in numbers])
        if file is not None:
            found.coalesce(1).write.mode("overwrite").parquet(str(file))
        if numbers:
            found.createOrReplaceTempView("violations")
            for row in views.spark.sql(_DETAILS, {"most": MOST_VIOLATIONS}).collect():
                listed.setdefault(row["promise"], []).append(_violation(row))
    return numbers, listed


def _in_order(views: PromiseViews, frames: Sequence[DataFrame]) -> DataFrame:
    """Return violations, by promise, as rows of `ViolationRow` in the order of promises and times."""
    if not frames:
        return local_table(views.spark, [], SCHEMA)
    placed = [frame.withColumn("place", lit(place)) for place, frame in enumerate(frames)]
    ordered = reduce(DataFrame.union, placed).orderBy("place", "at_us", "group", "generation", "what")
    return ordered.withColumnRenamed("name", "promise").drop("place")


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
