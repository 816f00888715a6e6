"""AlterConfigs and IncrementalAlterConfigs: checks of the requested changes in Kafka's order, and the changes.

In Kafka the broker checks first (ConfigAdminManager.preprocess), then the controller (ConfigurationControlManager). For
each resource all changes are made, or none; resources are independent of each other.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple, TypeGuard

from fakebroker.cluster.authorization import cluster_error, group_error, topic_error
from fakebroker.cluster.broker import BrokerNode
from fakebroker.cluster.call import Call
from fakebroker.cluster.configs.broker_configs import broker_configs_error, known_configs
from fakebroker.cluster.configs.client_metrics import CLIENT_METRICS_CONFIGS, KIP_714, pattern_error
from fakebroker.cluster.configs.definitions import ConfigKey, ConfigType, items_of
from fakebroker.cluster.configs.eligible_replicas import ELIGIBLE_REPLICAS, MIN_ISR
from fakebroker.cluster.configs.group_configs import KIP_848, group_configs, group_configs_error
from fakebroker.cluster.configs.listener_settings import SSL_SETTINGS, without_prefix
from fakebroker.cluster.configs.log_config import log_config
from fakebroker.cluster.configs.log_levels import KIP_412, change_error, changed_levels
from fakebroker.cluster.configs.topic_configs import topic_configs, topic_configs_error, values_error
from fakebroker.cluster.faults.error_catalog import MESSAGES
from fakebroker.coordinator.classic.group import java_hash_map_order
from fakebroker.errors import ConfigError, ErrorCode, FakebrokerError
from fakebroker.protocol.releases import Release, has_patches_of_4_2
from fakebroker.security.acls import AclOperation
from fakebroker.topic_partition import name_error

if TYPE_CHECKING:
    from fakebroker.cluster.cluster import Cluster
    from fakebroker.cluster.topics import Topic


_BROKER_KNOWS_TYPES = Release(4, 3)
"""From here on the broker refuses to append to an unknown config; before, it fails."""


class ResourceType(IntEnum):
    """The supported types of resources (ConfigResource.Type)."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32

    @classmethod
    def of_release(cls, release: Release) -> list["ResourceType"]:
        """Return the types that a release knows."""
        since = {cls.BROKER_LOGGER: KIP_412, cls.CLIENT_METRICS: KIP_714, cls.GROUP: KIP_848}
        return [each for each in cls if each not in since or since[each] <= release]


