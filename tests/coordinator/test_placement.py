"""The partition of a group id, compared with values from a JDK."""

import pytest

from fakebroker.coordinator.partitions import java_string_hash, java_string_length, partition_for
from tests.support.subtests import subtest_for_each

# Group id, length, hashCode, partition of 50, partition of 3.
JDK = [
    ("", 0, 0, 0, 0),
    ("a", 1, 97, 47, 1),
    ("group", 5, 98629247, 47, 2),
    ("my-group", 8, -1906497762, 12, 0),
    ("test-group", 10, 627841412, 12, 2),
    ("console-consumer-12345", 22, 158455506, 6, 0),
    ("order-service", 13, 562889526, 26, 0),
    ("polygenelubricants", 18, -2147483648, 0, 0),
    ("café", 4, 3045921, 21, 0),
    ("группа", 6, 1749938458, 8, 1),
    ("消费者组", 4, 871131088, 38, 1),
    ("🚀", 2, 1773027, 27, 0),
    ("grp-🚀-1", 8, -2126020945, 45, 1),
]


@subtest_for_each(("text", "length", "value", "of_50", "of_3"), JDK)
def test_java_string_length_hash_and_partition(text: str, length: int, value: int, of_50: int, of_3: int) -> None:
    assert java_string_length(text) == length
    assert java_string_hash(text) == value
    assert partition_for(text, 50) == of_50
    assert partition_for(text, 3) == of_3


def test_hash_of_lone_surrogates() -> None:
    assert java_string_hash("\ud83d") == 0xD83D
    assert java_string_hash("\ude80\ud83d") == 31 * 0xDE80 + 0xD83D


def test_partition_count_has_to_be_positive() -> None:
    with pytest.raises(ValueError, match="partition_count=0: expected an integer >= 1"):
        partition_for("g", 0)
