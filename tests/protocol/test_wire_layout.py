"""Messages and frames as bytes written by hand from Kafka's definitions, and from the definitions of proposals.

These are samples: `test_kafka_python.py` and `test_kio.py` compare every version with other codecs.
"""

import pytest

from fakebroker.proposals.batch_join.messages import (
    BatchJoinGroupRequest,
    BatchJoinGroupRequestMember,
    BatchJoinGroupResponse,
    BatchJoinGroupResponseResult,
)
from fakebroker.protocol.codec import decode, encode
from fakebroker.protocol.frames import FrameBuffer, read_request_header, read_response, request_frame, response_frame
from fakebroker.protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)
from fakebroker.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from fakebroker.protocol.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from fakebroker.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from fakebroker.protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
    JoinGroupResponseMember,
)
from fakebroker.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
    ListOffsetsTopicResponse,
)
from fakebroker.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from fakebroker.protocol.schema import Message
from tests.support.annotated_hex import annotated_hex

HEARTBEAT = HeartbeatRequest(group_id="grp", generation_id=7, member_id="m-1")
STATIC_HEARTBEAT = HeartbeatRequest(group_id="grp", generation_id=7, member_id="m-1", group_instance_id="i")
JOIN = JoinGroupRequest(
    group_id="g",
    session_timeout_ms=10000,
    rebalance_timeout_ms=60000,
    member_id="",
    group_instance_id="i",
    protocol_type="consumer",
    protocols=[JoinGroupRequestProtocol(name="range", metadata=b"\x00\x01")],
)

FETCH = FetchRequest(
    max_wait_ms=500,
    min_bytes=1,
    topics=[FetchTopic(topic="t", partitions=[FetchPartition(partition=3, fetch_offset=7, partition_max_bytes=2**20)])],
)
FETCHED = FetchResponse(
    responses=[
        FetchableTopicResponse(
            topic="t",
            partitions=[PartitionData(partition_index=3, error_code=0, high_watermark=9, records=b"ab")],
        )
    ]
)
PRODUCED = ProduceResponse(
    responses=[
        TopicProduceResponse(
            name="t", partition_responses=[PartitionProduceResponse(index=3, error_code=0, base_offset=7)]
        )
    ]
)

