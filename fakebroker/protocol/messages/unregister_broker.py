"""UnregisterBroker: removes the registration of a broker that was shut down for good (KIP-631)."""

from fakebroker.protocol.schema import Message
from fakebroker.protocol.types import Int16, Int32, String


class UnregisterBrokerRequest(Message, api_key=64, versions="0", flexible="0+"):
    broker_id: Int32


class UnregisterBrokerResponse(Message, api_key=64, versions="0", flexible="0+"):
    throttle_time_ms: Int32 = 0
    error_code: Int16
    error_message: String | None
