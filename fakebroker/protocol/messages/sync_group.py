"""SyncGroup: the leader sends the assignments of all members, and each member receives its own."""

from fakebroker.protocol.schema import Message, Struct, field
from fakebroker.protocol.types import Bytes, Int16, Int32, String


class SyncGroupRequestAssignment(Struct):
    member_id: String
    assignment: Bytes


class SyncGroupRequest(Message, api_key=14, versions="0-5", flexible="4+"):
    group_id: String
    generation_id: Int32
    member_id: String
    group_instance_id: String | None = field(versions="3+", default=None)
    protocol_type: String | None = field(versions="5+", ignorable=True, default=None)
    protocol_name: String | None = field(versions="5+", ignorable=True, default=None)
    assignments: list[SyncGroupRequestAssignment]


class SyncGroupResponse(Message, api_key=14, versions="0-5", flexible="4+"):
    throttle_time_ms: Int32 = field(versions="1+", ignorable=True, default=0)
    error_code: Int16 = 0
    protocol_type: String | None = field(versions="5+", ignorable=True, default=None)
    protocol_name: String | None = field(versions="5+", ignorable=True, default=None)
    assignment: Bytes
