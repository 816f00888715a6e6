"""CreateAcls: add ACLs, independently of each other (AclApis, AclControlManager.validateNewAcl)."""

from typing import TYPE_CHECKING

from fakebroker.cluster.authorization import cluster_error, needs_cluster
from fakebroker.cluster.call import Call
from fakebroker.cluster.handlers.security import NO_AUTHORIZER, UNKNOWN_CODE, has_unknown_code
from fakebroker.errors import ErrorCode
from fakebroker.protocol.messages.create_acls import (
    AclCreation,
    AclCreationResult,
    CreateAclsRequest,
    CreateAclsResponse,
)
from fakebroker.security.acls import (
    CLUSTER_NAME,
    Acl,
    AclOperation,
    AclPermission,
    PatternType,
    ResourcePattern,
    ResourceType,
)

if TYPE_CHECKING:
    from fakebroker.cluster.cluster import Cluster


def handle(cluster: "Cluster", call: Call, now_ms: float) -> CreateAclsResponse | None:
    request: CreateAclsRequest = call.request
    if any(map(has_unknown_code, request.creations)):
        cluster.requests.refuse(call, UNKNOWN_CODE, now_ms)
        return None
    if cluster.acls is None:
        return _refused(request, ErrorCode.SECURITY_DISABLED, NO_AUTHORIZER)
    if error := cluster_error(cluster, call, AclOperation.ALTER):
        return _refused(request, error, needs_cluster(AclOperation.ALTER))
    results = []
    for acl in map(_acl, request.creations):
        message = _error(acl)
        if message is None:
            cluster.acls.add(acl)
        code = ErrorCode.NONE if message is None else ErrorCode.INVALID_REQUEST
        results.append(AclCreationResult(error_code=code, error_message=message))
    return CreateAclsResponse(results=results)


def _refused(request: CreateAclsRequest, error: ErrorCode, message: str) -> CreateAclsResponse:
    refused = AclCreationResult(error_code=error, error_message=message)
    return CreateAclsResponse(results=[refused] * len(request.creations))


def _acl(creation: AclCreation) -> Acl:
    return Acl(
        ResourcePattern(
            ResourceType(creation.resource_type),
            creation.resource_name,
            PatternType(creation.resource_pattern_type),
        ),
        creation.principal,
        creation.host,
        AclOperation(creation.operation),
        AclPermission(creation.permission_type),
    )


def _error(acl: Acl) -> str | None:
    """Return why an ACL is invalid; None if it is valid."""
    pattern = acl.pattern
    if pattern.resource_type is ResourceType.CLUSTER and pattern.name != CLUSTER_NAME:
        return f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}"
    if not pattern.name:
        return "Invalid empty resource name"
    if pattern.resource_type <= ResourceType.ANY:
        return f"Invalid resourceType {pattern.resource_type.name}"
    if pattern.pattern_type not in (PatternType.LITERAL, PatternType.PREFIXED):
        return f"Invalid patternType {pattern.pattern_type.name}"
    if acl.operation <= AclOperation.ANY:
        return f"Invalid operation {acl.operation.name}"
    if acl.permission <= AclPermission.ANY:
        return f"Invalid permissionType {acl.permission.name}"
    if ":" not in acl.principal:
        return f"principal={acl.principal!r}: expected a type, a colon and a name, such as User:alice"
    return None