KAFKA_MESSAGES: list[tuple[Message, int, str]] = [
    (
        ProduceRequest(
            acks=-1,
            timeout_ms=1000,
            topic_data=[TopicProduceData(name="t", partition_data=[PartitionProduceData(index=3, records=b"ab")])],
        ),
        2,
        """
        ff ff                    # acks: -1; transactional_id comes in version 3
        00 00 03 e8              # timeout_ms: 1000
        00 00 00 01              # topic_data: 1
        00 01 74                 # name: "t"
        00 00 00 01              # partition_data: 1
        00 00 00 03              # index
        00 00 00 02 61 62        # records: int32 length, two bytes
        """,
    ),
    (
        PRODUCED,
        0,
        """
        00 00 00 01              # responses: 1
        00 01 74                 # name: "t"
        00 00 00 01              # partition_responses: 1
        00 00 00 03              # index
        00 00                    # error_code
        00 00 00 00 00 00 00 07  # base_offset; throttle_time_ms comes in version 1
        """,
    ),
    (
        PRODUCED,
        2,
        """
        00 00 00 01              # responses: 1
        00 01 74                 # name: "t"
        00 00 00 01              # partition_responses: 1
        00 00 00 03              # index
        00 00                    # error_code
        00 00 00 00 00 00 00 07  # base_offset
        ff ff ff ff ff ff ff ff  # log_append_time_ms: none
        00 00 00 00              # throttle_time_ms
        """,
    ),
    (
        FETCH,
        2,
        """
        ff ff ff ff              # replica_id: a consumer
        00 00 01 f4              # max_wait_ms: 500
        00 00 00 01              # min_bytes; max_bytes comes in version 3
        00 00 00 01              # topics: 1
        00 01 74                 # topic: "t"
        00 00 00 01              # partitions: 1
        00 00 00 03              # partition
        00 00 00 00 00 00 00 07  # fetch_offset
        00 10 00 00              # partition_max_bytes: 1 MiB
        """,
    ),
    (
        FETCH,
        4,
        """
        ff ff ff ff              # replica_id: a consumer
        00 00 01 f4              # max_wait_ms: 500
        00 00 00 01              # min_bytes
        7f ff ff ff              # max_bytes: no limit
        00                       # isolation_level: read uncommitted
        00 00 00 01              # topics: 1
        00 01 74                 # topic: "t"
        00 00 00 01              # partitions: 1
        00 00 00 03              # partition
        00 00 00 00 00 00 00 07  # fetch_offset
        00 10 00 00              # partition_max_bytes: 1 MiB
        """,
    ),
    (
        FETCHED,
        0,
        """
        00 00 00 01              # responses: 1; throttle_time_ms comes in version 1
        00 01 74                 # topic: "t"
        00 00 00 01              # partitions: 1
        00 00 00 03              # partition_index
        00 00                    # error_code
        00 00 00 00 00 00 00 09  # high_watermark
        00 00 00 02 61 62        # records: int32 length, two bytes
        """,
    ),
    (
        FETCHED,
        4,
        """
        00 00 00 00              # throttle_time_ms
        00 00 00 01              # responses: 1
        00 01 74                 # topic: "t"
        00 00 00 01              # partitions: 1
        00 00 00 03              # partition_index
        00 00                    # error_code
        00 00 00 00 00 00 00 09  # high_watermark
        ff ff ff ff ff ff ff ff  # last_stable_offset: none
        00 00 00 00              # aborted_transactions: none, not null
        00 00 00 02 61 62        # records: int32 length, two bytes
        """,
    ),
    (
        ListOffsetsRequest(
            replica_id=-1,
            topics=[
                ListOffsetsTopic(
                    name="t", partitions=[ListOffsetsPartition(partition_index=3, timestamp=-1, max_num_offsets=2)]
                )
            ],
        ),
        0,
        """
        ff ff ff ff              # replica_id: a consumer
        00 00 00 01              # topics: 1
        00 01 74                 # name: "t"
        00 00 00 01              # partitions: 1
        00 00 00 03              # partition_index
        ff ff ff ff ff ff ff ff  # timestamp: the latest
        00 00 00 02              # max_num_offsets
        """,
    ),
    (
        ListOffsetsResponse(
            topics=[
                ListOffsetsTopicResponse(
                    name="t",
                    partitions=[
                        ListOffsetsPartitionResponse(partition_index=3, error_code=0, old_style_offsets=[9, 0])
                    ],
                )
            ]
        ),
        0,
        """
        00 00 00 01              # topics: 1
        00 01 74                 # name: "t"
        00 00 00 01              # partitions: 1
        00 00 00 03              # partition_index
        00 00                    # error_code
        00 00 00 02              # old_style_offsets: 2
        00 00 00 00 00 00 00 09
        00 00 00 00 00 00 00 00
        """,
    ),
    (
        FindCoordinatorRequest(key="grp"),
        0,
        """
        00 03 67 72 70           # key: int16 length, "grp"
        """,
    ),
    (
        FindCoordinatorRequest(key="grp", key_type=1),
        3,
        """
        04 67 72 70              # key: compact, 3 + 1, "grp"
        01                       # key_type: transaction
        00                       # no tagged fields
        """,
    ),
    (
        FindCoordinatorRequest(coordinator_keys=["a", "bc"]),
        4,
        """
        00                       # key_type: group; `key` is gone
        03                       # coordinator_keys: 2 + 1
        02 61                    # "a"
        03 62 63                 # "bc"
        00                       # no tagged fields
        """,
    ),
    (
        FindCoordinatorResponse(error_code=0, node_id=2, host="h", port=9092),
        0,
        """
        00 00                    # error_code
        00 00 00 02              # node_id
        00 01 68                 # host: "h"
        00 00 23 84              # port: 9092
        """,
    ),
    (
        FindCoordinatorResponse(throttle_time_ms=1, error_code=15, error_message=None, node_id=-1, host="", port=-1),
        3,
        """
        00 00 00 01              # throttle_time_ms
        00 0f                    # error_code: COORDINATOR_NOT_AVAILABLE
        00                       # error_message: null
        ff ff ff ff              # node_id: -1
        01                       # host: empty
        ff ff ff ff              # port: -1
        00                       # no tagged fields
        """,
    ),
    (
        FindCoordinatorResponse(
            coordinators=[Coordinator(key="a", node_id=2, host="h", port=9092, error_code=0, error_message="")]
        ),
        4,
        """
        00 00 00 00              # throttle_time_ms
        02                       # coordinators: 1 + 1
        02 61                    # key: "a"
        00 00 00 02              # node_id
        02 68                    # host: "h"
        00 00 23 84              # port: 9092
        00 00                    # error_code
        01                       # error_message: empty, not null
        00                       # no tagged fields in the coordinator
        00                       # nor in the response
        """,
    ),
    (
        HEARTBEAT,
        0,
        """
        00 03 67 72 70           # group_id: "grp"
        00 00 00 07              # generation_id
        00 03 6d 2d 31           # member_id: "m-1"
        """,
    ),
    (
        HEARTBEAT,
        3,
        """
        00 03 67 72 70           # group_id: "grp"
        00 00 00 07              # generation_id
        00 03 6d 2d 31           # member_id: "m-1"
        ff ff                    # group_instance_id: null, a length of -1
        """,
    ),
    (
        STATIC_HEARTBEAT,
        4,
        """
        04 67 72 70              # group_id: compact, 3 + 1, "grp"
        00 00 00 07              # generation_id
        04 6d 2d 31              # member_id: "m-1"
        02 69                    # group_instance_id: "i"
        00                       # no tagged fields
        """,
    ),
    (
        HeartbeatResponse(error_code=27),
        0,
        """
        00 1b                    # error_code: REBALANCE_IN_PROGRESS
        """,
    ),
    (
        JOIN,
        5,
        """
        00 01 67                 # group_id: "g"
        00 00 27 10              # session_timeout_ms: 10000
        00 00 ea 60              # rebalance_timeout_ms: 60000
        00 00                    # member_id: empty
        00 01 69                 # group_instance_id: "i"
        00 08 63 6f 6e 73 75 6d 65 72  # protocol_type: "consumer"
        00 00 00 01              # protocols: 1
        00 05 72 61 6e 67 65     # name: "range"
        00 00 00 02 00 01        # metadata: int32 length, two bytes
        """,
    ),
    (
        JOIN,
        9,
        """
        02 67                    # group_id: "g"
        00 00 27 10              # session_timeout_ms: 10000
        00 00 ea 60              # rebalance_timeout_ms: 60000
        01                       # member_id: empty
        02 69                    # group_instance_id: "i"
        09 63 6f 6e 73 75 6d 65 72  # protocol_type: "consumer"
        02                       # protocols: 1 + 1
        06 72 61 6e 67 65        # name: "range"
        03 00 01                 # metadata: 2 + 1, two bytes
        00                       # no tagged fields in the protocol
        00                       # reason: null
        00                       # no tagged fields
        """,
    ),
    (
        JoinGroupResponse(
            generation_id=1,
            protocol_type="consumer",
            protocol_name=None,
            leader="",
            skip_assignment=True,
            member_id="m",
            members=[JoinGroupResponseMember(member_id="m", metadata=b"")],
        ),
        9,
        """
        00 00 00 00              # throttle_time_ms
        00 00                    # error_code
        00 00 00 01              # generation_id
        09 63 6f 6e 73 75 6d 65 72  # protocol_type: "consumer"
        00                       # protocol_name: null
        01                       # leader: empty
        01                       # skip_assignment: true
        02 6d                    # member_id: "m"
        02                       # members: 1 + 1
        02 6d                    # member_id: "m"
        00                       # group_instance_id: null
        01                       # metadata: empty
        00                       # no tagged fields in the member
        00                       # no tagged fields
        """,
    ),
]

