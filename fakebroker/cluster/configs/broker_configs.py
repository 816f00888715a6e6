"""The broker configs that DescribeConfigs returns. AlterConfigs changes only those that are dynamic (KIP-226).

Some have an effect (`SETTINGS`), some are the defaults of topic configs, and clients may read the others. The first
arguments of `ConfigKey` are the type, the default and the smallest valid number.
"""

from collections.abc import Mapping
from dataclasses import replace

from fakebroker.cluster.configs.definitions import ConfigKey, ConfigType
from fakebroker.cluster.configs.settings import OWN_PREFIX, SETTINGS
from fakebroker.cluster.configs.topic_configs import TOPIC_CONFIGS, values_error

NODE_ID_CONFIGS = ("broker.id", "node.id")
"""Configs with the node id of the broker, different for each broker."""

SYNONYM_GROUPS = (
    ("log.roll.ms", "log.roll.hours"),
    ("log.roll.jitter.ms", "log.roll.jitter.hours"),
    ("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
    ("log.flush.interval.ms", "log.flush.scheduler.interval.ms"),
)
"""Configs with the same meaning: the first that has a value is effective (DynamicBrokerConfig.brokerConfigSynonyms)."""

# They have no default here, so that the default of a later synonym is effective.
_FIRST_SYNONYMS = {group[0] for group in SYNONYM_GROUPS}

TOPIC_DEFAULTS: dict[str, ConfigKey] = {
    key.broker_name: replace(key, default=None) if key.broker_name in _FIRST_SYNONYMS else key
    for key in TOPIC_CONFIGS.values()
    if key.broker_name
}
"""The broker configs that are defaults of topic configs."""

_INT, _LONG = ConfigType.INT, ConfigType.LONG

_DYNAMIC: dict[str, ConfigKey] = {
    "background.threads": ConfigKey(_INT, 10, 1),
    "follower.replication.throttled.rate": ConfigKey(
        _LONG, 2**63 - 1, 0, about="Bytes per second that reassignments copy to this broker, of throttled replicas."
    ),
    "leader.replication.throttled.rate": ConfigKey(
        _LONG, 2**63 - 1, 0, about="Bytes per second that reassignments copy from this broker, of throttled replicas."
    ),
    "log.cleaner.threads": ConfigKey(_INT, 1, 0),
    "max.connections": ConfigKey(_INT, 2**31 - 1, 0),
    "max.connections.per.ip": ConfigKey(_INT, 2**31 - 1, 0),
    "num.io.threads": ConfigKey(_INT, 8, 1),
    "num.network.threads": ConfigKey(_INT, 3, 1),
    "num.recovery.threads.per.data.dir": ConfigKey(_INT, 2, 1),
    "num.replica.fetchers": ConfigKey(_INT, 1),
    "producer.id.expiration.ms": ConfigKey(_INT, 24 * 3600 * 1000, 1),
}

_READ_ONLY: dict[str, ConfigKey] = {
    **{name: ConfigKey(_INT, -1, about="The number of this broker.") for name in NODE_ID_CONFIGS},
    "broker.rack": ConfigKey(ConfigType.STRING, None, about="The rack of this broker."),
    "log.flush.scheduler.interval.ms": ConfigKey(_LONG, 2**63 - 1),
    "log.retention.hours": ConfigKey(_INT, 168),
    "log.retention.minutes": ConfigKey(_INT, None),
    "log.roll.hours": ConfigKey(_INT, 168, 1),
    "log.roll.jitter.hours": ConfigKey(_INT, 0, 0),
}

DYNAMIC_CONFIGS = frozenset(TOPIC_DEFAULTS) | frozenset(_DYNAMIC) | {"log.cleaner.backoff.ms"}
"""The configs that AlterConfigs may set, for one broker or for all."""

BROKER_CONFIGS: dict[str, ConfigKey] = {
    name: key
    for name, key in sorted((_DYNAMIC | _READ_ONLY | SETTINGS | TOPIC_DEFAULTS).items())
    if not name.startswith(OWN_PREFIX)
}

DEFAULTS = {name: text for name, key in BROKER_CONFIGS.items() if (text := key.default_text) is not None}


def synonyms_of(name: str) -> tuple[str, ...]:
    """Return the configs with the same meaning, including this one, in order of precedence."""
    return next((group for group in SYNONYM_GROUPS if name in group), (name,))


def broker_configs_error(configs: Mapping[str, str]) -> str | None:
    """Return why a broker may not have these dynamic configs; None if they are valid.

    Unknown configs may have any value, because they may belong to a plugin (DynamicBrokerConfig.validateConfigs).
    """
    read_only = [name for name in configs if name in BROKER_CONFIGS and name not in DYNAMIC_CONFIGS]
    if read_only:
        return f"Cannot update these configs dynamically: {', '.join(read_only)}"
    return values_error(configs, BROKER_CONFIGS)
