"""What the handlers of ACLs and delegation tokens share."""

from fakebroker.cluster.call import Call
from fakebroker.errors import ErrorCode
from fakebroker.protocol.messages.create_acls import AclCreation
from fakebroker.protocol.messages.delete_acls import DeleteAclsFilter
from fakebroker.protocol.messages.describe_acls import DescribeAclsRequest
from fakebroker.protocol.releases import Release
from fakebroker.security.acls import ANONYMOUS, AclFilter, AclOperation, AclPermission, PatternType, ResourceType

NO_AUTHORIZER = "no authorizer is configured: expected the setting authorizer.class.name"
"""The error message of SECURITY_DISABLED."""

UNKNOWN_CODE = "resource type, pattern type, operation or permission is 0 (unknown)"
"""Why a request with such an ACL or filter closes its connection: Kafka does not parse it."""

USER = "User"
"""The type of all principals that exist here (KafkaPrincipal.USER_TYPE)."""

_TOKENS_OF_CONTROLLERS = Release(4, 0)
"""The first release in which only the controller answers: its answer without tokens has zeros instead of -1."""


def has_unknown_code(acl: AclCreation) -> bool:
    """Return whether an ACL to create has the code 0, unlike other codes that Kafka does not know."""
    return 0 in (acl.resource_type, acl.resource_pattern_type, acl.operation, acl.permission_type)


def acl_filter(wanted: DescribeAclsRequest | DeleteAclsFilter) -> AclFilter | None:
    """Convert a filter of a request; None if it has the code 0."""
    if 0 in (wanted.resource_type_filter, wanted.pattern_type_filter, wanted.operation, wanted.permission_type):
        return None
    return AclFilter(
        ResourceType(wanted.resource_type_filter),
        wanted.resource_name_filter,
        PatternType(wanted.pattern_type_filter),
        wanted.principal_filter,
        wanted.host_filter,
        AclOperation(wanted.operation),
        AclPermission(wanted.permission_type),
    )


def token_error(call: Call) -> ErrorCode:
    """Return the error of a request for delegation tokens, without `delegation.token.secret.key` (KafkaApis)."""
    peer = call.peer
    is_unknown = peer.listener.protocol == "SSL" and peer.principal == ANONYMOUS
    if peer.listener.protocol == "PLAINTEXT" or is_unknown:
        return ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    return ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED


def no_time(call: Call, error: ErrorCode) -> int:
    """Return the value of times in the answer to a refused request for tokens."""
    is_of_controller = call.broker.release >= _TOKENS_OF_CONTROLLERS
    return 0 if error == ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED and is_of_controller else -1
