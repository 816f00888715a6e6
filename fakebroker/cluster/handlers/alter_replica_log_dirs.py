"""AlterReplicaLogDirs: move replicas to a log directory; a broker has only one (ReplicaManager.alterReplicaLogDirs)."""

from typing import TYPE_CHECKING

from fakebroker.cluster.authorization import cluster_error
from fakebroker.cluster.call import Call
from fakebroker.cluster.configs.resolution import LOG_DIR
from fakebroker.errors import ErrorCode
from fakebroker.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)
from fakebroker.security.acls import AclOperation
from fakebroker.topic_partition import by_topic

if TYPE_CHECKING:
    from fakebroker.cluster.cluster import Cluster


def handle(cluster: "Cluster", call: Call, now_ms: float) -> AlterReplicaLogDirsResponse:
    request: AlterReplicaLogDirsRequest = call.request
    refused = cluster_error(cluster, call, AclOperation.ALTER)
    # If a partition is named twice, the last path applies.
    paths = {
        (topic.name, index): directory.path
        for directory in request.dirs
        for topic in directory.topics
        for index in topic.partitions
    }
    return AlterReplicaLogDirsResponse(
        results=[
            AlterReplicaLogDirTopicResult(
                topic_name=name,
                partitions=[
                    AlterReplicaLogDirPartitionResult(
                        partition_index=index,
                        error_code=refused or _error(cluster, call, paths[name, index], name, index),
                    )
                    for index in indexes
                ],
            )
            for name, indexes in by_topic(paths).items()
        ]
    )


def _error(cluster: "Cluster", call: Call, path: str, topic_name: str, index: int) -> ErrorCode:
    if path != LOG_DIR:
        return ErrorCode.LOG_DIR_NOT_FOUND
    topic = cluster.topics.get(topic_name)
    if topic is None or not 0 <= index < len(topic.partitions):
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    is_here = call.broker.node_id in topic.partitions[index].replicas
    return ErrorCode.NONE if is_here else ErrorCode.NOT_LEADER_OR_FOLLOWER
