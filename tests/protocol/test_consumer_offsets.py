"""Keys and values of `__consumer_offsets`: byte by byte from Kafka's definitions, and as kafka-python writes them."""

import io
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st
from kafka.protocol.data_container import DataContainer
from kafka.protocol.schemas import StructField

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
from tests.protocol.test_golden import layout
from tests.protocol.test_kafka_python import declared_differently, their_object
from tests.support.strategies import messages

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


@pytest.mark.parametrize(("message", "version", "text"), LAYOUTS)
def test_layout(message: Message, version: int, text: str) -> None:
    data = layout(text)
    assert encode(message, version) == data
    assert encode(decode(type(message), data, version), version) == data


def test_the_oldest_versions_lack_what_came_later() -> None:
    (member,) = decode(GroupMetadataValue, encode(GROUP, 0), 0).members
    assert (member.group_instance_id, member.rebalance_timeout) == (None, -1)
    assert decode(GroupMetadataValue, encode(GROUP, 1), 1).current_state_timestamp == -1
    offset = decode(OffsetCommitValue, encode(OFFSET, 2), 2)
    assert (offset.leader_epoch, offset.expire_timestamp) == (-1, -1)


@pytest.mark.parametrize(
    ("cls", "version"),
    [
        (OffsetCommitKey, 2),
        (GroupMetadataKey, 1),
        (GroupMetadataKey, 3),
        (OffsetCommitValue, 5),
        (GroupMetadataValue, 5),
    ],
)
def test_other_versions_are_refused(cls: type[Message], version: int) -> None:
    with pytest.raises(ProtocolError, match=f"{cls.__name__} v{version}: there are versions {cls.VERSIONS}"):
        decode(cls, b"", version)


# kafka-python has the codec and not these schemas; they are Kafka's own, in its notation.


def their_field(name: str, type_: str, versions: str = "0+", **more: Any) -> dict[str, Any]:
    return {"name": name, "type": type_, "versions": versions, **more}


INSTANCE_ID = {"default": "null", "nullableVersions": "3+", "ignorable": True}
UNSET = {"default": -1, "ignorable": True}
MEMBER_FIELDS = [
    their_field("memberId", "string"),
    their_field("groupInstanceId", "string", "3+", **INSTANCE_ID),
    their_field("clientId", "string"),
    their_field("clientHost", "string"),
    their_field("rebalanceTimeout", "int32", "1+", **UNSET),
    their_field("sessionTimeout", "int32"),
    their_field("subscription", "bytes"),
    their_field("assignment", "bytes"),
]
THEIR_FIELDS: dict[type[Message], list[dict[str, Any]]] = {
    OffsetCommitKey: [
        their_field("group", "string", "0-1"),
        their_field("topic", "string", "0-1"),
        their_field("partition", "int32", "0-1"),
    ],
    OffsetCommitValue: [
        their_field("offset", "int64"),
        their_field("leaderEpoch", "int32", "3+", **UNSET),
        their_field("metadata", "string"),
        their_field("commitTimestamp", "int64"),
        their_field("expireTimestamp", "int64", "1", **UNSET),
    ],
    GroupMetadataKey: [their_field("group", "string", "2")],
    GroupMetadataValue: [
        their_field("protocolType", "string"),
        their_field("generation", "int32"),
        their_field("protocol", "string", nullableVersions="0+"),
        their_field("leader", "string", nullableVersions="0+"),
        their_field("currentStateTimestamp", "int64", "2+", **UNSET),
        their_field("members", "[]MemberMetadata", fields=MEMBER_FIELDS),
    ],
}


def their_class(cls: type[Message]) -> Any:
    fields = THEIR_FIELDS[cls]
    schema = StructField({"type": "data", "name": cls.__name__, "validVersions": str(cls.VERSIONS), "fields": fields})
    made = type(cls.__name__, (DataContainer,), {"_struct": schema})
    schema.set_data_class(made)
    return made


THEIR_CLASSES = {cls: their_class(cls) for cls in THEIR_FIELDS}


@pytest.mark.parametrize("cls", THEIR_CLASSES)
def test_declared_as_kafka_declares_it(cls: type[Message]) -> None:
    assert declared_differently(cls, THEIR_CLASSES[cls]._struct, list(cls.VERSIONS), cls.__name__) == []


@pytest.mark.parametrize(("cls", "version"), [(cls, version) for cls in THEIR_CLASSES for version in cls.VERSIONS])
@settings(max_examples=20)
@given(data=st.data())
def test_bytes_are_those_of_kafka_python(cls: type[Message], version: int, data: st.DataObject) -> None:
    message = data.draw(messages(cls, version))
    their_type = THEIR_CLASSES[cls]
    as_version = {"version": version, "compact": version in cls.FLEXIBLE, "tagged": version in cls.FLEXIBLE}

    raw = encode(message, version)

    assert raw == their_object(their_type._struct, message, version).encode(**as_version)
    assert their_type.decode(io.BytesIO(raw), **as_version).encode(**as_version) == raw
    assert decode(cls, raw, version) == message
