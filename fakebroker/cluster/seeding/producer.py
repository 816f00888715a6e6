"""Records that commands produce: the choice of partitions, and batches appended as the Produce API appends them."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Annotated, NamedTuple

import msgspec
from msgspec import Meta

from fakebroker.cluster.call import Call, Peer
from fakebroker.cluster.cluster import Cluster
from fakebroker.cluster.configs.log_config import log_config
from fakebroker.cluster.handlers import produce as produce_handler
from fakebroker.cluster.topics import Partition
from fakebroker.errors import ConfigError, ErrorCode
from fakebroker.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    TopicProduceData,
)
from fakebroker.protocol.records import Header, Record, encode_batch
from fakebroker.protocol.registry import API_BY_NAME
from fakebroker.topic_partition import MAX_INT64
from fakebroker.validation import Data, data_bytes

_VERSION = 12  # The last version in which requests name topics, not their ids.
_ALL_REPLICAS = -1
_RECORD_OVERHEAD_BYTES, _HEADER_OVERHEAD_BYTES, _BATCH_OVERHEAD_BYTES = 36, 10, 61
"""The largest size of a record, of one of its headers, and of a batch, each without the bytes of the user."""


Headers = Mapping[str, Data] | Sequence[tuple[str, Data]]
"""Headers of records: data by name, or pairs."""

Timestamp = Annotated[int, Meta(ge=0, le=MAX_INT64)]
"""The timestamp of a record, in milliseconds since the Unix epoch."""


class RecordSeed(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A record to produce.

    Attributes:
        value: The value; None is a tombstone.
        key: The key.
        partition: Number of the partition. None: by the key, or in turn without a key; see `TopicHandle.produce`.
        headers: The headers by name; or a list of pairs, in which a name may occur twice.
        timestamp: The timestamp in milliseconds since the Unix epoch. None: the time of the brokers' clock.
    """

    value: Data = None
    key: Data = None
    partition: int | None = None
    headers: Headers = msgspec.field(default_factory=dict)
    timestamp: Timestamp | None = None


class ProducedRecord(NamedTuple):
    """The partition and the offset of a record that was produced."""

    partition: int
    offset: int


class PreparedBatch(NamedTuple):
    """A batch that was checked and can be appended.

    Attributes:
        call: The request that it is part of.
        prepared: The partition and the batch.
    """

    call: Call
    prepared: produce_handler.Prepared


def produce(
    cluster: Cluster, topic_name: str, seeds: Sequence[RecordSeed], now_ms: float, *, field: str
) -> list[ProducedRecord]:
    """Append records to a topic, or none if one of them is not accepted; see `TopicHandle.produce`.

    Args:
        cluster: The cluster.
        topic_name: The topic.
        seeds: The records.
        now_ms: The brokers' time in milliseconds.
        field: The name of the argument with the records, for errors.

    Raises:
        ConfigError: The topic or partition does not exist or has no leader, or its leader does not accept the records.
    """
    topic = cluster.existing_topic(topic_name)
    available = [each.index for each in topic.partitions if cluster.leader_of(each)]
    chosen, records, taken_in_turn = by_partition(
        seeds, topic_name, len(topic.partitions), available, topic.next_partition, int(now_ms), field=field
    )
    prepared = [
        batch for index, each in records.items() for batch in prepare(cluster, topic.partitions[index], each, now_ms)
    ]
    topic.next_partition += taken_in_turn
    offsets = {index: iter(each) for index, each in append(cluster, prepared, now_ms).items()}
    return [ProducedRecord(index, next(offsets[index])) for index in chosen]


def seeds_of(
    values: Sequence[Data],
    records: Sequence[RecordSeed],
    key: Data,
    partition: int | None,
    headers: Headers | None,
    timestamp: Timestamp | None,
) -> Sequence[RecordSeed]:
    """Return the records that the arguments of `TopicHandle.produce` describe.

    Raises:
        ConfigError: `records` is given beside `values` or an option of all records.
    """
    common = {"values": values, "key": key, "partition": partition, "headers": headers, "timestamp": timestamp}
    if records and (given := [name for name, value in common.items() if value not in (None, ())]):
        raise ConfigError.of(given[0], common[given[0]], "none with records: each record has its own")
    return records or [
        RecordSeed(value=each, key=key, partition=partition, headers=headers or {}, timestamp=timestamp)
        for each in values
    ]


def by_partition(
    seeds: Sequence[RecordSeed],
    topic: str,
    total: int,
    available: Sequence[int],
    turn: int,
    now_ms: int,
    *,
    field: str,
) -> tuple[list[int], dict[int, list[Record]], int]:
    """Encode records, and choose their partitions.

    Args:
        seeds: The records.
        topic: The topic, for errors.
        total: The number of its partitions.
        available: The partitions that have a leader.
        turn: Chooses the partition of the first record that has no key and no partition; the next ones follow in turn.
        now_ms: The timestamp of records without one.
        field: The name of the argument with the records, for errors.

    Returns:
        The partition of each record, the records by partition, and how many took a turn.

    Raises:
        ConfigError: A partition does not exist, or text cannot be encoded.
    """
    taken_in_turn = 0
    chosen: list[int] = []
    records: dict[int, list[Record]] = {}
    in_turn = available or range(total)
    for number, seed in enumerate(seeds):
        name = f"{field}[{number}]"
        key, value = _encoded("key" if field == "values" else f"{name}.key", seed.key), _encoded(name, seed.value)
        pairs = seed.headers.items() if isinstance(seed.headers, Mapping) else seed.headers
        for header, _ in pairs:
            _encoded("headers", header)
        headers: tuple[Header, ...] = tuple((header, _encoded(f"headers.{header}", data)) for header, data in pairs)
        if seed.partition is not None:
            index = seed.partition
            if not 0 <= index < total:
                expected = f"0 to {total - 1}" if total > 1 else "0"
                raise ConfigError.of("partition", index, expected, where=f"topic {topic!r}")
        elif key is not None:
            index = partition_for_key(key, total)
        else:
            index = in_turn[(turn + taken_in_turn) % len(in_turn)]
            taken_in_turn += 1
        chosen.append(index)
        timestamp_ms = now_ms if seed.timestamp is None else seed.timestamp
        records.setdefault(index, []).append(Record(0, timestamp_ms, key, value, headers))
    return chosen, records, taken_in_turn


