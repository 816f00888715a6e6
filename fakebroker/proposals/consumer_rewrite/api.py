"""Requests, answers, stored metadata and settings of the rewrite design's coordinator. Plain data."""

from collections.abc import Callable, Hashable, Mapping

import msgspec

from fakebroker.assignment import MemberPartitions, RankedMembers, assign_in_turn, assign_ranges
from fakebroker.errors import ErrorCode
from fakebroker.proposals.consumer_rewrite.errors import NONE
from fakebroker.topic_partition import TopicPartition

Strategy = Callable[[RankedMembers, Mapping[str, int]], MemberPartitions]
"""Assigns partitions to the consumers of a group, by the partition counts of their topics."""

STRATEGIES: Mapping[str, Strategy] = {"range": assign_ranges, "roundrobin": assign_in_turn}
"""The strategies that Kafka includes, by their friendly names."""


class RewriteConfig(msgspec.Struct, frozen=True):
    """The server-side configs.

    Attributes:
        max_session_timeout_ms: `max.session.timeout`; Kafka's default of `group.max.session.timeout.ms`.
        strategies: `partition.assignment.strategies`, by friendly name.
    """

    max_session_timeout_ms: int = 1_800_000
    strategies: Mapping[str, Strategy] = msgspec.field(default_factory=lambda: STRATEGIES)


class JoinRequest(msgspec.Struct, frozen=True):
    """A JoinGroupRequest.

    Attributes:
        group_id: The group.
        consumer_id: The id that an earlier JoinGroupResponse assigned; "" without one.
        session_timeout_ms: The consumer is dead after this time without a heartbeat.
        topics: The subscription. Topics need not exist.
        strategy: The friendly name of the partition assignment strategy.
        host: The host of the consumer, kept in its metadata.
        connection: The connection of the request, which is broken if the consumer expires; None if it has none.
    """

    group_id: str
    consumer_id: str
    session_timeout_ms: int
    topics: tuple[str, ...]
    strategy: str
    host: str = ""
    connection: Hashable = None


class JoinAnswer(msgspec.Struct, frozen=True):
    """A JoinGroupResponse: an error, or the consumer's id, its generation and its partitions."""

    error: ErrorCode = NONE
    generation_id: int = -1
    consumer_id: str = ""
    partitions: tuple[TopicPartition, ...] = ()


class ConsumerMetadata(msgspec.Struct, frozen=True):
    """What the registry keeps of a consumer."""

    consumer_id: str
    host: str
    session_timeout_ms: int
    topics: tuple[str, ...]
    partitions: tuple[TopicPartition, ...]


class GroupMetadata(msgspec.Struct, frozen=True):
    """What the registry keeps of a group: generation, membership and ownership, in one value.

    Attributes:
        generation_id: The generation; the first one is 1.
        strategy: The partition assignment strategy of all its consumers.
        consumers: The consumers, at least one.
        partition_counts: The number of partitions of each subscribed topic at the assignment, by which a new
            coordinator notices that topics have changed.
    """

    generation_id: int
    strategy: str
    consumers: tuple[ConsumerMetadata, ...]
    partition_counts: Mapping[str, int]


Stored = Callable[[ErrorCode, float], None]
"""Called when a write is complete: with NONE or the error for consumers, and the time in milliseconds."""

Store = Callable[[str, GroupMetadata, Stored], None]
"""Write the metadata of a group to the registry, in one atomic write.

The callback may be called before this returns, or later. NOT_COORDINATOR_FOR_GROUP means that another coordinator has
read the shard since it was loaded here, so that this one must have been demoted.
"""
