"""Broker settings by Kafka's own names, with Kafka's defaults (org.apache.kafka.server.config, GroupCoordinatorConfig).

A setting stands here when the fake cluster does what it says, and nowhere else. Knows nothing of brokers.
"""

import difflib
from collections.abc import Mapping
from dataclasses import dataclass

from fakebroker.coordinator.types import CoordinatorConfig
from fakebroker.errors import ConfigError

Value = int | bool

_INT32_MAX = 2**31 - 1
_INT64_MAX = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Setting:
    """One broker setting: its default, and the range of a number."""

    default: Value
    low: int = 0
    high: int = _INT32_MAX
    about: str = ""


SETTINGS: dict[str, Setting] = {
    "auto.create.topics.enable": Setting(True, about="Metadata for an unknown topic creates it."),
    "default.replication.factor": Setting(
        3, 1, 2**15 - 1, "Replicas of topics created without a number, at most one a broker; Kafka: 1."
    ),
    "delete.topic.enable": Setting(True, about="DeleteTopics works."),
    "fetch.max.bytes": Setting(55 * 1024 * 1024, 1024, about="Most bytes in one Fetch response."),
    "group.initial.rebalance.delay.ms": Setting(3000, about="Wait of an empty group for further members."),
    "group.max.session.timeout.ms": Setting(1_800_000, about="Longest session timeout a member may ask for."),
    "group.max.size": Setting(_INT32_MAX, 1, about="Most members of a group."),
    "group.min.session.timeout.ms": Setting(6000, about="Shortest session timeout a member may ask for."),
    "log.retention.bytes": Setting(64 * 1024 * 1024, -1, _INT64_MAX, "Bytes a partition keeps; Kafka: -1, all."),
    "max.incremental.fetch.session.cache.slots": Setting(1000, about="Fetch sessions kept per broker."),
    "message.max.bytes": Setting(1_048_588, about="Largest record batch."),
    "num.partitions": Setting(1, 1, about="Partitions of topics created without a number."),
    "offset.metadata.max.bytes": Setting(4096, about="Longest metadata of a committed offset."),
    "offsets.retention.check.interval.ms": Setting(600_000, 1, _INT64_MAX, "How often expired offsets are looked for."),
    "offsets.retention.minutes": Setting(7 * 24 * 60, 1, about="How long offsets of groups without members are kept."),
    "offsets.topic.num.partitions": Setting(50, 1, 10_000, "Partitions of __consumer_offsets."),
    "socket.request.max.bytes": Setting(100 * 1024 * 1024, 1, about="Largest request."),
}


class Config:
    """The settings of one cluster.

    Args:
        overrides: Settings that are not to have their default; numbers and booleans, or their text.

    Raises:
        ConfigError: A name is unknown, or a value is of the wrong type or out of range.
    """

    def __init__(self, overrides: Mapping[str, object] | None = None) -> None:
        self._values: dict[str, Value] = {name: setting.default for name, setting in SETTINGS.items()}
        for name, value in (overrides or {}).items():
            self._values[name] = _checked(name, value)
        low, high = self.number("group.min.session.timeout.ms"), self.number("group.max.session.timeout.ms")
        if low > high:
            raise ConfigError(f"group.min.session.timeout.ms={low} is over group.max.session.timeout.ms={high}")

    def number(self, name: str) -> int:
        """The value of a number."""
        return int(self._values[name])

    def switch(self, name: str) -> bool:
        """The value of a switch."""
        return bool(self._values[name])

    def coordinator(self) -> CoordinatorConfig:
        """The part that group coordinators look at."""
        return CoordinatorConfig(
            group_min_session_timeout_ms=self.number("group.min.session.timeout.ms"),
            group_max_session_timeout_ms=self.number("group.max.session.timeout.ms"),
            group_initial_rebalance_delay_ms=self.number("group.initial.rebalance.delay.ms"),
            group_max_size=self.number("group.max.size"),
            offset_metadata_max_bytes=self.number("offset.metadata.max.bytes"),
            offsets_retention_ms=self.number("offsets.retention.minutes") * 60_000,
            offsets_retention_check_interval_ms=self.number("offsets.retention.check.interval.ms"),
            offsets_topic_num_partitions=self.number("offsets.topic.num.partitions"),
        )


def _checked(name: str, value: object) -> Value:
    setting = SETTINGS.get(name)
    if setting is None:
        near = difflib.get_close_matches(name, SETTINGS, n=1, cutoff=0.0)[0]
        raise ConfigError(f"unknown setting {name!r}; the nearest that the fake cluster honours is {near!r}")
    if isinstance(setting.default, bool):
        switch = {"true": True, "false": False}.get(str(value).lower())
        if switch is None:
            raise ConfigError(f"{name}={value!r}: expected true or false")
        return switch
    number = _number(name, value)
    if not setting.low <= number <= setting.high:
        raise ConfigError(f"{name}={number}: expected {setting.low} to {setting.high}")
    return number


def _number(name: str, value: object) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    try:
        return int(str(value))
    except ValueError:
        raise ConfigError(f"{name}={value!r}: expected a whole number") from None
