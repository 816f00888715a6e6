"""DeleteAcls: SECURITY_DISABLED for each filter, because ACLs are not supported (AclApis without an authorizer)."""

from typing import TYPE_CHECKING

from fakebroker.cluster.call import Call
from fakebroker.cluster.handlers.security import NO_AUTHORIZER
from fakebroker.errors import ErrorCode
from fakebroker.protocol.messages.delete_acls import DeleteAclsFilterResult, DeleteAclsRequest, DeleteAclsResponse

if TYPE_CHECKING:
    from fakebroker.cluster.cluster import Cluster


def handle(cluster: "Cluster", call: Call, now_ms: float) -> DeleteAclsResponse:
    request: DeleteAclsRequest = call.request
    refused = DeleteAclsFilterResult(
        error_code=ErrorCode.SECURITY_DISABLED, error_message=NO_AUTHORIZER, matching_acls=[]
    )
    return DeleteAclsResponse(filter_results=[refused] * len(request.filters))
