"""The effective value of a config: from the topic, the broker, the cluster, the broker's properties, or the default.

Altered configs are in `Topic.configs`, `BrokerNode.configs` and `Cluster.broker_configs`.
"""

from collections.abc import Iterable, Mapping
from enum import IntEnum
from itertools import dropwhile
from typing import TYPE_CHECKING, NamedTuple

from fakebroker.cluster.broker import BrokerNode
from fakebroker.cluster.configs.broker_configs import BROKER_CONFIGS, DEFAULTS, NODE_ID_CONFIGS, synonyms_of
from fakebroker.cluster.configs.definitions import config_text
from fakebroker.cluster.configs.settings import older_defaults
from fakebroker.cluster.configs.topic_configs import TOPIC_CONFIGS

if TYPE_CHECKING:
    from fakebroker.cluster.cluster import Cluster
    from fakebroker.cluster.topics import Topic


class ConfigSource(IntEnum):
    """Where a value comes from, by Kafka's numbers (DescribeConfigsResponse.ConfigSource)."""

    TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5


class Synonym(NamedTuple):
    """One source of a config's value."""

    name: str
    value: str
    source: ConfigSource


class Resolved(NamedTuple):
    """The value of a config, and all of its sources: the first one is used."""

    value: str | None
    synonyms: list[Synonym]

    @property
    def source(self) -> ConfigSource:
        return self.synonyms[0].source if self.synonyms else ConfigSource.DEFAULT_CONFIG


def static_configs(cluster: "Cluster", broker: BrokerNode) -> dict[str, str]:
    """Return the configs that a broker is started with."""
    given = {name: config_text(value) for name, value in cluster.config.overrides.items()}
    return given | dict.fromkeys(NODE_ID_CONFIGS, str(broker.node_id))


def default_configs(broker: BrokerNode) -> dict[str, str]:
    """Return the default configs of a broker's release."""
    return DEFAULTS | {name: config_text(value) for name, value in older_defaults(broker.release).items()}


def broker_config(cluster: "Cluster", broker: BrokerNode, name: str) -> Resolved:
    """Return a config of a broker (ConfigHelper.configSynonyms)."""
    names = synonyms_of(name)
    levels: tuple[tuple[ConfigSource, Mapping[str, str]], ...] = (
        (ConfigSource.DYNAMIC_BROKER_CONFIG, broker.configs),
        (ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG, cluster.broker_configs),
        (ConfigSource.STATIC_BROKER_CONFIG, static_configs(cluster, broker)),
        (ConfigSource.DEFAULT_CONFIG, default_configs(broker)),
    )
    found = [Synonym(each, values[each], source) for source, values in levels for each in names if each in values]
    return _resolved(name, list(dropwhile(lambda synonym: synonym.name != name, found)))


def default_broker_config(cluster: "Cluster", name: str) -> Resolved:
    """A config that all brokers of the cluster were given."""
    return _resolved(name, [Synonym(name, cluster.broker_configs[name], ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG)])


def _resolved(name: str, synonyms: list[Synonym]) -> Resolved:
    key = BROKER_CONFIGS.get(name)
    return Resolved(key.normalized(synonyms[0].value) if key is not None and synonyms else None, synonyms)


def topic_config(cluster: "Cluster", broker: BrokerNode, configs: Mapping[str, str], name: str) -> Resolved:
    """Return a config of a topic that has `configs` itself, at a broker (ConfigHelper.createTopicConfigEntry)."""
    key = TOPIC_CONFIGS[name]
    synonyms = broker_config(cluster, broker, key.broker_name).synonyms if key.broker_name else []
    if name in configs:
        synonyms = [Synonym(name, key.normalized(configs[name]), ConfigSource.TOPIC_CONFIG), *synonyms]
    return Resolved(key.normalized(synonyms[0].value) if synonyms else key.default_text, synonyms)


def topic_number(cluster: "Cluster", broker: BrokerNode, topic: "Topic", name: str) -> int:
    """Return the value of a topic config that has an effect, at a broker. Called for each appended batch."""
    broker_name = TOPIC_CONFIGS[name].broker_name
    text = topic.configs.get(name) or broker.configs.get(broker_name) or cluster.broker_configs.get(broker_name)
    return cluster.config.number(broker_name) if text is None else int(text)


def apply_retention(cluster: "Cluster", topics: Iterable["Topic"]) -> None:
    """Apply the retention of topics, as their leaders see it, to their logs."""
    for topic in topics:
        for partition in topic.partitions:
            leader = cluster.leader_of(partition)
            if leader is not None:
                partition.log.retain(topic_number(cluster, leader, topic, "retention.bytes"))
