"""AlterClientQuotas: sets and removes quotas of users, client ids and IP addresses (KIP-546)."""

from fakebroker.protocol.schema import Message, Struct
from fakebroker.protocol.types import Boolean, Float64, Int16, Int32, String


class EntityData(Struct):
    entity_type: String
    entity_name: String | None


class OpData(Struct):
    key: String
    value: Float64
    remove: Boolean


class EntryData(Struct):
    entity: list[EntityData]
    ops: list[OpData]


class AlterClientQuotasRequest(Message, api_key=49, versions="0-1", flexible="1+"):
    entries: list[EntryData]
    validate_only: Boolean


class EntryResult(Struct):
    error_code: Int16
    error_message: String | None
    entity: list[EntityData]


class AlterClientQuotasResponse(Message, api_key=49, versions="0-1", flexible="1+"):
    throttle_time_ms: Int32 = 0
    entries: list[EntryResult]
