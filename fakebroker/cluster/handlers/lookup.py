"""Look-up of partitions for requests, and the check that the broker may answer for a partition.

The checks and their order are Kafka's. Existence is checked as in `KafkaApis` and
`ReplicaManager.getPartitionOrException`; leader epoch and leadership are checked as in `Partition.getLocalLog`.
"""

from typing import TYPE_CHECKING

from fakebroker.cluster.broker import BrokerNode
from fakebroker.cluster.topics import Partition
from fakebroker.errors import ErrorCode

if TYPE_CHECKING:
    from fakebroker.cluster.cluster import Cluster


def find_partition(cluster: "Cluster", name: str, topic_id: bytes, index: int, *, by_id: bool) -> Partition | ErrorCode:
    """Find a partition by the name of its topic, or if `by_id` is true, by the id of its topic (KIP-516)."""
    topic = cluster.topics.find(name, topic_id, by_id=by_id)
    if topic is None:
        return ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return topic.partition(index) or ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def leadership_error(
    partition: Partition, broker: BrokerNode, leader_epoch: int = -1, *, leader_only: bool = True
) -> ErrorCode:
    """Return the error if a broker may not answer for a partition, else NONE.

    Args:
        partition: The partition.
        broker: The broker that received the request.
        leader_epoch: The leader epoch that the client knows (KIP-320); negative if it sends none.
        leader_only: Whether the error is also returned if the broker is a follower.
    """
    if broker.node_id not in partition.replicas:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    if 0 <= leader_epoch < partition.leader_epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if leader_epoch > partition.leader_epoch:
        return ErrorCode.UNKNOWN_LEADER_EPOCH
    if leader_only and broker.node_id != partition.leader_id:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    return ErrorCode.NONE


def leaders_of(cluster: "Cluster", partitions: list[Partition]) -> list[BrokerNode]:
    """Return the brokers that lead these partitions and are up, each once, for the node endpoints of KIP-951."""
    leaders = {partition.leader_id: cluster.leader_of(partition) for partition in partitions}
    return [leader for leader in leaders.values() if leader is not None]
