"""The broker configs of a release, with the settings that have an effect here.

DescribeConfigs lists Kafka's configs of the emulated release (`broker_configs.txt`). Those that have an effect
(`SETTINGS`), or are the defaults of topic configs, are checked and described as these define them.
"""

from collections.abc import Iterator, Mapping
from functools import cache
from pkgutil import get_data  # importlib.resources takes 10 ms to import
from typing import NamedTuple

from msgspec.structs import replace

from fakebroker.cluster.configs.definitions import ConfigKey, ConfigType
from fakebroker.cluster.configs.listener_settings import without_prefix
from fakebroker.cluster.configs.settings import OWN_PREFIX, SETTINGS, older_defaults
from fakebroker.cluster.configs.topic_configs import TOPIC_CONFIGS, values_error
from fakebroker.protocol.releases import RELEASES, Release

# Kafka's broker configs in each release, from the table `broker_configs.txt`: facts without an effect here


READ_ONLY, PER_BROKER, CLUSTER_WIDE = "read-only", "per-broker", "cluster-wide"
"""Update modes: a config with one of the last two is dynamic (KIP-226)."""


class BrokerConfig(NamedTuple):
    """A broker config of a release: its definition, and how it can be updated."""

    key: ConfigKey
    mode: str

    @property
    def is_dynamic(self) -> bool:
        return self.mode != READ_ONLY


@cache
def kafka_broker_configs(emulated: Release) -> Mapping[str, BrokerConfig]:
    """Return the broker configs of a release by name, sorted."""
    return {
        name: config for name, config, first, last in _table() if first <= emulated and not (last and last < emulated)
    }


@cache
def _table() -> list[tuple[str, BrokerConfig, Release, Release | None]]:
    text = (get_data("fakebroker.cluster.configs", "broker_configs.txt") or b"").decode("ascii")
    return list(_rows(text))


def _rows(text: str) -> Iterator[tuple[str, BrokerConfig, Release, Release | None]]:
    releases_by_name = {str(each): each for each in RELEASES}
    for line in text.splitlines():
        if line.startswith("#"):
            continue
        name, type_, default, mode, valid, releases = line.split()
        first, _, last = releases.partition("-")
        key = _with_valid_values(ConfigType[type_.upper()], _default(default), valid)
        yield name, BrokerConfig(key, mode), releases_by_name[first], releases_by_name.get(last)


def _default(text: str) -> str | None:
    return {"null": None, '""': ""}.get(text, text)


def _with_valid_values(type_: ConfigType, default: str | None, valid: str) -> ConfigKey:
    if valid == "-":
        return ConfigKey(type_, default)
    inner = valid[1:-1]
    if "..." not in inner:
        return ConfigKey(type_, default, choices=tuple(inner.split("|")))
    low, _, high = inner.partition(",...")
    return ConfigKey(type_, default, float(low), float(high.removeprefix(",") or "inf"))


# Configs with an effect here


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

OWN_DEFAULTS = ("auto.leader.rebalance.enable", "default.replication.factor")
"""Settings whose default is not Kafka's."""

_EFFECTIVE: dict[str, ConfigKey] = {
    name: replace(key, default=None) if name in _FIRST_SYNONYMS else key
    for name, key in ({key.broker_name: key for key in TOPIC_CONFIGS.values() if key.broker_name} | SETTINGS).items()
    if not name.startswith(OWN_PREFIX)
}

_ABOUT = {
    **dict.fromkeys(NODE_ID_CONFIGS, "The number of this broker."),
    "advertised.listeners": "The address of this broker for clients.",
    "broker.rack": "The rack of this broker.",
    "listeners": "The port of this broker.",
    "log.dirs": "The only log directory, as in DescribeLogDirs; there is no such directory.",
}

_DYNAMIC_ONLY: dict[str, ConfigKey] = {
    f"{role}.replication.throttled.rate": ConfigKey(
        ConfigType.LONG,
        None,
        0,
        about=f"Bytes per second that reassignments copy {direction} this broker, of throttled replicas.",
    )
    for role, direction in (("follower", "to"), ("leader", "from"))
}
"""Configs that are listed only if they are set (`DynamicConfig.Broker`)."""


@cache
def listed_configs(release: Release) -> Mapping[str, BrokerConfig]:
    """Return the broker configs that DescribeConfigs lists in a release, by name."""
    return {
        name: config._replace(key=_merged(name, config.key)) for name, config in kafka_broker_configs(release).items()
    }


@cache
def known_configs(release: Release) -> Mapping[str, BrokerConfig]:
    """Return the broker configs that a release knows, including those that it lists only if they are set."""
    throttles = {name: BrokerConfig(key, PER_BROKER) for name, key in _DYNAMIC_ONLY.items()}
    return {**listed_configs(release), **throttles}


def config_of(release: Release, name: str) -> BrokerConfig | None:
    """Return the definition of a broker config, also with the prefix of a listener; None if the release has none."""
    return known_configs(release).get(without_prefix(name))


def is_secret(release: Release, name: str) -> bool:
    """Return whether the values of a config are hidden: passwords, and configs that the release does not have."""
    known = config_of(release, name)
    return known is None or known.key.type is ConfigType.PASSWORD


@cache
def default_values(release: Release) -> Mapping[str, str]:
    """Return the defaults of broker configs in a release, including effective ones that the release does not list."""
    keys = _EFFECTIVE | {name: config.key for name, config in listed_configs(release).items()}
    older = {name: str(value) for name, value in older_defaults(release).items()}
    return {name: text for name, key in keys.items() if (text := key.default_text) is not None} | older


def _merged(name: str, kafka: ConfigKey) -> ConfigKey:
    """Return the definition of a Kafka config. A config with an effect in the fake cluster is defined by `_EFFECTIVE`.

    The default is Kafka's, except for the configs in `OWN_DEFAULTS`.
    """
    key = _EFFECTIVE.get(name)
    if key is None:
        return replace(kafka, about=_ABOUT.get(name, ""))
    return key if name in OWN_DEFAULTS else replace(key, default=kafka.default)


def synonyms_of(name: str) -> tuple[str, ...]:
    """Return the configs with the same meaning, including this one, in order of precedence."""
    return next((group for group in SYNONYM_GROUPS if name in group), (name,))


def broker_configs_error(release: Release, configs: Mapping[str, str], *, cluster_wide: bool) -> str | None:
    """Return why brokers may not have these dynamic configs; None if they are valid.

    Unknown configs may have any value, because they may belong to a plugin (DynamicBrokerConfig.validateConfigs).

    Args:
        release: The release of the broker that checks them.
        configs: The configs.
        cluster_wide: Whether they are for all brokers.
    """
    by_name = known_configs(release)
    known = {name: by_name[without_prefix(name)] for name in configs if without_prefix(name) in by_name}
    read_only = [name for name, config in known.items() if not config.is_dynamic]
    if read_only:
        return f"Cannot update these configs dynamically: {', '.join(read_only)}"
    per_listener = [name for name, config in known.items() if config.mode == PER_BROKER and name.startswith("ssl.")]
    if per_listener:
        return (
            "These security configs can be dynamically updated only per-listener using the listener prefix: "
            f"{', '.join(per_listener)}"
        )
    error = values_error(configs, {name: config.key for name, config in known.items()})
    per_broker = [name for name, config in known.items() if config.mode != CLUSTER_WIDE and name not in _DYNAMIC_ONLY]
    if error is None and cluster_wide and per_broker:
        names = ", ".join(per_broker)
        return f"Cannot update these configs at default cluster level, broker id must be specified: {names}"
    return error
