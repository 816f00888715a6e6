"""JoinGroup: joins a group, or rejoins it in a rebalance. The response waits until all members have joined."""

from fakebroker.protocol.schema import Message, Struct, field
from fakebroker.protocol.types import Boolean, Bytes, Int16, Int32, String


class JoinGroupRequestProtocol(Struct):
    name: String
    metadata: Bytes


class JoinGroupRequest(Message, api_key=11, versions="0-9", flexible="6+"):
    group_id: String
    session_timeout_ms: Int32
    rebalance_timeout_ms: Int32 = field(versions="1+", ignorable=True, default=-1)
    member_id: String = ""
    group_instance_id: String | None = field(versions="5+", default=None)
    protocol_type: String
    protocols: list[JoinGroupRequestProtocol] = field(default_factory=list)
    reason: String | None = field(versions="8+", ignorable=True, default=None)


class JoinGroupResponseMember(Struct):
    member_id: String
    group_instance_id: String | None = field(versions="5+", ignorable=True, default=None)
    metadata: Bytes


class JoinGroupResponse(Message, api_key=11, versions="0-9", flexible="6+"):
    throttle_time_ms: Int32 = field(versions="2+", ignorable=True, default=0)
    error_code: Int16 = 0
    generation_id: Int32 = -1
    protocol_type: String | None = field(versions="7+", ignorable=True, default=None)
    protocol_name: String | None = field(nullable="7+")
    leader: String
    skip_assignment: Boolean = field(versions="9+", default=False)
    member_id: String = ""
    members: list[JoinGroupResponseMember]
