"""Counts the events of a replay in one pass, for its numbers. Does not depend on Spark.

`partial_numbers` counts the events of some groups, and `merged` adds up the counts of all groups. The counts are a few
Arrow tables, whose size hardly depends on the number of events. number_rows.py converts them to `Numbers`.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fakebroker.coordinator.partitions import partition_for
from fakebroker.replay.report.columns import MOST, NULL, Columns, Ints, codes_of, is_first, last_of
from fakebroker.replay.report.observed_states import (
    ASSIGNED,
    GROUP_STATES,
    MEMBER_STATES,
    WAITING,
    Generations,
    States,
    generations_of,
    group_states_of,
    member_states_of,
    unassigned_us_of,
)
from fakebroker.replay.report.series import Slices

SLOWEST_GROUPS = 10


class Bounds(msgspec.Struct, frozen=True):
    """When a run, or a part of its events, began and ended. Times are in microseconds since the Unix epoch.

    Attributes:
        started_us: When the first start of a member was due.
        due_us: When the first event was due.
        requested_us: When the first request was due.
        end_us: When the last request was sent, or the last response was read.
    """

    started_us: int = MOST
    due_us: int = MOST
    requested_us: int = MOST
    end_us: int = 0

    def __add__(self, other: "Bounds") -> "Bounds":
        return Bounds(
            min(self.started_us, other.started_us),
            min(self.due_us, other.due_us),
            min(self.requested_us, other.requested_us),
            max(self.end_us, other.end_us),
        )


BOUNDS_COLUMNS = ("scheduled_us", "sent_us", "latency_us", "api", "kind", "count", "until_us")


def bounds_of(events: pa.Table) -> Bounds:
    """Return the bounds of some events. The events have the columns `BOUNDS_COLUMNS`."""
    due_us, sent_us = events["scheduled_us"], events["sent_us"]
    starts = pc.and_(pc.equal(events["kind"], "act"), pc.equal(events["api"], "start"))
    until_us = pc.if_else(pc.greater(events["count"], 1), events["until_us"], sent_us)
    ends_us = pc.max_element_wise(pc.coalesce(pc.add(due_us, events["latency_us"]), sent_us), until_us)
    started_us, earliest_us, requested_us = (
        pc.coalesce(pc.min(times), MOST).as_py()
        for times in (due_us.filter(starts), due_us, due_us.filter(pc.equal(events["kind"], "request")))
    )
    return Bounds(started_us, earliest_us, requested_us, pc.max(ends_us).as_py() or 0)


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of the whole run before its numbers are computed.

    Attributes:
        slices: The time slices.
        span_s: Time in seconds, from when the first request was due until the end.
        offsets_partitions: Number of partitions of `__consumer_offsets`.
        partitions: Partition counts by topic.
        measure_from_s: Beginning of the steady state, in seconds from the start of the replay. If None, the steady
            state begins when all members have joined for the first time.
    """

    slices: Slices
    span_s: float
    offsets_partitions: int
    partitions: Mapping[str, int]
    measure_from_s: float | None = None

    @classmethod
    def of(
        cls,
        bounds: Bounds,
        first_act_ms: float,
        offsets_partitions: int,
        partitions: Mapping[str, int],
        measure_from_s: float | None = None,
    ) -> "Facts":
        """Return the facts of a run.

        Args:
            bounds: The bounds of all its events.
            first_act_ms: When the first action of all scripts is due, in milliseconds from the start of the replay.
            offsets_partitions: As in the attributes.
            partitions: As in the attributes.
            measure_from_s: As in the attributes.
        """
        begin_us = bounds.due_us if bounds.started_us == MOST else bounds.started_us - int(1000 * first_act_ms)
        first_us = bounds.end_us if bounds.requested_us == MOST else bounds.requested_us
        return cls(
            slices=Slices.of(0 if begin_us == MOST else begin_us, bounds.end_us),
            span_s=round((bounds.end_us - first_us) / 1e6, 3),
            offsets_partitions=offsets_partitions,
            partitions=partitions,
            measure_from_s=measure_from_s,
        )

    def slice_of(self, at_us: Ints) -> Ints:
        """Return the slices of times."""
        return (at_us - self.slices.begin_us) // self.slices.length_us

    def steady_slice(self, counts: "Partial") -> int | None:
        """Return the first slice of the steady state, given all counts; None if there is no steady state."""
        if self.measure_from_s is not None:
            return self.slices.first_from(self.slices.begin_us + round(self.measure_from_s * 1e6))
        joined_us = pc.max(counts["joined"]["joined_us"]).as_py()
        joined, members = pc.sum(counts["joined"]["members"]).as_py(), pc.sum(counts["populations"]["members"]).as_py()
        return None if joined_us is None or joined < members else self.slices.first_from(joined_us)


