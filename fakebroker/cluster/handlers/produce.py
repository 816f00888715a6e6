"""Produce: validate and append one record batch for each partition. Replication is immediate.

Message sets in versions 0-2 are converted to record batches first; Kafka 4.0 and later reject them.
Checks follow KafkaApis.handleProduceRequest, ProduceRequest.validateRecords, ReplicaManager.appendToLocalLog and
UnifiedLog.append.
"""

from typing import TYPE_CHECKING, NamedTuple

from fakebroker.cluster.call import Call
from fakebroker.cluster.configs.log_config import FOREVER_MS, LogConfig, log_config
from fakebroker.cluster.handlers import fetch
from fakebroker.cluster.handlers.lookup import find_partition, leaders_of, leadership_error
from fakebroker.cluster.handlers.transactional_produce import partition_error, request_error
from fakebroker.cluster.logs.producer_state import RefusedBatchError
from fakebroker.cluster.topics import Partition
from fakebroker.errors import ErrorCode
from fakebroker.protocol.compression import Compression
from fakebroker.protocol.message_sets import magic_of, split_messages, to_record_batch
from fakebroker.protocol.messages.produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from fakebroker.protocol.records import (
    InvalidBatchError,
    RecordBatch,
    RecordRules,
    RefusedRecordsError,
    RefusedTimestampsError,
    TimestampType,
    recompressed,
    split_batches,
    validate_produced,
    with_timestamps,
)
from fakebroker.protocol.releases import Release

if TYPE_CHECKING:
    from fakebroker.cluster.cluster import Cluster

ADMIN_CLIENT_ID = "__admin_client"
"""The only client id that may write to internal topics (AdminUtils)."""

KIP_98, KIP_467, KIP_896 = Release(0, 11), Release(2, 4), Release(4, 0)
"""The first releases with record batches, with the error INVALID_RECORD, and without message sets, respectively."""

_FIRST_VERSION_OF_BATCHES = 3
_RECORD_BATCH_MAGIC = 2
_ALL_REPLICAS = -1


class Prepared(NamedTuple):
    """A batch that was checked and can be appended to its partition."""

    partition: Partition
    config: LogConfig
    batch: RecordBatch


def handle(cluster: "Cluster", call: Call, now_ms: float) -> ProduceResponse | None:
    request: ProduceRequest = call.request
    moved: list[Partition] = []
    error = request_error(request)
    topics = [
        TopicProduceResponse(
            name=topic.name,
            topic_id=topic.topic_id,
            partition_responses=[
                _refused(data.index, error) if error else _produce(cluster, call, topic, data, moved, now_ms)
                for data in topic.partition_data
            ],
        )
        for topic in request.topic_data
    ]
    if request.acks == 0:
        call.closes_connection = any(each.error_code for topic in topics for each in topic.partition_responses)
        cluster.answer(call, None, now_ms)
        return None
    return ProduceResponse(
        responses=topics,
        node_endpoints=[
            NodeEndpoint(node_id=broker.node_id, host=broker.host, port=broker.port, rack=broker.rack)
            for broker in leaders_of(cluster, moved)
        ],
    )


def _produce(
    cluster: "Cluster",
    call: Call,
    topic: TopicProduceData,
    data: PartitionProduceData,
    moved: list[Partition],
    now_ms: float,
) -> PartitionProduceResponse:
    """Append the batch of one partition, or return its error. A partition that has moved is added to `moved`."""
    found = prepare(cluster, call, topic, data, moved, now_ms)
    return found if isinstance(found, PartitionProduceResponse) else append(cluster, call, found, now_ms)


