"""AlterConfigs: replaces all configs of topics or brokers; configs not given are reset to defaults (KIP-133)."""

from fakebroker.protocol.schema import Message, Struct, message, struct
from fakebroker.protocol.types import Boolean, Int8, Int16, Int32, String


@struct
class AlterableConfig(Struct):
    name: String
    value: String | None


@struct
class AlterConfigsResource(Struct):
    resource_type: Int8
    resource_name: String
    configs: list[AlterableConfig]


@message(api_key=33, versions="0-2", flexible="2+")
class AlterConfigsRequest(Message):
    resources: list[AlterConfigsResource]
    validate_only: Boolean


@struct
class AlterConfigsResourceResponse(Struct):
    error_code: Int16
    error_message: String | None
    resource_type: Int8
    resource_name: String


@message(api_key=33, versions="0-2", flexible="2+")
class AlterConfigsResponse(Message):
    throttle_time_ms: Int32 = 0
    responses: list[AlterConfigsResourceResponse]
