"""The settings of a group member, validated."""

import msgspec

from fakebroker.client.member.assignors import ASSIGNORS, COOPERATIVE_ASSIGNORS, Assignor, PartitionAssignor
from fakebroker.errors import ConfigError, check_number, one_of


class MemberSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The consumer settings of Kafka that concern group membership, with their defaults.

    Attributes:
        instance_id: `group.instance.id`; makes the member static (KIP-345).
        assignor: The `partition.assignment.strategy`: a protocol name, or a custom assignor.
        rebalance_timeout_ms: `max.poll.interval.ms`.
        commit_interval_ms: `auto.commit.interval.ms`; 0 disables automatic commits.
        retry_backoff_ms: The first back-off; later ones double up to one second.
        awaits_revocation: Emit `Revoking` before giving partitions up, and wait for `revoked`.
        starts_at_zero: Set the position to 0 where no offset is committed; otherwise emit `OffsetUnknown`.

    Raises:
        ConfigError: A value is invalid.
    """

    group_id: str
    client_id: str
    topics: tuple[str, ...]
    instance_id: str | None = None
    assignor: str | PartitionAssignor = "range"
    session_timeout_ms: int = 45_000
    rebalance_timeout_ms: int = 300_000
    heartbeat_interval_ms: int = 3_000
    commit_interval_ms: int = 5_000
    retry_backoff_ms: int = 100
    awaits_revocation: bool = False
    starts_at_zero: bool = True

    def __post_init__(self) -> None:
        if isinstance(self.assignor, str) and self.assignor not in ASSIGNORS:
            raise ConfigError.of("assignor", self.assignor, one_of(ASSIGNORS, self.assignor))
        for name in ("session_timeout_ms", "rebalance_timeout_ms", "commit_interval_ms", "retry_backoff_ms"):
            check_number(name, getattr(self, name), least=0)
        check_number("heartbeat_interval_ms", self.heartbeat_interval_ms, above=0)
        if self.heartbeat_interval_ms >= self.session_timeout_ms:
            expected = f"less than session_timeout_ms, which is {self.session_timeout_ms}"
            raise ConfigError.of("heartbeat_interval_ms", self.heartbeat_interval_ms, expected)

    @property
    def is_cooperative(self) -> bool:
        """Whether the member keeps its partitions through a rebalance (KIP-429)."""
        assignor = self.assignor
        return assignor in COOPERATIVE_ASSIGNORS if isinstance(assignor, str) else assignor.is_cooperative

    @property
    def protocol(self) -> str:
        """The assignor's name, which is the protocol name in JoinGroup."""
        return self.assignor if isinstance(self.assignor, str) else self.assignor.name

    @property
    def assign(self) -> Assignor:
        """The assignor function, for the leader."""
        return ASSIGNORS[self.assignor] if isinstance(self.assignor, str) else self.assignor.partitions_to_consume
