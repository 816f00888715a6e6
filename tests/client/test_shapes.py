"""Requests in the shapes of old versions."""

import pytest

from fakebroker.client.shapes import in_shape_of
from fakebroker.errors import ProtocolError
from fakebroker.protocol.codec import decode, encode
from fakebroker.protocol.messages.find_coordinator import FindCoordinatorRequest
from fakebroker.protocol.messages.heartbeat import HeartbeatRequest
from fakebroker.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from fakebroker.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from fakebroker.protocol.schema import Message

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
