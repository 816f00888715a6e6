"""Declarations of messages: version ranges, supported types, and each wire type in each place where it is allowed."""

import pytest

from fakebroker.errors import ProtocolError
from fakebroker.protocol.codec import decode, encode
from fakebroker.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from fakebroker.protocol.messages.fetch import FetchResponse, NodeEndpoint
from fakebroker.protocol.schema import Message, Struct, Versions, field, replaced
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
from tests.support.soak import soak
from tests.support.strategies import check_drawn_messages


class Inner(Struct):
    number: Int8 = 0
    name: String | None = field(versions="1+", default=None)
    deeper: Int16 = field(versions="1+", tag=0, default=4)


class Everything(Message, versions="0-2", flexible="1+"):
    """Each wire type as a field, in an array, nullable and tagged; fixed-width fields in between and at the end."""

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


def assert_round_trip_and_truncations_are_errors(cls: type[Message], version: int, message: Message) -> None:
    raw = encode(message, version)

    assert decode(cls, raw, version) == message
    for end in range(len(raw)):
        with pytest.raises(ProtocolError, match=f"{cls.__name__} v{version}: field "):
            decode(cls, raw[:end], version)


@soak
def test_each_type_in_arrays_nullable_and_tagged(subtests: pytest.Subtests) -> None:
    check_drawn_messages(
        subtests,
        Everything,
        assert_round_trip_and_truncations_are_errors,
        among=[(Everything, version) for version in Everything.VERSIONS],
        unknown_tags=True,
        sample=12,
        soak=200,
    )


def test_smallest_and_largest_values() -> None:
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
        with pytest.raises(
            ProtocolError, match=rf"field topics\.topic_id=.* cannot be encoded: UUID of {len(uuid)} bytes"
        ):
            encode(DeleteTopicsRequest(topics=[DeleteTopicState(topic_id=uuid)], timeout_ms=0), 6)


def test_version_ranges_are_parsed() -> None:
    cases: list[tuple[str, list[int], list[int]]] = [
        ("0-4", [0, 4], [-1, 5]),
        ("3+", [3, 1000], [2]),
        ("2", [2], [1, 3]),
        ("none", [], [-1, 0, 1]),
    ]
    for text, inside, outside in cases:
        versions = Versions.parse(text)

        assert all(version in versions for version in inside), text
        assert not any(version in versions for version in outside), text


def test_version_ranges_are_iterable_and_printed_as_parsed() -> None:
    assert list(Versions.parse("3-5")) == [3, 4, 5]
    assert str(Versions.parse("3-5")) == "3-5"
    assert list(Versions.parse("none")) == []


def test_instances_have_slots_and_share_no_default_lists() -> None:
    first, second = FetchResponse(responses=[]), FetchResponse(responses=[])

    with pytest.raises(AttributeError):
        first.no_such_field = 1  # type: ignore[attr-defined]  # wrong on purpose
    first.node_endpoints.append(NodeEndpoint(node_id=1, host="h", port=1))
    assert second.node_endpoints == []


def test_copies_have_the_other_fields_and_the_unknown_tags() -> None:
    original = Inner(number=3, name="a")
    original.unknown_tags = ((9, b"x"),)
    copy = replaced(original, number=4)
    assert (copy.number, copy.name, copy.unknown_tags) == (4, "a", ((9, b"x"),))
    assert original.number == 3


def test_missing_and_unknown_fields_are_errors() -> None:
    for fields, error in (
        ({"topics": []}, "Missing required argument 'timeout_ms'"),
        ({"timeout_ms": 1, "topic": []}, "Unexpected keyword argument 'topic'"),
    ):
        with pytest.raises(TypeError, match=rf"^{error}$"):
            DeleteTopicsRequest(**fields)


def test_unsupported_types_cannot_be_declared() -> None:
    with pytest.raises(TypeError, match="field number: <class 'int'> is not a wire type"):

        class Plain(Struct):
            number: int

    with pytest.raises(TypeError, match="field ids: arrays of UUIDs are not supported"):

        class Uuids(Struct):
            ids: list[Uuid]
