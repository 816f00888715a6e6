"""Conversion of requests and responses between versions, and the versions that requests need."""

from typing import Any

import pytest

from fakebroker.client.versions import convert_request, convert_response, versions_needed, versions_of
from fakebroker.errors import ProtocolError
from fakebroker.proposals.batch_join.messages import BatchJoinGroupRequest
from fakebroker.protocol.codec import decode, encode
from fakebroker.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from fakebroker.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopicsRequest,
)
from fakebroker.protocol.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from fakebroker.protocol.messages.heartbeat import HeartbeatRequest
from fakebroker.protocol.messages.join_group import JoinGroupRequest
from fakebroker.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from fakebroker.protocol.messages.list_groups import ListGroupsRequest
from fakebroker.protocol.messages.list_offsets import ListOffsetsRequest
from fakebroker.protocol.messages.list_transactions import ListTransactionsRequest
from fakebroker.protocol.messages.metadata import MetadataRequest
from fakebroker.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from fakebroker.protocol.schema import Versions

FIND_COORDINATOR = FindCoordinatorRequest(coordinator_keys=["g"])
LEAVE_GROUP = LeaveGroupRequest(group_id="g", members=[MemberIdentity(member_id="m")])
OFFSET_FETCH = OffsetFetchRequest(
    groups=[
        OffsetFetchRequestGroup(group_id="g", topics=[OffsetFetchRequestTopics(name="t", partition_indexes=[0, 1])])
    ],
    require_stable=True,
)
OFFSET_FETCH_ALL = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=None)])


def test_a_request_is_converted_to_its_version(subtests: pytest.Subtests) -> None:
    topics = [OffsetFetchRequestTopic(name="t", partition_indexes=[0, 1])]
    for request, version, expected in (
        (FIND_COORDINATOR, 4, FIND_COORDINATOR),
        (FIND_COORDINATOR, 3, FindCoordinatorRequest(key="g")),
        (FindCoordinatorRequest(key="g"), 3, FindCoordinatorRequest(key="g")),
        (LEAVE_GROUP, 3, LEAVE_GROUP),
        (LEAVE_GROUP, 2, LeaveGroupRequest(group_id="g", member_id="m")),
        (OFFSET_FETCH, 8, OFFSET_FETCH),
        (OFFSET_FETCH, 7, OffsetFetchRequest(group_id="g", topics=topics, require_stable=True)),
        (OFFSET_FETCH, 6, OffsetFetchRequest(group_id="g", topics=topics, require_stable=False)),
        (OFFSET_FETCH_ALL, 2, OffsetFetchRequest(group_id="g", topics=None)),
    ):
        with subtests.test(request=request, version=version):
            converted = convert_request(request, version)
            assert converted == expected
            assert decode(type(converted), encode(converted, version), version) == converted


def test_a_request_whose_layout_has_not_changed_is_not_copied() -> None:
    heartbeat = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
    assert convert_request(heartbeat, 0) is heartbeat


def test_several_groups_cannot_be_converted_to_a_version_for_one_group(subtests: pytest.Subtests) -> None:
    for request in (
        FindCoordinatorRequest(coordinator_keys=["g", "h"]),
        LeaveGroupRequest(group_id="g", members=LEAVE_GROUP.members * 2),
        OffsetFetchRequest(groups=OFFSET_FETCH.groups * 2),
    ):
        with (
            subtests.test(request=request),
            pytest.raises(ProtocolError, match="2 groups, members or keys, this version supports one"),
        ):
            convert_request(request, 0)


COORDINATOR: dict[str, Any] = {"error_code": 15, "error_message": "gone", "node_id": 3, "host": "h", "port": 9}
OFFSET: dict[str, Any] = {
    "partition_index": 1,
    "committed_offset": 5,
    "committed_leader_epoch": 2,
    "metadata": "m",
    "error_code": 0,
}


