"""Offsets that the application commits or asks for: each until it is answered, at whatever coordinator (pure).

Knows its own requests; not the member, whose own commits are its own business, nor who finds the coordinator.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from fakebroker.client import requests
from fakebroker.client.assignors import TopicPartition
from fakebroker.client.reactions import Reaction, error_in, reaction_to
from fakebroker.client.requests import Identity
from fakebroker.errors import ErrorCode
from fakebroker.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from fakebroker.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse

OffsetsRequest = OffsetCommitRequest | OffsetFetchRequest
OffsetsResponse = OffsetCommitResponse | OffsetFetchResponse


@dataclass(slots=True, eq=False)
class Ticket:
    """One thing that was asked for.

    Attributes:
        error: What came of it; None while that is not known.
        offsets: What was asked for, of committed offsets; -1 where there is none.
    """

    request: OffsetsRequest
    error: ErrorCode | None = None
    offsets: dict[TopicPartition, int] = field(default_factory=dict)
    is_sent: bool = False
    retry_ms: float = 0.0


class GroupOffsets:
    """What is asked of the coordinator for the application."""

    def __init__(self, retry_backoff_ms: float) -> None:
        self._retry_backoff_ms = retry_backoff_ms
        self._tickets: list[Ticket] = []

    def commit(self, who: Identity, offsets: Mapping[TopicPartition, int]) -> Ticket:
        """Commit these as this member of the group, or outside of any generation."""
        return self._add(requests.offset_commit(who, offsets))

    def look_up(self, who: Identity, partitions: Iterable[TopicPartition]) -> Ticket:
        """Ask what is committed."""
        return self._add(requests.offset_fetch(who, partitions))

    def _add(self, request: OffsetsRequest) -> Ticket:
        ticket = Ticket(request)
        self._tickets.append(ticket)
        return ticket

    @property
    def is_waiting(self) -> bool:
        """Whether there is something that a coordinator is needed for."""
        return bool(self._tickets)

    def awaits(self, request: object) -> bool:
        """Whether this request is one of these, and has not been answered yet."""
        return self._ticket(request) is not None

    def next_deadline(self) -> float | None:
        return min((ticket.retry_ms for ticket in self._tickets if ticket.retry_ms), default=None)

    def requests(self, now_ms: float) -> list[OffsetsRequest]:
        """What to send to the coordinator now, in its order."""
        due = [ticket for ticket in self._tickets if not ticket.is_sent and ticket.retry_ms <= now_ms]
        for ticket in due:
            ticket.is_sent, ticket.retry_ms = True, 0.0
        return [ticket.request for ticket in due]

    def unanswered(self, now_ms: float) -> None:
        """The connection to the coordinator is gone; all that was sent is sent again."""
        for ticket in self._tickets:
            if ticket.is_sent:
                self._again(ticket, now_ms)

    def answered(self, request: OffsetsRequest, response: OffsetsResponse, now_ms: float) -> Reaction | None:
        """The coordinator has answered; whoever looks for the coordinator has to if it is REDISCOVER."""
        ticket = self._ticket(request)
        if ticket is None:
            return None
        error = error_in(response)
        reaction = None if error is ErrorCode.NONE else reaction_to(error, response)
        if reaction in (Reaction.RETRY, Reaction.REDISCOVER):
            self._again(ticket, now_ms)
            return reaction
        if isinstance(response, OffsetFetchResponse) and error is ErrorCode.NONE:
            ticket.offsets = dict(requests.fetched_offsets(response))
        self._end(ticket, error)
        return reaction

    def refuse(self, error: ErrorCode) -> None:
        """There is no coordinator to be had for them."""
        for ticket in list(self._tickets):
            self._end(ticket, error)

    def give_up(self, ticket: Ticket) -> None:
        """Nobody waits for it any more."""
        if ticket in self._tickets:
            self._end(ticket, ErrorCode.REQUEST_TIMED_OUT)

    def _end(self, ticket: Ticket, error: ErrorCode) -> None:
        ticket.error = error
        self._tickets.remove(ticket)

    def _again(self, ticket: Ticket, now_ms: float) -> None:
        ticket.is_sent, ticket.retry_ms = False, now_ms + self._retry_backoff_ms

    def _ticket(self, request: object) -> Ticket | None:
        return next((ticket for ticket in self._tickets if ticket.request is request), None)
