"""Records of transaction coordinators in `__transaction_state`: bytes, all versions, malformed records."""

import pytest
from hypothesis import given, settings, strategies as st
from msgspec.structs import replace

from fakebroker.cluster.logs.coordinator_records import (
    append_records,
    parse_transaction_record,
    read_transaction_records,
    record_key,
    record_value,
)
from fakebroker.cluster.logs.partition_log import PartitionLog
from fakebroker.cluster.topics import TRANSACTIONS_TOPIC
from fakebroker.coordinator.partitions import partition_for
from fakebroker.coordinator.transaction.transaction import (
    TransactionRecord,
    TransactionState,
    TransactionValue,
    transaction_record,
)
from fakebroker.errors import ProtocolError
from fakebroker.protocol.messages.find_coordinator import FindCoordinatorRequest
from fakebroker.protocol.messages.init_producer_id import InitProducerIdRequest
from fakebroker.protocol.messages.transaction_log import TransactionLogKey, TransactionLogValue
from tests.support.annotated_hex import annotated_hex
from tests.support.cluster.cluster_harness import ClusterHarness
from tests.support.kafka_python_codec import decode_record
from tests.support.soak import examples, soak

VALUE = TransactionValue(
    producer_id=4000,
    epoch=7,
    timeout_ms=60_000,
    state=TransactionState.PREPARE_COMMIT,
    partitions=(("orders", 0), ("orders", 2), ("bills", 1)),
    last_update_ms=1_700_000_000_001,
    start_ms=1_700_000_000_000,
    version=2,
)
EMPTY = TransactionValue(
    producer_id=4000, epoch=0, timeout_ms=60_000, state=TransactionState.EMPTY, last_update_ms=1_700_000_000_000
)
HEAD = "00 00 00 00 00 00 0f a0  00 07  00 00 ea 60  02"
TIMES = "00 00 01 8b cf e5 68 01  00 00 01 8b cf e5 68 00"

INT32, INT64 = st.integers(0, 2**31 - 1), st.integers(-(2**63), 2**63 - 1)
PARTITIONS = st.lists(st.tuples(st.text(max_size=4), INT32), unique=True, max_size=4)
VALUES = st.builds(
    TransactionValue,
    producer_id=INT64,
    epoch=st.integers(-1, 2**15 - 1),
    timeout_ms=INT32,
    state=st.sampled_from(TransactionState),
    partitions=PARTITIONS.map(lambda found: tuple(sorted(found))),
    last_update_ms=INT64,
    start_ms=INT64,
    version=st.integers(0, 2),
)


def key_of(transactional_id: str) -> bytes:
    return record_key(transaction_record(transactional_id, None))


def value_of(value: TransactionValue | None, level: int) -> bytes | None:
    return record_value(transaction_record("a", value), transaction_version=level)


def read(record: TransactionRecord | None) -> tuple[str, TransactionValue | None]:
    assert record is not None
    return record.key.transactional_id, None if record.value is None else TransactionValue.of(record.value)


def test_a_key_is_the_id_after_its_version() -> None:
    assert key_of("grp") == annotated_hex("00 00  00 03 67 72 70")


def test_values_without_tagged_fields() -> None:
    partitions = "00 00 00 02  00 06 6f 72 64 65 72 73  00 00 00 02  00 00 00 00  00 00 00 02"
    bills = "00 05 62 69 6c 6c 73  00 00 00 01  00 00 00 01"
    assert value_of(VALUE, 0) == annotated_hex(f"00 00  {HEAD}  {partitions}  {bills}  {TIMES}")


def test_values_with_tagged_fields() -> None:
    partitions = "03  07 6f 72 64 65 72 73  03  00 00 00 00  00 00 00 02  00"
    bills = "06 62 69 6c 6c 73  02  00 00 00 01  00"
    version = "01  02 02 00 02  # tag 2, 2 bytes: the transaction version of the client"
    for level in (1, 2):
        assert value_of(VALUE, level) == annotated_hex(f"00 01  {HEAD}  {partitions}  {bills}  {TIMES}  {version}")


def test_the_partitions_of_an_id_without_transaction_are_null() -> None:
    times = "00 00 01 8b cf e5 68 00  ff ff ff ff ff ff ff ff"
    expected = f"00 00  00 00 00 00 00 00 0f a0  00 00  00 00 ea 60  00  ff ff ff ff  {times}"
    assert value_of(EMPTY, 0) == annotated_hex(expected)
    assert value_of(None, 2) is None


