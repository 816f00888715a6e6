"""SaslAuthenticate: carries the bytes of a SASL mechanism (KIP-152)."""

from fakebroker.protocol.schema import Message, field
from fakebroker.protocol.types import Bytes, Int16, Int64, String


class SaslAuthenticateRequest(Message, api_key=36, versions="0-2", flexible="2+"):
    auth_bytes: Bytes


class SaslAuthenticateResponse(Message, api_key=36, versions="0-2", flexible="2+"):
    error_code: Int16
    error_message: String | None
    auth_bytes: Bytes
    session_lifetime_ms: Int64 = field(versions="1+", ignorable=True, default=0)
