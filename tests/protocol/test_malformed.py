"""Malformed messages: a `ProtocolError` names the position, nothing beyond the end is read, nothing large allocated."""

import re
import tracemalloc
from collections.abc import Callable
from functools import partial
from itertools import product

import pytest
from hypothesis import given, settings, strategies as st

from fakebroker.errors import ProtocolError
from fakebroker.protocol.codec import decode, encode
from fakebroker.protocol.messages.fetch import FetchRequest, FetchTopic
from fakebroker.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from fakebroker.protocol.messages.metadata import MetadataResponse, MetadataResponseTopic
from fakebroker.protocol.messages.sync_group import SyncGroupRequest
from fakebroker.protocol.schema import Message, Struct
from fakebroker.protocol.types import Bytes, Int32, Int64, Records, String, unsigned_varint
from tests.support.message_versions import MESSAGE_VERSIONS, MESSAGES, NEWEST_VERSIONS, filled, message_subtest
from tests.support.soak import IS_SOAK, examples, soak
from tests.support.strategies import check_drawn_messages


def decode_error(cls: type[Message], version: int, raw: bytes) -> str:
    """Return the error of decoding bytes, which has to name message, version, field and a position in the bytes."""
    with pytest.raises(ProtocolError) as caught:
        decode(cls, raw, version)
    text = str(caught.value)
    match = re.fullmatch(rf"{cls.__name__} v{version}: field [\w.]+( fields)? malformed at byte (\d+): .+", text)
    assert match, text
    assert int(match[2]) <= len(raw)
    return text


def assert_each_truncation_is_an_error(cls: type[Message], version: int, message: Message) -> None:
    raw = encode(message, version)
    for end in range(len(raw)):
        decode_error(cls, version, raw[:end])


@soak
def test_truncations_of_any_message_are_errors(subtests: pytest.Subtests) -> None:
    versions = MESSAGE_VERSIONS if IS_SOAK else NEWEST_VERSIONS
    for cls in MESSAGES:
        check_drawn_messages(
            subtests, cls, assert_each_truncation_is_an_error, among=versions, unknown_tags=True, sample=2, soak=50
        )


def test_truncations_of_messages_with_a_value_in_each_field_are_errors(subtests: pytest.Subtests) -> None:
    for cls, version in MESSAGE_VERSIONS:
        with message_subtest(subtests, cls, version):
            assert_each_truncation_is_an_error(cls, version, filled(cls, version))


def test_bytes_after_a_message_are_an_error_unless_allowed(subtests: pytest.Subtests) -> None:
    for cls, version in MESSAGE_VERSIONS:
        with message_subtest(subtests, cls, version):
            raw = encode(filled(cls, version), version)

            with pytest.raises(ProtocolError) as caught:
                decode(cls, raw + b"\xff\xff", version)

            assert str(caught.value) == f"{cls.__name__} v{version}: 2 unexpected bytes at byte {len(raw)}"
            assert decode(cls, raw + b"\xff\xff", version, fills_data=False) == filled(cls, version)


def assert_decodes_or_raises_protocol_error(cls: type[Message], version: int, raw: bytes) -> None:
    """Decode bytes; if that succeeds, the message can be encoded."""
    try:
        try:
            message = decode(cls, raw, version)
        except ProtocolError:
            return
        assert decode(cls, encode(message, version), version) == message
    except Exception as error:
        error.add_note(f"while decoding {raw!r} as {cls.__name__} v{version}")
        raise


@soak
@settings(max_examples=examples(60, soak=3000))
@given(raw=st.binary(max_size=60))
def test_any_bytes_are_a_message_or_a_protocol_error(raw: bytes) -> None:
    for cls, version in MESSAGE_VERSIONS:
        assert_decodes_or_raises_protocol_error(cls, version, raw)


def test_messages_with_a_changed_byte_are_decoded_or_a_protocol_error(subtests: pytest.Subtests) -> None:
    # Changed lengths, counts, tags and null markers are null, too large, negative or unfinished.
    for cls, version in MESSAGE_VERSIONS:
        with message_subtest(subtests, cls, version):
            raw = encode(filled(cls, version), version)
            for at, value in product(range(len(raw)), (0, 127, 255)):
                changed = raw[:at] + bytes([value]) + raw[at + 1 :]
                assert_decodes_or_raises_protocol_error(cls, version, changed)


class Item(Struct):
    number: Int32


class Strings(Message, versions="0-1", flexible="1+"):
    value: String


class Blobs(Message, versions="0-1", flexible="1+"):
    value: Bytes


class Batches(Message, versions="0-1", flexible="1+"):
    value: Records | None


class Numbers(Message, versions="0-1", flexible="1+"):
    value: list[Int64]


class Names(Message, versions="0-1", flexible="1+"):
    value: list[String]


class Items(Message, versions="0-1", flexible="1+"):
    value: list[Item] | None


def allocated_bytes(work: Callable[[], object]) -> int:
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_giant_lengths_are_refused_before_anything_is_allocated(subtests: pytest.Subtests) -> None:
    classes: list[type[Message]] = [Strings, Blobs, Batches, Numbers, Names, Items]
    for cls, version, length in product(classes, (0, 1), (11, 127, 2**15 - 1, 2**31 - 1)):
        with subtests.test(f"{cls.__name__} v{version} with a length of {length}"):
            classic = min(length, 2**15 - 1).to_bytes(2, "big") if cls is Strings else length.to_bytes(4, "big")
            raw = (unsigned_varint(length + 1) if version else classic) + bytes(10)
            decode_error(cls, version, raw)  # Compiles the decoder, which allocates memory, too.

            assert allocated_bytes(partial(decode_error, cls, version, raw)) < 20_000


