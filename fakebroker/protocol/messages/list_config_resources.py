"""ListConfigResources: the names of resources with configs (KIP-1142). Before Kafka 4.1: ListClientMetricsResources."""

from fakebroker.protocol.schema import Message, Struct, field
from fakebroker.protocol.types import Int8, Int16, Int32, String


class ListConfigResourcesRequest(Message, api_key=74, versions="0-1", flexible="0+"):
    resource_types: list[Int8] = field(versions="1+", default_factory=list)


class ConfigResource(Struct):
    resource_name: String
    resource_type: Int8 = field(versions="1+", ignorable=True, default=16)


class ListConfigResourcesResponse(Message, api_key=74, versions="0-1", flexible="0+"):
    throttle_time_ms: Int32 = 0
    error_code: Int16
    config_resources: list[ConfigResource]
