"""The offsets at which a group member continues, by partition. Does not depend on requests or states."""

from collections.abc import Collection, Iterable, Mapping, MutableMapping

from fakebroker.topic_partition import TopicPartition


def known_positions(
    assigned: Iterable[TopicPartition], positions: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """Return the positions of the owned partitions, where known: the offsets to commit."""
    return {partition: positions[partition] for partition in assigned if partition in positions}


def start_at_committed(
    positions: MutableMapping[TopicPartition, int],
    assigned: Collection[TopicPartition],
    offsets: Iterable[tuple[TopicPartition, int]],
    *,
    starts_at_zero: bool,
) -> tuple[TopicPartition, ...]:
    """Start at committed offsets, unless the application has set a position already.

    Args:
        positions: The positions, to which those of owned partitions are added.
        assigned: The owned partitions.
        offsets: The committed offsets; negative for none.
        starts_at_zero: Whether the position is 0 where no offset is committed.

    Returns:
        The owned partitions that have no position, because no offset is committed.
    """
    owned, unknown = frozenset(assigned), []
    for partition, offset in offsets:
        if partition not in owned or partition in positions:
            continue
        if offset >= 0 or starts_at_zero:
            positions[partition] = max(offset, 0)
        else:
            unknown.append(partition)
    return tuple(unknown)
