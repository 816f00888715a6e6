"""Reading the topics out of a consumer's metadata."""

import pytest
from hypothesis import given, strategies as st

from fakebroker.coordinator.group.classic.subscription import parse_subscribed_topics
from fakebroker.protocol.consumer_protocol import encode_subscription
from tests.support.coordinator.coordinator_harness import CoordinatorHarness, protocols


@pytest.mark.parametrize("version", range(4))
@pytest.mark.parametrize("topics", [(), ("t",), ("", "t", "другая")])
def test_topics_are_read(topics: tuple[str, ...], version: int) -> None:
    assert parse_subscribed_topics(encode_subscription(topics, [("t", 0)], version=version)) == topics


def test_later_versions_are_read_by_their_beginning() -> None:
    assert parse_subscribed_topics(b"\0\4" + encode_subscription(["t"])[2:] + b"and more") == ("t",)


def test_every_cut_is_noticed() -> None:
    whole = encode_subscription(["one", "two"], version=0)
    assert [parse_subscribed_topics(whole[:size]) for size in range(len(whole))] == [None] * len(whole)


@pytest.mark.parametrize(
    "metadata",
    [
        pytest.param(b"\0\0" + b"\xff" * 4 + b"\xff" * 4, id="negative count"),
        pytest.param(b"\0\0" + b"\x7f" + b"\xff" * 7, id="huge count"),
        pytest.param(b"\0\0" + b"\0\0\0\1" + b"\xff\xff" + b"\0\0\0\0", id="negative length"),
        pytest.param(encode_subscription(["t"], version=0)[:-4] + b"\0\0\0\1", id="user data missing"),
    ],
)
def test_nonsense_is_unknown(metadata: bytes) -> None:
    assert parse_subscribed_topics(metadata) is None


@given(st.binary(max_size=40))
def test_any_bytes_are_survived(metadata: bytes) -> None:
    topics = parse_subscribed_topics(metadata)
    assert topics is None or all(isinstance(topic, str) for topic in topics)


def test_a_generation_knows_the_union() -> None:
    driver = CoordinatorHarness()
    driver.join(protocols=protocols("range", metadata=encode_subscription(["a", "b"])))
    driver.join(protocols=protocols("range", metadata=encode_subscription(["b", "c"])))
    assert driver.group().subscribed_topics is None
    driver.advance(6_000)
    assert driver.group().subscribed_topics == frozenset("abc")


def test_one_unreadable_member_makes_it_unknown_which_counts_as_all() -> None:
    driver = CoordinatorHarness()
    driver.join()
    driver.join(protocols=protocols("range", metadata=b"?"))
    driver.advance(6_000)
    assert driver.group().subscribed_topics is None
    assert driver.group().is_subscribed_to("anything")


def test_other_protocol_types_are_not_looked_at() -> None:
    driver = CoordinatorHarness()
    driver.complete(protocol_type="connect")
    assert driver.group().subscribed_topics is None
    assert not driver.group().is_subscribed_to("t")


def test_a_group_left_by_all_is_subscribed_to_nothing() -> None:
    driver = CoordinatorHarness()
    driver.leave(*[(member_id, None) for member_id in driver.stable()])
    assert driver.group().protocol_type == "consumer"
    assert not driver.group().is_subscribed_to("t")
