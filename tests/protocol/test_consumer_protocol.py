"""The bytes of subscriptions and assignments, against kafka-python's and aiokafka's."""

import pytest
from aiokafka.coordinator.protocol import ConsumerProtocolMemberAssignment, ConsumerProtocolMemberMetadata
from hypothesis import given, strategies as st
from kafka.coordinator.assignors.sticky.user_data import StickyAssignorUserData as TheirUserData
from kafka.protocol.consumer.metadata import (
    ConsumerProtocolAssignment as TheirAssignment,
    ConsumerProtocolSubscription as TheirSubscription,
)

from fakebroker.errors import ProtocolError
from fakebroker.protocol.codec import decode
from fakebroker.protocol.consumer_protocol import (
    Subscription,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from fakebroker.protocol.messages.consumer_protocol import ConsumerProtocolSubscription
from fakebroker.topic_partition import TopicPartition

partition_lists = st.lists(st.tuples(st.sampled_from(["a", "b", "ü"]), st.integers(0, 9)), unique=True).map(tuple)
subscriptions = st.builds(
    Subscription,
    member_id=st.just("m"),
    instance_id=st.none(),
    topics=st.lists(st.sampled_from(["a", "b", "c"]), unique=True).map(lambda topics: tuple(sorted(topics))),
    owned_partitions=partition_lists.map(lambda partitions: tuple(sorted(partitions))),
    generation_id=st.integers(-1, 2**31 - 1),
)


def encoded(subscription: Subscription) -> bytes:
    return encode_subscription(subscription.topics, subscription.owned_partitions, subscription.generation_id)


@given(subscriptions)
def test_a_subscription_comes_back(subscription: Subscription) -> None:
    assert decode_subscription(encoded(subscription), "range", "m", None) == subscription


@given(subscriptions)
def test_a_subscription_is_written_as_kafka_python_writes_it(subscription: Subscription) -> None:
    owned: dict[str, list[int]] = {}
    for topic, partition in subscription.owned_partitions:
        owned.setdefault(topic, []).append(partition)
    theirs = TheirSubscription(
        topics=list(subscription.topics),
        user_data=None,
        owned_partitions=list(owned.items()),
        generation_id=subscription.generation_id,
        rack_id=None,
        version=3,
    )
    assert encoded(subscription) == theirs.encode(version=3)


@given(subscriptions, st.integers(0, 3))
def test_kafka_pythons_subscription_of_any_version_is_read(subscription: Subscription, version: int) -> None:
    theirs = TheirSubscription(
        topics=list(subscription.topics),
        user_data=b"x",
        owned_partitions=[("a", [1, 2])] if version >= 1 else [],
        generation_id=7 if version >= 2 else -1,
        version=version,
    )
    read = decode_subscription(theirs.encode(version=version), "range", "m", "i")
    assert read == Subscription(
        member_id="m",
        instance_id="i",
        topics=subscription.topics,
        owned_partitions=(("a", 1), ("a", 2)) if version >= 1 else (),
        generation_id=7 if version >= 2 else -1,
    )


@pytest.mark.parametrize("version", range(4))
def test_a_subscription_is_written_in_any_version_as_kafka_python_writes_it(version: int) -> None:
    theirs = TheirSubscription(topics=["a", "b"], owned_partitions=[("a", [0])], generation_id=7, version=version)
    assert encode_subscription("ba", [("a", 0)], 7, version=version) == theirs.encode(version=version)


def test_aiokafkas_subscription_is_read() -> None:
    data = ConsumerProtocolMemberMetadata(0, ["orders"], b"").encode()
    assert decode_subscription(data, "range", "m", None).topics == ("orders",)


@given(partition_lists)
def test_an_assignment_is_written_as_kafka_python_writes_it_and_comes_back(
    partitions: tuple[TopicPartition, ...],
) -> None:
    topics: dict[str, list[int]] = {}
    for topic, partition in sorted(partitions):
        topics.setdefault(topic, []).append(partition)
    theirs = TheirAssignment(assigned_partitions=list(topics.items()), user_data=None, version=3)
    assert encode_assignment(partitions) == theirs.encode(version=3)
    assert decode_assignment(encode_assignment(partitions)) == tuple(sorted(partitions))


def test_aiokafkas_assignment_is_read() -> None:
    data = ConsumerProtocolMemberAssignment(0, [("a", [2, 0])], b"").encode()
    assert decode_assignment(data) == (("a", 2), ("a", 0))


def test_topics_and_partitions_are_written_in_order() -> None:
    """A coordinator compares the bytes of a rejoin with those it has: the same subscription must not look changed."""
    one = encode_subscription(("b", "a"), [("b", 1), ("a", 0), ("b", 0)])
    assert one == encode_subscription(("a", "b"), [("a", 0), ("b", 0), ("b", 1)])


@given(partition_lists, st.integers(-1, 9))
def test_sticky_keeps_its_last_assignment_in_the_user_data(
    partitions: tuple[TopicPartition, ...], generation_id: int
) -> None:
    """`StickyAssignor` looks there and nowhere else; the bytes have no version in front."""
    written = encode_subscription(["a"], generation_id=11, previous=(partitions, generation_id))
    read = decode_subscription(written, "sticky", "m", None)
    assert (read.owned_partitions, read.generation_id) == (tuple(sorted(partitions)), generation_id)
    topics: dict[str, list[int]] = {}
    for topic, partition in sorted(partitions):
        topics.setdefault(topic, []).append(partition)
    theirs = TheirUserData(previous_assignment=list(topics.items()), generation=generation_id, version=1)
    raw = decode(ConsumerProtocolSubscription, written, 3, 2)
    assert raw.generation_id == 11
    assert (
        raw.user_data == theirs.encode(version=1)[2:]
    )  # kafka-python puts a version in front, which Kafka's own does not


def test_old_sticky_user_data_has_no_generation() -> None:
    owned = b"\x00\x00\x00\x01\x00\x01a\x00\x00\x00\x01\x00\x00\x00\x05"
    data = TheirSubscription(topics=["a"], user_data=owned, version=0).encode(version=0)
    read = decode_subscription(data, "sticky", "m", None)
    assert (read.owned_partitions, read.generation_id) == ((("a", 5),), -1)


@pytest.mark.parametrize("user_data", [None, b"", b"\x00", b"\x7f\xff\xff\xff"])
def test_unreadable_sticky_user_data_claims_nothing(user_data: bytes | None) -> None:
    data = TheirSubscription(topics=["a"], user_data=user_data, version=0).encode(version=0)
    assert decode_subscription(data, "sticky", "m", None).owned_partitions == ()


def test_a_newer_version_is_read_as_ours_and_the_rest_is_left() -> None:
    data = b"\x00\x09" + encode_assignment([("a", 0)])[2:] + b"something new"
    assert decode_assignment(data) == (("a", 0),)


@pytest.mark.parametrize("data", [b"", b"\x00", b"\x00\x01", b"\x00\x00\x00\x00\x00\x09", b"\xff\xff\x00\x00\x00\x00"])
def test_bytes_that_are_no_assignment_are_refused(data: bytes) -> None:
    with pytest.raises(ProtocolError, match="ConsumerProtocolAssignment"):
        decode_assignment(data)


@given(st.binary(max_size=40))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    try:
        decode_subscription(data, "sticky", "m", None)
    except ProtocolError as error:
        assert "ConsumerProtocolSubscription" in str(error)  # noqa: PT017  # both outcomes are right
