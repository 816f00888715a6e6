"""JoinGroup: joins a group, or rejoins it in a rebalance. The response waits until all members have joined.

Version 10 is not part of Kafka but of the proposal `batch-join` (KAFKA-8397), in which one request joins several
members.
"""

from fakebroker.protocol.schema import Message, Struct, field
from fakebroker.protocol.types import Boolean, Bytes, Int16, Int32, String


class JoinGroupRequestProtocol(Struct):
    name: String
    metadata: Bytes


class JoinGroupRequestMember(Struct):
    """A member of a batch. A member without protocols is only announced: the group expects it to join later."""

    member_id: String
    group_instance_id: String | None = None
    protocols: list[JoinGroupRequestProtocol]


class JoinGroupRequest(Message, api_key=11, versions="0-10", flexible="6+"):
    group_id: String
    session_timeout_ms: Int32
    rebalance_timeout_ms: Int32 = field(versions="1+", ignorable=True, default=-1)
    member_id: String = field(versions="0-9", default="")
    group_instance_id: String | None = field(versions="5-9", default=None)
    protocol_type: String
    protocols: list[JoinGroupRequestProtocol] = field(versions="0-9", default_factory=list)
    reason: String | None = field(versions="8+", ignorable=True, default=None)
    join_group_members: list[JoinGroupRequestMember] = field(versions="10+", default_factory=list)


class JoinGroupResponseMember(Struct):
    member_id: String
    group_instance_id: String | None = field(versions="5+", ignorable=True, default=None)
    metadata: Bytes


class JoinGroupResponseResult(Struct):
    """The result of one member of a batch. The metadata of members that are only announced is empty."""

    member: JoinGroupResponseMember
    error_code: Int16


class JoinGroupResponse(Message, api_key=11, versions="0-10", flexible="6+"):
    throttle_time_ms: Int32 = field(versions="2+", ignorable=True, default=0)
    error_code: Int16 = field(versions="0-9", default=0)
    generation_id: Int32 = -1
    protocol_type: String | None = field(versions="7+", ignorable=True, default=None)
    protocol_name: String | None = field(nullable="7+")
    leader: String
    skip_assignment: Boolean = field(versions="9", default=False)
    member_id: String = field(versions="0-9", default="")
    members: list[JoinGroupResponseMember]
    member_join_response_list: list[JoinGroupResponseResult] = field(versions="10+", default_factory=list)
