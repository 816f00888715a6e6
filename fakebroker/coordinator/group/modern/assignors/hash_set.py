"""The order in which Java iterates over a `HashSet` of partitions.

It exists because it decides which partitions a member gives up: Kafka's `UniformHomogeneousAssignmentBuilder` keeps the
first ones of such a set. The order is ascending for partitions below 16.
"""

from collections.abc import Collection

_MIN_BUCKETS = 16


def hash_set_order(partitions: Collection[int]) -> list[int]:
    """Return partitions in the order of a `java.util.HashSet` that was created from a collection of them.

    Kafka creates such sets when it reads records of target assignments. The order of partitions that share a bucket is
    that of the record, which is not known here: they are in ascending order.
    """
    buckets = _MIN_BUCKETS
    while buckets * 3 <= len(partitions) * 4:
        buckets *= 2
    return sorted(partitions, key=lambda partition: ((partition ^ partition >> 16) & (buckets - 1), partition))
