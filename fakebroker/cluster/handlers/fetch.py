"""Fetch: read records. If there are not enough, the request is delayed (ReplicaManager.fetchMessages, DelayedFetch).

In versions 0-3 record batches are converted to message sets (KafkaApis.maybeConvertFetchedData). `FetchPurgatory` has
the delayed requests.
"""

from typing import TYPE_CHECKING

import msgspec

from fakebroker.cluster.authorization import cluster_error, topic_error
from fakebroker.cluster.call import Call
from fakebroker.cluster.fetch_purgatory import DelayedFetch
from fakebroker.cluster.handlers.lookup import find_partition, leaders_of, leadership_error
from fakebroker.cluster.logs.fetch_sessions import FetchContext, Key
from fakebroker.cluster.logs.partition_log import PartitionLog
from fakebroker.cluster.replication.replica_placement import RACK_AWARE_SELECTOR, preferred_read_replica
from fakebroker.cluster.topics import Partition
from fakebroker.errors import ErrorCode
from fakebroker.protocol.message_sets import UnsupportedCompressionError, iterate_messages
from fakebroker.protocol.messages.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)
from fakebroker.protocol.records import split_batches
from fakebroker.protocol.releases import Release
from fakebroker.protocol.schema import replaced
from fakebroker.protocol.types import ZERO_UUID
from fakebroker.security.acls import AclOperation

if TYPE_CHECKING:
    from fakebroker.cluster.cluster import Cluster

_READ_COMMITTED = 1
_INDEX_INTERVAL_BYTES = 4_096  # index.interval.bytes
_FIRST_VERSION_OF_MAGIC_1, _FIRST_VERSION_OF_BATCHES = 2, 4
_FIRST_VERSION_OF_WHOLE_MESSAGES = 3  # KIP-74: in older versions, the limit may cut the last message.
_FIRST_VERSION_OF_SESSIONS = 7  # KIP-227
_FIRST_VERSION_OF_ZSTD = 10  # KIP-110
_FIRST_VERSION_OF_IDS = 13  # KIP-516
_KIP_392 = Release(2, 4)
"""The first release with `replica.selector.class`. Fetch 11, which has the rack of the client, is older."""
_MOVED = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)


class Reading(msgspec.Struct):
    """The result of reading the partitions of a Fetch.

    Attributes:
        missing_bytes: How many more bytes the request waits for; 0 or less if it must be answered now.
        data: The result of each partition, in the order in which they were read; unknown partitions are last.
        partitions: The requested partitions that exist.
        moved: The partitions with another leader or leader epoch than the client expects, if the version reports them.
    """

    missing_bytes: int
    data: dict[Key, PartitionData] = msgspec.field(default_factory=dict)
    partitions: list[Partition] = msgspec.field(default_factory=list)
    moved: list[Partition] = msgspec.field(default_factory=list)


def handle(cluster: "Cluster", call: Call, now_ms: float) -> FetchResponse | None:
    request: FetchRequest = call.request
    context = call.broker.fetch_sessions.context(request, call.api_version, now_ms)
    if context is None:
        return _failure(call)
    if cluster.acls is not None:
        context.hidden = _hidden(cluster, call, context)
    if request.isolation_level not in (0, _READ_COMMITTED) and _finds_any(cluster, call, context):
        return _failure(call)
    reading = _read(cluster, call, context)
    if request.max_wait_ms <= 0 or reading.missing_bytes <= 0:
        return _response(cluster, call, context, reading, now_ms)
    deadline_ms = cluster.wire_ms + request.max_wait_ms
    cluster.purgatory.add(_Delayed(cluster, call, context, reading, deadline_ms))
    return None


class _Delayed(DelayedFetch):
    """A request that waits for more records."""

    __slots__ = ("_cluster", "_reading")

    def __init__(
        self, cluster: "Cluster", call: Call, context: FetchContext, reading: Reading, deadline_ms: float
    ) -> None:
        super().__init__(call, context, reading.partitions, deadline_ms, reading.missing_bytes)
        self._cluster, self._reading = cluster, reading

    def read(self) -> None:
        self._reading = _read(self._cluster, self.call, self.context)
        self.missing_bytes = self._reading.missing_bytes

    def answer(self) -> None:
        cluster = self._cluster
        response = _response(cluster, self.call, self.context, self._reading, cluster.now_ms)
        cluster.requests.answer(self.call, response, cluster.now_ms)


