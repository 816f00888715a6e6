"""Addresses as text: parsing and formatting, with IPv6 addresses in brackets."""

import pytest

from fakebroker.host_port import bracketed, format_host_port, is_host, parse_host_port, unbracketed

VALID = [
    ("127.0.0.1:9092", "127.0.0.1", 9092),
    ("broker-1.example.org:0", "broker-1.example.org", 0),
    ("[::1]:65535", "::1", 65535),
    ("[fe80::1%eth0]:9092", "fe80::1%eth0", 9092),
]


def test_addresses_are_parsed_and_formatted(subtests: pytest.Subtests) -> None:
    for text, host, port in VALID:
        with subtests.test(text):
            assert parse_host_port(text) == (host, port)
            assert format_host_port(host, port) == text
            assert unbracketed(bracketed(host)) == host
    assert format_host_port("[::1]", 9092) == "[::1]:9092"


def test_malformed_addresses_are_not_parsed(subtests: pytest.Subtests) -> None:
    malformed = [
        "", "localhost", ":9092", "localhost:", "localhost:many", "localhost:65536", "localhost:-1", "localhost:٣",
        "::1", "::1:9092", "[::1]", "[::1", "[::1:9092", "[]:9092", "[[::1]]:9092", "a b:9092", "kafka://h:9092",
    ]  # fmt: skip
    for text in malformed:
        with subtests.test(text):
            assert parse_host_port(text) is None


def test_hosts(subtests: pytest.Subtests) -> None:
    for text in ["127.0.0.1", "broker-1.example.org", "::1", "[::1]", "fe80::1%eth0", "0.0.0.0"]:
        with subtests.test(text):
            assert is_host(text)
    for text in ["", "localhost:9092", "127.0.0.1:9092", "[::1]:9092", "::1:x", "a b", "kafka://h", "[::1", "h/path"]:
        with subtests.test(text):
            assert not is_host(text)
