"""The configs that throttle copies of reassignments: rates of brokers, for the replicas that a topic lists (KIP-73).

As `kafka-reassign-partitions --throttle` sets them: `leader.replication.throttled.rate` and its counterpart for
followers in bytes per second, and `leader.replication.throttled.replicas` as "PARTITION:BROKER,..." or "*".
"""

from math import inf
from typing import TYPE_CHECKING, Literal

from fakebroker.cluster.configs.definitions import ConfigType, items_of

if TYPE_CHECKING:
    from fakebroker.cluster.cluster import Cluster
    from fakebroker.cluster.topics import Partition

_ALL = "*"


def copy_rate(cluster: "Cluster", partition: "Partition", node_id: int) -> float:
    """Return how many bytes per second may be copied from the leader of a partition to a broker; infinite if unlimited.

    The limits of the leader and of the follower apply, each if the topic lists the replica.
    """
    return min(
        _limit(cluster, partition, partition.leader_id, "leader"), _limit(cluster, partition, node_id, "follower")
    )


def _limit(cluster: "Cluster", partition: "Partition", node_id: int, role: Literal["leader", "follower"]) -> float:
    listed = partition.topic.configs.get(f"{role}.replication.throttled.replicas", "")
    if listed.strip() != _ALL and f"{partition.index}:{node_id}" not in items_of(listed, ConfigType.LIST):
        return inf
    name = f"{role}.replication.throttled.rate"
    rate = cluster.brokers[node_id].configs.get(name) or cluster.broker_configs.get(name)
    return inf if rate is None else int(rate)
