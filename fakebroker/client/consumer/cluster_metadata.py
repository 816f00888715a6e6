"""The consumer's view of the cluster, from Metadata responses: partition leaders, and when the next request is due."""

from collections.abc import Iterable

import msgspec

from fakebroker.client.backoff import Backoff
from fakebroker.client.errors import error_code
from fakebroker.errors import ErrorCode
from fakebroker.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from fakebroker.topic_partition import TopicPartition

_NEVER = float("inf")


class PartitionLeader(msgspec.Struct, frozen=True):
    """The leader of a partition; its epoch is -1 if unknown."""

    node_id: int
    epoch: int


class TopicFailure(msgspec.Struct, frozen=True):
    """The error of a topic in the last response.

    Attributes:
        error: The error.
        since_ms: Time of the first of the successive responses in which the topic had an error.
    """

    error: ErrorCode
    since_ms: float


class ClusterMetadata:
    """Topics and their leaders.

    Args:
        max_age_ms: Time after which metadata is refreshed.
        retry_backoff_ms: First delay before incomplete metadata is refreshed; later ones double up to one second.

    Attributes:
        leaders: The leader of each partition that has one.
        names: The topics in the last response, without Kafka's internal topics.
        errors: The topics with an error in the last response.
        counts: Partition counts of the topics in the last response.
    """

    def __init__(self, max_age_ms: float, retry_backoff_ms: float) -> None:
        self.leaders: dict[TopicPartition, PartitionLeader] = {}
        self.names: tuple[str, ...] = ()
        self.errors: dict[str, TopicFailure] = {}
        self.counts: dict[str, int] = {}
        self._max_age_ms, self._backoff = max_age_ms, Backoff(retry_backoff_ms)
        self._in_flight: MetadataRequest | None = None
        self._due_ms = _NEVER
        self._sent_ms = -_NEVER

    def next_deadline(self) -> float | None:
        """Return when the next request is due; None while one is in flight."""
        return None if self._in_flight is not None or self._due_ms == _NEVER else self._due_ms

    def refresh(self, now_ms: float) -> None:
        """Request metadata as soon as the back-off since the last request allows."""
        self._due_ms = min(self._due_ms, max(now_ms, self._sent_ms + self._backoff.first_ms))

    def refresh_now(self, now_ms: float) -> None:
        """Request metadata without a back-off, because the topics have changed.

        If a request is in flight, the new request is sent after its response.
        """
        self._due_ms = now_ms

    def request(self, topics: Iterable[str] | None, now_ms: float) -> MetadataRequest | None:
        """Return the request that is due for these topics (None: all topics); one is in flight at a time."""
        if self._in_flight is not None or self._due_ms > now_ms:
            return None
        wanted = None if topics is None else [MetadataRequestTopic(name=name) for name in topics]
        self._due_ms, self._sent_ms = _NEVER, now_ms
        if wanted == []:  # old brokers would return all topics
            return None
        self._in_flight = MetadataRequest(topics=wanted)
        return self._in_flight

    def awaits(self, request: object) -> bool:
        """Return whether this is the request in flight."""
        return self._in_flight is request

    def unanswered(self, now_ms: float) -> None:
        """The request in flight failed."""
        self._in_flight = None
        self._back_off(now_ms)

    def answered(self, response: MetadataResponse, now_ms: float) -> list[tuple[str, ErrorCode]]:
        """Update the leaders, and return the topics with errors that are not retriable."""
        self._in_flight = None
        is_complete = not response.error_code
        failed: list[tuple[str, ErrorCode]] = []
        earlier, self.errors, self.counts = self.errors, {}, {}
        for topic in response.topics:
            error = error_code(topic.error_code)
            if error is ErrorCode.NONE:
                self.counts[topic.name or ""] = len(topic.partitions)
            else:
                name = topic.name or ""
                since_ms = earlier[name].since_ms if name in earlier else now_ms
                self.errors[name] = TopicFailure(error, since_ms)
                if not error.retriable:
                    failed.append((topic.name or "", error))
            is_complete &= error is ErrorCode.NONE and self._update(topic)
        self.names = tuple(topic.name for topic in response.topics if topic.name and not topic.is_internal)
        if is_complete:
            self._backoff.reset()
            self._due_ms = min(self._due_ms, now_ms + self._max_age_ms)
        else:
            self._back_off(now_ms)
        return failed

    def _update(self, topic: MetadataResponseTopic) -> bool:
        """Update the leaders of a topic, and return whether all partitions have one."""
        for partition in topic.partitions:
            place = topic.name or "", partition.partition_index
            if partition.leader_id < 0:
                self.leaders.pop(place, None)
            else:
                self.leaders[place] = PartitionLeader(partition.leader_id, partition.leader_epoch)
        return all(partition.leader_id >= 0 for partition in topic.partitions)

    def _back_off(self, now_ms: float) -> None:
        self._due_ms = min(self._due_ms, now_ms + self._backoff.next_delay_ms())
