"""Types for the contents of `summary.json`. Plain data; does not depend on Spark.

A field's name ends in its unit. The table of keys in `scenarios/runs.md` is generated from these docstrings.
"""

from collections.abc import Mapping
from typing import Any, Literal, TypeVar

import msgspec
from msgspec import UNSET, UnsetType

from fakebroker.validation import convert

T = TypeVar("T", bound="Section")

SUMMARY_VERSION = 4
"""Version of the schema of `summary.json`; incremented when a key is removed or its meaning changes."""

RUN_FORMAT = 1
"""Version of the files from which a summary is computed: `head.json`, `events.parquet` and `members.parquet`."""

Number = int | float
Series = list[float | None]
"""A value for each time slice; None for a slice without a value."""


PromiseOutcome = Literal["kept", "broken", "not exercised"]
VerdictOutcome = Literal["passed", "failed", "inconclusive"]

LOST_S = 2
"""Maximum time before a replay over TCP is killed whose events are lost, in seconds; see `EventStream`."""

ALL = "all"
"""The API, or the source, of the sum over all of them."""


DELAYED = "Most of this time is the delay of the replay itself, which sent requests late: its machine is too slow."
"""Shown with a latency if `RequestNumbers.is_delayed`."""

_LEAST_DELAY_MS = 5.0
"""Shorter delays of the replay are not worth a warning."""


def named(api: str, source: str) -> str:
    """Return API and source for reports; requests of members are named by their API only."""
    return f"{api} ({source})" if source == "load" else api


class Section(msgspec.Struct, frozen=True):
    """A JSON object in the summary."""


class ClusterSummary(Section, frozen=True):
    """The cluster of a replay.

    Attributes:
        bootstrap: Bootstrap servers; empty in memory.
        embedded: Whether the replay started its own fake cluster.
        partitions: Number of partitions of each topic.
        offsets_partitions: Number of partitions of `__consumer_offsets`.
        reachable: Whether a broker could be reached after the last member had stopped; null if the replay was killed
            before that.
        unreachable: Node ids of brokers that could be reached before the replay and not after it. Over TCP only.
    """

    bootstrap: str
    embedded: bool
    partitions: dict[str, int]
    offsets_partitions: int
    reachable: bool | None
    unreachable: list[int] = []


class SparkSummary(Section, frozen=True):
    """The Spark session of a replay.

    Attributes:
        version: Spark's version.
        master: Spark's master URL.
        tasks: Number of tasks among which the groups were distributed.
    """

    version: str
    master: str
    tasks: int


class Head(Section, frozen=True, kw_only=True):
    """Settings of a run that cannot be computed from its events: the contents of `head.json`.

    Attributes:
        workload: The workload, including defaults; `file` is the path of its file.
        seed: Seed of all random choices.
        started: Time at which the replay started, ISO 8601.
        complete: False if the replay ended early; all numbers are for the time until then.
        transport: `tcp` or `memory`.
        record: `all`: one row per request; `changes`: successive successful heartbeats of a
            member are folded into one row.
        scale: Factor of `--scale`, 1 without it; `workload` is the scaled one.
        lanes: Connections per broker that the members of a task shared; null if each member had its own.
        timeline: An event of the workload: `at_s`, `do`, its arguments, whether it was `done`, and if not, `why`.
        members: Number of members.
        format: Version of `head.json`, `events.parquet` and `members.parquet`.
    """

    workload: dict[str, Any]
    seed: int
    started: str
    complete: bool
    transport: str
    record: str
    scale: float = 1.0
    lanes: int | None = None
    cluster: ClusterSummary
    spark: SparkSummary
    timeline: list[dict[str, Any]]
    members: int = 0
    format: int = RUN_FORMAT

    @property
    def was_killed(self) -> bool:
        """Whether the replay could not write its last events: it was killed, or a Spark task failed."""
        return not self.complete and self.cluster.reachable is None

    def early_end(self, span_s: float) -> str:
        """Return what to know about the numbers of a replay that ended early, as sentences; empty for a complete one.

        Args:
            span_s: As in `Numbers`.
        """
        if self.complete:
            return ""
        if not self.was_killed:
            return "The replay was interrupted: the numbers cover the time until then."
        if self.transport == "memory":
            return "The run ended early: killed, or failed. Groups whose simulation was not over by then are missing."
        about = f"killed, or failed, after about {span_s:.0f} s"
        return f"The run ended early: {about}; up to {LOST_S} s of events before that may be missing."


