"""The contents of `summary.json` as types. Plain data, without Spark.

Units are the last part of a name. The table of keys in `scenarios/runs.md` is generated from these docstrings.
"""

from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec
from msgspec import UNSET, UnsetType

from fakebroker.validation import convert

T = TypeVar("T", bound="Section")

SUMMARY_VERSION = 1
"""Version of the schema of `summary.json`; incremented when a key is removed or changes its meaning."""

Number = int | float
Series = list[float | None]
"""A number for each slice of time; None where there is none."""


class Section(msgspec.Struct, frozen=True):
    """A JSON object of the summary."""


class ClusterSummary(Section, frozen=True):
    """The cluster of a replay.

    Attributes:
        bootstrap: Bootstrap servers; empty in memory.
        embedded: Whether it was a fake cluster of the replay's own.
        partitions: How many partitions each topic has.
        offsets_partitions: How many partitions `__consumer_offsets` has.
        reachable: False if it could not be reached when the members were done.
    """

    bootstrap: str
    embedded: bool
    partitions: dict[str, int]
    offsets_partitions: int
    reachable: bool


class SparkSummary(Section, frozen=True):
    """Spark, as it ran a replay.

    Attributes:
        version: Spark's version.
        master: Spark's master URL.
        tasks: Number of tasks among which the groups were divided.
    """

    version: str
    master: str
    tasks: int


class Head(Section, frozen=True, kw_only=True):
    """What does not follow from the events of a run, as in `head.json`.

    Attributes:
        workload: The workload, with all defaults filled in; `file` is where it came from.
        seed: Seed of every random choice.
        started: When the members started, ISO 8601.
        complete: False if the replay was ended early; then all is about what came before.
        transport: `tcp` or `memory`.
        record: `all` or `changes`: whether uneventful heartbeats are folded into one row.
        lanes: How many connections to each broker each task's members shared; null: one a member.
        timeline: An event of the cluster: `at_s`, `do`, its arguments, if `done`, `why` not.
        members: How many members there are.
    """

    workload: dict[str, Any]
    seed: int
    started: str
    complete: bool
    transport: str
    record: str
    lanes: int | None = None
    cluster: ClusterSummary
    spark: SparkSummary
    timeline: list[dict[str, Any]]
    members: int = 0


class RequestNumbers(Section, frozen=True):
    """The requests of one API, or of all.

    Attributes:
        api: The API; `all` for all together.
        requests: How many were sent.
        requests_per_s: These divided by `span_s`.
        p50_ms: Latency, from when the request was due until its response was read, that half of the requests do not
            exceed; null without any.
        p99_ms: Latency that 99 of 100 do not exceed.
        p99_9_ms: Latency that 999 of 1,000 do not exceed.
        max_ms: The longest latency.
        unexpected_errors: Responses with an error that a healthy cluster does not give.
        lost: Without a response, because the connection was lost or the member stopped.
        unanswered: Without a response, the lost ones included.
    """

    api: str
    requests: int
    requests_per_s: float
    p50_ms: float | None
    p99_ms: float | None
    p99_9_ms: float | None
    max_ms: float | None
    unexpected_errors: int
    lost: int
    unanswered: int


class ErrorCount(Section, frozen=True):
    """Responses of one API with one error.

    Attributes:
        name: Kafka's name of the error, or its number.
        code: Its number.
        api: The API with this error in its responses.
        requests: How many there were.
        ordinary: Whether a healthy cluster gives it.
    """

    name: str
    code: int
    api: str
    requests: int
    ordinary: bool


class DurationCount(Section, frozen=True):
    """Rebalances with a duration in one interval.

    Attributes:
        from_ms: They took this long, and less than the next of 1, 2, 5, 10 ...
        count: How many did.
    """

    from_ms: float
    count: int


class Rebalances(Section, frozen=True):
    """The rebalances of all groups.

    Attributes:
        generations: Pairs of group and generation that a member entered by JoinGroup.
        count: Those in which a member was given an assignment: from the first JoinGroup sent until each member that
            joined in that rebalance had its first SyncGroup answered.
        p50_ms: Half of them take no longer; null without any.
        p99_ms: 99 of 100 of them take no longer.
        max_ms: The longest of them.
    """

    generations: int
    count: int
    p50_ms: float | None
    p99_ms: float | None
    max_ms: float | None
    distribution: list[DurationCount]


