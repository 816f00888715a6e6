"""The tables `[[expect]]` and `[promises]`, which configure the verdict. Plain data."""

from collections.abc import Callable, Collection, Iterator
from operator import eq, ge, gt, le, lt
from typing import Literal

from fakebroker.errors import ConfigError, ErrorCode, one_of
from fakebroker.replay.members.events import Source
from fakebroker.replay.members.request_outcomes import MEANINGS
from fakebroker.replay.promises.catalog import PROMISES
from fakebroker.replay.workload.table import Table

COMPARISONS: dict[str, Callable[[float, float], bool]] = {"<": lt, "<=": le, "==": eq, ">=": ge, ">": gt}

METRICS = {
    "requests": "number of requests sent",
    "requests_per_s": "`requests` divided by the time from when the first one was due to the last response",
    "p50_ms": "median latency, from when a request was due until its response was read; without `api`, of requests "
    "that are never parked: all except JoinGroup and SyncGroup. The same applies to the other latencies",
    "p99_ms": "99th percentile of the latency",
    "p99_9_ms": "99.9th percentile of the latency",
    "max_ms": "maximum latency",
    "undelayed_p50_ms": "median latency without the delay of the replay itself; without `api` as for `p50_ms`",
    "undelayed_p99_ms": "99th percentile of this latency",
    "undelayed_p99_9_ms": "99.9th percentile of this latency",
    "undelayed_max_ms": "maximum of this latency",
    "unexpected_errors": MEANINGS["unexpected_errors"],
    "errors.<NAME>": "number of responses with an error, by its name in Kafka: `errors.NOT_COORDINATOR`",
    "groups_per_request": "mean number of groups per request of FindCoordinator, OffsetFetch or DescribeGroups (`api`)",
    "lost": MEANINGS["lost"],
    "unanswered": MEANINGS["unanswered"],
    "cut_off": MEANINGS["cut_off"],
    "broker_share": "share of all requests that went to the broker with the most requests, 0 to 1",
    "broker_skew": "requests to the broker with the most requests, divided by the mean of the brokers with requests",
    "partition_skew": "requests about groups on the busiest partition of `__consumer_offsets`, divided by the mean of "
    "all partitions",
    "generations": "number of pairs of group and generation (group epoch of the consumer protocol) that at least one "
    "member joined",
    "rebalances": "number of `generations` in which at least one member got an assignment",
    "rebalance_p50_ms": "median duration of rebalances, from the first JoinGroup sent until every member that joined "
    "has received its SyncGroup response; with the consumer protocol, from the first heartbeat answered with a group "
    "epoch until the last member has reached it and has its partitions",
    "rebalance_p99_ms": "99th percentile of the duration of rebalances",
    "rebalance_max_ms": "maximum duration of rebalances",
    "members_joined": "number of members that got an assignment at least once",
    "unassigned_member_s": "sum over all members of the time that they were running without an assignment",
    "unassigned_partition_s": "sum over all partitions of the time that no member had them while their group had "
    "members",
}
"""The metrics for expectations, with their descriptions in the guide."""

ERRORS, GROUPS_PER_REQUEST = "errors.<NAME>", "groups_per_request"

COUNTS_OF_REQUESTS = ("requests", "unexpected_errors", ERRORS, "lost", "unanswered", "cut_off")
"""The metrics of which the number is 0 if there were no such requests."""

UNDELAYED_LATENCIES = {f"undelayed_{name}": name for name in ("p50_ms", "p99_ms", "p99_9_ms", "max_ms")}
"""The latencies from when a request was sent, with the same from when it was due."""

METRICS_OF_REQUESTS = (
    *COUNTS_OF_REQUESTS,
    "requests_per_s",
    *UNDELAYED_LATENCIES.values(),
    *UNDELAYED_LATENCIES,
    GROUPS_PER_REQUEST,
)
"""The metrics that may be limited to an API or a source of requests."""

METRICS_OF_A_POPULATION = {
    "generations": "generations",
    "members_joined": "members_joined",
    "unassigned_member_s": "unassigned_member_s",
    "unassigned_partition_s": "unassigned_partition_s",
    "rebalance_max_ms": "longest_rebalance_ms",
}
"""The metrics that may be limited to a population, with their keys in `populations`."""

COUNTS = (
    *COUNTS_OF_REQUESTS,
    "requests_per_s",
    "generations",
    "rebalances",
    "members_joined",
    "unassigned_member_s",
    "unassigned_partition_s",
)
"""The metrics that grow with the number of groups and members."""

