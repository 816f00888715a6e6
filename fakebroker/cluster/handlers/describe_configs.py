"""DescribeConfigs: the configs of topics, brokers and groups, with the sources of their values (ConfigHelper).

Also log levels and subscriptions of client metrics.
"""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from fakebroker.cluster.broker import BrokerNode
from fakebroker.cluster.call import Call
from fakebroker.cluster.configs.broker_configs import config_of, listed_configs
from fakebroker.cluster.configs.changes import (
    ConfigRefusedError,
    ResourceType,
    permission_error,
    require_own_name,
    require_topic_name,
)
from fakebroker.cluster.configs.client_metrics import CLIENT_METRICS_CONFIGS
from fakebroker.cluster.configs.definitions import ConfigKey, ConfigType
from fakebroker.cluster.configs.group_configs import effective_group_configs
from fakebroker.cluster.configs.listener_settings import without_prefix
from fakebroker.cluster.configs.log_levels import LOGGERS, level
from fakebroker.cluster.configs.resolution import (
    ConfigSource,
    Resolved,
    Synonym,
    broker_config,
    default_broker_config,
    topic_config,
)
from fakebroker.cluster.configs.topic_configs import topic_configs
from fakebroker.cluster.faults.error_catalog import MESSAGES
from fakebroker.errors import ErrorCode
from fakebroker.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from fakebroker.protocol.releases import Release
from fakebroker.security.acls import AclOperation

if TYPE_CHECKING:
    from fakebroker.cluster.cluster import Cluster


KAFKA_20289 = Release(4, 3)
"""The first release in which the configs of brokers are synonyms of those of groups."""

GROUP_CONFIG_SYNONYMS = {"streams.assignor.name": "group.streams.assignors"}
"""The broker configs that are the defaults of group configs, if they are not named alike."""

KAFKA_17516 = Release(4, 1)
"""The first release that shows the defaults of subscriptions of client metrics."""


def handle(cluster: "Cluster", call: Call, now_ms: float) -> DescribeConfigsResponse:
    request: DescribeConfigsRequest = call.request
    known = ResourceType.of_release(call.broker.release)
    unknown = [each.resource_type for each in request.resources if each.resource_type not in known]
    if unknown:
        # As in Kafka, the whole request fails if one type is unknown.
        message = f"Unexpected resource type {unknown[0]}: expected {', '.join(map(str, map(int, known)))}"
        return DescribeConfigsResponse(
            results=[_refused(each, ErrorCode.INVALID_REQUEST, message) for each in request.resources]
        )
    return DescribeConfigsResponse(results=[_result(cluster, call, each) for each in request.resources])


def _refused(resource: DescribeConfigsResource, error: ErrorCode, message: str) -> DescribeConfigsResult:
    return DescribeConfigsResult(
        error_code=error,
        error_message=message,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
        configs=[],
    )


def _result(cluster: "Cluster", call: Call, resource: DescribeConfigsResource) -> DescribeConfigsResult:
    name = resource.resource_name
    if error := permission_error(cluster, call, AclOperation.DESCRIBE_CONFIGS, resource.resource_type, name):
        return _refused(resource, error, MESSAGES[error])
    try:
        configs = _configs(cluster, call, resource)
    except ConfigRefusedError as refused:
        return _refused(resource, refused.error_code, str(refused))
    return DescribeConfigsResult(
        error_code=ErrorCode.NONE,
        error_message="",
        resource_type=resource.resource_type,
        resource_name=name,
        configs=configs,
    )


def _configs(cluster: "Cluster", call: Call, resource: DescribeConfigsResource) -> list[DescribeConfigsResourceResult]:
    name = resource.resource_name
    match resource.resource_type:
        case ResourceType.TOPIC:
            return _topic(cluster, call, resource)
        case ResourceType.BROKER if not name:
            return _cluster_wide(cluster, call, resource)
        case ResourceType.BROKER:
            require_own_name(call.broker, name)
            return _broker(cluster, call, resource)
        case ResourceType.BROKER_LOGGER:
            require_own_name(call.broker, name)
            return _loggers(call, resource)
        case ResourceType.CLIENT_METRICS:
            return _client_metrics(cluster, call, resource)
        case _:
            return _group(cluster, call, resource)


def _topic(cluster: "Cluster", call: Call, resource: DescribeConfigsResource) -> list[DescribeConfigsResourceResult]:
    name = resource.resource_name
    require_topic_name(name)
    topic = cluster.topics.get(name)
    if topic is None:
        raise ConfigRefusedError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "")
    keys = topic_configs(call.broker.release)
    return [
        _entry(call, each, keys[each], topic_config(cluster, call.broker, topic.configs, each))
        for each in _requested_names(resource, keys)
    ]


def _broker(cluster: "Cluster", call: Call, resource: DescribeConfigsResource) -> list[DescribeConfigsResourceResult]:
    """Return all configs of a broker, including configs that were set and have no definition."""
    listed = listed_configs(call.broker.release)
    of_listeners = [each for each in cluster.config.overrides if each != without_prefix(each)]
    names = dict.fromkeys([*listed, *of_listeners, *call.broker.configs, *cluster.broker_configs])
    return [
        _broker_entry(call, each, broker_config(cluster, call.broker, each))
        for each in _requested_names(resource, names)
    ]


