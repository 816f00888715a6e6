"""Heartbeat: keeps the session of a member alive. The error code of the response announces rebalances."""

from fakebroker.protocol.schema import Message, field
from fakebroker.protocol.types import Int16, Int32, String


class HeartbeatRequest(Message, api_key=12, versions="0-4", flexible="4+"):
    group_id: String
    generation_id: Int32
    member_id: String
    group_instance_id: String | None = field(versions="3+", default=None)


class HeartbeatResponse(Message, api_key=12, versions="0-4", flexible="4+"):
    throttle_time_ms: Int32 = field(versions="1+", ignorable=True, default=0)
    error_code: Int16 = 0