def _finds_any(cluster: "Cluster", call: Call, context: FetchContext) -> bool:
    """Return whether one of the partitions exists, and the client may read it."""
    return any(
        isinstance(_find(cluster, call, context, key), Partition)
        for key in context.partitions
        if key not in context.hidden
    )


def _find(cluster: "Cluster", call: Call, context: FetchContext, key: Key) -> Partition | ErrorCode:
    """Find a partition. As in Kafka, a name that was found for a topic id stays: another topic may have it by now."""
    name, topic_id, index = key
    if call.api_version < _FIRST_VERSION_OF_IDS:
        return find_partition(cluster, name, topic_id, index, by_id=False)
    topic = cluster.topics.find(name, topic_id, by_id=True)
    if topic is None:
        if topic_id not in context.names:
            return ErrorCode.UNKNOWN_TOPIC_ID
        return find_partition(cluster, context.names[topic_id], topic_id, index, by_id=False)
    context.names[topic_id] = topic.name
    return topic.partition(index) or ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _failure(call: Call) -> FetchResponse:
    """Return the response to a request on which Kafka fails (FetchRequest.getErrorResponse)."""
    request: FetchRequest = call.request
    error = ErrorCode.UNKNOWN_SERVER_ERROR
    return FetchResponse(
        error_code=error if call.api_version >= _FIRST_VERSION_OF_SESSIONS else ErrorCode.NONE,
        session_id=request.session_id,
        responses=[
            FetchableTopicResponse(
                topic=topic.topic,
                partitions=[replaced(_failed(each, error), aborted_transactions=[]) for each in topic.partitions],
            )
            for topic in request.topics
            if call.api_version < _FIRST_VERSION_OF_IDS
        ],
    )


def _hidden(cluster: "Cluster", call: Call, context: FetchContext) -> frozenset[Key]:
    """Return the partitions that the client may not read. As in Kafka, a delayed request is not checked again."""
    request: FetchRequest = call.request
    if max(request.replica_id, request.replica_state.replica_id) >= 0:  # a follower
        return frozenset(context.partitions if cluster_error(cluster, call, AclOperation.CLUSTER_ACTION) else ())
    by_id = call.api_version >= _FIRST_VERSION_OF_IDS
    names = {
        key: cluster.topics.name_of(key[1]) or context.names.get(key[1]) if by_id else key[0]
        for key in context.partitions
    }
    return frozenset(
        key for key, name in names.items() if name is not None and topic_error(cluster, call, AclOperation.READ, name)
    )


def _read(cluster: "Cluster", call: Call, context: FetchContext) -> Reading:
    """Read the partitions of a Fetch, within its limits, and compute how many more bytes it waits for."""
    budget_bytes = min(call.request.max_bytes, cluster.config.number("fetch.max.bytes"))
    if cluster.quotas.limits:
        budget_bytes = int(min(budget_bytes, cluster.quotas.max_fetch_bytes(call)))
    reading = Reading(missing_bytes=min(call.request.min_bytes, budget_bytes))
    refused: dict[Key, PartitionData] = {}
    is_empty = True
    for key, requested in context.partitions.items():
        if context.refused and key in context.refused:
            continue
        partition = _find(cluster, call, context, key)
        if context.hidden and key in context.hidden and partition is not ErrorCode.UNKNOWN_TOPIC_ID:
            partition = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        if isinstance(partition, ErrorCode):
            if context.refused is None:
                # Such an answer has an empty list, one for a partition that was there has none (FetchResponse).
                refused[key] = replaced(_failed(requested, partition), aborted_transactions=[])
            else:
                reading.data[key], reading.missing_bytes = _failed(requested, partition), 0
            continue
        limit_bytes = min(budget_bytes, requested.partition_max_bytes)
        # KIP-74: the first partition with records returns at least one batch, regardless of limits.
        data = _read_partition(cluster, call, partition, key[1], requested, limit_bytes, at_least_one=is_empty)
        stored = data.records or b""
        if call.api_version < _FIRST_VERSION_OF_BATCHES:
            data = _with_messages(call, requested, data, limit_bytes, at_least_one=is_empty)
        is_empty = is_empty and not data.records
        budget_bytes = max(0, budget_bytes - len(data.records or b""))
        if data.error_code or data.preferred_read_replica != -1 or data.diverging_epoch.epoch >= 0:
            reading.missing_bytes = 0
        elif _is_committed(call) and requested.fetch_offset > partition.log.last_stable_offset:
            reading.missing_bytes = 0  # Kafka takes that for a truncated log, and does not wait (DelayedFetch).
        elif len(stored) < reading.missing_bytes:
            end_offset = _end_offset(call, partition)
            reading.missing_bytes -= _available_bytes(end_offset, requested, stored, limit_bytes)
        else:
            reading.missing_bytes -= len(stored)
        reading.data[key] = data
        reading.partitions.append(partition)
        if call.api_version >= 16 and data.error_code in _MOVED:
            data.current_leader = LeaderIdAndEpoch(leader_id=partition.leader_id, leader_epoch=partition.leader_epoch)
            reading.moved.append(partition)
    if not reading.partitions:
        reading.missing_bytes = 0
    if context.refused is None:
        context.refused = refused
    reading.data |= context.refused
    return reading