def prepare(
    cluster: "Cluster",
    call: Call,
    topic: TopicProduceData,
    data: PartitionProduceData,
    moved: list[Partition],
    now_ms: float,
) -> Prepared | PartitionProduceResponse:
    """Check the batch of one partition, without appending it; return the batch, or the response with an error.

    Args:
        cluster: The cluster.
        call: The request.
        topic: The topic in the request.
        data: The partition in the request.
        moved: Extended by the partition, if it has moved to another leader.
        now_ms: The brokers' time in milliseconds.
    """
    if call.api_version < _FIRST_VERSION_OF_BATCHES and call.broker.release >= KIP_896:
        return _refused(data.index, ErrorCode.UNSUPPORTED_VERSION)
    partition = find_partition(cluster, topic.name, topic.topic_id, data.index, by_id=call.api_version >= 13)
    if isinstance(partition, ErrorCode):
        return _refused(data.index, partition)
    if refusal := partition_error(cluster, call, partition, data.records, now_ms):
        return _refused_transaction(data.index, refusal)
    config = log_config(cluster, call.broker, partition.topic)
    try:
        batch = _checked(cluster, call, partition, config, data.records or b"", now_ms)
    except InvalidBatchError as error:
        is_older = error.error_code is ErrorCode.INVALID_RECORD and call.broker.release < KIP_467
        response = _refused(data.index, ErrorCode.CORRUPT_MESSAGE if is_older else error.error_code, str(error))
        if isinstance(error, RefusedRecordsError):
            response.log_start_offset = partition.log.log_start_offset
            response.record_errors = [
                BatchIndexAndErrorMessage(batch_index=index, batch_index_error_message=fault)
                for index, fault in error.faults
            ]
        return response
    if isinstance(batch, ErrorCode):
        response = _refused(data.index, batch)
        if batch is ErrorCode.NOT_LEADER_OR_FOLLOWER and call.api_version >= 10:
            response.current_leader = LeaderIdAndEpoch(
                leader_id=partition.leader_id, leader_epoch=partition.leader_epoch
            )
            moved.append(partition)
        return response
    return Prepared(partition, config, batch)


def append(cluster: "Cluster", call: Call, prepared: Prepared, now_ms: float) -> PartitionProduceResponse:
    """Append a batch that was checked, and answer the Fetch requests that wait for it."""
    response = _append(cluster, call, *prepared, now_ms)
    response.log_start_offset = prepared.partition.log.log_start_offset
    return response


def _append(
    cluster: "Cluster", call: Call, partition: Partition, config: LogConfig, batch: RecordBatch, now_ms: float
) -> PartitionProduceResponse:
    """Append a batch, unless its producer's sequence numbers show that it is a duplicate or out of order."""
    log, index = partition.log, partition.index
    try:
        repeated = log.producers.check(batch, call.broker.release, log.log_start_offset, now_ms)
    except RefusedBatchError as error:
        return _refused(index, error.error_code, str(error))
    if repeated is not None:
        # For a duplicate, Kafka returns the timestamp of the stored batch as its log append time.
        return PartitionProduceResponse(
            index=index,
            error_code=ErrorCode.NONE,
            base_offset=repeated.base_offset,
            log_append_time_ms=repeated.max_timestamp_ms,
        )
    log.retain(config.keep_bytes)
    base_offset = log.append(batch.data, partition.leader_epoch)
    cluster.log_manager.appended(config, now_ms)
    fetch.wake(cluster, partition, batch.size_bytes, now_ms)
    response = PartitionProduceResponse(index=index, error_code=ErrorCode.NONE, base_offset=base_offset)
    if config.uses_append_time:
        response.log_append_time_ms = batch.max_timestamp_ms
    return response


def _refused(index: int, error: ErrorCode, message: str | None = None) -> PartitionProduceResponse:
    return PartitionProduceResponse(index=index, error_code=error, base_offset=-1, error_message=message)


def _refused_transaction(index: int, error: ErrorCode) -> PartitionProduceResponse:
    message = None
    if error in (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.INVALID_TXN_STATE):
        message = "the transaction coordinator has not confirmed that the partition is in the transaction"
    return _refused(index, error, message)


def _checked(
    cluster: "Cluster", call: Call, partition: Partition, config: LogConfig, records: bytes, now_ms: float
) -> RecordBatch | ErrorCode:
    """Return the batch to append, or an error.

    Raises:
        InvalidBatchError: The bytes are not one valid batch.
    """
    if call.request.acks not in (-1, 0, 1):
        return ErrorCode.INVALID_REQUIRED_ACKS
    # Kafka also accepts record batches in older versions of requests.
    is_batch = call.broker.release >= KIP_98 and magic_of(records) == _RECORD_BATCH_MAGIC
    if call.api_version < _FIRST_VERSION_OF_BATCHES and not is_batch:
        batch = _checked_messages(cluster, call, partition, config, records)
    else:
        batch = _checked_batch(cluster, call, partition, config, records)
    if isinstance(batch, ErrorCode):
        return batch
    batch = _stamped(batch, config, int(now_ms))
    if config.compression is not None and batch.compression is not config.compression:
        batch = recompressed(batch, config.compression)
        if batch.size_bytes > config.max_message_bytes:
            return ErrorCode.MESSAGE_TOO_LARGE
    return ErrorCode.RECORD_LIST_TOO_LARGE if batch.size_bytes > config.segment_bytes else batch


