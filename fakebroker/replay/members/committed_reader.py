"""Reads the records of transactions as a consumer with `read_committed` does, and lists open transactions.

Records its observations for the promises about transactions: each batch of a transaction, returned or skipped; the last
stable offsets; and transactions that are open for longer than a moment. Polls at fixed intervals, from the ends of the
partitions at its start. Does not depend on sockets or clocks.
"""

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

from fakebroker.client.brokers import Brokers, Exchange
from fakebroker.client.errors import UnsupportedVersion
from fakebroker.client.transport import Transport
from fakebroker.errors import ErrorCode
from fakebroker.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData
from fakebroker.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from fakebroker.protocol.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from fakebroker.protocol.records import RecordBatch, iterate_records, split_batches
from fakebroker.protocol.transaction_markers import marker_in
from fakebroker.replay.members.bootstrap import CLIENT_ID
from fakebroker.replay.members.coordinator_lookup import CoordinatorLookup
from fakebroker.replay.members.events import Event, Source
from fakebroker.replay.members.request_events import exchange_event
from fakebroker.replay.members.scripted_producer import ScriptedProducer
from fakebroker.topic_partition import TopicPartition, by_topic

_POLL_EVERY_MS = 200.0
"""Time between two Fetch requests to a broker."""

LIST_EVERY_MS = 2_000.0
"""Time between two ListTransactions requests to a broker. A younger transaction is not recorded as open."""

READ_COMMITTED = 1
_LATEST = -1
_MAX_BYTES = 1 << 20
_ONGOING = "Ongoing"


