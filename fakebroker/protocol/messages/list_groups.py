"""ListGroups: the groups that a broker coordinates; by state since version 4 (KIP-518), by type since 5 (KIP-848)."""

from fakebroker.protocol.schema import Message, Struct, field
from fakebroker.protocol.types import Int16, Int32, String


class ListGroupsRequest(Message, api_key=16, versions="0-5", flexible="3+"):
    states_filter: list[String] = field(versions="4+", default_factory=list)
    types_filter: list[String] = field(versions="5+", default_factory=list)


class ListedGroup(Struct):
    group_id: String
    protocol_type: String
    group_state: String = field(versions="4+", ignorable=True, default="")
    group_type: String = field(versions="5+", ignorable=True, default="")


class ListGroupsResponse(Message, api_key=16, versions="0-5", flexible="3+"):
    throttle_time_ms: Int32 = field(versions="1+", ignorable=True, default=0)
    error_code: Int16 = 0
    groups: list[ListedGroup]
