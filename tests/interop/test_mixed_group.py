"""Members of different clients in one group; each client is the leader once, and assigns partitions to the others."""

import pytest

from fakebroker import FakeCluster
from tests.support.kafka_clients.client import KafkaClient, StartConsumer
from tests.support.kafka_clients.helpers import (
    CLIENTS,
    numbered,
    partitions_per_member,
    poll_until,
    values,
    with_each_client,
)

pytestmark = pytest.mark.slow


@with_each_client
@pytest.mark.fake_cluster(topics={"orders": 6})
def test_three_clients_share_a_topic(
    client: KafkaClient, fake_cluster: FakeCluster, start_consumer: StartConsumer
) -> None:
    leader = start_consumer(client, group_id="g", client_id="leader")
    leader.subscribe("orders")
    poll_until(fake_cluster, "the leader alone", lambda _: partitions_per_member(fake_cluster, "g") == [6], leader)
    others = [start_consumer(other, group_id="g", client_id=other.name) for other in CLIENTS if other is not client]
    for other in others:
        other.subscribe("orders")
    poll_until(
        fake_cluster, "two each", lambda _: partitions_per_member(fake_cluster, "g") == [2, 2, 2], leader, *others
    )

    group = fake_cluster.group("g").describe()
    assert group.protocol_name == "roundrobin", "the only assignor that all three support"
    assert {member.client_id: member.member_id == group.leader_id for member in group.members} == {
        "leader": True,
        **{other.name: False for other in CLIENTS if other is not client},
    }
    client.produce(fake_cluster.bootstrap_servers, "orders", numbered(range(60)), None)
    expected = values(numbered(range(60)))
    read = poll_until(
        fake_cluster, "60 records", lambda records: set(values(records)) == set(expected), leader, *others
    )
    # Without commits, records are read again after a rebalance, which kafka-python may cause.
    assert values(read) == expected or fake_cluster.group("g").describe().generation_id > group.generation_id
