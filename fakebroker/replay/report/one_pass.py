"""One pass over the events of a run. It computes all that a report says about them.

    known_of         what must be known before the first event: when the run began and ended, when brokers answered
    results_of       promises, availability and numbers of some groups, given all their rows
    in_this_process  both steps for all rows of a small run
    in_spark         both steps for all rows of a larger run, in tasks of Spark

Rows are divided by group. If a FindCoordinator is about several groups, each group gets a row of it.
"""

import gc
import pickle
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import groupby
from operator import itemgetter
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, functions as f

from fakebroker.replay.members.events import SCHEMA
from fakebroker.replay.promises.availability import UNDISTURBED, Circumstances, Sums, Unanswered, observers, sums_of
from fakebroker.replay.promises.catalog import PROMISES
from fakebroker.replay.promises.coordinators import Answered
from fakebroker.replay.promises.group_availability import Conditions, Findings
from fakebroker.replay.promises.observer import Found, Group, Observation, Observer, Promise, Request, Run
from fakebroker.replay.promises.rows import requests_of
from fakebroker.replay.report.partial_numbers import BOUNDS_COLUMNS, Bounds, Facts, Partial, bounds_of, partial_numbers
from fakebroker.replay.script.script import Script, script_of

_ROWS_PER_PART = 250_000
"""Rows that a task holds at a time."""

_OBJECTS = 20_000
"""Rows that are Python objects at a time."""

_NO_GROUP_APIS = ("FindCoordinator", "Metadata")


class Known(msgspec.Struct):
    """What must be known of a run before its first event. Times are in microseconds since the Unix epoch.

    Attributes:
        bounds: When the run began and ended.
        sums: The sums over all rows that the availability checks need.
        sent_us: When the last request was sent.
        answering: Pairs of a broker and a second in which it answered.
        listed_us: When the last answered ListTransactions was sent; 0 if there is none.
    """

    bounds: Bounds = Bounds()
    sums: Sums = msgspec.field(default_factory=Sums)
    sent_us: int = 0
    answering: set[tuple[int, int]] = msgspec.field(default_factory=set)
    listed_us: int = 0

    def add(self, other: "Known") -> None:
        """Add what is known from other rows."""
        self.bounds += other.bounds
        self.sums.add(other.sums)
        self.sent_us = max(self.sent_us, other.sent_us)
        self.answering |= other.answering
        self.listed_us = max(self.listed_us, other.listed_us)


KNOWN_COLUMNS = sorted({*BOUNDS_COLUMNS, *Unanswered._fields, "scheduled_us", "latency_us", "kind", "error"})


