"""DeleteAcls: delete the ACLs that match filters (AclApis, AclControlManager.deleteAcls)."""

from typing import TYPE_CHECKING

from fakebroker.cluster.authorization import cluster_error, needs_cluster
from fakebroker.cluster.call import Call
from fakebroker.cluster.handlers.security import NO_AUTHORIZER, UNKNOWN_CODE, acl_filter
from fakebroker.errors import ErrorCode
from fakebroker.protocol.messages.delete_acls import (
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from fakebroker.security.acls import Acl, AclFilter, AclOperation, AclStore

if TYPE_CHECKING:
    from fakebroker.cluster.cluster import Cluster


def handle(cluster: "Cluster", call: Call, now_ms: float) -> DeleteAclsResponse | None:
    request: DeleteAclsRequest = call.request
    filters = [wanted for each in request.filters if (wanted := acl_filter(each)) is not None]
    if len(filters) < len(request.filters):
        cluster.requests.refuse(call, UNKNOWN_CODE, now_ms)
        return None
    if cluster.acls is None:
        return _refused(request, ErrorCode.SECURITY_DISABLED, NO_AUTHORIZER)
    if error := cluster_error(cluster, call, AclOperation.ALTER):
        return _refused(request, error, needs_cluster(AclOperation.ALTER))
    # As in Kafka, an ACL that matches several filters is in the results of all of them.
    results = [_result(cluster.acls, each) for each in filters]
    for wanted in filters:
        for acl in cluster.acls.matching(wanted):
            cluster.acls.remove(acl)
    return DeleteAclsResponse(filter_results=results)


def _refused(request: DeleteAclsRequest, error: ErrorCode, message: str) -> DeleteAclsResponse:
    refused = DeleteAclsFilterResult(error_code=error, error_message=message, matching_acls=[])
    return DeleteAclsResponse(filter_results=[refused] * len(request.filters))


def _result(acls: AclStore, wanted: AclFilter) -> DeleteAclsFilterResult:
    if wanted.is_unknown:
        message = "filter with an unknown code: expected codes of Kafka"
        return DeleteAclsFilterResult(error_code=ErrorCode.INVALID_REQUEST, error_message=message, matching_acls=[])
    matching = [_deleted(acl) for acl in acls.matching(wanted)]
    return DeleteAclsFilterResult(error_code=ErrorCode.NONE, error_message=None, matching_acls=matching)


def _deleted(acl: Acl) -> DeleteAclsMatchingAcl:
    return DeleteAclsMatchingAcl(
        error_code=ErrorCode.NONE,
        error_message=None,
        resource_type=acl.pattern.resource_type,
        resource_name=acl.pattern.name,
        pattern_type=acl.pattern.pattern_type,
        principal=acl.principal,
        host=acl.host,
        operation=acl.operation,
        permission_type=acl.permission,
    )
