"""ListConfigResources: the names of the resources of each type that have configs (KafkaApis.handleListConfigResources).

Version 0, ListClientMetricsResources in Kafka before 4.1, lists subscriptions of client metrics only.
"""

from typing import TYPE_CHECKING

from fakebroker.cluster.authorization import cluster_error
from fakebroker.cluster.call import Call
from fakebroker.cluster.configs.changes import ResourceType
from fakebroker.errors import ErrorCode
from fakebroker.protocol.messages.list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from fakebroker.security.acls import AclOperation

if TYPE_CHECKING:
    from fakebroker.cluster.cluster import Cluster


def handle(cluster: "Cluster", call: Call, now_ms: float) -> ListConfigResourcesResponse:
    request: ListConfigResourcesRequest = call.request
    if error := cluster_error(cluster, call, AclOperation.DESCRIBE_CONFIGS):
        return ListConfigResourcesResponse(error_code=error, config_resources=[])
    types = request.resource_types or list(ResourceType)
    if call.api_version == 0:
        types = [ResourceType.CLIENT_METRICS]
    if any(each not in list(ResourceType) for each in types):
        return ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, config_resources=[])
    return ListConfigResourcesResponse(
        error_code=ErrorCode.NONE,
        config_resources=[
            ConfigResource(resource_name=name, resource_type=type_)
            for type_ in ResourceType
            if type_ in types
            for name in _names(cluster, type_)
        ],
    )


def _names(cluster: "Cluster", type_: ResourceType) -> list[str]:
    match type_:
        case ResourceType.TOPIC:
            return [topic.name for topic in cluster.topics]
        case ResourceType.BROKER | ResourceType.BROKER_LOGGER:
            return [str(node_id) for node_id in cluster.brokers]
        case _:
            return [name for resource_type, name in cluster.resource_configs if resource_type == type_]
