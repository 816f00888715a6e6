"""The leaders of the partitions of the offsets topic, as Kafka places replicas and elects leaders.

Assumes that all replicas are in sync, and that brokers have no racks.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from random import Random
from types import MappingProxyType

Replicas = list[tuple[int, ...]]
"""The replicas of each partition, the preferred leader first."""

Elections = dict[int, int | None]
"""The new leader by partition; None if no replica is alive."""


def striped_replicas(partitions: int, factor: int, nodes: Sequence[int], random: Random) -> Replicas:
    """Place replicas as Kafka with KRaft does (`StripedReplicaPlacer`).

    Leaders take turns, and the brokers after the leader are its followers. After as many partitions as there are
    brokers, the order of the brokers is shuffled.
    """
    order = sorted(nodes)
    offset = random.randrange(len(order))
    placed: Replicas = []
    for partition in range(partitions):
        if partition and len(order) > 1:
            if partition % len(order) == 0:
                random.shuffle(order)
            offset = (offset + 1) % len(order)
        placed.append(tuple(order[(offset + step) % len(order)] for step in range(min(factor, len(order)))))
    return placed


def shifted_replicas(partitions: int, factor: int, nodes: Sequence[int], random: Random) -> Replicas:
    """Place replicas as Kafka with ZooKeeper does (`AdminUtils.assignReplicasToBrokers`).

    Leaders take turns. The distance of the followers grows after as many partitions as there are brokers.
    """
    order, count = sorted(nodes), len(nodes)
    start, shift = random.randrange(count), random.randrange(count)
    placed: Replicas = []
    for partition in range(partitions):
        first = (start + partition) % count
        followers = (1 + (shift + partition // count + step) % (count - 1) for step in range(min(factor, count) - 1))
        placed.append((order[first], *(order[(first + distance) % count] for distance in followers)))
    return placed


REPLICA_PLACEMENTS: Mapping[str, Callable[[int, int, Sequence[int], Random], Replicas]] = MappingProxyType(
    {"striped": striped_replicas, "shifted": shifted_replicas}
)
"""By name, how replicas are placed."""


class OffsetsLeaders:
    """The leaders of the partitions of the offsets topic.

    Args:
        replicas: The replicas of each partition. The first one leads.
        nodes: The brokers.

    Attributes:
        leaders: By partition; None if no replica is alive.
    """

    def __init__(self, replicas: Replicas, nodes: Sequence[int]) -> None:
        self.leaders: list[int | None] = [each[0] for each in replicas]
        self._replicas = list(replicas)
        self._alive = set(nodes)

    def stop(self, node_id: int) -> Elections:
        """Stop a broker: the first live replica of each of its partitions becomes the leader."""
        self._alive.discard(node_id)
        return self._elect(index for index, leader in enumerate(self.leaders) if leader == node_id)

    def start(self, node_id: int) -> Elections:
        """Start a broker, and then elect preferred leaders. A new broker leads no partitions."""
        self._alive.add(node_id)
        return self._elect(range(len(self.leaders)))

    def _elect(self, partitions: Iterable[int]) -> Elections:
        elected: Elections = {}
        for index in partitions:
            leader = next((node for node in self._replicas[index] if node in self._alive), None)
            if leader != self.leaders[index]:
                elected[index] = self.leaders[index] = leader
        return elected

    def reassign(self, node_id: int) -> Elections:
        """Move as few partitions as possible to a new broker, so that it leads its share.

        Each time, the last partition of a broker that leads most partitions is moved; of several brokers, that with the
        lowest node id.
        """
        moved: Elections = {}
        led: dict[int, list[int]] = {node: [] for node in sorted(self._alive)}
        for index, leader in enumerate(self.leaders):
            if leader is not None:
                led[leader].append(index)
        for _ in range(len(self.leaders) // len(self._alive) - len(led[node_id])):
            busiest = max(led, key=lambda node: (len(led[node]), -node))
            index = led[busiest].pop()
            self._replicas[index] = (node_id, *self._replicas[index][:-1])
            moved[index] = self.leaders[index] = node_id
        return moved
