"""DeleteGroups: deletes groups without members, and their committed offsets (KIP-229)."""

from fakebroker.protocol.schema import Message, Struct, field
from fakebroker.protocol.types import Int16, Int32, String


class DeleteGroupsRequest(Message, api_key=42, versions="0-3", flexible="2+"):
    groups_names: list[String]


class DeletableGroupResult(Struct):
    group_id: String
    error_code: Int16
    error_message: String | None = field(versions="3+", ignorable=True, default=None)  # KIP-1331


class DeleteGroupsResponse(Message, api_key=42, versions="0-3", flexible="2+"):
    throttle_time_ms: Int32 = 0
    results: list[DeletableGroupResult]
