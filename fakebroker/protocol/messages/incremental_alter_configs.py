"""IncrementalAlterConfigs: sets, deletes, appends to or subtracts from single configs (KIP-339)."""

from fakebroker.protocol.schema import Message, Struct
from fakebroker.protocol.types import Boolean, Int8, Int16, Int32, String


class AlterableConfig(Struct):
    name: String
    config_operation: Int8
    value: String | None


class AlterConfigsResource(Struct):
    resource_type: Int8
    resource_name: String
    configs: list[AlterableConfig]


class IncrementalAlterConfigsRequest(Message, api_key=44, versions="0-1", flexible="1+"):
    resources: list[AlterConfigsResource]
    validate_only: Boolean


class AlterConfigsResourceResponse(Struct):
    error_code: Int16
    error_message: String | None
    resource_type: Int8
    resource_name: String


class IncrementalAlterConfigsResponse(Message, api_key=44, versions="0-1", flexible="1+"):
    throttle_time_ms: Int32 = 0
    responses: list[AlterConfigsResourceResponse]
