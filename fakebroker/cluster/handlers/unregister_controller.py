"""UnregisterController: remove the registration of a controller that is down (ClusterControlManager, KIP-1312).

All nodes are controllers, and the first one that is up is active, as DescribeQuorum says. A controller that is up
registers again at once, so that nothing changes. Any broker answers.
"""

from typing import TYPE_CHECKING

from fakebroker.cluster.authorization import cluster_error, needs_cluster
from fakebroker.cluster.call import Call
from fakebroker.errors import ErrorCode
from fakebroker.protocol.messages.unregister_controller import UnregisterControllerRequest, UnregisterControllerResponse
from fakebroker.security.acls import AclOperation

if TYPE_CHECKING:
    from fakebroker.cluster.cluster import Cluster


def handle(cluster: "Cluster", call: Call, now_ms: float) -> UnregisterControllerResponse:
    request: UnregisterControllerRequest = call.request
    if error := cluster_error(cluster, call, AclOperation.ALTER):
        return UnregisterControllerResponse(error_code=error, error_message=needs_cluster(AclOperation.ALTER))
    node = cluster.brokers.get(request.controller_id)
    if node is None or not node.registered_as_controller:
        message = f"Controller ID {request.controller_id} is not currently registered."
        return UnregisterControllerResponse(error_code=ErrorCode.CONTROLLER_ID_NOT_REGISTERED, error_message=message)
    if node.node_id == cluster.controller_id:
        message = "Controller cannot unregister itself while it is active."
        return UnregisterControllerResponse(error_code=ErrorCode.INVALID_REQUEST, error_message=message)
    node.registered_as_controller = node.up
    return UnregisterControllerResponse(error_code=ErrorCode.NONE, error_message="")