class _Counted(NamedTuple):
    """A table of counts.

    Attributes:
        keys: The columns that identify what is counted. There is one row for each combination of their values.
        sums: Columns whose values are added up.
        maxima: Columns whose maximum is kept.
    """

    keys: Mapping[str, pa.DataType]
    sums: Mapping[str, pa.DataType]
    maxima: Mapping[str, pa.DataType] = {}

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([*self.keys.items(), *self.sums.items(), *self.maxima.items()])

    def merged(self, table: pa.Table) -> pa.Table:
        """Return a table with one row for each combination of keys."""
        wanted = [*((name, "sum") for name in self.sums), *((name, "max") for name in self.maxima)]
        found = table.group_by([*self.keys], use_threads=False).aggregate(wanted)
        columns = [*(found[name] for name in self.keys), *(found[f"{name}_{kind}"] for name, kind in wanted)]
        # In one chunk: several chunks would be pickled with all of their rows each.
        return pa.table(columns, names=self.schema.names).cast(self.schema).combine_chunks()


_INT, _SHORT, _FLOAT = pa.int64(), pa.int32(), pa.float64()

KINDS = ("api", "source", "broker", "error", "missing")
"""What defines the kind of a request: the columns of the table "kinds". Elsewhere, `kind` is a row number in it."""

_COUNTED = {
    # Requests by slice and latency, -1 without a response.
    "requests": _Counted({"kind": _SHORT, "slice": _SHORT, "key": _INT}, {"n": _INT}),
    # The same without the delay of the replay itself, only with a response.
    "undelayed": _Counted({"kind": _SHORT, "slice": _SHORT, "key": _INT}, {"n": _INT}),
    # Folded requests by slice and longest latency of the row. `known` is the number of those that have this latency;
    # the latencies of the others are at most as long.
    "folded": _Counted({"kind": _SHORT, "slice": _SHORT, "key": _INT}, {"n": _INT, "known": _FLOAT}),
    # The longest latencies by the slices of the first and the last request in a row.
    "longest": _Counted(
        {"kind": _SHORT, "first": _SHORT, "last": _SHORT}, {}, {"max_us": _INT, "undelayed_max_us": _INT}
    ),
    "lookups": _Counted({"kind": _SHORT}, {"keys": _INT}, {"most_in_one_request": _INT}),
    "sent_late": _Counted({"key": _INT}, {"n": _INT}, {"max_us": _INT}),
    "joined": _Counted({}, {"members": _INT}, {"joined_us": _INT}),
    "brokers": _Counted({"broker": _INT}, {"groups": _INT}),
    "partitions": _Counted({"partition": _INT}, {"groups": _INT, "requests": _INT}),
    "loads": _Counted({"requests": _INT}, {"groups": _INT}),  # groups by their number of requests
    "rebalances": _Counted({"population": pa.string(), "slice": _INT, "length_us": _INT}, {"n": _INT}),
    "populations": _Counted(
        {"population": pa.string()},
        dict.fromkeys(("groups", "members", "members_joined", "waiting_us", "unassigned_us"), _INT),
    ),
    # Changes of the number of groups and members in each state. `rest_us` is the sum of the changes, each multiplied
    # with the time from then until the end of the slice.
    "changes": _Counted(
        {"what": pa.string(), "population": pa.string(), "state": pa.string(), "slice": _INT},
        {"change": _INT, "rest_us": _INT},
    ),
    "transactions": _Counted(
        {"slice": _INT, "outcome": pa.string(), "length_us": _INT, "visible_us": _INT}, {"n": _INT}
    ),
}

