"""Tagged fields (KIP-482): omitted if they have their default, in order of their tags, preserved if unknown."""

import pytest

from fakebroker.errors import ProtocolError
from fakebroker.protocol.codec import decode, encode
from fakebroker.protocol.messages.api_versions import ApiVersionsResponse
from fakebroker.protocol.messages.fetch import FetchRequest, FetchResponse, NodeEndpoint, ReplicaState
from fakebroker.protocol.messages.heartbeat import HeartbeatRequest
from fakebroker.protocol.schema import Message, field
from fakebroker.protocol.types import Int32, String
from tests.support.message_versions import MESSAGE_VERSIONS, filled, message_subtest, structs


class Tagged(Message, versions="0-1", flexible="0+"):
    """Tags are neither in the order of the fields nor consecutive; `second` exists from version 1."""

    third: Int32 = field(tag=300, default=-1)
    first: String | None = field(tag=1, default=None)
    second: Int32 = field(versions="1+", tag=2, default=0)


def tags_of(raw: bytes) -> list[tuple[int, bytes]]:
    """Return the tagged fields of an encoded `Tagged`. All numbers take one byte, except for tag 300: `ac 02`."""
    raw = raw.replace(b"\xac\x02", b"\x7f")
    found, at = [], 1
    for _ in range(raw[0]):
        tag, size = raw[at], raw[at + 1]
        found.append((300 if tag == 127 else tag, raw[at + 2 : at + 2 + size]))
        at += 2 + size
    assert at == len(raw)
    return found


def test_tagged_fields_with_their_default_are_not_encoded() -> None:
    assert encode(Tagged(), 1) == b"\x00"
    assert tags_of(encode(Tagged(third=5), 1)) == [(300, b"\0\0\0\x05")]
    assert tags_of(encode(Tagged(first=""), 1)) == [(1, b"\x01")]


def test_known_and_unknown_tagged_fields_are_encoded_in_order_of_their_tags() -> None:
    tagged = Tagged(third=7, first="ab", second=9)
    tagged.unknown_tags = ((5, b"five"), (0, b""))
    raw = encode(tagged, 1)

    assert tags_of(raw) == [(0, b""), (1, b"\x03ab"), (2, b"\0\0\0\x09"), (5, b"five"), (300, b"\0\0\0\x07")]
    read = decode(Tagged, raw, 1)
    assert (read.third, read.first, read.second) == (7, "ab", 9)
    assert read.unknown_tags == ((0, b""), (5, b"five"))
    assert encode(read, 1) == raw


def test_a_tag_of_a_later_version_is_unknown() -> None:
    read = decode(Tagged, encode(Tagged(second=9), 1), 0)

    assert (read.second, read.unknown_tags) == (0, ((2, b"\0\0\0\x09"),))


def test_an_encoded_default_is_decoded() -> None:
    assert decode(Tagged, b"\x01\x02\x04\0\0\0\0", 1) == Tagged()


def test_each_struct_of_a_message_keeps_unknown_tagged_fields(subtests: pytest.Subtests) -> None:
    for cls, version in [each for each in MESSAGE_VERSIONS if each[1] in each[0].FLEXIBLE]:
        with message_subtest(subtests, cls, version):
            sent = filled(cls, version)
            for number, item in enumerate(structs(sent, version)):
                unknown_tags = ((1000, bytes([number])), (2**32 - 1, b""))
                item.unknown_tags = unknown_tags
            received = decode(cls, encode(sent, version), version)

            assert received == sent
            for before, after in zip(structs(sent, version), structs(received, version), strict=True):
                assert before.unknown_tags == after.unknown_tags, type(before).__name__


@pytest.mark.parametrize("version", [0, 3])
def test_unknown_tagged_fields_cannot_be_encoded_in_classic_versions(version: int) -> None:
    request = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
    request.unknown_tags = ((9, b"x"),)

    expected = rf"HeartbeatRequest v{version}: field unknown_tags=\(\(9, b'x'\),\) cannot be encoded: "
    with pytest.raises(ProtocolError, match=expected):
        encode(request, version)
    assert encode(request, 4).endswith(b"\x01\x09\x01x")


def test_arrays_and_structs_can_be_tagged() -> None:
    endpoint = NodeEndpoint(node_id=1, host="h", port=9092, rack="r")
    response = FetchResponse(responses=[], node_endpoints=[endpoint])
    request = FetchRequest(max_wait_ms=0, min_bytes=0, topics=[], replica_state=ReplicaState(replica_id=3))

    assert decode(FetchResponse, encode(response, 16), 16) == response
    assert decode(FetchRequest, encode(request, 15), 15) == request
    assert encode(FetchResponse(responses=[]), 16) == bytes(4 + 2 + 4) + b"\x01\x00"


def test_malformed_tagged_fields_are_errors(subtests: pytest.Subtests) -> None:
    for raw, expected in (
        (b"\x02\x05\x00\x05\x00", "tagged fields malformed at byte 5: tag 5 after tag 5"),
        (b"\x02\x05\x00\x04\x00", "tagged fields malformed at byte 5: tag 4 after tag 5"),
        (b"\x01\x05\x02x", "tagged fields malformed at byte 3: 2 bytes announced, 1 bytes left"),
        (b"\x01\x02\x05\0\0\0\x01\0", "second malformed at byte 7: tag 2 has 5 bytes, expected 4"),
        (b"\x01\x02\x03\0\0\0\x01", "second malformed at byte 7: tag 2 has 3 bytes, expected 4"),
        (b"\xff\xff\xff\xff\x0f", "tagged fields malformed at byte 5: index out of range"),
    ):
        with subtests.test(expected):
            with pytest.raises(ProtocolError) as caught:
                decode(Tagged, raw, 1)
            assert str(caught.value) == f"Tagged v1: field {expected}"


def test_tagged_fields_of_api_versions_are_independent() -> None:
    response = ApiVersionsResponse(api_keys=[], finalized_features_epoch=7, zk_migration_ready=True)
    raw = encode(response, 3)

    assert raw == b"\0\0" + b"\x01" + bytes(4) + b"\x02" + b"\x01\x08" + bytes(7) + b"\x07" + b"\x03\x01\x01"
    assert decode(ApiVersionsResponse, raw, 3) == response


def test_structs_finds_all_structs_of_a_message() -> None:
    assert [type(item).__name__ for item in structs(filled(FetchResponse, 16), 16)] == [
        "FetchResponse",
        "FetchableTopicResponse",
        "PartitionData",
        "EpochEndOffset",
        "LeaderIdAndEpoch",
        "SnapshotId",
        "AbortedTransaction",
        "NodeEndpoint",
    ]
