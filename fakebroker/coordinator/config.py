"""The settings of a group coordinator. Plain data."""

from collections.abc import Callable
from typing import Any

import msgspec

from fakebroker.coordinator.classic.extension import GroupExtension, no_extension
from fakebroker.coordinator.consumer.config import ConsumerGroupConfig


class CoordinatorConfig(msgspec.Struct, kw_only=True):
    """The broker settings that a group coordinator uses, under Kafka's names and with Kafka's defaults.

    The retention of offsets is in milliseconds here, and in minutes in Kafka (`offsets.retention.minutes`).

    Attributes:
        group_min_session_timeout_ms, group_max_session_timeout_ms: Session timeouts outside these bounds are rejected.
        group_initial_rebalance_delay_ms: How long the first rebalance of an empty group waits for more members. With 0,
            the first generation starts immediately, with the first member only.
        offset_metadata_max_bytes: As in Kafka, this is compared with the number of UTF-16 units.
        is_before_kip_848: Behave as the coordinator of Kafka before 4.0 (`kafka.coordinator.group`).
        is_before_kip_211: Behave as Kafka before 2.1: offsets expire `offsets_retention_ms` after their commit, even if
            the group has members.
        consumer: The settings of consumer groups (KIP-848).
        extension: Called with each new group; returns its protocol extension. The default extension changes nothing.
    """

    group_min_session_timeout_ms: int = 6_000
    group_max_session_timeout_ms: int = 1_800_000
    group_initial_rebalance_delay_ms: int = 3_000
    group_max_size: int = 2**31 - 1
    offset_metadata_max_bytes: int = 4_096
    offsets_topic_num_partitions: int = 50
    offsets_retention_ms: int = 604_800_000
    offsets_retention_check_interval_ms: int = 600_000
    is_before_kip_848: bool = False
    is_before_kip_211: bool = False
    consumer: ConsumerGroupConfig = msgspec.field(default_factory=ConsumerGroupConfig)
    extension: Callable[[Any], GroupExtension] = no_extension