class RequestNumbers(Section, frozen=True):
    """The requests of one API, or of all APIs, from one source or both.

    Attributes:
        api: The API; `all` for all APIs.
        source: `members`, which includes the look-ups of their coordinators, or `load` for requests of `[[load]]`
            tables; `all` for both.
        requests: Number of requests sent.
        requests_per_s: `requests` divided by `span_s`, or by the length of the phase.
        p50_ms: Median latency, from when a request was due until its response was read; null without responses. In
            `total`, latencies leave out JoinGroup and SyncGroup: a coordinator parks them until its group is ready.
        p99_ms: 99th percentile of the latency.
        p99_9_ms: 99.9th percentile of the latency.
        max_ms: Maximum latency.
        unexpected_errors: Number of responses with an error other than REBALANCE_IN_PROGRESS, MEMBER_ID_REQUIRED and
            STALE_MEMBER_EPOCH; requests without a response are not among them.
        lost: Number of requests whose connection was refused, or closed before the response.
        unanswered: Number of requests without a response for as long as the client waits: its session timeout; for
            JoinGroup its rebalance timeout plus 5 s; for SyncGroup the shorter of the two; for LeaveGroup 5 s; for
            loads and look-ups 30 s.
        cut_off: Number of requests that were pending when the replay ended, when it was interrupted, or when a script
            stopped its member; they are neither `lost` nor `unanswered`.
        undelayed_p50_ms: Median latency without the delay of the replay itself (`sent_late`). The time for which a
            member waits for its coordinator, or for an earlier response, is no such delay.
        undelayed_p99_ms: 99th percentile of this latency.
        undelayed_p99_9_ms: 99.9th percentile of this latency.
        undelayed_max_ms: Maximum of this latency.
        known_latencies: Number of requests whose latency is known. Of folded heartbeats (`record: changes`), only the
            longest latency is. The percentiles estimate the others, which are at most as long, from the latencies of
            the same API, source and broker. If few latencies are known, the median may be too high. If some members
            always get slow responses, the other percentiles may be too low. `max_ms` is exact. For
            the slowest of folded heartbeats, the sending time is not recorded: it counts as sent when it was due.
    """

    api: str
    source: str
    requests: int
    requests_per_s: float
    p50_ms: float | None
    p99_ms: float | None
    p99_9_ms: float | None
    max_ms: float | None
    unexpected_errors: int
    lost: int
    unanswered: int
    cut_off: int
    undelayed_p50_ms: float | None = None
    undelayed_p99_ms: float | None = None
    undelayed_p99_9_ms: float | None = None
    undelayed_max_ms: float | None = None
    known_latencies: int | None = None

    @property
    def is_delayed(self) -> bool:
        """Whether most of the 99th percentile of the latency is the delay of the replay itself."""
        if self.p99_ms is None or self.undelayed_p99_ms is None:
            return False
        return self.p99_ms - self.undelayed_p99_ms > max(self.undelayed_p99_ms, _LEAST_DELAY_MS)

    @property
    def name(self) -> str:
        """API and source for reports."""
        return named(self.api, self.source)


class Phase(Section, frozen=True, kw_only=True):
    """The requests sent in a part of the replay.

    Attributes:
        from_s: Beginning of the phase, in seconds from the start of the replay.
        until_s: End of the phase, in seconds from the start of the replay.
        never_parked: The requests of all APIs except JoinGroup and SyncGroup.
        parked: The JoinGroups and SyncGroups, which coordinators park until a group is ready.
        apis: The requests by API and source.
    """

    from_s: float
    until_s: float
    never_parked: RequestNumbers
    parked: RequestNumbers
    apis: list[RequestNumbers]


