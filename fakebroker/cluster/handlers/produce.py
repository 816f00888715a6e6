"""Produce: validate and append one record batch for each partition. Replication is immediate.

Message sets in versions 0-2 are converted to record batches first; Kafka 4.0 and later reject them.
Checks follow KafkaApis.handleProduceRequest, ProduceRequest.validateRecords, ReplicaManager.appendToLocalLog and
UnifiedLog.append.
"""

from collections.abc import Mapping, Sequence
from math import inf
from typing import TYPE_CHECKING, NamedTuple

from fakebroker.cluster.authorization import topic_error, transaction_error
from fakebroker.cluster.call import Call
from fakebroker.cluster.configs.log_config import FOREVER_MS, LogConfig, log_config
from fakebroker.cluster.handlers.lookup import find_partition, leaders_of, leadership_error
from fakebroker.cluster.handlers.transactional_produce import (
    VERIFIES,
    TransactionalBatch,
    begin_verification,
    error_of_produce,
    has_transactional_batch,
    is_asked,
    known_results,
    lacks_transactional_id,
)
from fakebroker.cluster.logs.producer_state import PendingVerification, RefusedBatchError
from fakebroker.cluster.topics import Partition
from fakebroker.errors import DiskFullError, ErrorCode
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
from fakebroker.protocol.produced_batches import (
    Parts,
    ReadMeter,
    RecordRules,
    RefusedRecordsError,
    RefusedTimestampsError,
    at_once,
    only_batch,
    recompressed,
    validate_in_parts,
)
from fakebroker.protocol.records import (
    DEFAULT_DECOMPRESSED_LIMIT_BYTES,
    InvalidBatchError,
    RecordBatch,
    TimestampType,
    with_timestamps,
)
from fakebroker.protocol.releases import Release
from fakebroker.protocol.schema import Message
from fakebroker.security.acls import AclOperation
from fakebroker.topic_partition import TopicPartition

if TYPE_CHECKING:
    from fakebroker.cluster.cluster import Cluster

ADMIN_CLIENT_ID = "__admin_client"
"""The only client id that may write to internal topics (AdminUtils)."""

KIP_98, KIP_467, KIP_896 = Release(0, 11), Release(2, 4), Release(4, 0)
"""The first releases with record batches, with the error INVALID_RECORD, and without message sets, respectively."""

_FIRST_VERSION_OF_BATCHES, _FIRST_VERSION_OF_ZSTD, _FIRST_VERSION_OF_IDS = 3, 7, 13
_RECORD_BATCH_MAGIC = 2
_ALL_REPLICAS = -1


class Requested(NamedTuple):
    """The records for one partition that exists.

    Attributes:
        partition: The partition.
        records: The records.
        batch: The only batch of these records; None for a message set.
    """

    partition: Partition
    records: bytes
    batch: RecordBatch | None


class Prepared(NamedTuple):
    """A batch that was checked and can be appended to its partition."""

    partition: Partition
    config: LogConfig
    batch: RecordBatch


Row = Requested | PartitionProduceResponse
"""The records for a partition, or the response to it if they were refused."""


