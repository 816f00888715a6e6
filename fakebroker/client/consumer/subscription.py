"""Validation of the topics, partitions and offsets that an application passes to the consumer."""

import re
from collections.abc import Iterable, Mapping
from enum import Enum

from fakebroker.client.errors import InvalidSubscription
from fakebroker.errors import ConfigError
from fakebroker.topic_partition import (
    LEGAL_NAME,
    MAX_INT64,
    TopicPartition,
    format_partitions,
    is_legal_name,
    is_offset,
    is_partition,
)


class SubscriptionType(Enum):
    """How a consumer gets its partitions (Kafka's `SubscriptionState.SubscriptionType`)."""

    TOPICS = "topics"
    PATTERN = "a pattern"
    PARTITIONS = "partitions"


def check_topics(topics: Iterable[str]) -> tuple[str, ...]:
    """Return the topics without duplicates, in order.

    Raises:
        InvalidSubscription: There are none, or one is not a valid name (Kafka's `Topic.validate`).
    """
    if isinstance(topics, str | bytes) or not isinstance(topics, Iterable):
        raise InvalidSubscription(f"topics={topics!r}: expected a list of names, or a compiled pattern (re.Pattern)")
    names = tuple(dict.fromkeys(topics))
    for name in names:
        if not is_legal_name(name):
            raise InvalidSubscription(f"topic={name!r}: expected {LEGAL_NAME}")
    if not names:
        raise InvalidSubscription("topics=[]: expected one or more; call unsubscribe to stop reading")
    return names


def check_pattern(pattern: re.Pattern[str]) -> str:
    """Return the text of a pattern that a broker will match (RE2).

    Raises:
        InvalidSubscription: It has flags that are not part of its text, which is all that is sent.
    """
    if re.compile(pattern.pattern).flags != pattern.flags:
        raise InvalidSubscription(f"pattern={pattern!r}: expected flags in the pattern itself, such as '(?i)orders'")
    return pattern.pattern


def check_partitions(partitions: Iterable[TopicPartition]) -> tuple[TopicPartition, ...]:
    """Return the partitions without duplicates, in order.

    Raises:
        InvalidSubscription: One is not a partition.
    """
    if isinstance(partitions, str | bytes) or not isinstance(partitions, Iterable):
        raise InvalidSubscription(
            f"partitions={partitions!r}: expected a list of (topic, number), such as [('orders', 0)]"
        )
    unique = tuple(dict.fromkeys(partitions))
    for partition in unique:
        if not is_partition(partition):
            raise InvalidSubscription(f"partition={partition!r}: expected (topic, number), such as ('orders', 0)")
    return unique


def check_offsets(offsets: Mapping[TopicPartition, int]) -> None:
    """Raise `ConfigError` if one of the offsets is invalid."""
    for partition, offset in offsets.items():
        if not is_offset(offset):
            name = format_partitions([partition])
            raise ConfigError.of("offset", offset, f"an integer from 0 to {MAX_INT64}", where=name)
