"""`[[groups]]`: a population of similar groups, and how their members behave. Plain data."""

from itertools import accumulate
from typing import Annotated, Literal

from msgspec import Meta

from fakebroker.replay.workload.behavior import Behavior, Crash, Grow, Leave, Pause, Restart, Slow, Zombie
from fakebroker.replay.workload.table import MOST_MEMBERS, Count, Positive, PositiveSeconds, Rate, Seconds, Share, Table

_COLUMN = "group"
_MOST_GROUPS = 100_000_000

Name = Annotated[str, Meta(min_length=1)]
Timeout = Annotated[int, Meta(ge=1, le=2**31 - 1)]
Size = Annotated[int, Meta(ge=1, le=MOST_MEMBERS)]
Jitter = Annotated[float, Meta(ge=0, lt=1)]


class Sizes(Table, frozen=True):
    """The distribution of group sizes: one of `uniform`, `zipf` and `histogram`.

    Attributes:
        uniform: The minimum and maximum number of members; all numbers in between are equally likely.
        zipf: The exponent: k members are as likely as k to the power of minus this.
        max: With `zipf`, the maximum number of members.
        histogram: Numbers of members, as text, with their weights: `{ "1" = 90, "8" = 10 }`.
    """

    uniform: tuple[Size, Size] | None = None
    zipf: Rate | None = None
    max: Size | None = None
    histogram: dict[str, Seconds] | None = None

    def __post_init__(self) -> None:
        given = [key for key in ("uniform", "zipf", "histogram") if getattr(self, key) is not None]
        if len(given) != 1:
            raise ValueError(f"expected one of uniform, zipf and histogram, got {' and '.join(given) or 'none'}")
        if self.uniform and self.uniform[0] > self.uniform[1]:
            raise ValueError(f"uniform: expected [fewest, most], got {list(self.uniform)}")
        if (self.zipf is None) != (self.max is None):
            raise ValueError(f"max: expected together with zipf, got zipf {self.zipf} and max {self.max}")
        self._check_histogram()

    def _check_histogram(self) -> None:
        for size in self.histogram or {}:
            if not (size.isascii() and size.isdigit() and 1 <= int(size) <= MOST_MEMBERS):
                raise ValueError(f"histogram: expected numbers of members, 1 to {MOST_MEMBERS}, got {size!r}")
        if self.histogram is not None and not sum(self.histogram.values()):
            raise ValueError(f"histogram: expected a weight over 0, got {self.histogram}")

    @property
    def weights(self) -> dict[int, float]:
        """The weight of each number of members; they need not add up to 1."""
        if self.uniform:
            return dict.fromkeys(range(self.uniform[0], self.uniform[1] + 1), 1.0)
        if self.zipf and self.max:
            return {size: size**-self.zipf for size in range(1, self.max + 1)}
        return {int(size): weight for size, weight in (self.histogram or {}).items() if weight}

    @property
    def bounds(self) -> list[float]:
        """The cumulative shares of the weights, 0 to 1, without the last one, which is 1."""
        *ends, total = accumulate(self.weights.values())
        return [end / total for end in ends]


class Arrival(Table, frozen=True):
    """When members start: all at `at_s`, or from then on by one of `ramp_s`, `poisson_per_s` and `bursts`.

    Attributes:
        at_s: The earliest start.
        ramp_s: Starts are uniformly distributed over this time.
        poisson_per_s: Starts are a Poisson process with this average rate per second.
        bursts: Number of bursts; each member is in one of them.
        every_s: With `bursts`, the interval between bursts.
        by: The unit that arrives: each `member` by itself, or each `group` with all its members at once.
    """

    at_s: Seconds = 0.0
    ramp_s: PositiveSeconds | None = None
    poisson_per_s: Rate | None = None
    bursts: Positive | None = None
    every_s: PositiveSeconds | None = None
    by: Literal["member", "group"] = "member"

    def __post_init__(self) -> None:
        given = [key for key in ("ramp_s", "poisson_per_s", "bursts") if getattr(self, key) is not None]
        if len(given) > 1:
            raise ValueError(f"expected one of ramp_s, poisson_per_s and bursts, got {' and '.join(given)}")
        if (self.bursts is None) != (self.every_s is None):
            raise ValueError(
                f"every_s: expected together with bursts, got bursts {self.bursts}, every_s {self.every_s}"
            )

    def spread_s(self, members: float, groups: int) -> float:
        """Return the seconds from the first start to the last.

        Args:
            members: The average number of members of the population.
            groups: The number of groups.
        """
        if self.poisson_per_s:
            return (members if self.by == "member" else groups) / self.poisson_per_s
        if self.bursts and self.every_s:
            return (self.bursts - 1) * self.every_s
        return self.ramp_s or 0.0


