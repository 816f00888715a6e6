"""The subscribed topics of a consumer, parsed from its metadata, and of a group."""

from hypothesis import given, strategies as st

from fakebroker.coordinator.classic.group import parse_subscribed_topics
from fakebroker.protocol.consumer_protocol import encode_subscription
from tests.support.coordinator.coordinator_harness import CoordinatorHarness, protocols
from tests.support.subtests import subtest_for_each


@subtest_for_each("version", range(4))
@subtest_for_each("topics", [(), ("t",), ("", "t", "другая")])
def test_topics_are_parsed_from_every_version(topics: tuple[str, ...], version: int) -> None:
    assert parse_subscribed_topics(encode_subscription(topics, [("t", 0)], version=version)) == topics


def test_unknown_later_versions_are_parsed_as_version_0() -> None:
    assert parse_subscribed_topics(b"\0\4" + encode_subscription(["t"])[2:] + b"and more") == ("t",)


def test_truncated_metadata_is_rejected() -> None:
    whole = encode_subscription(["one", "two"], version=0)
    assert [parse_subscribed_topics(whole[:size]) for size in range(len(whole))] == [None] * len(whole)


INVALID = {
    "negative count": b"\0\0" + b"\xff" * 4 + b"\xff" * 4,
    "huge count": b"\0\0" + b"\x7f" + b"\xff" * 7,
    "negative length": b"\0\0" + b"\0\0\0\1" + b"\xff\xff" + b"\0\0\0\0",
    "user data missing": encode_subscription(["t"], version=0)[:-4] + b"\0\0\0\1",
}


@subtest_for_each("metadata", INVALID.values(), ids=INVALID)
def test_invalid_metadata_is_rejected(metadata: bytes) -> None:
    assert parse_subscribed_topics(metadata) is None


@given(st.binary(max_size=40))
def test_arbitrary_bytes_do_not_raise(metadata: bytes) -> None:
    topics = parse_subscribed_topics(metadata)
    assert topics is None or all(isinstance(topic, str) for topic in topics)


def test_subscribed_topics_are_the_union_of_the_members() -> None:
    harness = CoordinatorHarness()
    harness.join(protocols=protocols("range", metadata=encode_subscription(["a", "b"])))
    harness.join(protocols=protocols("range", metadata=encode_subscription(["b", "c"])))
    assert harness.group().subscribed_topics is None
    harness.advance(6_000)
    assert harness.group().subscribed_topics == frozenset("abc")


def test_one_invalid_subscription_makes_the_topics_unknown() -> None:
    harness = CoordinatorHarness()
    harness.join()
    harness.join(protocols=protocols("range", metadata=b"?"))
    harness.advance(6_000)
    assert harness.group().subscribed_topics is None
    assert harness.group().is_subscribed_to("anything")


def test_other_protocol_types_have_no_subscribed_topics() -> None:
    harness = CoordinatorHarness()
    harness.create_completing_group(protocol_type="connect")
    assert harness.group().subscribed_topics is None
    assert not harness.group().is_subscribed_to("t")


def test_empty_group_is_not_subscribed() -> None:
    harness = CoordinatorHarness()
    harness.leave(*[(member_id, None) for member_id in harness.create_stable_group()])
    assert harness.group().protocol_type == "consumer"
    assert not harness.group().is_subscribed_to("t")
