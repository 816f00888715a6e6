"""Very many topics and groups: requests about all of them, and about one, take time and memory in proportion."""

import pytest

from fakebroker import ErrorCode, FakeCluster
from fakebroker.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from fakebroker.protocol.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from fakebroker.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from fakebroker.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from tests.support.control.control_server import controlled_cluster
from tests.support.server.bystander import MIB, unharmed
from tests.support.soak import examples, soak
from tests.support.wire_client import WireClient

BATCH = 1000
"""Topics that one request creates."""


@soak
@pytest.mark.fake_cluster(brokers=1, topics={"orders": 1})
def test_many_topics(fake_cluster: FakeCluster) -> None:
    """The limits of CPU time (of Metadata for all topics) and memory are several times what was measured."""
    count = examples(2_000, soak=100_000)
    names = [f"topic-{index:06}" for index in range(count)]
    with (
        unharmed(
            fake_cluster,
            max_cpu_s=2 + count * 100e-6,
            max_peak_bytes=32 * MIB + count * 12_000,
            max_growth_bytes=32 * MIB + count * 10_000,
        ) as bystander,
        WireClient(fake_cluster.brokers[0]) as wire,
    ):
        for start in range(0, count, BATCH):
            wire.send(create(names[start : start + BATCH]))
            bystander.check()
            created = wire.receive()
            assert isinstance(created, CreateTopicsResponse)
            assert not any(topic.error_code for topic in created.topics)
        wire.send(MetadataRequest(topics=None))
        bystander.check()
        everything = wire.receive()
        assert isinstance(everything, MetadataResponse)
        assert {topic.name for topic in everything.topics} >= {"orders", *names}
        one = wire.ask(MetadataRequest(topics=[MetadataRequestTopic(name=names[-1])]), MetadataResponse)
        assert [(topic.name, topic.error_code) for topic in one.topics] == [(names[-1], 0)]
        again = wire.ask(create(names[-1:]), CreateTopicsResponse)
        assert again.topics[0].error_code == ErrorCode.TOPIC_ALREADY_EXISTS
        wire.socket.close()


def create(names: list[str]) -> CreateTopicsRequest:
    topics = [
        CreatableTopic(name=name, num_partitions=1, replication_factor=1, assignments=[], configs=[]) for name in names
    ]
    return CreateTopicsRequest(topics=topics)


@soak
def test_many_groups() -> None:
    """Requests about one group, and pages of the list, do not depend on how many groups there are."""
    count = examples(5_000, soak=300_000)
    seeds = ({"group_id": f"group-{index}", "offsets": {"orders-0": 0}} for index in range(count))
    with controlled_cluster(brokers=1, topics={"orders": 1}) as control:
        control.cluster.seed_groups(seeds)
        with (
            unharmed(
                control.cluster,
                max_cpu_s=1 + count * 20e-6,
                max_peak_bytes=64 * MIB + count * 600,
                max_growth_bytes=64 * MIB + count * 300,
            ) as bystander,
            WireClient(control.cluster.brokers[0]) as wire,
        ):
            wire.send(ListGroupsRequest(states_filter=[], types_filter=[]))
            bystander.check()
            listed = wire.receive()
            assert isinstance(listed, ListGroupsResponse)
            assert len({group.group_id for group in listed.groups}) == count + 1
            described = wire.ask(DescribeGroupsRequest(groups=["group-7"]), DescribeGroupsResponse)
            assert described.groups[0].group_state == "Empty"
            for path, rows in (
                ("/groups", 100),
                ("/groups?limit=10&offset=4000", 10),
                ("/groups?search=group-77", 100),
            ):
                page = control.get(path)
                bystander.check()
                assert len(page["groups"]) == min(rows, page["total"])
            assert control.get("/groups/group-7")["group_id"] == "group-7"
            assert len(control.cluster.report()) < 10_000
            bystander.check()
            wire.socket.close()
