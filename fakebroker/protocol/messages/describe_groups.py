"""DescribeGroups: the state of groups, and the members with their metadata and assignments."""

from fakebroker.protocol.schema import Message, Struct, field
from fakebroker.protocol.types import Boolean, Bytes, Int16, Int32, String

EXPECTED_TAG = 8397
"""The tagged field of a member that is expected, but has not joined. Not part of Kafka (KAFKA-8397)."""


class DescribeGroupsRequest(Message, api_key=15, versions="0-6", flexible="5+"):
    groups: list[String]
    include_authorized_operations: Boolean = field(versions="3+", default=False)


class DescribedGroupMember(Struct):
    member_id: String
    group_instance_id: String | None = field(versions="4+", ignorable=True, default=None)
    client_id: String
    client_host: String
    member_metadata: Bytes
    member_assignment: Bytes


class DescribedGroup(Struct):
    error_code: Int16
    error_message: String | None = field(versions="6+", default=None)
    group_id: String
    group_state: String
    protocol_type: String
    protocol_data: String
    members: list[DescribedGroupMember]
    authorized_operations: Int32 = field(versions="3+", default=-2147483648)


class DescribeGroupsResponse(Message, api_key=15, versions="0-6", flexible="5+"):
    throttle_time_ms: Int32 = field(versions="1+", ignorable=True, default=0)
    groups: list[DescribedGroup]