DECIDED_BY_LATENESS = (*COUNTS, "rebalance_p50_ms", "rebalance_p99_ms", "rebalance_max_ms")
"""The metrics that change if members are late with their heartbeats."""

APIS_ABOUT_SEVERAL_GROUPS = ("FindCoordinator", "OffsetFetch", "DescribeGroups")

_ERROR_PREFIX = "errors."
_MOST_LISTED = 25

Api = Literal[
    "FindCoordinator",
    "Metadata",
    "JoinGroup",
    "SyncGroup",
    "Heartbeat",
    "ConsumerGroupHeartbeat",
    "OffsetCommit",
    "OffsetFetch",
    "LeaveGroup",
    "DescribeGroups",
    "ListGroups",
]


class Expectation(Table, frozen=True):
    """A comparison with a number of the summary.

    Attributes:
        metric: Name of the number; see the table of metrics.
        comparison: Operator between the number and `value`.
        value: Value to compare with.
        api: For some metrics: only requests of this API.
        source: For some metrics: only requests of the `members`, including the look-ups of their coordinators, or only
            requests of `load`, the `[[load]]` tables. If not given, both.
        groups: For some metrics: only groups of this population.
        per: For some metrics: divide by the number of groups, or of members. So `value` also applies with another
            number of them, as with `--scale`.
    """

    metric: str
    comparison: Literal["<", "<=", "==", ">=", ">"]
    value: float
    api: Api | None = None
    source: Source | None = None
    groups: str | None = None
    per: Literal["group", "member"] | None = None

    def broken_rules(self) -> Iterator[ConfigError]:
        is_of_an_error = self.metric.startswith(_ERROR_PREFIX)
        known = [f"{_ERROR_PREFIX}{name}" for name in ErrorCode.__members__] if is_of_an_error else list(METRICS)
        if self.metric not in known or self.metric == ERRORS:
            yield ConfigError.of("metric", self.metric, one_of(known, self.metric, most=_MOST_LISTED))
            return
        for key, metrics in ALLOWED_METRICS.items():
            value = getattr(self, key)
            if value is not None and self.kind not in metrics:
                expected = f"no {key} with metric {self.metric!r}; it is allowed with {', '.join(metrics)}"
                yield ConfigError.of(key, value, expected)
        if self.metric == GROUPS_PER_REQUEST and self.api not in APIS_ABOUT_SEVERAL_GROUPS:
            expected = f"{one_of(APIS_ABOUT_SEVERAL_GROUPS)} with metric {GROUPS_PER_REQUEST!r}"
            yield ConfigError.of("api", self.api, expected) if self.api else ConfigError.missing("api", expected)

    @property
    def kind(self) -> str:
        """The metric as in `METRICS`: `errors.<NAME>` for the errors of any name."""
        return ERRORS if self.metric.startswith(_ERROR_PREFIX) else self.metric

    def __str__(self) -> str:
        subset = self.api or self.groups
        parts = [self.metric, f"of {subset}" if subset else "", f"from {self.source}" if self.source else ""]
        parts += [f"per {self.per}" if self.per else "", self.comparison, f"{self.value:.15g}"]
        return " ".join(filter(None, parts))


ALLOWED_METRICS: dict[str, Collection[str]] = {
    "api": METRICS_OF_REQUESTS,
    "source": METRICS_OF_REQUESTS,
    "groups": METRICS_OF_A_POPULATION,
    "per": COUNTS,
}
"""The metrics with which each optional key is allowed."""


class Promises(Table, frozen=True):
    """The promises to check.

    Attributes:
        check: Names of promises. If not given, all; those about transactions only if a population is transactional.
        require: Names of promises that the run must exercise: without a case of the promise, the verdict is "failed".
    """

    check: tuple[str, ...] | None = None
    require: tuple[str, ...] = ()

    def broken_rules(self) -> Iterator[ConfigError]:
        for key, names in (("check", self.check or ()), ("require", self.require)):
            for index, name in enumerate(names):
                if name not in PROMISES:
                    yield ConfigError.of(f"{key}[{index}]", name, one_of(PROMISES, name))
        for index, name in enumerate(self.require):
            if self.check is not None and name in PROMISES and name not in self.check:
                yield ConfigError.of(
                    f"require[{index}]", name, f"a promise in check: {', '.join(self.check) or 'none'}"
                )