class ErrorCount(Section, frozen=True):
    """Responses of one API to one source with one error.

    Attributes:
        name: Kafka's name of the error; the code if Kafka has no name for it.
        code: Error code.
        api: The API.
        source: As in `apis`.
        requests: Number of requests whose response had the error.
        ordinary: True for the errors of normal operation, REBALANCE_IN_PROGRESS, MEMBER_ID_REQUIRED and
            STALE_MEMBER_EPOCH.
    """

    name: str
    code: int
    api: str
    source: str
    requests: int
    ordinary: bool


class DurationCount(Section, frozen=True):
    """One interval of the distribution of rebalance durations.

    Attributes:
        from_ms: Lower bound of the interval; the upper bound is the next number in the series 1, 2, 5, 10, 20, 50, 100.
        count: Number of rebalances in the interval.
    """

    from_ms: float
    count: int


class Rebalances(Section, frozen=True):
    """The rebalances of all groups.

    Attributes:
        generations: Number of pairs of group and generation that at least one member joined; with the consumer
            protocol, of group and group epoch.
        count: Number of `generations` in which at least one member got an assignment. Such a rebalance lasts from the
            first JoinGroup sent until every member that joined has received its first SyncGroup response; with the
            consumer protocol, from the first heartbeat answered with the epoch until the last member has reached the
            epoch, or has got its last partition in it.
        p50_ms: Median duration; null without rebalances.
        p99_ms: 99th percentile of the duration.
        max_ms: Maximum duration.
    """

    generations: int
    count: int
    p50_ms: float | None
    p99_ms: float | None
    max_ms: float | None
    distribution: list[DurationCount]


class TransactionNumbers(Section, frozen=True):
    """The transactions of all producers.

    Attributes:
        begun: Number of transactions in which at least one request was sent.
        committed: Number of transactions whose commit was acknowledged.
        aborted: Number of transactions whose abort by their producer was acknowledged.
        not_ended: Number of the other transactions: their producer stopped before, or a later one ended them.
        p50_ms: Median time from the beginning of a committed transaction until its commit was acknowledged; null
            without committed transactions.
        p99_ms: 99th percentile of this time.
        max_ms: Maximum of this time.
        visible_p50_ms: Median time from the beginning of a committed transaction until the reader of committed records
            got its last batch; it polls every 200 ms.
        visible_max_ms: Maximum of this time.
    """

    begun: int
    committed: int
    aborted: int
    not_ended: int
    p50_ms: float | None
    p99_ms: float | None
    max_ms: float | None
    visible_p50_ms: float | None
    visible_max_ms: float | None


class PopulationNumbers(Section, frozen=True):
    """The groups of one `[[groups]]` table.

    Attributes:
        population: Name of the population.
        groups: Number of groups.
        members: Number of members.
        members_joined: Number of members that got an assignment at least once.
        generations: As in `rebalances`.
        unassigned_member_s: Sum over all members of the time that they were running without an assignment: from a
            start, a JoinGroup with an eager assignor, or an error that ends the membership, until the next response
            with an assignment, which may be empty.
        longest_rebalance_ms: Duration of the longest rebalance; null without rebalances.
        unassigned_partition_s: Sum over all partitions of the time that no member had them while their group had
            members.
    """

    population: str
    groups: int
    members: int
    members_joined: int
    generations: int
    unassigned_member_s: float
    longest_rebalance_ms: float | None
    unassigned_partition_s: float = 0.0


class BrokerNumbers(Section, frozen=True):
    """The requests sent to one broker.

    Attributes:
        broker: Node id; -1 for requests to a bootstrap address, whose broker is unknown.
        requests: Number of requests sent to the broker.
        share: Share of all requests.
        groups: Number of groups whose members sent requests to the broker.
    """

    broker: int
    requests: int
    share: float
    groups: int


class LookupNumbers(Section, frozen=True):
    """Requests of an API that may name several groups.

    Attributes:
        api: FindCoordinator, OffsetFetch or DescribeGroups.
        source: As in `apis`.
        requests: Number of requests sent.
        keys: Number of groups named in all requests together.
        most_in_one_request: Maximum number of groups named in one request.
    """

    api: str
    source: str
    requests: int
    keys: int
    most_in_one_request: int

    @property
    def name(self) -> str:
        """API and source for reports."""
        return named(self.api, self.source)


