"""The kinds of entries, and their contents, except batches. Entries are applied in order.

A content is a msgpack array, an offset (`OFFSET`), or the id of a deleted topic. In an entry of a partition, the key of
the partition comes first: the id of its topic and its index.
"""

import struct
from collections.abc import Sequence
from enum import IntEnum
from typing import NamedTuple, Protocol

import msgspec

from fakebroker.cluster.logs.producer_state import AbortedTransaction, AppendedBatch
from fakebroker.cluster.quotas import Entity


class Kind(IntEnum):
    """The kind of an entry."""

    BATCH = 1
    """A partition and a batch that was appended to its log."""
    START = 2
    """A partition and its new log start offset."""
    TRUNCATION = 3
    """A partition and the first offset that was removed from the end of its log."""
    LOG = 4
    """A partition and a `StoredLog`: replaces its log by one without batches, which follow."""
    BATCHES = 5
    """A partition and some of the batches of its log, in a checkpoint. Their producers are in the `StoredLog`."""
    TOPIC = 6
    """A `StoredTopic`, new or changed."""
    DELETED_TOPIC = 7
    """The id of a topic."""
    IDS = 8
    """`StoredIds`."""
    BROKERS = 9
    """`StoredBrokers`."""
    ACLS = 10
    """`StoredAcls`."""
    SCRAM = 11
    """`StoredScram`."""
    RESOURCE_CONFIGS = 12
    """`StoredResourceConfigs`."""
    QUOTAS = 13
    """`StoredQuotas`."""
    FEATURES = 14
    """`StoredFeatures`."""


class Storage(Protocol):
    """Where entries are written: `fakebroker.server.data_directory.directory.DataDirectory`."""

    path: str
    """For error messages."""

    def reserve(self, size_bytes: int) -> bool:
        """Return whether there is space for entries of this size."""
        ...

    def write(self, kind: int, parts: Sequence[bytes | memoryview]) -> None:
        """Append an entry, for which space was reserved."""
        ...


PARTITION = struct.Struct(">16sI")
"""The key of a partition: the id of its topic, and its index."""

OFFSET = struct.Struct(">q")
"""The contents of START and TRUNCATION after the key."""


class StoredPartition(NamedTuple):
    """A partition without its log. Leaders are elected again after a start. See `Partition`."""

    replicas: tuple[int, ...]
    leader_epoch: int
    adding: tuple[int, ...]
    removing: tuple[int, ...]
    copying: tuple[int, ...]


class StoredTopic(NamedTuple):
    """A topic. See `Topic`; `is_visible` is False for __consumer_offsets as long as it is not used."""

    topic_id: bytes
    name: str
    is_visible: bool
    configs: dict[str, str]
    partitions: list[StoredPartition]


class StoredProducer(NamedTuple):
    """A producer of a log. See `Producer`."""

    producer_id: int
    epoch: int
    last_timestamp_ms: int
    last_offset: int
    batches: list[AppendedBatch]
    coordinator_epoch: int
    transaction_offset: int | None


class StoredLog(NamedTuple):
    """A log without its batches: the state from batches that may have been dropped. See `PartitionLog`."""

    log_start_offset: int
    log_end_offset: int
    epochs: list[tuple[int, int]]
    producers: list[StoredProducer]
    aborted: list[AbortedTransaction]


class StoredIds(NamedTuple):
    """Ids and counters. `starts` is the number of starts of the cluster, the others are attributes of `Cluster`."""

    cluster_id: str
    starts: int
    next_producer_id: int
    placed_topics: int


class StoredBroker(NamedTuple):
    """A broker: its node id and its dynamic configs."""

    node_id: int
    configs: dict[str, str]


class StoredBrokers(NamedTuple):
    """The brokers, and their cluster-wide dynamic configs."""

    brokers: list[StoredBroker]
    configs: dict[str, str]


class StoredAcl(NamedTuple):
    """An ACL, with its codes in requests."""

    resource_type: int
    name: str
    pattern_type: int
    principal: str
    host: str
    operation: int
    permission: int


class StoredScramCredential(NamedTuple):
    """A SCRAM credential of a user, or that it was removed: then the number of iterations is 0."""

    user: str
    mechanism: int
    salt: bytes = b""
    iterations: int = 0
    stored_key: bytes = b""
    server_key: bytes = b""


StoredAcls = list[StoredAcl] | None
"""The ACLs; None without an authorizer."""

StoredScram = list[StoredScramCredential]
"""The changes of SCRAM credentials (`Credentials.changes`)."""

StoredResourceConfigs = list[tuple[int, str, dict[str, str]]]
"""The configs of groups and client metrics: type, name, and configs of the resource."""

StoredQuotas = list[tuple[Entity, dict[str, float]]]
"""Entities and their quotas."""


class StoredFeatures(NamedTuple):
    """The finalized features. See `Features`."""

    finalized: dict[str, int]
    epoch: int


encode = msgspec.msgpack.Encoder().encode
