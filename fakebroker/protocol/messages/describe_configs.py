"""DescribeConfigs: the configs of topics and brokers, and the source of each value (KIP-133, KIP-226, KIP-569)."""

from fakebroker.protocol.schema import Message, Struct, field
from fakebroker.protocol.types import Boolean, Int8, Int16, Int32, String


class DescribeConfigsResource(Struct):
    resource_type: Int8
    resource_name: String
    configuration_keys: list[String] | None


class DescribeConfigsRequest(Message, api_key=32, versions="0-4", flexible="4+"):
    resources: list[DescribeConfigsResource]
    include_synonyms: Boolean = field(versions="1+", default=False)
    include_documentation: Boolean = field(versions="3+", default=False)


class DescribeConfigsSynonym(Struct):
    name: String
    value: String | None
    source: Int8


class DescribeConfigsResourceResult(Struct):
    name: String
    value: String | None
    read_only: Boolean
    config_source: Int8 = field(versions="1+", ignorable=True, default=-1)
    is_default: Boolean = field(versions="0", default=False)
    is_sensitive: Boolean
    synonyms: list[DescribeConfigsSynonym] = field(versions="1+", ignorable=True, default_factory=list)
    config_type: Int8 = field(versions="3+", ignorable=True, default=0)
    documentation: String | None = field(versions="3+", ignorable=True, default="")


class DescribeConfigsResult(Struct):
    error_code: Int16
    error_message: String | None
    resource_type: Int8
    resource_name: String
    configs: list[DescribeConfigsResourceResult]


class DescribeConfigsResponse(Message, api_key=32, versions="0-4", flexible="4+"):
    throttle_time_ms: Int32 = 0
    results: list[DescribeConfigsResult]
