"""One pass over the events of a run, for all that a report says about it.

    facts_of  what must be known before the first event: when the run began and ended, which brokers answered when
    observed  one part of the rows, with all rows of some groups: their promises
    in_spark  both for all rows, in tasks of Spark

Rows are divided by group. A FindCoordinator about several groups comes once for each of them.
"""

import pickle
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import groupby
from operator import itemgetter

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, functions as f

from fakebroker.replay.promises.catalog import PROMISES
from fakebroker.replay.promises.observer import Found, Group, Observation, Request, Run
from fakebroker.replay.promises.rows import requests_of
from fakebroker.replay.script.script import Script, script_of

_ROWS_PER_PART = 250_000
"""Rows that a task holds at a time."""

_OBJECTS = 20_000
"""Rows that are Python objects at a time."""

_NO_GROUP_APIS = ("FindCoordinator", "Metadata")


class Facts(msgspec.Struct, frozen=True):
    """What must be known of a run before its first event. Times are in microseconds since the Unix epoch.

    Attributes:
        sent_us: When the last request was sent.
        answering: Pairs of a broker and a second in which it answered.
        listed_us: When the last ListTransactions was sent that was answered.
    """

    sent_us: int = 0
    answering: frozenset[tuple[int, int]] = frozenset()
    listed_us: int | None = None


FACT_COLUMNS = ("kind", "api", "group", "broker", "scheduled_us", "sent_us", "latency_us", "error")


def facts_of(table: pa.Table) -> Facts:
    """Return the facts of some rows, which have `FACT_COLUMNS`."""
    if not table.num_rows:
        return Facts()
    done_us = pc.add(table["scheduled_us"], table["latency_us"])
    of_group = pc.if_else(
        pc.equal(table["kind"], "seen"),
        pc.equal(table["api"], "OffsetFetch"),
        pc.and_(
            pc.equal(table["kind"], "request"),
            pc.invert(pc.is_in(table["api"], pa.array(_NO_GROUP_APIS))),
        ),
    )
    soon = pc.fill_null(pc.less(pc.subtract(done_us, table["sent_us"]), 1_000_000), False)
    answered = pc.and_(pc.and_(of_group, pc.is_valid(table["group"])), soon)
    pairs = np.unique(
        np.stack(
            [
                table["broker"].filter(answered).to_numpy().astype(np.int64),
                done_us.filter(answered).to_numpy() // 1_000_000,
            ]
        ),
        axis=1,
    )
    listed = pc.and_(pc.equal(table["api"], "ListTransactions"), pc.fill_null(pc.equal(table["error"], 0), False))
    listed = pc.and_(pc.and_(listed, pc.equal(table["kind"], "request")), pc.is_valid(done_us))
    return Facts(
        pc.max(table["sent_us"]).as_py(),
        frozenset(zip(*pairs.tolist(), strict=True)),
        pc.max(table["sent_us"].filter(listed)).as_py(),
    )


def merged_facts(parts: Iterable[Facts]) -> Facts:
    """Return the facts of all rows, from the facts of parts of them."""
    found = list(parts)
    listed = [each.listed_us for each in found if each.listed_us is not None]
    return Facts(
        max((each.sent_us for each in found), default=0),
        frozenset().union(*(each.answering for each in found)),
        max(listed, default=None),
    )


class Plan(msgspec.Struct, frozen=True):
    """What each part of a pass needs.

    Attributes:
        promises: Names of the promises to check.
        run: What the promises know of the run.
    """

    promises: Sequence[str]
    run: Run


class Observed(msgspec.Struct):
    """The results of a part of the rows, or of all.

    Attributes:
        cases: Number of cases by promise.
        violations: All violations.
    """

    cases: Counter[str] = msgspec.field(default_factory=Counter)
    violations: list[Found] = msgspec.field(default_factory=list)

    def add(self, other: "Observed") -> None:
        """Add the results of another part."""
        self.cases += other.cases
        self.violations += other.violations


def keyed(table: pa.Table) -> pa.Table:
    """Return rows of events with the column `key`, the group that a row is about.

    A FindCoordinator about several groups becomes a row for each; only the first one has its `count`.
    """
    found = table["found"].combine_chunks()
    key = pc.coalesce(table["group"], pc.if_else(pc.equal(table["api"], "Fetch"), table["member_id"], None))
    sizes = pc.fill_null(pc.list_value_length(found), 0)
    single = table.append_column("key", key).filter(pc.equal(sizes, 0))
    if not pc.any(pc.greater(sizes, 0)).as_py():
        return single
    parents = pc.list_parent_indices(found)
    several = table.take(parents)
    places = pc.list_flatten(found)
    is_first = np.append(True, np.diff(parents.to_numpy()) != 0)
    ends = pa.array(np.arange(len(places) + 1, dtype=np.int32))
    changed = {
        "found": pa.ListArray.from_arrays(ends, places),
        "count": pc.if_else(pa.array(is_first), several["count"], pa.scalar(0, pa.int32())),
    }
    for name, column in changed.items():
        index = several.schema.get_field_index(name)
        several = several.set_column(index, several.schema.field(index), column)
    return pa.concat_tables([single, several.append_column("key", pc.struct_field(places, "key"))])


