"""What the consumer core hands to its driver: requests to send, and callbacks of the application. Plain data."""

from enum import Enum, auto

import msgspec

from fakebroker.protocol.schema import Message
from fakebroker.topic_partition import TopicPartition


class Lane(Enum):
    """Requests that share a connection; a parked request delays only later requests of its own lane.

    GENERAL: Requests answered at once.
    FETCH: Fetch requests, which wait for records.
    GROUP: Requests to the coordinator, sent one at a time and in order.
    """

    GENERAL = ""
    FETCH = "fetch"
    GROUP = "group"


class OutboundRequest(msgspec.Struct, frozen=True, eq=False):
    """A request to send. Then the driver calls `ConsumerCore.answered`, `unanswered` or `unsupported`.

    Attributes:
        node_id: The broker; None for any broker.
        ignores_response: Nothing depends on the response: a commit or LeaveGroup of a member that has stopped.
    """

    node_id: int | None
    lane: Lane
    request: Message
    ignores_response: bool = False


class RebalanceEvent(Enum):
    """Events for which the application has callbacks (Kafka's `ConsumerRebalanceListener`)."""

    ASSIGNED = auto()
    REVOKED = auto()
    LOST = auto()


RebalanceCallback = tuple[RebalanceEvent, tuple[TopicPartition, ...]]
"""A callback to run, with its partitions."""
