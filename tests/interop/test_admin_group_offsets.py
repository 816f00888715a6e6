"""Offsets of groups altered, reset, listed and deleted, with real admin clients."""

import pytest
from confluent_kafka import OFFSET_INVALID, ConsumerGroupTopicPartitions, TopicPartition as Confluent
from kafka import OffsetAndMetadata, TopicPartition
from kafka.admin import OffsetSpec, OffsetTimestamp
from kafka.errors import (
    GroupIdNotFoundError,
    GroupSubscribedToTopicError,
    NoError,
    UnknownMemberIdError,
    UnknownTopicOrPartitionError,
)

from fakebroker import FakeCluster
from tests.support.kafka_clients.aiokafka_client import AIO, aio_admin
from tests.support.kafka_clients.client import Place, Record, StartAdmin, StartConsumer
from tests.support.kafka_clients.confluent_client import confluent_admin, outcomes
from tests.support.kafka_clients.helpers import partitions_per_member, poll_until
from tests.support.kafka_clients.kafka_python_client import KAFKA_PYTHON, python_admin

pytestmark = [pytest.mark.slow, pytest.mark.fake_cluster(topics={"orders": 2})]

FIRST, SECOND, UNKNOWN = TopicPartition("orders", 0), TopicPartition("orders", 1), TopicPartition("returns", 0)


def committed(cluster: FakeCluster, group_id: str) -> dict[Place, tuple[int, str, int]]:
    offsets = cluster.group(group_id).offsets()
    return {place: (each.offset, each.metadata, each.leader_epoch) for place, each in offsets.items()}


def start_member(cluster: FakeCluster, start_consumer: StartConsumer) -> None:
    """Start a member of group g, and wait until it has both partitions."""
    consumer = start_consumer(AIO, group_id="g")
    consumer.subscribe("orders")
    poll_until(cluster, "all partitions", lambda _: partitions_per_member(cluster, "g") == [2], consumer)


def test_confluent_alters_and_lists_offsets(fake_cluster: FakeCluster, start_admin: StartAdmin) -> None:
    admin = confluent_admin(start_admin)
    wanted = [Confluent("orders", 0, 4, metadata="note", leader_epoch=0), Confluent("returns", 0, 5)]
    altered = outcomes(admin.alter_consumer_group_offsets([ConsumerGroupTopicPartitions("g", wanted)]))["g"]
    assert sorted((each.topic, each.error and each.error.name()) for each in altered.topic_partitions) == [
        ("orders", None),
        ("returns", "UNKNOWN_TOPIC_OR_PART"),
    ]
    # librdkafka also sends the terminating NUL of the string, and hides it in responses.
    assert committed(fake_cluster, "g") == {("orders", 0): (4, "note\0", 0)}

    (reported,) = outcomes(admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions("g")]))["g"].topic_partitions
    assert (reported.topic, reported.partition, reported.offset, reported.metadata, reported.leader_epoch) == (
        "orders",
        0,
        4,
        "note",
        0,
    )
    requested = ConsumerGroupTopicPartitions("g", [Confluent("orders", 1), Confluent("orders", 0)])
    listed = outcomes(admin.list_consumer_group_offsets([requested]))["g"].topic_partitions
    assert sorted((each.partition, each.offset) for each in listed) == [(0, 4), (1, OFFSET_INVALID)]
    missing = outcomes(admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions("nobody")]))
    assert missing["nobody"].topic_partitions == []


def test_kafka_python_alters_and_lists_offsets(fake_cluster: FakeCluster, start_admin: StartAdmin) -> None:
    admin = python_admin(start_admin)
    note = OffsetAndMetadata(4, "note", 0)
    altered = admin.alter_group_offsets("g", {FIRST: note, UNKNOWN: note})
    assert altered == {FIRST: NoError, UNKNOWN: UnknownTopicOrPartitionError}
    assert committed(fake_cluster, "g") == {("orders", 0): (4, "note", 0)}
    assert admin.list_group_offsets({"g": [FIRST, SECOND], "nobody": None}) == {
        "g": {FIRST: note, SECOND: OffsetAndMetadata(-1, "", -1)},
        "nobody": {},
    }
    aio = aio_admin(start_admin)
    assert aio.run(aio.inner.list_consumer_group_offsets("g")) == {FIRST: (4, "note")}
    assert aio.run(aio.inner.list_consumer_group_offsets("g", partitions=[FIRST, SECOND])) == {
        FIRST: (4, "note"),
        SECOND: (-1, ""),
    }


