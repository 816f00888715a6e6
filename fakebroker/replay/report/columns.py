"""Events and scripts of whole groups as numpy arrays, for the numbers of a replay. Does not depend on Spark.

Names are replaced by codes, so that they can be sorted and counted. `NULL` stands for a null number, -1 for a null
name.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

NULL = np.iinfo(np.int64).min
"""A null number. It is less than every other number, so that a maximum ignores it."""

MOST = np.iinfo(np.int64).max
"""Greater than every time, so that a minimum ignores it."""


EVENT_COLUMNS = [
    *("scheduled_us", "sent_us", "latency_us", "api", "broker", "group", "member", "generation", "error", "lookups"),
    *("assigned", "kind", "count", "until_us", "missing", "source", "transaction", "epoch"),
]
SCRIPT_COLUMNS = ["population", "group", "member", "topics", "assignor", "session_timeout_ms"]
"""The columns of events and scripts that the numbers depend on."""


class Columns:
    """The events and scripts of whole groups. Times are in microseconds since the Unix epoch.

    Args:
        events: Rows as in `events.Event`. Rows with a count of 0 are left out. If a FindCoordinator is about several
            groups, the rows of all groups but the first have this count.
        scripts: The scripts of all members of these groups, as in `script.Script`.
        partitions: Partition counts by topic.

    Attributes:
        table: The events.
        scripts: The scripts.
        api: The code of each event's API, in `apis`.
        group: The code of each event's group. The groups of the scripts come first.
        member: The code of each event's member. The code of a member with a script is the number of the script.
        groups: The groups by code.
        scripted_groups: Number of groups that have scripts.
        group_of: The group of each member.
        populations: The names of the populations.
        population_of: The population of each group; -1 if it has no scripts.
        timeout_us: The session timeout of each script.
        keeps: By script, whether the member keeps its assignment while it joins.
        partitions_of: Number of partitions that each group with scripts subscribes to.
        done_us: When the response to each event was read; `NULL` without a response.
        last_us: When the last request of each row was sent.
        assigned_size: Number of partitions in `assigned` of each event; `NULL` without an assignment.
    """

    def __init__(self, events: pa.Table, scripts: pa.Table, partitions: Mapping[str, int]) -> None:
        events, is_row = events.select(EVENT_COLUMNS), pc.greater(events["count"], 0)
        self.table = (events if pc.all(is_row).as_py() else events.filter(is_row)).combine_chunks()
        self.scripts = scripts.select(SCRIPT_COLUMNS).combine_chunks()
        self.scheduled_us, self.sent_us, self.latency_us, self.count, self.until_us = map(
            self.numbers, ("scheduled_us", "sent_us", "latency_us", "count", "until_us")
        )
        self.broker, self.generation, self.epoch, self.error = map(
            self.numbers, ("broker", "generation", "epoch", "error")
        )
        self.done_us = np.where(self.latency_us == NULL, NULL, self.scheduled_us + self.latency_us)
        self.last_us = np.where(
            (self.count > 1) & (self.until_us != NULL), np.maximum(self.until_us, self.sent_us), self.sent_us
        )
        self.api, self.apis = _encoded(self.table["api"])
        kind, kinds = _encoded(self.table["kind"])
        self.is_request, self.is_act, self.is_seen = (kind == _code(kinds, name) for name in ("request", "act", "seen"))
        self._read_scripts(partitions)
        lists = pc.list_value_length(self.table["assigned"])
        self.assigned_size = _filled(lists)

    def _read_scripts(self, partitions: Mapping[str, int]) -> None:
        scripts, count = self.scripts, len(self.scripts)
        member, _ = _encoded(_joined(scripts["member"], self.table["member"]))
        group, self.groups = _encoded(_joined(scripts["group"], self.table["group"]))
        self.member, self.group = member[count:], group[count:]
        self.scripted_groups = int(group[:count].max(initial=-1)) + 1
        self.group_of = np.full(max(member.max(initial=-1), count - 1) + 1, -1)
        known = self.member >= 0
        self.group_of[self.member[known]] = self.group[known]
        self.group_of[:count] = group[:count]
        population, self.populations = _encoded(scripts["population"])
        self.population_of = np.full(len(self.groups), -1)
        self.population_of[group[:count][::-1]] = population[::-1]  # of the first script
        self.timeout_us = 1000 * _filled(scripts["session_timeout_ms"])
        assignor, assignors = _encoded(scripts["assignor"])
        self.keeps = assignor == _code(assignors, "cooperative-sticky")
        self.partitions_of = np.zeros(self.scripted_groups, np.int64)
        if count:
            topics = scripts["topics"].combine_chunks()
            topic, names = _encoded(topics.flatten())
            size = np.array([partitions.get(name, 0) for name in names] or [0])
            subscriptions = group[:count][topics.value_parent_indices().to_numpy()] * len(size) + topic
            found = np.unique(subscriptions)
            np.add.at(self.partitions_of, found // len(size), size[found % len(size)])

    def __len__(self) -> int:
        return len(self.table)

    def numbers(self, name: str) -> Ints:
        """Return a column of integers; null is `NULL`."""
        return _filled(self.table[name])

    def is_api(self, *names: str) -> Bools:
        """Return which events have one of these APIs."""
        wanted = np.array([name in names for name in self.apis] or [False])
        return wanted[self.api]

    def assigned(self, rows: Ints) -> tuple[Ints, Ints]:
        """Return the partitions assigned in some rows: for each partition, an index in `rows`, and its code."""
        lists = self.table["assigned"].combine_chunks().take(pa.array(rows))
        partition, _ = _encoded(lists.flatten())
        return lists.value_parent_indices().to_numpy().astype(np.int64), partition


def is_first(*columns: NDArray[Any]) -> Bools:
    """Return which rows differ from the row before. The columns are sorted."""
    found = np.zeros(len(columns[0]), np.bool_)
    found[:1] = True
    for column in columns:
        found[1:] |= column[1:] != column[:-1]
    return found


def begin_of(first: Bools) -> Ints:
    """Return, for each row, the first row of its part. `first` says whether a row is the first of its part."""
    return np.maximum.accumulate(np.where(first, np.arange(len(first)), 0))


def last_of(first: Bools) -> Bools:
    """Return which rows are the last ones of their parts."""
    found = np.ones(len(first), np.bool_)
    found[:-1] = first[1:]
    return found


def codes_of(table: pa.Table) -> tuple[Ints, Ints]:
    """Return a code for each row of a table, and for each code its first row. Equal rows have equal codes."""
    code = np.zeros(len(table), np.int64)
    for column in table.columns:
        encoded = pc.dictionary_encode(column.combine_chunks(), null_encoding="encode")
        code = code * max(len(encoded.dictionary), 1) + encoded.indices.to_numpy()
    _, first, codes = np.unique(code, return_index=True, return_inverse=True)
    return codes, first


def _encoded(column: pa.Array | pa.ChunkedArray) -> tuple[Ints, Sequence[str]]:
    """Return the codes of a column of names, -1 for null, and the names by code."""
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    encoded = column.dictionary_encode()
    return _filled(encoded.indices, -1), encoded.dictionary.to_pylist()


def _code(names: Sequence[str], name: str) -> int:
    """Return the code of a name; -2 if it is not there."""
    return names.index(name) if name in names else -2


def _joined(first: pa.ChunkedArray, second: pa.ChunkedArray) -> pa.Array:
    return pa.concat_arrays(
        [*first.cast(pa.string()).chunks, *second.cast(pa.string()).chunks] or [pa.nulls(0, pa.string())]
    )


def _filled(column: pa.Array | pa.ChunkedArray, null: int = NULL) -> Ints:
    return np.asarray(pc.fill_null(column.cast(pa.int64()), null).to_numpy(), np.int64)
