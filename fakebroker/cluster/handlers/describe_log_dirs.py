"""DescribeLogDirs: the replicas in the broker's only log directory (ReplicaManager.describeLogDirs)."""

from typing import TYPE_CHECKING

from fakebroker.cluster.authorization import cluster_error
from fakebroker.cluster.call import Call
from fakebroker.cluster.configs.resolution import LOG_DIR
from fakebroker.cluster.topics import Partition
from fakebroker.errors import ErrorCode
from fakebroker.protocol.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from fakebroker.security.acls import AclOperation

if TYPE_CHECKING:
    from fakebroker.cluster.cluster import Cluster


def handle(cluster: "Cluster", call: Call, now_ms: float) -> DescribeLogDirsResponse:
    """Describe the requested replicas. Unknown partitions and topics without replicas here are omitted."""
    request: DescribeLogDirsRequest = call.request
    if error := cluster_error(cluster, call, AclOperation.DESCRIBE):
        return DescribeLogDirsResponse(error_code=error, results=[])
    requested = None
    if request.topics is not None:
        requested = {(topic.topic, index) for topic in request.topics for index in topic.partitions}
    topics = []
    for topic in cluster.topics:
        replicas = [
            _described(partition)
            for partition in topic.partitions
            if call.broker.node_id in partition.replicas
            and (requested is None or (topic.name, partition.index) in requested)
        ]
        if replicas:
            topics.append(DescribeLogDirsTopic(name=topic.name, partitions=replicas))
    return DescribeLogDirsResponse(
        results=[DescribeLogDirsResult(error_code=ErrorCode.NONE, log_dir=LOG_DIR, topics=topics)]
    )


def _described(partition: Partition) -> DescribeLogDirsPartition:
    return DescribeLogDirsPartition(
        partition_index=partition.index, partition_size=partition.log.size_bytes, offset_lag=0, is_future_key=False
    )
