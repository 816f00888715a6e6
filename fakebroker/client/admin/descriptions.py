"""Values that the admin client takes and returns, in Kafka's terms."""

from collections.abc import Hashable, Iterator, Mapping
from typing import Generic, TypeVar

import msgspec

from fakebroker.client.errors import AdminError
from fakebroker.topic_partition import TopicPartition

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

BROKERS_CHOICE = -1
"""The broker's default number of partitions or replicas (KIP-464)."""

TRANSACTION_STATES = (
    *("Empty", "Ongoing", "PrepareCommit", "PrepareAbort"),
    *("CompleteCommit", "CompleteAbort", "Dead", "PrepareEpochFence"),
)
"""Kafka's names of the states of transactional ids."""


class Node(msgspec.Struct, frozen=True):
    """A broker."""

    node_id: int
    host: str
    port: int
    rack: str | None = None


class ClusterDescription(msgspec.Struct, frozen=True, kw_only=True):
    """A cluster.

    Attributes:
        cluster_id: None if the broker does not return it (before 0.10.1).
        controller_id: Node id of the controller, which creates topics; -1 if there is none.
    """

    cluster_id: str | None
    controller_id: int
    nodes: tuple[Node, ...]


class PartitionDescription(msgspec.Struct, frozen=True, kw_only=True):
    """A partition. Leader and replicas are node ids; `leader` is -1 if there is none."""

    partition: int
    leader: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]


class TopicDescription(msgspec.Struct, frozen=True, kw_only=True):
    """A topic.

    Attributes:
        topic_id: 16 bytes; None if the broker does not return it (before 2.8).
        partitions: Ordered by index.
    """

    name: str
    topic_id: bytes | None
    is_internal: bool
    partitions: tuple[PartitionDescription, ...]

    @property
    def has_leaders(self) -> bool:
        """Whether every partition has a leader."""
        return all(partition.leader >= 0 for partition in self.partitions)


class NewTopic(msgspec.Struct, frozen=True):
    """A topic to create."""

    name: str
    num_partitions: int = BROKERS_CHOICE
    replication_factor: int = BROKERS_CHOICE
    configs: Mapping[str, str | None] = msgspec.field(default_factory=dict)


class GroupListing(msgspec.Struct, frozen=True, kw_only=True):
    """A group in `Admin.list_groups`.

    Attributes:
        protocol_type: "consumer" for consumers, "" for a group with offsets only.
        state: None if the coordinator does not return it (before 2.6).
        type: "classic" or "consumer"; None if the coordinator does not return it (before 3.8).
    """

    group_id: str
    protocol_type: str
    state: str | None
    type: str | None


class MemberDescription(msgspec.Struct, frozen=True, kw_only=True):
    """A member of a group.

    Attributes:
        client_host: As Kafka formats it, such as "/127.0.0.1".
        metadata: The bytes of its JoinGroup metadata.
        assignment: Its partitions; None if they are not in the format of consumers.
        assignment_data: The bytes of its assignment.
        is_expected: Whether the member was registered with `Admin.add_members_to_group` and has not joined yet.
        rack_id, member_epoch, subscribed_topic_names, subscribed_topic_regex: Of members of groups of type "consumer";
            otherwise None.
        target_assignment: The partitions that it will have, in a group of type "consumer"; otherwise None.
        is_classic: Whether it is a classic member in a group of type "consumer"; None if the coordinator does not
            return it (before 4.0).
    """

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: tuple[TopicPartition, ...] | None
    assignment_data: bytes
    is_expected: bool = False
    rack_id: str | None = None
    member_epoch: int | None = None
    target_assignment: tuple[TopicPartition, ...] | None = None
    subscribed_topic_names: tuple[str, ...] | None = None
    subscribed_topic_regex: str | None = None
    is_classic: bool | None = None


