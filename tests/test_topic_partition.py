"""Names of topics and partitions: which are legal, and how partitions are read and written."""

import pytest
from hypothesis import given, strategies as st

from fakebroker.errors import ConfigError
from fakebroker.topic_partition import (
    by_topic,
    format_partitions,
    is_legal_name,
    is_offset,
    is_partition,
    name_fault,
    parse_partition,
)


@pytest.mark.parametrize("name", ["a", "...", "x" * 249, "A-z_0.9", "__consumer_offsets"])
def test_legal_names(name: str) -> None:
    assert is_legal_name(name)
    assert name_fault(name) is None


@pytest.mark.parametrize("name", ["", ".", "..", "x" * 250, "a b", "a/b", "ü", "a\n", "..\n"])
def test_illegal_names(name: str) -> None:
    assert not is_legal_name(name)
    assert str(name_fault(name)).startswith(f"topic name {name!r}: expected 1 to 249 of a-z, A-Z, 0-9, '.', '_' and")


@pytest.mark.parametrize("name", [None, 1, b"orders"])
def test_other_values_are_not_legal_names(name: object) -> None:
    assert not is_legal_name(name)


@pytest.mark.parametrize(
    ("text", "partition"),
    [("orders-0", ("orders", 0)), ("a-b-12", ("a-b", 12)), ("a--1", ("a-", 1)), (("orders", 3), ("orders", 3))],
)
def test_partitions_are_parsed(text: object, partition: tuple[str, int]) -> None:
    assert parse_partition(text) == partition


@given(st.text(min_size=1), st.integers(0, 2**31 - 1))
def test_a_partition_is_read_as_it_is_written(topic: str, index: int) -> None:
    assert parse_partition(format_partitions([(topic, index)])) == (topic, index)


@pytest.mark.parametrize(
    "value",
    [
        *("orders", "orders-", "-0", "", "orders-x", "orders-²", "orders-٣", "orders-" + "1" * 11),
        *(None, 0, ("orders", -1), ("orders", True), ("orders", "0"), ["orders", 0]),
    ],
)
def test_anything_else_is_refused(value: object) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_partition(value, "offsets", where="group 'g'")
    expected = "a topic and a number, such as 'orders-0'"
    assert str(caught.value) == f"group 'g': offsets={value!r}: expected {expected}"
    assert (caught.value.field, caught.value.value, caught.value.expected) == ("offsets", value, expected)


def test_partitions_by_topic_keep_their_order() -> None:
    assert by_topic([("b", 2), ("a", 1), ("b", 0)]) == {"b": [2, 0], "a": [1]}


def test_partitions_as_text() -> None:
    assert format_partitions([("orders", 0), ("payments", 1)]) == "orders-0, payments-1"
    assert format_partitions([]) == "none"


def test_what_is_a_partition_or_an_offset() -> None:
    assert is_partition(("orders", 2**31 - 1))
    assert not is_partition(("orders", 2**31))
    assert is_offset(0)
    assert not is_offset(True)
    assert not is_offset(-1)
