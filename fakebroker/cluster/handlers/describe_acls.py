"""DescribeAcls: the ACLs that match a filter, by resource (AclApis)."""

from typing import TYPE_CHECKING

from fakebroker.cluster.authorization import cluster_error, needs_cluster
from fakebroker.cluster.call import Call
from fakebroker.cluster.handlers.security import NO_AUTHORIZER, UNKNOWN_CODE, acl_filter
from fakebroker.errors import ErrorCode
from fakebroker.protocol.messages.describe_acls import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)
from fakebroker.security.acls import Acl, AclOperation, ResourcePattern

if TYPE_CHECKING:
    from fakebroker.cluster.cluster import Cluster


def handle(cluster: "Cluster", call: Call, now_ms: float) -> DescribeAclsResponse | None:
    request: DescribeAclsRequest = call.request
    wanted = acl_filter(request)
    if wanted is None:
        cluster.requests.refuse(call, UNKNOWN_CODE, now_ms)
        return None
    if cluster.acls is None:
        return DescribeAclsResponse(error_code=ErrorCode.SECURITY_DISABLED, error_message=NO_AUTHORIZER, resources=[])
    if error := cluster_error(cluster, call, AclOperation.DESCRIBE):
        message = needs_cluster(AclOperation.DESCRIBE)
        return DescribeAclsResponse(error_code=error, error_message=message, resources=[])
    by_pattern: dict[ResourcePattern, list[AclDescription]] = {}
    for acl in cluster.acls.matching(wanted):
        by_pattern.setdefault(acl.pattern, []).append(_described(acl))
    return DescribeAclsResponse(
        error_code=ErrorCode.NONE,
        error_message=None,
        resources=[
            DescribeAclsResource(
                resource_type=pattern.resource_type,
                resource_name=pattern.name,
                pattern_type=pattern.pattern_type,
                acls=acls,
            )
            for pattern, acls in by_pattern.items()
        ],
    )


def _described(acl: Acl) -> AclDescription:
    return AclDescription(
        principal=acl.principal, host=acl.host, operation=acl.operation, permission_type=acl.permission
    )