JOIN_GROUP_V10: list[tuple[Message, int, str]] = [
    (
        BatchJoinGroupRequest(
            group_id="g",
            session_timeout_ms=10_000,
            rebalance_timeout_ms=60_000,
            protocol_type="consumer",
            join_group_members=[
                BatchJoinGroupRequestMember(
                    member_id="m", protocols=[JoinGroupRequestProtocol(name="range", metadata=b"\1")]
                ),
                BatchJoinGroupRequestMember(member_id="", group_instance_id="x", protocols=[]),
            ],
        ),
        10,
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
        """,
    ),
    (
        BatchJoinGroupResponse(
            generation_id=2,
            protocol_type="consumer",
            protocol_name="range",
            leader="m",
            members=[JoinGroupResponseMember(member_id="m", metadata=b"\1")],
            member_join_response_list=[
                BatchJoinGroupResponseResult(
                    member=JoinGroupResponseMember(member_id="x-1", group_instance_id="x", metadata=b""), error_code=92
                )
            ],
        ),
        10,
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
        """,
    ),
]
"""JoinGroup version 10 of KAFKA-8397 (batch-join), which no other codec has."""

REQUEST_FRAMES: list[tuple[Message, int, str | None, str]] = [
    (
        HEARTBEAT,
        0,
        "py",
        """
        00 00 00 1a              # size: 26
        00 0c 00 00              # api_key: Heartbeat, api_version
        00 00 00 05              # correlation_id
        00 02 70 79              # client_id: "py"
        00 03 67 72 70           # group_id: "grp"
        00 00 00 07              # generation_id
        00 03 6d 2d 31           # member_id: "m-1"
        """,
    ),
    (
        ApiVersionsRequest(),
        0,
        None,
        """
        00 00 00 0a              # size: 10
        00 12 00 00              # api_key: ApiVersions, api_version
        00 00 00 05              # correlation_id
        ff ff                    # client_id: null
        """,
    ),
    (
        ApiVersionsRequest(client_software_name="kio", client_software_version="1"),
        3,
        "py",
        """
        00 00 00 14              # size: 20
        00 12 00 03              # api_key: ApiVersions, api_version
        00 00 00 05              # correlation_id
        00 02 70 79              # client_id: "py", never compact, even in header version 2
        00                       # no tagged fields in the header
        04 6b 69 6f              # client_software_name: "kio"
        02 31                    # client_software_version: "1"
        00                       # no tagged fields
        """,
    ),
]

