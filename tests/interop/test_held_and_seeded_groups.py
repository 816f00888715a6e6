"""Held, seeded and evicted members, with librdkafka."""

import pytest

from fakebroker import FakeCluster
from tests.support.kafka_clients.client import StartConsumer
from tests.support.kafka_clients.confluent_client import CONFLUENT
from tests.support.kafka_clients.helpers import partitions_per_member, poll_until

pytestmark = [pytest.mark.slow, pytest.mark.fake_cluster(topics={"orders": 6})]


def test_consumers_of_a_held_group_wait_until_its_release(
    fake_cluster: FakeCluster, start_consumer: StartConsumer
) -> None:
    fake_cluster.group("g").hold("PreparingRebalance")
    consumers = [start_consumer(CONFLUENT, group_id="g") for _ in range(3)]
    for consumer in consumers:
        consumer.subscribe("orders")

    def all_wait() -> bool:
        group = fake_cluster.group("g").describe()
        return (group.state, len(group.members)) == ("PreparingRebalance", 3)

    poll_until(fake_cluster, "three members in a hold", lambda _: all_wait(), *consumers)
    assert [consumer.assignment() for consumer in consumers] == [[], [], []]
    fake_cluster.group("g").release()
    poll_until(
        fake_cluster, "a share for each", lambda _: partitions_per_member(fake_cluster, "g") == [2, 2, 2], *consumers
    )
    poll_until(
        fake_cluster,
        "partitions at each consumer",
        lambda _: [len(consumer.assignment()) for consumer in consumers] == [2, 2, 2],
        *consumers,
    )
    assert fake_cluster.group("g").describe().generation_id == 1


def test_a_client_reads_offsets_of_a_seeded_group(fake_cluster: FakeCluster, start_consumer: StartConsumer) -> None:
    fake_cluster.group("g").seed(offsets={"orders-0": 5, "orders-3": 7}, lag={"orders-0": 0, "orders-3": 0})
    consumer = start_consumer(CONFLUENT, group_id="g")
    assert [consumer.committed(("orders", index)) for index in range(4)] == [5, None, None, 7]


def test_an_evicted_consumer_rejoins(fake_cluster: FakeCluster, start_consumer: StartConsumer) -> None:
    consumers = [start_consumer(CONFLUENT, group_id="g", client_id=name) for name in ("a", "b")]
    for consumer in consumers:
        consumer.subscribe("orders")
    poll_until(fake_cluster, "two members", lambda _: partitions_per_member(fake_cluster, "g") == [3, 3], *consumers)
    before = {member.client_id: member.member_id for member in fake_cluster.group("g").describe().members}
    fake_cluster.group("g").evict("a")

    def is_back() -> bool:
        return {member.client_id for member in fake_cluster.group("g").describe().members} == {"a", "b"}

    poll_until(
        fake_cluster,
        "both again",
        lambda _: is_back() and partitions_per_member(fake_cluster, "g") == [3, 3],
        *consumers,
    )
    after = {member.client_id: member.member_id for member in fake_cluster.group("g").describe().members}
    assert (after["a"] != before["a"], after["b"]) == (True, before["b"])
