"""DescribeClientQuotas: the quotas of users, client ids and IP addresses (KIP-546)."""

from fakebroker.protocol.schema import Message, Struct, message, struct
from fakebroker.protocol.types import Boolean, Float64, Int8, Int16, Int32, String


@struct
class ComponentData(Struct):
    entity_type: String
    match_type: Int8
    match: String | None


@message(api_key=48, versions="0-1", flexible="1+")
class DescribeClientQuotasRequest(Message):
    components: list[ComponentData]
    strict: Boolean


@struct
class EntityData(Struct):
    entity_type: String
    entity_name: String | None


@struct
class ValueData(Struct):
    key: String
    value: Float64


@struct
class EntryData(Struct):
    entity: list[EntityData]
    values: list[ValueData]


@message(api_key=48, versions="0-1", flexible="1+")
class DescribeClientQuotasResponse(Message):
    throttle_time_ms: Int32 = 0
    error_code: Int16
    error_message: String | None
    entries: list[EntryData] | None
