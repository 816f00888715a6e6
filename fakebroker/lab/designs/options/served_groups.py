"""The groups that a coordinator serves, with their consumers; found by id, connection and topic."""

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from fakebroker.client.member.assignors import assign_range
from fakebroker.errors import ErrorCode
from fakebroker.lab.design import Link
from fakebroker.lab.designs.options.messages import (
    ANY_PARTITION,
    SESSION_TIMEOUT_NOT_VALID,
    TOPIC_PARTITION_NOT_VALID,
    RegisterConsumerRequest,
)
from fakebroker.protocol.consumer_protocol import Subscription
from fakebroker.topic_partition import TopicPartition

Assignment = dict[str, list[TopicPartition]]
"""Partitions by consumer id."""


@dataclass(slots=True, eq=False)
class ConsumerInfo:
    """A consumer of a group.

    Attributes:
        consumer_id, group_id: Its names.
        link: Its connection.
        topics: Its topics.
        session_timeout_ms: Its session timeout.
    """

    consumer_id: str
    group_id: str
    link: Link
    topics: tuple[str, ...]
    session_timeout_ms: float


class GroupInfo:
    """A group. Attributes: its id, and its consumers by id in the order of their registration."""

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.consumers: dict[str, ConsumerInfo] = {}


G = TypeVar("G", bound=GroupInfo)


class ServedGroups(Generic[G]):
    """The groups of one coordinator. A group exists while it has consumers.

    Args:
        new_group: Makes a group with an id.

    Attributes:
        consumers: By consumer id.
        by_link: Consumers by their present connection.
    """

    def __init__(self, new_group: Callable[[str], G]) -> None:
        self._new_group = new_group
        self._groups: dict[str, G] = {}
        self.consumers: dict[str, ConsumerInfo] = {}
        self.by_link: dict[Link, ConsumerInfo] = {}
        self._interested: dict[str, dict[G, None]] = {}

    def get(self, group_id: str) -> G | None:
        """Return a group; None if it has no consumers."""
        return self._groups.get(group_id)

    def __iter__(self) -> Iterator[G]:
        return iter(list(self._groups.values()))

    def add(self, request: RegisterConsumerRequest, link: Link) -> tuple[G, ConsumerInfo]:
        """Add the consumer of a request, or give it another connection; return its group and it."""
        group = self._groups.get(request.group_id)
        if group is None:
            group = self._groups[request.group_id] = self._new_group(request.group_id)
        topics = tuple(each.topic for each in request.subscribing)
        consumer = group.consumers.get(request.consumer_id)
        if consumer is None:
            timeout_ms = float(request.session_timeout)
            consumer = ConsumerInfo(request.consumer_id, request.group_id, link, topics, timeout_ms)
            group.consumers[request.consumer_id] = self.consumers[request.consumer_id] = consumer
        else:
            self.by_link.pop(consumer.link, None)
            consumer.link = link
        self.by_link[link] = consumer
        for topic in topics:
            self._interested.setdefault(topic, {})[group] = None
        return group, consumer

    def remove(self, consumer: ConsumerInfo) -> G:
        """Remove a consumer; return its group, which no longer exists if it was the last one."""
        group = self._groups[consumer.group_id]
        del group.consumers[consumer.consumer_id], self.consumers[consumer.consumer_id]
        self.by_link.pop(consumer.link, None)
        remaining = {topic for each in group.consumers.values() for topic in each.topics}
        for topic in set(consumer.topics) - remaining:
            self._interested[topic].pop(group, None)
        if not group.consumers:
            del self._groups[group.group_id]
        return group

    def interested_in(self, topics: Collection[str]) -> list[G]:
        """Return the groups that subscribe to any of some topics."""
        return list(dict.fromkeys(group for topic in topics for group in self._interested.get(topic, ())))


def changed_topics(before: Mapping[str, int], after: Mapping[str, int]) -> list[str]:
    """Return the topics that are new, or have other partitions."""
    return [topic for topic, partitions in after.items() if before.get(topic) != partitions]


def registration_error(
    request: RegisterConsumerRequest, partition_counts: Mapping[str, int], max_session_timeout_ms: float
) -> ErrorCode:
    """Return why a registration is not valid; NONE if it is."""
    for each in request.subscribing:
        if each.topic not in partition_counts or each.partition_ids != [ANY_PARTITION]:
            return TOPIC_PARTITION_NOT_VALID
    if not 0 < request.session_timeout <= max_session_timeout_ms:
        return SESSION_TIMEOUT_NOT_VALID
    return ErrorCode.NONE


def assignment_of(consumers: Collection[ConsumerInfo], partition_counts: Mapping[str, int]) -> Assignment:
    """Assign the partitions of each topic to its consumers, in ranges."""
    return assign_range(
        [Subscription(member_id=each.consumer_id, topics=each.topics) for each in consumers], partition_counts
    )
