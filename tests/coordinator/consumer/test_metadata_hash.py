"""The hash of a group's topics is Kafka's: XXH3, and what goes into it."""

import random
from struct import pack

import xxhash

from fakebroker.coordinator.consumer.subscriptions import TopicMetadata, metadata_hash, topic_hash
from fakebroker.coordinator.consumer.xxh3 import xxh3
from tests.support.coordinator.consumer_group_harness import ConsumerGroupHarness, FakeTopics
from tests.support.subtests import subtest_for_each

# Sizes and hashes of xxHash's own test (`tests/sanity_test.c`), whose input is `sanity_buffer`.
VECTORS = [
    (6, 0x27B56A84CD2D7325),
    (12, 0xA713DAF0DFBB77E7),
    (24, 0xA3FE70BF9D3510EB),
    (48, 0x397DA259ECBA1F11),
    (80, 0xBCDEFBBB2C47C90A),
    (195, 0xCD94217EE362EC3A),
    (403, 0xCDEB804D65C6DEA4),
    (512, 0x617E49599013CB6B),
    (2048, 0xDD59E2C3A5F038E0),
    (2240, 0x6E73A90539CF2948),
    (2367, 0xCB37AEB9E5D361ED),
]


def sanity_buffer(size: int) -> bytes:
    state, data = 2654435761, bytearray()
    for _ in range(size):
        data.append(state >> 56)
        state = state * 11400714785074694797 % 2**64
    return bytes(data)


@subtest_for_each(("size", "expected"), VECTORS)
def test_published_vectors(size: int, expected: int) -> None:
    assert xxh3(sanity_buffer(size)) == expected


def test_all_short_sizes_and_some_long_ones() -> None:
    chance = random.Random(1)
    for size in (*range(4, 300), 1024, 1025, 1088, 1089, 2048, 2049, 10_000):
        data = chance.randbytes(size)
        assert xxh3(data) == xxhash.xxh3_64_intdigest(data), size


def test_the_hash_of_a_topic() -> None:
    topic = TopicMetadata(bytes(range(16)), "foo", 2)
    expected = xxhash.xxh3_64_intdigest(
        b"\0"
        + pack("<QQ", 0x0001020304050607, 0x08090A0B0C0D0E0F)
        + "foo".encode("utf-16-le")
        + pack("<III", 3, 2, 0)
        + b"".join(pack("<I", 5) + rack.encode("utf-16-le") + pack("<I", 5) for rack in ("rack0", "rack1"))
        + pack("<I", 1)
        + b"".join(pack("<I", 5) + rack.encode("utf-16-le") + pack("<I", 5) for rack in ("rack1", "rack2"))
    )
    assert topic_hash(topic, [["rack1", "rack0"], ["rack1", "rack2"]]) == expected
    assert topic_hash(topic, [["rack0"], ["rack1", "rack2"]]) != expected


def test_racks_are_sorted_as_in_java() -> None:
    topic = TopicMetadata(bytes(16), "t", 1)
    emoji, private = (
        "\U0001f600",
        "\ue000",
    )  # The first one is encoded as two characters, which are less than the second.
    expected = xxhash.xxh3_64_intdigest(
        bytes(17) + "t".encode("utf-16-le") + pack("<III", 1, 1, 0)
        + pack("<I", 2) + emoji.encode("utf-16-le") + pack("<II", 2, 1) + private.encode("utf-16-le") + pack("<I", 1)
    )  # fmt: skip
    assert topic_hash(topic, [[private, emoji]]) == expected


def test_the_hash_of_a_group() -> None:
    topics = FakeTopics(orders=6, news=1)
    hashes = [topics.hash_of(name) for name in ("news", "orders")]
    (expected,) = {xxhash.xxh3_64_intdigest(pack("<QQ", *hashes))}
    assert metadata_hash(("orders", "news", "missing"), topics) % 2**64 == expected
    assert metadata_hash(("missing",), topics) == 0
    assert {metadata_hash([name], FakeTopics(**{name: 1})) < 0 for name in "abcdefgh"} == {True, False}, "it is signed"


def test_other_racks_of_replicas_start_a_rebalance() -> None:
    harness = ConsumerGroupHarness()
    harness.send("a")
    harness.topics.move("orders", "r1", "r2")
    assert harness.stay("a").member_epoch == 3
    harness.topics.move("orders", "r2", "r1")
    assert harness.stay("a").member_epoch == 3, "their order does not matter"
    harness.topics.move("orders", "r1")
    assert harness.stay("a").member_epoch == 4
