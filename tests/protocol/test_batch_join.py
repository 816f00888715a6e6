"""JoinGroup version 10, byte by byte: no other codec has it, so its layout stands here (KAFKA-8397)."""

from fakebroker.protocol.codec import decode, encode
from fakebroker.protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestMember,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
    JoinGroupResponseMember,
    JoinGroupResponseResult,
)
from tests.protocol.test_golden import layout

REQUEST = JoinGroupRequest(
    group_id="g",
    session_timeout_ms=10_000,
    rebalance_timeout_ms=60_000,
    protocol_type="consumer",
    join_group_members=[
        JoinGroupRequestMember(member_id="m", protocols=[JoinGroupRequestProtocol(name="range", metadata=b"\1")]),
        JoinGroupRequestMember(member_id="", group_instance_id="x", protocols=[]),
    ],
)
RESPONSE = JoinGroupResponse(
    generation_id=2,
    protocol_type="consumer",
    protocol_name="range",
    leader="m",
    members=[JoinGroupResponseMember(member_id="m", metadata=b"\1")],
    member_join_response_list=[
        JoinGroupResponseResult(
            member=JoinGroupResponseMember(member_id="x-1", group_instance_id="x", metadata=b""), error_code=92
        )
    ],
)


def test_the_request() -> None:
    raw = layout(
        """
        02 67                    # group_id
        00 00 27 10              # session_timeout_ms
        00 00 ea 60              # rebalance_timeout_ms
        09 63 6f 6e 73 75 6d 65 72  # protocol_type
        00                       # reason: null
        03                       # join_group_members: two
        02 6d                    # member_id
        00                       # group_instance_id: null
        02                       # protocols: one
        06 72 61 6e 67 65        # name
        02 01                    # metadata
        00  00                   # no tagged fields in the protocol, in the member
        01                       # member_id: empty
        02 78                    # group_instance_id
        01                       # protocols: none
        00  00                   # no tagged fields in the member, in the request
        """
    )
    assert encode(REQUEST, 10) == raw
    assert decode(JoinGroupRequest, raw, 10) == REQUEST


def test_the_response() -> None:
    raw = layout(
        """
        00 00 00 00              # throttle_time_ms
        00 00 00 02              # generation_id
        09 63 6f 6e 73 75 6d 65 72  # protocol_type
        06 72 61 6e 67 65        # protocol_name
        02 6d                    # leader
        02                       # members: one
        02 6d  00  02 01  00     # member_id, group_instance_id: null, metadata, no tagged fields
        02                       # member_join_response_list: one
        04 78 2d 31  02 78  01  00  # member: member_id, group_instance_id, metadata: empty, no tagged fields
        00 5c                    # error_code: DUPLICATE_RESOURCE
        00  00                   # no tagged fields in the result, in the response
        """
    )
    assert encode(RESPONSE, 10) == raw
    assert decode(JoinGroupResponse, raw, 10) == RESPONSE
