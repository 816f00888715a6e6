"""What the handlers of ACLs and delegation tokens share."""

from fakebroker.protocol.messages.create_acls import AclCreation
from fakebroker.protocol.messages.delete_acls import DeleteAclsFilter
from fakebroker.protocol.messages.describe_acls import DescribeAclsRequest
from fakebroker.security.acls import AclFilter, AclOperation, AclPermission, PatternType, ResourceType

NO_AUTHORIZER = "no authorizer is configured: expected the setting authorizer.class.name"
"""The error message of SECURITY_DISABLED."""

UNKNOWN_CODE = "resource type, pattern type, operation or permission is 0 (unknown)"
"""Why a request with such an ACL or filter closes its connection: Kafka does not parse it."""

USER, ANONYMOUS = "User", "ANONYMOUS"
"""Type and name of the principal of each client of a plaintext listener (KafkaPrincipal.ANONYMOUS)."""


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
