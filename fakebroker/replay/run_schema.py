"""The schema of a run's files: each key of `summary.json` and each column of `events.parquet`, with its meaning.

`scenarios/runs.md` is generated from it.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from fakebroker.replay.members.events import DDL, SCHEMA, Event
from fakebroker.replay.report.numbers import SUMMARY_VERSION


class Key(NamedTuple):
    """One key, or one column.

    Attributes:
        name: Its path: `apis[].p50_ms` is in each row of the list `apis`, `{}` stands for any name.
        type: In JSON's terms; in Spark's for columns.
        unit: Empty where there is none.
        meaning: A sentence.
    """

    name: str
    type: str
    unit: str
    meaning: str


FREE = (
    "workload",
    "cluster.partitions",
    "files",
    "timeline[]",
    "verdict.availability[].violations[]",
    "verdict.promises[].violations[]",
)
"""Keys with arbitrary contents."""

_QUANTILES = {
    "p50_ms": "half of {} take no longer; null without any",
    "p99_ms": "99 of 100 of {} take no longer",
    "p99_9_ms": "999 of 1,000 of {} take no longer",
    "max_ms": "the longest of {}",
}


def _latencies(prefix: str, what: str, names: tuple[str, ...] = tuple(_QUANTILES)) -> list[Key]:
    return [Key(prefix + name, "number or null", "ms", _QUANTILES[name].format(what)) for name in names]


def _requests(prefix: str, whose: str) -> list[Key]:
    return [
        Key(f"{prefix}api", "string", "", f"{whose}; `all` for all together"),
        Key(f"{prefix}requests", "integer", "", "how many were sent"),
        Key(f"{prefix}requests_per_s", "number", "1/s", "these divided by `span_s`"),
        *_latencies(prefix, "the latencies, each from when the request was due until its answer was read"),
        Key(f"{prefix}unexpected_errors", "integer", "", "answers with an error that a healthy cluster does not give"),
        Key(f"{prefix}lost", "integer", "", "without an answer, because the connection was lost or the member stopped"),
        Key(f"{prefix}unanswered", "integer", "", "without an answer, the lost ones included"),
    ]


SUMMARY_KEYS = [
    Key("version", "integer", "", f"of this schema: {SUMMARY_VERSION}"),
    Key("workload", "object", "", "the workload, with all defaults filled in; `file` is where it came from"),
    Key("seed", "integer", "", "of every random choice"),
    Key("started", "string", "", "when the members started, ISO 8601"),
    Key("complete", "boolean", "", "false if the replay was ended early; then all is about what came before"),
    Key("transport", "string", "", "`tcp` or `memory`"),
    Key("record", "string", "", "`all` or `changes`: whether uneventful heartbeats are folded into one row"),
    Key("lanes", "integer", "", "how many connections to each broker each task's members shared; null: one a member"),
    Key("cluster.bootstrap", "string", "", "bootstrap servers; empty in memory"),
    Key("cluster.embedded", "boolean", "", "whether it was a fake cluster of the replay's own"),
    Key("cluster.partitions", "object", "", "how many partitions each topic has"),
    Key("cluster.offsets_partitions", "integer", "", "how many partitions `__consumer_offsets` has"),
    Key("cluster.reachable", "boolean", "", "false if it could not be reached when the members were done"),
    Key("spark.version", "string", "", "Spark's version"),
    Key("spark.master", "string", "", "Spark's master URL"),
    Key("spark.tasks", "integer", "", "among how many tasks the groups were dealt"),
    Key("timeline[]", "object", "", "an event of the cluster: `at_s`, `do`, its arguments, if `done`, `why` not"),
    Key("groups", "integer", "", "how many groups there are"),
    Key("members", "integer", "", "how many members there are"),
    Key("span_s", "number", "s", "from the first request due to the last one answered"),
    Key("began_us", "integer", "µs since 1970", "when the replay began: second 0 of all that is over time"),
    *_requests("total.", "`all`"),
    *_requests("apis[].", "the API"),
    Key("errors[].name", "string", "", "Kafka's name of the error, or its number"),
    Key("errors[].code", "integer", "", "its number"),
    Key("errors[].api", "string", "", "the API that was answered so"),
    Key("errors[].requests", "integer", "", "how many were"),
    Key("errors[].ordinary", "boolean", "", "whether a healthy cluster gives it"),
    Key("rebalances.generations", "integer", "", "pairs of group and generation that a member entered by JoinGroup"),
    Key(
        "rebalances.count",
        "integer",
        "",
        "those that a member was given an assignment in: from the first JoinGroup sent until each member that joined "
        "in that round had its first SyncGroup answered",
    ),
    *_latencies("rebalances.", "them", ("p50_ms", "p99_ms", "max_ms")),
    Key("rebalances.distribution[].from_ms", "number", "ms", "took so long, and less than the next of 1, 2, 5, 10 ..."),
    Key("rebalances.distribution[].count", "integer", "", "how many did"),
    Key("populations[].population", "string", "", "the name of a `[[groups]]` table"),
    Key("populations[].groups", "integer", "", "its groups"),
    Key("populations[].members", "integer", "", "their members"),
    Key("populations[].members_joined", "integer", "", "members that got an assignment at least once"),
    Key("populations[].generations", "integer", "", "as in `rebalances`"),
    Key(
        "populations[].unassigned_member_s",
        "number",
        "s",
        "over all members: from a start, an eager JoinGroup sent, or an answer by which it is no member, to the next "
        "SyncGroup answered; not while it is gone",
    ),
    Key("populations[].longest_rebalance_ms", "number or null", "ms", "the longest rebalance"),
    Key("brokers[].broker", "integer", "", "node id; -1 for an address that is no broker's own"),
    Key("brokers[].requests", "integer", "", "requests sent to it"),
    Key("brokers[].share", "number", "0 to 1", "its share of all requests"),
    Key("brokers[].groups", "integer", "", "groups whose members sent it any"),
    Key("lookups[].api", "string", "", "FindCoordinator, OffsetFetch or DescribeGroups"),
    Key("lookups[].requests", "integer", "", "how many were sent"),
    Key("lookups[].keys", "integer", "", "groups that they asked about"),
    Key("lookups[].most_in_one_request", "integer", "", "the most that one asked about"),
    Key("sent_late.p50_ms", "number or null", "ms", "half of the requests waited no longer in the swarm itself"),
    Key("sent_late.p99_ms", "number or null", "ms", "the same for 99 of 100; this counts as latency"),
    Key("offsets_partitions.count", "integer", "", "partitions of `__consumer_offsets`"),
    Key("offsets_partitions.groups_skew", "number or null", "times", "groups of the fullest one by the even share"),
    Key("offsets_partitions.requests_skew", "number or null", "times", "the same for requests about its groups"),
    Key("offsets_partitions.partitions[].partition", "integer", "", "one that has groups"),
    Key("offsets_partitions.partitions[].broker", "integer or null", "", "who coordinated most of it last"),
    Key("offsets_partitions.partitions[].groups", "integer", "", "its groups"),
    Key("offsets_partitions.partitions[].requests", "integer", "", "requests that were about one of them"),
    Key("slowest_groups[].group", "string", "", "one of the groups with the longest rebalances"),
    Key("slowest_groups[].population", "string or null", "", "its population"),
    Key("slowest_groups[].members", "integer", "", "its members"),
    Key("slowest_groups[].generations", "integer", "", "as in `rebalances`"),
    Key("slowest_groups[].longest_rebalance_ms", "number", "ms", "its longest rebalance"),
    Key("slowest_groups[].unassigned_member_s", "number", "s", "as in `populations`"),
    Key("over_time.slice_s", "number", "s", "how long a slice is; each list has a number for each slice"),
    Key("over_time.slices", "integer", "", "how many there are, 120 at most"),
    Key("over_time.apis.{}.requests_per_s", "numbers", "1/s", "requests of the API sent in the slice"),
    Key("over_time.apis.{}.p50_ms", "numbers or nulls", "ms", "their latency, as in `apis`"),
    Key("over_time.apis.{}.p99_ms", "numbers or nulls", "ms", "their latency, as in `apis`"),
    Key("over_time.errors[].name", "string", "", "an error"),
    Key("over_time.errors[].api", "string", "", "the API that was answered so"),
    Key("over_time.errors[].answers", "integers", "", "how many requests sent in the slice were"),
    Key("over_time.groups.stable", "numbers", "", "groups that had members and no rebalance, on average"),
    Key("over_time.groups.rebalancing", "numbers", "", "groups with a generation on the way, as in `rebalances`"),
    Key("over_time.groups.empty", "numbers", "", "groups without any member"),
    Key("over_time.members.assigned", "numbers", "", "members with an assignment, if an empty one, on average"),
    Key("over_time.members.waiting", "numbers", "", "members that want one"),
    Key("over_time.members.gone", "numbers", "", "members that are not there"),
    Key("over_time.rebalances.count", "integers", "", "rebalances that began in the slice"),
    Key("over_time.rebalances.p50_ms", "numbers or nulls", "ms", "half of them took no longer"),
    Key("over_time.rebalances.max_ms", "numbers or nulls", "ms", "the longest of them"),
    Key("metrics.{}", "number or null", "", "the numbers that an `[[expect]]` table can name, by name"),
    Key("verdict.passed", "boolean", "", "whether all checks passed, all promises were kept, all expectations met"),
    Key("verdict.availability[].name", "string", "", "short name of a check that the cluster answered"),
    Key("verdict.availability[].check", "string", "", "what is checked"),
    Key("verdict.availability[].passed", "boolean", "", "whether it passed"),
    Key("verdict.availability[].failures", "integer", "", "how many outages, members or requests failed it"),
    Key("verdict.availability[].violations[]", "object", "", "`what`; of some `group`, `members`, `at_us`, `until_us`"),
    Key("verdict.promises[].name", "string", "", "its short name"),
    Key("verdict.promises[].promise", "string", "", "the promise"),
    Key("verdict.promises[].kept", "boolean", "", "whether it was kept"),
    Key("verdict.promises[].broken", "integer", "", "how often it was not"),
    Key("verdict.promises[].violations[]", "object", "", "`group`, `generation`, `at_us`, `what`, `events` ..."),
    Key("verdict.expectations[].expectation", "string", "", "what was expected; of events, that all were done"),
    Key("verdict.expectations[].met", "boolean", "", "whether it was so"),
    Key("verdict.expectations[].actual", "number or null", "", "the number; null if there is none"),
    Key("directory", "string", "", "where the run is"),
    Key("files", "object", "", "what is in it"),
]  # fmt: skip
"""All keys, in the order of the document."""


def keys_of(value: Any, path: str = "", free: tuple[str, ...] = FREE) -> Iterator[str]:
    """Yield the names of the keys of a summary, as in `SUMMARY_KEYS`."""
    if path in free:
        yield path
    elif isinstance(value, Mapping):
        for name, inner in value.items():
            named = "{}" if path in ("metrics", "over_time.apis") else name
            yield from keys_of(inner, f"{path}.{named}".lstrip("."), free)
    elif isinstance(value, list) and (not value or isinstance(value[0], Mapping)):
        for each in value:
            yield from keys_of(each, f"{path}[]", free)
    else:
        yield path


def event_columns() -> list[Key]:
    """Return the columns of `events.parquet`, with their meanings from the docstring of `Event`."""
    meanings = dict(re.findall(r"^ {8}(\w+): (.+(?:\n {12}.+)*)", Event.__doc__ or "", re.MULTILINE))
    types = dict(re.findall(r"`(\w+)` (.+?)(?:, (?=`)|$)", DDL))
    return [
        Key(field.name, types[field.name], _unit(field.name), re.sub(r"\s+", " ", meanings[field.name]))
        for field in SCHEMA
    ]


def _unit(column: str) -> str:
    if not column.endswith("_us"):
        return ""
    return "µs" if column == "latency_us" else "µs since 1970"