class PopulationNumbers(Section, frozen=True):
    """The groups of one `[[groups]]` table.

    Attributes:
        population: The name of a `[[groups]]` table.
        groups: Its groups.
        members: Their members.
        members_joined: Members that got an assignment at least once.
        generations: As in `rebalances`.
        unassigned_member_s: Over all members: from a start, an eager JoinGroup sent, or a response by which it is no
            member, to the next SyncGroup answered; not while it is gone.
        longest_rebalance_ms: The longest rebalance.
    """

    population: str
    groups: int
    members: int
    members_joined: int
    generations: int
    unassigned_member_s: float
    longest_rebalance_ms: float | None


class BrokerNumbers(Section, frozen=True):
    """The requests sent to one broker.

    Attributes:
        broker: Node id; -1 for an address that is no broker's own.
        requests: Requests sent to it.
        share: Its share of all requests.
        groups: Groups whose members sent it any.
    """

    broker: int
    requests: int
    share: float
    groups: int


class LookupNumbers(Section, frozen=True):
    """Requests of an API that may be about several groups.

    Attributes:
        api: FindCoordinator, OffsetFetch or DescribeGroups.
        requests: How many were sent.
        keys: Groups that they asked about.
        most_in_one_request: The most that one asked about.
    """

    api: str
    requests: int
    keys: int
    most_in_one_request: int


class SendingDelay(Section, frozen=True):
    """How long requests waited in the replay itself.

    Attributes:
        p50_ms: Half of the requests were sent no later after they were due.
        p99_ms: The same for 99 of 100; this counts as latency.
    """

    p50_ms: float | None
    p99_ms: float | None


class OffsetsPartition(Section, frozen=True):
    """A partition of `__consumer_offsets`.

    Attributes:
        partition: One that has groups.
        broker: The broker that coordinated most of it last.
        groups: Its groups.
        requests: Requests that were about one of them.
    """

    partition: int
    broker: int | None
    groups: int
    requests: int


class OffsetsPartitions(Section, frozen=True):
    """How groups and requests are spread over `__consumer_offsets`.

    Attributes:
        count: Partitions of `__consumer_offsets`.
        groups_skew: Groups of the fullest one divided by the even share.
        requests_skew: The same for requests about its groups.
    """

    count: int
    groups_skew: float | None
    requests_skew: float | None
    partitions: list[OffsetsPartition]


class SlowGroup(Section, frozen=True):
    """A group with a long rebalance.

    Attributes:
        group: One of the groups with the longest rebalances.
        population: Its population.
        members: Its members.
        generations: As in `rebalances`.
        longest_rebalance_ms: Its longest rebalance.
        unassigned_member_s: As in `populations`.
    """

    group: str
    population: str | None
    members: int
    generations: int
    longest_rebalance_ms: float
    unassigned_member_s: float


class RequestsOverTime(Section, frozen=True):
    """The requests of an API by slice.

    Attributes:
        requests_per_s: Requests of the API sent in the slice.
        p50_ms: Their latency, as in `apis`.
        p99_ms: Their latency, as in `apis`.
    """

    requests_per_s: list[float]
    p50_ms: Series
    p99_ms: Series


class ErrorsOverTime(Section, frozen=True):
    """The responses of an API with an error, by slice.

    Attributes:
        name: An error.
        api: The API with this error in its responses.
        answers: How many requests sent in the slice were answered with it.
    """

    name: str
    api: str
    answers: list[int]


class GroupsOverTime(Section, frozen=True):
    """The number of groups in each state, by slice.

    Attributes:
        stable: Groups that had members and no rebalance, on average.
        rebalancing: Groups with a rebalance in progress, as in `rebalances`.
        empty: Groups without any member.
    """

    stable: list[float]
    rebalancing: list[float]
    empty: list[float]


class MembersOverTime(Section, frozen=True):
    """The number of members in each state, by slice.

    Attributes:
        assigned: Members with an assignment, even an empty one, on average.
        waiting: Members without one that want one.
        gone: Members that are not running.
    """

    assigned: list[float]
    waiting: list[float]
    gone: list[float]


class RebalancesOverTime(Section, frozen=True):
    """Rebalances by the slice in which they began.

    Attributes:
        count: Rebalances that began in the slice.
        p50_ms: Half of them took no longer.
        max_ms: The longest of them.
    """

    count: list[int]
    p50_ms: Series
    max_ms: Series


class OverTime(Section, frozen=True):
    """Numbers by slice of time.

    Attributes:
        slice_s: How long a slice is; each list has a number for each slice.
        slices: How many there are, 120 at most.
    """

    slice_s: float
    slices: int
    apis: dict[str, RequestsOverTime]
    errors: list[ErrorsOverTime]
    groups: GroupsOverTime
    members: MembersOverTime
    rebalances: RebalancesOverTime


