"""The tables `[[expect]]` and `[promises]`, which configure the verdict. Plain data."""

from collections.abc import Callable, Iterator
from operator import eq, ge, gt, le, lt
from typing import Literal

from fakebroker.errors import ConfigError, ErrorCode, one_of
from fakebroker.replay.members.request_outcomes import MEANINGS
from fakebroker.replay.verify.promises import PROMISES
from fakebroker.replay.workload.table import Table

COMPARISONS: dict[str, Callable[[float, float], bool]] = {"<": lt, "<=": le, "==": eq, ">=": ge, ">": gt}

METRICS = {
    "requests": "number of requests sent",
    "requests_per_s": "`requests` divided by the time from when the first one was due to the last response",
    "p50_ms": "median latency, from when a request was due until its response was read",
    "p99_ms": "99th percentile of the latency",
    "p99_9_ms": "99.9th percentile of the latency",
    "max_ms": "maximum latency",
    "unexpected_errors": MEANINGS["unexpected_errors"],
    "errors.<NAME>": "number of responses with an error, by its name in Kafka: `errors.NOT_COORDINATOR`",
    "lost": MEANINGS["lost"],
    "unanswered": MEANINGS["unanswered"],
    "cut_off": MEANINGS["cut_off"],
    "broker_share": "share of all requests that went to the broker with the most requests, 0 to 1",
    "broker_skew": "requests to the broker with the most requests, divided by the mean of the brokers with requests",
    "partition_skew": "requests about groups on the busiest partition of `__consumer_offsets`, divided by the mean of "
    "all partitions",
    "generations": "number of pairs of group and generation that at least one member joined",
    "rebalances": "number of `generations` in which at least one member got an assignment",
    "rebalance_p50_ms": "median duration of rebalances, from the first JoinGroup sent until every member that joined "
    "has received its SyncGroup response",
    "rebalance_p99_ms": "99th percentile of the duration of rebalances",
    "rebalance_max_ms": "maximum duration of rebalances",
    "members_joined": "number of members that got an assignment at least once",
    "unassigned_member_s": "sum over all members of the time that they were running without an assignment",
}
"""The metrics for expectations, with their descriptions in the guide."""

METRICS_OF_AN_API = (
    "requests",
    "requests_per_s",
    "p50_ms",
    "p99_ms",
    "p99_9_ms",
    "max_ms",
    "unexpected_errors",
    "lost",
    "unanswered",
    "cut_off",
)
METRICS_OF_A_POPULATION = ("generations", "members_joined", "unassigned_member_s")

_ERROR_PREFIX = "errors."
_MOST_LISTED = 25

Api = Literal[
    "FindCoordinator",
    "Metadata",
    "JoinGroup",
    "SyncGroup",
    "Heartbeat",
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
        groups: For some metrics: only groups of this population.
    """

    metric: str
    comparison: Literal["<", "<=", "==", ">=", ">"]
    value: float
    api: Api | None = None
    groups: str | None = None

    def broken_rules(self) -> Iterator[ConfigError]:
        is_of_an_error = self.metric.startswith(_ERROR_PREFIX)
        known = [f"{_ERROR_PREFIX}{name}" for name in ErrorCode.__members__] if is_of_an_error else list(METRICS)
        if self.metric not in known:
            yield ConfigError.of("metric", self.metric, one_of(known, self.metric, most=_MOST_LISTED))
            return
        if self.api is not None and self.metric not in METRICS_OF_AN_API:
            expected = f"no api with metric {self.metric!r}; it is allowed with {', '.join(METRICS_OF_AN_API)}"
            yield ConfigError.of("api", self.api, expected)
        if self.groups is not None and (self.metric not in METRICS_OF_A_POPULATION or self.api):
            allowed = ", ".join(METRICS_OF_A_POPULATION)
            expected = f"no groups with metric {self.metric!r}; it is allowed with {allowed}, without api"
            yield ConfigError.of("groups", self.groups, expected)

    @property
    def key(self) -> str:
        """The key of the number in the summary's `metrics`; with `api`, in the row of this API in `apis`."""
        return f"{self.metric}.{self.groups}" if self.groups else self.metric

    def __str__(self) -> str:
        subset = self.api or self.groups
        return f"{self.metric}{f' of {subset}' if subset else ''} {self.comparison} {self.value:.15g}"


class Promises(Table, frozen=True):
    """The promises to check.

    Attributes:
        check: Names of promises; all if not given.
    """

    check: tuple[str, ...] | None = None

    def broken_rules(self) -> Iterator[ConfigError]:
        for index, name in enumerate(self.check or ()):
            if name not in PROMISES:
                yield ConfigError.of(f"check[{index}]", name, one_of(PROMISES, name))
