"""Keys and values of `__consumer_offsets` and `__transaction_state` have the bytes of Kafka's definitions.

kafka-python's codec is the oracle. For the layouts of transactions see tests/cluster/test_transaction_records.py.
"""

import io

import pytest

from fakebroker.errors import ProtocolError
from fakebroker.protocol.codec import decode, encode
from fakebroker.protocol.messages.consumer_offsets import (
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
    OffsetCommitKey,
    OffsetCommitValue,
)
from fakebroker.protocol.schema import Message
from tests.support.annotated_hex import annotated_hex
from tests.support.kafka_python_codec import RECORD_CLASSES, differing_declarations, kafka_python_object
from tests.support.message_versions import message_subtest
from tests.support.soak import soak
from tests.support.strategies import check_drawn_messages

OFFSET = OffsetCommitValue(
    offset=258, leader_epoch=7, metadata="md", commit_timestamp=1_700_000_000_000, expire_timestamp=1_700_000_000_001
)
GROUP = GroupMetadataValue(
    protocol_type="consumer",
    generation=3,
    protocol="range",
    leader="m-1",
    current_state_timestamp=1_700_000_000_000,
    members=[
        MemberMetadata(
            member_id="m-1",
            group_instance_id="i",
            client_id="c",
            client_host="/h",
            rebalance_timeout=60_000,
            session_timeout=10_000,
            subscription=b"\x01",
            assignment=b"\x02\x03",
        )
    ],
)
EMPTY_GROUP = GroupMetadataValue(protocol_type="", generation=0, protocol=None, leader=None, members=[])

LAYOUTS: list[tuple[Message, int, str]] = [
    (
        OffsetCommitKey(group="grp", topic="t", partition=5),
        1,
        """
        00 03 67 72 70           # group: "grp"
        00 01 74                 # topic: "t"
        00 00 00 05              # partition
        """,
    ),
    (
        GroupMetadataKey(group="grp"),
        2,
        """
        00 03 67 72 70           # group: "grp"
        """,
    ),
    (
        OFFSET,
        0,
        """
        00 00 00 00 00 00 01 02  # offset: 258
        00 02 6d 64              # metadata: "md"
        00 00 01 8b cf e5 68 00  # commit_timestamp
        """,
    ),
    (
        OFFSET,
        1,
        """
        00 00 00 00 00 00 01 02  # offset: 258
        00 02 6d 64              # metadata: "md"
        00 00 01 8b cf e5 68 00  # commit_timestamp
        00 00 01 8b cf e5 68 01  # expire_timestamp
        """,
    ),
    (
        OFFSET,
        3,
        """
        00 00 00 00 00 00 01 02  # offset: 258
        00 00 00 07              # leader_epoch
        00 02 6d 64              # metadata: "md"
        00 00 01 8b cf e5 68 00  # commit_timestamp
        """,
    ),
    (
        OFFSET,
        4,
        """
        00 00 00 00 00 00 01 02  # offset: 258
        00 00 00 07              # leader_epoch
        03 6d 64                 # metadata: compact, 2 + 1, "md"
        00 00 01 8b cf e5 68 00  # commit_timestamp
        00                       # no tagged fields
        """,
    ),
    (
        GROUP,
        0,
        """
        00 08 63 6f 6e 73 75 6d 65 72  # protocol_type: "consumer"
        00 00 00 03              # generation
        00 05 72 61 6e 67 65     # protocol: "range"
        00 03 6d 2d 31           # leader: "m-1"
        00 00 00 01              # members: 1
        00 03 6d 2d 31           # member_id: "m-1"
        00 01 63                 # client_id: "c"
        00 02 2f 68              # client_host: "/h"
        00 00 27 10              # session_timeout: 10000
        00 00 00 01 01           # subscription: int32 length, one byte
        00 00 00 02 02 03        # assignment: int32 length, two bytes
        """,
    ),
    (
        GROUP,
        3,
        """
        00 08 63 6f 6e 73 75 6d 65 72  # protocol_type: "consumer"
        00 00 00 03              # generation
        00 05 72 61 6e 67 65     # protocol: "range"
        00 03 6d 2d 31           # leader: "m-1"
        00 00 01 8b cf e5 68 00  # current_state_timestamp
        00 00 00 01              # members: 1
        00 03 6d 2d 31           # member_id: "m-1"
        00 01 69                 # group_instance_id: "i"
        00 01 63                 # client_id: "c"
        00 02 2f 68              # client_host: "/h"
        00 00 ea 60              # rebalance_timeout: 60000
        00 00 27 10              # session_timeout: 10000
        00 00 00 01 01           # subscription: int32 length, one byte
        00 00 00 02 02 03        # assignment: int32 length, two bytes
        """,
    ),
    (
        EMPTY_GROUP,
        3,
        """
        00 00                    # protocol_type: empty
        00 00 00 00              # generation
        ff ff                    # protocol: null
        ff ff                    # leader: null
        ff ff ff ff ff ff ff ff  # current_state_timestamp: -1
        00 00 00 00              # members: none
        """,
    ),
    (
        EMPTY_GROUP,
        4,
        """
        01                       # protocol_type: empty
        00 00 00 00              # generation
        00                       # protocol: null
        00                       # leader: null
        ff ff ff ff ff ff ff ff  # current_state_timestamp: -1
        01                       # members: none
        00                       # no tagged fields
        """,
    ),
]


