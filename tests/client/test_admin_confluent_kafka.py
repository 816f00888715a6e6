"""The admin client compared with the admin client of confluent-kafka."""

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient

from fakebroker import FakeCluster
from fakebroker.topic_partition import TopicPartition as Partition
from tests.support.client.admin_harness import cluster_and_admin
from tests.support.trio_runner import in_trio_with_sockets

pytestmark = pytest.mark.slow

TIMEOUT_S = 20


def seed(cluster: FakeCluster) -> list[str]:
    cluster.group("two").seed(
        members=["a", "b"],
        topics=["orders"],
        offsets={"orders-0": 5, "orders-3": 6},
        lag={"orders-0": 0, "orders-3": 0},
    )
    cluster.group("empty").seed(offsets={"orders-1": 7}, lag={"orders-1": 0})
    cluster.group("joining").seed(members=1, topics=["orders"], state="PreparingRebalance")
    return ["two", "empty", "joining"]


@in_trio_with_sockets
async def test_both_clients_return_the_same_groups_and_offsets(subtests: pytest.Subtests) -> None:
    for release in ("2.3", "2.8", "3.9", None):
        with subtests.test(release=release):
            await compare_clients(release)


async def compare_clients(release: str | None) -> None:
    async with cluster_and_admin(3, as_version=release) as (cluster, admin):
        groups = seed(cluster)
        confluent = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})

        listed = confluent.list_consumer_groups(request_timeout=TIMEOUT_S).result(TIMEOUT_S)
        assert not listed.errors
        listings = await admin.list_groups()
        assert sorted((group.group_id, group.protocol_type == "") for group in listings) == sorted(
            (group.group_id, group.is_simple_consumer_group) for group in listed.valid
        )

        described = (await admin.describe_groups(groups)).all()
        for group, future in confluent.describe_consumer_groups(groups, request_timeout=TIMEOUT_S).items():
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

        offsets_by_group = (await admin.list_group_offsets(dict.fromkeys(groups))).all()
        for group in groups:
            request = [ConsumerGroupTopicPartitions(group)]
            (future,) = confluent.list_consumer_group_offsets(request, request_timeout=TIMEOUT_S).values()
            offsets = {pair(each): each.offset for each in future.result(TIMEOUT_S).topic_partitions}
            assert {partition: each.offset for partition, each in offsets_by_group[group].items() if each} == offsets


def pair(partition: TopicPartition) -> Partition:
    return partition.topic, partition.partition


def pairs(partitions: list[TopicPartition]) -> list[Partition]:
    return [pair(each) for each in partitions]
