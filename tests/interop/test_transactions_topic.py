"""Real consumers read topics with transaction markers, and `__transaction_state`, whose records an oracle decodes."""

from typing import Any

import pytest

from fakebroker import FakeCluster
from fakebroker.coordinator.partitions import partition_for
from fakebroker.protocol.messages.transaction_log import TransactionLogKey, TransactionLogValue
from tests.support.client.wire_producer import WireProducer
from tests.support.kafka_clients.client import KafkaClient, Record, StartConsumer
from tests.support.kafka_clients.helpers import poll_records, poll_until, values, with_each_client
from tests.support.kafka_python_codec import decode_record

pytestmark = [pytest.mark.slow, pytest.mark.fake_cluster(topics={"orders": 1})]

PLACE = ("orders", 0)
EMPTY, ONGOING, PREPARE_COMMIT, PREPARE_ABORT, COMPLETE_COMMIT, COMPLETE_ABORT = range(6)
WEEK_S = 7 * 24 * 3_600
"""When transactional ids expire."""


@with_each_client
def test_markers_are_not_delivered(
    client: KafkaClient, fake_cluster: FakeCluster, start_consumer: StartConsumer
) -> None:
    one, two = WireProducer(fake_cluster, "one"), WireProducer(fake_cluster, "two")
    fake_cluster.topic("orders").produce(["a"])
    one.begin(PLACE, b"b", b"c")
    two.begin(PLACE, b"d")
    one.end(commit=False)
    fake_cluster.topic("orders").produce(["e"])
    two.end(commit=True)
    one.begin(PLACE, b"f")
    fake_cluster.topic("orders").produce(["g"])

    everything = start_consumer(client, isolation_level="read_uncommitted")
    everything.assign(PLACE)
    assert values(poll_records(fake_cluster, 7, everything)) == [b"a", b"b", b"c", b"d", b"e", b"f", b"g"]
    committed = start_consumer(client, isolation_level="read_committed")
    committed.assign(PLACE)
    assert values(poll_records(fake_cluster, 3, committed)) == [b"a", b"d", b"e"]
    one.end(commit=True)
    two.begin(PLACE, b"h")
    two.end(commit=True)
    assert values(poll_records(fake_cluster, 3, committed)) == [b"f", b"g", b"h"]
    assert values(poll_records(fake_cluster, 1, everything)) == [b"h"]


def decoded(records: list[Record]) -> list[tuple[str, Any]]:
    """Decode records of `__transaction_state`."""
    found = []
    for record in records:
        assert record.key is not None
        name = decode_record(TransactionLogKey, record.key).transactional_id
        found.append((name, None if record.value is None else decode_record(TransactionLogValue, record.value)))
    return found


def check_records(cluster: FakeCluster, client: KafkaClient, start_consumer: StartConsumer, value_version: int) -> None:
    """Read the records of a committed transaction, an aborted one and an expired id."""
    producer = WireProducer(cluster, "one")
    producer.begin(PLACE, b"a")
    producer.end(commit=True)
    producer.begin(PLACE, b"b")
    producer.end(commit=False)
    cluster.advance(WEEK_S + 3_601)
    reader = start_consumer(client)
    reader.assign(("__transaction_state", partition_for("one", 50)))
    records = poll_until(cluster, "a tombstone", lambda found: any(each.value is None for each in found), reader)
    assert {(record.value or b"")[:2] for record in records[:-1]} == {value_version.to_bytes(2, "big")}
    names, found = zip(*decoded(records), strict=True)
    assert set(names) == {"one"}
    *stored, tombstone = found
    assert tombstone is None
    assert [each.transaction_status for each in stored] == [
        *(EMPTY, ONGOING, PREPARE_COMMIT, COMPLETE_COMMIT),
        *(ONGOING, PREPARE_ABORT, COMPLETE_ABORT),
    ]
    assert {(each.producer_id, each.transaction_timeout_ms) for each in stored} == {(producer.producer_id, 60_000)}
    assert stored[0].transaction_partitions is None
    assert [(each.topic, each.partition_ids) for each in stored[1].transaction_partitions] == [("orders", [0])]
    assert stored[-1].transaction_partitions == []


@pytest.mark.fake_cluster(topics={"orders": 1}, clock="manual")
@with_each_client
def test_the_transactions_topic_can_be_read(
    client: KafkaClient, fake_cluster: FakeCluster, start_consumer: StartConsumer
) -> None:
    check_records(fake_cluster, client, start_consumer, 1)


@pytest.mark.fake_cluster(topics={"orders": 1}, clock="manual", as_version="3.9")
@with_each_client
def test_the_transactions_topic_of_an_older_release_can_be_read(
    client: KafkaClient, fake_cluster: FakeCluster, start_consumer: StartConsumer
) -> None:
    check_records(fake_cluster, client, start_consumer, 0)
