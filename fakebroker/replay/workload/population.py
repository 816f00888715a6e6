"""The table `[[groups]]`: a population of similar groups, and the behavior of their members. Plain data."""

from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from fakebroker.errors import ConfigError, one_of
from fakebroker.replay.options import GroupProtocol
from fakebroker.replay.workload.behavior import Behavior, Crash, Grow, Leave, Pause, Restart, Slow, Zombie
from fakebroker.replay.workload.table import MOST_MEMBERS, Span, Table, check_span
from fakebroker.replay.workload.transaction import Transaction
from fakebroker.validation import Count, Positive, PositiveSeconds, Rate, Seconds, Share

_COLUMN = "group"
_WITHOUT_FILE = "none with from_file, which contains the complete names"
_MOST_GROUPS = 100_000_000

Name = Annotated[str, Meta(min_length=1)]
Timeout = Annotated[int, Meta(ge=1, le=2**31 - 1)]
Size = Annotated[int, Meta(ge=1, le=MOST_MEMBERS)]
Jitter = Annotated[float, Meta(ge=0, lt=1)]

MIGRATION_STEP_S = 1.0
"""Time between the members of a group that migrate, and until each starts again, in seconds."""


def _check_single(table: Table, keys: Sequence[str], *, is_required: bool) -> Iterator[ConfigError]:
    """Yield a mistake for each given key after the first one; the keys exclude each other."""
    given = [key for key in keys if getattr(table, key) is not None]
    if is_required and not given:
        yield ConfigError.missing(keys[0], one_of(keys))
    for key in given[1:]:
        value = getattr(table, key)
        toml_value = list(value) if isinstance(value, tuple) else value
        yield ConfigError.of(key, toml_value, f"none with {given[0]}: only {one_of(keys)}")


class Sizes(Table, frozen=True):
    """The distribution of group sizes: one of `uniform`, `zipf` and `histogram`.

    Attributes:
        uniform: Minimum and maximum size; all sizes in between are equally likely.
        zipf: Exponent s: the weight of size k is k^-s.
        max: With `zipf`, the maximum size.
        histogram: Weights by size; sizes are strings: `{ "1" = 90, "8" = 10 }`.
    """

    uniform: tuple[Size, Size] | None = None
    zipf: Rate | None = None
    max: Size | None = None
    histogram: dict[str, Seconds] | None = None

    def broken_rules(self) -> Iterator[ConfigError]:
        yield from _check_single(self, ("uniform", "zipf", "histogram"), is_required=True)
        if self.uniform and self.uniform[0] > self.uniform[1]:
            yield ConfigError.of("uniform", list(self.uniform), "[minimum, maximum]")
        if self.zipf is None and self.max is not None:
            yield ConfigError.of("max", self.max, "none without zipf")
        if self.zipf is not None and self.max is None:
            yield ConfigError.missing("max", "an integer >= 1 with zipf")
        for size in self.histogram or {}:
            if not (size.isascii() and size.isdigit() and 1 <= int(size) <= MOST_MEMBERS):
                yield ConfigError.of("histogram", size, f"sizes from 1 to {MOST_MEMBERS}")
        if self.histogram is not None and not sum(self.histogram.values()):
            yield ConfigError.of("histogram", self.histogram, "at least one weight > 0")

    @property
    def weights(self) -> dict[int, float]:
        """The weight of each size; the sum of weights need not be 1."""
        if self.uniform:
            return dict.fromkeys(range(self.uniform[0], self.uniform[1] + 1), 1.0)
        if self.zipf and self.max:
            return {size: size**-self.zipf for size in range(1, self.max + 1)}
        return {int(size): weight for size, weight in (self.histogram or {}).items() if weight}

    @property
    def bounds(self) -> list[float]:
        """The cumulative distribution of the sizes, from 0 to 1, without the last value, which is 1."""
        *ends, total = accumulate(self.weights.values())
        return [end / total for end in ends]


