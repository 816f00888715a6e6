"""Offsets listed, records deleted and producers described, with real admin clients."""

from typing import Any

import pytest
from aiokafka import TopicPartition as Aio
from aiokafka.admin import RecordsToDelete
from aiokafka.errors import OffsetOutOfRangeError as AioOffsetOutOfRange
from confluent_kafka import OFFSET_END, TopicPartition as Confluent
from confluent_kafka.admin import _listoffsets
from kafka import TopicPartition
from kafka.admin import OffsetSpec, OffsetTimestamp
from kafka.errors import OffsetOutOfRangeError, UnknownTopicOrPartitionError

from fakebroker import FakeCluster
from tests.support.kafka_clients.aiokafka_client import aio_admin
from tests.support.kafka_clients.client import Record, StartAdmin
from tests.support.kafka_clients.confluent_client import confluent_admin, outcomes
from tests.support.kafka_clients.kafka_python_client import KAFKA_PYTHON, python_admin

pytestmark = [pytest.mark.slow, pytest.mark.fake_cluster(topics={"orders": 2})]

PLACE, OTHER, UNKNOWN = TopicPartition("orders", 0), TopicPartition("orders", 1), TopicPartition("returns", 0)
TIMESTAMPS_MS = (1000, 3000, 2000)

CONFLUENT_SPEC: Any = _listoffsets.OffsetSpec  # untyped


@pytest.fixture(autouse=True)
def _records(fake_cluster: FakeCluster) -> None:
    records = [Record(b"x", partition=0, timestamp_ms=timestamp_ms) for timestamp_ms in TIMESTAMPS_MS]
    KAFKA_PYTHON.produce(fake_cluster.bootstrap_servers, "orders", records, None)


def first_offsets(start_admin: StartAdmin) -> list[int]:
    found = python_admin(start_admin).list_partition_offsets(dict.fromkeys((PLACE, OTHER), OffsetSpec.EARLIEST))
    return [found[each].offset for each in (PLACE, OTHER)]


def test_kafka_python_lists_offsets(start_admin: StartAdmin) -> None:
    admin = python_admin(start_admin)
    specs = (OffsetSpec.EARLIEST, OffsetSpec.LATEST, OffsetSpec.MAX_TIMESTAMP, OffsetTimestamp(1500))
    found = [admin.list_partition_offsets({PLACE: spec})[PLACE] for spec in specs]
    assert [(each.offset, each.timestamp) for each in found] == [(0, -1), (3, -1), (1, 3000), (1, 3000)]
    with pytest.raises(UnknownTopicOrPartitionError):
        admin.list_partition_offsets({UNKNOWN: OffsetSpec.LATEST})


def test_confluent_lists_offsets(start_admin: StartAdmin) -> None:
    admin = confluent_admin(start_admin)
    place = Confluent("orders", 0)
    specs = (
        CONFLUENT_SPEC.earliest(),
        CONFLUENT_SPEC.latest(),
        CONFLUENT_SPEC.max_timestamp(),
        CONFLUENT_SPEC.for_timestamp(1500),
        CONFLUENT_SPEC.for_timestamp(9000),
    )
    found = [outcomes(admin.list_offsets({place: spec}))[place] for spec in specs]
    assert [(each.offset, each.timestamp) for each in found] == [(0, -1), (3, -1), (1, 3000), (1, 3000), (-1, -1)]
    latest = CONFLUENT_SPEC.latest()
    both = outcomes(admin.list_offsets({Confluent("orders", 1): latest, Confluent("returns", 0): latest}))
    assert both[Confluent("orders", 1)].offset == 0
    assert both[Confluent("returns", 0)] == "UNKNOWN_TOPIC_OR_PART"


def test_confluent_deletes_records(start_admin: StartAdmin) -> None:
    admin = confluent_admin(start_admin)
    found = outcomes(admin.delete_records([Confluent("orders", 0, 2), Confluent("returns", 0, 2)]))
    assert found[Confluent("orders", 0)].low_watermark == 2
    assert found[Confluent("returns", 0)] == "UNKNOWN_TOPIC_OR_PART"
    beyond = Confluent("orders", 0, 4)
    assert outcomes(admin.delete_records([beyond])) == {beyond: "OFFSET_OUT_OF_RANGE"}
    assert first_offsets(start_admin) == [2, 0]
    (reported,) = outcomes(admin.delete_records([Confluent("orders", 0, OFFSET_END)])).values()
    assert reported.low_watermark == 3
    assert first_offsets(start_admin) == [3, 0]


def test_kafka_python_deletes_records(start_admin: StartAdmin) -> None:
    admin = python_admin(start_admin)
    deleted = admin.delete_records({PLACE: 2, OTHER: -1})
    assert {place: each["low_watermark"] for place, each in deleted.items()} == {PLACE: 2, OTHER: 0}
    with pytest.raises(OffsetOutOfRangeError):
        admin.delete_records({PLACE: 4})
    with pytest.raises(UnknownTopicOrPartitionError):
        admin.delete_records({UNKNOWN: 0})
    assert first_offsets(start_admin) == [2, 0]


def test_aiokafka_deletes_records(start_admin: StartAdmin) -> None:
    admin, place = aio_admin(start_admin), Aio("orders", 0)
    assert admin.run(admin.inner.delete_records({place: RecordsToDelete(2)})) == {place: 2}
    with pytest.raises(AioOffsetOutOfRange):
        admin.run(admin.inner.delete_records({place: RecordsToDelete(4)}))
    assert first_offsets(start_admin) == [2, 0]


def test_kafka_python_describes_producers(fake_cluster: FakeCluster, start_admin: StartAdmin) -> None:
    admin = python_admin(start_admin)
    assert admin.describe_producers([OTHER])[OTHER].active_producers == []
    record = Record(b"x", partition=1, timestamp_ms=5000)
    KAFKA_PYTHON.produce(fake_cluster.bootstrap_servers, "orders", [record], None)
    found = admin.describe_producers([PLACE, OTHER])
    (first,), (second,) = found[PLACE].active_producers, found[OTHER].active_producers
    assert first.producer_id != second.producer_id
    assert (first.last_sequence, second.last_sequence, second.last_timestamp) == (2, 0, 5000)
    assert (second.producer_epoch, second.current_transaction_start_offset) == (0, -1)
    with pytest.raises(UnknownTopicOrPartitionError):
        admin.describe_producers([UNKNOWN])
