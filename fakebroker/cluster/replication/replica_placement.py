"""Which brokers get the replicas of new partitions."""

from collections.abc import Mapping, Sequence

from fakebroker.cluster.broker import BrokerNode
from fakebroker.cluster.replication.racks import spread_over_racks
from fakebroker.cluster.topics import Assignment, Topic


class ReplicaPlacement:
    """Chooses the brokers of new partitions, preferably those that are up.

    Args:
        brokers: The brokers by node id, in ascending order; they may change.

    Attributes:
        placed_topics: How many topics were placed; determines the next one's first broker.
    """

    def __init__(self, brokers: Mapping[int, BrokerNode]) -> None:
        self._brokers = brokers
        self.placed_topics = 0

    def place_topic(self, partitions: int, replication_factor: int) -> Assignment:
        """Choose the brokers of a new topic that is not internal.

        Each call starts at the broker after that of the previous call; Kafka starts at a random broker.
        """
        first, self.placed_topics = self.placed_topics, self.placed_topics + 1
        return self.place(partitions, replication_factor, first)

    def place_partitions(self, topic: Topic, count: int) -> Assignment:
        """Choose the brokers of new partitions, starting after the preferred leader of the topic's last partition."""
        last = topic.partitions[-1].replicas[0]
        before = sum(broker.up and node_id <= last for node_id, broker in self._brokers.items())
        return self.place(count, len(topic.partitions[0].replicas), before)

    def place(self, partitions: int, replication_factor: int, first: int = 0) -> Assignment:
        """Assign partitions to brokers; see `spread` and `spread_over_racks`."""
        if any(broker.rack is not None for broker in self._brokers.values()):
            return spread_over_racks(partitions, replication_factor, list(self._brokers.values()), first)
        up = [node_id for node_id, broker in self._brokers.items() if broker.up] or list(self._brokers)
        down = [node_id for node_id in self._brokers if node_id not in up]
        return spread(partitions, replication_factor, up, down, first)


def spread(
    partitions: int, replication_factor: int, up: Sequence[int], down: Sequence[int] = (), first: int = 0
) -> Assignment:
    """Assign partitions to brokers, round-robin (Kafka's StripedReplicaPlacer, which starts at a random broker).

    Args:
        partitions: The number of partitions.
        replication_factor: The number of replicas of each, at most the number of brokers.
        up: The brokers that are up, at least one. They lead partitions in turn. The brokers that follow the leader in
            this sequence get the other replicas.
        down: The brokers that are down. They get replicas only if fewer than `replication_factor` brokers are up.
        first: The index in `up` of the leader of the first partition.
    """
    return [
        [up[(place + step) % len(up)] for step in range(min(replication_factor, len(up)))]
        + [down[(place + step) % len(down)] for step in range(replication_factor - len(up))]
        for place in range(first, first + partitions)
    ]
