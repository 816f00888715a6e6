"""Subscriptions and assignments as the bytes that members of a `consumer` group exchange, and back.

Written in version 3, read in any; sorted, because a coordinator compares the bytes of a rejoin. Knows the assignors'
plain data and the messages; nothing of members or generations.
"""

import struct
from collections.abc import Iterable
from typing import TypeVar, cast

from fakebroker.client.member.assignors import Subscription, TopicPartition
from fakebroker.errors import ProtocolError
from fakebroker.protocol.codec import decode, decoder_for, encode
from fakebroker.protocol.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    ConsumerTopicPartitions,
    StickyAssignorUserData,
)
from fakebroker.protocol.schema import Message

M = TypeVar("M", bound=Message)

_VERSION = struct.Struct(">h")


def encode_subscription(
    subscription: Subscription, *, previous: tuple[tuple[TopicPartition, ...], int] | None = None
) -> bytes:
    """A member's subscription as JoinGroup metadata.

    Args:
        subscription: Of it the ids are not written: JoinGroup has them itself.
        previous: The partitions that a member under `sticky` held last, with their generation. They go into the user
            data, which is where that assignor looks for them. `None` if there are none, and under other assignors.
    """
    user_data = None
    if previous is not None:
        partitions, generation_id = previous
        last = StickyAssignorUserData(previous_assignment=_grouped(partitions), generation=generation_id)
        user_data = encode(last, 1)
    return _with_version(
        ConsumerProtocolSubscription(
            topics=sorted(subscription.topics),
            user_data=user_data,
            owned_partitions=_grouped(subscription.owned_partitions),
            generation_id=subscription.generation_id,
        )
    )


def decode_subscription(data: bytes, assignor: str, member_id: str, instance_id: str | None) -> Subscription:
    """A member's subscription as its leader sees it.

    Args:
        data: The metadata that the member joined with.
        assignor: The protocol chosen; `sticky` looks for owned partitions in the user data, as Kafka's does.
        member_id: The member's id, for the result.
        instance_id: Its `group.instance.id`, for the result.

    Raises:
        ProtocolError: The bytes are not a subscription.
    """
    told = _without_version(ConsumerProtocolSubscription, data)
    owned, generation_id = told.owned_partitions, told.generation_id
    if assignor == "sticky":
        owned, generation_id = _sticky_claim(told.user_data)
    return Subscription(
        member_id=member_id,
        instance_id=instance_id,
        topics=tuple(told.topics),
        owned_partitions=_flat(owned),
        generation_id=generation_id,
    )


def encode_assignment(partitions: Iterable[TopicPartition]) -> bytes:
    """A member's partitions as the bytes of its SyncGroup assignment."""
    return _with_version(ConsumerProtocolAssignment(assigned_partitions=_grouped(partitions)))


def decode_assignment(data: bytes) -> tuple[TopicPartition, ...]:
    """The partitions of a SyncGroup assignment.

    Raises:
        ProtocolError: The bytes are not an assignment; no bytes at all are not one either.
    """
    return _flat(_without_version(ConsumerProtocolAssignment, data).assigned_partitions)


def _sticky_claim(user_data: bytes | None) -> tuple[list[ConsumerTopicPartitions], int]:
    """What `StickyAssignor` left in the user data; unreadable data claims nothing, as in Kafka."""
    for version in (1, 0) if user_data else ():
        try:
            last = decode(StickyAssignorUserData, user_data or b"", version)
        except ProtocolError:
            continue
        return last.previous_assignment, last.generation
    return [], -1


def _with_version(message: Message) -> bytes:
    version = message.VERSIONS.last
    return _VERSION.pack(version) + encode(message, version)


def _without_version(cls: type[M], data: bytes) -> M:
    """Read a message behind its version; one newer than ours is read as our newest, and what follows is left."""
    try:
        (version,) = _VERSION.unpack_from(data)
        message, _ = decoder_for(cls, min(version, cls.VERSIONS.last))(data, _VERSION.size)
    except (struct.error, IndexError, ValueError, EOFError) as error:
        raise ProtocolError(
            f"{cls.__name__}: malformed in a consumer's metadata of {len(data)} bytes: {error}"
        ) from None
    return cast(M, message)


def _grouped(partitions: Iterable[TopicPartition]) -> list[ConsumerTopicPartitions]:
    topics: dict[str, list[int]] = {}
    for topic, partition in sorted(partitions):
        topics.setdefault(topic, []).append(partition)
    return [ConsumerTopicPartitions(topic=topic, partitions=indexes) for topic, indexes in topics.items()]


def _flat(topics: Iterable[ConsumerTopicPartitions]) -> tuple[TopicPartition, ...]:
    return tuple((topic.topic, partition) for topic in topics for partition in topic.partitions)
