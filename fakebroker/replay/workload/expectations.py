"""`[[expect]]` and `[promises]`: what the verdict checks. Plain data."""

from collections.abc import Callable, Iterator
from operator import eq, ge, gt, le, lt
from typing import Literal

from fakebroker.errors import ConfigError, ErrorCode, one_of
from fakebroker.replay.verify.promises import PROMISES
from fakebroker.replay.workload.table import Table

COMPARISONS: dict[str, Callable[[float, float], bool]] = {"<": lt, "<=": le, "==": eq, ">=": ge, ">": gt}

METRICS = {
    "requests": "requests sent",
    "requests_per_s": "requests divided by the time from the first one scheduled to the last one answered",
    "p50_ms": "latency, from when a request was due to its answer, that half of the requests do not exceed",
    "p99_ms": "latency that 99 of 100 requests do not exceed",
    "p99_9_ms": "latency that 999 of 1,000 requests do not exceed",
    "max_ms": "the longest latency",
    "unexpected_errors": "answers with an error other than REBALANCE_IN_PROGRESS and MEMBER_ID_REQUIRED",
    "errors.<NAME>": "answers with this error, by Kafka's name: errors.NOT_COORDINATOR",
    "unanswered": "requests without an answer, for whatever reason",
    "lost": "those of them whose connection was lost, or whose member stopped or gave up",
    "broker_share": "the largest share of all requests that went to one broker, 0 to 1",
    "broker_skew": "requests of the broker with the most of them, divided by the mean of all that were sent any",
    "partition_skew": "the same for the partitions of `__consumer_offsets`",
    "generations": "pairs of a group and a generation that some member entered (a JoinGroup without error)",
    "rebalances": "generations that some member was also given an assignment in",
    "rebalance_p50_ms": "from a generation's first JoinGroup sent until all who joined have had their SyncGroup "
    "answered; half take no longer",
    "rebalance_p99_ms": "the same, which 99 of 100 do not exceed",
    "rebalance_max_ms": "the longest",
    "members_joined": "members that were given an assignment at least once (a SyncGroup without error)",
    "unassigned_member_s": "over all members, seconds between a start, or a JoinGroup with which a member gave up its "
    "partitions, and the next SyncGroup without error",
}
"""The metrics for expectations, and their meanings."""

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
)
METRICS_OF_A_POPULATION = ("generations", "members_joined", "unassigned_member_s")

_OF_AN_ERROR = "errors."
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
        metric: The number; see below.
        comparison: The operator between the number and `value`.
        value: The value to compare with.
        api: For some metrics: only the requests of this API.
        groups: For some metrics: only the groups of this population.
    """

    metric: str
    comparison: Literal["<", "<=", "==", ">=", ">"]
    value: float
    api: Api | None = None
    groups: str | None = None

    def broken_rules(self) -> Iterator[ConfigError]:
        is_of_an_error = self.metric.startswith(_OF_AN_ERROR)
        known = [f"{_OF_AN_ERROR}{name}" for name in ErrorCode.__members__] if is_of_an_error else list(METRICS)
        if self.metric not in known:
            yield ConfigError.of("metric", self.metric, one_of(known, self.metric, most=_MOST_LISTED))
            return
        if self.api is not None and self.metric not in METRICS_OF_AN_API:
            expected = f"none with metric {self.metric!r}, only with {', '.join(METRICS_OF_AN_API)}"
            yield ConfigError.of("api", self.api, expected)
        if self.groups is not None and (self.metric not in METRICS_OF_A_POPULATION or self.api):
            allowed = ", ".join(METRICS_OF_A_POPULATION)
            expected = f"none with metric {self.metric!r}, only with {allowed} and without api"
            yield ConfigError.of("groups", self.groups, expected)

    @property
    def key(self) -> str:
        """The key of the number in the summary's `metrics`, or in the row of its `api` if it has one."""
        return f"{self.metric}.{self.groups}" if self.groups else self.metric

    def __str__(self) -> str:
        about = self.api or self.groups
        return f"{self.metric}{f' of {about}' if about else ''} {self.comparison} {self.value:.15g}"


class Promises(Table, frozen=True):
    """The promises to check.

    Attributes:
        check: Their names; all if not given.
    """

    check: tuple[str, ...] | None = None

    def broken_rules(self) -> Iterator[ConfigError]:
        for index, name in enumerate(self.check or ()):
            if name not in PROMISES:
                yield ConfigError.of(f"check[{index}]", name, one_of(PROMISES, name))
