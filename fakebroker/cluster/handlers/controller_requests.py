"""What requests that Kafka's controller answers have in common: their timeouts, their limit, and lists of replicas.

Knows no single request.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fakebroker.cluster.cluster import Cluster

MAX_RECORDS_PER_USER_OP = 10_000
"""Most topics and partitions in one request (QuorumController)."""


def timeout_fault(timeout_ms: int) -> str | None:
    """Why the controller does nothing for a request and answers REQUEST_TIMED_OUT, or None.

    Without time left, its event is over before its turn comes (KafkaEventQueue).
    """
    return None if timeout_ms > 0 else f"timeout_ms={timeout_ms}: expected 1 or more"


def replicas_fault(cluster: "Cluster", index: int, replicas: Sequence[int], factor: int | None = None) -> str | None:
    """Why a partition may not be on these brokers, or None (Kafka: validateManualPartitionAssignment).

    Args:
        cluster: With its brokers.
        index: The partition's number.
        replicas: The brokers.
        factor: How many there must be, if that is certain.
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
    """Why a new partition may not be on these brokers, or None: one of them must be up to lead it."""
    fault = replicas_fault(cluster, index, replicas, factor)
    if fault is None and not any(cluster.brokers[node_id].up for node_id in replicas):
        fault = f"partition {index} on brokers {list(replicas)}, which are down: expected one that is up"
    return fault