def _cluster_wide(
    cluster: "Cluster", call: Call, resource: DescribeConfigsResource
) -> list[DescribeConfigsResourceResult]:
    """Return the dynamic configs of all brokers."""
    return [
        _broker_entry(call, each, default_broker_config(cluster, call.broker, each))
        for each in _requested_names(resource, cluster.broker_configs)
    ]


def _loggers(call: Call, resource: DescribeConfigsResource) -> list[DescribeConfigsResourceResult]:
    """Return the log levels of the broker. As in Kafka, they have neither a type nor synonyms."""
    source = ConfigSource.DYNAMIC_BROKER_LOGGER_CONFIG
    return [_untyped(each, level(each, call.broker.log_levels), source) for each in _requested_names(resource, LOGGERS)]


def _client_metrics(
    cluster: "Cluster", call: Call, resource: DescribeConfigsResource
) -> list[DescribeConfigsResourceResult]:
    """Return the configs of a subscription of client metrics, which need not exist; before 4.1, those that were set."""
    name = resource.resource_name
    if not name:
        raise ConfigRefusedError(ErrorCode.INVALID_REQUEST, "Client metrics subscription name must not be empty")
    configs = cluster.resource_configs.get((ResourceType.CLIENT_METRICS, name), {})
    if call.broker.release < KAFKA_17516:
        source = ConfigSource.CLIENT_METRICS_CONFIG
        return [_untyped(each, configs[each], source) for each in _requested_names(resource, configs)]
    return [
        _entry(call, each, key, _subscription_config(key, each, configs))
        for each in _requested_names(resource, CLIENT_METRICS_CONFIGS)
        for key in [CLIENT_METRICS_CONFIGS[each]]
    ]


def _subscription_config(key: ConfigKey, name: str, configs: Mapping[str, str]) -> Resolved:
    """Return a config of a subscription. As in Kafka, a default is not among its synonyms."""
    if name not in configs:
        return Resolved(key.default_text or "", [])
    value = key.normalized(configs[name])
    return Resolved(value, [Synonym(name, value, ConfigSource.CLIENT_METRICS_CONFIG)])


def _group(cluster: "Cluster", call: Call, resource: DescribeConfigsResource) -> list[DescribeConfigsResourceResult]:
    """Return all configs of a group, which need not exist."""
    name = resource.resource_name
    if not name:
        raise ConfigRefusedError(ErrorCode.INVALID_REQUEST, "Group name must not be empty")
    configs = cluster.resource_configs.get((ResourceType.GROUP, name), {})
    keys = effective_group_configs(call.broker.release, cluster.config.of_release(call.broker.release))
    return [
        _entry(call, each, keys[each], _group_config(cluster, call.broker, keys[each], each, configs))
        for each in _requested_names(resource, keys)
    ]


def _group_config(
    cluster: "Cluster", broker: BrokerNode, key: ConfigKey, name: str, configs: Mapping[str, str]
) -> Resolved:
    own = [Synonym(name, key.normalized(configs[name]), ConfigSource.GROUP_CONFIG)] if name in configs else []
    of_brokers: list[Synonym] = []
    if broker.release >= KAFKA_20289:
        broker_name = GROUP_CONFIG_SYNONYMS.get(name, f"group.{name}")
        of_brokers = broker_config(cluster, broker, broker_name).synonyms
    if not own and not of_brokers:
        of_brokers = [Synonym(name, key.normalized(key.default_text or ""), ConfigSource.DEFAULT_CONFIG)]
    synonyms = [*own, *of_brokers]
    return Resolved(synonyms[0].value, synonyms)


def _untyped(name: str, value: str, source: ConfigSource) -> DescribeConfigsResourceResult:
    return DescribeConfigsResourceResult(
        name=name, value=value, read_only=False, config_source=source, is_default=False, is_sensitive=False, synonyms=[]
    )


def _requested_names(resource: DescribeConfigsResource, names: Iterable[str]) -> list[str]:
    """Return the requested names among `names`, sorted. A request without names asks for all."""
    requested = resource.configuration_keys
    return [name for name in sorted(names) if not requested or name in requested]


def _broker_entry(call: Call, name: str, resolved: Resolved) -> DescribeConfigsResourceResult:
    known = config_of(call.broker.release, name)
    if known is None:
        return _entry(call, name, None, resolved, read_only=True)
    return _entry(call, name, known.key, resolved, read_only=not known.is_dynamic)


def _entry(
    call: Call, name: str, key: ConfigKey | None, resolved: Resolved, read_only: bool = False
) -> DescribeConfigsResourceResult:
    """Describe one config. The values of passwords, and of configs without a definition (`key`), are not returned."""
    is_sensitive = key is None or key.type is ConfigType.PASSWORD
    request: DescribeConfigsRequest = call.request
    synonyms = resolved.synonyms if request.include_synonyms else []
    return DescribeConfigsResourceResult(
        name=name,
        value=None if is_sensitive else resolved.value,
        read_only=read_only,
        config_source=resolved.source,
        is_default=call.api_version == 0 and resolved.source is ConfigSource.DEFAULT_CONFIG,
        is_sensitive=is_sensitive,
        synonyms=[
            DescribeConfigsSynonym(name=each.name, value=None if is_sensitive else each.value, source=each.source)
            for each in synonyms
        ],
        config_type=ConfigType.UNKNOWN if key is None else key.type,
        documentation=(key.about if key else "") if request.include_documentation else None,
    )