class SendingDelay(Section, frozen=True):
    """How late the replay itself sent requests; this delay is included in their latencies.

    It begins when a request is due and its member can send it: the member has a coordinator, and the response to its
    request before.

    Attributes:
        p50_ms: Median delay.
        p99_ms: 99th percentile of the delay.
        max_ms: Maximum delay.
    """

    p50_ms: float | None
    p99_ms: float | None
    max_ms: float | None = None


class OffsetsPartition(Section, frozen=True):
    """A partition of `__consumer_offsets`.

    Attributes:
        partition: Number of a partition of `__consumer_offsets` that has groups.
        broker: Node id of the last coordinator of the group with the most requests; null if none is known.
        groups: Number of groups on the partition.
        requests: Number of requests about these groups.
    """

    partition: int
    broker: int | None
    groups: int
    requests: int


class OffsetsPartitions(Section, frozen=True):
    """How groups and requests are distributed over the partitions of `__consumer_offsets`.

    Attributes:
        count: Number of partitions of `__consumer_offsets`.
        groups_skew: Maximum number of groups on a partition, divided by the mean; null without groups.
        groups_skew_by_chance: Range in which `groups_skew` is in 9 of 10 runs if each of these groups is on a random
            partition: two numbers; empty without groups.
        requests_skew: Maximum number of requests about groups of a partition, divided by the mean.
        requests_skew_by_chance: The same range for `requests_skew`.
    """

    count: int
    groups_skew: float | None
    groups_skew_by_chance: list[float]
    requests_skew: float | None
    requests_skew_by_chance: list[float]
    partitions: list[OffsetsPartition]


class SlowGroup(Section, frozen=True):
    """A group with a long rebalance.

    Attributes:
        group: Name of one of the ten groups with the longest rebalances.
        population: Name of its population.
        members: Number of its members.
        generations: As in `rebalances`.
        longest_rebalance_ms: Duration of its longest rebalance.
        unassigned_member_s: As in `populations`.
    """

    group: str
    population: str | None
    members: int
    generations: int
    longest_rebalance_ms: float
    unassigned_member_s: float


class RequestsOverTime(Section, frozen=True):
    """The requests of an API from one source by slice.

    Attributes:
        api: The API.
        source: As in `apis`.
        requests_per_s: Rate of requests of the API sent in the slice.
        p50_ms: Median of their latency.
        p99_ms: 99th percentile of their latency.
    """

    api: str
    source: str
    requests_per_s: list[float]
    p50_ms: Series
    p99_ms: Series

    @property
    def name(self) -> str:
        """API and source for reports."""
        return named(self.api, self.source)


class ErrorsOverTime(Section, frozen=True):
    """The responses of an API to one source with an error, by slice.

    Attributes:
        name: As in `errors`.
        api: The API.
        source: As in `apis`.
        answers: Number of requests sent in the slice whose response had the error.
    """

    name: str
    api: str
    source: str
    answers: list[int]


class GroupsOverTime(Section, frozen=True):
    """The number of groups in each state, by slice.

    Attributes:
        stable: Average number of groups without a rebalance, in which at least one member is assigned.
        rebalancing: Average number of groups with a rebalance in progress, as in `rebalances`, or in which all members
            wait for an assignment.
        unknown: Average number of groups without a rebalance, in which no member is assigned and at least one is
            unknown.
        empty: Average number of groups without members.
    """

    stable: list[float]
    rebalancing: list[float]
    unknown: list[float]
    empty: list[float]


class MembersOverTime(Section, frozen=True):
    """The number of members in each state, by slice.

    Attributes:
        assigned: Average number of members with an assignment, which may be empty.
        waiting: Average number of members that are running without an assignment.
        unknown: Average number of members with an assignment that have got no response for their session timeout: the
            coordinator may have removed them.
        gone: Average number of members that are not running.
    """

    assigned: list[float]
    waiting: list[float]
    unknown: list[float]
    gone: list[float]


