"""The partitions that a consumer fetches, its consumed offsets, and its periodic commits."""

from collections.abc import Callable, Mapping
from math import inf

from fakebroker.client.member.member_settings import MemberSettings
from fakebroker.lab.design import Beat, Link, MemberPort
from fakebroker.lab.designs.options.messages import (
    UNKNOWN_OFFSET,
    OffsetCommitRequest,
    OffsetCommitResponse,
    PartitionAndOffset,
    from_wire,
    to_wire,
)
from fakebroker.topic_partition import TopicPartition

_COMMITTED = OffsetCommitResponse(correlation_id=0)


class Fetcher:
    """The fetcher of one consumer.

    Args:
        settings: The settings of the consumer.
        port: Carries out its actions.
        consumer_id: The id of the consumer.
        new_correlation_id: Returns the correlation id of the next request.

    Attributes:
        is_running: Whether the consumer has an assignment, possibly an empty one.
    """

    def __init__(
        self, settings: MemberSettings, port: MemberPort, consumer_id: str, new_correlation_id: Callable[[], int]
    ) -> None:
        self._settings, self._port, self._consumer_id = settings, port, consumer_id
        self._new_correlation_id = new_correlation_id
        self.is_running = False
        self._owned: tuple[TopicPartition, ...] = ()
        self._sample: list[PartitionAndOffset] | None = None
        self._kept: Mapping[TopicPartition, int] = {}
        self._commit_due_ms = inf
        self._pending_id: int | None = None

    def start(self, partitions: list[PartitionAndOffset], now_ms: float) -> None:
        """Fetch exactly these partitions, from the given offsets; from 0 if no offset is committed."""
        offsets = {
            partition: 0 if offset == UNKNOWN_OFFSET else offset for partition, offset in from_wire(partitions).items()
        }
        self.is_running, self._owned, self._kept = True, tuple(offsets), {}
        self._sample = None
        is_committing = bool(offsets) and self._settings.commit_interval_ms > 0
        self._commit_due_ms = now_ms + self._settings.commit_interval_ms if is_committing else inf
        self._port.assigned(offsets)

    def stop(self) -> None:
        """Fetch nothing, but keep the consumed offsets."""
        if self.is_running:
            self._kept = self._port.positions()
            self.is_running, self._owned, self._commit_due_ms = False, (), inf
            self._sample = None
            self._port.stopped()

    def consumed(self) -> list[PartitionAndOffset]:
        """Return the consumed offsets: of the partitions that are fetched, or that were fetched until `stop`."""
        return to_wire(self._port.positions() if self.is_running else self._kept)

    def next_deadline(self) -> float:
        """Return when the next commit is due."""
        return self._commit_due_ms

    def tick(self, link: Link | None, now_ms: float) -> None:
        """Commit if it is time, unless a commit is pending or the consumer is not registered.

        Args:
            link: The connection to the coordinator; None if the consumer is not registered.
            now_ms: The present time.
        """
        if self._commit_due_ms <= now_ms:
            self._commit_due_ms = now_ms + self._settings.commit_interval_ms
            if link is not None and self._pending_id is None:
                self.commit(link)

    def commit(self, link: Link) -> None:
        """Commit the consumed offsets; sends nothing without any."""
        consumed = self.consumed()
        if consumed:
            self._pending_id = self._new_correlation_id()
            self._port.send(link, self._request(self._pending_id, consumed))

    def committed(self, response: OffsetCommitResponse) -> None:
        """Take a response. After an error, the next commit has the offsets again."""
        if response.correlation_id == self._pending_id:
            self._pending_id = None

    def connection_lost(self) -> None:
        """No response will arrive."""
        self._pending_id = None

    @property
    def is_committing(self) -> bool:
        """Whether the response to a commit is pending."""
        return self._pending_id is not None

    def _request(self, correlation_id: int, consumed: list[PartitionAndOffset]) -> OffsetCommitRequest:
        return OffsetCommitRequest(correlation_id=correlation_id, consumer_id=self._consumer_id, offset_info=consumed)

    def sample(self) -> list[PartitionAndOffset]:
        """Return offsets of the size of those that `consumed` returns."""
        if self._sample is None:
            self._sample = to_wire(dict.fromkeys(self._owned, 0))
        return self._sample

    def beat(self) -> Beat | None:
        """Return the commits that are repeated; None without commits."""
        if self._commit_due_ms == inf:
            return None
        request = self._request(0, self.sample())
        return Beat(self._commit_due_ms, self._settings.commit_interval_ms, request, _COMMITTED, is_commit=True)

    def skipped(self, next_due_ms: float) -> None:
        """Commits were exchanged without this object."""
        self._commit_due_ms = next_due_ms
