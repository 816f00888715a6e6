"""What assignors are given, and what they return. Plain data."""

from collections.abc import Callable, Mapping, Set
from struct import Struct
from typing import NamedTuple

from fakebroker.errors import FakebrokerError

TopicId = bytes
"""The 16 bytes of a topic's UUID."""

Assignment = Mapping[TopicId, frozenset[int]]
"""The partitions of one member by topic. There is no empty set in it."""


class MemberSpec(NamedTuple):
    """A member, as assignors see it (Kafka's `MemberSubscription` and `MemberAssignment`).

    Attributes:
        instance_id: Its `group.instance.id`; None for a dynamic member.
        topic_ids: The existing topics that it subscribes to.
        assignment: Its target assignment so far; topics may be deleted or no longer subscribed. A static member that
            replaces another one starts with the other's.
    """

    instance_id: str | None
    topic_ids: Set[TopicId]
    assignment: Assignment


class GroupSpec(NamedTuple):
    """A group, as assignors see it (Kafka's `GroupSpec` and `SubscribedTopicDescriber`).

    Attributes:
        members: The members by member id. `uniform` depends on their order: in Kafka, that of a hash map, which is
            arbitrary but fixed for given member ids. Callers sort by member id.
        partition_counts: Number of partitions of each topic that a member subscribes to.
        homogeneous: Whether all members subscribe to the same topics. Kafka compares the topics' names, including those
            of topics that do not exist, so this is not derived from `topic_ids`.
    """

    members: Mapping[str, MemberSpec]
    partition_counts: Mapping[TopicId, int]
    homogeneous: bool


Assignor = Callable[[GroupSpec], dict[str, Assignment]]
"""Returns the target assignment of every member, by member id.

A partition has at most one owner in the group's members, and exactly one in the result, unless its topic has no
subscriber. The assignment of a member may be the object that it had before, if nothing has changed.

Raises `PartitionAssignorError`, which Kafka answers with UNKNOWN_SERVER_ERROR.
"""


class PartitionAssignorError(FakebrokerError):
    """A group that cannot be assigned, because members own partitions that do not exist."""


_two_longs = Struct(">qq").unpack


def uuid_order(topic_id: TopicId) -> tuple[int, int]:
    """Return a sort key that orders topic ids as Kafka's `Uuid.compareTo` does: as two signed integers of 64 bits."""
    most_significant, least_significant = _two_longs(topic_id)
    return most_significant, least_significant
