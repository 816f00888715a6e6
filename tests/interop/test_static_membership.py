"""Static members: restarts, fencing, expiry, removal by an administrator."""

import pytest
from kafka.admin import MemberToRemove
from kafka.errors import NoError

from fakebroker import FakeCluster
from tests.support.kafka_clients.client import Consumer, KafkaClient, Record, StartAdmin, StartConsumer
from tests.support.kafka_clients.confluent_client import CONFLUENT
from tests.support.kafka_clients.helpers import partitions_per_member, poll_records, poll_until, with_each_client
from tests.support.kafka_clients.kafka_python_client import KAFKA_PYTHON, PythonAdmin

pytestmark = pytest.mark.slow

SHORT_SESSION_MS = 10_000
"""Shorter than the sessions of other members."""


def subscribe_until(cluster: FakeCluster, expected: list[int], *consumers: Consumer) -> None:
    """Let consumers join; wait until each has the expected number of partitions, and knows."""
    for consumer in consumers:
        consumer.subscribe("orders")

    def are_assigned() -> bool:
        return (
            partitions_per_member(cluster, "g")
            == expected
            == sorted(len(consumer.assignment()) for consumer in consumers)
        )

    poll_until(cluster, f"{expected} partitions per member", lambda _: are_assigned(), *consumers)


@with_each_client
@pytest.mark.fake_cluster(topics={"orders": 6})
def test_a_restart_causes_no_rebalance(
    client: KafkaClient, fake_cluster: FakeCluster, start_consumer: StartConsumer
) -> None:
    one, two = (start_consumer(client, group_id="g", instance_id=name) for name in ("one", "two"))
    subscribe_until(fake_cluster, [3, 3], one, two)
    before, places = fake_cluster.group("g").describe(), one.assignment()

    one.close()
    assert fake_cluster.group("g").describe() == before
    again = start_consumer(client, group_id="g", instance_id="one")
    again.subscribe("orders")
    poll_until(fake_cluster, "the same share", lambda _: again.assignment() == places, again, two)
    after = fake_cluster.group("g").describe()
    assert (after.state, after.generation_id) == ("Stable", before.generation_id)
    assert {member.instance_id for member in after.members} == {"one", "two"}
    assert len({member.member_id for member in before.members + after.members}) == 3, "the restarted one has a new id"


# aiokafka sends heartbeats without the instance id: its first instance gets UNKNOWN_MEMBER_ID, rejoins, fences the
# second one, and so on.
@pytest.mark.parametrize("client", [CONFLUENT, KAFKA_PYTHON], ids=lambda client: client.name)
@pytest.mark.fake_cluster(topics={"orders": 6})
def test_a_second_instance_fences_the_first(
    client: KafkaClient, fake_cluster: FakeCluster, start_consumer: StartConsumer
) -> None:
    first, second = (start_consumer(client, group_id="g", instance_id="one", client_id=name) for name in "ab")
    subscribe_until(fake_cluster, [6], first)
    client.produce(
        fake_cluster.bootstrap_servers, "orders", [Record(b"x", partition=number) for number in range(6)], None
    )
    poll_records(fake_cluster, 6, first)
    second.subscribe("orders")
    poll_until(fake_cluster, "all partitions", lambda _: len(second.assignment()) == 6, second)
    with pytest.raises(Exception, match=r"(?i)fenced"):
        first.commit()
    assert fake_cluster.group("g").offsets() == {}
    joined = fake_cluster.journal.requests("JoinGroup", client_id="b")[-1]
    assert [member.member_id for member in fake_cluster.group("g").describe().members] == [joined.response.member_id]


@pytest.mark.fake_cluster(topics={"orders": 6}, clock="manual")
def test_a_stopped_member_is_removed_when_its_session_expires(
    fake_cluster: FakeCluster, start_consumer: StartConsumer
) -> None:
    gone = start_consumer(CONFLUENT, group_id="g", instance_id="gone", session_timeout_ms=SHORT_SESSION_MS)
    staying = start_consumer(CONFLUENT, group_id="g", instance_id="staying")
    subscribe_until(fake_cluster, [3, 3], gone, staying)
    gone.close()
    assert fake_cluster.journal.requests("LeaveGroup") == []
    fake_cluster.advance(SHORT_SESSION_MS / 1000)
    poll_until(fake_cluster, "all partitions", lambda _: partitions_per_member(fake_cluster, "g") == [6], staying)
    assert [member.instance_id for member in fake_cluster.group("g").describe().members] == ["staying"]


@pytest.mark.fake_cluster(topics={"orders": 6})
def test_an_admin_removes_a_member_by_instance_id(
    fake_cluster: FakeCluster, start_consumer: StartConsumer, start_admin: StartAdmin
) -> None:
    gone, staying = (start_consumer(CONFLUENT, group_id="g", instance_id=name) for name in ("gone", "staying"))
    subscribe_until(fake_cluster, [3, 3], gone, staying)
    gone.close()
    admin = start_admin(KAFKA_PYTHON)
    assert isinstance(admin, PythonAdmin)
    removed = admin.inner.remove_group_members("g", [MemberToRemove(group_instance_id="gone")])
    assert removed == {"gone": NoError}
    poll_until(fake_cluster, "all partitions", lambda _: partitions_per_member(fake_cluster, "g") == [6], staying)
