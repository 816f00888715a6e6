"""The config `min.insync.replicas` in a cluster with eligible leader replicas (KIP-966).

All brokers of such a cluster share one value.
"""

from collections.abc import Mapping
from typing import Protocol

from fakebroker.cluster.broker import BrokerNode
from fakebroker.cluster.configs.settings import Config
from fakebroker.cluster.features import Features

MIN_ISR, ELIGIBLE_REPLICAS = "min.insync.replicas", "eligible.leader.replicas.version"


class ConfiguredCluster(Protocol):
    """The features, the settings and the dynamic configs of a cluster."""

    config: Config
    features: Features
    brokers: dict[int, BrokerNode]
    broker_configs: Mapping[str, str]


def store_min_isr(cluster: ConfiguredCluster) -> None:
    """Make all brokers share one `min.insync.replicas`. Has no effect while the feature is disabled.

    If no value is stored for all brokers, the value from the cluster's settings is stored. On every call, the values
    that single brokers have of their own are removed. Follows
    ConfigurationControlManager.maybeGenerateElrSafetyRecords.
    """
    if not cluster.features.level(ELIGIBLE_REPLICAS):
        return
    if MIN_ISR not in cluster.broker_configs:
        cluster.broker_configs = {**cluster.broker_configs, MIN_ISR: str(cluster.config.number(MIN_ISR))}
    for broker in cluster.brokers.values():
        broker.configs = {name: value for name, value in broker.configs.items() if name != MIN_ISR}
