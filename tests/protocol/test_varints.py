"""Variable-length integers (KIP-482)."""

import pytest
from hypothesis import given, settings, strategies as st

from fakebroker.protocol.types import read_unsigned_varint, unsigned_varint
from tests.support.soak import examples, soak


def test_known_values() -> None:
    for value, raw in (
        (0, b"\x00"),
        (1, b"\x01"),
        (127, b"\x7f"),
        (128, b"\x80\x01"),
        (300, b"\xac\x02"),
        (16383, b"\xff\x7f"),
        (16384, b"\x80\x80\x01"),
        (2**31 - 1, b"\xff\xff\xff\xff\x07"),
        (2**32 - 1, b"\xff\xff\xff\xff\x0f"),
    ):
        assert unsigned_varint(value) == raw
        assert read_unsigned_varint(b"?" + raw + b"?", 1) == (value, 1 + len(raw))


@soak
@settings(max_examples=examples(30, soak=1000))
@given(st.integers(0, 2**32 - 1))
def test_a_decoded_varint_equals_the_encoded_one(value: int) -> None:
    raw = unsigned_varint(value)

    assert read_unsigned_varint(raw, 0) == (value, len(raw))
    assert len(raw) == max(1, -(-value.bit_length() // 7))


@soak
@settings(max_examples=examples(30, soak=1000))
@given(st.integers(0, 2**32 - 1))
def test_truncated_varints_are_errors(value: int) -> None:
    raw = unsigned_varint(value)

    for end in range(len(raw)):
        with pytest.raises(IndexError):
            read_unsigned_varint(raw[:end], 0)


def test_redundant_bytes_are_accepted() -> None:
    assert read_unsigned_varint(b"\x81\x80\x00", 0) == (1, 3)


def test_more_than_32_bits_or_5_bytes_are_errors() -> None:
    with pytest.raises(ValueError, match="larger than 32 bits"):
        read_unsigned_varint(b"\xff\xff\xff\xff\x10", 0)
    with pytest.raises(ValueError, match="longer than 5 bytes"):
        read_unsigned_varint(b"\x80\x80\x80\x80\x80\x00", 0)
