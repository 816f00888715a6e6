"""The table `[[groups]]` of a scenario: similar groups, and the behavior of their members. Plain data.

Times are seconds from the start of the run.
"""

from collections.abc import Iterator
from typing import Annotated, Literal

from msgspec import Meta

from fakebroker.errors import ConfigError
from fakebroker.replay.workload.behavior import Behavior, Crash, Restart
from fakebroker.replay.workload.population import Arrival, Name, Size, Sizes, Timeout
from fakebroker.replay.workload.table import Span, Table, check_span, ends
from fakebroker.validation import Positive, PositiveSeconds, Rate, Seconds, Share

_MOST_GROUPS = 100_000_000


class Leave(Behavior, frozen=True):
    """Members leave their group and stop.

    Attributes:
        share: Share of the members.
        at_s: When a member stops.
        return_after_s: Time until the member starts again; if not given, it stays away.
    """

    return_after_s: Span | None = None


class Vanish(Behavior, frozen=True):
    """The hosts of members are gone: the members stop without leaving, and their connections are not closed.

    Attributes:
        share: Share of the members.
        at_s: When a host is gone.
        return_after_s: Time until the member starts again; if not given, it stays away.
    """

    return_after_s: Span | None = None


class Cut(Behavior, frozen=True):
    """The connections of members break, once for each of these members.

    Attributes:
        share: Share of the members.
        at_s: When they break.
    """


class Slow(Behavior, frozen=True):
    """The messages of members take longer for some time, in both directions.

    Attributes:
        share: Share of the members.
        at_s: Start of the slow period.
        for_s: Duration of the slow period.
        extra_ms: Time that each message takes longer, in one direction.
    """

    for_s: Span
    extra_ms: Rate


class _Repeated(Table, frozen=True, kw_only=True):
    """Something that happens to members again and again, at random times: a Poisson process for each member."""

    share: Share = 1.0
    every_s: PositiveSeconds
    from_s: Seconds = 0.0
    until_s: Seconds | None = None

    def broken_rules(self) -> Iterator[ConfigError]:
        if self.until_s is not None and self.until_s <= self.from_s:
            yield ConfigError.of("until_s", self.until_s, f"a number > from_s ({self.from_s:g})")


class Pauses(_Repeated, frozen=True, kw_only=True):
    """Processes of members are suspended, as in a garbage collection.

    Durations are log-normal: the logarithm of a duration has a normal distribution. Most pauses are short, a few are
    many times longer, and all are positive, as pauses of garbage collections are. With `median_ms` m and `sigma` s,
    84 % of the pauses are shorter than m * e^s, and 97.7 % shorter than m * e^2s.

    Attributes:
        share: Share of the members.
        every_s: Mean time between the pauses of a member.
        from_s: When the pauses begin.
        until_s: When the last pause may begin; if not given, at the end of the run.
        median_ms: Median duration.
        sigma: Standard deviation of the natural logarithm of the duration.
        max_ms: Longer pauses last this long.
    """

    median_ms: Rate
    sigma: Seconds = 1.0
    max_ms: Rate = 600_000


class Losses(_Repeated, frozen=True, kw_only=True):
    """Messages are lost: the connection of a member breaks while one is on the way.

    Attributes:
        share: Share of the members.
        every_s: Mean time between the losses of a member.
        from_s: When the losses begin.
        until_s: When the last message is lost; if not given, at the end of the run.
        of: Whether `requests` to brokers are lost, or `responses` and other messages from brokers; or `both`, with
            equal probability.
    """

    of: Literal["requests", "responses", "both"] = "both"


class Groups(Table, frozen=True):
    """A population: similar groups whose members behave similarly. A scenario may have several.

    Attributes:
        name: Name of the population; the groups are NAME-0, NAME-1 and so on.
        count: Number of groups.
        members: Number of members of each group, or its distribution.
        topics: Topics that the members subscribe to; all topics if not given.
        assignor: Strategy of assignment.
        session_timeout_ms: Time without a sign of life after which a member is removed from its group.
        rebalance_timeout_ms: Time that a member may take to rejoin during a rebalance.
        heartbeat_interval_ms: Interval between heartbeats, of members or of coordinators.
        commit_interval_ms: Interval between commits; 0 for members that commit only when they stop consuming.
        retry_backoff_ms: Time before a failed request is repeated.
        arrival: Start times of the members.
        restart: A rolling deploy: the members of each group leave and start again one after the other.
        leave: Members that leave, and may return.
        crash: Members whose processes end, and may start again.
        vanish: Members whose hosts are gone.
        cut: Members whose connections break.
        slow: Members whose messages are slow for some time.
        pause: Members that are suspended again and again.
        lose: Members that lose messages again and again.
    """

    name: Name = "group"
    count: Annotated[int, Meta(ge=1, le=_MOST_GROUPS)] = 1
    members: Size | Sizes = 1
    topics: tuple[str, ...] = ()
    assignor: Literal["range", "roundrobin"] = "range"
    session_timeout_ms: Timeout = 45_000
    rebalance_timeout_ms: Timeout = 300_000
    heartbeat_interval_ms: Timeout = 3_000
    commit_interval_ms: Annotated[int, Meta(ge=0, le=2**31 - 1)] = 5_000
    retry_backoff_ms: Positive = 100
    arrival: Arrival = Arrival()
    restart: Restart | None = None
    leave: Leave | None = None
    crash: Crash | None = None
    vanish: Vanish | None = None
    cut: Cut | None = None
    slow: Slow | None = None
    pause: Pauses | None = None
    lose: Losses | None = None

    def broken_rules(self) -> Iterator[ConfigError]:
        if self.heartbeat_interval_ms >= self.session_timeout_ms:
            expected = f"less than session_timeout_ms ({self.session_timeout_ms})"
            yield ConfigError.of("heartbeat_interval_ms", self.heartbeat_interval_ms, expected)
        if self.restart is not None:
            yield from check_span("restart.at_s", self.restart.at_s)

    @property
    def member_count(self) -> float:
        """The number of members of all groups; the expected value if sizes are random."""
        if isinstance(self.members, int):
            return float(self.members * self.count)
        weights = self.members.weights
        return sum(size * weight for size, weight in weights.items()) / sum(weights.values()) * self.count

    @property
    def max_members(self) -> int:
        """The maximum number of members of a group."""
        return self.members if isinstance(self.members, int) else max(self.members.weights)

    def times_s(self) -> Iterator[tuple[str, float]]:
        """Yield the keys with times, and the latest of each of these times, in seconds."""
        yield "arrival", self.arrival.at_s + self.arrival.spread_s(self.member_count, self.count)
        if self.restart is not None:
            yield "restart", ends(self.restart.at_s)[1]
        for key in ("leave", "crash", "vanish", "cut", "slow"):
            behavior = getattr(self, key)
            if behavior is not None:
                yield f"{key}.at_s", ends(behavior.at_s)[1]
        for key in ("pause", "lose"):
            repeated = getattr(self, key)
            if repeated is not None:
                yield f"{key}.from_s", repeated.from_s