class Operation(IntEnum):
    """The operations on one config (AlterConfigOp.OpType)."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class ConfigRefusedError(FakebrokerError):
    """A resource cannot be described, or its configs cannot be altered. As in Kafka, some errors have no message.

    Attributes:
        error_code: The error to return.
    """

    def __init__(self, error_code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.error_code = error_code


class Change(NamedTuple):
    """The change of one config. `operation` is the number in the request, possibly not one of `Operation`."""

    name: str
    value: str | None
    operation: int = Operation.SET


class ResourceChange(NamedTuple):
    """The changes of one resource. With `replaces`, configs that are not in `changes` are reset (AlterConfigs)."""

    resource_type: int
    resource_name: str
    changes: Sequence[Change]
    replaces: bool


class Outcome(NamedTuple):
    """The result for one resource."""

    error_code: ErrorCode
    message: str | None


def permission_error(
    cluster: "Cluster", call: Call, operation: AclOperation, resource_type: int, name: str
) -> ErrorCode:
    """Return the error if the client may not describe or alter the configs of a resource, else NONE.

    Topics and groups have their own permissions. For all other resources, the permissions of the cluster apply.
    """
    match resource_type:
        case ResourceType.TOPIC:
            return topic_error(cluster, call, operation, name)
        case ResourceType.GROUP:
            return group_error(cluster, call, operation, name)
        case _:
            return cluster_error(cluster, call, operation)


def alter(cluster: "Cluster", call: Call, resources: Sequence[ResourceChange], *, validate_only: bool) -> list[Outcome]:
    """Alter resources independently of each other, and return the result for each of them.

    Args:
        cluster: The cluster.
        call: The request.
        resources: The resources and their changes.
        validate_only: Whether to check the changes without making them.
    """
    occurrences = Counter((each.resource_type, each.resource_name) for each in resources)
    faults = [_fault(each.changes, occurrences[each.resource_type, each.resource_name]) for each in resources]
    # If Kafka's controller fails, it refuses all resources that the broker has not refused.
    fails = any(
        _fails_in_controller(each, call.broker.release)
        for each, fault in zip(resources, faults, strict=True)
        if fault is None
    )
    outcomes = []
    for each, fault in zip(resources, faults, strict=True):
        if fault is not None:
            outcomes.append(Outcome(ErrorCode.INVALID_REQUEST, fault))
            continue
        try:
            _alter(cluster, call, each, validate_only=validate_only, fails=fails)
            outcomes.append(Outcome(ErrorCode.NONE, None))
        except ConfigRefusedError as refused:
            outcomes.append(Outcome(refused.error_code, str(refused) or None))
    return outcomes


def _fails_in_controller(change: ResourceChange, release: Release) -> bool:
    """Return whether Kafka's controller fails on an unknown operation, unless a list operation has an error before.

    A broker itself checks the operations on its configs and loggers.
    """
    match change.resource_type:
        case ResourceType.TOPIC:
            keys = topic_configs(release)
        case ResourceType.GROUP if release >= KIP_848:
            keys = group_configs(release)
        case ResourceType.CLIENT_METRICS if release >= KIP_714:
            keys = {}
        case _:
            return False
    operations = {each.name: each.operation for each in change.changes}
    for name in java_hash_map_order(operations):
        if operations[name] not in list(Operation):
            return True
        if operations[name] in (Operation.APPEND, Operation.SUBTRACT) and not _is_list(keys.get(name)):
            return False
    return False


def require_own_name(broker: BrokerNode, name: str) -> None:
    """Require that the name of a resource is the node id of the broker that received the request.

    Raises:
        ConfigRefusedError: The name is not an integer, or is not the node id of this broker.
    """
    try:
        node_id = int(name)
    except ValueError:
        message = f"Node id must be an integer, but it is: {name}"
        raise ConfigRefusedError(ErrorCode.INVALID_REQUEST, message) from None
    if node_id != broker.node_id:
        message = f"Unexpected broker id, expected {broker.node_id}, but received {name}"
        raise ConfigRefusedError(ErrorCode.INVALID_REQUEST, message)


def require_topic_name(name: str) -> None:
    """Require a valid topic name.

    Raises:
        ConfigRefusedError: The name is not valid.
    """
    message = name_error(name)
    if message is not None:
        raise ConfigRefusedError(ErrorCode.INVALID_TOPIC_EXCEPTION, message)


def _fault(changes: Sequence[Change], occurrences: int) -> str | None:
    """Return an error message unless a resource and each of its configs occur once. Only deletions may lack a value."""
    if occurrences > 1:
        return "Each resource must appear at most once."
    if len({change.name for change in changes}) < len(changes):
        return "Error due to duplicate config keys"
    nulls = [each.name for each in changes if each.value is None and each.operation != Operation.DELETE]
    return f"Null value not supported for : {', '.join(nulls)}" if nulls else None


def _require_permission(cluster: "Cluster", call: Call, change: ResourceChange) -> None:
    error = permission_error(cluster, call, AclOperation.ALTER_CONFIGS, change.resource_type, change.resource_name)
    if error:
        is_by_broker = change.resource_type == ResourceType.BROKER_LOGGER or (
            change.resource_type == ResourceType.BROKER and has_patches_of_4_2(call.broker.release)
        )
        raise ConfigRefusedError(error, "" if is_by_broker else MESSAGES[error])


def _alter(cluster: "Cluster", call: Call, change: ResourceChange, *, validate_only: bool, fails: bool) -> None:
    """Alter one resource. Permission is checked first, but for brokers last if only the controller checks it.

    With `fails`, the controller fails.
    """
    broker = call.broker
    if change.resource_type == ResourceType.BROKER:
        if has_patches_of_4_2(broker.release):
            _require_permission(cluster, call, change)
        configs = _checked_broker_configs(cluster, broker, change)
    if fails and change.resource_type != ResourceType.BROKER_LOGGER and _knows(broker, change):
        raise ConfigRefusedError(ErrorCode.UNKNOWN_SERVER_ERROR, "")
    if change.resource_type == ResourceType.BROKER:
        _require_permission(cluster, call, change)
        fault = _eligible_replicas_error(cluster, change, configs)
        if fault is not None:
            raise ConfigRefusedError(ErrorCode.INVALID_CONFIG, fault)
        if not validate_only:
            _alter_broker(cluster, broker, change, configs)
        return
    if _knows(broker, change):
        _require_permission(cluster, call, change)
    match change.resource_type:
        case ResourceType.TOPIC:
            _alter_topic(cluster, broker, change, validate_only=validate_only)
        case ResourceType.BROKER_LOGGER if not change.replaces and _knows(broker, change):
            _alter_loggers(broker, change, validate_only=validate_only)
        case ResourceType.CLIENT_METRICS if _knows(broker, change):
            _alter_client_metrics(cluster, change, validate_only=validate_only)
        case ResourceType.GROUP if _knows(broker, change):
            _alter_group(cluster, broker, change, validate_only=validate_only)
        case _:
            raise ConfigRefusedError(ErrorCode.INVALID_REQUEST, f"Unknown resource type {change.resource_type}")


def _eligible_replicas_error(cluster: "Cluster", change: ResourceChange, configs: Mapping[str, str]) -> str | None:
    """Return why `min.insync.replicas` cannot be changed so with eligible leader replicas (KIP-966), or None."""
    is_changed = MIN_ISR in {each.name for each in change.changes}
    if not cluster.features.level(ELIGIBLE_REPLICAS):
        return None
    if change.resource_name:
        return f"Broker-level {MIN_ISR} cannot be altered while ELR is enabled." if is_changed else None
    is_removed = (is_changed or change.replaces) and MIN_ISR not in configs
    return f"Cluster-level {MIN_ISR} cannot be removed while ELR is enabled." if is_removed else None


def _alter_topic(cluster: "Cluster", broker: BrokerNode, change: ResourceChange, *, validate_only: bool) -> None:
    name = change.resource_name
    topic = cluster.topics.get(name)
    keys = topic_configs(broker.release)
    # Configs that an upgrade has removed are dropped.
    current = {} if topic is None else {name: value for name, value in topic.configs.items() if name in keys}
    configs = _changed(current, change, keys)
    if not name:
        raise ConfigRefusedError(ErrorCode.INVALID_REQUEST, "Default topic resources are not allowed.")
    require_topic_name(name)
    fault = topic_configs_error(configs, broker.release)
    if fault is not None:
        raise ConfigRefusedError(ErrorCode.INVALID_CONFIG, fault)
    if topic is None:
        raise ConfigRefusedError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")
    if not validate_only:
        topic.configs = configs
        cluster.topics.record(topic)
        _apply(cluster, [topic])


def _checked_broker_configs(cluster: "Cluster", broker: BrokerNode, change: ResourceChange) -> dict[str, str]:
    """Return the configs that the broker that received the request would have; without a resource name, all brokers."""
    if change.resource_name:
        require_own_name(broker, change.resource_name)
    known = {name: config.key for name, config in known_configs(broker.release).items()}
    current = broker.configs if change.resource_name else cluster.broker_configs
    configs = _changed(current, change, known, fails=broker.release < _BROKER_KNOWS_TYPES)
    fault = broker_configs_error(broker.release, configs, cluster_wide=not change.resource_name)
    if fault is not None:
        raise ConfigRefusedError(ErrorCode.INVALID_REQUEST, fault)
    if change.resource_name and any(without_prefix(each.name) in SSL_SETTINGS for each in change.changes):
        try:
            cluster.check_listener_configs(broker, configs)
        except ConfigError as error:
            message = f"Validation of dynamic config update of SSLFactory failed: {error}"
            raise ConfigRefusedError(ErrorCode.INVALID_REQUEST, message) from error
    return configs


def _alter_broker(cluster: "Cluster", broker: BrokerNode, change: ResourceChange, configs: Mapping[str, str]) -> None:
    if change.resource_name:
        broker.configs = configs
    else:
        cluster.broker_configs = configs
    cluster.has_new_broker_configs = True
    _apply(cluster, cluster.topics)


def _apply(cluster: "Cluster", topics: Iterable["Topic"]) -> None:
    """Apply changed configs to the logs of topics: a log that is too large drops its oldest batches.

    The partition's leader determines the configs. The log of a partition without a leader keeps its limit. At the next
    check, expired records are deleted and logs are compacted.
    """
    for topic in topics:
        for partition in topic.partitions:
            leader = cluster.leader_of(partition)
            if leader is not None:
                partition.log.retain(log_config(cluster, leader, topic).keep_bytes)
    cluster.log_manager.schedule(cluster.now_ms)
    cluster.controller.copies.reschedule(cluster.now_ms)


def _knows(broker: BrokerNode, change: ResourceChange) -> bool:
    """Return whether the type of a resource exists in the release of a broker."""
    return change.resource_type in ResourceType.of_release(broker.release)


def _alter_loggers(broker: BrokerNode, change: ResourceChange, *, validate_only: bool) -> None:
    require_own_name(broker, change.resource_name)
    error = change_error(change.changes)
    if error is not None:
        raise ConfigRefusedError(*error)
    if not validate_only:
        broker.log_levels = changed_levels(broker.log_levels, change.changes)


def _alter_client_metrics(cluster: "Cluster", change: ResourceChange, *, validate_only: bool) -> None:
    # As in Kafka, none of their configs counts as a list.
    configs = _changed(_resource_configs(cluster, change), change, {})
    if not change.resource_name:
        raise ConfigRefusedError(ErrorCode.INVALID_REQUEST, "Subscription name can't be empty")
    unknown = [name for name in configs if name not in CLIENT_METRICS_CONFIGS]
    if unknown:
        raise ConfigRefusedError(ErrorCode.INVALID_REQUEST, f"Unknown client metrics configuration: {unknown[0]}")
    fault = values_error(configs, CLIENT_METRICS_CONFIGS)
    if fault is not None:
        raise ConfigRefusedError(ErrorCode.INVALID_REQUEST, fault)
    fault = pattern_error(configs)
    if fault is not None:
        raise ConfigRefusedError(ErrorCode.INVALID_CONFIG, fault)
    if not validate_only:
        _store(cluster, change, configs)


def _alter_group(cluster: "Cluster", broker: BrokerNode, change: ResourceChange, *, validate_only: bool) -> None:
    configs = _changed(_resource_configs(cluster, change), change, group_configs(broker.release))
    if not change.resource_name:
        raise ConfigRefusedError(ErrorCode.INVALID_REQUEST, "Default group resources are not allowed.")
    fault = group_configs_error(configs, broker.release, cluster.config.of_release(broker.release))
    if fault is not None:
        raise ConfigRefusedError(ErrorCode.INVALID_CONFIG, fault)
    if not validate_only:
        _store(cluster, change, configs)


def _resource_configs(cluster: "Cluster", change: ResourceChange) -> Mapping[str, str]:
    return cluster.resource_configs.get((change.resource_type, change.resource_name), {})


def _store(cluster: "Cluster", change: ResourceChange, configs: Mapping[str, str]) -> None:
    """Keep the configs of a group or subscription, which exists while it has some."""
    stored = {**cluster.resource_configs, (change.resource_type, change.resource_name): configs}
    cluster.resource_configs = {key: kept for key, kept in stored.items() if kept}


def _changed(
    current: Mapping[str, str], change: ResourceChange, keys: Mapping[str, ConfigKey], *, fails: bool = False
) -> dict[str, str]:
    """Return the configs that a resource would have after a change.

    With `fails`, the broker fails if an item is appended to an unknown config.
    """
    configs = {} if change.replaces else dict(current)
    changes = {each.name: each for each in change.changes}
    is_of_broker = change.resource_type in (ResourceType.BROKER, ResourceType.BROKER_LOGGER)
    # The controller has them in a hash map, so that its order decides between errors.
    for name in changes if is_of_broker else java_hash_map_order(changes):
        _, value, operation = changes[name]
        match operation:
            case Operation.SET:
                configs[name] = value or ""
            case Operation.DELETE:
                configs.pop(name, None)
            case Operation.APPEND | Operation.SUBTRACT:
                key = keys.get(name)
                if not _is_list(key):
                    if fails and key is None:
                        raise ConfigRefusedError(ErrorCode.UNKNOWN_SERVER_ERROR, "")
                    message = _no_list(change.resource_type, name, Operation(operation), is_known=key is not None)
                    raise ConfigRefusedError(ErrorCode.INVALID_CONFIG, message)
                configs[name] = _changed_list(configs.get(name), Operation(operation), value or "", key)
            case _:
                message = f"Unknown operations type {operation}: expected {', '.join(map(str, map(int, Operation)))}"
                raise ConfigRefusedError(ErrorCode.INVALID_REQUEST, message)
    return configs


def _is_list(key: ConfigKey | None) -> TypeGuard[ConfigKey]:
    return key is not None and key.type is ConfigType.LIST


def _no_list(resource_type: int, name: str, operation: Operation, *, is_known: bool) -> str:
    """Return why no item can be appended to a config, or removed: brokers have another text than the controller."""
    if resource_type != ResourceType.BROKER:
        return f"Can't {operation.name} to key {name} because its type is not LIST."
    if not is_known:
        return f"Unknown config name: {name}"
    return f"Config value {operation.name.lower()} is not allowed for config key: {name}"


def _changed_list(current: str | None, operation: Operation, value: str, key: ConfigKey) -> str:
    """Return a list config with items appended or removed; `current` is its value, None for the default."""
    items = items_of((key.default_text or "") if current is None else current, key.type)
    operands = items_of(value, key.type) or [""]  # as Java splits an empty text
    if operation is Operation.SUBTRACT:
        return ",".join(item for item in items if item not in operands)
    return ",".join(dict.fromkeys([*items, *operands]))
