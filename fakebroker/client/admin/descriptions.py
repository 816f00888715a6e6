"""What the admin client tells and takes: plain values in Kafka's terms. Knows no messages."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from fakebroker.client.member.assignors import TopicPartition

BROKERS_CHOICE = -1
"""The broker's own number of partitions or replicas (KIP-464)."""


@dataclass(frozen=True, slots=True)
class Node:
    """A broker."""

    node_id: int
    host: str
    port: int
    rack: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterDescription:
    """A cluster.

    Attributes:
        cluster_id: None where the broker asked is too old to tell (before 0.10.1).
        controller_id: The broker that topics are created at; -1 if there is none.
    """

    cluster_id: str | None
    controller_id: int
    nodes: tuple[Node, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionDescription:
    """A partition: its replicas by node id, -1 for a leader that there is not."""

    partition: int
    leader: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicDescription:
    """A topic.

    Attributes:
        topic_id: 16 bytes; None where the broker asked is too old to tell (before 2.8).
        partitions: By their numbers.
    """

    name: str
    topic_id: bytes | None
    is_internal: bool
    partitions: tuple[PartitionDescription, ...]

    @property
    def has_leaders(self) -> bool:
        """Whether every partition has a leader."""
        return all(partition.leader >= 0 for partition in self.partitions)


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to be created."""

    name: str
    num_partitions: int = BROKERS_CHOICE
    replication_factor: int = BROKERS_CHOICE
    configs: Mapping[str, str | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupListing:
    """A group as it is listed.

    Attributes:
        protocol_type: "consumer" for consumers, "" for a group that has only offsets.
        state: None where its coordinator is too old to tell (before 2.6).
        type: "classic" or "consumer"; None where its coordinator is too old to tell (before 3.8).
    """

    group_id: str
    protocol_type: str
    state: str | None
    type: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberDescription:
    """A member of a group.

    Attributes:
        client_host: In Kafka's form, such as "/127.0.0.1".
        metadata: The bytes that it joined with.
        assignment: The partitions that it has; None where these are not what consumers tell each other.
        assignment_data: The bytes that it was given.
        is_expected: It is no member yet: it was registered (`Admin.add_members_to_group`) and is to join.
    """

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: tuple[TopicPartition, ...] | None
    assignment_data: bytes
    is_expected: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupDescription:
    """A group.

    Attributes:
        state: Kafka's name of it, such as "Stable".
        protocol_type: "consumer" for consumers, "" for a group that has only offsets.
        protocol_name: The assignor in use; "" unless the group is stable.
        coordinator: The broker that told of it.
    """

    group_id: str
    state: str
    protocol_type: str
    protocol_name: str
    members: tuple[MemberDescription, ...]
    coordinator: Node


@dataclass(frozen=True, slots=True)
class OffsetAndMetadata:
    """A committed offset; `leader_epoch` is -1 where there is none, or the broker is too old to tell."""

    offset: int
    metadata: str = ""
    leader_epoch: int = -1