class Groups(Table, frozen=True):
    """A population: similar groups with members that behave similarly. A workload may have several.

    Attributes:
        name: Name of the population, in reports and for `[[load]]` and `[[expect]]`.
        pattern: Pattern of the groups' names; `{}` stands for the number of the group. The population's name, a dash
            and the number if not given.
        count: Number of groups. With `from_file`, the maximum number of names to use; if not given, 1, or all of the
            file.
        from_file: A Parquet or CSV file with the groups' names, used instead of `pattern`; relative to the workload.
        from_column: The file's column with the names.
        hot_partitions: The groups get names that map to one of these partitions of `__consumer_offsets`, so that the
            brokers leading them have more load than others; a number is appended to the group's own to get there.
        hot_share: Share of the groups on hot partitions.
        members: Number of members of each group: a number, or a distribution.
        topics: Subscription of the members; all topics of the workload if not given.
        assignor: The leader's partition assignor.
        session_timeout_ms: Time without heartbeats after which a member is removed from its group.
        rebalance_timeout_ms: Time that a member may take to rejoin during a rebalance; the consumer's
            `max.poll.interval.ms`.
        timeout_jitter: Maximum relative deviation of a member's session and rebalance timeouts.
        heartbeat_interval_ms: Interval between heartbeats.
        commit_interval_ms: Interval between commits; 0 for members that never commit.
        jitter: Maximum relative deviation of a member's heartbeat and commit intervals.
        consume_per_s: Records per second by which the position of each assigned partition advances.
        static: Share of the members with a `group.instance.id` (KIP-345).
        arrival: When the members start.
        leave: Members that leave, and may come back.
        crash: Members that stop without leaving, and may come back.
        pause: Members that are suspended for some time.
        slow: Members that stop polling for some time.
        zombie: Members that continue after their session has expired.
        restart: A rolling restart of all members.
        grow: Members that join later.
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
    assignor: Literal["range", "roundrobin", "sticky", "cooperative-sticky"] = "range"
    session_timeout_ms: Timeout = 45_000
    rebalance_timeout_ms: Timeout = 300_000
    timeout_jitter: Jitter = 0.0
    heartbeat_interval_ms: Timeout = 3_000
    commit_interval_ms: Annotated[int, Meta(ge=0, le=2**31 - 1)] = 5_000
    jitter: Jitter = 0.1
    consume_per_s: Seconds = 10.0
    static: Share = 0.0
    arrival: Arrival = Arrival()
    leave: Leave | None = None
    crash: Crash | None = None
    pause: Pause | None = None
    slow: Slow | None = None
    zombie: Zombie | None = None
    restart: Restart | None = None
    grow: Grow | None = None

    def __post_init__(self) -> None:
        numbers = self.name_pattern.count("{}")
        if self.from_file is None and (numbers > 1 or (numbers == 0 and self.group_count > 1)):
            raise ValueError(f"pattern: expected one {{}} for the number of the group, got {self.name_pattern!r}")
        if self.from_file is not None and (self.pattern is not None or self.hot_partitions):
            key = "hot_partitions" if self.pattern is None else "pattern"
            raise ValueError(f"{key}: expected none beside from_file, whose names are as they are")
        if self.from_file is None and self.from_column != _COLUMN:
            raise ValueError(f"from_column: expected from_file beside it, got {self.from_column!r} alone")
        if self.hot_share != 1 and not self.hot_partitions:
            raise ValueError(f"hot_share: expected hot_partitions beside it, got {self.hot_share:g} alone")
        shares = {name: behavior.share for name, behavior in self.behaviors.items()}
        if sum(shares.values()) > 1 + 1e-9:
            told = ", ".join(f"{name} {share:g}" for name, share in shares.items())
            raise ValueError(f"{next(iter(shares))}.share: expected that all shares add up to 1 at most, got {told}")
        self._check_heartbeats()

    def _check_heartbeats(self) -> None:
        if self.heartbeat_interval_ms * (1 + self.jitter) >= self.session_timeouts_ms[0]:
            raise ValueError(
                f"heartbeat_interval_ms: expected less than session_timeout_ms ({self.session_timeout_ms}) even with "
                f"jitter, got {self.heartbeat_interval_ms}"
            )

    @property
    def session_timeouts_ms(self) -> tuple[float, float]:
        """The minimum and maximum session timeout of members, in milliseconds."""
        return (
            self.session_timeout_ms * (1 - self.timeout_jitter),
            self.session_timeout_ms * (1 + self.timeout_jitter),
        )

    @property
    def name_pattern(self) -> str:
        return f"{self.name}-{{}}" if self.pattern is None else self.pattern

    @property
    def group_count(self) -> int:
        """The number of groups; with names from a file, once `load_workload` has read it."""
        return self.count or 1

    @property
    def behaviors(self) -> dict[str, Behavior]:
        """Behaviors of shares of the members, by their action. Each member has at most one."""
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
        """The number of members of all groups, before they grow; an average where sizes are drawn."""
        if isinstance(self.members, int):
            return float(self.members * self.group_count)
        weights = self.members.weights
        return sum(size * weight for size, weight in weights.items()) / sum(weights.values()) * self.group_count

    @property
    def arrived_s(self) -> float:
        """When the last member has started, except those by which groups grow."""
        return self.arrival.at_s + self.arrival.spread_s(self.member_count, self.group_count)
