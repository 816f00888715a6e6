"""RenewDelegationToken: extends the lifetime of a delegation token (KIP-48)."""

from fakebroker.protocol.schema import Message
from fakebroker.protocol.types import Bytes, Int16, Int32, Int64


class RenewDelegationTokenRequest(Message, api_key=39, versions="0-2", flexible="2+"):
    hmac: Bytes
    renew_period_ms: Int64


class RenewDelegationTokenResponse(Message, api_key=39, versions="0-2", flexible="2+"):
    error_code: Int16
    expiry_timestamp_ms: Int64
    throttle_time_ms: Int32 = 0
