"""Bytes that are no such message: one exception that says where, nothing read past the end, nothing large allocated."""

import re
import tracemalloc
from collections.abc import Callable

import pytest
from hypothesis import given, settings, strategies as st

from fakebroker.errors import ProtocolError
from fakebroker.protocol.codec import decode, encode
from fakebroker.protocol.messages.fetch import FetchRequest, FetchTopic
from fakebroker.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from fakebroker.protocol.messages.metadata import MetadataResponse, MetadataResponseTopic
from fakebroker.protocol.messages.sync_group import SyncGroupRequest
from fakebroker.protocol.schema import Message, Struct, message, struct
from fakebroker.protocol.types import Bytes, Int32, Int64, Records, String, unsigned_varint
from tests.support.strategies import MESSAGE_VERSIONS, MESSAGES, filled, messages


def refused(cls: type[Message], version: int, raw: bytes) -> str:
    """The error of reading the bytes; it has to name message, version and field, and a byte among those given."""
    with pytest.raises(ProtocolError) as caught:
        decode(cls, raw, version)
    text = str(caught.value)
    found = re.fullmatch(rf"{cls.__name__} v{version}: field [\w.]+( fields)? malformed at byte (\d+): .+", text)
    assert found, text
    assert int(found[2]) <= len(raw)
    return text


@pytest.mark.parametrize(("cls", "version"), MESSAGE_VERSIONS)
@settings(max_examples=2)
@given(data=st.data())
def test_cut_at_any_byte(cls: type[Message], version: int, data: st.DataObject) -> None:
    drawn = data.draw(messages(cls, version, unknown_tags=version in cls.FLEXIBLE))
    raw = encode(drawn, version)

    for end in range(len(raw)):
        refused(cls, version, raw[:end])


@pytest.mark.parametrize("cls", MESSAGES)
def test_cut_at_any_byte_of_each_field(cls: type[Message]) -> None:
    for version in cls.VERSIONS:
        raw = encode(filled(cls, version), version)

        for end in range(len(raw)):
            refused(cls, version, raw[:end])


@pytest.mark.parametrize("cls", MESSAGES)
def test_bytes_behind_the_message_are_not_read_and_refused_unless_allowed(cls: type[Message]) -> None:
    for version in cls.VERSIONS:
        raw = encode(filled(cls, version), version)

        with pytest.raises(ProtocolError) as caught:
            decode(cls, raw + b"\xff\xff", version)

        assert str(caught.value) == f"{cls.__name__} v{version}: 2 bytes left over at byte {len(raw)}"
        assert decode(cls, raw + b"\xff\xff", version, fills_data=False) == filled(cls, version)


def read_or_refused(cls: type[Message], version: int, raw: bytes) -> None:
    try:
        read = decode(cls, raw, version)
    except ProtocolError:
        return
    assert decode(cls, encode(read, version), version) == read


@pytest.mark.parametrize("cls", MESSAGES)
@settings(max_examples=30)
@given(raw=st.binary(max_size=60))
def test_any_bytes_are_a_message_that_can_be_written_or_an_error(cls: type[Message], raw: bytes) -> None:
    for version in cls.VERSIONS:
        read_or_refused(cls, version, raw)


@pytest.mark.parametrize("cls", MESSAGES)
def test_any_byte_of_a_message_may_be_another(cls: type[Message]) -> None:
    for version in cls.VERSIONS:
        raw = encode(filled(cls, version), version)

        # In lengths, counts, tags and null markers these are null, too large, negative and unfinished ones.
        for at in range(len(raw)):
            for byte in (0, 127, 255):
                read_or_refused(cls, version, raw[:at] + bytes([byte]) + raw[at + 1 :])


@struct
class Inner(Struct):
    number: Int32


@message(versions="0-1", flexible="1+")
class Strings(Message):
    value: String


@message(versions="0-1", flexible="1+")
class Blobs(Message):
    value: Bytes


@message(versions="0-1", flexible="1+")
class Batches(Message):
    value: Records | None


@message(versions="0-1", flexible="1+")
class Numbers(Message):
    value: list[Int64]


@message(versions="0-1", flexible="1+")
class Names(Message):
    value: list[String]


@message(versions="0-1", flexible="1+")
class Inners(Message):
    value: list[Inner] | None


def allocated_bytes(work: Callable[[], object]) -> int:
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("length", [11, 127, 2**15 - 1, 2**31 - 1])
@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize("cls", [Strings, Blobs, Batches, Numbers, Names, Inners])
def test_a_giant_length_is_refused_before_anything_is_allocated(cls: type[Message], version: int, length: int) -> None:
    classic = min(length, 2**15 - 1).to_bytes(2, "big") if cls is Strings else length.to_bytes(4, "big")
    raw = (unsigned_varint(length + 1) if version else classic) + bytes(10)
    refused(cls, version, raw)  # Compiles the decoder, which allocates too.

    assert allocated_bytes(lambda: refused(cls, version, raw)) < 20_000


@pytest.mark.parametrize("version", [0, 1])
def test_an_array_of_numbers_has_to_fit_by_its_width(version: int) -> None:
    count = b"\x03" if version else b"\x00\x00\x00\x02"

    assert decode(Numbers, count + bytes(16) + bytes(version), version) == Numbers(value=[0, 0])
    assert refused(Numbers, version, count + bytes(15)).endswith(": 2 elements announced, 15 bytes left")


