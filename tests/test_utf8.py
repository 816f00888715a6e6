"""Replacement of malformed UTF-8: the same characters as Java's `new String(bytes, UTF_8)`."""

import pytest

from fakebroker.utf8 import decode_utf8

MALFORMED = {
    # In hexadecimal, with the text that Java 17 and 25 return, in which "?" is U+FFFD.
    "80": "?",
    "61ff62": "a?b",
    "c0af": "??",
    "c1bf": "??",
    "c2": "?",
    "c241": "?A",
    "c328": "?(",
    "e08080": "???",
    "e08041": "??A",
    "e282": "?",
    "e28241": "?A",
    "e2e28282": "?\u2082",
    "eda080": "?",
    "eda08041": "?A",
    "eda041": "?A",
    "eda0": "?",
    "ed": "?",
    "edbfbf": "?",
    "edb080eda080": "??",
    "eda0eda080": "??",
    "eda0bdedb880": "??",
    "ed41": "?A",
    "ef": "?",
    "ee80": "?",
    "f08080af": "????",
    "f09080": "?",
    "f0904180": "?A?",
    "f09041": "?A",
    "f4908080": "????",
    "f4bf": "??",
    "f5808080": "????",
    "f7bfbfbf": "????",
    "f88080808041": "?????A",
    "fffe": "??",
    "f09f9a80ff": "\U0001f680?",
}


def test_malformed_bytes_are_replaced_as_in_java(subtests: pytest.Subtests) -> None:
    for data, expected in MALFORMED.items():
        with subtests.test(data):
            assert decode_utf8(bytes.fromhex(data)) == expected.replace("?", "\ufffd")


def test_valid_text_is_unchanged() -> None:
    for text in ("", "a", "\0", "é", "\ud7ff\ue000\uffff", "\U0010ffff", "消费者组 🚀"):
        assert decode_utf8(text.encode()) == text