class Numbers(Section, frozen=True, kw_only=True):
    """The numbers of a replay, computed from its events.

    Attributes:
        groups: How many groups there are.
        span_s: From the first request due to the last one answered.
        began_us: When the replay began: second 0 of all that is over time.
        metrics: The numbers that an `[[expect]]` table can name, by name.
    """

    groups: int
    span_s: float
    began_us: int
    total: RequestNumbers
    apis: list[RequestNumbers]
    errors: list[ErrorCount]
    rebalances: Rebalances
    populations: list[PopulationNumbers]
    brokers: list[BrokerNumbers]
    lookups: list[LookupNumbers]
    sent_late: SendingDelay
    offsets_partitions: OffsetsPartitions
    slowest_groups: list[SlowGroup]
    over_time: OverTime
    metrics: dict[str, Number | None]


class Unavailability(Section, frozen=True, kw_only=True):
    """A failure of an availability check; a key that does not apply is absent.

    Attributes:
        group: The group of the members.
        members: Names of some of the members.
        at_us: When it began.
        until_us: When it was over.
        what: What happened, as a sentence.
    """

    group: str | UnsetType = UNSET
    members: list[str] | UnsetType = UNSET
    at_us: int | UnsetType = UNSET
    until_us: int | UnsetType = UNSET
    what: str


class AvailabilityCheck(Section, frozen=True):
    """The result of an availability check.

    Attributes:
        name: Short name of a check that the cluster answered.
        check: What is checked.
        passed: Whether it passed.
        failures: How many outages, members or requests failed it.
    """

    name: str
    check: str
    passed: bool
    failures: int
    violations: list[Unavailability]


class Violation(Section, frozen=True):
    """A violation of a promise.

    Attributes:
        group: The group, if it concerns one.
        generation: The generation, if it concerns one.
        members: Names of the members.
        at_us: When it began.
        until_us: When it was over.
        what: What happened, as a sentence.
        events: The events around it, as in `events.parquet`.
    """

    group: str | None
    generation: int | None
    members: list[str]
    at_us: int
    until_us: int
    what: str
    events: list[dict[str, Any]]


class PromiseCheck(Section, frozen=True):
    """The result of checking a promise.

    Attributes:
        name: Its short name.
        promise: The promise.
        kept: Whether it was kept.
        broken: How often it was not.
    """

    name: str
    promise: str
    kept: bool
    broken: int
    violations: list[Violation]


class ExpectationCheck(Section, frozen=True):
    """An expectation, compared with its number.

    Attributes:
        expectation: What was expected; of events, that all were done.
        met: Whether it was so.
        actual: The number; null if there is none.
    """

    expectation: str
    met: bool
    actual: Number | None


class Verdict(Section, frozen=True):
    """The verdict on a replay.

    Attributes:
        passed: Whether all checks passed, all promises were kept, all expectations met.
    """

    passed: bool
    availability: list[AvailabilityCheck]
    promises: list[PromiseCheck]
    expectations: list[ExpectationCheck]


class Summary(Section, frozen=True, kw_only=True):
    """The summary of a run. In the file, the keys of `head` and `numbers` are beside the others.

    Attributes:
        directory: Where the run is.
        files: What is in it, by the name of the file.
    """

    head: Head
    numbers: Numbers
    verdict: Verdict
    directory: str = ""
    files: dict[str, str] = {}


def document_of(summary: Summary) -> dict[str, Any]:
    """Return the contents of `summary.json`."""
    results = msgspec.to_builtins(summary)
    return {"version": SUMMARY_VERSION, **results.pop("head"), **results.pop("numbers"), **results}


def summary_of(document: Mapping[str, Any]) -> Summary:
    """Return the summary with the contents of `summary.json`.

    Raises:
        ConfigError: A key is missing or its value is of the wrong type.
    """
    return _part(document, Summary, head=_part(document, Head), numbers=_part(document, Numbers))


def head_of(document: Mapping[str, Any], *, where: str = "") -> Head:
    """Return the head with the contents of `head.json`.

    Args:
        document: The contents.
        where: The file; errors begin with it.

    Raises:
        ConfigError: A key is missing or its value is of the wrong type.
    """
    return _part(document, Head, where=where)


def _part(document: Mapping[str, Any], kind: type[T], *, where: str = "", **others: Section) -> T:
    own = {name: document[name] for name in kind.__struct_fields__ if name in document}
    return convert(own | others, kind, where=where)
