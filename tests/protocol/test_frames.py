"""Framing: frames from a stream received in any pieces, headers, the size limit."""

import struct
import tracemalloc
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from fakebroker.errors import ProtocolError
from fakebroker.protocol import compiler, frames
from fakebroker.protocol.codec import decode, encode
from fakebroker.protocol.frames import (
    FrameBuffer,
    RequestHeader,
    has_tagged_header,
    read_request_header,
    read_response,
    request_frame,
    response_frame,
    response_parts,
)
from fakebroker.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from fakebroker.protocol.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from fakebroker.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from tests.support.message_versions import MESSAGE_VERSIONS, REQUESTS, RESPONSES, filled, message_subtest
from tests.support.soak import examples, soak


def framed(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def pieces(stream: bytes, size: int) -> Iterator[bytes]:
    return (stream[at : at + size] for at in range(0, len(stream), size))


@soak
@settings(max_examples=examples(50, soak=2000))
@given(
    bodies=st.lists(st.binary(max_size=20) | st.integers(0, 300).map(bytes), max_size=6),
    cuts=st.lists(st.integers(0, 500), max_size=12),
)
def test_frames_do_not_depend_on_the_pieces_received(bodies: list[bytes], cuts: list[int]) -> None:
    stream = b"".join(map(framed, bodies))
    ends = [0, *sorted(min(cut, len(stream)) for cut in cuts), len(stream)]
    buffer = FrameBuffer()

    found = [frame for start, end in pairwise(ends) for frame in buffer.feed(stream[start:end])]

    assert found == bodies
    assert buffer.held_bytes == 0


def test_a_frame_is_returned_as_soon_as_it_is_complete() -> None:
    buffer = FrameBuffer()

    assert buffer.feed(b"\0\0\0") == []
    assert buffer.feed(b"\x02a") == []
    assert buffer.held_bytes == 5
    assert buffer.feed(b"b\0\0\0\0" + b"\0\0\0\x01") == [b"ab", b""]
    assert buffer.held_bytes == 4
    assert buffer.feed(b"c") == [b"c"]


@pytest.mark.parametrize("size", [-1, -(2**31), 11, 2**31 - 1])
def test_invalid_sizes_are_refused_before_the_frame_arrives(size: int) -> None:
    buffer = FrameBuffer(max_bytes=10)
    assert buffer.feed(framed(bytes(10))) == [bytes(10)]
    raw = struct.pack(">i", size)
    assert buffer.feed(raw[:3]) == []

    with pytest.raises(ProtocolError, match=f"frame of {size} bytes, expected 0 to 10"):
        buffer.feed(raw[3:])


def test_the_default_limit_is_kafkas_100_mib() -> None:
    assert FrameBuffer().feed(struct.pack(">i", 104857600)) == []
    with pytest.raises(ProtocolError, match="frame of 104857601 bytes, expected 0 to 104857600"):
        FrameBuffer().feed(struct.pack(">i", 104857601))


class CountedBytes(bytes):
    """Received bytes; slices of them are counted as copies."""

    copied_bytes = 0

    def __getitem__(self, index: Any) -> Any:
        found = super().__getitem__(index)
        if isinstance(index, slice):
            CountedBytes.copied_bytes += len(found)
            return CountedBytes(found)
        return found


class CountingJoin(bytes):
    """Counts the bytes that `join` copies; replaces an empty separator."""

    def join(self, pieces: Any) -> CountedBytes:
        joined = CountedBytes(super().join(pieces))
        CountedBytes.copied_bytes += len(joined)
        return joined


@pytest.mark.parametrize(
    ("frame_bytes", "piece_bytes"),
    [(1_000_000, 100), (1_000_000, 1_000_004), (100, 64), (100, 10_000), (0, 3)],
)
def test_each_byte_is_copied_at_most_three_times(
    frame_bytes: int, piece_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(frames, "_NOTHING", CountingJoin())
    monkeypatch.setattr(CountedBytes, "copied_bytes", 0)
    stream = framed(bytes(frame_bytes)) * (2_000_000 // (frame_bytes + 1000))
    buffer = FrameBuffer()

    found = sum(len(buffer.feed(CountedBytes(piece))) for piece in pieces(stream, piece_bytes))

    assert found == len(stream) // (frame_bytes + 4)
    assert frame_bytes / (frame_bytes + 4) * len(stream) <= CountedBytes.copied_bytes <= 3 * len(stream)


def test_request_frames_of_every_version(subtests: pytest.Subtests) -> None:
    for cls, version in [each for each in MESSAGE_VERSIONS if each[0] in REQUESTS]:
        with message_subtest(subtests, cls, version):
            request = filled(cls, version)
            for client_id in (None, "", "grüße"):
                (frame,) = FrameBuffer().feed(request_frame(request, version, 77, client_id))
                header, position = read_request_header(frame, version in cls.FLEXIBLE)

                assert header == RequestHeader(cls.API_KEY, version, 77, client_id)
                assert decode(cls, frame, version, position) == request


def test_response_frames_of_every_version(subtests: pytest.Subtests) -> None:
    for cls, version in [each for each in MESSAGE_VERSIONS if each[0] in RESPONSES]:
        with message_subtest(subtests, cls, version):
            response = filled(cls, version)
            (frame,) = FrameBuffer().feed(bytes(response_frame(response, version, -5)))

            assert read_response(cls, version, frame) == (-5, response)
            assert len(frame) == 4 + has_tagged_header(cls, version) + len(encode(response, version))


def test_responses_in_parts_are_those_frames(subtests: pytest.Subtests, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiler, "MIN_PART_BYTES", 1)
    for cls, version in [each for each in MESSAGE_VERSIONS if each[0] in RESPONSES]:
        with message_subtest(subtests, cls, version):
            response = filled(cls, version)
            assert b"".join(response_parts(response, version, -5)) == response_frame(response, version, -5)


def test_large_record_batches_of_responses_are_not_copied() -> None:
    large, small = bytes(compiler.MIN_PART_BYTES), bytes(compiler.MIN_PART_BYTES - 1)
    partitions = [
        PartitionData(partition_index=index, error_code=0, high_watermark=9, records=data)
        for index, data in enumerate((large, small, large))
    ]
    response = FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=partitions)])

    parts = response_parts(response, 12, 7)

    assert [len(part) for part in parts if part is large] == [len(large)] * 2
    assert b"".join(parts) == response_frame(response, 12, 7)


