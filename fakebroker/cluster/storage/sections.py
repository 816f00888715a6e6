"""The small parts of a cluster's state. A part that has changed is written as a whole."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from fakebroker.cluster.acl_rules import new_acls
from fakebroker.cluster.cluster import Cluster
from fakebroker.cluster.features import Features
from fakebroker.cluster.storage.entries import (
    Kind,
    StoredAcl,
    StoredAcls,
    StoredBroker,
    StoredBrokers,
    StoredFeatures,
    StoredQuotas,
    StoredResourceConfigs,
    StoredScram,
    StoredScramCredential,
)
from fakebroker.errors import ConfigError
from fakebroker.security.acls import Acl, AclOperation, AclPermission, PatternType, ResourcePattern, ResourceType
from fakebroker.security.mechanisms import ScramMechanism

if TYPE_CHECKING:
    from fakebroker.security.scram import ScramCredential


class Section(NamedTuple):
    """A part of the state.

    Attributes:
        type: The type of its content, for msgspec.
        read: Returns its content.
        restore: Changes a new cluster accordingly.
    """

    type: Any
    read: Callable[[Cluster], object]
    restore: Callable[[Cluster, Any], None]


def _brokers(cluster: Cluster) -> StoredBrokers:
    brokers = [StoredBroker(each.node_id, dict(each.configs)) for each in cluster.brokers.values()]
    return StoredBrokers(brokers, dict(cluster.broker_configs))


def _restore_brokers(cluster: Cluster, stored: StoredBrokers) -> None:
    """Set the configs of the brokers. All of them are up, and registered.

    Raises:
        ConfigError: The cluster has no broker with a node id that was stored.
    """
    cluster.broker_configs = stored.configs
    cluster.has_new_broker_configs = True
    node_ids = [each.node_id for each in stored.brokers]
    if not {*node_ids} <= cluster.brokers.keys():
        expected = f"all that are stored in data_dir: {', '.join(map(str, sorted(node_ids)))}"
        raise ConfigError.of("brokers", ", ".join(map(str, cluster.brokers)), expected, where="node ids")
    for each in stored.brokers:
        cluster.brokers[each.node_id].configs = each.configs


def _acls(cluster: Cluster) -> StoredAcls:
    if cluster.acls is None:
        return None
    return [StoredAcl(*acl.pattern, acl.principal, acl.host, acl.operation, acl.permission) for acl in cluster.acls]


def _restore_acls(cluster: Cluster, stored: StoredAcls) -> None:
    """Replace the ACLs. Without stored ones, those with which the cluster was created remain."""
    if stored is None:
        return
    cluster.acls = new_acls(
        cluster.config,
        [
            Acl(
                ResourcePattern(ResourceType(each.resource_type), each.name, PatternType(each.pattern_type)),
                each.principal,
                each.host,
                AclOperation(each.operation),
                AclPermission(each.permission),
            )
            for each in stored
        ],
    )


def _scram(cluster: Cluster) -> StoredScram:
    return [
        StoredScramCredential(user, mechanism)
        if found is None
        else StoredScramCredential(user, mechanism, found.salt, found.iterations, found.stored_key, found.server_key)
        for (user, mechanism), found in cluster.credentials.changes.items()
    ]


def _restore_scram(cluster: Cluster, stored: StoredScram) -> None:
    cluster.credentials.restore(
        {(each.user, ScramMechanism(each.mechanism)): _credential(each) if each.iterations else None for each in stored}
    )


def _credential(stored: StoredScramCredential) -> "ScramCredential":
    from fakebroker.security.scram import ScramCredential  # few clusters have users

    mechanism = ScramMechanism(stored.mechanism)
    return ScramCredential.of_keys(mechanism, stored.salt, stored.iterations, stored.stored_key, stored.server_key)


def _resource_configs(cluster: Cluster) -> StoredResourceConfigs:
    return [(type_, name, dict(configs)) for (type_, name), configs in cluster.resource_configs.items()]


def _restore_resource_configs(cluster: Cluster, stored: StoredResourceConfigs) -> None:
    cluster.resource_configs = {(type_, name): configs for type_, name, configs in stored}


def _quotas(cluster: Cluster) -> StoredQuotas:
    return [(entity, dict(limits)) for entity, limits in cluster.quotas.limits.items()]


def _restore_quotas(cluster: Cluster, stored: StoredQuotas) -> None:
    cluster.quotas.restore(dict(stored))


def _features(cluster: Cluster) -> StoredFeatures:
    return StoredFeatures(cluster.features.finalized, cluster.features.epoch)


def _restore_features(cluster: Cluster, stored: StoredFeatures) -> None:
    """Set the finalized features, unless the cluster had none, or has none because of the releases of its brokers."""
    if stored.epoch and cluster.features.epoch:
        cluster.features = Features(*stored)


SECTIONS: Mapping[Kind, Section] = {
    Kind.BROKERS: Section(StoredBrokers, _brokers, _restore_brokers),
    Kind.ACLS: Section(StoredAcls, _acls, _restore_acls),
    Kind.SCRAM: Section(StoredScram, _scram, _restore_scram),
    Kind.RESOURCE_CONFIGS: Section(StoredResourceConfigs, _resource_configs, _restore_resource_configs),
    Kind.QUOTAS: Section(StoredQuotas, _quotas, _restore_quotas),
    Kind.FEATURES: Section(StoredFeatures, _features, _restore_features),
}
"""All of them, except `StoredIds`, which change most often."""
