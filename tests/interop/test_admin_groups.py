"""Groups listed, described and deleted, and members removed, with real admin clients."""

from operator import itemgetter
from typing import Any

import pytest
from confluent_kafka import ConsumerGroupState, ConsumerGroupType
from kafka import OffsetAndMetadata, TopicPartition
from kafka.admin import MemberToRemove
from kafka.errors import NoError, UnknownMemberIdError

from fakebroker import FakeCluster
from fakebroker.cluster.inspect.views import MemberView
from tests.support.kafka_clients.aiokafka_client import AIO, aio_admin
from tests.support.kafka_clients.client import CALL_TIMEOUT_S, StartAdmin, StartConsumer
from tests.support.kafka_clients.confluent_client import confluent_admin, outcomes
from tests.support.kafka_clients.helpers import partitions_per_member, poll_until
from tests.support.kafka_clients.kafka_python_client import python_admin

pytestmark = [pytest.mark.slow, pytest.mark.fake_cluster(topics={"orders": 2})]

LIVE, IDLE, MISSING = "live", "idle", "gone"
OPERATIONS = ["READ", "DELETE", "DESCRIBE", "DESCRIBE_CONFIGS", "ALTER_CONFIGS"]
"""Authorized operations on a group, in the order of Kafka's codes."""


@pytest.fixture(autouse=True)
def member(fake_cluster: FakeCluster, start_consumer: StartConsumer, start_admin: StartAdmin) -> MemberView:
    """The member of group LIVE; group IDLE only has a committed offset, group MISSING does not exist."""
    assert [fake_cluster.group(group).coordinator().node_id for group in (LIVE, IDLE, MISSING)] == [1, 2, 3]
    python_admin(start_admin).alter_group_offsets(IDLE, {TopicPartition("orders", 0): OffsetAndMetadata(7, "", -1)})
    consumer = start_consumer(AIO, group_id=LIVE, client_id="reader", instance_id="one")
    consumer.subscribe("orders")
    poll_until(fake_cluster, "all partitions", lambda _: partitions_per_member(fake_cluster, LIVE) == [2], consumer)
    (member,) = fake_cluster.group(LIVE).describe().members
    return member


def states(cluster: FakeCluster) -> dict[str, str]:
    return {group.group_id: group.state for group in cluster.groups()}


def test_confluent_lists_groups(start_admin: StartAdmin) -> None:
    admin = confluent_admin(start_admin)
    found = admin.list_consumer_groups().result(CALL_TIMEOUT_S)
    assert found.errors == []
    assert sorted((each.group_id, each.is_simple_consumer_group, each.state, each.type) for each in found.valid) == [
        (IDLE, True, ConsumerGroupState.EMPTY, ConsumerGroupType.CLASSIC),
        (LIVE, False, ConsumerGroupState.STABLE, ConsumerGroupType.CLASSIC),
    ]
    stable = admin.list_consumer_groups(states={ConsumerGroupState.STABLE}).result(CALL_TIMEOUT_S)
    assert [each.group_id for each in stable.valid] == [LIVE]
    of_new_type = admin.list_consumer_groups(types={ConsumerGroupType.CONSUMER}).result(CALL_TIMEOUT_S)
    assert (of_new_type.valid, of_new_type.errors) == ([], [])


def test_kafka_python_and_aiokafka_list_groups(start_admin: StartAdmin) -> None:
    admin = python_admin(start_admin)
    idle = {"group_id": IDLE, "protocol_type": "", "group_state": "Empty", "group_type": "classic"}
    stable = {"group_id": LIVE, "protocol_type": "consumer", "group_state": "Stable", "group_type": "classic"}
    assert sorted(admin.list_groups(), key=itemgetter("group_id")) == [idle, stable]
    assert admin.list_groups(broker_ids=[2]) == [idle]
    assert admin.list_groups(states_filter=["Stable", "Dead"]) == [stable]
    assert admin.list_groups(types_filter=["consumer", "share"]) == []

    aio = aio_admin(start_admin)
    assert sorted(aio.run(aio.inner.list_consumer_groups())) == [(IDLE, ""), (LIVE, "consumer")]
    assert aio.run(aio.inner.list_consumer_groups([1])) == [(LIVE, "consumer")]


def test_confluent_describes_groups(fake_cluster: FakeCluster, start_admin: StartAdmin, member: MemberView) -> None:
    admin = confluent_admin(start_admin)
    described = outcomes(admin.describe_consumer_groups([LIVE, IDLE, MISSING], include_authorized_operations=True))
    assert {group: (each.state, each.partition_assignor, each.coordinator.id) for group, each in described.items()} == {
        LIVE: (ConsumerGroupState.STABLE, "roundrobin", 1),
        IDLE: (ConsumerGroupState.EMPTY, "", 2),
        MISSING: (ConsumerGroupState.DEAD, "", 3),
    }
    live = described[LIVE]
    assert (live.is_simple_consumer_group, live.type) == (False, ConsumerGroupType.CLASSIC)
    assert [each.name for each in live.authorized_operations] == OPERATIONS
    (reported,) = live.members
    assert (reported.member_id, reported.client_id, reported.host) == (member.member_id, "reader", member.client_host)
    assert reported.group_instance_id == "one"
    assert [(each.topic, each.partition) for each in reported.assignment.topic_partitions] == [
        ("orders", 0),
        ("orders", 1),
    ]


