"""One pass over the events of a run. It computes all that a report says about them.

    known_of         what must be known before the first event: when the run began and ended, when brokers answered
    results_of       promises, availability and numbers of some groups, given all their rows
    in_this_process  both steps for all rows of a small run
    in_spark         both steps for all rows of a larger run, in tasks of Spark

Rows are divided by group. If a FindCoordinator is about several groups, each group gets a row of it.
"""

import pickle
import shutil
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from zlib import crc32

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from fakebroker.garbage_collection import no_garbage_collection
from fakebroker.replay.members.events import SCHEMA
from fakebroker.replay.promises.availability import UNDISTURBED, Circumstances, Sums, Unanswered, observers, sums_of
from fakebroker.replay.promises.catalog import PROMISES
from fakebroker.replay.promises.coordinators import Answered
from fakebroker.replay.promises.group_availability import Conditions, Findings
from fakebroker.replay.promises.observer import Found, Group, Observation, Observer, Promise, Request, Run
from fakebroker.replay.promises.rows import requests_of
from fakebroker.replay.report.partial_numbers import BOUNDS_COLUMNS, Bounds, Facts, Partial, bounds_of, partial_numbers
from fakebroker.replay.run_directory import EVENTS, MEMBERS
from fakebroker.replay.script.script import Script, script_of

_ROWS_PER_PART = 250_000
"""Rows that a part has on average. A task holds all rows of a part."""

_OBJECTS = 20_000
"""Rows that are Python objects at a time."""

_BATCH_ROWS = 100_000
"""Rows that a task divides at a time."""

_PARTS = "_parts"
"""The folder of the divided rows, in the run's directory. It exists while they are computed."""

_NO_GROUP_APIS = ("FindCoordinator", "Metadata")