_BUSIEST = pa.schema([("partition", _INT), ("requests", _INT), ("group", pa.string()), ("broker", _INT)])
"""The group with the most requests of each offsets partition, and the broker of its last request."""

_SLOWEST = pa.schema(
    [
        ("longest_us", _INT),
        ("group", pa.string()),
        ("population", pa.string()),
        ("members", _INT),
        ("generations", _INT),
        ("waiting_us", _INT),
    ]
)
"""The groups with the longest rebalances."""

Partial = Mapping[str, pa.Table]
"""Tables of counts of some events, by name: all in `_COUNTED`, "kinds", "busiest" and "slowest". Can be pickled."""


def partial_numbers(events: pa.Table, scripts: pa.Table, facts: Facts) -> Partial:
    """Return the counts of the events of some groups.

    Args:
        events: All events about these groups, as in `events.SCHEMA`, in any order. Events about no group may be in any
            part, but only in one.
        scripts: The scripts of all members of these groups, with the columns of `script.DDL`.
        facts: What is known of the run.
    """
    columns = Columns(events, scripts, facts.partitions)
    end_us = facts.slices.end_us
    generations = generations_of(columns, end_us)
    members = member_states_of(columns, end_us)
    groups = group_states_of(columns, generations, members, end_us)
    unassigned_us = unassigned_us_of(columns, members, groups)
    tables = {
        **_requests(columns, _delays_us(columns, events), facts),
        **_of_groups(columns, facts),
        "joined": _first_joins(columns),
        "rebalances": _rebalances(columns, generations, facts),
        "populations": _populations(columns, members, unassigned_us),
        "changes": pa.concat_tables(
            [
                _changes("groups", groups, GROUP_STATES, columns, groups.of, facts),
                _changes("members", members, MEMBER_STATES, columns, columns.group_of[members.of], facts),
            ]
        ),
        "transactions": _transactions(columns, facts),
        "slowest": _slowest(columns, generations, members),
    }
    return _merged(tables, ("requests", "undelayed", "folded"))


def merged(parts: Iterable[Partial]) -> Partial:
    """Return the sum of several counts. There must be at least one."""
    listed = [*parts]
    if len(listed) == 1:
        return listed[0]
    tables = {name: pa.concat_tables([part[name] for part in listed]) for name in listed[0]}
    kind, first = codes_of(tables["kinds"])
    begin = np.cumsum([0, *(len(part["kinds"]) for part in listed)])
    for name in ("requests", "undelayed", "folded", "longest", "lookups"):
        own = [kind[begin[index] + part[name]["kind"].to_numpy()] for index, part in enumerate(listed)]
        tables[name] = tables[name].set_column(0, "kind", pa.array(np.concatenate(own), _SHORT))
    tables["kinds"] = tables["kinds"].take(pa.array(first))
    return _merged(tables)


def _merged(tables: Mapping[str, pa.Table], unique: Collection[str] = ()) -> Partial:
    """Return tables with one row for each combination of keys. `unique` names those that have no others."""
    found = {name: tables[name] if name in unique else of.merged(tables[name]) for name, of in _COUNTED.items()}
    order = [("partition", "ascending"), ("requests", "descending"), ("group", "ascending")]
    busiest = tables["busiest"].sort_by(order)
    found["busiest"] = busiest.filter(pa.array(is_first(busiest["partition"].to_numpy())))
    order = [("longest_us", "descending"), ("group", "ascending")]
    found["slowest"] = tables["slowest"].take(pc.sort_indices(tables["slowest"], order)[:SLOWEST_GROUPS])
    return found | {"kinds": tables["kinds"].combine_chunks()}


