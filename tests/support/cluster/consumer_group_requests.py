"""Heartbeats of members of consumer group "g" (KIP-848), sent to a cluster without sockets."""

from typing import Any

from fakebroker.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    HeartbeatTopicPartitions,
)
from tests.support.cluster.cluster_harness import ClusterHarness


def beat(
    harness: ClusterHarness,
    member_id: str,
    epoch: int = 0,
    owned: set[int] | None = None,
    version: int = 1,
    *,
    broker: int = 1,
    client_id: str = "client",
    **fields: Any,
) -> Any:
    """Send a heartbeat of a member of group "g", which reports everything if it joins."""
    if epoch == 0:
        fields = {"rebalance_timeout_ms": 60_000, "subscribed_topic_names": ["news"], "topic_partitions": [], **fields}
    if owned is not None:
        partitions = HeartbeatTopicPartitions(topic_id=harness.topic().topic_id, partitions=sorted(owned))
        fields["topic_partitions"] = [partitions]
    request = ConsumerGroupHeartbeatRequest(
        **{"group_id": "g", "member_id": member_id, "member_epoch": epoch, **fields}
    )
    return harness.ask(request, version, broker=broker, client_id=client_id)


def assigned(response: Any) -> list[int] | None:
    if response.assignment is None:
        return None
    return [index for topic in response.assignment.topic_partitions for index in topic.partitions]
