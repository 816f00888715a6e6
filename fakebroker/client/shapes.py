"""Requests whose fields moved between versions, put into the shape of the version they are sent in.

What only came or went, the codec leaves out by itself. Knows no connection and no member.
"""

from typing import TypeVar

from fakebroker.errors import ProtocolError
from fakebroker.protocol.messages.fetch import FetchRequest
from fakebroker.protocol.messages.find_coordinator import FindCoordinatorRequest
from fakebroker.protocol.messages.leave_group import LeaveGroupRequest
from fakebroker.protocol.messages.offset_commit import OffsetCommitRequest
from fakebroker.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from fakebroker.protocol.messages.produce import ProduceRequest
from fakebroker.protocol.schema import Message

T = TypeVar("T")

LAST_VERSION_WITH_TOPIC_NAMES: dict[type[Message], int] = {
    ProduceRequest: 12,
    FetchRequest: 12,
    OffsetCommitRequest: 9,
    OffsetFetchRequest: 9,
}
"""Later versions name topics by id (KIP-516, KIP-848), which this client does not keep."""


def in_shape_of(version: int, request: Message) -> Message:
    """The request as this version asks for it; itself where that makes no difference.

    Args:
        version: The version that it will be sent in.
        request: In its newest shape: with lists of groups, members or keys, where there are such.

    Raises:
        ProtocolError: The version takes one group, member or key a request, and there are more.
    """
    match request:
        case FindCoordinatorRequest() if version < 4 and request.coordinator_keys:
            return FindCoordinatorRequest(key=_only(request, request.coordinator_keys), key_type=request.key_type)
        case LeaveGroupRequest() if version < 3 and request.members:
            member = _only(request, request.members)
            return LeaveGroupRequest(group_id=request.group_id, member_id=member.member_id)
        case OffsetFetchRequest() if version < 8 and request.groups:
            return _fetch_of_one_group(version, request)
    return request


def _fetch_of_one_group(version: int, request: OffsetFetchRequest) -> OffsetFetchRequest:
    group = _only(request, request.groups)
    topics = None
    if group.topics is not None:
        topics = [OffsetFetchRequestTopic(name=t.name, partition_indexes=t.partition_indexes) for t in group.topics]
    # Before version 7 there is no asking for stable offsets; Kafka's consumer then goes without.
    return OffsetFetchRequest(
        group_id=group.group_id, topics=topics, require_stable=request.require_stable and version >= 7
    )


def _only(request: Message, items: list[T]) -> T:
    if len(items) != 1:
        raise ProtocolError(f"{type(request).__name__}: {len(items)} in one request, where this version takes one")
    return items[0]
