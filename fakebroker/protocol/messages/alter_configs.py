"""AlterConfigs: replaces all configs of topics or brokers; configs not given are reset to defaults (KIP-133)."""

from fakebroker.protocol.schema import Message, Struct
from fakebroker.protocol.types import Boolean, Int8, Int16, Int32, String


class AlterableConfig(Struct):
    name: String
    value: String | None


class AlterConfigsResource(Struct):
    resource_type: Int8
    resource_name: String
    configs: list[AlterableConfig]


class AlterConfigsRequest(Message, api_key=33, versions="0-2", flexible="2+"):
    resources: list[AlterConfigsResource]
    validate_only: Boolean


class AlterConfigsResourceResponse(Struct):
    error_code: Int16
    error_message: String | None
    resource_type: Int8
    resource_name: String


class AlterConfigsResponse(Message, api_key=33, versions="0-2", flexible="2+"):
    throttle_time_ms: Int32 = 0
    responses: list[AlterConfigsResourceResponse]
