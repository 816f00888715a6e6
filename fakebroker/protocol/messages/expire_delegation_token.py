"""ExpireDelegationToken: shortens the lifetime of a delegation token, or deletes it (KIP-48)."""

from fakebroker.protocol.schema import Message
from fakebroker.protocol.types import Bytes, Int16, Int32, Int64


class ExpireDelegationTokenRequest(Message, api_key=40, versions="0-2", flexible="2+"):
    hmac: Bytes
    expiry_time_period_ms: Int64


class ExpireDelegationTokenResponse(Message, api_key=40, versions="0-2", flexible="2+"):
    error_code: Int16
    expiry_timestamp_ms: Int64
    throttle_time_ms: Int32 = 0