def observed(table: pa.Table, scripts: Iterable[Script], plan: Plan) -> Observed:
    """Return the results of all rows of some groups.

    Args:
        table: The rows, with the column `key`, in any order.
        scripts: The scripts of the members of these groups.
        plan: The plan.
    """
    results = Observed()
    # Rows about no group are cases if they are answered: nothing else is to be said of these.
    is_counted = pc.and_(pc.is_null(table["key"]), pc.is_valid(table["latency_us"]))
    if "answered" in plan.promises:
        of_requests = table["count"].filter(pc.and_(is_counted, pc.equal(table["kind"], "request")))
        results.cases["answered"] += pc.sum(of_requests).as_py() or 0
    for observation in observations(table.filter(pc.invert(is_counted)), scripts, plan):
        for promise in observation.promises:
            if promise.counted:
                results.cases[promise.name] += promise.counted
            if promise.found:
                results.violations += promise.found
    return results


def observations(table: pa.Table, scripts: Iterable[Script], plan: Plan) -> Iterator[Observation]:
    """Yield the observation of each group, after its end. The arguments are those of `observed`."""
    members: dict[str, dict[str, Script]] = {}
    for each in scripts:
        members.setdefault(each.group, {})[each.member] = each
    consumers = frozenset(pc.unique(table["key"].filter(pc.is_valid(table["epoch"]))).to_pylist())
    kinds = [kind for name in plan.promises for kind in PROMISES[name]]
    of_no_group = [kind for kind in kinds if kind.name == "answered"]
    for key, rows in groupby(_in_order(table), key=itemgetter(0)):
        group = Group(key, members.get(key or "", {}), uses_consumer_protocol=key in consumers)
        observation = Observation(of_no_group if key is None else kinds, group, plan.run)
        for _, request in rows:
            observation.row(request)
        observation.end()
        yield observation


def _in_order(table: pa.Table) -> Iterator[tuple[str | None, Request]]:
    """Yield rows by group and time, each with its group."""
    if not table.num_rows:
        return
    keys = pc.dictionary_encode(table["key"].combine_chunks(), null_encoding="encode")
    done_us = pc.fill_null(pc.add(table["scheduled_us"], table["latency_us"]), 2**62)
    is_no_act = pc.not_equal(table["kind"], "act")
    # By group, then by when it was sent. Of simultaneous rows, actions come first.
    columns = (done_us, is_no_act, table["sent_us"], keys.indices)
    order = np.lexsort(
        [
            column.to_numpy(zero_copy_only=False) if isinstance(column, pa.Array) else column.to_numpy()
            for column in columns
        ]
    )
    for start in range(0, len(order), _OBJECTS):
        part = table.take(pa.array(order[start : start + _OBJECTS])).combine_chunks()
        yield from zip(part["key"].to_pylist(), requests_of(part), strict=True)


def in_this_process(table: pa.Table, scripts: Iterable[Script], plan_of: Callable[..., Plan]) -> Observed:
    """Return the results of all rows. For small runs, this is faster than starting tasks.

    Args:
        table: The rows.
        scripts: The scripts.
        plan_of: Makes the plan, given the facts.
    """
    return observed(keyed(table), scripts, plan_of(facts=facts_of(table)))


def in_spark(events: DataFrame, members: DataFrame, rows: int, plan_of: Callable[..., Plan]) -> Observed:
    """Return the results of all rows, computed by tasks of Spark.

    Args:
        events: The rows.
        members: The scripts.
        rows: The number of rows.
        plan_of: Makes the plan, given the facts.
    """
    found = events.select(*FACT_COLUMNS).mapInArrow(_facts_in_task, "result binary").collect()
    plan = plan_of(facts=merged_facts(pickle.loads(row["result"]) for row in found))
    is_lookup = f.size(f.coalesce(f.col("found"), f.array())) > 0
    key = f.coalesce("group", f.when(f.col("api") == "Fetch", f.col("member_id")))
    single = events.where(~is_lookup).withColumn("key", key)
    several = (
        events.where(is_lookup)
        .select("*", f.posexplode("found").alias("place", "of_key"))
        .withColumn("key", f.col("of_key.key"))
        .withColumn("count", f.when(f.col("place") == 0, f.col("count")).otherwise(0).cast("int"))
        .withColumn("found", f.array("of_key"))
        .drop("place", "of_key")
    )
    scripts = members.select(f.col("group").alias("key"), f.struct(*members.columns).alias("script"))
    divided = (
        single.unionByName(several)
        .unionByName(scripts, allowMissingColumns=True)
        .repartition(max(events.sparkSession.sparkContext.defaultParallelism, -(-rows // _ROWS_PER_PART)), "key")
    )
    results = Observed()
    for row in divided.mapInArrow(partial(_observed_in_task, plan=plan), "result binary").toLocalIterator():
        results.add(pickle.loads(row["result"]))
    return results


def _facts_in_task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield _result(merged_facts(facts_of(pa.Table.from_batches([batch])) for batch in batches))


def _observed_in_task(batches: Iterator[pa.RecordBatch], plan: Plan) -> Iterator[pa.RecordBatch]:
    held = list(batches)
    if held:
        table = pa.Table.from_batches(held)
        scripts = table["script"].filter(pc.is_valid(table["script"])).to_pylist()
        rows = table.filter(pc.is_null(table["script"]))
        yield _result(observed(rows, map(script_of, scripts), plan))


def _result(value: object) -> pa.RecordBatch:
    return pa.record_batch([pa.array([pickle.dumps(value)], pa.binary())], ["result"])


def plan_for(promises: Sequence[str], partitions: Mapping[str, int], times: Mapping[str, int], *, facts: Facts) -> Plan:
    """Return the plan of a pass."""
    return Plan(
        promises,
        Run(
            end_us=facts.sent_us,
            partitions=partitions,
            answering=facts.answering,
            listed_us=facts.listed_us,
            **times,
        ),
    )
