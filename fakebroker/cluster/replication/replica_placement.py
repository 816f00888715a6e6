"""Which brokers get the replicas of new partitions, and racks: the replica that a client reads from (KIP-392)."""

from collections.abc import Iterable, Mapping, Sequence

from fakebroker.cluster.broker import BrokerNode
from fakebroker.cluster.topics import Assignment, Partition, Topic

RACK_AWARE_SELECTOR = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
"""The value of `replica.selector.class` with which consumers read from replicas in their rack."""


class _Rack:
    """The brokers of one rack. Partitions take them in turn: each starts one broker after the previous partition.

    Args:
        brokers: The brokers, ordered by node id.
        turn: Decides which of them comes first.
    """

    def __init__(self, brokers: Sequence[BrokerNode], turn: int) -> None:
        self._up = [broker.node_id for broker in brokers if broker.up]
        self._down = [broker.node_id for broker in brokers if not broker.up]
        self._turn = turn
        self._partition: int | None = None
        self._taken = 0

    def take(self, partition: int, *, up: bool) -> int | None:
        """Return the next broker for a partition, None if there is none. With `up`, only brokers that are up.

        Brokers that are down come after all others.
        """
        if partition != self._partition:
            self._turn += self._partition is not None
            self._partition, self._taken = partition, 0
        in_turn = [*_rotated(self._up, self._turn), *([] if up else _rotated(self._down, self._turn))]
        if self._taken >= len(in_turn):
            return None
        self._taken += 1
        return in_turn[self._taken - 1]


def _rotated(node_ids: list[int], turn: int) -> list[int]:
    first = turn % len(node_ids) if node_ids else 0
    return node_ids[first:] + node_ids[:first]


def spread_over_racks(
    partitions: int, replication_factor: int, brokers: Iterable[BrokerNode], first: int = 0
) -> Assignment:
    """Assign partitions to brokers, each replica in another rack if there are enough (Kafka's StripedReplicaPlacer).

    Racks lead partitions in turn, and so do the brokers of each rack. Brokers without a rack form a rack of their own,
    the last one. In Kafka a random rack and a random broker of each rack come first.

    Args:
        partitions: The number of partitions.
        replication_factor: The number of replicas of each, at most the number of brokers.
        brokers: All brokers. Those that are down get replicas only if their rack has no other broker left, and never
            lead, unless all brokers are down.
        first: Decides which rack leads the first partition, and which of its brokers.
    """
    by_rack: dict[tuple[bool, str], list[BrokerNode]] = {}
    for broker in brokers:
        by_rack.setdefault((broker.rack is None, broker.rack or ""), []).append(broker)
    is_any_up = any(broker.up for members in by_rack.values() for broker in members)
    racks = [_Rack(by_rack[name], first // len(by_rack)) for name in sorted(by_rack)]
    return [
        _replicas(racks, partition, (first + partition) % len(racks), replication_factor, leader_up=is_any_up)
        for partition in range(partitions)
    ]


def _replicas(racks: Sequence[_Rack], partition: int, offset: int, count: int, *, leader_up: bool) -> list[int]:
    in_turn = [*racks[offset:], *racks[:offset]]
    replicas: list[int] = []
    for led_by in in_turn:
        leader_id = led_by.take(partition, up=leader_up)
        if leader_id is not None:
            replicas.append(leader_id)
            break
    # The first pass continues with the racks other than the leader's, later ones use all racks again.
    pending = [rack for rack in in_turn if rack is not led_by]
    while len(replicas) < count:
        for rack in pending:
            node_id = rack.take(partition, up=False) if len(replicas) < count else None
            if node_id is not None:
                replicas.append(node_id)
        pending = in_turn
    return replicas


def preferred_read_replica(partition: Partition, in_sync: Iterable[BrokerNode], rack_id: str) -> int | None:
    """Return the replica that a consumer should read from, None for the leader (RackAwareReplicaSelector).

    Args:
        partition: The partition, which has a leader.
        in_sync: The brokers with an in-sync replica.
        rack_id: The rack of the consumer.

    Returns:
        The node id of a follower in the consumer's rack. None if the rack has no in-sync replica, or has the leader. Of
        several followers, the highest node id, as in Kafka.
    """
    in_rack = [broker.node_id for broker in in_sync if broker.rack == rack_id]
    return None if partition.leader_id in in_rack else max(in_rack, default=None)


# New partitions


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

        Each topic starts one broker after the previous topic; Kafka starts at a random broker.
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
