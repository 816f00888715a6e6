"""The effective value of a config, and the sources of its value in order of precedence.

Sources are `Topic.configs`, `BrokerNode.configs` and `Cluster.broker_configs`, which AlterConfigs changes; then the
settings with which the cluster was started; then the defaults.
"""

from collections.abc import Mapping
from enum import IntEnum
from itertools import dropwhile
from typing import NamedTuple, Protocol

from fakebroker.cluster.broker import BrokerNode
from fakebroker.cluster.configs.broker_configs import NODE_ID_CONFIGS, config_of, default_values, synonyms_of
from fakebroker.cluster.configs.definitions import config_text
from fakebroker.cluster.configs.listener_settings import SASL_MECHANISMS
from fakebroker.cluster.configs.settings import OWN_PREFIX, Config
from fakebroker.cluster.configs.topic_configs import ALL_TOPIC_CONFIGS
from fakebroker.cluster.listeners import Listener

LOG_DIR = "/var/lib/kafka/data"
"""The only log directory of a broker, as DescribeLogDirs and DescribeConfigs report it."""


class ConfigHolder(Protocol):
    """The configs of a cluster: its settings and listeners, and the dynamic configs of all brokers."""

    @property
    def config(self) -> Config: ...

    @property
    def listeners(self) -> tuple[Listener, ...]: ...

    @property
    def broker_configs(self) -> Mapping[str, str]: ...


class ConfigSource(IntEnum):
    """The source of a value, with its number in DescribeConfigs (DescribeConfigsResponse.ConfigSource)."""

    TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    DYNAMIC_BROKER_LOGGER_CONFIG = 6
    CLIENT_METRICS_CONFIG = 7
    GROUP_CONFIG = 8


class Synonym(NamedTuple):
    """A value of a config, or of a config with the same meaning, and its source."""

    name: str
    value: str
    source: ConfigSource


class Resolved(NamedTuple):
    """The effective value of a config, and all values in order of precedence: the first is effective."""

    value: str | None
    synonyms: list[Synonym]

    @property
    def source(self) -> ConfigSource:
        return self.synonyms[0].source if self.synonyms else ConfigSource.DEFAULT_CONFIG


def static_configs(cluster: ConfigHolder, broker: BrokerNode) -> dict[str, str]:
    """Return the configs with which a broker was started (in Kafka, server.properties)."""
    given = {
        name: config_text(value) for name, value in cluster.config.overrides.items() if not name.startswith(OWN_PREFIX)
    }
    if broker.rack is not None:
        given["broker.rack"] = broker.rack
    host = f"[{broker.host}]" if ":" in broker.host else broker.host  # An IPv6 address has brackets.
    ports = [(each, broker.endpoint(each).port) for each in cluster.listeners]
    given["advertised.listeners"] = ",".join(f"{each.name}://{host}:{port}" for each, port in ports)
    given["listeners"] = ",".join(f"{each.name}://:{port}" for each, port in ports)
    if any(each.name != each.protocol for each in cluster.listeners):
        given["listener.security.protocol.map"] = ",".join(f"{each.name}:{each.protocol}" for each in cluster.listeners)
    if any(each.has_sasl for each in cluster.listeners):
        given[SASL_MECHANISMS] = ",".join(cluster.config.items(SASL_MECHANISMS))
    given["log.dirs"] = LOG_DIR
    return given | dict.fromkeys(NODE_ID_CONFIGS, str(broker.node_id))


def broker_config(cluster: ConfigHolder, broker: BrokerNode, name: str) -> Resolved:
    """Resolve a config of a broker (ConfigHelper.configSynonyms)."""
    names = synonyms_of(name)
    levels: tuple[tuple[ConfigSource, Mapping[str, str]], ...] = (
        (ConfigSource.DYNAMIC_BROKER_CONFIG, broker.configs),
        (ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG, cluster.broker_configs),
        (ConfigSource.STATIC_BROKER_CONFIG, static_configs(cluster, broker)),
        (ConfigSource.DEFAULT_CONFIG, default_values(broker.release)),
    )
    found = [Synonym(each, values[each], source) for source, values in levels for each in names if each in values]
    # As in Kafka, values of other names that precede the first value of `name` are left out.
    return _resolved(broker, name, list(dropwhile(lambda synonym: synonym.name != name, found)))


def default_broker_config(cluster: ConfigHolder, broker: BrokerNode, name: str) -> Resolved:
    """Resolve a config that was altered for all brokers, as a broker sees it."""
    return _resolved(
        broker, name, [Synonym(name, cluster.broker_configs[name], ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG)]
    )


def _resolved(broker: BrokerNode, name: str, synonyms: list[Synonym]) -> Resolved:
    known = config_of(broker.release, name)
    return Resolved(known.key.normalized(synonyms[0].value) if known is not None and synonyms else None, synonyms)


def topic_config(cluster: ConfigHolder, broker: BrokerNode, configs: Mapping[str, str], name: str) -> Resolved:
    """Resolve a config of a topic as a broker sees it (ConfigHelper.createTopicConfigEntry).

    Args:
        cluster: The cluster.
        broker: The broker, whose configs are the defaults.
        configs: The configs of the topic.
        name: The topic config.
    """
    key = ALL_TOPIC_CONFIGS[name]
    synonyms = broker_config(cluster, broker, key.broker_name).synonyms if key.broker_name else []
    if name in configs:
        synonyms = [Synonym(name, key.normalized(configs[name]), ConfigSource.TOPIC_CONFIG), *synonyms]
    return Resolved(key.normalized(synonyms[0].value) if synonyms else key.default_text, synonyms)
