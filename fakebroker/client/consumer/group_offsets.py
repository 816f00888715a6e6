"""Offsets that the application commits or asks for: each until it is answered, at whatever coordinator (pure).

Knows its own requests; not the member, whose own commits are its own business, nor who finds the coordinator.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from fakebroker.client.member import requests
from fakebroker.client.member.assignors import TopicPartition
from fakebroker.client.member.reactions import Reaction, error_in, reaction_to
from fakebroker.client.member.requests import Identity
from fakebroker.errors import ErrorCode
from fakebroker.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from fakebroker.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse

OffsetsRequest = OffsetCommitRequest | OffsetFetchRequest
OffsetsResponse = OffsetCommitResponse | OffsetFetchResponse


@dataclass(slots=True, eq=False)
class Ticket:
    """One thing that was asked for.

    Attributes:
        who: As whom it is asked for.
        error: What came of it; None while that is not known.
        offsets: What is to be committed; or what was asked for, of committed offsets, -1 where there is none.
    """

    who: Identity
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
        self._last_commits: dict[TopicPartition, Ticket] = {}

    def commit(self, who: Identity, offsets: Mapping[TopicPartition, int]) -> Ticket:
        """Commit these as this member of the group, or outside of any generation."""
        ticket = self._add(Ticket(who, requests.offset_commit(who, offsets), offsets=dict(offsets)))
        self._last_commits.update(dict.fromkeys(offsets, ticket))
        for older in self._tickets[:-1]:
            if not older.is_sent:
                self._leave_to_later_commits(older)
        return ticket

    def look_up(self, who: Identity, partitions: Iterable[TopicPartition]) -> Ticket:
        """Ask what is committed."""
        return self._add(Ticket(who, requests.offset_fetch(who, partitions)))

    def _add(self, ticket: Ticket) -> Ticket:
        self._tickets.append(ticket)
        return ticket

    @property
    def is_waiting(self) -> bool:
        """Whether there is something that a coordinator is needed for."""
        return bool(self._tickets)

    @property
    def is_committing(self) -> bool:
        """Whether there is a commit among that."""
        return any(isinstance(ticket.request, OffsetCommitRequest) for ticket in self._tickets)

    def awaits(self, request: object) -> bool:
        """Whether the answer to this request is awaited; not once it is to be sent again, perhaps to somebody else."""
        ticket = self._ticket(request)
        return ticket is not None and ticket.is_sent

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
        for ticket in list(self._tickets):
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
        self._leave_to_later_commits(ticket)

    def _leave_to_later_commits(self, ticket: Ticket) -> None:
        """What is still to be committed must not undo what was asked for after it."""
        if isinstance(ticket.request, OffsetCommitRequest):
            last = {place: each for place, each in ticket.offsets.items() if self._last_commits[place] is ticket}
            if not last:
                self._end(ticket, ErrorCode.NONE)
            elif last != ticket.offsets:
                ticket.offsets, ticket.request = last, requests.offset_commit(ticket.who, last)

    def _ticket(self, request: object) -> Ticket | None:
        return next((ticket for ticket in self._tickets if ticket.request is request), None)