class Arrival(Table, frozen=True):
    """The start times of members: all at `at_s`, or from then on by one of `ramp_s`, `poisson_per_s` and `bursts`.

    Attributes:
        at_s: Earliest start.
        ramp_s: Starts are uniformly distributed over this duration.
        poisson_per_s: Starts are a Poisson process with this average rate per second.
        bursts: Number of bursts; each member starts in one of them.
        every_s: With `bursts`, the interval between bursts.
        by: Whether each `member` starts by itself, or each `group` with all its members at once.
    """

    at_s: Seconds = 0.0
    ramp_s: PositiveSeconds | None = None
    poisson_per_s: Rate | None = None
    bursts: Positive | None = None
    every_s: PositiveSeconds | None = None
    by: Literal["member", "group"] = "member"

    def broken_rules(self) -> Iterator[ConfigError]:
        yield from _check_single(self, ("ramp_s", "poisson_per_s", "bursts"), is_required=False)
        if self.bursts is None and self.every_s is not None:
            yield ConfigError.of("every_s", self.every_s, "none without bursts")
        if self.bursts is not None and self.every_s is None:
            yield ConfigError.missing("every_s", "a number > 0 with bursts")

    def spread_s(self, members: float, groups: int) -> float:
        """Return the seconds from the first start to the last.

        Args:
            members: Average number of members of the population.
            groups: Number of groups.
        """
        if self.poisson_per_s:
            return (members if self.by == "member" else groups) / self.poisson_per_s
        if self.bursts and self.every_s:
            return (self.bursts - 1) * self.every_s
        return self.ramp_s or 0.0


