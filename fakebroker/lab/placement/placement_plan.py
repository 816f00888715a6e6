"""What a placement study compares. Plain data."""

from math import lcm

import msgspec

MAX_GROUPS = 10_000_000_000
"""Limit of the number of groups."""

MAX_PARTITIONS = 100_000
"""Limit of the least common multiple of the numbers of partitions."""

MAX_COUNTS = 20_000_000
"""Limit of the least common multiple of the numbers of brokers, times the largest size of a group."""


class GroupSizes(msgspec.Struct, frozen=True, kw_only=True):
    """Zipf's law: a group has k members with a probability proportional to k ** -exponent.

    Attributes:
        exponent: The exponent.
        largest: The number of members of the largest possible group.
    """

    exponent: float = 2.0
    largest: int = 10_000


class LookupPlan(msgspec.Struct, frozen=True, kw_only=True):
    """How clients find coordinators, in virtual time.

    Attributes:
        groups: Numbers of groups; each is simulated.
        members: Members of each group; each looks up the coordinator.
        brokers: Number of brokers.
        partitions: Number of partitions of the offsets topic.
        spread_ms: Clients start at random times in this span.
        latency_ms: Mean one-way latency of the network.
        jitter: A latency is drawn from `latency_ms` times 1 - jitter to 1 + jitter.
        backoff_ms: After this time a client repeats a look-up that named a dead broker, or no coordinator.
        session_timeout_ms: Timeout of a broker's session at the registry.
        write_ms, read_ms: How long an operation occupies the registry. The defaults are the rates of three servers in
            "ZooKeeper: Wait-free coordination for Internet-scale systems" (2010), 21,000 writes or 87,000 reads a
            second.
        retry_ms: After this time a broker repeats an operation that the registry did not answer.
        propagate_ms: How long a broker takes to apply the controller's metadata.
    """

    groups: tuple[int, ...] = (100, 1_000, 10_000)
    members: int = 2
    brokers: int = 12
    partitions: int = 50
    spread_ms: float = 1_000.0
    latency_ms: float = 0.5
    jitter: float = 0.5
    backoff_ms: float = 100.0
    session_timeout_ms: float = 6_000.0
    write_ms: float = 1 / 21
    read_ms: float = 1 / 87
    retry_ms: float = 1_000.0
    propagate_ms: float = 1.0


class PlacementPlan(msgspec.Struct, frozen=True, kw_only=True):
    """A placement study.

    Attributes:
        groups: Numbers of groups, in ascending order. Smaller populations are the first groups of larger ones.
        name_pattern: Name of a group; "{}" is replaced by its number, which starts at 0.
        sizes: Numbers of members.
        heartbeat_interval_ms: Time between two heartbeats of a member.
        brokers: Numbers of brokers, each compared with each number of partitions.
        partitions: Numbers of partitions of the offsets topic.
        replication_factor: Replicas of each of these partitions, at most one per broker.
        bootstrap: Number of brokers in the clients' list, for option 2.b: only they are asked first.
        seeds: Seeds of group sizes, replica placement, and the brokers that are asked first.
        lookups: The look-ups.
    """

    groups: tuple[int, ...] = (1_000, 100_000, 100_000_000)
    name_pattern: str = "group-{}"
    sizes: GroupSizes = msgspec.field(default_factory=GroupSizes)
    heartbeat_interval_ms: int = 3_000
    brokers: tuple[int, ...] = (3, 12, 48)
    partitions: tuple[int, ...] = (50, 200, 1_000)
    replication_factor: int = 3
    bootstrap: int = 3
    seeds: tuple[int, ...] = (1, 2, 3, 4, 5)
    lookups: LookupPlan = msgspec.field(default_factory=LookupPlan)

    def __post_init__(self) -> None:
        """Check the values.

        Raises:
            ValueError: A value is not valid.
        """
        if not self.groups or list(self.groups) != sorted(set(self.groups)) or self.groups[0] < 1:
            raise ValueError(f"groups={self.groups}: expected ascending integers >= 1")
        if self.name_pattern.count("{}") != 1:
            raise ValueError(f"name_pattern={self.name_pattern!r}: expected one {{}}")
        if self.groups[-1] > MAX_GROUPS:
            raise ValueError(f"groups={self.groups}: expected at most {MAX_GROUPS}")
        if not self.seeds:
            raise ValueError("seeds=(): expected one or more")
        for name in ("brokers", "partitions"):
            if not getattr(self, name) or min(getattr(self, name)) < 1:
                raise ValueError(f"{name}={getattr(self, name)}: expected integers >= 1")
        if lcm(*self.partitions) > MAX_PARTITIONS:
            raise ValueError(f"partitions={self.partitions}: expected a common multiple of at most {MAX_PARTITIONS}")
        if self.bootstrap < 1:
            raise ValueError(f"bootstrap={self.bootstrap}: expected an integer >= 1")
        if lcm(*self.brokers, self.bootstrap) * self.sizes.largest > MAX_COUNTS:
            most = MAX_COUNTS // self.sizes.largest
            raise ValueError(f"brokers={self.brokers}: expected a common multiple of at most {most}")


def plan_of(groups: int, seeds: tuple[int, ...]) -> PlacementPlan:
    """Return the plan for a number of groups, and smaller populations for comparison."""
    smaller = (each for each in PlacementPlan().groups if each < groups)
    return PlacementPlan(groups=(*smaller, groups), seeds=seeds)
