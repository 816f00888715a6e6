"""The settings of consumer groups. Plain data."""

from collections.abc import Callable, Mapping
from enum import Enum

import msgspec

from fakebroker.coordinator.consumer.assignors import ASSIGNORS, Assignor
from fakebroker.coordinator.consumer.subscriptions import NO_TOPICS, Matcher, TopicImage, unsupported_regex


class MigrationPolicy(Enum):
    """Which groups with members become groups of the other kind (Kafka's `ConsumerGroupMigrationPolicy`).

    Without members, a group can always become one of the other kind.

    DISABLED: None. Classic members get into consumer groups all the same, as in 4.2.0 (later fixed by KAFKA-20640).
    DOWNGRADE: Consumer groups whose members all use the classic protocol become classic groups.
    UPGRADE: Classic groups that a member with the consumer protocol joins become consumer groups.
    BIDIRECTIONAL: Both.
    """

    DISABLED = "disabled"
    DOWNGRADE = "downgrade"
    UPGRADE = "upgrade"
    BIDIRECTIONAL = "bidirectional"

    @property
    def allows_upgrade(self) -> bool:
        return self in (MigrationPolicy.UPGRADE, MigrationPolicy.BIDIRECTIONAL)

    @property
    def allows_downgrade(self) -> bool:
        return self in (MigrationPolicy.DOWNGRADE, MigrationPolicy.BIDIRECTIONAL)


def no_group_configs(group_id: str, name: str) -> int | None:
    """Return None: no group has configs of its own."""
    return None


class ConsumerGroupConfig(msgspec.Struct, kw_only=True):
    """The settings of consumer groups, under Kafka's names and with Kafka's defaults (`group.consumer.*`).

    Attributes:
        release: The release of Kafka whose behavior the coordinator has, such as (4, 4).
        is_enabled: Whether the setting `group.coordinator.rebalance.protocols` has the consumer protocol.
        classic_max_size: The most members that a classic group may have (`group.max.size`).
        migration_policy: Which groups become groups of the other kind while they have members.
        assignors: The assignors by name; the first one is the default.
        topics: The topics of the cluster.
        group_config: Returns a config of a group in milliseconds, by group id and name, such as
            `consumer.session.timeout.ms`; None if the group does not have it.
        compile_regex: Returns a function that matches names of topics with a regular expression in RE2's syntax. Raises
            InvalidRegexError.
    """

    release: tuple[int, ...] = (4, 4)
    is_enabled: bool = True
    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5_000
    max_size: int = 2**31 - 1
    classic_max_size: int = 2**31 - 1
    migration_policy: MigrationPolicy = MigrationPolicy.BIDIRECTIONAL
    regex_refresh_interval_ms: int = 600_000
    assignment_interval_ms: int = 1_000
    assignors: Mapping[str, Assignor] = msgspec.field(default_factory=lambda: ASSIGNORS)
    topics: TopicImage = NO_TOPICS
    group_config: Callable[[str, str], int | None] = no_group_configs
    compile_regex: Callable[[str], Matcher] = unsupported_regex
