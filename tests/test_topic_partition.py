"""Names of topics and partitions: legal names, parsing and formatting."""

import pytest
from hypothesis import given, settings, strategies as st

from fakebroker.errors import ConfigError
from fakebroker.topic_partition import (
    by_topic,
    format_partitions,
    is_legal_name,
    is_offset,
    is_partition,
    name_error,
    parse_partition,
)
from tests.support.soak import examples, soak


def test_legal_topic_names() -> None:
    for name in ("a", "...", "x" * 249, "A-z_0.9", "__consumer_offsets"):
        assert is_legal_name(name), name
        assert name_error(name) is None


def test_illegal_topic_names() -> None:
    for name in ("", ".", "..", "x" * 250, "a b", "a/b", "ü", "a\n", "..\n"):
        assert not is_legal_name(name), name
        error = f"topic name {name!r}: expected a name of 1 to 249 characters (a-z, A-Z"
        assert str(name_error(name)).startswith(error)
    for other in (None, 1, b"orders"):
        assert not is_legal_name(other), other


def test_partitions_are_parsed() -> None:
    cases: list[tuple[object, tuple[str, int]]] = [
        ("orders-0", ("orders", 0)),
        ("a-b-12", ("a-b", 12)),
        ("a--1", ("a-", 1)),
        (("orders", 3), ("orders", 3)),
    ]
    for value, partition in cases:
        assert parse_partition(value) == partition, value


@soak
@settings(max_examples=examples(30, soak=1000))
@given(st.text(min_size=1), st.integers(0, 2**31 - 1))
def test_a_formatted_partition_is_parsed(topic: str, index: int) -> None:
    assert parse_partition(format_partitions([(topic, index)])) == (topic, index)


def test_other_values_are_not_parsed_as_partitions(subtests: pytest.Subtests) -> None:
    values: list[object] = [
        *("orders", "orders-", "-0", "", "orders-x", "orders-²", "orders-٣", "orders-" + "1" * 11),
        *(None, 0, ("orders", -1), ("orders", True), ("orders", "0"), ["orders", 0]),
    ]
    for value in values:
        with subtests.test(value=value):
            with pytest.raises(ConfigError) as caught:
                parse_partition(value, "offsets", where="group 'g'")
            expected = "a topic and a number, such as 'orders-0'"
            assert str(caught.value) == f"group 'g': offsets={value!r}: expected {expected}"
            assert (caught.value.field, caught.value.value, caught.value.expected) == ("offsets", value, expected)


def test_partition_numbers_are_32_bit(subtests: pytest.Subtests) -> None:
    assert parse_partition("orders-2147483647") == ("orders", 2**31 - 1)
    for value in ("orders-2147483648", "orders-9999999999"):
        with subtests.test(value=value):
            with pytest.raises(ConfigError) as caught:
                parse_partition(value)
            assert str(caught.value) == f"partition={value!r}: expected a partition number from 0 to 2147483647"


def test_partitions_by_topic_keep_their_order() -> None:
    assert by_topic([("b", 2), ("a", 1), ("b", 0)]) == {"b": [2, 0], "a": [1]}


def test_partitions_as_text() -> None:
    assert format_partitions([("orders", 0), ("payments", 1)]) == "orders-0, payments-1"
    assert format_partitions([]) == "none"


def test_partitions_and_offsets_are_recognized() -> None:
    assert is_partition(("orders", 2**31 - 1))
    assert not is_partition(("orders", 2**31))
    assert is_offset(0)
    assert not is_offset(True)
    assert not is_offset(-1)
