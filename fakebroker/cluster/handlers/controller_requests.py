"""Checks shared by the requests that Kafka's controller handles: timeouts, size limits, lists of replicas.

Functions with "error" in their name return an error message, or None if the request is valid.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from fakebroker.errors import ErrorCode

if TYPE_CHECKING:
    from fakebroker.cluster.cluster import Cluster

QUOTA_EXCEEDED = (ErrorCode.THROTTLING_QUOTA_EXCEEDED, "The throttling quota has been exceeded.")
"""The error of a topic whose creation, growth or deletion a `controller_mutation_rate` refuses (KIP-599)."""

MAX_RECORDS_PER_USER_OP = 10_000
"""The largest number of topics and partitions in one request (QuorumController)."""


def is_expired(timeout_ms: int) -> bool:
    """Return whether a request gets REQUEST_TIMED_OUT, without a message, because its timeout is not positive.

    In Kafka's controller, the event of such a request expires before it is processed (KafkaEventQueue).
    """
    return timeout_ms <= 0


def replicas_error(cluster: "Cluster", index: int, replicas: Sequence[int], factor: int | None = None) -> str | None:
    """Check the replicas of a partition (ReplicationControlManager.validateManualPartitionAssignment).

    Args:
        cluster: The cluster.
        index: The number of the partition.
        replicas: The requested node ids.
        factor: The required number of replicas; None for any number.
    """
    where = f"partition {index} on brokers {list(replicas)}"
    if not replicas or len(set(replicas)) < len(replicas):
        return f"{where}: expected one or more, each once"
    if not all(node_id in cluster.brokers for node_id in replicas):
        return f"{where}: expected brokers out of {list(cluster.brokers)}"
    if factor is not None and len(replicas) != factor:
        return f"{where}: expected {factor} replicas, as the first partition has"
    return None


def new_replicas_error(cluster: "Cluster", index: int, replicas: Sequence[int], factor: int) -> str | None:
    """Check the replicas of a new partition. At least one must be up, so that the partition has a leader."""
    error = replicas_error(cluster, index, replicas, factor)
    if error is None and not any(cluster.brokers[node_id].up for node_id in replicas):
        error = f"partition {index} on brokers {list(replicas)}, which are down: expected one that is up"
    return error
