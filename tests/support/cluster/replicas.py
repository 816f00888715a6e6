"""Helpers for tests of replicas and leaders: views of partitions, stops and starts of brokers, new topics."""

from typing import Any

from fakebroker.cluster.replication.coordinator_moves import Failover
from fakebroker.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from fakebroker.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.support.cluster.cluster_harness import ClusterHarness

TWO_REPLICAS: dict[str, object] = {"default.replication.factor": 2}
"""Give the topics of `ClusterHarness` two replicas per partition, of brokers 1 to n.

Partition i has replicas on brokers i + 1 (the preferred leader) and i + 2, counted modulo n: broker 1 follows broker n.
"""


def leaders(harness: ClusterHarness, topic: str = "news") -> list[int]:
    """Return the node id of the leader of each partition."""
    return [partition.leader_id for partition in harness.topic(topic).partitions]


def replicas(harness: ClusterHarness, topic: str = "news") -> list[tuple[int, ...]]:
    """Return the node ids of the replicas of each partition."""
    return [partition.replicas for partition in harness.topic(topic).partitions]


def stop_brokers(harness: ClusterHarness, *node_ids: int, elect: bool = True) -> None:
    for node_id in node_ids:
        broker = harness.cluster.brokers[node_id]
        harness.cluster.controller.stop_broker(broker, harness.now_ms, Failover(), elect=elect)


def start_broker(harness: ClusterHarness, node_id: int) -> None:
    harness.cluster.controller.start_broker(harness.cluster.brokers[node_id], harness.now_ms, Failover())


def metadata_of_partition(harness: ClusterHarness, broker: int = 1) -> Any:
    """Return the only partition of "news" in a Metadata response."""
    request = MetadataRequest(topics=[MetadataRequestTopic(name="news")])
    (partition,) = harness.ask(request, 12, broker=broker).topics[0].partitions
    return partition


def new_topic(
    name: str = "fresh",
    partitions: int = 2,
    factor: int = 1,
    assignments: dict[int, list[int]] | None = None,
    **configs: str | None,
) -> CreatableTopic:
    """Return a topic of a CreateTopics request. The names of configs have underscores instead of dots."""
    return CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=factor,
        assignments=[
            CreatableReplicaAssignment(partition_index=index, broker_ids=node_ids)
            for index, node_ids in (assignments or {}).items()
        ],
        configs=[CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()],
    )


def assigned_topic(
    name: str = "fresh", partitions: int = -1, factor: int = -1, **replicas_of: list[int]
) -> CreatableTopic:
    """Return a topic with explicit replicas: `assigned_topic(p0=[1, 2], p1=[2, 3])`."""
    assignments = {int(key.removeprefix("p")): node_ids for key, node_ids in replicas_of.items()}
    return new_topic(name, partitions, factor, assignments)


def create_topics(
    harness: ClusterHarness, *topics: CreatableTopic, version: int = 7, validate_only: bool = False
) -> list[Any]:
    """Send a CreateTopics request; returns the results of the topics."""
    request = CreateTopicsRequest(topics=list(topics), validate_only=validate_only)
    results: list[Any] = harness.ask(request, version).topics
    return results