def known_of(table: pa.Table, run: Circumstances = UNDISTURBED) -> Known:
    """Return what is known from some rows. The rows have the columns `KNOWN_COLUMNS`."""
    if not table.num_rows:
        return Known()
    done_us = pc.add(table["scheduled_us"], table["latency_us"])
    of_group = pc.if_else(
        pc.equal(table["kind"], "seen"),
        pc.equal(table["api"], "OffsetFetch"),
        pc.and_(pc.equal(table["kind"], "request"), pc.invert(pc.is_in(table["api"], pa.array(_NO_GROUP_APIS)))),
    )
    soon = pc.fill_null(pc.less(pc.subtract(done_us, table["sent_us"]), 1_000_000), False)
    answered = pc.and_(pc.and_(of_group, pc.is_valid(table["group"])), soon)
    brokers = table["broker"].filter(answered).to_numpy().astype(np.int64)
    pairs = np.unique(np.stack([brokers, done_us.filter(answered).to_numpy() // 1_000_000]), axis=1)
    listed = pc.and_(pc.equal(table["api"], "ListTransactions"), pc.fill_null(pc.equal(table["error"], 0), False))
    listed = pc.and_(pc.and_(listed, pc.equal(table["kind"], "request")), pc.is_valid(done_us))
    return Known(
        bounds_of(table),
        sums_of(table, run),
        pc.max(table["sent_us"]).as_py(),
        set(zip(*pairs.tolist(), strict=True)),
        pc.max(table["sent_us"].filter(listed)).as_py() or 0,
    )


class Plan(msgspec.Struct, frozen=True):
    """What each part of a pass needs.

    Attributes:
        promises: Names of the promises to check.
        run: What the promises know of the run.
        facts: What the numbers know of the run.
        conditions: What the availability checks know of the run.
    """

    promises: tuple[str, ...]
    run: Run
    facts: Facts
    conditions: Conditions


PlanOf = Callable[[Known, float | None], Plan]
"""Makes a plan. Gets what is known, and when the first action of all scripts is due, in milliseconds."""


class Results(msgspec.Struct):
    """The results of a part of the rows, or of all.

    Attributes:
        cases: Number of cases by promise.
        violations: All violations.
        counts: The counts of the parts, for the numbers.
        findings: What the availability checks have found.
    """

    cases: Counter[str] = msgspec.field(default_factory=Counter)
    violations: list[Found] = msgspec.field(default_factory=list)
    counts: list[Partial] = msgspec.field(default_factory=list)
    findings: Findings = msgspec.field(default_factory=Findings)

    def add(self, other: "Results") -> None:
        """Add the results of another part."""
        self.cases += other.cases
        self.violations += other.violations
        self.counts += other.counts
        self.findings.add(other.findings)


def results_of(table: pa.Table, scripts: pa.Table, plan: Plan) -> Results:
    """Return the results of all rows of some groups.

    Args:
        table: The rows, with the column `key`, in any order.
        scripts: The scripts of the members of these groups.
        plan: The plan.
    """
    results = Results(counts=[partial_numbers(table, scripts, plan.facts)])
    # An answered row about no group is a case of `answered`. Nothing else observes such rows.
    is_counted = pc.and_(pc.is_null(table["key"]), pc.is_valid(table["latency_us"]))
    if "answered" in plan.promises:
        of_requests = table["count"].filter(pc.and_(is_counted, pc.equal(table["kind"], "request")))
        results.cases["answered"] += pc.sum(of_requests).as_py() or 0
    members = map(script_of, scripts.to_pylist())
    kinds = [kind for name in plan.promises for kind in PROMISES[name]]
    checks = observers(plan.conditions, results.findings)
    with _without_collector():
        for observation in observations(table.filter(pc.invert(is_counted)), members, kinds, plan.run, checks):
            for promise in observation.promises:
                if promise.counted:
                    results.cases[promise.name] += promise.counted
                if promise.found:
                    results.violations += promise.found
    return results


@contextmanager
def _without_collector() -> Iterator[None]:
    """Switch off Python's garbage collector. It would search millions of requests for cycles, but they have none.

    The search takes 4 of the 25 us per row.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def observations(
    table: pa.Table,
    scripts: Iterable[Script],
    promises: Sequence[type[Promise]],
    run: Run,
    checks: Sequence[Observer] = (),
) -> Iterator[Observation]:
    """Yield the observation of each group, after its end.

    Args:
        table: All rows of some groups, with the column `key`, in any order.
        scripts: The scripts of the members of these groups.
        promises: The classes of the promises.
        run: What the promises know of the run.
        checks: Functions that make the availability checks of a group.
    """
    members: dict[str, dict[str, Script]] = {}
    for each in scripts:
        members.setdefault(each.group, {})[each.member] = each
    consumers = frozenset(pc.unique(table["key"].filter(pc.is_valid(table["epoch"]))).to_pylist())
    is_of_group = pc.or_(pc.is_valid(table["group"]), pc.is_valid(table["found"]))
    named = frozenset(pc.unique(table["key"].filter(is_of_group)).to_pylist())
    of_groups: dict[str, list[Observer]] = {
        protocol: [*(each for each in promises if each.protocol in (None, protocol)), *checks]
        for protocol in ("classic", "consumer")
    }
    of_none: list[Observer] = [each for each in promises if each is Answered]
    for key, rows in groupby(_in_order(table), key=itemgetter(0)):
        # The rows of the reader of committed records are about no group: their key is its name.
        group = Group(
            key if key in named else None, members.pop(key or "", {}), uses_consumer_protocol=key in consumers
        )
        kinds = of_groups["consumer" if key in consumers else "classic"]
        observation = Observation(of_none if key is None else kinds, group, run)
        for _, request in rows:
            observation.row(request)
        observation.end()
        yield observation
    for key, found in members.items():  # They have done nothing.
        observation = Observation(of_groups["classic"], Group(key, found), run)
        observation.end()
        yield observation


def _in_order(table: pa.Table) -> Iterator[tuple[str | None, Request]]:
    """Yield rows by group and time, each with its group. Of simultaneous rows, actions come first."""
    if not table.num_rows:
        return
    table = table.combine_chunks()
    keys = pc.dictionary_encode(table["key"].chunk(0), null_encoding="encode").indices
    done_us = pc.fill_null(pc.add(table["scheduled_us"], table["latency_us"]), 2**62)
    columns = (done_us.chunk(0), pc.not_equal(table["kind"], "act").chunk(0), table["sent_us"].chunk(0), keys)
    order = np.lexsort([column.to_numpy(zero_copy_only=False) for column in columns])
    for start in range(0, len(order), _OBJECTS):
        part = table.take(pa.array(order[start : start + _OBJECTS])).combine_chunks()
        yield from zip(part["key"].to_pylist(), requests_of(part), strict=True)


def keyed(table: pa.Table) -> pa.Table:
    """Return rows of events with the column `key`, the group that a row is about.

    A FindCoordinator about several groups becomes one row per group. Only the first of these rows has the `count`.
    """
    found = table["found"].combine_chunks()
    key = pc.coalesce(
        table["group"], pc.if_else(pc.equal(table["api"], "Fetch"), table["member_id"], pa.scalar(None, pa.string()))
    )
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


def in_this_process(
    table: pa.Table, scripts: pa.Table, run: Circumstances, plan_of: PlanOf
) -> tuple[Known, Plan, Results]:
    """Return the results of all rows. For small runs, this is faster than starting tasks.

    Args:
        table: The rows.
        scripts: The scripts.
        run: The circumstances of the replay.
        plan_of: Makes the plan.
    """
    known, first = known_of(table, run), pc.struct_field(pc.list_element(scripts["acts"], 0), "at_ms")
    plan = plan_of(known, pc.min(first).as_py())
    return known, plan, results_of(keyed(table), scripts, plan)


def in_spark(
    events: DataFrame, members: DataFrame, rows: int, run: Circumstances, plan_of: PlanOf
) -> tuple[Known, Plan, Results]:
    """Return the results of all rows, computed by tasks of Spark.

    Args:
        events: The rows.
        members: The scripts.
        rows: The number of rows.
        run: The circumstances of the replay.
        plan_of: Makes the plan.
    """
    known = Known()
    for row in events.select(*KNOWN_COLUMNS).mapInArrow(partial(_known_in_task, run=run), "result binary").collect():
        known.add(_value(row["result"]))
    (first,) = members.select(f.min(f.col("acts")[0]["at_ms"])).collect()
    plan = plan_of(known, first[0])
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
    parts = max(events.sparkSession.sparkContext.defaultParallelism, -(-rows // _ROWS_PER_PART))
    divided = single.unionByName(several).unionByName(scripts, allowMissingColumns=True).repartition(parts, "key")
    results = Results()
    for row in divided.mapInArrow(partial(_results_in_task, plan=plan), "result binary").collect():
        results.add(_value(row["result"]))
    return known, plan, results


def _known_in_task(batches: Iterator[pa.RecordBatch], run: Circumstances) -> Iterator[pa.RecordBatch]:
    known = Known()
    for batch in batches:
        known.add(known_of(pa.Table.from_batches([batch]), run))
    yield _batch(known)


def _results_in_task(batches: Iterator[pa.RecordBatch], plan: Plan) -> Iterator[pa.RecordBatch]:
    held = list(batches)
    if not held:
        return
    table = pa.Table.from_batches(held)
    held.clear()
    is_script = pc.is_valid(table["script"])
    scripts = pa.Table.from_struct_array(table["script"].filter(is_script).combine_chunks())
    rows = table.filter(pc.invert(is_script)).select([*SCHEMA.names, "key"])
    yield _batch(results_of(rows, scripts, plan))


def _batch(value: object) -> pa.RecordBatch:
    """Return an object as a batch of one row, for the driver."""
    return pa.record_batch([pa.array([zlib.compress(pickle.dumps(value), 1)], pa.binary())], ["result"])


def _value(result: bytes) -> Any:
    return pickle.loads(zlib.decompress(result))  # from a task of this run