def handle(cluster: "Cluster", call: Call, now_ms: float) -> Message | None:
    request: ProduceRequest = call.request
    topics = _distinct(request.topic_data)
    rows: list[list[Row]]
    if lacks_transactional_id(request) or (cluster.acls is not None and _may_not_transact(cluster, call)):
        rows = _all_refused(topics, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    elif cluster.acls is not None:
        rows = [_authorized(cluster, call, topic) for topic in topics]
    else:
        rows = [[_requested(cluster, call, topic, data) for data in topic.partition_data] for topic in topics]
    batches = _transactional(rows)
    producers = {(each.batch.producer_id, each.batch.producer_epoch) for each in batches}
    if len(producers) > 1 and call.broker.release >= VERIFIES:
        message = "expected transactional batches of one producer"
        rows, batches = _all_refused(topics, ErrorCode.INVALID_PRODUCER_ID_MAPPING, message), []
    produce = Produce(cluster, call, topics, rows, batches)
    if not produce.advance():
        return None
    if produce.response is None:
        cluster.requests.answer(call, None, now_ms)
    return produce.response


def _distinct(topics: Sequence[TopicProduceData]) -> Sequence[TopicProduceData]:
    """Return each topic that has partitions once, and each partition once, with the last records for it."""
    if len(topics) == 1 and len(topics[0].partition_data) == 1:
        return topics
    found: dict[tuple[str, bytes], dict[int, PartitionProduceData]] = {}
    for topic in topics:
        for data in topic.partition_data:
            found.setdefault((topic.name, topic.topic_id), {})[data.index] = data
    return [
        TopicProduceData(name=name, topic_id=topic_id, partition_data=list(of_topic.values()))
        for (name, topic_id), of_topic in found.items()
    ]


def _may_not_transact(cluster: "Cluster", call: Call) -> bool:
    """Return whether a request has transactional batches, and the client may not use its transactional id."""
    request: ProduceRequest = call.request
    return (
        request.transactional_id is not None
        and has_transactional_batch(request)
        and bool(transaction_error(cluster, call, AclOperation.WRITE, request.transactional_id))
    )


def _authorized(cluster: "Cluster", call: Call, topic: TopicProduceData) -> list[Row]:
    """Look up the partitions of a topic, unless the client may not write to it."""
    name = topic.name if call.api_version < _FIRST_VERSION_OF_IDS else cluster.topics.name_of(topic.topic_id)
    if name is not None and (error := topic_error(cluster, call, AclOperation.WRITE, name)):
        return [_refused(data.index, error) for data in topic.partition_data]
    return [_requested(cluster, call, topic, data) for data in topic.partition_data]


def _all_refused(topics: Sequence[TopicProduceData], error: ErrorCode, message: str | None = None) -> list[list[Row]]:
    return [[_refused(data.index, error, message) for data in topic.partition_data] for topic in topics]


def _transactional(rows: Sequence[Sequence[Row]]) -> list[TransactionalBatch]:
    """Return the transactional batches of a request. Kafka does not verify those without a producer id."""
    return [
        TransactionalBatch(each.partition, each.batch)
        for of_topic in rows
        for each in of_topic
        if isinstance(each, Requested)
        and each.batch is not None
        and each.batch.is_transactional
        and each.batch.producer_id >= 0
    ]


class Produce:
    """A Produce in progress. Its steps: verify the transactional batches, append all batches, respond.

    It waits in three cases.

    - The coordinator answers CONCURRENT_TRANSACTIONS, usually because the last transaction is being completed. Then the
      coordinator is asked again for a while (`attempt`). That is faster than an error, after which the client sends all
      records again.
    - A test holds the coordinator's record. When the record is stored, the Produce continues (`released`).
    - One part of the records is read, and there are more. Other connections are served first (`proceed`).

    Args:
        cluster: The cluster, whose `part_bytes` is the size of a part.
        call: The request.
        topics: The topics of the request.
        rows: For each topic, one row a partition: its records, or the error that refuses them.
        batches: The transactional batches.

    Attributes:
        response: The response; None until the request is complete, and with acks=0.
        scheduled_ms, timer_number: See `TimerEntry`; for the next attempt to verify.
    """

    def __init__(
        self,
        cluster: "Cluster",
        call: Call,
        topics: Sequence[TopicProduceData],
        rows: Sequence[Sequence[Row]],
        batches: Sequence[TransactionalBatch],
    ) -> None:
        self._cluster, self._call, self._topics, self._batches = cluster, call, topics, batches
        self._stops = call.broker.stops
        self._verification = begin_verification(cluster, call, batches)
        has_retries = self._verification is not None and self._verification.adds
        limit_ms = cluster.config.number("add.partitions.to.txn.retry.backoff.max.ms") if has_retries else 0
        self._last_attempt_ms = cluster.now_ms + limit_ms
        self._attempt_ms = cluster.now_ms
        self._results: dict[TopicPartition, ErrorCode | PendingVerification] = {}
        self._moved: list[Partition] = []
        self._meter = ReadMeter(cluster.part_bytes)
        self._part = 0
        self._work = self._append_all(rows)
        self.response: ProduceResponse | None = None
        self.scheduled_ms, self.timer_number = inf, 0

    def __repr__(self) -> str:
        return repr(self._call)

    def advance(self) -> bool:
        """Verify the batches and append them. Return whether that is complete; else the request is answered later."""
        verification = self._verification
        if verification is None:
            return self._append_part()
        self._results = known_results(self._cluster, self._call, verification, self._batches)
        asked = self._asked()
        errors = verification.ask(self._cluster, asked, self) if asked else {}
        return errors is not None and self._is_verified(errors)

    def _asked(self) -> list[TopicPartition]:
        return [place for place, result in self._results.items() if is_asked(result)]

    def _is_verified(self, errors: Mapping[TopicPartition, ErrorCode]) -> bool:
        """Append the batches, unless the coordinator has to be asked again. Return whether the request is complete."""
        verification = self._verification
        assert verification is not None
        results = {**self._results, **errors}
        if ErrorCode.CONCURRENT_TRANSACTIONS in errors.values() and self._attempt_ms < self._last_attempt_ms:
            backoff_ms = self._cluster.config.number("add.partitions.to.txn.retry.backoff.ms")
            self._cluster.transactions.verifications.schedule(self, self._attempt_ms + backoff_ms)
            return False
        self._results = {
            place: error_of_produce(result, verification) if isinstance(result, ErrorCode) else result
            for place, result in results.items()
        }
        return self._append_part()

    def attempt(self, due_ms: float) -> None:
        """Verify again, at the time for which that was scheduled."""
        self._attempt_ms = due_ms
        if self._call.broker.stops == self._stops:
            self._answer_if(self.advance())

    def released(self, error: ErrorCode) -> None:
        """Continue after the coordinator has stored the record that was held, with its error."""
        verification = self._verification
        assert verification is not None
        self._answer_if(self._is_verified(verification.errors(dict.fromkeys(self._asked(), error))))

    def give_up(self) -> None:
        """End without another attempt, with CONCURRENT_TRANSACTIONS."""
        self._results = dict.fromkeys(self._results, ErrorCode.CONCURRENT_TRANSACTIONS)
        self._answer_if(self._append_part())

    def proceed(self) -> None:
        """Append the next part."""
        self._answer_if(self._append_part())

    def _answer_if(self, is_complete: bool) -> None:
        """Answer the parked request after its last part."""
        if is_complete:
            self._cluster.requests.answer(self._call, self.response, self._cluster.now_ms)

    def _append_part(self) -> bool:
        """Append batches until all are appended, or the part is complete; then the request is continued later."""
        if self._call.broker.stops != self._stops:
            return False  # All connections to the broker are closed.
        self._meter.size_bytes = 0
        self._part += 1
        for _ in self._work:
            self._cluster.requests.unfinished.append((self._call, self.proceed))
            return False
        return True

    def _append_all(self, rows: Sequence[Sequence[Row]]) -> Parts[None]:
        """Append all batches and set the response."""
        meter = self._meter
        responses: list[list[PartitionProduceResponse]] = []
        for of_topic in rows:
            responses.append(answers := [])
            for row in of_topic:
                if meter.is_full:
                    yield
                answers.append(row if isinstance(row, PartitionProduceResponse) else (yield from self._appended(row)))
        self.response = _response(self._cluster, self._call, self._topics, responses, self._moved)

    def _appended(self, row: Requested) -> Parts[PartitionProduceResponse]:
        """Append the batch of one partition, or return its error. A large batch is checked in parts."""
        cluster, call, partition = self._cluster, self._call, row.partition
        if self._is_deleted(partition):
            return _refused(partition.index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        result = self._results.get((partition.topic.name, partition.index))
        if isinstance(result, ErrorCode):
            return _refused_transaction(call, partition, result, self._moved)
        started = self._part
        found = yield from _prepared(cluster, call, row, self._moved, cluster.now_ms, self._meter)
        if isinstance(found, PartitionProduceResponse):
            return found
        if self._part != started:  # Other requests and commands may have been handled while the batch was checked.
            if self._is_deleted(partition):
                return _refused(partition.index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            error = _write_error(cluster, call, partition, found.config)
            if error is not ErrorCode.NONE:
                return _refused_by_leader(call, partition, error, self._moved)
        return append(cluster, call, found, cluster.now_ms, result)

    def _is_deleted(self, partition: Partition) -> bool:
        """Return whether a partition was deleted while the request waited."""
        return self._cluster.topics.get(partition.topic.name) is not partition.topic


def _response(
    cluster: "Cluster",
    call: Call,
    requested: Sequence[TopicProduceData],
    responses: Sequence[list[PartitionProduceResponse]],
    moved: list[Partition],
) -> ProduceResponse | None:
    """Return the response; None if the request has none (acks=0)."""
    if call.request.acks == 0:
        call.closes_connection = any(each.error_code for of_topic in responses for each in of_topic)
        return None
    topics = [
        TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=of_topic)
        for topic, of_topic in zip(requested, responses, strict=True)
    ]
    return ProduceResponse(
        responses=topics,
        node_endpoints=[
            NodeEndpoint(node_id=broker.node_id, host=host, port=port, rack=broker.rack)
            for broker in leaders_of(cluster, moved)
            for host, port in (call.endpoint_of(broker),)
        ],
    )


def _requested(cluster: "Cluster", call: Call, topic: TopicProduceData, data: PartitionProduceData) -> Row:
    """Look up the partition, and split its records, which are one batch except in old versions."""
    if call.api_version < _FIRST_VERSION_OF_BATCHES and call.broker.release >= KIP_896:
        return _refused(data.index, ErrorCode.UNSUPPORTED_VERSION)
    partition = find_partition(
        cluster, topic.name, topic.topic_id, data.index, by_id=call.api_version >= _FIRST_VERSION_OF_IDS
    )
    if isinstance(partition, ErrorCode):
        return _refused(data.index, partition)
    records = data.records or b""
    # Kafka also accepts record batches in older versions of requests.
    is_batch = call.broker.release >= KIP_98 and magic_of(records) == _RECORD_BATCH_MAGIC
    if call.api_version < _FIRST_VERSION_OF_BATCHES and not is_batch:
        return Requested(partition, records, None)
    try:
        batch = only_batch(records)
        if call.api_version < _FIRST_VERSION_OF_ZSTD and batch.compression is Compression.ZSTD:
            return _refused(data.index, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
    except InvalidBatchError as error:
        return _refused_batch(call, partition, error)
    return Requested(partition, records, batch)


def prepare(
    cluster: "Cluster", call: Call, topic: TopicProduceData, data: PartitionProduceData, now_ms: float
) -> Prepared | PartitionProduceResponse:
    """Check the batch of one partition, without appending it; return the batch, or the response with an error."""
    row = _requested(cluster, call, topic, data)
    if isinstance(row, PartitionProduceResponse):
        return row
    return at_once(_prepared(cluster, call, row, [], now_ms, ReadMeter()))


def _prepared(
    cluster: "Cluster", call: Call, requested: Requested, moved: list[Partition], now_ms: float, meter: ReadMeter
) -> Parts[Prepared | PartitionProduceResponse]:
    partition = requested.partition
    config = log_config(cluster, call.broker, partition.topic)
    try:
        batch = yield from _checked(cluster, call, requested, config, now_ms, meter)
    except InvalidBatchError as error:
        return _refused_batch(call, partition, error)
    if isinstance(batch, ErrorCode):
        return _refused_by_leader(call, partition, batch, moved)
    return Prepared(partition, config, batch)


def append(
    cluster: "Cluster", call: Call, prepared: Prepared, now_ms: float, verification: PendingVerification | None = None
) -> PartitionProduceResponse:
    """Append a batch that was checked, and answer the Fetch requests that wait for it.

    Args:
        cluster: The cluster.
        call: The request.
        prepared: The batch.
        now_ms: The brokers' time in milliseconds.
        verification: Its verification, if the batch is transactional and was verified.
    """
    response = _append(cluster, call, *prepared, now_ms, verification)
    response.log_start_offset = prepared.partition.log.log_start_offset
    return response


def _append(
    cluster: "Cluster",
    call: Call,
    partition: Partition,
    config: LogConfig,
    batch: RecordBatch,
    now_ms: float,
    verification: PendingVerification | None,
) -> PartitionProduceResponse:
    """Append a batch, unless its producer's sequence numbers show that it is a duplicate or out of order."""
    log, index = partition.log, partition.index
    cluster.expire_producers(log, call.broker)
    try:
        repeated = log.producers.check(batch, call.broker.release, log.log_start_offset, verification)
    except RefusedBatchError as error:
        # Kafka explains only refused records and verifications.
        return _refused(index, error.error_code)
    if repeated is not None:
        # For a duplicate, Kafka returns the timestamp of the stored batch as its log append time.
        return PartitionProduceResponse(
            index=index,
            error_code=ErrorCode.NONE,
            base_offset=repeated.base_offset,
            log_append_time_ms=repeated.max_timestamp_ms,
        )
    log.retain(config.keep_bytes)
    try:
        base_offset = log.append(batch.data, partition.leader_epoch)
    except DiskFullError as error:
        return _refused(index, ErrorCode.KAFKA_STORAGE_ERROR, str(error))
    cluster.log_manager.appended(config, now_ms)
    cluster.purgatory.wake(partition, batch.size_bytes)
    response = PartitionProduceResponse(index=index, error_code=ErrorCode.NONE, base_offset=base_offset)
    if config.uses_append_time:
        response.log_append_time_ms = batch.max_timestamp_ms
    return response


def _refused(index: int, error: ErrorCode, message: str | None = None) -> PartitionProduceResponse:
    return PartitionProduceResponse(index=index, error_code=error, base_offset=-1, error_message=message)


def _refused_batch(call: Call, partition: Partition, error: InvalidBatchError) -> PartitionProduceResponse:
    is_older = error.error_code is ErrorCode.INVALID_RECORD and call.broker.release < KIP_467
    code = ErrorCode.CORRUPT_MESSAGE if is_older else error.error_code
    response = _refused(partition.index, code)
    if code is not ErrorCode.CORRUPT_MESSAGE:  # Kafka does not ask the log about corrupt batches.
        response.log_start_offset = partition.log.log_start_offset
    if isinstance(error, RefusedRecordsError):
        response.error_message = str(error)
        response.record_errors = [
            BatchIndexAndErrorMessage(batch_index=index, batch_index_error_message=fault)
            for index, fault in error.faults
        ]
    return response


def _refused_by_leader(
    call: Call, partition: Partition, error: ErrorCode, moved: list[Partition]
) -> PartitionProduceResponse:
    """Return the response with an error, and the leader if the partition has another one (KIP-951)."""
    response = _refused(partition.index, error)
    if error is ErrorCode.NOT_LEADER_OR_FOLLOWER and call.api_version >= 10:
        response.current_leader = LeaderIdAndEpoch(leader_id=partition.leader_id, leader_epoch=partition.leader_epoch)
        moved.append(partition)
    return response


def _refused_transaction(
    call: Call, partition: Partition, error: ErrorCode, moved: list[Partition]
) -> PartitionProduceResponse:
    response = _refused_by_leader(call, partition, error, moved)
    if error in (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.INVALID_TXN_STATE):
        response.error_message = (
            "the transaction coordinator has not confirmed that the partition is in the transaction"
        )
    return response


def _checked(
    cluster: "Cluster", call: Call, requested: Requested, config: LogConfig, now_ms: float, meter: ReadMeter
) -> Parts[RecordBatch | ErrorCode]:
    """Return the batch to append, or an error. What is read is added to the meter.

    Raises:
        InvalidBatchError: The batch is invalid, or the bytes are not a valid message set.
    """
    if call.request.acks not in (-1, 0, 1):
        return ErrorCode.INVALID_REQUIRED_ACKS
    partition, records, received = requested
    if received is None:
        batch = _checked_messages(cluster, call, partition, config, records, meter)
    else:
        error = _write_error(cluster, call, partition, config)
        if error is not ErrorCode.NONE:
            return error
        if received.size_bytes > config.max_message_bytes:
            return ErrorCode.MESSAGE_TOO_LARGE
        batch = yield from validate_in_parts(received, meter, config.max_decompressed_bytes)
    if isinstance(batch, ErrorCode):
        return batch
    rules = _rules_for(batch, config, int(now_ms))
    if rules is not None:
        yield from rules.check(batch, meter)
    batch = _stamped(batch, config, int(now_ms))
    if config.compression is not None and batch.compression is not config.compression:
        batch = yield from recompressed(batch, config.compression, meter)
        if batch.size_bytes > config.max_message_bytes:
            return ErrorCode.MESSAGE_TOO_LARGE
    return ErrorCode.RECORD_LIST_TOO_LARGE if batch.size_bytes > config.segment_bytes else batch


def _checked_messages(
    cluster: "Cluster", call: Call, partition: Partition, config: LogConfig, records: bytes, meter: ReadMeter
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
    meter.size_bytes += DEFAULT_DECOMPRESSED_LIMIT_BYTES
    batch = RecordBatch(to_record_batch(messages))
    meter.size_bytes += batch.size_bytes - DEFAULT_DECOMPRESSED_LIMIT_BYTES
    return ErrorCode.MESSAGE_TOO_LARGE if batch.size_bytes > config.max_message_bytes else batch


def _rules_for(batch: RecordBatch, config: LogConfig, now_ms: int) -> RecordRules | None:
    """Return the rules for the records of a valid batch; None if its header tells that all are allowed."""
    if config.uses_append_time:
        return RecordRules(needs_key=True) if config.is_compacted else None
    before_ms, after_ms = config.timestamp_before_max_ms, config.timestamp_after_max_ms
    if not config.is_compacted and before_ms >= FOREVER_MS and batch.max_timestamp_ms <= now_ms + after_ms:
        return None
    return RecordRules(
        needs_key=config.is_compacted,
        first_ms=now_ms - before_ms if before_ms < FOREVER_MS else None,
        last_ms=now_ms + after_ms if after_ms < FOREVER_MS else None,
    )


def _stamped(batch: RecordBatch, config: LogConfig, now_ms: int) -> RecordBatch:
    """Set the timestamps that the broker sets in a valid batch (LogValidator).

    Raises:
        RefusedTimestampsError: The producer has set them.
    """
    is_create_time = batch.timestamp_type is TimestampType.CREATE_TIME
    if not config.uses_append_time:
        return batch if is_create_time else with_timestamps(batch, TimestampType.CREATE_TIME, batch.max_timestamp_ms)
    if not is_create_time:
        fault = "timestamp type LogAppendTime, expected CreateTime from a producer"
        faults = [(index, fault) for index in range(batch.record_count)]
        raise RefusedTimestampsError(f"{batch.label}: {fault}", faults)
    return with_timestamps(batch, TimestampType.LOG_APPEND_TIME, now_ms)


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
