"""A member's connection to a broker, as both sides use it."""

from collections import deque

from fakebroker.lab.world.context import MemberSide
from fakebroker.protocol.schema import Message
from fakebroker.replay.simulation.links import Link


class MemberLink(Link):
    """A connection of a member.

    Attributes:
        member: The member.
        is_in_progress: Whether the broker has not answered the last request that it has read.
        waiting: Requests that the broker has not read yet.
        is_ending: Whether the member has closed the connection while requests were waiting.
        is_breaking: Whether it is broken, but not both sides may have noticed yet.
    """

    __slots__ = ("is_breaking", "is_ending", "is_in_progress", "member", "waiting")

    def __init__(self, member: MemberSide, number: int, node_id: int, latency_ms: float) -> None:
        super().__init__(number, node_id, latency_ms)
        self.member = member
        self.is_in_progress = self.is_ending = self.is_breaking = False
        self.waiting: deque[Message] = deque()