class CommittedReader:
    """The reader of one task or simulation; a `MetadataListener`.

    The loop or simulation calls `process` at `next_deadline` or earlier.

    Args:
        name: Its name in events.
        producers: The scripted producers, by transactional id. Records of other producers are ignored.
        topics: The topics to which they produce.
        start_ms: When it starts, in milliseconds since the Unix epoch.
        end_ms: When it ends.
        transport: Makes connections, one to each broker.
        now_ms: Returns the time by the members' clock, in milliseconds since the Unix epoch.
        lookup: Looks up the leaders of partitions.
        record: Receives the events.

    Attributes:
        is_done: Whether it has ended, and all its requests are answered.
    """

    source: Source = "load"

    def __init__(
        self,
        name: str,
        producers: Mapping[str, ScriptedProducer],
        topics: Sequence[str],
        start_ms: float,
        end_ms: float,
        transport: Transport,
        now_ms: Callable[[], float],
        lookup: CoordinatorLookup,
        record: Callable[[Event], None],
    ) -> None:
        self.is_done = False
        self._name, self._producers, self._topics = name, producers, topics
        self._now_ms, self._lookup, self._record = now_ms, lookup, record
        self._brokers = Brokers(transport, now_ms, CLIENT_ID, nodes=lookup.nodes)
        self._poll_ms, self._list_ms, self._end_ms = start_ms, start_ms + LIST_EVERY_MS, end_ms
        self._knows_leaders = self._is_looking_up = False
        self._partitions: list[TopicPartition] = []
        self._positions: dict[TopicPartition, int] = {}
        self._asked: set[int] = set()  # Node ids of the brokers that have not answered a Fetch or ListOffsets.
        self._open: dict[int, dict[tuple[str, int], int]] = {}  # By node id: since when transactions are listed.
        self._folded: dict[int, Event] = {}  # By node id: the row to which Fetch requests without news are added.

    def next_deadline(self) -> float:
        """Return when to call `process`, in milliseconds since the Unix epoch; infinite for never."""
        return math.inf if self.is_done else min(self._poll_ms, self._end_ms, self._brokers.next_deadline())

    def process(self, now_ms: float) -> None:
        """Send the requests that are due, and close connections whose requests have timed out."""
        self._brokers.tick(now_ms)
        if now_ms >= self._end_ms:
            self._end()
        elif now_ms >= self._poll_ms:
            self._poll_ms = max(self._poll_ms + _POLL_EVERY_MS, now_ms)
            self._poll(now_ms)
            if now_ms >= self._list_ms:
                self._list_ms = now_ms + LIST_EVERY_MS
                for node_id in self._lookup.nodes:
                    request = ListTransactionsRequest(state_filters=[_ONGOING], producer_id_filters=[])
                    self._brokers.send(request, partial(self._ended, node_id), node_id=node_id)

    def stop(self) -> None:
        """Record pending requests as cut off."""
        self._end()
        self._brokers.cut_off()

    def _end(self) -> None:
        self.is_done = True
        for event in self._folded.values():
            self._record(event)
        self._folded.clear()

    # Requests

    def _poll(self, now_ms: float) -> None:
        """Send a request to each leader that has none in flight: Fetch, or ListOffsets before the first one."""
        if not self._knows_leaders:
            if not self._is_looking_up:
                self._is_looking_up = True
                self._lookup.fetch_metadata(self._topics, self, now_ms)
            return
        by_leader: dict[int, list[TopicPartition]] = {}
        for partition in self._partitions:
            by_leader.setdefault(self._lookup.leaders.get(partition, -1), []).append(partition)
        for node_id, partitions in by_leader.items():
            if node_id not in self._lookup.nodes:
                self._knows_leaders = False
            elif node_id not in self._asked:
                self._asked.add(node_id)
                unknown = [partition for partition in partitions if partition not in self._positions]
                request = _list_offsets(unknown) if unknown else self._fetch(partitions)
                self._brokers.send(request, partial(self._ended, node_id), node_id=node_id)

    def _fetch(self, partitions: Sequence[TopicPartition]) -> FetchRequest:
        return FetchRequest(
            max_wait_ms=0,
            min_bytes=0,
            isolation_level=READ_COMMITTED,
            topics=[
                FetchTopic(
                    topic=name,
                    partitions=[
                        FetchPartition(
                            partition=index, fetch_offset=self._positions[name, index], partition_max_bytes=_MAX_BYTES
                        )
                        for index in indexes
                    ],
                )
                for name, indexes in by_topic(partitions).items()
            ],
        )

    # MetadataListener

    def metadata(self, partition_counts: Mapping[str, int], topic_ids: Mapping[str, bytes]) -> None:
        self._is_looking_up = False
        self._knows_leaders = len(partition_counts) == len(self._topics)
        self._partitions = [(topic, index) for topic, count in partition_counts.items() for index in range(count)]

    # What has become of requests

    def _ended(self, node_id: int, exchange: Exchange) -> None:
        if not isinstance(exchange.request, ListTransactionsRequest):
            self._asked.discard(node_id)
        match exchange.response:
            case ListOffsetsResponse() as response:
                for topic in response.topics:
                    for each in topic.partitions:
                        self._check(each.error_code)
                        if not each.error_code:
                            self._positions[topic.name, each.partition_index] = each.offset
            case FetchResponse() as response:
                self._fetched(self._event(node_id, exchange), response)
            case ListTransactionsResponse() as response:
                self._listed(self._event(node_id, exchange), response)
            case _ if not isinstance(exchange.failure, UnsupportedVersion):  # ListTransactions, before 3.0
                self._record(self._event(node_id, exchange))
                self._open.pop(node_id, None)
                self._knows_leaders = False

    def _check(self, error: int) -> None:
        """Look up the leaders again after an error."""
        if error:
            self._knows_leaders = False

    # Responses

    def _fetched(self, event: Event, response: FetchResponse) -> None:
        stable: list[tuple[str, int]] = []
        seen: list[Event] = []
        error = response.error_code
        for topic in response.responses:
            for each in topic.partitions:
                place = (topic.topic, each.partition_index)
                self._check(each.error_code)
                error = error or each.error_code
                if each.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                    del self._positions[place]
                elif not each.error_code:
                    stable.append((f"{topic.topic}-{each.partition_index}", each.last_stable_offset))
                    seen.extend(self._seen(place, each, event))
        self._add(event._replace(error=error, offsets=stable), is_news=bool(seen) or bool(error))
        for row in seen:
            self._record(row)

    def _add(self, event: Event, *, is_news: bool) -> None:
        """Record a Fetch. A Fetch without news is added to the row of the previous Fetch from the same broker."""
        folded = self._folded.pop(event.broker, None)
        if folded is not None:
            if not is_news and folded.offsets == event.offsets:
                self._folded[event.broker] = folded._replace(
                    count=folded.count + 1,
                    until_us=event.sent_us,
                    latency_us=max(folded.latency_us or 0, event.latency_us or 0),
                )
                return
            self._record(folded)
        if is_news:
            self._record(event)
        else:
            self._folded[event.broker] = event

    def _seen(self, place: TopicPartition, data: PartitionData, event: Event) -> Iterator[Event]:
        """Yield a row for each batch of a transaction, and advance the position."""
        for batch, committed in transactional_batches(data):
            if batch.base_offset < self._positions[place] or batch.is_control:
                continue
            producer, number = self._producer_of(batch)
            if producer is not None:
                script = producer.member.script
                yield event._replace(
                    kind="seen",
                    group=script.group,
                    member=script.member,
                    offsets=[(f"{place[0]}-{place[1]}", batch.base_offset)],
                    transaction=(batch.producer_id, batch.producer_epoch, number, committed),
                )
        for last in split_batches(data.records or b"")[-1:]:
            self._positions[place] = max(self._positions[place], last.last_offset + 1)

    def _producer_of(self, batch: RecordBatch) -> tuple[ScriptedProducer | None, int]:
        """Return the producer of a batch and the number of its transaction; None for records of others."""
        try:
            group, member, number = json.loads(next(iterate_records(batch)).value or b"")
        except (ValueError, TypeError):
            return None, 0
        producer = self._producers.get(member)
        return (producer, number) if producer and producer.member.script.group == group else (None, 0)

    def _listed(self, event: Event, response: ListTransactionsResponse) -> None:
        now_ms = self._now_ms()
        event = event._replace(error=response.error_code)
        self._record(event)
        before, listed = self._open.get(event.broker, {}), {}
        for each in response.transaction_states:
            producer = self._producers.get(each.transactional_id)
            if producer is None or each.transaction_state != _ONGOING or now_ms - producer.begun_ms < LIST_EVERY_MS:
                continue
            script, number = producer.member.script, producer.number
            since_us = listed[each.transactional_id, number] = before.get(
                (each.transactional_id, number), event.sent_us
            )
            self._record(
                event._replace(
                    kind="seen",
                    scheduled_us=since_us,
                    latency_us=None,
                    group=script.group,
                    member=script.member,
                    transaction=(each.producer_id, None, number, None),
                )
            )
        self._open[event.broker] = listed

    def _event(self, node_id: int, exchange: Exchange) -> Event:
        event = exchange_event(exchange, node_id, self._now_ms())
        return event._replace(member_id=self._name, source=self.source)


