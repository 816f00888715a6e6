"""What a consumer knows of the cluster from Metadata: partition counts, leaders, and when to ask again (pure)."""

from collections.abc import Iterable

from fakebroker.client.consumer.fetcher import Leader
from fakebroker.client.member.assignors import TopicPartition
from fakebroker.client.member.reactions import error_code
from fakebroker.errors import ErrorCode
from fakebroker.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)

_MAX_BACKOFF_MS = 1_000.0
_MAX_DOUBLINGS = 10
_NEVER = float("inf")


class ClusterView:
    """Topics and their leaders, as of the last Metadata that told of them.

    Args:
        max_age_ms: It is asked again after so long.
        retry_backoff_ms: How soon it is asked again when something was missing; doubles up to a second.

    Attributes:
        leaders: The leader of each partition that has one.
        names: The topics that the last answer told of, Kafka's own left out.
    """

    def __init__(self, max_age_ms: float, retry_backoff_ms: float) -> None:
        self.leaders: dict[TopicPartition, Leader] = {}
        self.names: tuple[str, ...] = ()
        self._max_age_ms, self._retry_backoff_ms = max_age_ms, retry_backoff_ms
        self._asked: MetadataRequest | None = None
        self._due_ms = _NEVER
        self._asked_last_ms = -_NEVER
        self._failures = 0

    def next_deadline(self) -> float | None:
        return None if self._asked is not None or self._due_ms == _NEVER else self._due_ms

    def want(self, now_ms: float) -> None:
        """Something is to be looked up: as soon as the back-off since the last look allows."""
        self._due_ms = min(self._due_ms, max(now_ms, self._asked_last_ms + self._retry_backoff_ms))

    def want_now(self, now_ms: float) -> None:
        """Something new is to be looked up, also if a look at other things is on its way."""
        self._due_ms = now_ms

    def request(self, topics: Iterable[str] | None, now_ms: float) -> MetadataRequest | None:
        """The request that is due for these topics, None being all of them; one is on its way at a time."""
        if self._asked is not None or self._due_ms > now_ms:
            return None
        wanted = None if topics is None else [MetadataRequestTopic(name=name) for name in topics]
        self._due_ms, self._asked_last_ms = _NEVER, now_ms
        if wanted == []:  # of no topics would be of all of them to an old broker
            return None
        self._asked = MetadataRequest(topics=wanted)
        return self._asked

    def awaits(self, request: object) -> bool:
        return self._asked is request

    def unanswered(self, now_ms: float) -> None:
        self._asked = None
        self._back_off(now_ms)

    def answered(self, response: MetadataResponse, now_ms: float) -> list[tuple[str, ErrorCode]]:
        """Take note of the answer; gives the topics whose errors no waiting mends."""
        self._asked = None
        is_whole = not response.error_code
        refused: list[tuple[str, ErrorCode]] = []
        for topic in response.topics:
            error = error_code(topic.error_code)
            if error is not ErrorCode.NONE and not error.retriable:
                refused.append((topic.name or "", error))
            is_whole &= error is ErrorCode.NONE and self._note(topic)
        self.names = tuple(topic.name for topic in response.topics if topic.name and not topic.is_internal)
        if is_whole:
            self._failures = 0
            self._due_ms = min(self._due_ms, now_ms + self._max_age_ms)
        else:
            self._back_off(now_ms)
        return refused

    def _note(self, topic: MetadataResponseTopic) -> bool:
        """Take note of a topic's leaders; whether all partitions have one."""
        for partition in topic.partitions:
            place = topic.name or "", partition.partition_index
            if partition.leader_id < 0:
                self.leaders.pop(place, None)
            else:
                self.leaders[place] = Leader(partition.leader_id, partition.leader_epoch)
        return all(partition.leader_id >= 0 for partition in topic.partitions)

    def _back_off(self, now_ms: float) -> None:
        backoff_ms = self._retry_backoff_ms * 2.0 ** min(self._failures, _MAX_DOUBLINGS)
        self._failures += 1
        self._due_ms = min(self._due_ms, now_ms + min(backoff_ms, _MAX_BACKOFF_MS))
