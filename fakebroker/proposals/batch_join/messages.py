"""Version 10 of JoinGroup, in which one request joins many members, and expected members in the record of a group."""

from fakebroker.proposals import new_api
from fakebroker.protocol.messages.join_group import JoinGroupRequestProtocol, JoinGroupResponseMember
from fakebroker.protocol.schema import Message, Struct, field
from fakebroker.protocol.types import Int16, Int32, String

JOIN_GROUP = new_api("batch-join", "JoinGroup", "10", messages="messages.BatchJoinGroup", handler="handler")


class BatchJoinGroupRequestMember(Struct):
    """A member of a batch. A member without protocols is only announced: the group expects it to join later."""

    member_id: String
    group_instance_id: String | None = None
    protocols: list[JoinGroupRequestProtocol]


class BatchJoinGroupRequest(Message, api_key=11, versions="10", flexible="10+"):
    API = JOIN_GROUP
    group_id: String
    session_timeout_ms: Int32
    rebalance_timeout_ms: Int32 = field(ignorable=True, default=-1)
    protocol_type: String
    reason: String | None = field(ignorable=True, default=None)
    join_group_members: list[BatchJoinGroupRequestMember] = field(default_factory=list)

    @property
    def named_groups(self) -> list[str]:
        return [self.group_id]

    @property
    def named_members(self) -> list[str]:
        return [each.member_id for each in self.join_group_members]

    @property
    def named_instances(self) -> list[str | None]:
        return [each.group_instance_id for each in self.join_group_members]


class BatchJoinGroupResponseResult(Struct):
    """The result of one member of a batch. The metadata of members that are only announced is empty."""

    member: JoinGroupResponseMember
    error_code: Int16


class BatchJoinGroupResponse(Message, api_key=11, versions="10", flexible="10+"):
    API = JOIN_GROUP
    throttle_time_ms: Int32 = field(ignorable=True, default=0)
    generation_id: Int32 = -1
    protocol_type: String | None = field(ignorable=True, default=None)
    protocol_name: String | None
    leader: String
    members: list[JoinGroupResponseMember]
    member_join_response_list: list[BatchJoinGroupResponseResult] = field(default_factory=list)

    @property
    def named_members(self) -> list[str]:
        return [each.member.member_id for each in self.member_join_response_list]


EXPECTED_MEMBERS_TAG = 8397
"""The tagged field of a GroupMetadataValue that contains `ExpectedMembers`; unlikely to be used by Kafka."""


class ExpectedMember(Struct):
    group_instance_id: String
    member_id: String
    rebalance_timeout: Int32


class ExpectedMembers(Message, versions="0", flexible="0"):
    """Static instances that are expected in a group."""

    members: list[ExpectedMember]