def test_messages(subtests: pytest.Subtests) -> None:
    for message, version, text in LAYOUTS:
        with message_subtest(subtests, type(message), version):
            data = annotated_hex(text)
            assert encode(message, version).hex(" ") == data.hex(" ")
            assert encode(decode(type(message), data, version), version) == data


def test_fields_that_the_oldest_versions_lack_have_their_defaults() -> None:
    (member,) = decode(GroupMetadataValue, encode(GROUP, 0), 0).members
    assert (member.group_instance_id, member.rebalance_timeout) == (None, -1)
    assert decode(GroupMetadataValue, encode(GROUP, 1), 1).current_state_timestamp == -1
    offset = decode(OffsetCommitValue, encode(OFFSET, 2), 2)
    assert (offset.leader_epoch, offset.expire_timestamp) == (-1, -1)


def test_unknown_versions_are_errors(subtests: pytest.Subtests) -> None:
    cases: list[tuple[type[Message], int]] = [
        (OffsetCommitKey, 2),
        (GroupMetadataKey, 1),
        (GroupMetadataKey, 3),
        (OffsetCommitValue, 5),
        (GroupMetadataValue, 5),
    ]
    for cls, version in cases:
        error = f"{cls.__name__} v{version}: expected a version from {cls.VERSIONS}"
        with message_subtest(subtests, cls, version), pytest.raises(ProtocolError, match=error):
            decode(cls, b"", version)


def test_declarations_are_those_of_kafka() -> None:
    for cls, their_class in RECORD_CLASSES.items():
        assert differing_declarations(cls, their_class._struct, list(cls.VERSIONS), cls.__name__) == []


def assert_same_bytes(cls: type[Message], version: int, message: Message) -> None:
    their_class = RECORD_CLASSES[cls]
    options = {"version": version, "compact": version in cls.FLEXIBLE, "tagged": version in cls.FLEXIBLE}

    raw = encode(message, version)

    assert raw == kafka_python_object(their_class._struct, message, version).encode(**options)
    assert their_class.decode(io.BytesIO(raw), **options).encode(**options) == raw
    assert decode(cls, raw, version) == message


@soak
def test_any_message_has_the_bytes_of_kafka_python(subtests: pytest.Subtests) -> None:
    for cls in RECORD_CLASSES:
        versions = [(cls, version) for version in cls.VERSIONS]
        check_drawn_messages(subtests, cls, assert_same_bytes, among=versions, sample=10, soak=1000)
