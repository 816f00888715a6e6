"""The admin client tells what confluent-kafka's tells of the same cluster."""

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient

from fakebroker import FakeCluster
from fakebroker.topic_partition import TopicPartition as Partition
from tests.support.client.admin_harness import administered
from tests.support.trio_runner import in_trio_with_sockets

pytestmark = pytest.mark.slow

TIMEOUT_S = 20


def seed(cluster: FakeCluster) -> list[str]:
    cluster.seed_group("two", members=["a", "b"], topics=["orders"], offsets={"orders-0": 5, "orders-3": 6})
    cluster.seed_group("empty", offsets={"orders-1": 7})
    cluster.seed_group("joining", members=1, topics=["orders"], state="PreparingRebalance")
    return ["two", "empty", "joining"]


@pytest.mark.parametrize("release", ["2.3", "2.8", "3.9", None])
@in_trio_with_sockets
async def test_groups_and_offsets_are_told_alike(release: str | None) -> None:
    async with administered(3, as_version=release) as (cluster, admin):
        groups = seed(cluster)
        peer = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})

        told = peer.list_consumer_groups(request_timeout=TIMEOUT_S).result(TIMEOUT_S)
        assert not told.errors
        mine = await admin.list_groups()
        assert sorted((group.group_id, group.protocol_type == "") for group in mine) == sorted(
            (group.group_id, group.is_simple_consumer_group) for group in told.valid
        )

        described = (await admin.describe_groups(groups)).all()
        for group, future in peer.describe_consumer_groups(groups, request_timeout=TIMEOUT_S).items():
            theirs, ours = future.result(TIMEOUT_S), described[group]
            assert ours.state.upper() == theirs.state.name.replace("_", "").replace("REBALANCING", "REBALANCE")
            assert (ours.protocol_name, ours.coordinator.node_id) == (theirs.partition_assignor, theirs.coordinator.id)
            assert [
                (each.member_id, each.client_id, each.client_host, each.group_instance_id, list(each.assignment or ()))
                for each in ours.members
            ] == [
                (
                    each.member_id,
                    each.client_id,
                    each.host,
                    each.group_instance_id,
                    pairs(each.assignment.topic_partitions),
                )
                for each in theirs.members
            ]

        listed = (await admin.list_group_offsets(dict.fromkeys(groups))).all()
        for group in groups:
            request = [ConsumerGroupTopicPartitions(group)]
            (future,) = peer.list_consumer_group_offsets(request, request_timeout=TIMEOUT_S).values()
            offsets = {pair(each): each.offset for each in future.result(TIMEOUT_S).topic_partitions}
            assert {partition: each.offset for partition, each in listed[group].items() if each} == offsets


def pair(partition: TopicPartition) -> Partition:
    return partition.topic, partition.partition


def pairs(partitions: list[TopicPartition]) -> list[Partition]:
    return [pair(each) for each in partitions]