def test_flexible_versions_have_tagged_headers_except_api_versions() -> None:
    tagged = {(cls, version) for cls, version in MESSAGE_VERSIONS if has_tagged_header(cls, version)}
    flexible = {(cls, version) for cls, version in MESSAGE_VERSIONS if version in cls.FLEXIBLE}
    api_versions = {(cls, version) for cls in (ApiVersionsRequest, ApiVersionsResponse) for version in (3, 4, 5)}

    assert flexible - tagged == api_versions
    assert tagged < flexible


def test_tagged_fields_in_headers_are_skipped() -> None:
    tags = b"\x02\x00\x03abc\x09\x00"
    request = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
    frame = bytes.fromhex("000c 0004 00000001 0001") + b"c" + tags + encode(request, 4)
    header, position = read_request_header(frame, flexible=True)

    assert header == RequestHeader(12, 4, 1, "c")
    assert decode(HeartbeatRequest, frame, 4, position) == request
    assert read_response(HeartbeatResponse, 4, b"\0\0\0\x09" + tags + encode(HeartbeatResponse(), 4)) == (
        9,
        HeartbeatResponse(),
    )


@pytest.mark.parametrize("flexible", [False, True])
def test_a_truncated_header_is_an_error(flexible: bool) -> None:
    frame = bytes.fromhex("000c 0004 00000001 0003") + b"abc" + b"\x01\x05\x02xy" * flexible

    assert read_request_header(frame, flexible) == (RequestHeader(12, 4, 1, "abc"), len(frame))
    for end in range(len(frame)):
        with pytest.raises(ProtocolError, match="request header malformed: "):
            read_request_header(frame[:end], flexible)


@pytest.mark.parametrize("version", [1, 4])
def test_a_truncated_response_is_an_error(version: int) -> None:
    frame = bytes(response_frame(HeartbeatResponse(), version, 3)[4:])

    for end in range(len(frame)):
        with pytest.raises(ProtocolError, match=f"HeartbeatResponse v{version}: "):
            read_response(HeartbeatResponse, version, frame[:end])


@soak
@settings(max_examples=examples(50, soak=2000))
@given(frame=st.binary(max_size=40), flexible=st.booleans())
def test_any_bytes_are_a_header_or_a_protocol_error(frame: bytes, flexible: bool) -> None:
    try:
        _, position = read_request_header(frame, flexible)
    except ProtocolError:
        return
    assert 10 <= position <= len(frame)


def test_client_ids_that_exceed_the_frame_or_become_too_long_are_errors() -> None:
    for client in (b"\x7f\xffabc", b"\x7f\xff" + b"\xff" * 32767):
        for flexible in (False, True):
            with pytest.raises(ProtocolError, match="request header malformed: "):
                read_request_header(bytes(8) + client, flexible)


def test_malformed_utf_8_in_client_ids_is_replaced() -> None:
    for flexible in (False, True):
        header, _ = read_request_header(bytes(8) + b"\x00\x02a\xff\x00", flexible)
        assert header.client_id == "a\ufffd"


def test_small_pieces_of_a_frame_occupy_little_more_than_their_size() -> None:
    frame = bytes(range(256)) * 400
    data = struct.pack(">i", len(frame)) + frame
    buffer = FrameBuffer()
    tracemalloc.start()
    try:
        for start in range(0, len(data) - 2, 2):
            assert buffer.feed(data[start : start + 2]) == []
        size_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    frames = buffer.feed(data[-2:] + struct.pack(">i", 3) + b"abc")
    assert frames == [frame, b"abc"]
    assert size_bytes < 1.5 * len(data)
