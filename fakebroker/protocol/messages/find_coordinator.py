"""FindCoordinator: the coordinator of a group or transactional id; of several since version 4 (KIP-699)."""

from fakebroker.protocol.schema import Message, Struct, field
from fakebroker.protocol.types import Int8, Int16, Int32, String


class FindCoordinatorRequest(Message, api_key=10, versions="0-6", flexible="3+"):
    key: String = field(versions="0-3", default="")
    key_type: Int8 = field(versions="1+", default=0)
    coordinator_keys: list[String] = field(versions="4+", default_factory=list)


class Coordinator(Struct):
    key: String
    node_id: Int32
    host: String
    port: Int32
    error_code: Int16
    error_message: String | None


class FindCoordinatorResponse(Message, api_key=10, versions="0-6", flexible="3+"):
    throttle_time_ms: Int32 = field(versions="1+", ignorable=True, default=0)
    error_code: Int16 = field(versions="0-3", default=0)
    error_message: String | None = field(versions="1-3", ignorable=True, default="")
    node_id: Int32 = field(versions="0-3", default=0)
    host: String = field(versions="0-3", default="")
    port: Int32 = field(versions="0-3", default=0)
    coordinators: list[Coordinator] = field(versions="4+", default_factory=list)
