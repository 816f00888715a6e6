"""DescribeCluster: the brokers and the controller (AuthHelper.computeDescribeClusterResponse). Any broker answers."""

from typing import TYPE_CHECKING

from fakebroker.cluster.authorization import NOT_REQUESTED, cluster_operations
from fakebroker.cluster.call import Call
from fakebroker.errors import ErrorCode
from fakebroker.protocol.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)

if TYPE_CHECKING:
    from fakebroker.cluster.cluster import Cluster

# Kafka's EndpointType (KIP-919).
BROKER, CONTROLLER = 1, 2


def handle(cluster: "Cluster", call: Call, now_ms: float) -> DescribeClusterResponse:
    request: DescribeClusterRequest = call.request
    if request.endpoint_type != BROKER:
        return _refused(request.endpoint_type)
    return DescribeClusterResponse(
        cluster_id=cluster.cluster_id,
        controller_id=cluster.controller_id,
        brokers=[
            DescribeClusterBroker(
                broker_id=broker.node_id,
                host=call.endpoint_of(broker).host,
                port=call.endpoint_of(broker).port,
                rack=broker.rack,
                is_fenced=not broker.up,
            )
            for broker in cluster.brokers.values()
            if broker.up or (request.include_fenced_brokers and broker.registered)
        ],
        cluster_authorized_operations=cluster_operations(cluster, call)
        if request.include_cluster_authorized_operations
        else NOT_REQUESTED,
    )


def _refused(endpoint_type: int) -> DescribeClusterResponse:
    is_known = endpoint_type == CONTROLLER
    return DescribeClusterResponse(
        error_code=ErrorCode.MISMATCHED_ENDPOINT_TYPE if is_known else ErrorCode.UNSUPPORTED_ENDPOINT_TYPE,
        error_message=f"endpoint type {endpoint_type}: expected {BROKER} (broker)",
        cluster_id="",
        brokers=[],
    )