class RebalancesOverTime(Section, frozen=True):
    """Rebalances by the slice in which they began.

    Attributes:
        count: Number of rebalances that began in the slice.
        p50_ms: Median of their duration.
        max_ms: Maximum of their duration.
    """

    count: list[int]
    p50_ms: Series
    max_ms: Series


class TransactionsOverTime(Section, frozen=True):
    """Transactions by the slice in which they began.

    Attributes:
        committed: As in `transactions`.
        aborted: As in `transactions`.
        not_ended: As in `transactions`.
        p50_ms: As in `transactions`.
        max_ms: As in `transactions`.
        visible_max_ms: As in `transactions`.
    """

    committed: list[int]
    aborted: list[int]
    not_ended: list[int]
    p50_ms: Series
    max_ms: Series
    visible_max_ms: Series


class PopulationOverTime(Section, frozen=True):
    """A population by slice.

    Attributes:
        population: Name of the population.
    """

    population: str
    groups: GroupsOverTime
    members: MembersOverTime
    rebalances: RebalancesOverTime


class OverTime(Section, frozen=True):
    """Numbers by time slice.

    Attributes:
        slice_s: Length of a time slice; each list in `over_time` has a value for each slice.
        slices: Number of slices, at most 120.
        transactions: Null without transactions.
        never_parked: The requests of all APIs except JoinGroup and SyncGroup.
        parked: The JoinGroups and SyncGroups.
        missing: Number of requests sent in the slice that were lost or unanswered.
    """

    slice_s: float
    slices: int
    apis: list[RequestsOverTime]
    errors: list[ErrorsOverTime]
    groups: GroupsOverTime
    members: MembersOverTime
    rebalances: RebalancesOverTime
    populations: list[PopulationOverTime]
    transactions: TransactionsOverTime | None = None
    never_parked: RequestsOverTime | None = None
    parked: RequestsOverTime | None = None
    missing: list[int] = []


class Numbers(Section, frozen=True, kw_only=True):
    """The numbers of a replay, computed from its events.

    Attributes:
        groups: Number of groups.
        span_s: Time from when the first request was due until the last response.
        began_us: Start of the replay: second 0 of `over_time` and `timeline`.
        measure_from_s: Beginning of the steady state: the beginning of the first slice (`over_time`) at or after
            `measure_from_s` of the workload, by default after all members have joined for the first time. Null if there
            is no such slice.
        total: All requests.
        never_parked: The requests of all APIs except JoinGroup and SyncGroup.
        parked: The JoinGroups and SyncGroups, which coordinators park until a group is ready.
        startup: The requests sent before the steady state; null if it begins at once.
        steady: The requests sent in the steady state; null if there is none.
        apis: The requests by API and source.
        subtotals: The requests by source. Also the requests by API, for APIs with requests from both sources.
        broker_skew_by_chance: Minimum and maximum of `broker_skew` (`metrics`) in 9 of 10 runs if each group were on a
            random broker.
        metrics: The metrics for `[[expect]]` tables, by name.
        transactions: Null without transactions.
    """

    groups: int
    span_s: float
    began_us: int
    measure_from_s: float | None
    total: RequestNumbers
    never_parked: RequestNumbers
    parked: RequestNumbers
    startup: Phase | None
    steady: Phase | None
    apis: list[RequestNumbers]
    subtotals: list[RequestNumbers]
    errors: list[ErrorCount]
    rebalances: Rebalances
    populations: list[PopulationNumbers]
    brokers: list[BrokerNumbers]
    lookups: list[LookupNumbers]
    sent_late: SendingDelay
    offsets_partitions: OffsetsPartitions
    slowest_groups: list[SlowGroup]
    over_time: OverTime
    broker_skew_by_chance: list[float]
    metrics: dict[str, Number | None]
    transactions: TransactionNumbers | None = None

    @property
    def uses_consumer_protocol(self) -> bool:
        """Whether members have used the consumer protocol (KIP-848)."""
        return any(row.api == "ConsumerGroupHeartbeat" for row in self.apis)


