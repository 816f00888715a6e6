"""Real consumers read `__consumer_offsets`; the decoders of kafka-python read its records."""

from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from fakebroker import FakeCluster
from fakebroker.coordinator.partitions import partition_for
from fakebroker.protocol.consumer_protocol import decode_assignment
from fakebroker.protocol.messages.consumer_offsets import (
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
)
from fakebroker.protocol.schema import Message
from fakebroker.server.fake_cluster import internals
from tests.support.kafka_clients.client import CALL_TIMEOUT_S, KafkaClient, Record, StartConsumer
from tests.support.kafka_clients.helpers import numbered, poll_records, poll_until, with_each_client
from tests.support.kafka_python_codec import decode_record

pytestmark = [pytest.mark.slow, pytest.mark.fake_cluster(topics={"orders": 1})]

KEYS: dict[int, tuple[type[Message], type[Message]]] = {
    1: (OffsetCommitKey, OffsetCommitValue),
    2: (GroupMetadataKey, GroupMetadataValue),
}
"""Types of keys and values, by the version at the beginning of a key (Kafka's CoordinatorRecordType)."""


def last_of_each_key(records: list[Record]) -> dict[Any, Any]:
    """Return the last record of each key of group "g": by group id, or by topic and partition for a commit."""
    left: dict[Any, Any] = {}
    for record in records:
        assert record.key is not None
        key_class, value_class = KEYS[int.from_bytes(record.key[:2], "big")]
        key = decode_record(key_class, record.key)
        assert key.group == "g"
        name = (key.topic, key.partition) if key_class is OffsetCommitKey else key.group
        left[name] = None if record.value is None else decode_record(value_class, record.value)
    return left


@pytest.mark.fake_cluster(topics={"orders": 1}, as_version="2.0")
@with_each_client
def test_records_of_an_older_release_name_owners_and_clients(
    client: KafkaClient, fake_cluster: FakeCluster, start_consumer: StartConsumer
) -> None:
    """Burrow 1.2, which reads only values of version 0 and 1, shows the owner of each partition (kafka_client.go)."""
    member = start_consumer(client, group_id="g", client_id="billing-1")
    member.subscribe("orders")
    poll_until(fake_cluster, "an assignment", lambda _: fake_cluster.group("g").describe().state == "Stable", member)
    reader = start_consumer(client)
    reader.assign(("__consumer_offsets", partition_for("g", 50)))
    records = poll_until(
        fake_cluster, "an assignment", lambda found: bool(last_of_each_key(found).get("g")), reader, member
    )
    versions = [(record.value or b"")[:2] for record in records]
    assert set(versions) == {b"\0\1"}
    (owner,) = last_of_each_key(records)["g"].members
    (seen,) = fake_cluster.group("g").describe().members
    assert (owner.client_id, owner.client_host) == ("billing-1", seen.client_host)
    assert list(decode_assignment(owner.assignment)) == [("orders", 0)]


@with_each_client
def test_the_offsets_topic_can_be_read(
    client: KafkaClient, fake_cluster: FakeCluster, start_consumer: StartConsumer
) -> None:
    client.produce(fake_cluster.bootstrap_servers, "orders", numbered(range(5)), None)
    member = start_consumer(client, group_id="g")
    member.subscribe("orders")
    poll_records(fake_cluster, 5, member)
    member.commit()

    reader = start_consumer(client)
    reader.assign(("__consumer_offsets", partition_for("g", 50)))
    records = poll_until(
        fake_cluster, "a commit", lambda found: ("orders", 0) in last_of_each_key(found), reader, member
    )
    left = last_of_each_key(records)
    assert left["orders", 0].offset == 5
    group, seen = left["g"], fake_cluster.group("g").describe()
    assert (group.generation, group.protocol_type, group.protocol) == (1, "consumer", seen.protocol_name)
    assert group.leader == seen.leader_id
    assert [(each.member_id, each.assignment) for each in group.members] == [
        (each.member_id, each.assignment) for each in seen.members
    ]

    member.close()

    def is_empty(found: list[Record]) -> bool:
        group = last_of_each_key(found).get("g")
        return group is not None and group.members == []

    poll_until(fake_cluster, "a group without members", is_empty, reader)


@with_each_client
def test_it_is_created_by_the_first_member_or_before_by_an_administrator(
    client: KafkaClient, fake_cluster: FakeCluster, start_consumer: StartConsumer
) -> None:
    admin = AdminClient({"bootstrap.servers": fake_cluster.bootstrap_servers})

    def counts() -> dict[str, int]:
        return {name: len(topic.partitions) for name, topic in admin.list_topics(timeout=CALL_TIMEOUT_S).topics.items()}

    assert counts() == {"orders": 1}
    snapshot = fake_cluster.snapshot()
    member = start_consumer(client, group_id="g")
    member.subscribe("orders")
    poll_until(fake_cluster, "an assignment", lambda _: fake_cluster.group("g").describe().state == "Stable", member)
    assert counts() == {"orders": 1, "__consumer_offsets": 50}
    member.close()
    fake_cluster.restore(snapshot)
    assert counts() == {"orders": 1}
    admin.create_topics([NewTopic("__consumer_offsets", 3, 3)])["__consumer_offsets"].result(CALL_TIMEOUT_S)
    member = start_consumer(client, group_id="h")
    member.subscribe("orders")
    poll_until(fake_cluster, "an assignment", lambda _: fake_cluster.group("h").describe().state == "Stable", member)
    assert counts() == {"orders": 1, "__consumer_offsets": 3}
    assert internals(fake_cluster).cluster.offsets_partition_of("h").index == partition_for("h", 3)