def test_confluent_describes_groups_with_its_old_method(start_admin: StartAdmin, member: MemberView) -> None:
    admin = confluent_admin(start_admin)
    with pytest.deprecated_call():
        groups: Any = admin.list_groups(timeout=CALL_TIMEOUT_S)  # The declared types are wrong.
    assert sorted((each.id, each.state, each.protocol_type, each.protocol, each.broker.id) for each in groups) == [
        (IDLE, "Empty", "", "", 2),
        (LIVE, "Stable", "consumer", "roundrobin", 1),
    ]
    (reported,) = (each for group in groups for each in group.members)
    assert (reported.id, reported.client_id, reported.client_host) == (member.member_id, "reader", member.client_host)
    assert reported.assignment == member.assignment


def test_kafka_python_describes_groups(start_admin: StartAdmin, member: MemberView) -> None:
    admin = python_admin(start_admin)
    described = admin.describe_groups([LIVE, IDLE, MISSING])
    assert {group: (each["group_state"], each["protocol_data"]) for group, each in described.items()} == {
        LIVE: ("Stable", "roundrobin"),
        IDLE: ("Empty", ""),
        MISSING: ("Dead", ""),
    }
    assert [described[group]["error"] for group in (LIVE, IDLE)] == [None, None]
    assert "GroupIdNotFoundError" in described[MISSING]["error"]
    assert described[LIVE]["authorized_operations"] == OPERATIONS
    (reported,) = described[LIVE]["members"]
    assert (reported["member_id"], reported["group_instance_id"]) == (member.member_id, "one")
    assert (reported["client_id"], reported["client_host"]) == ("reader", member.client_host)
    assert reported["member_metadata"]["topics"] == ["orders"]
    assert reported["member_assignment"]["assigned_partitions"] == [{"topic": "orders", "partitions": [0, 1]}]


def test_aiokafka_describes_groups(start_admin: StartAdmin, member: MemberView) -> None:
    # One group per broker: aiokafka does not decode the last field of a group, so that others are misread.
    admin = aio_admin(start_admin)
    responses = admin.run(admin.inner.describe_consumer_groups([LIVE, IDLE, MISSING]))
    described = {group: rest for response in responses for error, group, *rest in response.groups if not error}
    reported = (member.member_id, "reader", member.client_host, member.assignment)
    (_, _, _, (live,)) = described[LIVE]
    assert (*live[:3], live[4]) == reported
    assert {group: (state, protocol) for group, (state, _, protocol, _) in described.items()} == {
        LIVE: ("Stable", "roundrobin"),
        IDLE: ("Empty", ""),
        MISSING: ("Dead", ""),
    }
    assert [admin.run(admin.inner.find_coordinator(group)) for group in (LIVE, IDLE, MISSING)] == [1, 2, 3]


def test_confluent_deletes_groups(fake_cluster: FakeCluster, start_admin: StartAdmin) -> None:
    admin = confluent_admin(start_admin)
    assert outcomes(admin.delete_consumer_groups([LIVE, IDLE, MISSING])) == {
        LIVE: "NON_EMPTY_GROUP",
        IDLE: None,
        MISSING: "GROUP_ID_NOT_FOUND",
    }
    assert states(fake_cluster) == {LIVE: "Stable"}
    assert fake_cluster.group(IDLE).offsets() == {}


def test_kafka_python_deletes_groups(fake_cluster: FakeCluster, start_admin: StartAdmin) -> None:
    admin = python_admin(start_admin)
    assert admin.delete_groups([LIVE, IDLE, MISSING]) == {
        LIVE: "NonEmptyGroupError",
        IDLE: "OK",
        MISSING: "GroupIdNotFoundError",
    }
    assert states(fake_cluster) == {LIVE: "Stable"}
    assert fake_cluster.group(IDLE).offsets() == {}


def test_a_wrong_coordinator_is_an_error(fake_cluster: FakeCluster, start_admin: StartAdmin) -> None:
    admin = python_admin(start_admin)
    assert "NotCoordinator" in admin.describe_groups([IDLE], group_coordinator_id=1)[IDLE]["error"]
    assert "NotCoordinator" in admin.delete_groups([IDLE], group_coordinator_id=1)[IDLE]
    assert fake_cluster.group(IDLE).describe().state == "Empty"


@pytest.mark.parametrize("by", ["member id", "instance id"])
def test_kafka_python_removes_members(
    by: str, fake_cluster: FakeCluster, start_admin: StartAdmin, member: MemberView
) -> None:
    admin = python_admin(start_admin)
    one = (
        MemberToRemove(member.member_id, reason="test")
        if by == "member id"
        else MemberToRemove(group_instance_id="one", reason="test")
    )
    result = admin.remove_group_members(LIVE, [MemberToRemove("nobody"), one])
    assert list(result.values()) == [UnknownMemberIdError, NoError]
    # The consumer may have rejoined with another member id.
    assert member.member_id not in [each.member_id for each in fake_cluster.group(LIVE).describe().members]
    leave, *_ = fake_cluster.journal.requests("LeaveGroup")
    assert [each.reason for each in leave.request.members] == [None, "test"]


def test_removing_a_member_of_a_missing_group_is_an_error(fake_cluster: FakeCluster, start_admin: StartAdmin) -> None:
    result = python_admin(start_admin).remove_group_members(MISSING, [MemberToRemove(group_instance_id="one")])
    assert result == {"one": UnknownMemberIdError}
    assert fake_cluster.group(MISSING).describe().state == "Dead"
