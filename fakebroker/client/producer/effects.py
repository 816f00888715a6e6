"""The effects of a transactional producer, as plain data: requests to send and events to report, for its driver.

`scheduled_ms` is when an effect was due, in milliseconds since the Unix epoch.
"""

from dataclasses import dataclass
from typing import Literal, NamedTuple

from fakebroker.errors import ErrorCode
from fakebroker.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from fakebroker.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnResponse
from fakebroker.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from fakebroker.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from fakebroker.protocol.messages.produce import ProduceRequest, ProduceResponse
from fakebroker.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest, TxnOffsetCommitResponse
from fakebroker.topic_partition import TopicPartition

ProducerRequest = (
    InitProducerIdRequest
    | AddPartitionsToTxnRequest
    | ProduceRequest
    | AddOffsetsToTxnRequest
    | TxnOffsetCommitRequest
    | EndTxnRequest
)
"""A request of a transactional producer."""

ProducerResponse = (
    InitProducerIdResponse
    | AddPartitionsToTxnResponse
    | ProduceResponse
    | AddOffsetsToTxnResponse
    | TxnOffsetCommitResponse
    | EndTxnResponse
)
"""A broker's response."""


class Coordinator(NamedTuple):
    """The coordinator of a transactional id or a group."""

    key_type: Literal["transaction", "group"]
    key: str


class Leader(NamedTuple):
    """The leader of a partition."""

    partition: TopicPartition


Destination = Coordinator | Leader
"""The broker that a request is for."""


@dataclass(slots=True)
class Discover:
    """Look up a broker. Then the driver calls `Producer.discovered` or `Producer.discovery_failed`."""

    destination: Destination
    scheduled_ms: float


@dataclass(slots=True)
class Send:
    """Send a request. Then the driver calls `Producer.answered` or `Producer.connection_lost`."""

    request: ProducerRequest
    destination: Destination
    scheduled_ms: float


@dataclass(slots=True)
class Ready:
    """The producer can begin transactions.

    Attributes:
        committed: The outcome of the transaction that has ended; None after the initialization.
    """

    committed: bool | None
    scheduled_ms: float


@dataclass(slots=True)
class Failed:
    """The transaction has failed and must be aborted."""

    error: ErrorCode
    message: str
    scheduled_ms: float


@dataclass(slots=True)
class Fatal:
    """The producer has stopped because of an error that an abort does not resolve."""

    error: ErrorCode
    message: str
    scheduled_ms: float


Effect = Discover | Send | Ready | Failed | Fatal
