"""Positions of consumers: timestamps, first and last offsets, committed offsets."""

import pytest

from fakebroker import FakeCluster
from tests.support.kafka_clients.client import KafkaClient, Record, StartConsumer
from tests.support.kafka_clients.helpers import CLIENTS, poll_records, poll_until, with_each_client

pytestmark = [pytest.mark.slow, pytest.mark.fake_cluster(topics={"orders": 2})]

START_MS = 1_700_000_000_000
PLACE = ("orders", 0)
FIVE = [Record(value=b"%d" % number, partition=0, timestamp_ms=START_MS + 1000 * number) for number in range(5)]


@with_each_client
def test_seek_to_a_timestamp(client: KafkaClient, fake_cluster: FakeCluster, start_consumer: StartConsumer) -> None:
    client.produce(fake_cluster.bootstrap_servers, "orders", FIVE, None)
    consumer = start_consumer(client)
    consumer.assign(PLACE)
    poll_records(fake_cluster, 5, consumer)
    assert consumer.offset_for_time(PLACE, START_MS) == 0
    assert consumer.offset_for_time(PLACE, START_MS + 3000) == 3
    assert consumer.offset_for_time(PLACE, START_MS + 4001) is None
    found = consumer.offset_for_time(PLACE, START_MS + 2001)
    assert found == 3
    consumer.seek(PLACE, found)
    assert poll_records(fake_cluster, 2, consumer) == FIVE[3:]


@with_each_client
def test_first_and_end_offsets(client: KafkaClient, fake_cluster: FakeCluster, start_consumer: StartConsumer) -> None:
    client.produce(fake_cluster.bootstrap_servers, "orders", FIVE, None)
    consumer = start_consumer(client)
    assert consumer.first_and_end_offsets(PLACE) == (0, 5)
    assert consumer.first_and_end_offsets(("orders", 1)) == (0, 0)


@with_each_client
def test_a_new_group_can_start_at_the_end(
    client: KafkaClient, fake_cluster: FakeCluster, start_consumer: StartConsumer
) -> None:
    client.produce(fake_cluster.bootstrap_servers, "orders", FIVE, None)
    consumer = start_consumer(client, group_id="g", client_id="late", offset_reset="latest")
    consumer.subscribe("orders")

    def knows_both_ends(_: list[Record]) -> bool:
        calls = [call for call in fake_cluster.journal.requests("ListOffsets", "late") if call.response]
        topics = [topic for call in calls for topic in call.response.topics]
        return {partition.partition_index for topic in topics for partition in topic.partitions} == {0, 1}

    assert poll_until(fake_cluster, "the ends of both partitions", knows_both_ends, consumer) == []
    new = [Record(value=b"new", partition=partition, timestamp_ms=START_MS) for partition in (0, 1)]
    client.produce(fake_cluster.bootstrap_servers, "orders", new, None)
    records = poll_records(fake_cluster, 2, consumer)
    assert sorted(records, key=lambda record: record.partition or 0) == new


@with_each_client
def test_an_assigned_partition_is_read_without_a_group(
    client: KafkaClient, fake_cluster: FakeCluster, start_consumer: StartConsumer
) -> None:
    client.produce(fake_cluster.bootstrap_servers, "orders", FIVE, None)
    consumer = start_consumer(client)
    consumer.assign(PLACE)
    assert poll_records(fake_cluster, 5, consumer) == FIVE
    assert consumer.assignment() == [PLACE]
    assert fake_cluster.journal.requests("JoinGroup") == []
    assert fake_cluster.groups() == []


@with_each_client
def test_every_client_reads_the_same_committed_offsets(
    client: KafkaClient, fake_cluster: FakeCluster, start_consumer: StartConsumer
) -> None:
    readers = [start_consumer(each, group_id="g", client_id=each.name) for each in CLIENTS]
    assert [reader.committed(PLACE) for reader in readers] == [None, None, None]
    client.produce(fake_cluster.bootstrap_servers, "orders", FIVE, None)
    member = start_consumer(client, group_id="g")
    member.subscribe("orders")
    poll_records(fake_cluster, 5, member)
    member.commit()
    assert [reader.committed(PLACE) for reader in readers] == [5, 5, 5]
    assert len(fake_cluster.group("g").describe().members) == 1, "fetching offsets does not join the group"
