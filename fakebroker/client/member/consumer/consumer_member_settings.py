"""The settings of a member of a consumer group, validated."""

import msgspec

from fakebroker.errors import ConfigError, check_number


class ConsumerMemberSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The consumer settings of Kafka that concern membership with `group.protocol=consumer`, with their defaults.

    The broker decides on session timeout and heartbeat interval.

    Attributes:
        topics: The subscription by names.
        pattern: A regular expression for further topics, which the broker resolves (RE2); None for none.
        instance_id: `group.instance.id`; makes the member static (KIP-345).
        rack_id: `client.rack`.
        server_assignor: `group.remote.assignor`; None lets the broker choose.
        rebalance_timeout_ms: `max.poll.interval.ms`.
        commit_interval_ms: `auto.commit.interval.ms`; 0 disables automatic commits.
        retry_backoff_ms: The first back-off; later ones double up to one second.
        request_timeout_ms: How long the response to a heartbeat may take until the coordinator is considered lost.
        awaits_revocation: Emit `Revoking` before giving partitions up, and wait for `revoked`.
        starts_at_zero: Set the position to 0 where no offset is committed; otherwise emit `OffsetUnknown`.

    Raises:
        ConfigError: A value is invalid.
    """

    group_id: str
    client_id: str
    topics: tuple[str, ...] = ()
    pattern: str | None = None
    instance_id: str | None = None
    rack_id: str | None = None
    server_assignor: str | None = None
    rebalance_timeout_ms: int = 300_000
    commit_interval_ms: int = 5_000
    retry_backoff_ms: int = 100
    request_timeout_ms: int = 30_000
    awaits_revocation: bool = False
    starts_at_zero: bool = True

    def __post_init__(self) -> None:
        for name in ("rebalance_timeout_ms", "commit_interval_ms", "retry_backoff_ms"):
            check_number(name, getattr(self, name), least=0)
        check_number("request_timeout_ms", self.request_timeout_ms, above=0)
        for name in ("instance_id", "rack_id", "server_assignor"):
            if getattr(self, name) == "":
                raise ConfigError.of(name, "", "a name, or None")
