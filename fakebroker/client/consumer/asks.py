"""What a consumer wants of its driver: requests to be sent, and the application to be called back. Plain data."""

from dataclasses import dataclass
from enum import Enum, auto

from fakebroker.client.member.assignors import TopicPartition
from fakebroker.protocol.schema import Message


class Lane(Enum):
    """What shares a connection; what is parked on one lane does not stand in front of another's requests.

    GENERAL: Answered at once.
    FETCH: Waits for records.
    GROUP: To the coordinator: one at a time, in their order.
    """

    GENERAL = ""
    FETCH = "fetch"
    GROUP = "group"


@dataclass(frozen=True, slots=True, eq=False)
class Ask:
    """A request to be sent; `answered` or `unanswered` by what becomes of it.

    Attributes:
        to: The node id of the broker; None is any.
        is_farewell: Nothing is made of the answer.
    """

    to: int | None
    lane: Lane
    request: Message
    is_farewell: bool = False


class Happening(Enum):
    """What an application is called back for."""

    ASSIGNED = auto()
    REVOKED = auto()
    LOST = auto()


Callback = tuple[Happening, tuple[TopicPartition, ...]]
"""What has happened to which partitions."""