def three_digits(numbers_us: Ints) -> Ints:
    """Round microseconds to three significant digits."""
    steps = 10 ** np.arange(17)
    step = steps[np.searchsorted(steps[3:], numbers_us, side="right")]
    return (numbers_us + step // 2) // step * step


def _delays_us(columns: Columns, events: pa.Table) -> Ints:
    """Return for how long the replay itself delayed each request, although it was due and could be sent.

    For example, a heartbeat is due at second 10. Its member has lost its coordinator, finds it at second 12, and sends
    the heartbeat at 12.1: the replay delayed it by 0.1 s.
    """
    could_us = columns.scheduled_us.copy()
    ended_us = np.maximum(columns.done_us, columns.until_us)
    # A member waits for the response to its request before.
    rows = np.flatnonzero(columns.is_request & (columns.member >= 0))
    rows = rows[np.lexsort((columns.sent_us[rows], columns.member[rows]))]
    rows, before = rows[1:], rows[:-1]
    is_same = columns.member[rows] == columns.member[before]
    could_us[rows[is_same]] = np.maximum(could_us[rows[is_same]], ended_us[before[is_same]])
    # And for look-ups of its group.
    late = np.flatnonzero((columns.sent_us > could_us) & (columns.group >= 0))
    found = events["found"].combine_chunks()
    looked_up = events.select(["scheduled_us", "latency_us"]).take(pc.list_parent_indices(found))
    times_us = pc.add(looked_up["scheduled_us"], looked_up["latency_us"]).combine_chunks()
    groups = pc.index_in(pc.struct_field(pc.list_flatten(found), "key"), pa.array(columns.groups, pa.string()))
    is_known = pc.and_(pc.is_valid(times_us), pc.is_valid(groups))
    times, group = (column.filter(is_known).to_numpy().astype(np.int64) for column in (times_us, groups))
    if len(late) and len(times):
        # A group and a time are one number, so that one search finds the last look-up of each group.
        begin_us = min(int(times.min()), int(columns.sent_us[late].min()))
        span_us = max(int(times.max()), int(columns.sent_us[late].max())) - begin_us + 1
        ends = np.sort(group * span_us + times - begin_us)
        sent = columns.group[late] * span_us + columns.sent_us[late] - begin_us
        last = ends[np.maximum(np.searchsorted(ends, sent, side="right") - 1, 0)]
        is_its = (last <= sent) & (last // span_us == columns.group[late])
        rows = late[is_its]
        could_us[rows] = np.maximum(could_us[rows], last[is_its] % span_us + begin_us)
    delays_us: Ints = np.maximum(columns.sent_us - could_us, 0)
    return delays_us


def _requests(columns: Columns, late_us: Ints, facts: Facts) -> dict[str, pa.Table]:
    """Return the tables of requests and their latencies.

    Args:
        columns: The events.
        late_us: The delay of each request by the replay itself.
        facts: What is known of the run.
    """
    kind, first = codes_of(columns.table.select([*KINDS]))
    # Of folded requests, the delay of the one with the longest latency is not recorded: without it, this latency is at
    # most `latency_us`.
    is_single, is_answered = columns.count == 1, columns.latency_us != NULL
    undelayed_us = np.where(is_single & is_answered, columns.latency_us - late_us, columns.latency_us)
    key = np.where(is_answered, np.maximum(three_digits(columns.latency_us), 0), -1)
    slices = facts.slice_of(columns.sent_us)

    single = np.flatnonzero(columns.is_request & is_single)
    folded = np.flatnonzero(columns.is_request & ~is_single)
    answered = single[is_answered[single]]
    undelayed_key = np.maximum(three_digits(undelayed_us[answered]), 0)

    rows = np.flatnonzero(columns.is_request & is_answered)
    longest = {
        "kind": kind[rows],
        "first": slices[rows],
        "last": facts.slice_of(columns.last_us[rows]),
        "max_us": columns.latency_us[rows],
        "undelayed_max_us": undelayed_us[rows],
    }

    rows = np.flatnonzero(columns.is_request)
    keys, count = columns.numbers("lookups")[rows], columns.count[rows]
    keys[keys == NULL] = 1
    lookups = {"kind": kind[rows], "keys": keys * count, "most_in_one_request": keys}
    return {
        "kinds": columns.table.select([*KINDS]).take(pa.array(first)),
        "requests": _counts("requests", kind[single], slices[single], key[single]),
        "undelayed": _counts("undelayed", kind[answered], slices[answered], undelayed_key),
        "folded": _in_slices(columns, folded, kind, key, facts),
        "longest": _table("longest", longest),
        "lookups": _table("lookups", lookups),
        "sent_late": _table("sent_late", {"key": three_digits(late_us[rows]), "n": count, "max_us": late_us[rows]}),
    }


def _counts(name: str, kind: Ints, slices: Ints, key: Ints) -> pa.Table:
    """Return how often each combination of kind, slice and latency occurs. The latency is at least -1."""
    if not len(kind):
        return _COUNTED[name].schema.empty_table()
    first, size, most = int(slices.min()), int(slices.max() - slices.min()) + 1, int(key.max()) + 2
    code, n = np.unique((kind * size + slices - first) * most + key + 1, return_counts=True)
    place = code // most
    found = {"kind": place // size, "slice": place % size + first, "key": code % most - 1, "n": n}
    return _table(name, found)


def _in_slices(columns: Columns, rows: Ints, kind: Ints, key: Ints, facts: Facts) -> pa.Table:
    """Divide rows of folded requests, which are evenly spaced, into time slices.

    Args:
        columns: The events.
        rows: The rows.
        kind: The kind of each event.
        key: The latency of each event; of folded requests, the longest.
        facts: What is known of the run.

    Returns:
        The table "folded". It is not recorded in which slice the longest latency was, so each slice gets its share of
        this one request.
    """
    if not len(rows):
        return _COUNTED["folded"].schema.empty_table()
    rows = rows[np.lexsort((key[rows], kind[rows]))]
    first = np.flatnonzero(is_first(kind[rows], key[rows]))
    begin_us, length_us = facts.slices.begin_us, facts.slices.length_us
    since_us, count = columns.sent_us[rows] - begin_us, columns.count[rows]
    step_us = np.maximum((columns.last_us[rows] - begin_us - since_us) / (count - 1), 1e-9)
    last_us, answered = columns.last_us[rows].max() - begin_us, 1.0 * (key[rows] >= 0)
    parts, earlier = [], np.zeros(len(rows))
    for number in range(since_us.min() // length_us, last_us // length_us + 1):
        until = np.clip(np.ceil(((number + 1) * length_us - since_us) / step_us), 0, count)
        n, earlier = until - earlier, until
        total, known = np.add.reduceat(n, first), np.add.reduceat(n * answered / count, first)
        (found,) = total.nonzero()
        parts.append((first[found], np.full(len(found), number), total[found].astype(np.int64), known[found]))
    index, slices, n, known = (np.concatenate(each) for each in zip(*parts, strict=True))
    of = rows[index]
    return _table("folded", {"kind": kind[of], "slice": slices, "key": key[of], "n": n, "known": known})


def _table(name: str, columns: Mapping[str, Any]) -> pa.Table:
    """Return a table of counts from arrays; `NULL` is null."""
    arrays = []
    for field in _COUNTED[name].schema:
        column = columns[field.name]
        is_number = isinstance(column, np.ndarray) and column.dtype == np.int64
        arrays.append(pa.array(column, field.type, mask=column == NULL) if is_number else pa.array(column, field.type))
    return pa.table(arrays, schema=_COUNTED[name].schema)


def _of_groups(columns: Columns, facts: Facts) -> dict[str, pa.Table]:
    """Return the tables of the requests about each group."""
    size = columns.scripted_groups
    rows = np.flatnonzero(columns.is_request & (columns.group >= 0))
    group, broker = columns.group[rows], columns.broker[rows]
    requests = np.zeros(len(columns.groups), np.int64)
    np.add.at(requests, group, columns.count[rows])
    by_member = columns.member[rows] >= 0
    group, broker, sent_us = group[by_member], broker[by_member], columns.sent_us[rows][by_member]
    order = np.lexsort((broker, sent_us, group))
    last = order[last_of(is_first(group[order]))]
    last_broker = np.full(len(columns.groups), NULL)
    last_broker[group[last]] = broker[last]
    order = np.lexsort((broker, group))
    served = broker[order][is_first(group[order], broker[order])]
    names = columns.groups[:size]
    partition = np.array([partition_for(name, facts.offsets_partitions) for name in names], np.int64)
    one = np.ones(size, np.int64)
    busiest = {"partition": partition, "requests": requests[:size], "group": pa.array(names, pa.string())}
    return {
        "brokers": _table("brokers", {"broker": served, "groups": np.ones(len(served), np.int64)}),
        "partitions": _table("partitions", {"partition": partition, "groups": one, "requests": requests[:size]}),
        "loads": _table("loads", {"requests": requests[:size], "groups": one}),
        "busiest": pa.table(
            {**busiest, "broker": pa.array(last_broker[:size], mask=last_broker[:size] == NULL)}, schema=_BUSIEST
        ),
    }


def _first_joins(columns: Columns) -> pa.Table:
    """Return how many members have joined, and when the last of them had joined for the first time."""
    heartbeat = columns.is_api("ConsumerGroupHeartbeat") & (columns.epoch >= 0)
    joins = (columns.error == 0) & (columns.member >= 0) & (columns.is_api("SyncGroup") | heartbeat)
    first_us = np.full(len(columns.group_of), MOST)
    np.minimum.at(first_us, columns.member[joins], columns.done_us[joins])
    first_us = first_us[first_us != MOST]
    return _table("joined", {"members": np.array([len(first_us)]), "joined_us": np.array([first_us.max(initial=NULL)])})


def _rebalances(columns: Columns, generations: Generations, facts: Facts) -> pa.Table:
    population = columns.population_of[generations.group]
    return _table(
        "rebalances",
        {
            "population": _decoded(population, columns.populations),
            "slice": facts.slice_of(generations.began_us),
            "length_us": generations.length_us,
            "n": np.ones(len(population), np.int64),
        },
    )


def _populations(columns: Columns, members: States, unassigned_us: Ints) -> pa.Table:
    scripts, size = len(columns.scripts), len(columns.populations)
    group_population = columns.population_of[: columns.scripted_groups]
    member_population = columns.population_of[columns.group_of[:scripts]]
    has_script = members.of < scripts
    waiting_us, unassigned = np.zeros(size, np.int64), np.zeros(size, np.int64)
    waits = has_script & (members.state == WAITING)
    np.add.at(waiting_us, member_population[members.of[waits]], (members.until_us - members.at_us)[waits])
    np.add.at(unassigned, group_population, unassigned_us)
    joined = np.unique(members.of[has_script & (members.state == ASSIGNED)])
    return _table(
        "populations",
        {
            "population": pa.array(columns.populations, pa.string()),
            "groups": np.bincount(group_population, minlength=size),
            "members": np.bincount(member_population, minlength=size),
            "members_joined": np.bincount(member_population[joined], minlength=size),
            "waiting_us": waiting_us,
            "unassigned_us": unassigned,
        },
    )


def _changes(what: str, states: States, names: Sequence[str], columns: Columns, group: Ints, facts: Facts) -> pa.Table:
    """Return the changes of the number of groups or members in each state.

    Args:
        what: "groups" or "members".
        states: Their states.
        names: The names of the states.
        columns: The events.
        group: The group of each row of `states`.
        facts: What is known of the run.
    """
    changed = states.state != states.before
    at_us = states.at_us[changed] - facts.slices.begin_us
    number, rest_us = at_us // facts.slices.length_us, facts.slices.length_us - at_us % facts.slices.length_us
    population = np.where(group[changed] < 0, -1, columns.population_of[group[changed]])
    return _table(
        "changes",
        {
            "what": pa.array([what] * (2 * len(at_us)), pa.string()),
            "population": _decoded(np.tile(population, 2), columns.populations),
            "state": _decoded(np.concatenate([states.state[changed], states.before[changed]]), names),
            "slice": np.tile(number, 2),
            "change": np.repeat([1, -1], len(at_us)),
            "rest_us": np.concatenate([rest_us, -rest_us]),
        },
    )


def _decoded(codes: Ints, names: Sequence[str]) -> pa.Array:
    return pa.array([*names], pa.string()).take(pa.array(codes, mask=codes < 0))


def _transactions(columns: Columns, facts: Facts) -> pa.Table:
    """Return the transactions by outcome: "committed", "aborted", "not ended", or "not begun" without a request."""
    made = columns.table["transaction"].combine_chunks()
    rows = np.flatnonzero(made.is_valid().to_numpy(zero_copy_only=False))
    number, committed = (pc.struct_field(made.take(pa.array(rows)), name) for name in ("number", "committed"))
    number = pc.fill_null(number.cast(_INT), NULL).to_numpy()
    commits, aborts = (
        pc.fill_null(pc.equal(committed, outcome), False).to_numpy(zero_copy_only=False) for outcome in (True, False)
    )
    order = np.lexsort((number, columns.member[rows], columns.group[rows]))
    rows, number, commits, aborts = rows[order], number[order], commits[order], aborts[order]
    first = np.flatnonzero(is_first(columns.group[rows], columns.member[rows], number))
    done_us, is_end = columns.done_us[rows], columns.is_api("EndTxn")[rows] & (columns.error[rows] == 0)

    def earliest_us(times_us: Ints) -> Ints:
        return np.minimum.reduceat(times_us, first) if len(first) else first

    begun_us = earliest_us(columns.sent_us[rows])
    is_begun = earliest_us(np.where(columns.is_request[rows], 0, 1)) == 0
    is_begun &= number[first] != NULL
    committed_us = earliest_us(np.where(is_end & commits & (done_us != NULL), done_us, MOST))
    aborted_us = earliest_us(np.where(is_end & aborts & (done_us != NULL), done_us, MOST))
    visible_us = -earliest_us(-np.where(columns.is_seen[rows] & commits, np.maximum(done_us, 0), 0))
    is_committed = is_begun & (committed_us != MOST)
    outcome = np.select([~is_begun, is_committed, aborted_us != MOST], [0, 1, 2], 3)
    return _table(
        "transactions",
        {
            "slice": facts.slice_of(begun_us),
            "outcome": _decoded(outcome, ("not begun", "committed", "aborted", "not ended")),
            "length_us": np.where(is_committed, committed_us - begun_us, NULL),
            "visible_us": np.where(is_committed & (visible_us > 0), visible_us - begun_us, NULL),
            "n": np.ones(len(first), np.int64),
        },
    )


def _slowest(columns: Columns, generations: Generations, members: States) -> pa.Table:
    """Return the groups with the longest rebalances."""
    size = len(columns.groups)
    longest_us, count = np.full(size, NULL), np.bincount(generations.group, minlength=size)
    np.maximum.at(longest_us, generations.group, generations.length_us)
    seen, waiting_us = np.unique(members.of), np.zeros(size, np.int64)
    groups_seen = columns.group_of[seen]
    with_members = np.bincount(groups_seen[groups_seen >= 0], minlength=size)
    waits = (members.state == WAITING) & (columns.group_of[members.of] >= 0)
    np.add.at(waiting_us, columns.group_of[members.of[waits]], (members.until_us - members.at_us)[waits])
    (found,) = ((longest_us != NULL) & (with_members > 0)).nonzero()
    if len(found) > SLOWEST_GROUPS:
        # All groups that are as slow as the last one of the slowest: of these, the names decide.
        least_us = np.partition(longest_us[found], -SLOWEST_GROUPS)[-SLOWEST_GROUPS]
        found = found[longest_us[found] >= least_us]
    return pa.table(
        {
            "longest_us": longest_us[found],
            "group": _decoded(found, columns.groups),
            "population": _decoded(columns.population_of[found], columns.populations),
            "members": with_members[found],
            "generations": count[found],
            "waiting_us": waiting_us[found],
        },
        schema=_SLOWEST,
    )