def test_producer_ids_that_later_releases_write_are_read() -> None:
    tags = "03  00 08 00 00 00 00 00 00 00 05  01 08 00 00 00 00 00 00 00 06  02 02 00 02"
    data = annotated_hex(f"00 01  {HEAD}  01  {TIMES}  {tags}")
    expected = replace(VALUE, partitions=(), previous_producer_id=5, next_producer_id=6, version=2)
    assert read(parse_transaction_record(key_of("a"), data)) == ("a", expected)


@given(st.lists(st.tuples(st.text(max_size=4), VALUES | st.none()), min_size=1, max_size=5), st.integers(0, 2))
def test_records_are_read_as_they_were_written(pairs: list[tuple[str, TransactionValue | None]], level: int) -> None:
    log = PartitionLog()
    append_records(log, [transaction_record(*pair) for pair in pairs], 0, 1_000.0, transaction_version=level)

    def stored(value: TransactionValue | None) -> TransactionValue | None:
        if value is None:
            return None
        partitions = () if value.state is TransactionState.EMPTY else value.partitions
        return replace(value, partitions=partitions, version=value.version if level else 0)

    assert [*map(read, read_transaction_records(log, 0))] == [(name, stored(value)) for name, value in pairs]


KAFKA_STATES = (
    *("Empty", "Ongoing", "PrepareCommit", "PrepareAbort"),
    *("CompleteCommit", "CompleteAbort", "Dead", "PrepareEpochFence"),
)
"""Kafka's states, by their ids in the log."""


@soak
@settings(max_examples=examples(30, soak=1000))
@given(st.text(max_size=4), VALUES, st.integers(0, 2))
def test_kafka_python_reads_the_records(name: str, value: TransactionValue, level: int) -> None:
    assert decode_record(TransactionLogKey, key_of(name)).transactional_id == name
    data = value_of(value, level) or b""
    assert int.from_bytes(data[:2], "big") == min(level, 1)
    theirs = decode_record(TransactionLogValue, data)
    assert (theirs.producer_id, theirs.producer_epoch) == (value.producer_id, value.epoch)
    assert KAFKA_STATES[theirs.transaction_status] == value.state.value
    assert theirs.transaction_timeout_ms == value.timeout_ms
    assert theirs.transaction_last_update_timestamp_ms == value.last_update_ms
    assert theirs.transaction_start_timestamp_ms == value.start_ms
    if value.state is TransactionState.EMPTY:
        assert theirs.transaction_partitions is None
    else:
        partitions = [(each.topic, index) for each in theirs.transaction_partitions for index in each.partition_ids]
        assert tuple(partitions) == value.partitions
    if level:
        assert theirs.client_transaction_version == value.version
        assert (theirs.previous_producer_id, theirs.next_producer_id) == (-1, -1)  # written by 4.3 and later


def test_malformed_records(subtests: pytest.Subtests) -> None:
    value = value_of(VALUE, 0) or b""
    for key, data, error in (
        (None, value, "key null, expected a version and its fields"),
        (b"\0", value, "key of 1 bytes, expected a version"),
        (key_of("a"), b"", "value of 0 bytes, expected a version"),
        (key_of("a"), value[:16] + b"\x08" + value[17:], "transaction_status 8, expected 0 to 7"),
        (key_of("a"), value[:-1], "transaction_start_timestamp_ms"),
    ):
        with subtests.test(error), pytest.raises(ProtocolError, match=error):
            parse_transaction_record(key, data)
    assert parse_transaction_record(b"\0\1" + key_of("a")[2:], value) is None


def test_ids_belong_to_the_partitions_of_kafka() -> None:
    assert [partition_for(each, 50) for each in ("my-txn", "txn-1", "t-\U0001f680")] == [45, 10, 28]
    assert [partition_for(each, 3) for each in ("my-txn", "txn-1", "t-\U0001f680")] == [1, 2, 2]


def test_superseded_records_are_compacted() -> None:
    harness = ClusterHarness(config={"transaction.state.log.num.partitions": 1})
    harness.ask(FindCoordinatorRequest(key_type=1, key="t"), 1)
    for _ in range(2_000):
        answer = harness.ask(InitProducerIdRequest(transactional_id="t", transaction_timeout_ms=60_000), 4)
        assert answer.error_code == 0
    partition = harness.partition(topic=TRANSACTIONS_TOPIC)
    assert len([*partition.log.batches_from(0)]) < 1_500
    assert read_transaction_records(partition.log, 0)[-1].key.transactional_id == "t"