RESPONSE_FRAMES: list[tuple[Message, int, str]] = [
    (
        HeartbeatResponse(error_code=25),
        4,
        """
        00 00 00 0c              # size: 12
        00 00 00 05              # correlation_id
        00                       # no tagged fields in the header, which is version 1
        00 00 00 00              # throttle_time_ms
        00 19                    # error_code: UNKNOWN_MEMBER_ID
        00                       # no tagged fields
        """,
    ),
    (
        ApiVersionsResponse(error_code=35, api_keys=[ApiVersion(api_key=18, min_version=0, max_version=4)]),
        0,
        """
        00 00 00 10              # size: 16
        00 00 00 05              # correlation_id
        00 23                    # error_code: UNSUPPORTED_VERSION
        00 00 00 01              # api_keys: 1
        00 12 00 00 00 04        # ApiVersions, 0-4
        """,
    ),
    (
        ApiVersionsResponse(api_keys=[ApiVersion(api_key=12, min_version=0, max_version=4)]),
        3,
        """
        00 00 00 13              # size: 19
        00 00 00 05              # correlation_id; header version 0 although the message is flexible
        00 00                    # error_code
        02                       # api_keys: 1 + 1
        00 0c 00 00 00 04        # Heartbeat, 0-4
        00                       # no tagged fields in it
        00 00 00 00              # throttle_time_ms
        00                       # no tagged fields: all four have their defaults
        """,
    ),
    (
        ApiVersionsResponse(
            api_keys=[],
            supported_features=[SupportedFeatureKey(name="group.version", min_version=0, max_version=1)],
            finalized_features_epoch=9,
            finalized_features=[FinalizedFeatureKey(name="group.version", max_version_level=1, min_version_level=1)],
            zk_migration_ready=True,
        ),
        4,
        """
        00 00 00 45              # size: 69
        00 00 00 05              # correlation_id
        00 00                    # error_code
        01                       # api_keys: none
        00 00 00 00              # throttle_time_ms
        04                       # 4 tagged fields
        00 14                    # tag 0, 20 bytes: supported_features
        02                       # 1 + 1
        0e 67 72 6f 75 70 2e 76 65 72 73 69 6f 6e  # name: "group.version"
        00 00 00 01              # min_version, max_version
        00                       # no tagged fields
        01 08                    # tag 1, 8 bytes: finalized_features_epoch
        00 00 00 00 00 00 00 09
        02 14                    # tag 2, 20 bytes: finalized_features
        02                       # 1 + 1
        0e 67 72 6f 75 70 2e 76 65 72 73 69 6f 6e  # name: "group.version"
        00 01 00 01              # max_version_level, min_version_level
        00                       # no tagged fields
        03 01                    # tag 3, 1 byte: zk_migration_ready
        01
        """,
    ),
]


def test_messages(subtests: pytest.Subtests) -> None:
    for message, version, text in KAFKA_MESSAGES + JOIN_GROUP_V10:
        with subtests.test(f"{type(message).__name__} v{version}"):
            assert encode(message, version).hex(" ") == annotated_hex(text).hex(" ")
            assert decode(type(message), annotated_hex(text), version) == message


def test_request_frames(subtests: pytest.Subtests) -> None:
    for message, version, client_id, text in REQUEST_FRAMES:
        with subtests.test(f"{type(message).__name__} v{version}"):
            assert request_frame(message, version, 5, client_id).hex(" ") == annotated_hex(text).hex(" ")
            (frame,) = FrameBuffer().feed(annotated_hex(text))
            header, position = read_request_header(frame, version in message.FLEXIBLE)
            assert (header.api_key, header.api_version, header.correlation_id) == (message.API_KEY, version, 5)
            assert header.client_id == client_id
            assert decode(type(message), frame, version, position) == message


def test_response_frames(subtests: pytest.Subtests) -> None:
    for message, version, text in RESPONSE_FRAMES:
        with subtests.test(f"{type(message).__name__} v{version}"):
            assert response_frame(message, version, 5).hex(" ") == annotated_hex(text).hex(" ")
            (frame,) = FrameBuffer().feed(annotated_hex(text))
            assert read_response(type(message), version, frame) == (5, message)
