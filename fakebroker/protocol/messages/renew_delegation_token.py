"""RenewDelegationToken: extends the lifetime of a delegation token (KIP-48)."""

from fakebroker.protocol.schema import Message, message
from fakebroker.protocol.types import Bytes, Int16, Int32, Int64


@message(api_key=39, versions="0-2", flexible="2+")
class RenewDelegationTokenRequest(Message):
    hmac: Bytes
    renew_period_ms: Int64


@message(api_key=39, versions="0-2", flexible="2+")
class RenewDelegationTokenResponse(Message):
    error_code: Int16
    expiry_timestamp_ms: Int64
    throttle_time_ms: Int32 = 0