class Known(msgspec.Struct):
    """What must be known of a run before its first event. Times are in microseconds since the Unix epoch.

    Attributes:
        bounds: When the run began and ended.
        sums: The sums over all rows that the availability checks need.
        sent_us: When the last request was sent, or the last action done.
        answering: As in `Run`.
        listed_us: When the last successful ListTransactions was sent; 0 without one.
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


_KNOWN_COLUMNS = sorted({*BOUNDS_COLUMNS, *Unanswered._fields, "scheduled_us", "latency_us", "kind", "error"})


def known_of(table: pa.Table, run: Circumstances = UNDISTURBED) -> Known:
    """Return what is known from some rows."""
    if not table.num_rows:
        return Known()
    table = table.select(_KNOWN_COLUMNS)
    done_us = pc.add(table["scheduled_us"], table["latency_us"])
    of_group = pc.if_else(
        pc.equal(table["kind"], "seen"),
        pc.equal(table["api"], "OffsetFetch"),
        pc.and_(pc.equal(table["kind"], "request"), pc.invert(pc.is_in(table["api"], pa.array(_NO_GROUP_APIS)))),
    )
    soon = pc.fill_null(pc.less(pc.subtract(done_us, table["sent_us"]), 1_000_000), False)
    answered = pc.and_(pc.and_(of_group, pc.is_valid(table["group"])), soon)
    pairs = pa.table({"broker": table["broker"], "second": pc.divide(done_us, 1_000_000)}).filter(answered)
    pairs = pairs.group_by(["broker", "second"]).aggregate([])
    listed = pc.and_(pc.equal(table["api"], "ListTransactions"), pc.fill_null(pc.equal(table["error"], 0), False))
    listed = pc.and_(pc.and_(listed, pc.equal(table["kind"], "request")), pc.is_valid(done_us))
    return Known(
        bounds_of(table),
        sums_of(table, run),
        pc.max(table["sent_us"]).as_py(),
        set(zip(pairs["broker"].to_pylist(), pairs["second"].to_pylist(), strict=True)),
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
    with no_garbage_collection():  # Requests have no cycles. To search them for cycles takes 4 of 25 us a row.
        for observation in observations(table.filter(pc.invert(is_counted)), members, kinds, plan.run, checks):
            for promise in observation.promises:
                if promise.counted:
                    results.cases[promise.name] += promise.counted
                if promise.found:
                    results.violations += promise.found
    return results


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
        # The Fetch requests of the reader of committed records are about no group: their key is its name.
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
    """Return what is known, the plan and the results of all rows. For small runs, this is faster than starting tasks.

    Args:
        table: The rows.
        scripts: The scripts.
        run: The circumstances of the replay.
        plan_of: Makes the plan.
    """
    known = known_of(table, run)
    plan = plan_of(known, _first_act_ms(scripts))
    return known, plan, results_of(keyed(table), scripts, plan)


def in_spark(
    spark: SparkSession, directory: Path, rows: int, run: Circumstances, plan_of: PlanOf
) -> tuple[Known, Plan, Results]:
    """Return what is known, the plan and the results of all rows, computed by tasks of Spark.

    First, tasks divide the files of rows and scripts by group, into one folder for each part. Then, a task for each
    part computes its results. Spark only runs the tasks: its own shuffle takes 90 us a row, these files 2.

    Args:
        spark: The session. Its tasks can read and write the directory.
        directory: The run's directory.
        rows: The number of rows.
        run: The circumstances of the replay.
        plan_of: Makes the plan.
    """
    context, parts = spark.sparkContext, directory.absolute() / _PARTS
    count = max(context.defaultParallelism, -(-rows // _ROWS_PER_PART))
    rows_files, script_files = (
        [str(path) for path in sorted((directory.absolute() / name).glob("*.parquet"))] for name in (EVENTS, MEMBERS)
    )
    shutil.rmtree(parts, ignore_errors=True)
    try:
        for number in range(count):
            (parts / str(number)).mkdir(parents=True)
        known = Known()
        divide_rows = partial(_divide_rows, parts=parts, count=count, run=run)
        for found in context.parallelize([*enumerate(rows_files)], len(rows_files)).map(divide_rows).collect():
            known.add(found)
        divide_scripts = partial(_divide_scripts, parts=parts, count=count)
        firsts = context.parallelize([*enumerate(script_files)], len(script_files)).map(divide_scripts).collect()
        first_act_ms = min((each for each in firsts if each is not None), default=None)
        plan, results = plan_of(known, first_act_ms), Results()
        compute = partial(_results_of_part, plan=plan, scripts_schema=pq.read_schema(script_files[0]))
        folders = [str(parts / str(number)) for number in range(count)]
        for packed in context.parallelize(folders, count).map(compute).collect():
            results.add(pickle.loads(zlib.decompress(packed)))  # from a task of this run
    finally:
        shutil.rmtree(parts, ignore_errors=True)
    return known, plan, results


def _first_act_ms(scripts: pa.Table) -> float | None:
    """Return when the first action of some scripts is due, in milliseconds; None without one."""
    first: float | None = pc.min(pc.struct_field(pc.list_element(scripts["acts"], 0), "at_ms")).as_py()
    return first


def _divide_rows(numbered: tuple[int, str], parts: Path, count: int, run: Circumstances) -> Known:
    """Divide a file of rows by group, and return what is known from them."""
    number, path = numbered
    known = Known()
    with pq.ParquetFile(path) as file, _PartWriters(parts, f"{EVENTS}-{number}", count) as writers:
        for batch in file.iter_batches(_BATCH_ROWS):
            table = pa.Table.from_batches([batch]).select(SCHEMA.names).cast(SCHEMA)
            known.add(known_of(table, run))
            writers.write(keyed(table))
    return known


def _divide_scripts(numbered: tuple[int, str], parts: Path, count: int) -> float | None:
    """Divide a file of scripts by group. Return when their first action is due, in milliseconds; None without one."""
    number, path = numbered
    firsts_ms = []
    with pq.ParquetFile(path) as file, _PartWriters(parts, f"{MEMBERS}-{number}", count) as writers:
        for batch in file.iter_batches(_BATCH_ROWS):
            table = pa.Table.from_batches([batch])
            firsts_ms.append(_first_act_ms(table))
            writers.write(table.append_column("key", table["group"]))
    return min((each for each in firsts_ms if each is not None), default=None)


class _PartWriters(ExitStack):
    """Writes tables as files, one in the folder of each part that gets rows.

    Args:
        parts: The folder of the parts.
        name: Name of the files.
        count: Number of parts.
    """

    def __init__(self, parts: Path, name: str, count: int) -> None:
        super().__init__()
        self._parts, self._name, self._count = parts, name, count
        self._writers: dict[int, pa.ipc.RecordBatchFileWriter] = {}

    def write(self, table: pa.Table) -> None:
        """Write each row of a table to the part of its `key`."""
        keys = pc.dictionary_encode(table["key"].combine_chunks(), null_encoding="encode")
        part_of = np.array([crc32((key or "").encode()) % self._count for key in keys.dictionary.to_pylist()], np.int64)
        part = part_of[keys.indices.to_numpy(zero_copy_only=False)]
        order = np.argsort(part, kind="stable")
        table, ends = table.take(pa.array(order)), np.searchsorted(part[order], np.arange(self._count + 1))
        for number in range(self._count):
            if ends[number] == ends[number + 1]:
                continue
            if number not in self._writers:
                place = str(self._parts / str(number) / f"{self._name}.arrow")
                options = pa.ipc.IpcWriteOptions(compression="lz4")
                self._writers[number] = self.enter_context(pa.ipc.new_file(place, table.schema, options=options))
            self._writers[number].write_table(table.slice(ends[number], ends[number + 1] - ends[number]))


def _results_of_part(folder: str, plan: Plan, scripts_schema: pa.Schema) -> bytes:
    """Return the results of a part, packed."""

    def read(name: str, schema: pa.Schema) -> pa.Table:
        paths = sorted(Path(folder).glob(f"{name}-*.arrow"))
        tables = [pa.ipc.open_file(str(path)).read_all().select([*schema.names, "key"]) for path in paths]
        empty = schema.append(pa.field("key", pa.string())).empty_table()
        return pa.concat_tables([*tables, empty], promote_options="permissive")

    rows, scripts = read(EVENTS, SCHEMA), read(MEMBERS, scripts_schema).drop_columns(["key"])
    return zlib.compress(pickle.dumps(results_of(rows, scripts, plan)), 1)
