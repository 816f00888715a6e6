"""Topic names, partitions such as "orders-0", and offsets: validation, parsing, grouping, formatting."""

import re
from collections.abc import Iterable
from typing import cast

from fakebroker.errors import ConfigError

TopicPartition = tuple[str, int]
"""A partition: topic name and partition index."""

LEGAL_NAME = "a name of 1 to 249 characters (a-z, A-Z, 0-9, '.', '_', '-') other than '.' and '..'"
"""The names that `is_legal_name` accepts, for error messages."""

MAX_INT16, MAX_INT32, MAX_INT64 = 2**15 - 1, 2**31 - 1, 2**63 - 1

_NAME = re.compile(r"(?!\.{1,2}$)[a-zA-Z0-9._-]{1,249}")
_PARTITION = re.compile(r"(.+)-([0-9]{1,10})", re.DOTALL)


def is_legal_name(name: object) -> bool:
    """Return whether a value is a valid topic name or `group.instance.id` (Kafka's `Topic.validate`)."""
    return isinstance(name, str) and _NAME.fullmatch(name) is not None


def name_error(name: str) -> str | None:
    """Return an error message if a topic name is invalid, else None."""
    return None if is_legal_name(name) else f"topic name {name!r}: expected {LEGAL_NAME}"


def unify_collision_chars(name: str) -> str:
    """Replace dots by underscores, as Kafka does in the names of metrics.

    Kafka rejects a new topic with the same result as another one, because both would have the same metrics.
    """
    return name.replace(".", "_")


def is_partition(value: object) -> bool:
    """Return whether a value is a `TopicPartition`. The topic name is not validated."""
    return isinstance(value, tuple) and [type(part) for part in value] == [str, int] and 0 <= value[1] <= MAX_INT32


def is_offset(value: object) -> bool:
    """Return whether a value is an offset that can be committed or fetched from."""
    return type(value) is int and 0 <= value <= MAX_INT64


def parse_partition(value: object, field: str = "partition", *, where: str = "") -> TopicPartition:
    """Parse a partition in Kafka's notation, such as "orders-0". The topic name is not validated.

    Args:
        value: The text; a `TopicPartition` is returned unchanged.
        field: The name of the setting or argument, for the error message.
        where: The context, for the error message.

    Raises:
        ConfigError: The value is not a partition.
    """
    if is_partition(value):
        return cast(TopicPartition, value)
    match = _PARTITION.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise ConfigError.of(field, value, "a topic and a number, such as 'orders-0'", where=where)
    topic, index = match[1], int(match[2])
    if index > MAX_INT32:
        raise ConfigError.of(field, value, f"a partition number from 0 to {MAX_INT32}", where=where)
    return topic, index


def parse_partitions(names: Iterable[str]) -> tuple[TopicPartition, ...]:
    """Parse partitions in Kafka's notation; see `parse_partition`."""
    return tuple(map(parse_partition, names))


def partition_name(partition: TopicPartition) -> str:
    """Return a partition in Kafka's notation, such as "orders-0"."""
    return f"{partition[0]}-{partition[1]}"


def partition_names(partitions: Iterable[TopicPartition]) -> tuple[str, ...]:
    """Return partitions in Kafka's notation, such as "orders-0"."""
    return tuple([f"{topic}-{index}" for topic, index in partitions])


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """Group partition indexes by topic. Topics, and the indexes of each topic, keep the given order."""
    topics: dict[str, list[int]] = {}
    for topic, partition in partitions:
        topics.setdefault(topic, []).append(partition)
    return topics


def format_partitions(partitions: Iterable[TopicPartition]) -> str:
    """Format partitions in Kafka's notation, such as "orders-0, orders-1"; "none" if there are none."""
    return ", ".join(partition_names(partitions)) or "none"
