"""Random stops, starts, moves and reassignments of partitions: what must hold after each step, and in the end."""

from collections.abc import Callable
from random import Random

import pytest

from fakebroker.cluster.replication.coordinator_moves import Failover
from fakebroker.cluster.topics import NO_LEADER, OFFSETS_TOPIC, Partition
from tests.support.cluster.cluster_harness import ClusterHarness
from tests.support.soak import examples, soak

NODE_IDS = (1, 2, 3, 4)
TOPICS = ("slow", "fast")
STEPS = 30


class RandomCluster:
    """A cluster of four brokers with throttled and other topics, and random steps that change it."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        config: dict[str, object] = {"default.replication.factor": 2}
        config["auto.leader.rebalance.enable"] = bool(seed % 2)
        self.harness = ClusterHarness(dict.fromkeys(TOPICS, 2), brokers=4, config=config)
        self.cluster = self.harness.cluster
        self.cluster.broker_configs = {"leader.replication.throttled.rate": "100"}
        self.harness.topic("slow").configs = {"leader.replication.throttled.replicas": "*"}
        for partition in self.partitions:
            partition.log.size_bytes = 1000

    @property
    def partitions(self) -> list[Partition]:
        return [each for topic in self.cluster.topics.all() for each in topic.partitions]

    @property
    def up(self) -> list[int]:
        return [node_id for node_id, broker in self.cluster.brokers.items() if broker.up]

    def step(self) -> None:
        steps: list[Callable[[], None]] = [
            self.stop,
            self.start,
            self.reassign,
            self.reassign,
            self.cancel,
            self.move,
            lambda: self.cluster.controller.hold_copies(self.random.choice(TOPICS), self.harness.now_ms),
            lambda: self.cluster.controller.release_copies(self.random.choice(TOPICS), self.harness.now_ms),
            lambda: self.cluster.controller.finish_copies(self.random.choice(TOPICS), self.harness.now_ms),
            lambda: self.cluster.controller.elect_preferred(self.harness.now_ms, Failover()),
            lambda: self.harness.advance(self.random.choice([1, 5_000, 400_000])),
        ]
        self.random.choice(steps)()

    def stop(self) -> None:
        if self.up:
            broker = self.cluster.brokers[self.random.choice(self.up)]
            elect = self.random.random() < 0.7
            self.cluster.controller.stop_broker(broker, self.harness.now_ms, Failover(), elect=elect)

    def start(self) -> None:
        down = [broker for broker in self.cluster.brokers.values() if not broker.up]
        if down:
            self.cluster.controller.start_broker(self.random.choice(down), self.harness.now_ms, Failover())

    def reassign(self) -> None:
        target = self.random.sample(NODE_IDS, self.random.choice([1, 2, 3]))
        partition = self.random.choice(self.partitions)
        self.cluster.controller.reassign(partition, target, self.harness.now_ms, Failover())

    def cancel(self) -> None:
        partition = self.random.choice(self.partitions)
        in_sync = self.cluster.in_sync(partition)
        if partition.is_reassigning and not all(node_id in partition.adding for node_id in in_sync):
            self.cluster.controller.cancel_reassignment(partition, self.harness.now_ms, Failover())

    def move(self) -> None:
        if self.up:
            partition, to = self.random.choice(self.partitions), self.random.choice(self.up)
            self.cluster.controller.set_leader(partition, to, self.harness.now_ms, Failover())

    def check(self) -> None:
        """Check what holds after each step."""
        copying = {(id(copy.partition), copy.node_id) for copy in self.cluster.controller.copies}
        assert copying == {(id(each), node_id) for each in self.partitions for node_id in each.copying}
        for each in self.partitions:
            assert len(set(each.replicas)) == len(each.replicas) >= 1
            assert set(each.copying) <= {*each.adding, *each.removing} <= set(each.replicas)
            assert each.replicas[len(each.replicas) - len(each.removing) :] == each.removing
            eligible = self.cluster.controller.eligible(each)
            assert each.leader_id in (*eligible, NO_LEADER)
            if eligible and not each.awaits_last_leader:
                assert each.leader_id != NO_LEADER
            for node_id, broker in self.cluster.brokers.items():
                if each.topic is self.cluster.topics.offsets_topic:
                    assert broker.coordinator.leads(each.index) == (node_id == each.leader_id)
        deadline = self.cluster.next_deadline()
        assert deadline is None or deadline > self.harness.now_ms - 1

    def settle(self) -> None:
        """Start all brokers, release and finish everything."""
        while len(self.up) < len(NODE_IDS):
            self.start()
        for topic in (*TOPICS, OFFSETS_TOPIC):
            self.cluster.controller.release_copies(topic, self.harness.now_ms)
            self.cluster.controller.finish_copies(topic, self.harness.now_ms)


@soak
def test_reassignments_among_stops_and_moves(subtests: pytest.Subtests) -> None:
    for seed in range(examples(20, soak=5_000)):
        with subtests.test(seed=seed):
            cluster = RandomCluster(seed)
            for _ in range(STEPS):
                cluster.step()
                cluster.check()
            cluster.settle()
            cluster.check()
            assert [each for each in cluster.partitions if each.is_reassigning or each.leader_id == NO_LEADER] == []
