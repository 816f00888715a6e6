"""Static members of consumer groups: they leave for a while, come back with another member id, or are replaced."""

from msgspec.structs import replace

from fakebroker.coordinator.consumer.records import partitions_in, subscription_record
from fakebroker.coordinator.consumer.states import STABLE
from fakebroker.coordinator.records import CoordinatorRecord
from fakebroker.errors import ErrorCode
from fakebroker.protocol.messages.consumer_group_records import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupTargetAssignmentMemberKey,
)
from tests.support.coordinator.consumer_group_harness import (
    GROUP,
    REBALANCE_MS,
    SESSION_MS,
    ConsumerGroupHarness,
    FakeTopics,
)


def test_static_members_return_to_their_partitions() -> None:
    harness = ConsumerGroupHarness()
    harness.send("a", instance_id="i")
    harness.send("b")
    harness.settle()
    mine, epoch = harness.assigned("a"), harness.group.group_epoch
    away = harness.send("a", -2, instance_id="i")
    assert (away.member_id, away.member_epoch) == ("a", -2)
    assert harness.assigned("a") == mine
    harness.fail_over()
    back = harness.send("a2", instance_id="i")
    assert (back.member_epoch, harness.assignment(back)) == (epoch, mine)
    assert (harness.group.group_epoch, list(harness.group.members)) == (epoch, ["b", "a2"])
    harness.fail_over()
    fenced = harness.send("a", epoch, instance_id="i")
    assert fenced.error_code is ErrorCode.FENCED_INSTANCE_ID
    assert fenced.error_message == "Static member a with instance id i was fenced by member a2."
    assert harness.send("a", epoch).error_code is ErrorCode.UNKNOWN_MEMBER_ID
    assert harness.send("a", -1, instance_id="i").error_code is ErrorCode.FENCED_INSTANCE_ID


def test_an_instance_id_in_use_is_not_given_away() -> None:
    harness = ConsumerGroupHarness()
    harness.send("a", instance_id="i")
    for member_id in ("b", "a"):
        result = harness.send(member_id, instance_id="i")
        assert result.error_code is ErrorCode.UNRELEASED_INSTANCE_ID
        text = f"Static member {member_id} with instance id i cannot join the group because the instance id is "
        assert result.error_message == text + "owned by a member."
    harness.send("a", -2, instance_id="i")
    harness.advance(SESSION_MS)
    assert harness.group.members == {}, "a static member that stays away is removed after its session"
    assert harness.send("b", instance_id="i").error_code is ErrorCode.NONE
    harness.send("b", -1, instance_id="i")
    assert harness.group.static_members == {}


def test_a_static_member_that_returns_with_another_subscription_starts_an_epoch() -> None:
    harness = ConsumerGroupHarness(FakeTopics(orders=6, news=2))
    harness.send("a", instance_id="i")
    harness.send("a", -2, instance_id="i")
    harness.send("a2", instance_id="i", subscribed_topic_names=("news",))
    assert (harness.group.group_epoch, list(harness.group.target)) == (3, ["a2"])
    harness.settle()
    assert harness.assigned("a2") == {"news": {0, 1}}


def test_a_static_member_that_is_away_is_in_no_epoch_that_it_had() -> None:
    harness = ConsumerGroupHarness()
    harness.send("a", instance_id="i")
    harness.send("b")
    harness.settle()
    epochs = harness.member("a").previous_epoch, harness.member("a").member_epoch
    assert epochs == (2, 3)
    harness.send("a", -2, instance_id="i")
    for epoch in epochs:
        result = harness.send("a", epoch, harness.assigned("a"), instance_id="i")
        assert result.error_code is ErrorCode.FENCED_MEMBER_EPOCH
        assert result.error_message is not None
        assert result.error_message.startswith(f"The consumer group member has a greater member epoch ({epoch}) than")


def test_what_a_static_member_still_had_to_give_up_when_it_left_for_a_while_is_free() -> None:
    harness = ConsumerGroupHarness()
    harness.send("a", instance_id="i")
    harness.send("b")
    harness.stay("a")
    assert harness.pending("a") == {"orders": {3, 4, 5}}
    harness.send("a", -2, instance_id="i")
    assert (harness.assigned("a"), harness.pending("a")) == ({"orders": {0, 1, 2}}, {})
    assert harness.assignment(harness.stay("b")) == {"orders": {3, 4, 5}}

    # Its rebalance timer was started in another epoch.
    harness.now_ms += REBALANCE_MS - SESSION_MS // 2
    harness.group.arm_session("a", harness.now_ms + SESSION_MS)
    harness.group.arm_session("b", harness.now_ms + SESSION_MS)
    harness.advance(SESSION_MS // 2)
    assert list(harness.group.members) == ["a", "b"]
    harness.fail_over()
    back = harness.send("a2", instance_id="i")
    assert (back.member_epoch, harness.assignment(back)) == (3, {"orders": {0, 1, 2}})


def test_the_records_of_a_replacement_are_in_the_order_of_kafka() -> None:
    harness = ConsumerGroupHarness()
    harness.send("a", instance_id="i")
    harness.send("a", -2, instance_id="i")
    harness.send("a2", instance_id="i", rack_id="r")
    records = harness.keyed()
    assert [(type(record.key), getattr(record.key, "member_id", None), record.value is None) for record in records] == [
        (ConsumerGroupCurrentMemberAssignmentKey, "a", True),
        (ConsumerGroupTargetAssignmentMemberKey, "a", True),
        (ConsumerGroupMemberMetadataKey, "a", True),
        (ConsumerGroupMemberMetadataKey, "a2", False),
        (ConsumerGroupTargetAssignmentMemberKey, "a2", False),
        (ConsumerGroupCurrentMemberAssignmentKey, "a2", False),
        (ConsumerGroupMemberMetadataKey, "a2", False),
        (ConsumerGroupCurrentMemberAssignmentKey, "a2", False),
    ]
    replaced, joined = (
        record.value
        for record in records
        if isinstance(record.key, ConsumerGroupCurrentMemberAssignmentKey)
        if record.value
    )
    assert (replaced.member_epoch, replaced.previous_member_epoch, replaced.state) == (0, 0, STABLE.value)
    assert (joined.member_epoch, joined.previous_member_epoch) == (2, 0)
    assert partitions_in(joined.assigned_partitions) == partitions_in(replaced.assigned_partitions)


def test_the_tombstone_of_a_replaced_member_does_not_remove_its_successor() -> None:
    harness = ConsumerGroupHarness()
    harness.send("a", instance_id="i")
    successor = replace(harness.member("a"), member_id="a2")
    for record in (
        subscription_record(GROUP, successor),
        CoordinatorRecord(ConsumerGroupMemberMetadataKey(group_id=GROUP, member_id="a"), None),
    ):
        harness.group.replay(record)
    assert harness.group.static_members == {"i": "a2"}
