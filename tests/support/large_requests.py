"""Requests with the most elements and tagged fields that Kafka 4.2.2 accepts, and with one more."""

import struct

from fakebroker.protocol.frames import request_frame
from fakebroker.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from fakebroker.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from fakebroker.protocol.messages.list_groups import ListGroupsRequest
from fakebroker.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from fakebroker.protocol.messages.list_transactions import ListTransactionsRequest
from fakebroker.protocol.schema import Message
from fakebroker.protocol.types import unsigned_varint
from tests.support.wire_client import Address, WireClient

ELEMENTS, TAGS = 1_000_000, 10_000
_CLIENT = "c"
_HEADER_TAGS_AT = struct.calcsize(">ihhih") + len(_CLIENT)


def _tags(count: int) -> tuple[tuple[int, bytes], ...]:
    return tuple((100 + number, b"") for number in range(count))


def _list_groups(states: int = 0, tags: int = 0) -> tuple[Message, int]:
    request = ListGroupsRequest(states_filter=[""] * states)
    request.unknown_tags = _tags(tags)
    return request, 5


def _list_reassignments(*partitions: int) -> tuple[Message, int]:
    """Return a request with an array of this many partitions for each topic."""
    topics = [ListPartitionReassignmentsTopics(name="t", partition_indexes=[0] * count) for count in partitions]
    return ListPartitionReassignmentsRequest(topics=topics), 0


def _list_transactions(producer_ids: int) -> tuple[Message, int]:
    return ListTransactionsRequest(state_filters=["Empty"], producer_id_filters=[1] * producer_ids), 0


def _describe_configs(keys: int) -> tuple[Message, int]:
    """Return a request without compact lengths."""
    resource = DescribeConfigsResource(resource_type=99, resource_name="x", configuration_keys=[""] * keys)
    return DescribeConfigsRequest(resources=[resource]), 1


def _leave_group(*tags: int) -> tuple[Message, int]:
    """Return a request with a member for each number of tagged fields."""
    members = [MemberIdentity(member_id="m") for _ in tags]
    for member, count in zip(members, tags, strict=True):
        member.unknown_tags = _tags(count)
    return LeaveGroupRequest(group_id="g", members=members), 5


def requests() -> dict[str, tuple[bytes, bool]]:
    """Return frames by what they have, and whether Kafka 4.2.2 answers them. Kafka 4.1 answers all."""
    messages: dict[str, tuple[tuple[Message, int], bool]] = {
        "elements": (_list_transactions(ELEMENTS), True),
        "two arrays": (_list_reassignments(ELEMENTS, ELEMENTS), True),
        "an element more": (_list_groups(states=ELEMENTS + 1), False),
        "an element of a fixed width more": (_list_transactions(ELEMENTS + 1), False),
        "an element more, without compact lengths": (_describe_configs(ELEMENTS + 1), False),
        "tagged fields": (_list_groups(tags=TAGS), True),
        "a tagged field more": (_list_groups(tags=TAGS + 1), False),
        "tagged fields of structs": (_leave_group(TAGS, TAGS), True),
        "a tagged field of a struct more": (_leave_group(0, TAGS + 1), False),
    }
    frames = {
        name: (request_frame(message, version, 1, _CLIENT), is_answered)
        for name, ((message, version), is_answered) in messages.items()
    }
    for name, count in (("tagged fields of the header", TAGS), ("a tagged field of the header more", TAGS + 1)):
        frames[name] = _with_header_tags(count), count == TAGS
    return frames


def _with_header_tags(count: int) -> bytes:
    frame = request_frame(*_list_groups(), 1, _CLIENT)
    tags = unsigned_varint(count) + b"".join(unsigned_varint(tag) + b"\0" for tag, _ in _tags(count))
    content = frame[4:_HEADER_TAGS_AT] + tags + frame[_HEADER_TAGS_AT + 1 :]
    return struct.pack(">i", len(content)) + content


def answered(broker: Address, frames: dict[str, tuple[bytes, bool]]) -> dict[str, bool]:
    """Send each frame on a connection of its own. Return which ones are answered; others close the connection."""
    found = {}
    for name, (frame, _) in frames.items():
        with WireClient(broker) as client:
            client.socket.sendall(frame)
            found[name] = not client.is_closed_by_broker()
    return found