def _read_partition(
    cluster: "Cluster",
    call: Call,
    partition: Partition,
    topic_id: bytes,
    requested: FetchPartition,
    limit_bytes: int,
    *,
    at_least_one: bool,
) -> PartitionData:
    log = partition.log
    is_here = call.broker.node_id in partition.replicas
    if is_here and call.api_version >= _FIRST_VERSION_OF_IDS and topic_id != partition.topic.topic_id:
        return _failed(requested, ErrorCode.INCONSISTENT_TOPIC_ID)
    # From version 11 on consumers may read from followers (KIP-392).
    error = leadership_error(partition, call.broker, requested.current_leader_epoch, leader_only=call.api_version < 11)
    if error is not ErrorCode.NONE:
        return _failed(requested, error)
    if requested.last_fetched_epoch >= 0:
        # What comes first in Kafka, too: has the log been truncated below what the client has read? (KIP-595)
        found = log.end_of_epoch(requested.last_fetched_epoch, partition.leader_epoch)
        if found.leader_epoch < 0 or found.end_offset < 0:
            return _failed(requested, ErrorCode.OFFSET_OUT_OF_RANGE)
        if found.leader_epoch < requested.last_fetched_epoch or found.end_offset < requested.fetch_offset:
            return PartitionData(
                partition_index=partition.index,
                error_code=ErrorCode.NONE,
                high_watermark=log.high_watermark,
                last_stable_offset=log.last_stable_offset,
                log_start_offset=log.log_start_offset,
                diverging_epoch=EpochEndOffset(epoch=found.leader_epoch, end_offset=found.end_offset),
                aborted_transactions=None,
                records=b"",
            )
    if not log.log_start_offset <= requested.fetch_offset <= log.log_end_offset:
        return _failed(requested, ErrorCode.OFFSET_OUT_OF_RANGE)
    if call.api_version < _FIRST_VERSION_OF_ZSTD and partition.topic.configs.get("compression.type") == "zstd":
        return _failed(requested, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
    at_least_one = at_least_one or call.api_version < _FIRST_VERSION_OF_WHOLE_MESSAGES
    read_replica = _preferred_read_replica(cluster, call, partition) if call.request.rack_id else None
    records = b""
    if read_replica is None:
        end_offset = _end_offset(call, partition)
        records = log.read(requested.fetch_offset, limit_bytes, at_least_one=at_least_one, end_offset=end_offset)
    return PartitionData(
        partition_index=partition.index,
        error_code=ErrorCode.NONE,
        high_watermark=log.high_watermark,
        last_stable_offset=log.last_stable_offset,
        log_start_offset=log.log_start_offset,
        aborted_transactions=_aborted(log, requested.fetch_offset, records) if _is_committed(call) else None,
        preferred_read_replica=-1 if read_replica is None else read_replica,
        records=records,
    )


def _end_offset(call: Call, partition: Partition) -> int:
    """Return the offset before which a request may read: consumers of committed records read stable ones."""
    return partition.log.last_stable_offset if _is_committed(call) else partition.log.high_watermark


def _is_committed(call: Call) -> bool:
    """Return whether a consumer reads records of committed transactions only."""
    return bool(call.request.isolation_level == _READ_COMMITTED)


def _aborted(log: PartitionLog, offset: int, records: bytes) -> list[AbortedTransaction]:
    """Return the aborted transactions whose records may be among those returned.

    As in Kafka, they may begin after these records: up to the next entry of the index, which has one for each 4 KiB
    (`LogSegment.fetchUpperBoundOffset`).
    """
    if not records or not log.producers.has_aborted:
        return []
    end_offset, size_bytes = log.log_end_offset, 0
    for batch in log.batches_from(split_batches(records)[-1].last_offset + 1):
        if size_bytes > _INDEX_INTERVAL_BYTES:
            end_offset = batch.base_offset
            break
        size_bytes += batch.size_bytes
    return [
        AbortedTransaction(producer_id=each.producer_id, first_offset=each.first_offset)
        for each in log.producers.aborted_in(offset, end_offset)
    ]


def _preferred_read_replica(cluster: "Cluster", call: Call, partition: Partition) -> int | None:
    """Return the follower that the leader refers a consumer to, if any (ReplicaManager.findPreferredReadReplica)."""
    is_follower_fetch = max(call.request.replica_id, call.request.replica_state.replica_id) >= 0
    if call.broker.node_id != partition.leader_id or is_follower_fetch or call.broker.release < _KIP_392:
        return None
    if cluster.config.text("replica.selector.class") != RACK_AWARE_SELECTOR:
        return None
    in_sync = [cluster.brokers[node_id] for node_id in cluster.in_sync(partition)]
    return preferred_read_replica(partition, in_sync, call.request.rack_id)


def _with_messages(
    call: Call, requested: FetchPartition, data: PartitionData, limit_bytes: int, *, at_least_one: bool
) -> PartitionData:
    """Convert batches to as many messages as fit the limit. Before version 3, the last message is cut at the limit."""
    is_cut = call.api_version < _FIRST_VERSION_OF_WHOLE_MESSAGES
    magic = int(call.api_version >= _FIRST_VERSION_OF_MAGIC_1)
    messages = bytearray()
    try:
        for message in iterate_messages(split_batches(data.records or b""), magic, requested.fetch_offset):
            if len(messages) + len(message) > limit_bytes and not is_cut and (messages or not at_least_one):
                break
            messages += message
            if len(messages) >= limit_bytes:
                break
    except UnsupportedCompressionError as error:
        # Messages before the batch that cannot be converted are returned. A Fetch that starts with this batch fails.
        if not messages:
            return _failed(requested, error.error_code)
    data.records = bytes(messages[: max(0, limit_bytes)] if is_cut else messages)
    return data


def _available_bytes(end_offset: int, requested: FetchPartition, records: bytes, limit_bytes: int) -> int:
    """Return how many bytes are available for a request: the records, or at least the limit if a batch did not fit."""
    next_offset = split_batches(records)[-1].last_offset + 1 if records else requested.fetch_offset
    return len(records) if next_offset >= end_offset else max(len(records), limit_bytes)


def _failed(requested: FetchPartition, error: ErrorCode) -> PartitionData:
    return PartitionData(
        partition_index=requested.partition, error_code=error, high_watermark=-1, aborted_transactions=None, records=b""
    )


def _response(cluster: "Cluster", call: Call, context: FetchContext, reading: Reading, now_ms: float) -> FetchResponse:
    size_bytes = sum(len(data.records or b"") for data in reading.data.values()) if cluster.quotas.limits else 0
    is_throttled = cluster.quotas.fetch_throttle_ms(call, size_bytes, now_ms) > 0
    reply = context.empty_reply() if is_throttled else context.reply(reading.data, now_ms)
    topics: list[FetchableTopicResponse] = []
    for (name, topic_id, _), data in reply.data.items():
        if topics and topics[-1].topic_id == ZERO_UUID and call.api_version >= _FIRST_VERSION_OF_IDS:
            return _failure(call)  # as in Kafka, which fails if a topic without an id is not the last one
        if not topics or (topics[-1].topic, topics[-1].topic_id) != (name, topic_id):
            topics.append(FetchableTopicResponse(topic=name, topic_id=topic_id, partitions=[]))
        topics[-1].partitions.append(data)
    return FetchResponse(
        throttle_time_ms=int(call.throttle_ms),
        error_code=reply.error,
        session_id=reply.session_id,
        responses=topics,
        node_endpoints=[
            NodeEndpoint(node_id=broker.node_id, host=host, port=port, rack=broker.rack)
            for broker in leaders_of(cluster, reading.moved)
            for host, port in (call.endpoint_of(broker),)
        ],
    )
