"""Offsets that the application commits or looks up, retried until the coordinator answers.

Independent of the group member, which sends its own automatic commits.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from fakebroker.client.backoff import Backoff
from fakebroker.client.member import requests
from fakebroker.client.member.reactions import Reaction, error_in, reaction_to
from fakebroker.client.member.requests import Identity
from fakebroker.errors import ErrorCode
from fakebroker.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from fakebroker.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from fakebroker.topic_partition import TopicPartition

OffsetsRequest = OffsetCommitRequest | OffsetFetchRequest
OffsetsResponse = OffsetCommitResponse | OffsetFetchResponse


@dataclass(slots=True, eq=False)
class OffsetOperation:
    """A commit or look-up of the application.

    Attributes:
        identity: The identity in the request.
        error: The outcome; None while pending.
        offsets: The offsets to commit, or the committed offsets found, -1 for none.
        retry_ms: When the request is sent again, in milliseconds since the Unix epoch; 0 for at once.
    """

    identity: Identity
    request: OffsetsRequest
    backoff: Backoff
    error: ErrorCode | None = None
    offsets: dict[TopicPartition, int] = field(default_factory=dict)
    is_sent: bool = False
    retry_ms: float = 0.0


class Committer(NamedTuple):
    """A member with the consumer protocol, whose commits need the epoch that it has when they arrive.

    Attributes:
        assigned: The partitions it owns. Commits of others must not succeed with a later epoch.
    """

    identity: Identity
    assigned: Collection[TopicPartition]

    def renews(self, operation: OffsetOperation) -> bool:
        """Return whether a commit of this member was made in an earlier epoch, and is still allowed."""
        former = operation.identity
        is_earlier = former.member_id == self.identity.member_id and former != self.identity
        return is_earlier and all(partition in self.assigned for partition in operation.offsets)


class GroupOffsets:
    """The pending commits and look-ups of one application."""

    def __init__(self, retry_backoff_ms: float) -> None:
        self._retry_backoff_ms = retry_backoff_ms
        self._pending: list[OffsetOperation] = []
        self._last_commits: dict[TopicPartition, OffsetOperation] = {}

    def commit(self, identity: Identity, offsets: Mapping[TopicPartition, int]) -> OffsetOperation:
        """Commit offsets, as a group member or outside of any generation."""
        request = requests.offset_commit(identity, offsets)
        operation = self._add(
            OffsetOperation(identity, request, Backoff(self._retry_backoff_ms), offsets=dict(offsets))
        )
        self._last_commits.update(dict.fromkeys(offsets, operation))
        for earlier in self._pending[:-1]:
            if not earlier.is_sent:
                self._drop_superseded(earlier)
        return operation

    def look_up(self, identity: Identity, partitions: Iterable[TopicPartition]) -> OffsetOperation:
        """Look up committed offsets."""
        request = requests.offset_fetch(identity, partitions)
        return self._add(OffsetOperation(identity, request, Backoff(self._retry_backoff_ms)))

    def _add(self, operation: OffsetOperation) -> OffsetOperation:
        self._pending.append(operation)
        return operation

    @property
    def is_pending(self) -> bool:
        """Whether operations are pending. They need the coordinator."""
        return bool(self._pending)

    @property
    def is_committing(self) -> bool:
        """Whether commits are pending."""
        return any(isinstance(operation.request, OffsetCommitRequest) for operation in self._pending)

    def awaits(self, request: object) -> bool:
        """Return whether the response to this request matters; False if the request will be sent again."""
        operation = self._find(request)
        return operation is not None and operation.is_sent

    def next_deadline(self) -> float | None:
        """Return when the next retry is due."""
        return min((operation.retry_ms for operation in self._pending if operation.retry_ms), default=None)

    def requests(self, now_ms: float, committer: Committer | None = None) -> list[OffsetsRequest]:
        """Return the requests to send to the coordinator now, in order.

        Args:
            now_ms: The current time.
            committer: The consumer as a member; None without the consumer protocol, or outside of any epoch.
        """
        due = [operation for operation in self._pending if not operation.is_sent and operation.retry_ms <= now_ms]
        for operation in due:
            if committer is not None and committer.renews(operation):
                operation.identity = committer.identity
                operation.request = requests.offset_commit(committer.identity, operation.offsets)
            operation.is_sent, operation.retry_ms = True, 0.0
        return [operation.request for operation in due]

    def unanswered(self, now_ms: float) -> None:
        """The connection to the coordinator was lost; requests in flight are sent again."""
        for operation in list(self._pending):
            if operation.is_sent:
                self._retry(operation, now_ms)

    def answered(
        self, request: OffsetsRequest, response: OffsetsResponse, now_ms: float, committer: Committer | None = None
    ) -> Reaction | None:
        """Handle a response; if the result is REDISCOVER, the caller looks up the coordinator again.

        A commit with a stale epoch is repeated with the present one of the committer, as `requests` says.
        """
        operation = self._find(request)
        if operation is None:
            return None
        error = error_in(response)
        reaction = None if error is ErrorCode.NONE else reaction_to(error, response)
        if error is ErrorCode.STALE_MEMBER_EPOCH and committer is not None and committer.renews(operation):
            reaction = Reaction.RETRY
        if reaction in (Reaction.RETRY, Reaction.REDISCOVER):
            self._retry(operation, now_ms)
            return reaction
        if isinstance(response, OffsetFetchResponse) and error is ErrorCode.NONE:
            operation.offsets = dict(requests.fetched_offsets(response))
        self._complete(operation, error)
        return reaction

    def fail_all(self, error: ErrorCode) -> None:
        """Complete all pending operations with an error: no coordinator can be found."""
        for operation in list(self._pending):
            self._complete(operation, error)

    def cancel(self, operation: OffsetOperation) -> None:
        """Complete a pending operation with REQUEST_TIMED_OUT. No effect on others."""
        if operation in self._pending:
            self._complete(operation, ErrorCode.REQUEST_TIMED_OUT)

    def _complete(self, operation: OffsetOperation, error: ErrorCode) -> None:
        operation.error = error
        self._pending.remove(operation)

    def _retry(self, operation: OffsetOperation, now_ms: float) -> None:
        operation.is_sent, operation.retry_ms = False, now_ms + operation.backoff.next_delay_ms()
        self._drop_superseded(operation)

    def _drop_superseded(self, operation: OffsetOperation) -> None:
        """Remove partitions that a later operation commits, so that a retry does not overwrite the later offsets."""
        if isinstance(operation.request, OffsetCommitRequest):
            last = {place: each for place, each in operation.offsets.items() if self._last_commits[place] is operation}
            if not last:
                self._complete(operation, ErrorCode.NONE)
            elif last != operation.offsets:
                operation.offsets, operation.request = last, requests.offset_commit(operation.identity, last)

    def _find(self, request: object) -> OffsetOperation | None:
        return next((operation for operation in self._pending if operation.request is request), None)
