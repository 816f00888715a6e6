"""Fetching of records and start offsets from partition leaders (Kafka's `Fetcher` and `OffsetFetcher`).

Calls and responses go in, requests come out. Does not depend on sockets, clocks or groups.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from fakebroker.client.consumer.cluster_metadata import PartitionLeader
from fakebroker.client.consumer.consumer_settings import ConsumerSettings, ResetPolicy
from fakebroker.client.consumer.records import ConsumerRecord, decode_fetched
from fakebroker.client.errors import BrokerRefused, ConsumerError, OffsetOutOfRange, RecordsUnreadable, error_code
from fakebroker.client.isolation_level import isolation_number
from fakebroker.errors import ErrorCode, ProtocolError
from fakebroker.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData
from fakebroker.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from fakebroker.topic_partition import TopicPartition, by_topic, format_partitions

LeaderRequest = FetchRequest | ListOffsetsRequest
LeaderResponse = FetchResponse | ListOffsetsResponse

_TIMESTAMPS: dict[ResetPolicy, int] = {"earliest": -2, "latest": -1}
_CONSUMER = -1  # the replica id in requests of consumers


@dataclass(slots=True, eq=False)
class _PartitionState:
    """The state of one partition.

    Attributes:
        position: The offset of the record that the application gets next; None while it is looked up.
        next_offset: The next fetch offset, after the buffered records.
        reset: Which offset to look up, while `position` is None.
        records: Buffered records.
        failure: An error to raise to the application before the next request.
        retry_ms: No request before this time, in milliseconds since the Unix epoch; 0 for at once.
    """

    position: int | None = None
    next_offset: int = -1
    reset: ResetPolicy | None = None
    records: list[ConsumerRecord] = field(default_factory=list)
    failure: ConsumerError | None = None
    retry_ms: float = 0.0

    def move_to(self, offset: int) -> None:
        self.position = self.next_offset = offset
        self.reset = self.failure = None
        self.records = []
        self.retry_ms = 0.0

    @property
    def is_idle(self) -> bool:
        return not self.records and self.failure is None and not self.retry_ms


class Fetcher:
    """The assigned partitions with their positions and buffered records.

    Attributes:
        paused: Partitions that are neither fetched nor returned.
        needs_metadata: Set when a leader is unknown or may have changed; the caller resets it.
    """

    def __init__(self, settings: ConsumerSettings) -> None:
        self.paused: Collection[TopicPartition] = ()
        self.needs_metadata = False
        self._settings = settings
        self._isolation_level = isolation_number(settings.isolation_level)
        self._partitions: dict[TopicPartition, _PartitionState] = {}
        self._in_flight: dict[tuple[int, type[LeaderRequest]], dict[TopicPartition, _PartitionState]] = {}

    def __contains__(self, partition: TopicPartition) -> bool:
        return partition in self._partitions

    # Application calls

    def start(self, partition: TopicPartition, offset: int) -> None:
        """Read a partition from this offset on."""
        self._partitions.setdefault(partition, _PartitionState()).move_to(offset)

    def reset(self, partition: TopicPartition, policy: ResetPolicy) -> None:
        """Look up the start or end offset of a partition, and read from there."""
        state = self._partitions.setdefault(partition, _PartitionState())
        state.move_to(-1)
        state.position, state.reset = None, policy

    def remove(self, partitions: Iterable[TopicPartition]) -> None:
        """Stop reading these partitions."""
        for partition in partitions:
            self._partitions.pop(partition, None)

    def positions(self) -> dict[TopicPartition, int]:
        """Return the known positions."""
        return {
            partition: state.position for partition, state in self._partitions.items() if state.position is not None
        }

    def take_records(self, max_records: int) -> list[ConsumerRecord]:
        """Remove and return buffered records, at most `max_records`."""
        taken: list[ConsumerRecord] = []
        for partition, state in self._partitions.items():
            if partition not in self.paused and state.records and len(taken) < max_records:
                room = max_records - len(taken)
                taken += state.records[:room]
                del state.records[:room]
                state.position = state.records[0].offset if state.records else state.next_offset
        return taken

    def take_failure(self) -> ConsumerError | None:
        """Remove and return an error to raise to the application; the partition is then fetched again."""
        for state in self._partitions.values():
            if state.failure is not None:
                failure, state.failure = state.failure, None
                return failure
        return None

    # Requests

    def next_deadline(self) -> float | None:
        """Return when the next retry is due."""
        return min((state.retry_ms for state in self._partitions.values() if state.retry_ms), default=None)

    def requests(
        self, leaders: Mapping[TopicPartition, PartitionLeader], now_ms: float
    ) -> list[tuple[int, LeaderRequest]]:
        """Return the requests to send now, with node ids; each broker has at most one of each kind in flight."""
        lookups: dict[int, dict[TopicPartition, _PartitionState]] = {}
        fetches: dict[int, dict[TopicPartition, _PartitionState]] = {}
        for partition, state in self._partitions.items():
            if state.retry_ms <= now_ms:
                state.retry_ms = 0.0
            if not state.is_idle or partition in self.paused:
                continue
            if (leader := leaders.get(partition)) is None:
                self.needs_metadata = True
            else:
                wanted = fetches if state.position is not None else lookups
                wanted.setdefault(leader.node_id, {})[partition] = state
        found: list[tuple[int, LeaderRequest]] = []
        for node_id, states in lookups.items():
            if self._begin(node_id, ListOffsetsRequest, states):
                found.append((node_id, self._list_offsets(states, leaders)))
        for node_id, states in fetches.items():
            if self._begin(node_id, FetchRequest, states):
                found.append((node_id, self._fetch(states, leaders)))
        return found

    def _begin(self, node_id: int, kind: type[LeaderRequest], states: dict[TopicPartition, _PartitionState]) -> bool:
        if (node_id, kind) in self._in_flight:
            return False
        self._in_flight[node_id, kind] = states
        return True

    def _list_offsets(
        self, states: Mapping[TopicPartition, _PartitionState], leaders: Mapping[TopicPartition, PartitionLeader]
    ) -> ListOffsetsRequest:
        topics = [
            ListOffsetsTopic(
                name=topic,
                partitions=[
                    ListOffsetsPartition(
                        partition_index=index,
                        current_leader_epoch=leaders[topic, index].epoch,
                        timestamp=_TIMESTAMPS[states[topic, index].reset or "latest"],
                    )
                    for index in indexes
                ],
            )
            for topic, indexes in by_topic(states).items()
        ]
        return ListOffsetsRequest(replica_id=_CONSUMER, isolation_level=self._isolation_level, topics=topics)

    def _fetch(
        self, states: Mapping[TopicPartition, _PartitionState], leaders: Mapping[TopicPartition, PartitionLeader]
    ) -> FetchRequest:
        settings = self._settings
        topics = [
            FetchTopic(
                topic=topic,
                partitions=[
                    FetchPartition(
                        partition=index,
                        current_leader_epoch=leaders[topic, index].epoch,
                        fetch_offset=states[topic, index].next_offset,
                        partition_max_bytes=settings.max_partition_fetch_bytes,
                    )
                    for index in indexes
                ],
            )
            for topic, indexes in by_topic(states).items()
        ]
        return FetchRequest(
            max_wait_ms=settings.fetch_max_wait_ms,
            min_bytes=settings.fetch_min_bytes,
            max_bytes=settings.fetch_max_bytes,
            isolation_level=self._isolation_level,
            topics=topics,
        )

    # Responses

    def unanswered(self, node_id: int, request: LeaderRequest, now_ms: float) -> None:
        """The request failed: the connection was lost, or could not be established."""
        self.needs_metadata = True
        for state in self._in_flight.pop((node_id, type(request)), {}).values():
            self._retry_later(state, now_ms)

    def answered(self, node_id: int, request: LeaderRequest, response: LeaderResponse, now_ms: float) -> None:
        """Handle a leader's response."""
        requested = self._in_flight.pop((node_id, type(request)), {})
        if isinstance(response, ListOffsetsResponse):
            found = {(topic.name, each.partition_index): each for topic in response.topics for each in topic.partitions}
            for partition, state in self._still_current(requested, found, now_ms):
                if state.reset is not None:
                    self._reset_answered(partition, state, found[partition], now_ms)
        elif isinstance(request, FetchRequest):
            offsets = {
                (topic.topic, each.partition): each.fetch_offset
                for topic in request.topics
                for each in topic.partitions
            }
            data = {
                (topic.topic, each.partition_index): each for topic in response.responses for each in topic.partitions
            }
            for partition, state in self._still_current(requested, data, now_ms):
                # If the state differs, the application has called seek in the meantime.
                if state.reset is None and state.next_offset == offsets[partition] and not state.records:
                    self._fetched(partition, state, data[partition], now_ms)

    def _still_current(
        self,
        requested: Mapping[TopicPartition, _PartitionState],
        returned: Collection[TopicPartition],
        now_ms: float,
    ) -> list[tuple[TopicPartition, _PartitionState]]:
        """Return the returned partitions that are still assigned. Those that the response lacks are retried."""
        current = [(each, state) for each, state in requested.items() if self._partitions.get(each) is state]
        for partition, state in current:
            if partition not in returned:
                self._retry_later(state, now_ms)
        return [(partition, state) for partition, state in current if partition in returned]

    def _reset_answered(
        self, partition: TopicPartition, state: _PartitionState, found: ListOffsetsPartitionResponse, now_ms: float
    ) -> None:
        error = error_code(found.error_code)
        if error is ErrorCode.NONE:
            state.move_to(max(0, found.old_style_offsets[0] if found.old_style_offsets else found.offset))
        else:
            self._failed(partition, state, error, now_ms)

    def _fetched(self, partition: TopicPartition, state: _PartitionState, data: PartitionData, now_ms: float) -> None:
        error = error_code(data.error_code)
        if error is ErrorCode.OFFSET_OUT_OF_RANGE:
            self._out_of_range(partition, state)
        elif error is not ErrorCode.NONE:
            self._failed(partition, state, error, now_ms)
        elif data.records:
            aborted = data.aborted_transactions if self._isolation_level else None
            try:
                state.records, state.next_offset = decode_fetched(
                    data.records, partition, state.next_offset, aborted or ()
                )
            except ProtocolError as fault:
                state.failure = RecordsUnreadable(partition, state.next_offset, fault)
                return
            if not state.records:
                state.position = state.next_offset
            self._partitions[partition] = self._partitions.pop(partition)  # others come first in the next request

    def _out_of_range(self, partition: TopicPartition, state: _PartitionState) -> None:
        policy = self._settings.auto_offset_reset
        if policy is None:
            state.failure = OffsetOutOfRange(partition, state.next_offset)
        else:
            self.reset(partition, policy)

    def _failed(self, partition: TopicPartition, state: _PartitionState, error: ErrorCode, now_ms: float) -> None:
        # Compare Kafka's `FetchCollector` and `OffsetFetcherUtils`.
        if error.retriable:
            self.needs_metadata = True  # the leader may have changed
            self._retry_later(state, now_ms)
        elif error is ErrorCode.UNKNOWN_SERVER_ERROR:
            self._retry_later(state, now_ms)
        else:
            state.failure = BrokerRefused(f"partition {format_partitions([partition])}", error)

    def _retry_later(self, state: _PartitionState, now_ms: float) -> None:
        state.retry_ms = now_ms + self._settings.retry_backoff_ms
