"""Checks that are shared by the requests that Kafka's controller handles: timeouts, size limits, lists of replicas."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fakebroker.cluster.cluster import Cluster

MAX_RECORDS_PER_USER_OP = 10_000
"""The largest number of topics and partitions in one request (QuorumController)."""


def timeout_fault(timeout_ms: int) -> str | None:
    """Return why the controller answers REQUEST_TIMED_OUT without handling the request, or None.

    Its event expires before it is processed (KafkaEventQueue).
    """
    return None if timeout_ms > 0 else f"timeout_ms={timeout_ms}: expected 1 or more"


def replicas_fault(cluster: "Cluster", index: int, replicas: Sequence[int], factor: int | None = None) -> str | None:
    """Return why a partition may not have these replicas, or None (Kafka: validateManualPartitionAssignment).

    Args:
        cluster: The cluster.
        index: The number of the partition.
        replicas: Node ids.
        factor: The required number of replicas, None for any.
    """
    where = f"partition {index} on brokers {list(replicas)}"
    if not replicas or len(set(replicas)) < len(replicas):
        return f"{where}: expected one or more, each once"
    if not all(node_id in cluster.brokers for node_id in replicas):
        return f"{where}: expected brokers out of {list(cluster.brokers)}"
    if factor is not None and len(replicas) != factor:
        return f"{where}: expected {factor} replicas, as the first partition has"
    return None


def new_replicas_fault(cluster: "Cluster", index: int, replicas: Sequence[int], factor: int) -> str | None:
    """Return why a new partition may not have these replicas, or None. One of them must be up to lead it."""
    fault = replicas_fault(cluster, index, replicas, factor)
    if fault is None and not any(cluster.brokers[node_id].up for node_id in replicas):
        fault = f"partition {index} on brokers {list(replicas)}, which are down: expected one that is up"
    return fault
