"""Encodes records of transaction coordinators, appends them to partitions of `__transaction_state`, and reads them.

Follows Kafka's `TransactionLog`. Values have version 1, which has tagged fields, if the finalized level of the feature
`transaction.version` is at least 1, else version 0. Up to 4.2 the previous and the next producer id are not written.
"""

from collections.abc import Sequence
from contextlib import suppress

from fakebroker.cluster.logs.coordinator_records import VERSION, append_pairs, prefixed, read_all, version_of
from fakebroker.cluster.logs.partition_log import PartitionLog
from fakebroker.cluster.topics import TRANSACTIONS_TOPIC
from fakebroker.coordinator.transaction.transaction import TransactionRecord, TransactionState, TransactionValue
from fakebroker.errors import ProtocolError
from fakebroker.protocol.codec import decode
from fakebroker.protocol.messages.transaction_log import PartitionsSchema, TransactionLogKey, TransactionLogValue
from fakebroker.topic_partition import by_topic

_KEY_VERSION = 0
_STATES = tuple(TransactionState)
"""The states in the order of their numbers in the log."""

_NUMBERS = {state: number for number, state in enumerate(_STATES)}


def append_records(
    log: PartitionLog, written: Sequence[TransactionRecord], leader_epoch: int, now_ms: float, version: int
) -> int:
    """Append records as one batch.

    Args:
        log: The log of a partition of `__transaction_state`.
        written: The records, at least one.
        leader_epoch: The leader epoch of the partition.
        now_ms: The timestamp of the records, truncated to whole milliseconds.
        version: The finalized level of the feature `transaction.version`.

    Returns:
        The offset of the first record.

    Raises:
        ProtocolError: A value does not fit its field, such as a string of more than 32767 bytes.
    """
    pairs = [(record_key(record.transactional_id), record_value(record.value, version)) for record in written]
    return append_pairs(log, pairs, leader_epoch, now_ms)


def read_records(log: PartitionLog, partition: int) -> list[TransactionRecord]:
    """Read the records of a partition of `__transaction_state`, in order. Unknown key versions are skipped.

    As in Kafka, reading ends at a malformed record, such as a marker that an admin client has written to the partition.
    """
    found: list[TransactionRecord] = []
    with suppress(ProtocolError):
        for record in read_all(log, TRANSACTIONS_TOPIC, partition, lambda _, each: parse_record(each.key, each.value)):
            found.append(record)  # noqa: PERF402  # list() would lose the records before an error
    return found


def record_key(transactional_id: str) -> bytes:
    """Return the encoded key of a record, prefixed by its version."""
    return prefixed(TransactionLogKey(transactional_id=transactional_id), _KEY_VERSION)


def record_value(value: TransactionValue | None, version: int) -> bytes | None:
    """Return the encoded value of a record, prefixed by its version; None for a tombstone.

    Args:
        value: The value.
        version: The finalized level of the feature `transaction.version`.
    """
    if value is None:
        return None
    partitions = None
    if value.state is not TransactionState.EMPTY:
        topics = by_topic(value.partitions).items()
        partitions = [PartitionsSchema(topic=topic, partition_ids=indexes) for topic, indexes in topics]
    written = TransactionLogValue(
        producer_id=value.producer_id,
        producer_epoch=value.epoch,
        transaction_timeout_ms=value.timeout_ms,
        transaction_status=_NUMBERS[value.state],
        transaction_partitions=partitions,
        transaction_last_update_timestamp_ms=value.last_update_ms,
        transaction_start_timestamp_ms=value.start_ms,
        client_transaction_version=value.version,
    )
    return prefixed(written, min(version, 1))


def parse_record(key: bytes | None, data: bytes | None) -> TransactionRecord | None:
    """Decode a record in any version of its value.

    Returns:
        The record; None if the key version belongs to another type of record.

    Raises:
        ProtocolError: The key or the value is malformed.
    """
    if version_of(key, "key") != _KEY_VERSION:
        return None
    transactional_id = decode(TransactionLogKey, key or b"", _KEY_VERSION, VERSION.size).transactional_id
    if data is None:
        return TransactionRecord(transactional_id, None)
    value = decode(TransactionLogValue, data, version_of(data, "value"), VERSION.size)
    if not 0 <= value.transaction_status < len(_STATES):
        raise ProtocolError(f"transaction_status {value.transaction_status}, expected 0 to {len(_STATES) - 1}")
    stored = TransactionValue(
        producer_id=value.producer_id,
        previous_producer_id=value.previous_producer_id,
        next_producer_id=value.next_producer_id,
        epoch=value.producer_epoch,
        timeout_ms=value.transaction_timeout_ms,
        state=_STATES[value.transaction_status],
        partitions=tuple(
            (each.topic, index) for each in value.transaction_partitions or () for index in each.partition_ids
        ),
        last_update_ms=value.transaction_last_update_timestamp_ms,
        start_ms=value.transaction_start_timestamp_ms,
        version=value.client_transaction_version,
    )
    return TransactionRecord(transactional_id, stored)
