"""Topic names and partitions: type, validation, grouping, formatting. Does not depend on sockets or clocks."""

import re
from collections.abc import Iterable

TopicPartition = tuple[str, int]
"""A partition: topic name and partition index."""

LEGAL_NAME = "1 to 249 of a-z, A-Z, 0-9, '.', '_' and '-', not '.' or '..'"
"""What `is_legal_name` accepts, for error messages."""

MAX_INT32, MAX_INT64 = 2**31 - 1, 2**63 - 1

_NAME = re.compile(r"(?!\.{1,2}$)[a-zA-Z0-9._-]{1,249}")


def is_legal_name(name: object) -> bool:
    """Return whether this is a valid topic name or `group.instance.id` (Kafka's `Topic.validate`)."""
    return isinstance(name, str) and _NAME.fullmatch(name) is not None


def is_partition(value: object) -> bool:
    """Return whether this is a `TopicPartition`; the topic's name is not validated."""
    return isinstance(value, tuple) and [type(part) for part in value] == [str, int] and 0 <= value[1] <= MAX_INT32


def is_offset(value: object) -> bool:
    """Return whether this is an offset that can be committed or fetched from."""
    return type(value) is int and 0 <= value <= MAX_INT64


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """Return the partition indexes of each topic, in the order given."""
    topics: dict[str, list[int]] = {}
    for topic, partition in partitions:
        topics.setdefault(topic, []).append(partition)
    return topics


def format_partitions(partitions: Iterable[TopicPartition]) -> str:
    """Return partitions as Kafka writes them, such as "orders-0, orders-1"; "none" if there are none."""
    return ", ".join(f"{topic}-{index}" for topic, index in partitions) or "none"
