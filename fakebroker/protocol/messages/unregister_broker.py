"""UnregisterBroker: removes the registration of a broker that was shut down for good (KIP-631)."""

from fakebroker.protocol.schema import Message, message
from fakebroker.protocol.types import Int16, Int32, String


@message(api_key=64, versions="0", flexible="0+")
class UnregisterBrokerRequest(Message):
    broker_id: Int32


@message(api_key=64, versions="0", flexible="0+")
class UnregisterBrokerResponse(Message):
    throttle_time_ms: Int32 = 0
    error_code: Int16
    error_message: String | None
