"""The settings of a group member, validated."""

from dataclasses import dataclass

from fakebroker.client.member.assignors import ASSIGNORS, COOPERATIVE_ASSIGNORS, Assignor, PartitionAssignor
from fakebroker.errors import ConfigError


@dataclass(slots=True, kw_only=True)
class MemberSettings:
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
            raise ConfigError(f"assignor {self.assignor!r}: expected one of {', '.join(ASSIGNORS)}")
        if not 0 < self.heartbeat_interval_ms < self.session_timeout_ms:
            raise ConfigError(
                f"heartbeat_interval_ms {self.heartbeat_interval_ms}: expected more than 0 and less than "
                f"session_timeout_ms, which is {self.session_timeout_ms}"
            )
        for name in ("rebalance_timeout_ms", "commit_interval_ms", "retry_backoff_ms"):
            if getattr(self, name) < 0:
                raise ConfigError(f"{name} {getattr(self, name)}: expected 0 or more")

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
