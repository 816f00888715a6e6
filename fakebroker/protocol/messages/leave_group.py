"""LeaveGroup: removes a member from its group; several members since version 3 (KIP-345)."""

from fakebroker.protocol.schema import Message, Struct, field
from fakebroker.protocol.types import Int16, Int32, String


class MemberIdentity(Struct):
    member_id: String
    group_instance_id: String | None = None
    reason: String | None = field(versions="5+", ignorable=True, default=None)


class LeaveGroupRequest(Message, api_key=13, versions="0-5", flexible="4+"):
    group_id: String
    member_id: String = field(versions="0-2", default="")
    members: list[MemberIdentity] = field(versions="3+", default_factory=list)


class MemberResponse(Struct):
    member_id: String
    group_instance_id: String | None
    error_code: Int16


class LeaveGroupResponse(Message, api_key=13, versions="0-5", flexible="4+"):
    throttle_time_ms: Int32 = field(versions="1+", ignorable=True, default=0)
    error_code: Int16 = 0
    members: list[MemberResponse] = field(versions="3+", default_factory=list)
