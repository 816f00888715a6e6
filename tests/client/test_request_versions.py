"""Requests in the shapes of old versions, their answers out of them, and the versions that requests need."""

from typing import Any

import pytest

from fakebroker.client.versions import in_newest_shape, in_shape_of, versions_needed, versions_of
from fakebroker.errors import ProtocolError
from fakebroker.protocol.codec import decode, encode
from fakebroker.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopicsRequest,
)
from fakebroker.protocol.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from fakebroker.protocol.messages.heartbeat import HeartbeatRequest
from fakebroker.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestMember
from fakebroker.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from fakebroker.protocol.messages.list_groups import ListGroupsRequest
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
from fakebroker.protocol.schema import Message, Versions

FIND = FindCoordinatorRequest(coordinator_keys=["g"])
LEAVE = LeaveGroupRequest(group_id="g", members=[MemberIdentity(member_id="m")])
FETCH = OffsetFetchRequest(
    groups=[
        OffsetFetchRequestGroup(group_id="g", topics=[OffsetFetchRequestTopics(name="t", partition_indexes=[0, 1])])
    ],
    require_stable=True,
)
FETCH_ALL = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=None)])
TOPICS = [OffsetFetchRequestTopic(name="t", partition_indexes=[0, 1])]


@pytest.mark.parametrize(
    ("request_", "version", "shape"),
    [
        (FIND, 4, FIND),
        (FIND, 3, FindCoordinatorRequest(key="g")),
        (FindCoordinatorRequest(key="g"), 3, FindCoordinatorRequest(key="g")),
        (LEAVE, 3, LEAVE),
        (LEAVE, 2, LeaveGroupRequest(group_id="g", member_id="m")),
        (FETCH, 8, FETCH),
        (FETCH, 7, OffsetFetchRequest(group_id="g", topics=TOPICS, require_stable=True)),
        (FETCH, 6, OffsetFetchRequest(group_id="g", topics=TOPICS, require_stable=False)),
        (FETCH_ALL, 2, OffsetFetchRequest(group_id="g", topics=None)),
    ],
)
def test_a_request_takes_the_shape_of_its_version(request_: Message, version: int, shape: Message) -> None:
    made = in_shape_of(version, request_)
    assert made == shape
    assert decode(type(made), encode(made, version), version) == made


def test_a_request_that_kept_its_shape_is_left_alone() -> None:
    heartbeat = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
    assert in_shape_of(0, heartbeat) is heartbeat


@pytest.mark.parametrize(
    "request_",
    [
        FindCoordinatorRequest(coordinator_keys=["g", "h"]),
        LeaveGroupRequest(group_id="g", members=LEAVE.members * 2),
        OffsetFetchRequest(groups=FETCH.groups * 2),
    ],
)
def test_several_do_not_go_into_a_version_that_takes_one(request_: Message) -> None:
    with pytest.raises(ProtocolError, match="2 in one request, where this version takes one"):
        in_shape_of(0, request_)


FOUND: dict[str, Any] = {"error_code": 15, "error_message": "gone", "node_id": 3, "host": "h", "port": 9}
FETCHED: dict[str, Any] = {
    "partition_index": 1,
    "committed_offset": 5,
    "committed_leader_epoch": 2,
    "metadata": "m",
    "error_code": 0,
}
NEW_FOUND = FindCoordinatorResponse(throttle_time_ms=7, coordinators=[Coordinator(key="g", **FOUND)])
NEW_FETCHED = OffsetFetchResponse(
    throttle_time_ms=7,
    groups=[
        OffsetFetchResponseGroup(
            group_id="g",
            topics=[OffsetFetchResponseTopics(name="t", partitions=[OffsetFetchResponsePartitions(**FETCHED)])],
            error_code=16,
        )
    ],
)


@pytest.mark.parametrize(
    ("request_", "told", "newest"),
    [
        (FIND, FindCoordinatorResponse(throttle_time_ms=7, **FOUND), NEW_FOUND),
        (FIND, NEW_FOUND, NEW_FOUND),
        (
            FETCH,
            OffsetFetchResponse(
                throttle_time_ms=7,
                topics=[OffsetFetchResponseTopic(name="t", partitions=[OffsetFetchResponsePartition(**FETCHED)])],
                error_code=16,
            ),
            NEW_FETCHED,
        ),
        (FETCH, NEW_FETCHED, NEW_FETCHED),
    ],
)
def test_an_answer_is_read_in_the_newest_shape(request_: Message, told: Message, newest: Message) -> None:
    assert in_newest_shape(request_, told) == newest


def test_a_request_in_an_old_shape_is_answered_in_it() -> None:
    old = FindCoordinatorResponse(**FOUND)
    assert in_newest_shape(FindCoordinatorRequest(key="g"), old) is old


def topics(partitions: int, replicas: int, *assignments: CreatableReplicaAssignment) -> CreateTopicsRequest:
    topic = CreatableTopic(
        name="t", num_partitions=partitions, replication_factor=replicas, assignments=[*assignments], configs=[]
    )
    return CreateTopicsRequest(topics=[topic])


def join(*members: JoinGroupRequestMember) -> JoinGroupRequest:
    return JoinGroupRequest(group_id="g", session_timeout_ms=1, protocol_type="consumer", join_group_members=[*members])


@pytest.mark.parametrize(
    ("request_", "versions"),
    [
        (FIND, None),
        (FindCoordinatorRequest(coordinator_keys=["t"], key_type=1), Versions(1, 6)),
        (FETCH, None),
        (FETCH_ALL, Versions(2, 9)),
        (ListGroupsRequest(), None),
        (ListGroupsRequest(states_filter=["Empty"]), Versions(4, 5)),
        (ListGroupsRequest(states_filter=["Empty"], types_filter=["classic"]), Versions(5, 5)),
        (topics(1, 1), None),
        (topics(-1, 1), Versions(4, 7)),
        (topics(1, -1), Versions(4, 7)),
        (topics(-1, -1, CreatableReplicaAssignment(partition_index=0, broker_ids=[1])), None),
        (join(), None),
        (join(JoinGroupRequestMember(member_id="", protocols=[])), Versions(10, 10)),
    ],
)
def test_what_is_asked_may_need_versions_of_its_own(request_: Message, versions: Versions | None) -> None:
    assert versions_needed(request_) == versions


def test_members_join_in_versions_of_kafka() -> None:
    assert versions_of(JoinGroupRequest) == Versions(0, 9)