@pytest.mark.parametrize("version", [0, 1])
def test_arrays_of_integers_are_refused_if_too_few_bytes_are_left(version: int) -> None:
    count = b"\x03" if version else b"\x00\x00\x00\x02"

    assert decode(Numbers, count + bytes(16) + bytes(version), version) == Numbers(value=[0, 0])
    assert decode_error(Numbers, version, count + bytes(15)).endswith(": 2 elements announced, 15 bytes left")


def test_errors_describe_what_is_malformed(subtests: pytest.Subtests) -> None:
    cases: list[tuple[type[Message], int, bytes, str]] = [
        (Strings, 0, b"\xff\xff", "malformed at byte 2: length -1, expected 0 or more"),
        (Strings, 1, b"\x00\x00", "malformed at byte 1: length -1, expected 0 or more"),
        (Batches, 0, b"\xff\xff\xff\xfe", "malformed at byte 4: length -2, expected 0 or more"),
        (Names, 0, b"\xff\xff\xff\xff", "malformed at byte 4: length -1, expected 0 or more"),
        (Strings, 0, b"\x7f\xff" + b"\xff" * 32767, "malformed at byte 2: string of 98301 bytes with replaced ones"),
        (Strings, 1, b"\xff\xff\xff\xff\xff\x00", "malformed at byte 0: unsigned varint longer than 5 bytes"),
        (Strings, 1, b"\xff\xff\xff\xff\x7f\x00", "malformed at byte 0: unsigned varint larger than 32 bits"),
    ]
    for cls, version, raw, expected in cases:
        with subtests.test(f"{cls.__name__} v{version}: {expected}"):
            assert decode_error(cls, version, raw).startswith(f"{cls.__name__} v{version}: field value {expected}")


@pytest.mark.parametrize("version", [0, 1])
def test_malformed_utf_8_is_replaced(version: int) -> None:
    for data, text in ((b"\xc3(", "\ufffd("), (b"g\xed\xa0\x80", "g\ufffd"), (b"\xff" * 10_922, "\ufffd" * 10_922)):
        length = unsigned_varint(len(data) + 1) if version else len(data).to_bytes(2, "big")
        decoded = decode(Strings, length + data + bytes(version), version)
        assert decoded.value == text
        assert decode(Strings, encode(decoded, version), version) == decoded


@pytest.mark.parametrize("version", [0, 1])
def test_strings_of_more_than_32767_bytes_cannot_be_encoded(version: int) -> None:
    longest = "x" * 32767

    assert decode(Strings, encode(Strings(value=longest), version), version).value == longest
    with pytest.raises(ProtocolError, match=f"Strings v{version}: field value='xxx"):
        encode(Strings(value=longest + "x"), version)


def test_compact_strings_of_more_than_32767_bytes_cannot_be_decoded() -> None:
    raw = unsigned_varint(32768 + 1) + b"x" * 32768 + b"\x00"

    assert decode_error(Strings, 1, raw).endswith("at byte 3: string of 32768 bytes, expected at most 32767")


def test_truncations_name_the_field_of_the_missing_byte() -> None:
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
        ("protocols", 23, range(23, 24)),  # The count is 1, but no bytes are left.
        ("protocols.name", 23, range(24, 25)),
        ("protocols.name", 25, range(25, 26)),
        ("protocols.metadata", 26, range(26, 30)),
        ("protocols.metadata", 30, range(30, 32)),
    ):
        for cut in cuts:
            assert f"field {name} malformed at byte {start}:" in decode_error(JoinGroupRequest, 5, raw[:cut])
    assert len(raw) == 32


def test_errors_name_the_path_of_nested_fields() -> None:
    topic = filled(MetadataResponseTopic, 9)
    topic.partitions[0].replica_nodes = [7, 8]
    raw = encode(MetadataResponse(brokers=[], topics=[topic]), 9)
    at = raw.index(b"\x03\x00\x00\x00\x07")

    text = decode_error(MetadataResponse, 9, raw[:at] + b"\x7f" + raw[at + 1 :])

    expected = f"field topics.partitions.replica_nodes malformed at byte {at + 1}: 126 elements announced, "
    assert text.startswith(f"MetadataResponse v9: {expected}")


def test_encoding_errors_name_field_and_value() -> None:
    request = FetchRequest(max_wait_ms=1, min_bytes=2**31, topics=[FetchTopic(topic="t", partitions=[])])
    with pytest.raises(ProtocolError, match=r"FetchRequest v12: field min_bytes=2147483648 cannot be encoded: "):
        encode(request, 12)

    request.min_bytes = 1
    request.topics[0].topic = None  # type: ignore[assignment]  # this is the mistake
    with pytest.raises(ProtocolError, match=r"FetchRequest v12: field topics\.topic=None cannot be encoded: "):
        encode(request, 12)


def test_unknown_versions_are_errors() -> None:
    for version in (-1, 6):
        with pytest.raises(ProtocolError, match=f"SyncGroupRequest v{version}: expected a version from 0-5"):
            decode(SyncGroupRequest, b"", version)
        with pytest.raises(ProtocolError, match=f"SyncGroupRequest v{version}: expected a version from 0-5"):
            encode(filled(SyncGroupRequest, 5), version)
