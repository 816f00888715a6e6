"""UnregisterController: removes the registration of a controller that was shut down for good (KIP-1312)."""

from fakebroker.protocol.schema import Message, message
from fakebroker.protocol.types import Int16, Int32, String


@message(api_key=94, versions="0", flexible="0+")
class UnregisterControllerRequest(Message):
    controller_id: Int32


@message(api_key=94, versions="0", flexible="0+")
class UnregisterControllerResponse(Message):
    throttle_time_ms: Int32 = 0
    error_code: Int16
    error_message: String | None
