"""Encoding and decoding of subscriptions and assignments in groups of type `consumer` (Kafka's `ConsumerProtocol`).

They are encoded in version 3 by default and decoded in any version. Topics and partitions are encoded in sorted order,
because a coordinator compares the metadata of a rejoin with the member's previous metadata byte by byte.
"""

import struct
from collections.abc import Iterable
from functools import lru_cache
from typing import TypeVar, cast

import msgspec

from fakebroker.errors import ProtocolError
from fakebroker.protocol.codec import decode, decoder_for, encode
from fakebroker.protocol.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    ConsumerTopicPartitions,
    StickyAssignorUserData,
)
from fakebroker.protocol.schema import Message
from fakebroker.topic_partition import TopicPartition, by_topic

M = TypeVar("M", bound=Message)

_VERSION = struct.Struct(">h")

_MOST_KEPT = 1_000
"""Number of small messages of each kind that are kept, because most groups have the same subscriptions."""
_SMALL = 16
"""The most topics or partitions of a small message."""
_SMALL_BYTES = 256
"""The most bytes of a small message."""

Partitions = tuple[TopicPartition, ...]


class Subscription(msgspec.Struct, frozen=True, kw_only=True):
    """The decoded subscription of a group member, by which the leader assigns partitions.

    Attributes:
        instance_id: `group.instance.id` of a static member (KIP-345).
        owned_partitions: The partitions that the member owns; with the assignor `sticky` those that it owned last.
        generation_id: The generation in which they were assigned; -1 if unknown.
    """

    member_id: str
    instance_id: str | None = None
    topics: tuple[str, ...]
    owned_partitions: tuple[TopicPartition, ...] = ()
    generation_id: int = -1


def encode_subscription(
    topics: Iterable[str],
    owned_partitions: Iterable[TopicPartition] = (),
    generation_id: int = -1,
    *,
    previous: tuple[tuple[TopicPartition, ...], int] | None = None,
    version: int = ConsumerProtocolSubscription.VERSIONS.last,
) -> bytes:
    """Encode a member's subscription as JoinGroup metadata.

    Args:
        topics: The topics that the member subscribes to.
        owned_partitions: The partitions that the member owns; encoded since version 1.
        generation_id: The generation in which they were assigned; encoded since version 2.
        previous: The partitions that the member owned last and their generation, for the user data of the assignor
            `sticky`. None for other assignors and new members.
        version: The version of the message.
    """
    topics, owned_partitions = tuple(topics), tuple(owned_partitions)
    is_small = previous is None and len(topics) + len(owned_partitions) <= _SMALL
    encode_it = _small_subscription if is_small else _encoded_subscription
    return encode_it(topics, owned_partitions, generation_id, previous, version)


def _encoded_subscription(
    topics: tuple[str, ...],
    owned_partitions: Partitions,
    generation_id: int,
    previous: tuple[Partitions, int] | None,
    version: int,
) -> bytes:
    user_data = None
    if previous is not None:
        partitions, last_generation_id = previous
        last = StickyAssignorUserData(previous_assignment=_grouped(partitions), generation=last_generation_id)
        user_data = encode(last, 1)
    return _with_version(
        ConsumerProtocolSubscription(
            topics=sorted(topics),
            user_data=user_data,
            owned_partitions=_grouped(owned_partitions),
            generation_id=generation_id,
        ),
        version,
    )


_small_subscription = lru_cache(_MOST_KEPT)(_encoded_subscription)


def decode_subscription(
    data: bytes, assignor: str = "range", member_id: str = "", instance_id: str | None = None
) -> Subscription:
    """Decode the JoinGroup metadata of a member.

    Args:
        data: The metadata.
        assignor: The selected protocol. With `sticky`, owned partitions are read from the user data, as in Kafka.
        member_id: The member's id, copied to the result.
        instance_id: The member's `group.instance.id`, copied to the result.

    Raises:
        ProtocolError: The subscription is malformed.
    """
    decode_it = _decoded_small_subscription if len(data) <= _SMALL_BYTES else _decoded_subscription
    topics, owned, generation_id = decode_it(data, assignor)
    return Subscription(
        member_id=member_id,
        instance_id=instance_id,
        topics=topics,
        owned_partitions=owned,
        generation_id=generation_id,
    )


