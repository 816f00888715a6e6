"""Requests that a consumer group rejects, over TCP: each with the error and the message of Kafka 4.4, and no effect."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from fakebroker import FakeCluster
from fakebroker.errors import ErrorCode
from fakebroker.protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from fakebroker.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    HeartbeatTopicPartitions,
)
from fakebroker.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from tests.support.subtests import subtest_for_each
from tests.support.wire_client import WireClient

INVALID = ErrorCode.INVALID_REQUEST
FENCED = "The consumer group member has a {} member epoch ({}) than the one known by the group coordinator (4). "
ABANDON = "The member must abandon all its partitions and rejoin."
EVERYTHING = {"rebalance_timeout_ms": 60_000, "subscribed_topic_names": ["orders"], "topic_partitions": []}
TOPIC_ID = b"\1" * 16
LONG = "x" * 30_000
UNKNOWN_GROUP = ErrorCode.GROUP_ID_NOT_FOUND


@dataclass(frozen=True)
class Rejected:
    """A heartbeat that is rejected.

    Attributes:
        member_id, epoch: Those of the request, which has everything that joining needs if the epoch is 0.
        error, message: Those of the response.
        fields: Other fields of the request.
        version: The version of the request.
    """

    member_id: str
    epoch: int
    error: ErrorCode
    message: str | None
    fields: dict[str, Any] = field(default_factory=dict)
    version: int = 1


def invalid(member_id: str, epoch: int, message: str, version: int = 1, **fields: Any) -> Rejected:
    return Rejected(member_id, epoch, INVALID, message, fields, version)


def unknown(member_id: str, epoch: int, message: str, **fields: Any) -> Rejected:
    return Rejected(member_id, epoch, ErrorCode.UNKNOWN_MEMBER_ID, message, fields)


def fenced(member_id: str, epoch: int, **fields: Any) -> Rejected:
    text = FENCED.format("greater" if epoch > 4 else "smaller", epoch) + ABANDON
    return Rejected(member_id, epoch, ErrorCode.FENCED_MEMBER_EPOCH, text, fields)


def owned(topic_id: bytes, *partitions: int) -> list[HeartbeatTopicPartitions]:
    return [HeartbeatTopicPartitions(topic_id=topic_id, partitions=list(partitions))]


# The group "g" has members a and b, and s as static instance "i", all in epoch 4.
REJECTED = [
    # The request by itself
    invalid("", 0, "MemberId can't be empty."),
    invalid("\t\n \0", 0, "MemberId can't be empty."),
    invalid("", 4, "MemberId can't be empty.", version=0),
    invalid("", -1, "MemberId can't be empty.", version=0),
    invalid("", -2, "MemberId can't be empty.", instance_id="i"),
    invalid("a", 4, "GroupId can't be empty.", group_id=""),
    invalid("a", 4, "GroupId can't be empty.", group_id="  "),
    invalid("a", 4, "InstanceId can't be empty.", instance_id=""),
    invalid("a", 4, "RackId can't be empty.", rack_id=" "),
    invalid("n", 0, "RebalanceTimeoutMs must be provided in first request.", rebalance_timeout_ms=-1),
    invalid("n", 0, "TopicPartitions must be empty when (re-)joining.", topic_partitions=None),
    invalid("n", 0, "TopicPartitions must be empty when (re-)joining.", topic_partitions=owned(TOPIC_ID)),
    invalid(
        "n",
        0,
        "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.",
        subscribed_topic_names=None,
    ),
    invalid("a", -2, "InstanceId can't be null."),
    invalid("a", -3, "MemberEpoch is invalid."),
    invalid("s", -(2**31), "MemberEpoch is invalid.", instance_id="i"),
    *(
        Rejected(
            "a",
            4,
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"ServerAssignor {name} is not supported. Supported assignors: uniform, range.",
            {"server_assignor": name},
        )
        for name in ("", " uniform", "Uniform", "sticky", LONG)
    ),
    # The group
    *(
        Rejected("a", epoch, ErrorCode.GROUP_ID_NOT_FOUND, message, {"group_id": "gone", **fields})
        for epoch, message, fields in [
            (1, "Consumer group gone not found.", {}),
            (2**31 - 1, "Consumer group gone not found.", {}),
            (-1, "Group gone not found.", {}),
            (-2, "Group gone not found.", {"instance_id": "i"}),
        ]
    ),
    Rejected("a", -1, ErrorCode.GROUP_ID_NOT_FOUND, "Group simple is not a consumer group.", {"group_id": "simple"}),
    *(
        Rejected(
            member_id,
            epoch,
            ErrorCode.GROUP_MAX_SIZE_REACHED,
            "The consumer group has reached its maximum capacity of 3 members.",
            fields,
            version,
        )
        for member_id, epoch, fields, version in [
            ("n", 0, {}, 1),
            ("", 0, {}, 0),
            ("n", 0, {"instance_id": "j"}, 1),
            ("n", 4, {}, 1),
            ("A", 4, {}, 1),
        ]
    ),
    # The member
    unknown("n", -1, "Member n is not a member of group g."),
    unknown(LONG, -1, f"Member {LONG} is not a member of group g."),
    unknown("a", 4, "Instance id gone is unknown.", instance_id="gone"),
    unknown("a", -1, "Instance id gone is unknown.", instance_id="gone"),
    unknown("a", -2, "Instance id gone is unknown.", instance_id="gone"),
    *(
        Rejected(
            "a",
            epoch,
            ErrorCode.FENCED_INSTANCE_ID,
            "Static member a with instance id i was fenced by member s.",
            {"instance_id": "i"},
        )
        for epoch in (4, 3, 8, -1, -2)
    ),
    *(
        Rejected(
            member_id,
            0,
            ErrorCode.UNRELEASED_INSTANCE_ID,
            f"Static member {member_id} with instance id i cannot join the group because the instance id is owned by "
            "s member.",
            {"instance_id": "i"},
        )
        for member_id in "sn"
    ),
    # Its epoch: the one before is accepted only with partitions that the member has. That of a was 2.
    fenced("a", 2),
    fenced("a", 5),
    fenced("a", 2**31 - 1),
    fenced("s", 3, instance_id="i"),
    fenced("a", 3),
    fenced("a", 3, topic_partitions=owned(TOPIC_ID)),
    fenced("a", 3, topic_partitions=owned(TOPIC_ID, 0)),
    fenced("a", 2, topic_partitions=owned(TOPIC_ID, 0)),
]


class Client:
    """A connection to the coordinator of group "g"."""

    def __init__(self, wire: WireClient) -> None:
        self.wire = wire

    def send(
        self, member_id: str, epoch: int, version: int = 1, group_id: str = "g", **fields: Any
    ) -> ConsumerGroupHeartbeatResponse:
        request = ConsumerGroupHeartbeatRequest(
            group_id=group_id,
            member_id=member_id,
            member_epoch=epoch,
            **({**EVERYTHING, **fields} if epoch == 0 else fields),
        )
        return self.wire.ask(request, ConsumerGroupHeartbeatResponse, version)


@pytest.fixture(scope="module")
def cluster() -> Iterator[FakeCluster]:
    with FakeCluster(1, topics={"orders": 6}, clock="manual", config={"group.consumer.max.size": 3}) as started:
        yield started


@pytest.fixture(scope="module")
def client(cluster: FakeCluster) -> Iterator[Client]:
    with WireClient(cluster.brokers[0]) as wire:
        client = Client(wire)
        commit = OffsetCommitRequestPartition(partition_index=0, committed_offset=0, committed_metadata=None)
        topics = [OffsetCommitRequestTopic(name="orders", partitions=[commit])]
        wire.ask(OffsetCommitRequest(group_id="simple", topics=topics), OffsetCommitResponse, 9)
        known = {name: client.send(name, 0, instance_id="i" if name == "s" else None) for name in "abs"}
        for name in [*"abs"] * 3:
            owned_now = known[name].assignment
            response = client.send(
                name, known[name].member_epoch, topic_partitions=owned_now and owned_now.topic_partitions
            )
            response.assignment = response.assignment or owned_now
            known[name] = response
        assert [member.member_epoch for member in cluster.group("g").describe().members] == [4, 4, 4]
        yield client


@subtest_for_each("rejected", REJECTED)
def test_rejected_heartbeats(cluster: FakeCluster, client: Client, rejected: Rejected) -> None:
    before = cluster.group("g").describe()
    response = client.send(rejected.member_id, rejected.epoch, rejected.version, **rejected.fields)
    assert (response.error_code, response.error_message) == (rejected.error, rejected.message)
    assert (response.member_id, response.member_epoch) == (None, 0)
    assert (response.heartbeat_interval_ms, response.assignment) == (0, None)
    assert cluster.group("g").describe() == before
    assert cluster.group("gone").describe().state == "Dead"


@subtest_for_each(
    ("fields", "partitions"),
    [
        ({"subscribed_topic_names": []}, 0),
        ({"subscribed_topic_names": ["orders"] * 3}, 6),
        ({"subscribed_topic_names": ["", "..", "a b", LONG, "Orders"]}, 0),
        ({"subscribed_topic_names": None, "subscribed_topic_regex": ""}, 0),
        ({"rebalance_timeout_ms": 0}, 6),
        ({"rebalance_timeout_ms": -2}, 6),
        ({"rebalance_timeout_ms": 2**31 - 1}, 6),
        ({"instance_id": LONG}, 6),
        ({"rack_id": LONG}, 6),
    ],
)
def test_joins_that_kafka_accepts(client: Client, fields: dict[str, Any], partitions: int) -> None:
    response = client.send(LONG, 0, group_id="odd", **fields)
    assert (response.error_code, response.error_message, response.member_epoch > 0) == (0, None, True)
    assert response.assignment is not None
    assert sum(len(topic.partitions) for topic in response.assignment.topic_partitions) == partitions
    assert client.send(LONG, -1, group_id="odd").error_code == 0


@subtest_for_each(
    "reported",
    [
        owned(TOPIC_ID, 0),
        owned(TOPIC_ID, -1, 7, 7),
        [*owned(TOPIC_ID, 0), *owned(TOPIC_ID, 0)],
        owned(b"\0" * 16, 2**31 - 1),
    ],
)
def test_partitions_that_a_member_does_not_have_are_ignored_in_its_epoch(
    cluster: FakeCluster, client: Client, reported: list[HeartbeatTopicPartitions]
) -> None:
    before = cluster.group("g").describe()
    response = client.send("a", 4, topic_partitions=reported)
    assert (response.error_code, response.member_epoch, response.assignment) == (0, 4, None)
    assert cluster.group("g").describe() == before


def test_groups_that_are_not_described(client: Client) -> None:
    names = ["", "gone", "simple", "gone", LONG, "g"]
    request = ConsumerGroupDescribeRequest(group_ids=names, include_authorized_operations=True)
    groups = client.wire.ask(request, ConsumerGroupDescribeResponse).groups
    assert [(group.group_id, group.error_code, group.error_message) for group in groups] == [
        ("", ErrorCode.INVALID_GROUP_ID, None),
        ("gone", UNKNOWN_GROUP, "Group gone not found."),
        ("simple", UNKNOWN_GROUP, "Group simple is not a consumer group."),
        ("gone", UNKNOWN_GROUP, "Group gone not found."),
        (LONG, UNKNOWN_GROUP, f"Group {LONG} not found."),
        ("g", 0, None),
    ]
    for group in groups[:-1]:
        assert (group.group_state, group.group_epoch, group.assignment_epoch, group.assignor_name) == ("", 0, 0, "")
        assert (group.members, group.authorized_operations) == ([], -(2**31))
    nothing = ConsumerGroupDescribeRequest(group_ids=[], include_authorized_operations=False)
    assert client.wire.ask(nothing, ConsumerGroupDescribeResponse).groups == []


def test_errors_that_are_not_about_the_request_have_no_message() -> None:
    config = {"offsets.topic.num.partitions": 1}
    with FakeCluster(2, topics={"orders": 6}, clock="manual", config=config) as cluster:
        coordinator, other = cluster.brokers if cluster.group("g").coordinator().node_id == 1 else cluster.brokers[::-1]
        with WireClient(coordinator) as first, WireClient(other) as second:

            def send(wire: WireClient) -> tuple[int, str | None]:
                response = Client(wire).send("a", 0)
                return response.error_code, response.error_message

            assert send(second) == (ErrorCode.NOT_COORDINATOR, None)
            for error, expected in [
                ("NOT_ENOUGH_REPLICAS", ErrorCode.COORDINATOR_NOT_AVAILABLE),
                ("NOT_LEADER_OR_FOLLOWER", ErrorCode.NOT_COORDINATOR),
                ("MESSAGE_TOO_LARGE", ErrorCode.UNKNOWN_SERVER_ERROR),
            ]:
                cluster.group("g").fail_append(error=error)
                assert send(first) == (expected, None)
            cluster.group("g").move_coordinator(other.node_id, load_ms=1_000)
            assert send(second) == (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, None)
    off = {"group.coordinator.rebalance.protocols": "classic"}
    with FakeCluster(1, config=off) as cluster, WireClient(cluster.brokers[0]) as wire:
        response = Client(wire).send("a", 0)
        assert (response.error_code, response.error_message) == (ErrorCode.UNSUPPORTED_VERSION, None)
        request = ConsumerGroupDescribeRequest(group_ids=["g"], include_authorized_operations=False)
        (group,) = wire.ask(request, ConsumerGroupDescribeResponse).groups
        assert (group.error_code, group.error_message) == (ErrorCode.UNSUPPORTED_VERSION, None)
