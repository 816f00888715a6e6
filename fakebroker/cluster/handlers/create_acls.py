"""CreateAcls: SECURITY_DISABLED for each ACL, because ACLs are not supported (AclApis without an authorizer)."""

from typing import TYPE_CHECKING

from fakebroker.cluster.call import Call
from fakebroker.cluster.handlers.security import NO_AUTHORIZER
from fakebroker.errors import ErrorCode
from fakebroker.protocol.messages.create_acls import AclCreationResult, CreateAclsRequest, CreateAclsResponse

if TYPE_CHECKING:
    from fakebroker.cluster.cluster import Cluster


def handle(cluster: "Cluster", call: Call, now_ms: float) -> CreateAclsResponse:
    request: CreateAclsRequest = call.request
    refused = AclCreationResult(error_code=ErrorCode.SECURITY_DISABLED, error_message=NO_AUTHORIZER)
    return CreateAclsResponse(results=[refused] * len(request.creations))
