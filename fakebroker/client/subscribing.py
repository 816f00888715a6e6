"""What can be subscribed to. Knows the rules for names, and nothing of groups and partitions."""

import re
from collections.abc import Iterable
from enum import Enum

from fakebroker.client.consumer_errors import InvalidSubscription

_MAX_NAME_LENGTH = 249
_NAME = re.compile(r"[a-zA-Z0-9._-]+")


class Subscribed(Enum):
    """What a consumer is subscribed to: one of these at a time."""

    TOPICS = "topics"
    PATTERN = "a pattern"
    PARTITIONS = "partitions"


def check_topics(topics: Iterable[str]) -> tuple[str, ...]:
    """The topics, each once, in their order.

    Raises:
        InvalidSubscription: There is something among them that is no name of a topic (Kafka's `Topic.validate`).
    """
    if isinstance(topics, str | bytes) or not isinstance(topics, Iterable):
        raise InvalidSubscription(f"topics {topics!r}: expected a list of names, or a compiled pattern (re.Pattern)")
    names = tuple(dict.fromkeys(topics))
    for name in names:
        if (
            not isinstance(name, str)
            or not _NAME.fullmatch(name)
            or name in (".", "..")
            or len(name) > _MAX_NAME_LENGTH
        ):
            raise InvalidSubscription(
                f"topic {name!r}: expected 1 to {_MAX_NAME_LENGTH} of a-z, A-Z, 0-9, '.', '_' and '-', not '.' or '..'"
            )
    if not names:
        raise InvalidSubscription("topics []: expected one or more; unsubscribe reads nothing any more")
    return names
