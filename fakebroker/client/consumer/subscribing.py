"""What can be subscribed to, and read from where. Knows the rules for names and numbers, and nothing of groups."""

import re
from collections.abc import Iterable, Mapping
from enum import Enum

from fakebroker.client.consumer.consumer_errors import InvalidSubscription
from fakebroker.client.member.assignors import TopicPartition
from fakebroker.errors import ConfigError

_NAME = re.compile(r"(?!\.{1,2}$)[a-zA-Z0-9._-]{1,249}")
LEGAL_NAME = "1 to 249 of a-z, A-Z, 0-9, '.', '_' and '-', not '.' or '..'"
_MOST_INT32, _MOST_INT64 = 2**31 - 1, 2**63 - 1


class Subscribed(Enum):
    """What a consumer is subscribed to: one of these at a time."""

    TOPICS = "topics"
    PATTERN = "a pattern"
    PARTITIONS = "partitions"


def is_legal_name(name: object) -> bool:
    """Whether a topic can have this name, or a static member: see `LEGAL_NAME` (Kafka's `Topic.validate`)."""
    return isinstance(name, str) and _NAME.fullmatch(name) is not None


def check_topics(topics: Iterable[str]) -> tuple[str, ...]:
    """The topics, each once, in their order.

    Raises:
        InvalidSubscription: There is something among them that is no name of a topic (Kafka's `Topic.validate`).
    """
    if isinstance(topics, str | bytes) or not isinstance(topics, Iterable):
        raise InvalidSubscription(f"topics {topics!r}: expected a list of names, or a compiled pattern (re.Pattern)")
    names = tuple(dict.fromkeys(topics))
    for name in names:
        if not is_legal_name(name):
            raise InvalidSubscription(f"topic {name!r}: expected {LEGAL_NAME}")
    if not names:
        raise InvalidSubscription("topics []: expected one or more; unsubscribe reads nothing any more")
    return names


def check_partitions(partitions: Iterable[TopicPartition]) -> tuple[TopicPartition, ...]:
    """The partitions, each once, in their order.

    Raises:
        InvalidSubscription: There is something among them that is no partition.
    """
    if isinstance(partitions, str | bytes) or not isinstance(partitions, Iterable):
        raise InvalidSubscription(f"partitions {partitions!r}: expected several, such as [('orders', 0)]")
    unique = tuple(dict.fromkeys(partitions))
    for partition in unique:
        is_one = isinstance(partition, tuple) and list(map(type, partition)) == [str, int]
        if not is_one or not 0 <= partition[1] <= _MOST_INT32:
            raise InvalidSubscription(f"partition {partition!r}: expected (topic, number), such as ('orders', 0)")
    return unique


def check_offsets(offsets: Mapping[TopicPartition, int]) -> None:
    """Raises `ConfigError` if there is something among them that is no offset."""
    for (topic, index), offset in offsets.items():
        if type(offset) is not int or not 0 <= offset <= _MOST_INT64:
            raise ConfigError(f"offset {offset!r} of {topic}-{index}: expected a whole number from 0 on")
