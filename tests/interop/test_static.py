"""Static members: a restart goes unnoticed, a second instance fences the first, and one that stays away is let go."""

import pytest
from kafka.admin import MemberToRemove
from kafka.errors import NoError

from fakebroker import FakeCluster
from tests.support.kafka_clients.client import Client, Consumer, Record, StartAdmin, StartConsumer
from tests.support.kafka_clients.confluent_client import CONFLUENT
from tests.support.kafka_clients.helpers import poll_records, poll_until, shares, with_each_client
from tests.support.kafka_clients.kafka_python_client import KAFKA_PYTHON, PythonAdmin

pytestmark = pytest.mark.slow

SHORT_SESSION_MS = 1_000


def subscribe_until(cluster: FakeCluster, expected: list[int], *consumers: Consumer) -> None:
    """Let consumers join until the group's shares are as expected, and each has learned its own."""
    for consumer in consumers:
        consumer.subscribe("orders")

    def have_shares() -> bool:
        return shares(cluster, "g") == expected == sorted(len(consumer.assignment()) for consumer in consumers)

    poll_until(cluster, f"shares of {expected}", lambda _: have_shares(), *consumers)


@with_each_client
@pytest.mark.fake_cluster(topics={"orders": 6})
def test_a_restart_changes_nothing(client: Client, fake_cluster: FakeCluster, start_consumer: StartConsumer) -> None:
    one, two = (start_consumer(client, group_id="g", instance_id=name) for name in ("one", "two"))
    subscribe_until(fake_cluster, [3, 3], one, two)
    before, places = fake_cluster.group("g"), one.assignment()

    one.close()
    assert fake_cluster.group("g") == before
    again = start_consumer(client, group_id="g", instance_id="one")
    again.subscribe("orders")
    poll_until(fake_cluster, "the same share", lambda _: again.assignment() == places, again, two)
    after = fake_cluster.group("g")
    assert (after.state, after.generation_id) == ("Stable", before.generation_id)
    assert {member.instance_id for member in after.members} == {"one", "two"}
    assert len({member.member_id for member in before.members + after.members}) == 3, "the restarted one has a new id"


# aiokafka leaves the instance out of its heartbeats: its first instance only learns that it is no member, and takes the
# second one's place again, and so on.
@pytest.mark.parametrize("client", [CONFLUENT, KAFKA_PYTHON], ids=lambda client: client.name)
@pytest.mark.fake_cluster(topics={"orders": 6})
def test_a_second_instance_fences_the_first(
    client: Client, fake_cluster: FakeCluster, start_consumer: StartConsumer
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
    assert fake_cluster.offsets("g") == {}
    joined = fake_cluster.requests("JoinGroup", client_id="b")[-1]
    assert [member.member_id for member in fake_cluster.group("g").members] == [joined.response.member_id]


@pytest.mark.fake_cluster(topics={"orders": 6}, config={"group.min.session.timeout.ms": SHORT_SESSION_MS})
def test_one_that_stays_away_is_let_go(fake_cluster: FakeCluster, start_consumer: StartConsumer) -> None:
    gone = start_consumer(CONFLUENT, group_id="g", instance_id="gone", session_timeout_ms=SHORT_SESSION_MS)
    staying = start_consumer(CONFLUENT, group_id="g", instance_id="staying")
    subscribe_until(fake_cluster, [3, 3], gone, staying)
    gone.close()
    assert fake_cluster.requests("LeaveGroup") == []
    poll_until(fake_cluster, "all partitions", lambda _: shares(fake_cluster, "g") == [6], staying)
    assert [member.instance_id for member in fake_cluster.group("g").members] == ["staying"]


@pytest.mark.fake_cluster(topics={"orders": 6})
def test_an_admin_removes_one_by_its_instance(
    fake_cluster: FakeCluster, start_consumer: StartConsumer, start_admin: StartAdmin
) -> None:
    gone, staying = (start_consumer(CONFLUENT, group_id="g", instance_id=name) for name in ("gone", "staying"))
    subscribe_until(fake_cluster, [3, 3], gone, staying)
    gone.close()
    admin = start_admin(KAFKA_PYTHON)
    assert isinstance(admin, PythonAdmin)
    removed = admin.inner.remove_group_members("g", [MemberToRemove(group_instance_id="gone")])
    assert removed == {"gone": NoError}
    poll_until(fake_cluster, "all partitions", lambda _: shares(fake_cluster, "g") == [6], staying)
