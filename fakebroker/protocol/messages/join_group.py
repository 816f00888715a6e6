"""JoinGroup: enter a group, or a new generation of it; answered when the generation's members are known."""

from fakebroker.protocol.schema import Message, Struct, field, message, struct
from fakebroker.protocol.types import Boolean, Bytes, Int16, Int32, String


@struct
class JoinGroupRequestProtocol(Struct):
    name: String
    metadata: Bytes


@message(api_key=11, versions="0-9", flexible="6+")
class JoinGroupRequest(Message):
    group_id: String
    session_timeout_ms: Int32
    rebalance_timeout_ms: Int32 = field(versions="1+", ignorable=True, default=-1)
    member_id: String
    group_instance_id: String | None = field(versions="5+", default=None)
    protocol_type: String
    protocols: list[JoinGroupRequestProtocol]
    reason: String | None = field(versions="8+", ignorable=True, default=None)


@struct
class JoinGroupResponseMember(Struct):
    member_id: String
    group_instance_id: String | None = field(versions="5+", ignorable=True, default=None)
    metadata: Bytes


@message(api_key=11, versions="0-9", flexible="6+")
class JoinGroupResponse(Message):
    throttle_time_ms: Int32 = field(versions="2+", ignorable=True, default=0)
    error_code: Int16 = 0
    generation_id: Int32 = -1
    protocol_type: String | None = field(versions="7+", ignorable=True, default=None)
    protocol_name: String | None = field(nullable="7+")
    leader: String
    skip_assignment: Boolean = field(versions="9+", default=False)
    member_id: String
    members: list[JoinGroupResponseMember]
