"""Appends and reads the records of coordinators, in partitions of `__consumer_offsets` and `__transaction_state`.

Each key and value begins with its version, an int16; the version of a key is the type of the record.
"""

import struct
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from fakebroker.cluster.logs.partition_log import PartitionLog
from fakebroker.errors import ProtocolError
from fakebroker.protocol import records
from fakebroker.protocol.codec import encode_into
from fakebroker.protocol.schema import Message

T = TypeVar("T")

VERSION = struct.Struct(">h")
"""The version before a key or a value."""


def append_pairs(
    log: PartitionLog,
    pairs: Sequence[tuple[bytes, bytes | None]],
    leader_epoch: int,
    now_ms: float,
    producer: tuple[int, int] | None = None,
) -> int:
    """Append pairs of encoded keys and values, at least one, as one batch.

    Args:
        log: The log.
        pairs: The keys and values.
        leader_epoch: The leader epoch of the partition.
        now_ms: The timestamp of the records, truncated to whole milliseconds.
        producer: The id and the epoch of the producer if the batch is part of its transaction.

    Returns:
        The offset of the first record.

    Raises:
        DiskFullError: The storage of the log has no space. Nothing has changed.
    """
    base_offset = log.log_end_offset
    batch = records.RecordBatch(records.encode_pairs(pairs, int(now_ms), producer, base_offset, leader_epoch))
    log.append_batch(batch, leader_epoch, of_producer=producer is not None)
    return base_offset


def read_all(
    log: PartitionLog, topic: str, partition: int, parse: Callable[[records.RecordBatch, records.Record], T | None]
) -> Iterator[T]:
    """Yield all records of a partition, in order.

    Args:
        log: The log.
        topic: The internal topic, for error messages.
        partition: The index of the partition, for error messages.
        parse: Decodes a record of a batch; returns None for records to skip.

    Raises:
        ProtocolError: A record is malformed; the message contains the partition and the offset.
    """
    for batch in log.batches_from(log.log_start_offset):
        offset = batch.base_offset
        try:
            for record in records.iterate_records(batch):
                offset = record.offset
                parsed = parse(batch, record)
                if parsed is not None:
                    yield parsed
        except ProtocolError as error:
            raise ProtocolError(f"{topic}-{partition}, offset {offset}: {error}") from error


def prefixed(message: Message, version: int) -> bytes:
    """Return an encoded key or value, prefixed by its version."""
    out = bytearray(VERSION.pack(version))
    encode_into(message, version, out)
    return bytes(out)


def version_of(data: bytes | None, what: str) -> int:
    """Return the version of a key or a value.

    Args:
        data: The key or value.
        what: "key" or "value", for error messages.

    Raises:
        ProtocolError: It is null or too short.
    """
    if data is None:
        raise ProtocolError(f"{what} null, expected a version and its fields")
    if len(data) < VERSION.size:
        raise ProtocolError(f"{what} of {len(data)} bytes, expected a version in the first {VERSION.size}")
    version: int = VERSION.unpack_from(data)[0]
    return version
