"""Reading partitions: where each stands, which leader to ask for what, and what an answer means (Kafka's `Fetcher`).

Calls go in, requests come out, time is an argument. Knows no group, and not who sends its requests.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from fakebroker.client.consumer.consumer_errors import (
    BrokerRefused,
    ConsumerError,
    OffsetOutOfRange,
    RecordsUnreadable,
    named,
)
from fakebroker.client.consumer.consumer_settings import ConsumerSettings, ResetPolicy
from fakebroker.client.consumer.decoding import ConsumerRecord, decode_fetched
from fakebroker.client.member.assignors import TopicPartition
from fakebroker.client.member.reactions import error_code
from fakebroker.client.member.requests import by_topic
from fakebroker.errors import ErrorCode, ProtocolError
from fakebroker.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData
from fakebroker.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

LeaderRequest = FetchRequest | ListOffsetsRequest
LeaderResponse = FetchResponse | ListOffsetsResponse

_TIMESTAMPS: dict[ResetPolicy, int] = {"earliest": -2, "latest": -1}
_CONSUMER = -1  # the replica id of who is no replica

# What `FetchCollector` and `OffsetFetcherUtils` take for a sign that somebody else leads by now, or soon will.
_MOVED = (
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.REPLICA_NOT_AVAILABLE,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.OFFSET_NOT_AVAILABLE,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.INCONSISTENT_TOPIC_ID,
)
_PASSING = (ErrorCode.UNKNOWN_LEADER_EPOCH, ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.REQUEST_TIMED_OUT)


@dataclass(frozen=True, slots=True)
class Leader:
    """Who leads a partition; an epoch of -1 is not known."""

    node_id: int
    epoch: int


@dataclass(slots=True, eq=False)
class _Source:
    """One partition.

    Attributes:
        position: The offset of what the application gets next; None while it is looked up.
        next_offset: The offset to fetch from: behind what has been fetched ahead.
        records: What has been fetched ahead.
        failure: What the application is to be told before anything more is asked.
        retry_ms: Nothing is asked before; 0 is at once.
    """

    position: int | None = None
    next_offset: int = -1
    reset: ResetPolicy | None = None
    records: list[ConsumerRecord] = field(default_factory=list)
    failure: ConsumerError | None = None
    retry_ms: float = 0.0

    def place_at(self, offset: int) -> None:
        self.position = self.next_offset = offset
        self.reset = self.failure = None
        self.records = []
        self.retry_ms = 0.0

    @property
    def is_idle(self) -> bool:
        return not self.records and self.failure is None and not self.retry_ms


class Fetching:
    """The partitions that are read.

    Attributes:
        paused: Those of them that are neither asked for nor handed out.
        wants_metadata: A leader is not known, or not the leader any more.
    """

    def __init__(self, settings: ConsumerSettings) -> None:
        self.paused: Collection[TopicPartition] = ()
        self.wants_metadata = False
        self._settings = settings
        self._sources: dict[TopicPartition, _Source] = {}
        self._asked: dict[tuple[int, type[LeaderRequest]], dict[TopicPartition, _Source]] = {}

    def __contains__(self, partition: TopicPartition) -> bool:
        return partition in self._sources

    # What the application wants

    def start(self, partition: TopicPartition, offset: int) -> None:
        """Read a partition, or read it on, from this offset."""
        self._sources.setdefault(partition, _Source()).place_at(offset)

    def reset(self, partition: TopicPartition, policy: ResetPolicy) -> None:
        """Read a partition from its beginning or end, wherever that is."""
        source = self._sources.setdefault(partition, _Source())
        source.place_at(-1)
        source.position, source.reset = None, policy

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """Read them no more."""
        for partition in partitions:
            self._sources.pop(partition, None)

    def positions(self) -> dict[TopicPartition, int]:
        """Where the application stands, as far as that is known."""
        return {
            partition: source.position for partition, source in self._sources.items() if source.position is not None
        }

    def take(self, most: int) -> list[ConsumerRecord]:
        """Hand out what has been fetched, so many records at most."""
        taken: list[ConsumerRecord] = []
        for partition, source in self._sources.items():
            if partition not in self.paused and source.records and len(taken) < most:
                room = most - len(taken)
                taken += source.records[:room]
                del source.records[:room]
                source.position = source.records[0].offset if source.records else source.next_offset
        return taken

    def take_failure(self) -> ConsumerError | None:
        """What the application has to be told; the partition is asked for again after that."""
        for source in self._sources.values():
            if source.failure is not None:
                failure, source.failure = source.failure, None
                return failure
        return None

    # Requests

    def next_deadline(self) -> float | None:
        return min((source.retry_ms for source in self._sources.values() if source.retry_ms), default=None)

    def requests(self, leaders: Mapping[TopicPartition, Leader], now_ms: float) -> list[tuple[int, LeaderRequest]]:
        """What to ask which broker now: of each kind one request at a time."""
        lookups: dict[int, dict[TopicPartition, _Source]] = {}
        fetches: dict[int, dict[TopicPartition, _Source]] = {}
        for partition, source in self._sources.items():
            if source.retry_ms <= now_ms:
                source.retry_ms = 0.0
            if not source.is_idle or partition in self.paused:
                continue
            if (leader := leaders.get(partition)) is None:
                self.wants_metadata = True
            else:
                wanted = fetches if source.position is not None else lookups
                wanted.setdefault(leader.node_id, {})[partition] = source
        found: list[tuple[int, LeaderRequest]] = []
        for node_id, sources in lookups.items():
            if self._begin(node_id, ListOffsetsRequest, sources):
                found.append((node_id, _list_offsets(sources, leaders)))
        for node_id, sources in fetches.items():
            if self._begin(node_id, FetchRequest, sources):
                found.append((node_id, self._fetch(sources, leaders)))
        return found

    def _begin(self, node_id: int, kind: type[LeaderRequest], sources: dict[TopicPartition, _Source]) -> bool:
        if (node_id, kind) in self._asked:
            return False
        self._asked[node_id, kind] = sources
        return True

    def _fetch(
        self, sources: Mapping[TopicPartition, _Source], leaders: Mapping[TopicPartition, Leader]
    ) -> FetchRequest:
        settings = self._settings
        topics = [
            FetchTopic(
                topic=topic,
                partitions=[
                    FetchPartition(
                        partition=index,
                        current_leader_epoch=leaders[topic, index].epoch,
                        fetch_offset=sources[topic, index].next_offset,
                        partition_max_bytes=settings.max_partition_fetch_bytes,
                    )
                    for index in indexes
                ],
            )
            for topic, indexes in by_topic(sources).items()
        ]
        return FetchRequest(
            max_wait_ms=settings.fetch_max_wait_ms,
            min_bytes=settings.fetch_min_bytes,
            max_bytes=settings.fetch_max_bytes,
            topics=topics,
        )

    # Answers

    def unanswered(self, node_id: int, request: LeaderRequest, now_ms: float) -> None:
        """There will be no answer: the connection is gone, or could not be made."""
        self.wants_metadata = True
        for source in self._asked.pop((node_id, type(request)), {}).values():
            self._try_later(source, now_ms)

    def answered(self, node_id: int, request: LeaderRequest, response: LeaderResponse, now_ms: float) -> None:
        """A leader has answered."""
        asked = self._asked.pop((node_id, type(request)), {})
        if isinstance(response, ListOffsetsResponse):
            found = {(topic.name, each.partition_index): each for topic in response.topics for each in topic.partitions}
            for partition, source in self._still_wanted(asked, found, now_ms):
                if source.reset is not None:
                    self._placed(partition, source, found[partition], now_ms)
        elif isinstance(request, FetchRequest):
            offsets = {
                (topic.topic, each.partition): each.fetch_offset
                for topic in request.topics
                for each in topic.partitions
            }
            data = {
                (topic.topic, each.partition_index): each for topic in response.responses for each in topic.partitions
            }
            for partition, source in self._still_wanted(asked, data, now_ms):
                # Else the application has set it elsewhere meanwhile.
                if source.reset is None and source.next_offset == offsets[partition] and not source.records:
                    self._fetched(partition, source, data[partition], now_ms)

    def _still_wanted(
        self, asked: Mapping[TopicPartition, _Source], told: Collection[TopicPartition], now_ms: float
    ) -> list[tuple[TopicPartition, _Source]]:
        """The partitions that are read as they were when they were asked for; those not told of are asked for later."""
        wanted = [(partition, source) for partition, source in asked.items() if self._sources.get(partition) is source]
        for partition, source in wanted:
            if partition not in told:
                self._try_later(source, now_ms)
        return [(partition, source) for partition, source in wanted if partition in told]

    def _placed(
        self, partition: TopicPartition, source: _Source, found: ListOffsetsPartitionResponse, now_ms: float
    ) -> None:
        error = error_code(found.error_code)
        if error is ErrorCode.NONE:
            source.place_at(max(0, found.old_style_offsets[0] if found.old_style_offsets else found.offset))
        else:
            self._failed(partition, source, error, now_ms)

    def _fetched(self, partition: TopicPartition, source: _Source, data: PartitionData, now_ms: float) -> None:
        error = error_code(data.error_code)
        if error is ErrorCode.OFFSET_OUT_OF_RANGE:
            self._out_of_range(partition, source)
        elif error is not ErrorCode.NONE:
            self._failed(partition, source, error, now_ms)
        elif data.records:
            try:
                source.records, source.next_offset = decode_fetched(data.records, partition, source.next_offset)
            except ProtocolError as fault:
                source.failure = RecordsUnreadable(partition, source.next_offset, fault)
                return
            if not source.records:
                source.position = source.next_offset
            self._sources[partition] = self._sources.pop(partition)  # others come first next time

    def _out_of_range(self, partition: TopicPartition, source: _Source) -> None:
        policy = self._settings.auto_offset_reset
        if policy is None:
            source.failure = OffsetOutOfRange(partition, source.next_offset)
        else:
            self.reset(partition, policy)

    def _failed(self, partition: TopicPartition, source: _Source, error: ErrorCode, now_ms: float) -> None:
        if error in _MOVED or error.retriable:
            self.wants_metadata = True
            self._try_later(source, now_ms)
        elif error in _PASSING:
            self._try_later(source, now_ms)
        else:
            source.failure = BrokerRefused(f"partition {named([partition])}", error)

    def _try_later(self, source: _Source, now_ms: float) -> None:
        source.retry_ms = now_ms + self._settings.retry_backoff_ms


def _list_offsets(
    sources: Mapping[TopicPartition, _Source], leaders: Mapping[TopicPartition, Leader]
) -> ListOffsetsRequest:
    topics = [
        ListOffsetsTopic(
            name=topic,
            partitions=[
                ListOffsetsPartition(
                    partition_index=index,
                    current_leader_epoch=leaders[topic, index].epoch,
                    timestamp=_TIMESTAMPS[sources[topic, index].reset or "latest"],
                )
                for index in indexes
            ],
        )
        for topic, indexes in by_topic(sources).items()
    ]
    return ListOffsetsRequest(replica_id=_CONSUMER, topics=topics)
