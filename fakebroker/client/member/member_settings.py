"""The settings of a group member. Knows which values make sense, nothing of what is done with them."""

from dataclasses import dataclass

from fakebroker.client.member.assignors import ASSIGNORS, COOPERATIVE_ASSIGNORS, Assignor, PartitionAssignor
from fakebroker.errors import ConfigError


@dataclass(slots=True, kw_only=True)
class MemberSettings:
    """Kafka's consumer settings, with its defaults, as far as group membership goes.

    Attributes:
        instance_id: `group.instance.id`, which makes the member a static one (KIP-345).
        assignor: The one `partition.assignment.strategy`, by its protocol name, or an assignor of one's own.
        rebalance_timeout_ms: `max.poll.interval.ms`.
        commit_interval_ms: `auto.commit.interval.ms`; 0 commits only when told to.
        retry_backoff_ms: The first back-off; the next ones double up to a second.
        awaits_revocation: The member says `Revoking` before it gives partitions up, and waits for `revoked`.
        starts_at_zero: A partition without a committed offset is at position 0; else `OffsetUnknown` tells of it.
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
        """The assignor's name, which is the group's protocol."""
        return self.assignor if isinstance(self.assignor, str) else self.assignor.name

    @property
    def assign(self) -> Assignor:
        """What a leader assigns with."""
        return ASSIGNORS[self.assignor] if isinstance(self.assignor, str) else self.assignor.partitions_to_consume
