"""Subscriptions and assignments are encoded as by kafka-python, and decoded from kafka-python and aiokafka."""

import pytest
from aiokafka.coordinator.protocol import ConsumerProtocolMemberAssignment, ConsumerProtocolMemberMetadata
from hypothesis import given, settings, strategies as st
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
from tests.support.soak import examples, soak

DRAWN = settings(max_examples=examples(20, soak=1000))

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


@soak
@DRAWN
@given(subscriptions)
def test_a_decoded_subscription_equals_the_encoded_one(subscription: Subscription) -> None:
    assert decode_subscription(encoded(subscription), "range", "m", None) == subscription


@soak
@DRAWN
@given(subscriptions)
def test_a_subscription_has_the_bytes_of_kafka_python(subscription: Subscription) -> None:
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


@soak
@DRAWN
@given(subscriptions, st.integers(0, 3))
def test_subscriptions_of_kafka_python_are_decoded_in_any_version(subscription: Subscription, version: int) -> None:
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


def test_a_subscription_has_the_bytes_of_kafka_python_in_each_version(subtests: pytest.Subtests) -> None:
    for version in range(4):
        with subtests.test(version=version):
            theirs = TheirSubscription(
                topics=["a", "b"], owned_partitions=[("a", [0])], generation_id=7, version=version
            )
            assert encode_subscription("ba", [("a", 0)], 7, version=version) == theirs.encode(version=version)


def test_a_subscription_of_aiokafka_is_decoded() -> None:
    data = ConsumerProtocolMemberMetadata(0, ["orders"], b"").encode()
    assert decode_subscription(data, "range", "m", None).topics == ("orders",)


@soak
@DRAWN
@given(partition_lists)
def test_an_assignment_has_the_bytes_of_kafka_python_and_is_decoded(
    partitions: tuple[TopicPartition, ...],
) -> None:
    topics: dict[str, list[int]] = {}
    for topic, partition in sorted(partitions):
        topics.setdefault(topic, []).append(partition)
    theirs = TheirAssignment(assigned_partitions=list(topics.items()), user_data=None, version=3)
    assert encode_assignment(partitions) == theirs.encode(version=3)
    assert decode_assignment(encode_assignment(partitions)) == tuple(sorted(partitions))


def test_an_assignment_of_aiokafka_is_decoded() -> None:
    data = ConsumerProtocolMemberAssignment(0, [("a", [2, 0])], b"").encode()
    assert decode_assignment(data) == (("a", 2), ("a", 0))


def test_topics_and_partitions_are_encoded_in_order() -> None:
    """A coordinator compares the metadata of a member's joins as bytes: equal subscriptions need equal bytes."""
    one = encode_subscription(("b", "a"), [("b", 1), ("a", 0), ("b", 0)])
    assert one == encode_subscription(("a", "b"), [("a", 0), ("b", 0), ("b", 1)])


@soak
@DRAWN
@given(partition_lists, st.integers(-1, 9))
def test_the_user_data_of_sticky_has_the_previous_assignment(
    partitions: tuple[TopicPartition, ...], generation_id: int
) -> None:
    """Kafka's `StickyAssignor` reads the previous assignment only from the user data, which has no version."""
    written = encode_subscription(["a"], generation_id=11, previous=(partitions, generation_id))
    read = decode_subscription(written, "sticky", "m", None)
    assert (read.owned_partitions, read.generation_id) == (tuple(sorted(partitions)), generation_id)
    topics: dict[str, list[int]] = {}
    for topic, partition in sorted(partitions):
        topics.setdefault(topic, []).append(partition)
    theirs = TheirUserData(previous_assignment=list(topics.items()), generation=generation_id, version=1)
    raw = decode(ConsumerProtocolSubscription, written, 3, 2)
    assert raw.generation_id == 11
    # kafka-python starts with a version, which Kafka's assignor does not.
    assert raw.user_data == theirs.encode(version=1)[2:]


def test_user_data_of_old_sticky_assignors_has_no_generation() -> None:
    owned = b"\x00\x00\x00\x01\x00\x01a\x00\x00\x00\x01\x00\x00\x00\x05"
    data = TheirSubscription(topics=["a"], user_data=owned, version=0).encode(version=0)
    read = decode_subscription(data, "sticky", "m", None)
    assert (read.owned_partitions, read.generation_id) == ((("a", 5),), -1)


def test_malformed_user_data_of_sticky_owns_no_partitions(subtests: pytest.Subtests) -> None:
    for user_data in (None, b"", b"\x00", b"\x7f\xff\xff\xff"):
        with subtests.test(user_data=user_data):
            data = TheirSubscription(topics=["a"], user_data=user_data, version=0).encode(version=0)
            assert decode_subscription(data, "sticky", "m", None).owned_partitions == ()


def test_a_newer_version_is_decoded_as_the_newest_known_one() -> None:
    data = b"\x00\x09" + encode_assignment([("a", 0)])[2:] + b"something new"
    assert decode_assignment(data) == (("a", 0),)


def test_malformed_assignments_are_errors(subtests: pytest.Subtests) -> None:
    for data in (b"", b"\x00", b"\x00\x01", b"\x00\x00\x00\x00\x00\x09", b"\xff\xff\x00\x00\x00\x00"):
        with subtests.test(data=data), pytest.raises(ProtocolError, match="ConsumerProtocolAssignment"):
            decode_assignment(data)


def test_partitions_of_assignments_are_not_negative() -> None:
    data = encode_assignment([("a", 0), ("a", -2)])
    with pytest.raises(ProtocolError, match=r"^assignment of [0-9]+ bytes: partition -2 of 'a', expected 0 or more$"):
        decode_assignment(data)


@soak
@DRAWN
@given(st.binary(max_size=40))
def test_any_bytes_are_a_subscription_or_a_protocol_error(data: bytes) -> None:
    try:
        decode_subscription(data, "sticky", "m", None)
    except ProtocolError as error:
        assert "ConsumerProtocolSubscription" in str(error)  # noqa: PT017  # both outcomes are right
