"""The configs that throttle copies of reassignments: rates of brokers, for the replicas that a topic lists (KIP-73).

As `kafka-reassign-partitions --throttle` sets them: `leader.replication.throttled.rate` and its counterpart for
followers in bytes per second, and `leader.replication.throttled.replicas` as "PARTITION:BROKER,..." or "*".
"""

from collections.abc import Mapping
from math import inf
from typing import Literal

from fakebroker.cluster.broker import BrokerNode
from fakebroker.cluster.configs.definitions import ConfigType, items_of
from fakebroker.cluster.topics import Partition

_ALL = "*"


def copy_rate(partition: Partition, follower: BrokerNode, leader: BrokerNode, defaults: Mapping[str, str]) -> float:
    """Return how many bytes per second may be copied from the leader of a partition to a broker; infinite if unlimited.

    The limits of the leader and of the follower apply, each if the topic lists the replica. `defaults` are the dynamic
    configs of all brokers.
    """
    return min(_limit(partition, leader, "leader", defaults), _limit(partition, follower, "follower", defaults))


def _limit(
    partition: Partition, broker: BrokerNode, role: Literal["leader", "follower"], defaults: Mapping[str, str]
) -> float:
    listed = partition.topic.configs.get(f"{role}.replication.throttled.replicas", "")
    if listed.strip() != _ALL and f"{partition.index}:{broker.node_id}" not in items_of(listed, ConfigType.LIST):
        return inf
    name = f"{role}.replication.throttled.rate"
    rate = broker.configs.get(name) or defaults.get(name)
    return inf if rate is None else int(rate)