def reader_of(
    producers: Sequence[ScriptedProducer],
    name: str,
    start_ms: float,
    end_ms: float,
    transport: Transport,
    now_ms: Callable[[], float],
    lookup: CoordinatorLookup,
    record: Callable[[Event], None],
) -> CommittedReader:
    """Return a reader of everything that some producers produce; arguments as for `CommittedReader`."""
    by_id = {each.transactional_id: each for each in producers}
    topics = list(dict.fromkeys(each.topic for each in producers))
    return CommittedReader(name, by_id, topics, start_ms, end_ms, transport, now_ms, lookup, record)


def transactional_batches(data: PartitionData) -> Iterator[tuple[RecordBatch, bool]]:
    """Yield the transactional batches in the response for one partition, with whether a consumer returns them.

    Follows Kafka's `CompletedFetch`: aborted transactions begin at their first offsets and end with an ABORT marker.
    """
    beginning = sorted((each.first_offset, each.producer_id) for each in data.aborted_transactions or ())
    aborted: set[int] = set()
    for batch in split_batches(data.records or b""):
        while beginning and beginning[0][0] <= batch.last_offset:
            aborted.add(beginning.pop(0)[1])
        if batch.is_control:
            marker = marker_in(batch)
            if marker is not None and not marker.is_commit:
                aborted.discard(batch.producer_id)
        if batch.is_transactional:
            yield batch, batch.producer_id not in aborted


def _list_offsets(partitions: Sequence[TopicPartition]) -> ListOffsetsRequest:
    """Request the last stable offsets."""
    return ListOffsetsRequest(
        replica_id=-1,
        isolation_level=READ_COMMITTED,
        topics=[
            ListOffsetsTopic(
                name=name,
                partitions=[ListOffsetsPartition(partition_index=index, timestamp=_LATEST) for index in indexes],
            )
            for name, indexes in by_topic(partitions).items()
        ],
    )
