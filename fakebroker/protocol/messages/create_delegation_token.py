"""CreateDelegationToken: creates a token that authenticates clients (KIP-48)."""

from fakebroker.protocol.schema import Message, Struct, field
from fakebroker.protocol.types import Bytes, Int16, Int32, Int64, String


class CreatableRenewers(Struct):
    principal_type: String
    principal_name: String


class CreateDelegationTokenRequest(Message, api_key=38, versions="0-3", flexible="2+"):
    owner_principal_type: String | None = field(versions="3+", default="")
    owner_principal_name: String | None = field(versions="3+", default="")
    renewers: list[CreatableRenewers]
    max_lifetime_ms: Int64


class CreateDelegationTokenResponse(Message, api_key=38, versions="0-3", flexible="2+"):
    error_code: Int16
    principal_type: String
    principal_name: String
    token_requester_principal_type: String = field(versions="3+", default="")
    token_requester_principal_name: String = field(versions="3+", default="")
    issue_timestamp_ms: Int64
    expiry_timestamp_ms: Int64
    max_timestamp_ms: Int64
    token_id: String
    hmac: Bytes
    throttle_time_ms: Int32 = 0