def _decoded_subscription(data: bytes, assignor: str) -> tuple[tuple[str, ...], Partitions, int]:
    """Return topics, owned partitions and their generation."""
    decoded = _without_version(ConsumerProtocolSubscription, data)
    owned, generation_id = decoded.owned_partitions, decoded.generation_id
    if assignor == "sticky":
        owned, generation_id = _previous_sticky_assignment(decoded.user_data)
    return tuple(decoded.topics), _flat(owned), generation_id


_decoded_small_subscription = lru_cache(_MOST_KEPT)(_decoded_subscription)


def encode_assignment(partitions: Iterable[TopicPartition]) -> bytes:
    """Encode a member's partitions as a SyncGroup assignment."""
    partitions = tuple(partitions)
    return (_small_assignment if len(partitions) <= _SMALL else _encoded_assignment)(partitions)


def _encoded_assignment(partitions: Partitions) -> bytes:
    message = ConsumerProtocolAssignment(assigned_partitions=_grouped(partitions))
    return _with_version(message, message.VERSIONS.last)


_small_assignment = lru_cache(_MOST_KEPT)(_encoded_assignment)


def decode_assignment(data: bytes) -> tuple[TopicPartition, ...]:
    """Decode a SyncGroup assignment.

    Raises:
        ProtocolError: The assignment is empty or malformed.
    """
    return (_decoded_small_assignment if len(data) <= _SMALL_BYTES else _decoded_assignment)(data)


def _decoded_assignment(data: bytes) -> Partitions:
    partitions = _flat(_without_version(ConsumerProtocolAssignment, data).assigned_partitions)
    for topic, index in partitions:
        if index < 0:
            raise ProtocolError(f"assignment of {len(data)} bytes: partition {index} of {topic!r}, expected 0 or more")
    return partitions


_decoded_small_assignment = lru_cache(_MOST_KEPT)(_decoded_assignment)


def _previous_sticky_assignment(user_data: bytes | None) -> tuple[list[ConsumerTopicPartitions], int]:
    """Decode the user data of `StickyAssignor`: partitions and generation. Malformed data means none, as in Kafka."""
    for version in (1, 0) if user_data else ():
        try:
            last = decode(StickyAssignorUserData, user_data or b"", version)
        except ProtocolError:
            continue
        return last.previous_assignment, last.generation
    return [], -1


def _with_version(message: Message, version: int) -> bytes:
    return _VERSION.pack(version) + encode(message, version)


def _without_version(cls: type[M], data: bytes) -> M:
    """Decode a message that follows its version. Newer versions are decoded as our newest; more bytes are ignored."""
    try:
        (version,) = _VERSION.unpack_from(data)
        message, _ = decoder_for(cls, min(version, cls.VERSIONS.last))(data, _VERSION.size)
    except (struct.error, IndexError, ValueError, EOFError) as error:
        raise ProtocolError(
            f"{cls.__name__} malformed in a consumer's metadata of {len(data)} bytes: {error}"
        ) from None
    return cast(M, message)


def _grouped(partitions: Iterable[TopicPartition]) -> list[ConsumerTopicPartitions]:
    topics = by_topic(sorted(partitions))
    return [ConsumerTopicPartitions(topic=topic, partitions=indexes) for topic, indexes in topics.items()]


def _flat(topics: Iterable[ConsumerTopicPartitions]) -> tuple[TopicPartition, ...]:
    return tuple((topic.topic, partition) for topic in topics for partition in topic.partitions)
