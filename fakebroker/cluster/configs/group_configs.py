"""The configs of groups (resources of the type GROUP), by release: the new group protocols read them.

Values are checked, stored and returned. Consumer groups use the configs that begin with `consumer.`; other configs have
no effect. Source: GroupConfig. The first arguments of `ConfigKey` are the type, the default, the smallest and the
largest valid number. For the `consumer.` configs, brokers' settings override the default and the limits; the table has
the values for unchanged settings.
"""

import re
from collections.abc import Mapping

from msgspec.structs import replace

from fakebroker.cluster.configs.definitions import ConfigKey, ConfigType
from fakebroker.cluster.configs.settings import Config
from fakebroker.cluster.configs.topic_configs import values_error
from fakebroker.protocol.releases import Release

KIP_848 = Release(4, 0)
"""The first release with configs of groups."""

_INT, _STRING, _LIST, _BOOLEAN = ConfigType.INT, ConfigType.STRING, ConfigType.LIST, ConfigType.BOOLEAN
_ANY = float("inf")

_SESSION = ConfigKey(_INT, 45_000, 45_000, 60_000, about="Time without heartbeats after which a member is removed.")
_ASSIGNMENT = ConfigKey(_INT, 1000, 0, 15_000, about="Time between two target assignments (KIP-1263).")
_HEARTBEAT = ConfigKey(_INT, 5000, 5000, 15_000, about="Time between two heartbeats of a member.")

_SINCE: tuple[tuple[Release, dict[str, ConfigKey]], ...] = (
    (
        Release(4, 0),
        {
            "consumer.heartbeat.interval.ms": _HEARTBEAT,
            "consumer.session.timeout.ms": _SESSION,
            "share.auto.offset.reset": ConfigKey(_STRING, "latest", about="Where a share partition starts."),
            "share.heartbeat.interval.ms": _HEARTBEAT,
            "share.record.lock.duration.ms": ConfigKey(
                _INT, 30_000, 15_000, 60_000, about="How long a fetched record belongs to a member."
            ),
            "share.session.timeout.ms": _SESSION,
        },
    ),
    (
        Release(4, 1),
        {
            "share.isolation.level": ConfigKey(
                _STRING,
                "read_uncommitted",
                choices=("read_committed", "read_uncommitted"),
                about="Whether records of open and aborted transactions are read.",
            ),
            "streams.heartbeat.interval.ms": _HEARTBEAT,
            "streams.num.standby.replicas": ConfigKey(_INT, 0, 0, 2, about="Standby replicas of each task."),
            "streams.session.timeout.ms": _SESSION,
        },
    ),
    (
        Release(4, 2),
        {
            "streams.initial.rebalance.delay.ms": ConfigKey(
                _INT, 3000, 0, about="Wait of an empty group for further members."
            ),
        },
    ),
    (
        Release(4, 3),
        {
            "consumer.assignment.interval.ms": _ASSIGNMENT,
            "share.assignment.interval.ms": _ASSIGNMENT,
            "share.delivery.count.limit": ConfigKey(_INT, 5, 2, 10, about="How often a record is delivered."),
            "share.partition.max.record.locks": ConfigKey(
                _INT, 2000, 100, 4000, about="Most records of a partition that members have at a time."
            ),
            "share.renew.acknowledge.enable": ConfigKey(_BOOLEAN, True, about="Members may keep a record for longer."),
            "streams.assignment.interval.ms": _ASSIGNMENT,
        },
    ),
    (
        Release(4, 4),
        {
            "errors.deadletterqueue.copy.record.enable": ConfigKey(
                _BOOLEAN, False, about="Records in the dead letter queue have keys and values."
            ),
            "errors.deadletterqueue.topic.name": ConfigKey(
                _STRING, "", about="Topic for records that no member could process; empty for none."
            ),
            "streams.assignor.name": ConfigKey(_STRING, "sticky", about="How tasks are assigned."),
            "streams.rack.aware.assignment.tags": ConfigKey(
                _LIST, "", about="Tags of clients that standby tasks are spread over."
            ),
        },
    ),
)

_AUTO_OFFSET_RESET = re.compile(
    r"earliest|latest|by_duration:P(?!$)(\d+D)?(T(?=\d)(\d+H)?(\d+M)?(\d+(\.\d+)?S)?)?", re.I
)


def group_configs(release: Release) -> dict[str, ConfigKey]:
    """Return the configs of groups in a release, sorted by name; none before 4.0."""
    return dict(sorted(each for since, keys in _SINCE if since <= release for each in keys.items()))


def effective_group_configs(release: Release, settings: Config) -> dict[str, ConfigKey]:
    """Return the configs of groups in a release. The keys of consumer groups have the brokers' defaults and limits."""
    return {
        name: _effective(name, key, settings) if name.startswith("consumer.") else key
        for name, key in group_configs(release).items()
    }


def _effective(name: str, key: ConfigKey, settings: Config) -> ConfigKey:
    low, high = (settings.number(_limit(name, limit)) for limit in ("min", "max"))
    return replace(key, default=settings.number(f"group.{name}"), low=low, high=high)


def group_number(name: str, value: str, release: Release, settings: Config) -> int:
    """Return the effective number of a config of a consumer group: since 4.3, within the limits of the brokers."""
    if release < Release(4, 3):
        return int(value)
    key = _effective(name, group_configs(release)[name], settings)
    return int(min(max(int(value), key.low), key.high))


def _limit(name: str, limit: str) -> str:
    """Return the setting of the brokers with the limit, "min" or "max", of a config of groups."""
    kind, _, rest = name.partition(".")
    return f"group.{kind}.{limit}.{rest.removeprefix('num.')}"


def group_configs_error(configs: Mapping[str, str], release: Release, settings: Config) -> str | None:
    """Return an error message if a group may not have these configs, else None (GroupConfig.validate).

    Args:
        configs: All configs of the group.
        release: The release of the broker that checks them.
        settings: The settings of this broker.
    """
    keys = effective_group_configs(release, settings)
    unknown = [name for name in configs if name not in keys]
    if unknown:
        return f"Unknown group config name: {unknown[0]}"
    reset = configs.get("share.auto.offset.reset")
    if reset is not None and not _AUTO_OFFSET_RESET.fullmatch(reset):
        expected = "earliest, latest or by_duration: and a duration, such as by_duration:PT1H"
        return f"Invalid value {reset} for configuration share.auto.offset.reset: expected {expected}"
    any_number = {name: replace(key, low=min(key.low, 1), high=_ANY) for name, key in keys.items()}
    return values_error(configs, any_number) or _limit_error(configs, keys)


def _limit_error(configs: Mapping[str, str], keys: Mapping[str, ConfigKey]) -> str | None:
    values = {name: int(configs.get(name, key.default_text or "")) for name, key in keys.items() if key.is_number}
    for name, value in values.items():
        if value < keys[name].low:
            return f"{name} must be greater than or equal to {_limit(name, 'min')}"
        if value > keys[name].high:
            return f"{name} must be less than or equal to {_limit(name, 'max')}"
    for name, value in values.items():
        interval = name.replace("session.timeout", "heartbeat.interval")
        if interval != name and value <= values[interval]:
            return f"{name} must be greater than {interval}"
    return None
