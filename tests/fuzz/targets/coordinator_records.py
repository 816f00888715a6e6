"""Records of __consumer_offsets and __transaction_state; subscriptions and assignments of members."""

from collections.abc import Iterator

from fakebroker.cluster.logs.coordinator_records import (
    parse_record,
    parse_transaction_record,
    record_key,
    record_value,
)
from fakebroker.cluster.topics import OFFSETS_TOPIC, TRANSACTIONS_TOPIC, Topic
from fakebroker.coordinator.transaction.transaction import TransactionValue, transaction_record
from fakebroker.errors import ProtocolError
from fakebroker.protocol.consumer_protocol import (
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from fakebroker.protocol.records import decode_records
from tests.fuzz.targets.transcripts import recorded_clusters

_KINDS = 4


def run(data: bytes) -> None:
    """Decode a record, a subscription or an assignment.

    Args:
        data: A byte that selects what follows. Keys of records follow their length, which is a byte.
    """
    kind, content = data[0] % _KINDS if data else 0, data[1:]
    try:
        if kind == 0:
            _read_group_record(*_split(content))
        elif kind == 1:
            _read_transaction_record(*_split(content))
        elif kind == 2:
            _read_subscription(content)
        else:
            partitions = decode_assignment(content)
            assert sorted(decode_assignment(encode_assignment(partitions))) == sorted(partitions)
    except ProtocolError:
        return


def _split(content: bytes) -> tuple[bytes, bytes | None]:
    """Return key and value. No bytes after the key are null."""
    end = 1 + content[0] if content else 1
    return content[1:end], content[end:] or None


def _read_group_record(key: bytes, value: bytes | None) -> None:
    record = parse_record(key, value)
    if record is None:
        return
    try:
        encoded = record_key(record), record_value(record)
    except ProtocolError:
        return  # A value of an older version may not fit.
    again = parse_record(*encoded)
    assert again is not None
    assert record_key(again) == encoded[0]
    assert record_value(again) == encoded[1]


def _read_transaction_record(key: bytes, value: bytes | None) -> None:
    record = parse_transaction_record(key, value)
    if record is None:
        return
    stored = None if record.value is None else TransactionValue.of(record.value)
    written = transaction_record(record.key.transactional_id, stored)
    encoded = record_value(written, transaction_version=1)
    again = parse_transaction_record(record_key(written), encoded)
    assert again is not None
    assert record_value(again, transaction_version=1) == encoded


def _read_subscription(content: bytes) -> None:
    for assignor in ("range", "sticky"):
        decoded = decode_subscription(content, assignor)
        encoded = encode_subscription(decoded.topics, decoded.owned_partitions, decoded.generation_id)
        assert sorted(decode_subscription(encoded).topics) == sorted(decoded.topics)


def _stored(topic: Topic | None) -> Iterator[tuple[bytes, bytes]]:
    """Yield key and value of the records of a topic, except markers."""
    for partition in () if topic is None else topic.partitions:
        for batch in partition.log.batches_from(0):
            if not batch.is_control:
                yield from ((each.key or b"", each.value or b"") for each in decode_records(batch))


def seeds() -> Iterator[bytes]:
    """Yield the records that transcripts write, and the bytes of the consumer protocol."""
    seen: set[bytes] = set()
    for cluster in recorded_clusters():
        for kind, topic in enumerate((OFFSETS_TOPIC, TRANSACTIONS_TOPIC)):
            for key, value in _stored(cluster.topics.get(topic)):
                seen.add(bytes([kind, len(key)]) + key + value)
    yield from sorted(seen)
    for version in range(4):
        yield b"\x02" + encode_subscription(["news"], [("news", 0)], 3, version=version)
    yield b"\x02" + encode_subscription(["news"], previous=((("news", 1),), 4))
    yield b"\x03" + encode_assignment([("news", 0), ("sport", 1)])
