"""The settings of a consumer of the rewrite design, validated."""

import re
from collections.abc import Mapping

import msgspec

from fakebroker.errors import ConfigError, check_number


class RewriteSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The consumer's side of the configs in the document.

    Attributes:
        topics: The subscription. Empty with `pattern`.
        pattern: A regular expression. The consumer subscribes to all topics whose names match it completely.
        strategy: The friendly name of the partition assignment strategy, which the brokers have to know.
        session_timeout_ms: `session.timeout.ms`.
        heartbeat_frequency: How many heartbeats are sent in a session timeout (`heartbeat.frequency`).
        sends_consumer_id: Whether later JoinGroups contain the consumer id. If not, each later JoinGroup delays the
            group by a session timeout: the coordinator waits for the consumer with the former id.
        join_timeout_ms: How long a JoinGroup may wait. None: twice the session timeout, because the coordinator may
            wait a session timeout for consumers that do not join.
        commit_interval_ms: `auto.commit.interval.ms`; 0 disables automatic commits.
        retry_backoff_ms: The first back-off; later ones double up to one second.
        starts_at_zero: Set the position to 0 where no offset is committed; otherwise emit `OffsetUnknown`.

    Raises:
        ConfigError: A value is invalid.
    """

    group_id: str
    client_id: str
    topics: tuple[str, ...] = ()
    pattern: str | None = None
    strategy: str = "range"
    session_timeout_ms: int = 30_000
    heartbeat_frequency: float = 3
    sends_consumer_id: bool = True
    join_timeout_ms: int | None = None
    commit_interval_ms: int = 5_000
    retry_backoff_ms: int = 100
    starts_at_zero: bool = True

    def __post_init__(self) -> None:
        check_number("session_timeout_ms", self.session_timeout_ms, above=0)
        check_number("heartbeat_frequency", self.heartbeat_frequency, above=1)
        for name in ("commit_interval_ms", "retry_backoff_ms"):
            check_number(name, getattr(self, name), least=0)
        if self.join_timeout_ms is not None:
            check_number("join_timeout_ms", self.join_timeout_ms, above=0)
        if self.pattern is None:
            return
        if self.topics:
            raise ConfigError.of("topics", self.topics, "no topics, because a pattern is set")
        try:
            re.compile(self.pattern)
        except re.error as error:
            raise ConfigError.of("pattern", self.pattern, f"a regular expression; {error}") from None

    @property
    def heartbeat_interval_ms(self) -> float:
        """The time between heartbeats."""
        return self.session_timeout_ms / self.heartbeat_frequency

    @property
    def longest_join_ms(self) -> float:
        """How long a JoinGroup may wait until the coordinator is looked up again."""
        return 2 * self.session_timeout_ms if self.join_timeout_ms is None else self.join_timeout_ms

    def matching(self, partition_counts: Mapping[str, int]) -> tuple[str, ...]:
        """Return the topics of the cluster that match the pattern, by name."""
        assert self.pattern is not None
        pattern = re.compile(self.pattern)
        return tuple(sorted(topic for topic in partition_counts if pattern.fullmatch(topic)))