class Unavailability(Section, frozen=True, kw_only=True):
    """A failure of an availability check; keys that do not apply are absent.

    Attributes:
        group: Group of the members.
        members: Names of up to five of the members.
        at_us: Start of the failure.
        until_us: End of the failure.
        what: Description for reports.
    """

    group: str | UnsetType = UNSET
    members: list[str] | UnsetType = UNSET
    at_us: int | UnsetType = UNSET
    until_us: int | UnsetType = UNSET
    what: str


class AvailabilityCheck(Section, frozen=True):
    """The result of an availability check.

    Attributes:
        name: Name of the check.
        check: What the check requires, as a sentence.
        outcome: `failed` if the cluster did not do what the check requires; `inconclusive` if the replay could not
            observe it.
        failures: Number of outages, brokers, groups, members or requests that failed the check.
        violations: The first of them.
        doubts: What the replay could not observe.
        observed: What was seen, in one phrase with numbers; `not known` if nothing could be seen.
    """

    name: str
    check: str
    outcome: VerdictOutcome
    failures: int
    violations: list[Unavailability]
    doubts: list[Unavailability] = []
    observed: str = ""

    @property
    def passed(self) -> bool:
        """Whether the check passed."""
        return self.outcome == "passed"


class Violation(Section, frozen=True):
    """A violation of a promise.

    Attributes:
        group: The group, if the violation concerns one.
        generation: The generation, if the violation concerns one.
        members: Names of the members.
        at_us: Start of the violation.
        until_us: End of the violation.
        what: Description for reports.
        events: The events that show it, as in `events.parquet`.
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
        name: Name of the promise, as in `[promises]`.
        promise: The promise, as a sentence.
        outcome: `broken` if there was a violation; `kept` if there was none in at least one case; `not exercised` if
            there was no case.
        cases: Number of cases: situations in which a violation would have been seen.
        case: What is counted as a case.
        required: Whether the workload requires the promise: then the verdict fails if it is not exercised.
        broken: Number of violations.
        violations: The first violations, at most five; all are in `violations.parquet`.
    """

    name: str
    promise: str
    outcome: PromiseOutcome
    cases: int
    case: str
    required: bool
    broken: int
    violations: list[Violation]


class ExpectationCheck(Section, frozen=True):
    """The result of an expectation.

    Attributes:
        expectation: The comparison; `events_done == N` is implicit: all N events of the workload were done.
        met: Whether the comparison holds.
        actual: The actual value; null if there is none.
        doubt: Why an expectation that is not met says nothing about the cluster, because the replay itself was too
            late; empty if it does.
    """

    expectation: str
    met: bool
    actual: Number | None
    doubt: str = ""


class Verdict(Section, frozen=True):
    """The verdict on a replay.

    Attributes:
        outcome: `passed` if all availability checks passed, no promise was broken and all expectations were met;
            `failed` if one of these was shown to be wrong; `inconclusive` if the replay could not observe enough to say
            either.
        reasons: Why the verdict is not `passed`, one sentence each.
    """

    outcome: VerdictOutcome
    reasons: list[str]
    availability: list[AvailabilityCheck]
    promises: list[PromiseCheck]
    expectations: list[ExpectationCheck]


class Summary(Section, frozen=True, kw_only=True):
    """The summary of a run. In the file, the keys of `head` and `numbers` are at the top level.

    Attributes:
        directory: Directory of the run.
        files: Descriptions of the files in the directory, by file name.
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
    """Convert the contents of `summary.json`.

    Raises:
        ConfigError: A key is missing or its value is of the wrong type.
    """
    return _part(document, Summary, head=_part(document, Head), numbers=_part(document, Numbers))


def head_of(document: Mapping[str, Any], *, where: str = "") -> Head:
    """Convert the contents of `head.json`.

    Args:
        document: The contents.
        where: Path of the file, for errors.

    Raises:
        ConfigError: A key is missing or its value is of the wrong type.
    """
    return _part(document, Head, where=where)


def _part(document: Mapping[str, Any], kind: type[T], *, where: str = "", **others: Section) -> T:
    own = {name: document[name] for name in kind.__struct_fields__ if name in document}
    return convert(own | others, kind, where=where)