def test_offsets_of_groups_with_three_coordinators(fake_cluster: FakeCluster, start_admin: StartAdmin) -> None:
    admin = python_admin(start_admin)
    groups = [f"group {number}" for number in range(6)]
    assert len({fake_cluster.group(group).coordinator() for group in groups}) == 3
    for number, group in enumerate(groups):
        altered = admin.alter_group_offsets(group, {SECOND: OffsetAndMetadata(number, f"note {number}", -1)})
        assert altered == {SECOND: NoError}
    assert admin.list_group_offsets(groups) == {
        group: {SECOND: OffsetAndMetadata(number, f"note {number}", -1)} for number, group in enumerate(groups)
    }


def test_kafka_python_resets_offsets(fake_cluster: FakeCluster, start_admin: StartAdmin) -> None:
    records = [Record(b"x", partition=0, timestamp_ms=timestamp_ms) for timestamp_ms in (1000, 2000, 3000)]
    KAFKA_PYTHON.produce(fake_cluster.bootstrap_servers, "orders", records, None)
    admin = python_admin(start_admin)
    admin.alter_group_offsets("g", {FIRST: OffsetAndMetadata(1, "note", -1)})
    admin.delete_records({FIRST: 1})
    reported = {OffsetSpec.LATEST: 3, OffsetSpec.EARLIEST: 1, OffsetTimestamp(1500): 1, 2: 2, 77: 3}
    for target, expected in reported.items():
        assert admin.reset_group_offsets("g", {FIRST: target}) == {FIRST: {"error": NoError, "offset": expected}}
        assert committed(fake_cluster, "g") == {("orders", 0): (expected, "note", -1)}


def test_kafka_python_deletes_offsets(fake_cluster: FakeCluster, start_admin: StartAdmin) -> None:
    admin = python_admin(start_admin)
    admin.alter_group_offsets("g", {each: OffsetAndMetadata(4, "", -1) for each in (FIRST, SECOND)})
    deleted = admin.delete_group_offsets("g", [SECOND, UNKNOWN])
    assert deleted == {SECOND: NoError, UNKNOWN: UnknownTopicOrPartitionError}
    assert committed(fake_cluster, "g") == {("orders", 0): (4, "", -1)}
    with pytest.raises(GroupIdNotFoundError):
        admin.delete_group_offsets("nobody", [FIRST])


def test_offsets_of_a_group_with_members_cannot_be_changed(
    fake_cluster: FakeCluster, start_admin: StartAdmin, start_consumer: StartConsumer
) -> None:
    confluent, admin = confluent_admin(start_admin), python_admin(start_admin)
    admin.alter_group_offsets("g", {FIRST: OffsetAndMetadata(4, "", -1)})
    before = committed(fake_cluster, "g")
    start_member(fake_cluster, start_consumer)
    wanted = ConsumerGroupTopicPartitions("g", [Confluent("orders", 0, 2)])
    (refused,) = outcomes(confluent.alter_consumer_group_offsets([wanted]))["g"].topic_partitions
    assert refused.error.name() == "UNKNOWN_MEMBER_ID"
    assert admin.alter_group_offsets("g", {FIRST: OffsetAndMetadata(2, "", -1)}) == {FIRST: UnknownMemberIdError}
    reset = admin.reset_group_offsets("g", {FIRST: OffsetSpec.LATEST})
    assert reset == {FIRST: {"error": UnknownMemberIdError, "offset": 0}}
    assert admin.delete_group_offsets("g", [FIRST]) == {FIRST: GroupSubscribedToTopicError}
    assert committed(fake_cluster, "g") == before
