"""AlterClientQuotas: sets and removes quotas of users, client ids and IP addresses (KIP-546)."""

from fakebroker.protocol.schema import Message, Struct, message, struct
from fakebroker.protocol.types import Boolean, Float64, Int16, Int32, String


@struct
class EntityData(Struct):
    entity_type: String
    entity_name: String | None


@struct
class OpData(Struct):
    key: String
    value: Float64
    remove: Boolean


@struct
class EntryData(Struct):
    entity: list[EntityData]
    ops: list[OpData]


@message(api_key=49, versions="0-1", flexible="1+")
class AlterClientQuotasRequest(Message):
    entries: list[EntryData]
    validate_only: Boolean


@struct
class EntryResult(Struct):
    error_code: Int16
    error_message: String | None
    entity: list[EntityData]


@message(api_key=49, versions="0-1", flexible="1+")
class AlterClientQuotasResponse(Message):
    throttle_time_ms: Int32 = 0
    entries: list[EntryResult]
