"""Declarations: ranges, what a class may be declared with, and each wire type in each place it may stand."""

import pytest
from hypothesis import given, settings, strategies as st

from fakebroker.errors import ProtocolError
from fakebroker.protocol.codec import decode, encode
from fakebroker.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from fakebroker.protocol.messages.fetch import FetchResponse, NodeEndpoint
from fakebroker.protocol.schema import Message, Struct, Versions, field, message, struct
from fakebroker.protocol.types import (
    Boolean,
    Bytes,
    Float64,
    Int8,
    Int16,
    Int32,
    Int64,
    Records,
    String,
    UInt16,
    Uuid,
)
from tests.support.strategies import messages


@struct
class Inner(Struct):
    number: Int8 = 0
    name: String | None = field(versions="1+", default=None)
    deeper: Int16 = field(versions="1+", tag=0, default=4)


@message(versions="0-2", flexible="1+")
class Everything(Message):
    """Each wire type alone, in an array, nullable and tagged, with fixed widths between and at the end."""

    int8: Int8
    uint16: UInt16
    text: String
    float64: Float64
    flag: Boolean
    uuid: Uuid
    int64: Int64
    inner: Inner
    texts: list[String]
    blobs: list[Bytes] | None
    flags: list[Boolean]
    floats: list[Float64] | None
    inners: list[Inner] | None = field(nullable="1+")
    maybe_text: String | None
    maybe_inner: Inner | None = field(versions="1+", default=None)
    int32: Int32
    gone: UInt16 = field(versions="0-1", default=3)
    batches: Records | None
    blob: Bytes
    tagged_text: String | None = field(versions="1+", tag=0, default="x")
    tagged_numbers: list[UInt16] = field(versions="1+", tag=1, default_factory=list)
    tagged_inner: Inner = field(versions="2+", tag=5, default_factory=Inner)
    tagged_inners: list[Inner] = field(versions="2+", tag=6, default_factory=list)
    last: Int16


@pytest.mark.parametrize("version", [0, 1, 2])
@settings(max_examples=25)
@given(data=st.data())
def test_each_type_in_each_place(version: int, data: st.DataObject) -> None:
    sent = data.draw(messages(Everything, version, unknown_tags=version > 0))
    raw = encode(sent, version)

    assert decode(Everything, raw, version) == sent
    for end in range(len(raw)):
        with pytest.raises(ProtocolError, match=f"Everything v{version}: field "):
            decode(Everything, raw[:end], version)


def test_the_ends_of_the_ranges() -> None:
    sent = Everything(
        int8=-1, uint16=65535, text="", float64=-0.5, flag=True, uuid=bytes(range(16)), int64=-(2**63),
        inner=Inner(number=-128), texts=["a", ""], blobs=[b"", b"x"], flags=[True, False], floats=[0.0, 1e300],
        inners=[Inner(number=127)], maybe_text=None, int32=-(2**31), gone=0, batches=None, blob=b"", last=-1,
    )  # fmt: skip
    read = decode(Everything, encode(sent, 0), 0)

    assert read == sent
    assert read.flags[0] is True
    assert type(read.blob) is bytes


def test_a_uuid_has_16_bytes() -> None:
    for uuid in (bytes(15), bytes(17)):
        with pytest.raises(ProtocolError, match=rf"field topics\.topic_id cannot .*: UUID of {len(uuid)} bytes"):
            encode(DeleteTopicsRequest(topics=[DeleteTopicState(topic_id=uuid)], timeout_ms=0), 6)


@pytest.mark.parametrize(
    ("text", "inside", "outside"),
    [
        ("0-4", [0, 4], [-1, 5]),
        ("3+", [3, 1000], [2]),
        ("2", [2], [1, 3]),
        ("none", [], [-1, 0, 1]),
    ],
)
def test_version_ranges(text: str, inside: list[int], outside: list[int]) -> None:
    versions = Versions.parse(text)

    assert all(version in versions for version in inside)
    assert not any(version in versions for version in outside)


def test_a_range_can_be_walked_and_told() -> None:
    assert list(Versions.parse("3-5")) == [3, 4, 5]
    assert str(Versions.parse("3-5")) == "3-5"
    assert list(Versions.parse("none")) == []


def test_instances_have_slots_and_lists_of_their_own() -> None:
    first, second = FetchResponse(responses=[]), FetchResponse(responses=[])

    with pytest.raises(AttributeError):
        first.no_such_field = 1  # type: ignore[attr-defined]  # this is the mistake
    first.node_endpoints.append(NodeEndpoint(node_id=1, host="h", port=1))
    assert second.node_endpoints == []


def test_what_is_no_wire_type_cannot_be_declared() -> None:
    with pytest.raises(TypeError, match="field number: <class 'int'> is not a wire type"):

        @struct
        class Plain(Struct):
            number: int

    with pytest.raises(TypeError, match="field ids: arrays of UUIDs are not supported"):

        @struct
        class Uuids(Struct):
            ids: list[Uuid]