class Groups(Table, frozen=True):
    """A population: similar groups whose members behave similarly. A workload may have several.

    Attributes:
        name: Name of the population, for reports, `[[load]]` and `[[expect]]`.
        pattern: Pattern of the groups' names; `{}` is replaced by the number of the group, from 0 and with leading
            zeros. If not given, `NAME-{}`.
        count: Number of groups, 1 if not given. With `from_file`, the maximum number of names to use, all if not
            given.
        from_file: Parquet or CSV file with the groups' names, used instead of `pattern`; the path is relative to the
            workload file.
        from_column: Column of the file with the names.
        hot_partitions: Partitions of `__consumer_offsets` that are to have more groups than others. The names of their
            groups have a second number, chosen so that the name maps to one of these partitions.
        hot_share: Share of the groups that are on hot partitions.
        members: Number of members of each group, or its distribution.
        topics: Topics that the members subscribe to; all topics of the workload if not given.
        protocol: The consumer's `group.protocol`. Members of the protocol `consumer` (KIP-848) have no assignor,
            session timeout and heartbeat interval of their own: the brokers have them.
        migrate_at_s: Time of a rolling migration: the first member of each group leaves then, the others follow at
            intervals of one second, ordered by number, and each starts again one second later with the other protocol.
        assignor: Partition assignor, as in the consumer's `partition.assignment.strategy`.
        session_timeout_ms: The consumer's `session.timeout.ms`: a member without heartbeats for this time is removed
            from its group.
        rebalance_timeout_ms: The consumer's `max.poll.interval.ms`: time that a member may take to rejoin during a
            rebalance.
        timeout_jitter: Maximum relative deviation of a member's session and rebalance timeouts.
        heartbeat_interval_ms: Interval between heartbeats.
        commit_interval_ms: Interval between commits, or between transactions with `transactional`; 0 for members that
            never commit.
        jitter: Maximum relative deviation of a member's heartbeat and commit intervals.
        consume_per_s: Records consumed per second from each assigned partition; determines the committed offsets. No
            effect with `transactional`.
        transactional: Whether the members consume, transform and produce in transactions, as `transaction` describes.
        transaction: The transactions of each member.
        static: Share of the members that are static, with a `group.instance.id` (KIP-345).
        arrival: Start times of the members.
        leave: Members that leave, and may return.
        crash: Members that stop without leaving, and may return.
        pause: Members that are suspended for some time.
        slow: Members that stop polling for some time.
        zombie: Members that keep sending after their session has expired.
        restart: A rolling restart of all members.
        grow: Additional members that join later.
    """

    name: Name = "group"
    pattern: Name | None = None
    count: Annotated[int, Meta(ge=1, le=_MOST_GROUPS)] | None = None
    from_file: str | None = None
    from_column: str = _COLUMN
    hot_partitions: tuple[Count, ...] = ()
    hot_share: Share = 1.0
    members: Size | Sizes = 1
    topics: tuple[str, ...] = ()
    protocol: GroupProtocol = "classic"
    migrate_at_s: Span | None = None
    assignor: Literal["range", "roundrobin", "sticky", "cooperative-sticky"] = "range"
    session_timeout_ms: Timeout = 45_000
    rebalance_timeout_ms: Timeout = 300_000
    timeout_jitter: Jitter = 0.0
    heartbeat_interval_ms: Timeout = 3_000
    commit_interval_ms: Annotated[int, Meta(ge=0, le=2**31 - 1)] = 5_000
    jitter: Jitter = 0.1
    consume_per_s: Seconds = 10.0
    transactional: bool = False
    transaction: Transaction | None = None
    static: Share = 0.0
    arrival: Arrival = Arrival()
    leave: Leave | None = None
    crash: Crash | None = None
    pause: Pause | None = None
    slow: Slow | None = None
    zombie: Zombie | None = None
    restart: Restart | None = None
    grow: Grow | None = None

    def broken_rules(self) -> Iterator[ConfigError]:
        numbers = self.name_pattern.count("{}")
        if self.from_file is None and (numbers > 1 or (numbers == 0 and self.group_count > 1)):
            yield ConfigError.of("pattern", self.name_pattern, "exactly one {}, for the number of the group")
        if self.from_file is not None and self.pattern is not None:
            yield ConfigError.of("pattern", self.pattern, _WITHOUT_FILE)
        if self.from_file is not None and self.hot_partitions:
            yield ConfigError.of("hot_partitions", list(self.hot_partitions), _WITHOUT_FILE)
        if self.from_file is None and self.from_column != _COLUMN:
            yield ConfigError.of("from_column", self.from_column, "no column without from_file")
        if self.hot_share != 1 and not self.hot_partitions:
            yield ConfigError.of("hot_share", self.hot_share, "no share without hot_partitions")
        shares = {name: behavior.share for name, behavior in self.behaviors.items()}
        if sum(shares.values()) > 1 + 1e-9:
            first, terms = next(iter(shares)), " + ".join(f"{name} {share:g}" for name, share in shares.items())
            expected = f"shares with a sum of at most 1, not {terms}"
            yield ConfigError.of(f"{first}.share", shares[first], expected)
        yield from check_span("migrate_at_s", self.migrate_at_s)
        for key in ("restart", "grow") if self.migrate_at_s is not None else ():
            if (table := getattr(self, key)) is not None:
                expected = "none with migrate_at_s, which restarts all members of each group"
                yield ConfigError.of(key, msgspec.to_builtins(table), expected)
        if self.has_classic_members and self.heartbeat_interval_ms * (1 + self.jitter) >= self.session_timeouts_ms[0]:
            expected = f"less than session_timeout_ms ({self.session_timeout_ms}), jitter and timeout_jitter included"
            yield ConfigError.of("heartbeat_interval_ms", self.heartbeat_interval_ms, expected)
        if self.transactional and self.transaction is None:
            expected = "a table with transactional, such as { to = 'payments', records = 10 }"
            yield ConfigError.missing("transaction", expected)
        if self.transaction is not None and not self.transactional:
            yield ConfigError.of("transactional", False, "true with transaction")
        if self.transactional and not self.commit_interval_ms:
            expected = "an integer >= 1 with transactional: the interval between transactions"
            yield ConfigError.of("commit_interval_ms", self.commit_interval_ms, expected)

    @property
    def has_classic_members(self) -> bool:
        """Whether members use the classic protocol, at least until or after a migration."""
        return self.protocol == "classic" or self.migrate_at_s is not None

    @property
    def has_consumer_members(self) -> bool:
        """Whether members use the consumer protocol (KIP-848), at least until or after a migration."""
        return self.protocol == "consumer" or self.migrate_at_s is not None

    @property
    def session_timeouts_ms(self) -> tuple[float, float]:
        """The minimum and maximum session timeout of members, in milliseconds."""
        return (
            self.session_timeout_ms * (1 - self.timeout_jitter),
            self.session_timeout_ms * (1 + self.timeout_jitter),
        )

    @property
    def name_pattern(self) -> str:
        """The pattern of the groups' names, given or by default."""
        return f"{self.name}-{{}}" if self.pattern is None else self.pattern

    @property
    def group_count(self) -> int:
        """The number of groups; with names from a file, it is correct only after `load_workload` has read the file."""
        return self.count or 1

    @property
    def behaviors(self) -> dict[str, Behavior]:
        """The behaviors that apply to a share of the members, by key. Each member has at most one of them."""
        named = {
            "leave": self.leave,
            "crash": self.crash,
            "pause": self.pause,
            "slow": self.slow,
            "zombie": self.zombie,
        }
        return {action: behavior for action, behavior in named.items() if behavior is not None}

    @property
    def max_members(self) -> int:
        """The maximum number of members of a group, before it grows."""
        return self.members if isinstance(self.members, int) else max(self.members.weights)

    @property
    def member_count(self) -> float:
        """The number of members of all groups, before they grow; the expected value if sizes are random."""
        if isinstance(self.members, int):
            return float(self.members * self.group_count)
        weights = self.members.weights
        return sum(size * weight for size, weight in weights.items()) / sum(weights.values()) * self.group_count

    @property
    def arrived_s(self) -> float:
        """The time at which all members have started, without the members that `grow` adds, in seconds."""
        return self.arrival.at_s + self.arrival.spread_s(self.member_count, self.group_count)
