"""DescribeAcls: SECURITY_DISABLED, because ACLs are not supported (AclApis without an authorizer)."""

from typing import TYPE_CHECKING

from fakebroker.cluster.call import Call
from fakebroker.cluster.handlers.security import NO_AUTHORIZER
from fakebroker.errors import ErrorCode
from fakebroker.protocol.messages.describe_acls import DescribeAclsResponse

if TYPE_CHECKING:
    from fakebroker.cluster.cluster import Cluster


def handle(cluster: "Cluster", call: Call, now_ms: float) -> DescribeAclsResponse:
    return DescribeAclsResponse(error_code=ErrorCode.SECURITY_DISABLED, error_message=NO_AUTHORIZER, resources=[])
