"""CreateDelegationToken: DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, as on each plaintext listener (KafkaApis)."""

from typing import TYPE_CHECKING

from fakebroker.cluster.call import Call
from fakebroker.cluster.handlers.security import ANONYMOUS, USER
from fakebroker.errors import ErrorCode
from fakebroker.protocol.messages.create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)

if TYPE_CHECKING:
    from fakebroker.cluster.cluster import Cluster

_FIRST_VERSION_OF_OWNERS = 3  # KIP-373


def handle(cluster: "Cluster", call: Call, now_ms: float) -> CreateDelegationTokenResponse:
    request: CreateDelegationTokenRequest = call.request
    owner_type, owner = request.owner_principal_type or USER, request.owner_principal_name
    if not owner:
        owner_type, owner = USER, ANONYMOUS
    return CreateDelegationTokenResponse(
        error_code=ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED,
        principal_type=owner_type,
        principal_name=owner,
        token_requester_principal_type=USER if call.api_version >= _FIRST_VERSION_OF_OWNERS else "",
        token_requester_principal_name=ANONYMOUS if call.api_version >= _FIRST_VERSION_OF_OWNERS else "",
        issue_timestamp_ms=-1,
        expiry_timestamp_ms=-1,
        max_timestamp_ms=-1,
        token_id="",
        hmac=b"",
    )
