"""Topic names, partitions such as "orders-0", and offsets: validation, parsing, grouping, formatting."""

import re
from base64 import urlsafe_b64encode
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar, cast

from fakebroker.errors import ConfigError

TopicPartition = tuple[str, int]
"""A partition: topic name and partition index."""

PartitionName = str | TopicPartition
"""A partition in arguments: "orders-0" or ("orders", 0)."""

T = TypeVar("T")

LEGAL_NAME = "a name of 1 to 249 characters (a-z, A-Z, 0-9, '.', '_', '-') other than '.' and '..'"
"""The names that `is_legal_name` accepts, for error messages."""

MAX_INT16, MAX_INT32, MAX_INT64 = 2**15 - 1, 2**31 - 1, 2**63 - 1

_NAME = re.compile(r"(?!\.{1,2}$)[a-zA-Z0-9._-]{1,249}")
_PARTITION = re.compile(r"(.+)-([0-9]{1,10})", re.DOTALL)


class PartitionMap(dict[Any, T]):
    """Values by partition, which can be looked up and compared by names, too: `lag["orders-0"]`, `lag["orders", 0]`.

    The keys are of type `TopicPartition`. They are `Any` for type checkers, which would refuse names otherwise.
    """

    def __getitem__(self, key: PartitionName) -> T:
        found = _partition_of(key)
        if found not in self:
            raise KeyError(key)
        return super().__getitem__(found)

    def __contains__(self, key: object) -> bool:
        return super().__contains__(_partition_of(key))

    def get(self, key: Any, default: Any = None) -> Any:
        return super().get(_partition_of(key), default)

    def __eq__(self, other: object) -> bool:
        named = {_partition_of(key): value for key, value in other.items()} if isinstance(other, Mapping) else other
        return dict(self) == named

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = None


class PartitionTuple(tuple[Any, ...]):
    """Partitions, which can be found and compared by names, too: `"orders-0" in member.assigned_partitions`.

    The entries are of type `TopicPartition`. They are `Any` for type checkers, which would refuse names otherwise.
    """

    __slots__ = ()

    def __contains__(self, key: object) -> bool:
        return super().__contains__(_partition_of(key))

    def __eq__(self, other: object) -> bool:
        named = tuple(map(_partition_of, other)) if isinstance(other, tuple) else other
        return tuple(self) == named

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = tuple.__hash__


def _partition_of(key: object) -> Any:
    """Return the partition that a key names; the key itself if it names none."""
    match = _PARTITION.fullmatch(key) if isinstance(key, str) else None
    return key if match is None else (match[1], int(match[2]))


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


def parse_partitions(names: Iterable[str]) -> PartitionTuple:
    """Parse partitions in Kafka's notation; see `parse_partition`."""
    return PartitionTuple(map(parse_partition, names))


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


def topic_id_text(topic_id: bytes) -> str:
    """Return a topic id as Kafka's tools print it (`Uuid.toString`): 22 characters of base64."""
    return urlsafe_b64encode(topic_id).decode().rstrip("=")


def format_partitions(partitions: Iterable[TopicPartition]) -> str:
    """Format partitions in Kafka's notation, such as "orders-0, orders-1"; "none" if there are none."""
    return ", ".join(partition_names(partitions)) or "none"