def test_a_response_is_converted_to_the_newest_version(subtests: pytest.Subtests) -> None:
    coordinators = FindCoordinatorResponse(throttle_time_ms=7, coordinators=[Coordinator(key="g", **COORDINATOR)])
    offsets = OffsetFetchResponse(
        throttle_time_ms=7,
        groups=[
            OffsetFetchResponseGroup(
                group_id="g",
                topics=[OffsetFetchResponseTopics(name="t", partitions=[OffsetFetchResponsePartitions(**OFFSET)])],
                error_code=16,
            )
        ],
    )
    old_offsets = OffsetFetchResponse(
        throttle_time_ms=7,
        topics=[OffsetFetchResponseTopic(name="t", partitions=[OffsetFetchResponsePartition(**OFFSET)])],
        error_code=16,
    )
    for request, response, expected in (
        (FIND_COORDINATOR, FindCoordinatorResponse(throttle_time_ms=7, **COORDINATOR), coordinators),
        (FIND_COORDINATOR, coordinators, coordinators),
        (OFFSET_FETCH, old_offsets, offsets),
        (OFFSET_FETCH, offsets, offsets),
    ):
        with subtests.test(response=response):
            assert convert_response(request, response) == expected


def test_the_response_to_a_request_of_an_old_version_is_not_converted() -> None:
    response = FindCoordinatorResponse(**COORDINATOR)
    assert convert_response(FindCoordinatorRequest(key="g"), response) is response


def create_topics(partitions: int, replicas: int, *assignments: CreatableReplicaAssignment) -> CreateTopicsRequest:
    topic = CreatableTopic(
        name="t", num_partitions=partitions, replication_factor=replicas, assignments=[*assignments], configs=[]
    )
    return CreateTopicsRequest(topics=[topic])


def test_the_content_of_a_request_may_limit_its_versions(subtests: pytest.Subtests) -> None:
    for request, versions in (
        (FIND_COORDINATOR, None),
        (FindCoordinatorRequest(coordinator_keys=["t"], key_type=1), Versions(1, 6)),
        (OFFSET_FETCH, None),
        (OFFSET_FETCH_ALL, Versions(2, 9)),
        (ListOffsetsRequest(replica_id=-1, topics=[]), None),
        (ListOffsetsRequest(replica_id=-1, isolation_level=1, topics=[]), Versions(2, 11)),
        (ListTransactionsRequest(state_filters=["Ongoing"], producer_id_filters=[1]), None),
        (ListTransactionsRequest(state_filters=[], producer_id_filters=[], duration_filter=0), Versions(1, 2)),
        (
            ListTransactionsRequest(state_filters=[], producer_id_filters=[], transactional_id_pattern=""),
            Versions(2, 2),
        ),
        (MetadataRequest(topics=None), None),
        (MetadataRequest(topics=[], allow_auto_topic_creation=False), Versions(4, 13)),
        (LEAVE_GROUP, None),
        (LeaveGroupRequest(group_id="g", members=LEAVE_GROUP.members * 2), Versions(3, 5)),
        (
            LeaveGroupRequest(group_id="g", members=[MemberIdentity(member_id="", group_instance_id="i")]),
            Versions(3, 5),
        ),
        (ConsumerGroupHeartbeatRequest(group_id="g", member_id="m", member_epoch=0), None),
        (
            ConsumerGroupHeartbeatRequest(group_id="g", member_id="m", member_epoch=0, subscribed_topic_regex=""),
            Versions(1, 1),
        ),
        (ListGroupsRequest(), None),
        (ListGroupsRequest(states_filter=["Empty"]), Versions(4, 5)),
        (ListGroupsRequest(states_filter=["Empty"], types_filter=["classic"]), Versions(5, 5)),
        (create_topics(1, 1), None),
        (create_topics(-1, 1), Versions(4, 7)),
        (create_topics(1, -1), Versions(4, 7)),
        (create_topics(-1, -1, CreatableReplicaAssignment(partition_index=0, broker_ids=[1])), None),
    ):
        with subtests.test(request=request):
            assert versions_needed(request) == versions


def test_members_join_in_released_versions() -> None:
    """Version 10 of JoinGroup belongs to the proposal "batch-join"."""
    assert versions_of(JoinGroupRequest) == Versions(0, 9)
    assert versions_of(BatchJoinGroupRequest) == Versions(10, 10)
