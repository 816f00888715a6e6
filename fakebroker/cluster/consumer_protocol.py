"""What seeded members of a consumer group have told each other: their shares of the partitions, and all of it as bytes.

Kafka's brokers never read these bytes. Knows neither groups nor logs.
"""

import struct
from collections.abc import Mapping
from functools import lru_cache

from fakebroker.protocol.codec import encode
from fakebroker.protocol.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    ConsumerTopicPartitions,
)
from fakebroker.protocol.schema import Message

Place = tuple[str, int]
"""A topic and the number of one of its partitions."""

_VERSION = struct.Struct(">h")
_KEPT = 1024
"""Of many groups that are alike, most bytes are the same."""


# Shares


def share_out(protocol: str, counts: Mapping[str, int], members: int) -> list[list[Place]]:
    """Each member's partitions of topics that all of them subscribe to.

    Args:
        protocol: "range" gives runs of neighboring partitions, as `RangeAssignor` does to members in this order; with
            any other name they are dealt out in turn.
        counts: The topics' numbers of partitions.
        members: How many members there are.
    """
    if not members:
        return []
    return _runs(counts, members) if protocol == "range" else _dealt(counts, members)


def _runs(counts: Mapping[str, int], members: int) -> list[list[Place]]:
    shares: list[list[Place]] = [[] for _ in range(members)]
    for topic, count in counts.items():
        size, extra = divmod(count, members)
        start = 0
        for rank, share in enumerate(shares):
            stop = start + size + (rank < extra)
            share += [(topic, index) for index in range(start, stop)]
            start = stop
    return shares


def _dealt(counts: Mapping[str, int], members: int) -> list[list[Place]]:
    places = [(topic, index) for topic, count in counts.items() for index in range(count)]
    return [places[rank::members] for rank in range(members)]


# Bytes


@lru_cache(_KEPT)
def subscription_bytes(topics: tuple[str, ...]) -> bytes:
    """What a member joins with."""
    return _with_version(ConsumerProtocolSubscription(topics=sorted(topics)))


@lru_cache(_KEPT)
def assignment_bytes(places: tuple[Place, ...]) -> bytes:
    """What a leader gives a member."""
    topics: dict[str, list[int]] = {}
    for topic, index in sorted(places):
        topics.setdefault(topic, []).append(index)
    assigned = [ConsumerTopicPartitions(topic=topic, partitions=indexes) for topic, indexes in topics.items()]
    return _with_version(ConsumerProtocolAssignment(assigned_partitions=assigned))


def _with_version(message: Message) -> bytes:
    version = message.VERSIONS.last
    return _VERSION.pack(version) + encode(message, version)
