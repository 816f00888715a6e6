"""UnregisterBroker: remove the registration of a broker that is down (ClusterControlManager.unregisterBroker).

The broker keeps its replicas. A broker that starts registers again; one that is up does so at once, so that nothing
changes. Any broker answers.
"""

from typing import TYPE_CHECKING

from fakebroker.cluster.authorization import cluster_error, needs_cluster
from fakebroker.cluster.call import Call
from fakebroker.errors import ErrorCode
from fakebroker.protocol.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse
from fakebroker.protocol.releases import Release
from fakebroker.security.acls import AclOperation

if TYPE_CHECKING:
    from fakebroker.cluster.cluster import Cluster

_WITH_MESSAGE = Release(4, 1)
"""The first release whose error has a message."""


def handle(cluster: "Cluster", call: Call, now_ms: float) -> UnregisterBrokerResponse:
    request: UnregisterBrokerRequest = call.request
    if error := cluster_error(cluster, call, AclOperation.ALTER):
        message = needs_cluster(AclOperation.ALTER) if call.broker.release >= _WITH_MESSAGE else ""
        return UnregisterBrokerResponse(error_code=error, error_message=message)
    broker = cluster.brokers.get(request.broker_id)
    if broker is None or not broker.registered:
        known = [each.node_id for each in cluster.brokers.values() if each.registered]
        message = f"Broker ID {request.broker_id} is not registered: expected one of {known}"
        return UnregisterBrokerResponse(
            error_code=ErrorCode.BROKER_ID_NOT_REGISTERED,
            error_message=message if call.broker.release >= _WITH_MESSAGE else "",
        )
    broker.registered = broker.up
    return UnregisterBrokerResponse(error_code=ErrorCode.NONE, error_message=None)