def _checked_batch(
    cluster: "Cluster", call: Call, partition: Partition, config: LogConfig, records: bytes
) -> RecordBatch | ErrorCode:
    """Return the only batch of these records, or an error.

    Raises:
        InvalidBatchError: The bytes are not one valid batch.
    """
    batches = split_batches(records)
    if call.api_version < 7 and any(batch.compression is Compression.ZSTD for batch in batches):
        return ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    error = _write_error(cluster, call, partition, config)
    if error is not ErrorCode.NONE:
        return error
    if any(batch.size_bytes > config.max_message_bytes for batch in batches):
        return ErrorCode.MESSAGE_TOO_LARGE
    return validate_produced(records, batches=batches)


def _checked_messages(
    cluster: "Cluster", call: Call, partition: Partition, config: LogConfig, records: bytes
) -> RecordBatch | ErrorCode:
    """Convert a message set to a batch, or return an error. A set without a complete message returns NONE.

    Raises:
        InvalidBatchError: The bytes are not a valid message set.
    """
    error = _write_error(cluster, call, partition, config)
    if error is not ErrorCode.NONE:
        return error
    messages = split_messages(records)
    if any(message.size_bytes > config.max_message_bytes for message in messages):
        return ErrorCode.MESSAGE_TOO_LARGE
    if not messages:
        return ErrorCode.NONE
    batch = RecordBatch(to_record_batch(messages))
    return ErrorCode.MESSAGE_TOO_LARGE if batch.size_bytes > config.max_message_bytes else batch


def _stamped(batch: RecordBatch, config: LogConfig, now_ms: int) -> RecordBatch:
    """Check the keys and timestamps of a valid batch, and set those that the broker sets (LogValidator).

    Raises:
        RefusedRecordsError: Records are not allowed in this topic.
    """
    is_create_time = batch.timestamp_type is TimestampType.CREATE_TIME
    if config.uses_append_time:
        if config.is_compacted:
            RecordRules(needs_key=True).check(batch)
        if not is_create_time:
            fault = "timestamp type LogAppendTime, expected CreateTime from a producer"
            faults = [(index, fault) for index in range(batch.record_count)]
            raise RefusedTimestampsError(f"{batch.label}: {fault}", faults)
        return with_timestamps(batch, TimestampType.LOG_APPEND_TIME, now_ms)
    before_ms, after_ms = config.timestamp_before_max_ms, config.timestamp_after_max_ms
    # Most batches need not be read again, because their header tells that all records are allowed.
    if config.is_compacted or before_ms < FOREVER_MS or batch.max_timestamp_ms > now_ms + after_ms:
        first_ms = now_ms - before_ms if before_ms < FOREVER_MS else None
        last_ms = now_ms + after_ms if after_ms < FOREVER_MS else None
        RecordRules(needs_key=config.is_compacted, first_ms=first_ms, last_ms=last_ms).check(batch)
    return batch if is_create_time else with_timestamps(batch, TimestampType.CREATE_TIME, batch.max_timestamp_ms)


def _write_error(cluster: "Cluster", call: Call, partition: Partition, config: LogConfig) -> ErrorCode:
    """Return the error if the client may not write to this partition at this broker, else NONE.

    Kafka returns NOT_ENOUGH_REPLICAS_AFTER_APPEND if replicas fall behind while a request waits for them. Here they
    never do, so only faults return it.
    """
    if partition.topic.is_internal and call.client_id != ADMIN_CLIENT_ID:
        return ErrorCode.INVALID_TOPIC_EXCEPTION
    error = leadership_error(partition, call.broker)
    if error is ErrorCode.NONE and call.request.acks == _ALL_REPLICAS:
        return ErrorCode.NONE if cluster.has_enough_replicas(partition, config) else ErrorCode.NOT_ENOUGH_REPLICAS
    return error
