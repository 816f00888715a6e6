"""DescribeClientQuotas: the quotas of users, client ids and IP addresses (KIP-546)."""

from fakebroker.protocol.schema import Message, Struct
from fakebroker.protocol.types import Boolean, Float64, Int8, Int16, Int32, String


class ComponentData(Struct):
    entity_type: String
    match_type: Int8
    match: String | None


class DescribeClientQuotasRequest(Message, api_key=48, versions="0-1", flexible="1+"):
    components: list[ComponentData]
    strict: Boolean


class EntityData(Struct):
    entity_type: String
    entity_name: String | None


class ValueData(Struct):
    key: String
    value: Float64


class EntryData(Struct):
    entity: list[EntityData]
    values: list[ValueData]


class DescribeClientQuotasResponse(Message, api_key=48, versions="0-1", flexible="1+"):
    throttle_time_ms: Int32 = 0
    error_code: Int16
    error_message: String | None
    entries: list[EntryData] | None