@pytest.mark.parametrize(
    ("cls", "version", "raw", "expected"),
    [
        (Strings, 0, b"\xff\xff", "malformed at byte 2: length -1, where it may not be null"),
        (Strings, 1, b"\x00\x00", "malformed at byte 1: length -1, where it may not be null"),
        (Batches, 0, b"\xff\xff\xff\xfe", "malformed at byte 4: length -2, where it may not be null"),
        (Names, 0, b"\xff\xff\xff\xff", "malformed at byte 4: length -1, where it may not be null"),
        (Strings, 0, b"\x00\x02\xc3\x28", "malformed at byte 2: 'utf-8' codec can't decode byte 0xc3 in"),
        (
            Strings,
            1,
            b"\xff\xff\xff\xff\xff\x00",
            "malformed at byte 0: unsigned varint longer than 5 bytes",
        ),
        (
            Strings,
            1,
            b"\xff\xff\xff\xff\x7f\x00",
            "malformed at byte 0: unsigned varint larger than 32 bits",
        ),
    ],
)
def test_what_is_wrong_is_said(cls: type[Message], version: int, raw: bytes, expected: str) -> None:
    assert refused(cls, version, raw).startswith(f"{cls.__name__} v{version}: field value {expected}")


@pytest.mark.parametrize("version", [0, 1])
def test_a_string_is_at_most_32767_bytes(version: int) -> None:
    longest = "x" * 32767

    assert decode(Strings, encode(Strings(value=longest), version), version).value == longest
    with pytest.raises(ProtocolError, match=f"Strings v{version}: field value cannot be written, it holds 'xxx"):
        encode(Strings(value=longest + "x"), version)


def test_a_longer_compact_string_is_not_read_either() -> None:
    raw = unsigned_varint(32768 + 1) + b"x" * 32768 + b"\x00"

    assert refused(Strings, 1, raw).endswith("at byte 3: string of 32768 bytes, expected at most 32767")


def test_each_byte_belongs_to_a_field() -> None:
    join = JoinGroupRequest(
        group_id="g",
        session_timeout_ms=1,
        rebalance_timeout_ms=2,
        member_id="m",
        protocol_type="c",
        protocols=[JoinGroupRequestProtocol(name="p", metadata=b"ab")],
    )
    raw = encode(join, 5)

    for name, start, cuts in (
        ("group_id", 0, range(2)),
        ("group_id", 2, range(2, 3)),
        ("session_timeout_ms", 3, range(3, 7)),
        ("rebalance_timeout_ms", 7, range(7, 11)),
        ("member_id", 11, range(11, 13)),
        ("member_id", 13, range(13, 14)),
        ("group_instance_id", 14, range(14, 16)),
        ("protocol_type", 16, range(16, 18)),
        ("protocol_type", 18, range(18, 19)),
        ("protocols", 19, range(19, 23)),
        ("protocols", 23, range(23, 24)),  # One is announced and nothing left.
        ("protocols.name", 23, range(24, 25)),
        ("protocols.name", 25, range(25, 26)),
        ("protocols.metadata", 26, range(26, 30)),
        ("protocols.metadata", 30, range(30, 32)),
    ):
        for cut in cuts:
            assert f"field {name} malformed at byte {start}:" in refused(JoinGroupRequest, 5, raw[:cut])
    assert len(raw) == 32


def test_the_path_leads_to_a_field_deep_inside() -> None:
    topic = filled(MetadataResponseTopic, 9)
    topic.partitions[0].replica_nodes = [7, 8]
    raw = encode(MetadataResponse(brokers=[], topics=[topic]), 9)
    at = raw.index(b"\x03\x00\x00\x00\x07")

    text = refused(MetadataResponse, 9, raw[:at] + b"\x7f" + raw[at + 1 :])

    expected = f"field topics.partitions.replica_nodes malformed at byte {at + 1}: 126 elements announced, "
    assert text.startswith(f"MetadataResponse v9: {expected}")


def test_the_field_of_a_value_that_cannot_be_written_is_named_with_the_value() -> None:
    request = FetchRequest(max_wait_ms=1, min_bytes=2**31, topics=[FetchTopic(topic="t", partitions=[])])
    with pytest.raises(
        ProtocolError, match=r"FetchRequest v12: field min_bytes cannot be written, it holds 2147483648: "
    ):
        encode(request, 12)

    request.min_bytes = 1
    request.topics[0].topic = None  # type: ignore[assignment]  # this is the mistake
    with pytest.raises(
        ProtocolError, match=r"FetchRequest v12: field topics\.topic cannot be written, it holds None: "
    ):
        encode(request, 12)


def test_a_version_that_is_not_there() -> None:
    for version in (-1, 6):
        with pytest.raises(ProtocolError, match=f"SyncGroupRequest v{version}: there are versions 0-5"):
            decode(SyncGroupRequest, b"", version)
        with pytest.raises(ProtocolError, match=f"SyncGroupRequest v{version}: there are versions 0-5"):
            encode(filled(SyncGroupRequest, 5), version)