def prepare(cluster: Cluster, partition: Partition, records: Sequence[Record], now_ms: float) -> list[PreparedBatch]:
    """Encode records in as many batches as they need, and check that the leader of their partition accepts them.

    Args:
        cluster: The cluster.
        partition: The partition.
        records: The records. Their offsets are ignored.
        now_ms: The brokers' time in milliseconds.

    Raises:
        ConfigError: The partition has no leader, or its leader does not accept the records.
    """
    leader = cluster.leader_of(partition)
    name = f"{partition.topic.name}-{partition.index}"
    if leader is None:
        raise ConfigError.of("partition", name, "a partition that has a leader now")
    config = log_config(cluster, leader, partition.topic)
    found = []
    for batch in in_batches(records, min(config.max_message_bytes, config.segment_bytes)):
        data = PartitionProduceData(index=partition.index, records=batch)
        topic = TopicProduceData(name=partition.topic.name, partition_data=[data])
        request = ProduceRequest(transactional_id=None, acks=_ALL_REPLICAS, timeout_ms=0, topic_data=[topic])
        peer = Peer(leader, "127.0.0.1", 0)
        call = Call(peer, API_BY_NAME["Produce"], _VERSION, 0, "", request, len(batch))
        prepared = produce_handler.prepare(cluster, call, topic, data, now_ms)
        if isinstance(prepared, PartitionProduceResponse):
            error = ErrorCode(prepared.error_code).name
            reason = f"{error}: {prepared.error_message}" if prepared.error_message else error
            expected = f"records that the leader of {name} accepts, not {reason}"
            raise ConfigError(f"values: expected {expected}", field="values", expected=expected)
        found.append(PreparedBatch(call, prepared))
    return found


def append(cluster: Cluster, batches: Sequence[PreparedBatch], now_ms: float) -> dict[int, list[int]]:
    """Append batches of one topic, and answer the Fetch requests that wait for them.

    Returns:
        The offsets of the records, by partition.

    Raises:
        DiskFullError: There is no space to store them. Nothing was appended.
    """
    if cluster.storage is not None:
        cluster.storage.require_space(log_bytes=sum(each.prepared.batch.size_bytes for each in batches))
    offsets: dict[int, list[int]] = {}
    for call, prepared in batches:
        response = produce_handler.append(cluster, call, prepared, now_ms)
        first = response.base_offset
        offsets.setdefault(response.index, []).extend(range(first, first + prepared.batch.record_count))
    return offsets


def _encoded(field: str, data: Data) -> bytes | None:
    try:
        return data_bytes(data)
    except UnicodeEncodeError:
        raise ConfigError.of(field, data, "text that can be encoded as UTF-8, or bytes") from None


def in_batches(records: Iterable[Record], limit_bytes: int) -> Iterator[bytes]:
    """Encode records in batches of at most `limit_bytes`; a record that is larger has a batch of its own."""
    batch: list[Record] = []
    size_bytes = _BATCH_OVERHEAD_BYTES
    for record in records:
        record_bytes = _largest_bytes(record)
        if batch and size_bytes + record_bytes > limit_bytes:
            yield encode_batch(batch)
            batch, size_bytes = [], _BATCH_OVERHEAD_BYTES
        batch.append(Record(len(batch), record.timestamp_ms, record.key, record.value, record.headers))
        size_bytes += record_bytes
    if batch:
        yield encode_batch(batch)


def _largest_bytes(record: Record) -> int:
    """Return an upper bound of the encoded size of a record."""
    headers_bytes = sum(_HEADER_OVERHEAD_BYTES + len(name) * 4 + len(data or b"") for name, data in record.headers)
    return _RECORD_OVERHEAD_BYTES + len(record.key or b"") + len(record.value or b"") + headers_bytes


def partition_for_key(key: bytes, partitions: int) -> int:
    """Return the partition of a key, as Kafka's default partitioner (BuiltInPartitioner.partitionForKey)."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions


def murmur2(data: bytes) -> int:
    """Return the MurmurHash2 of bytes as an unsigned 32-bit number, with Kafka's seed (Utils.murmur2)."""
    multiplier, mask = 0x5BD1E995, 0xFFFFFFFF
    found = 0x9747B28C ^ len(data)
    whole = len(data) & ~3
    for start in range(0, whole, 4):
        part = int.from_bytes(data[start : start + 4], "little") * multiplier & mask
        part = (part ^ part >> 24) * multiplier & mask
        found = found * multiplier & mask ^ part
    if whole < len(data):
        found = (found ^ int.from_bytes(data[whole:], "little")) * multiplier & mask
    found = (found ^ found >> 13) * multiplier & mask
    return found ^ found >> 15
