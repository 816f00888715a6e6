"""UnregisterController: removes the registration of a controller that was shut down for good (KIP-1312)."""

from fakebroker.protocol.schema import Message
from fakebroker.protocol.types import Int16, Int32, String


class UnregisterControllerRequest(Message, api_key=94, versions="0", flexible="0+"):
    controller_id: Int32


class UnregisterControllerResponse(Message, api_key=94, versions="0", flexible="0+"):
    throttle_time_ms: Int32 = 0
    error_code: Int16
    error_message: String | None