class GroupDescription(msgspec.Struct, frozen=True, kw_only=True):
    """A group.

    Attributes:
        type: "classic", or "consumer" for a group of KIP-848.
        state: Kafka's name of the state, such as "Stable".
        protocol_type: "consumer" for consumers, "" for a group with offsets only.
        protocol_name: The assignor; "" in a classic group that is not stable.
        coordinator: The broker that described it.
        group_epoch, assignment_epoch: Of a group of type "consumer"; otherwise None.
    """

    group_id: str
    type: str
    state: str
    protocol_type: str
    protocol_name: str
    members: tuple[MemberDescription, ...]
    coordinator: Node
    group_epoch: int | None = None
    assignment_epoch: int | None = None


class OffsetAndMetadata(msgspec.Struct, frozen=True):
    """A committed offset; `leader_epoch` is -1 if there is none, or the broker does not return it."""

    offset: int
    metadata: str = ""
    leader_epoch: int = -1


class TransactionListing(msgspec.Struct, frozen=True, kw_only=True):
    """A transactional id in `Admin.list_transactions`.

    Attributes:
        state: One of `TRANSACTION_STATES`.
    """

    transactional_id: str
    producer_id: int
    state: str


class TransactionDescription(msgspec.Struct, frozen=True, kw_only=True):
    """A transactional id.

    Attributes:
        state: One of `TRANSACTION_STATES`.
        producer_epoch: The epoch; with transaction.version 2, raised at each end of a transaction (KIP-890).
        timeout_ms: The timeout of its transactions.
        start_ms: When the transaction began, in milliseconds since the Unix epoch; None if none has begun. Kept until
            the next one.
        partitions: The partitions of the transaction, with the group's partition of `__consumer_offsets`; empty if it
            is complete.
        coordinator: The broker that described it.
    """

    transactional_id: str
    state: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    start_ms: int | None
    partitions: tuple[TopicPartition, ...]
    coordinator: Node


class ProducerIdAndEpoch(msgspec.Struct, frozen=True):
    """The producer id and epoch of a transactional id after `Admin.fence_producers`."""

    producer_id: int
    producer_epoch: int


class ProducerDescription(msgspec.Struct, frozen=True, kw_only=True):
    """A producer of a partition.

    Attributes:
        last_sequence: The sequence number of its last record; -1 if none, or if a marker has raised the epoch.
        last_timestamp_ms: Time of its last batch, in milliseconds since the Unix epoch.
        coordinator_epoch: The epoch of the coordinator of its last marker; None if there is no marker.
        transaction_start_offset: The first offset of its open transaction; None if none is open.
    """

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp_ms: int
    coordinator_epoch: int | None
    transaction_start_offset: int | None


class ListedOffset(msgspec.Struct, frozen=True, kw_only=True):
    """An offset in `Admin.list_offsets`.

    Attributes:
        offset: The offset; -1 if there is no record with the timestamp or a later one.
        timestamp_ms: The timestamp of the record, if it was looked up by timestamp; else -1.
        leader_epoch: None if the broker does not return it (before 2.1).
    """

    offset: int
    timestamp_ms: int
    leader_epoch: int | None


class Results(Mapping[K, V | AdminError], Generic[K, V]):
    """The value or error of each key, such as a group or a partition, in the order requested."""

    __slots__ = ("_outcomes",)

    def __init__(self, outcomes: Mapping[K, V | AdminError]) -> None:
        self._outcomes = dict(outcomes)

    def __getitem__(self, key: K) -> V | AdminError:
        return self._outcomes[key]

    def __iter__(self) -> Iterator[K]:
        return iter(self._outcomes)

    def __len__(self) -> int:
        return len(self._outcomes)

    def __repr__(self) -> str:
        return f"Results({self._outcomes!r})"

    @property
    def values_by_key(self) -> dict[K, V]:
        """The values of the keys that succeeded."""
        return {key: outcome for key, outcome in self.items() if not isinstance(outcome, AdminError)}

    @property
    def errors(self) -> dict[K, AdminError]:
        """The errors of the keys that failed."""
        return {key: outcome for key, outcome in self.items() if isinstance(outcome, AdminError)}

    def all(self) -> dict[K, V]:
        """Return all values.

        Raises:
            AdminError: The first error, if any key failed.
        """
        for error in self.errors.values():
            raise error
        return self.values_by_key
