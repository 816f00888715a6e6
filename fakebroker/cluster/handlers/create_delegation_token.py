"""CreateDelegationToken: refused, as without `delegation.token.secret.key` (KafkaApis.handleCreateTokenRequest)."""

from typing import TYPE_CHECKING

from fakebroker.cluster.authorization import may
from fakebroker.cluster.call import Call
from fakebroker.cluster.handlers.security import USER, no_time, token_error
from fakebroker.errors import ErrorCode
from fakebroker.protocol.messages.create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from fakebroker.security.acls import AclOperation, ResourceType

if TYPE_CHECKING:
    from fakebroker.cluster.cluster import Cluster

_FIRST_VERSION_OF_OWNERS = 3  # KIP-373


def handle(cluster: "Cluster", call: Call, now_ms: float) -> CreateDelegationTokenResponse:
    request: CreateDelegationTokenRequest = call.request
    requester_type, _, requester = call.peer.principal.partition(":")
    owner_type, owner = request.owner_principal_type, request.owner_principal_name
    # Kafka fails if an owner has no type.
    fails = bool(owner) and owner_type is None
    if not owner or owner_type is None:
        owner_type, owner = requester_type, requester
    error = ErrorCode.UNKNOWN_SERVER_ERROR if fails else _error(cluster, call, request, f"{owner_type}:{owner}")
    has_requester = call.api_version >= _FIRST_VERSION_OF_OWNERS
    no_time_ms = no_time(call, error)
    return CreateDelegationTokenResponse(
        error_code=error,
        principal_type=owner_type,
        principal_name=owner,
        token_requester_principal_type=requester_type if has_requester else "",
        token_requester_principal_name=requester if has_requester else "",
        issue_timestamp_ms=no_time_ms,
        expiry_timestamp_ms=no_time_ms,
        max_timestamp_ms=no_time_ms,
        token_id="",
        hmac=b"",
    )


def _error(cluster: "Cluster", call: Call, request: CreateDelegationTokenRequest, owner: str) -> ErrorCode:
    error = token_error(call)
    if error == ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED:
        return error
    if owner != call.peer.principal and not may(cluster, call, AclOperation.CREATE_TOKENS, ResourceType.USER, owner):
        return ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED
    if any(renewer.principal_type != USER for renewer in request.renewers):
        return ErrorCode.INVALID_PRINCIPAL_TYPE
    return error
