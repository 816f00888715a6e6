"""Online migration: classic groups become consumer groups, and back, with their members, offsets and records."""

from typing import Any

from fakebroker.coordinator.consumer.config import MigrationPolicy
from fakebroker.coordinator.records import KeyedRecord, TransactionEnd
from fakebroker.errors import ErrorCode
from fakebroker.proposals.batch_join.join_batch import join_batch
from fakebroker.proposals.batch_join.messages import BatchJoinGroupRequest
from fakebroker.protocol.consumer_protocol import encode_assignment, encode_subscription
from fakebroker.protocol.messages.consumer_group_records import (
    ConsumerGroupMetadataKey,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupTargetAssignmentMemberKey,
)
from fakebroker.protocol.messages.consumer_offsets import GroupMetadataKey, OffsetCommitKey
from tests.support.coordinator import commits
from tests.support.coordinator.consumer_group_harness import GROUP, SESSION_MS, FakeTopics, contents
from tests.support.coordinator.coordinator_harness import expected_member
from tests.support.coordinator.mixed_group_harness import (
    CLASSIC_REBALANCE_MS,
    CLASSIC_SESSION_MS,
    ClassicContext,
    MixedGroupHarness,
    places,
)
from tests.support.subtests import subtest_for_each

NONE, NOT_FOUND, REBALANCE = ErrorCode.NONE, ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.REBALANCE_IN_PROGRESS
HALVES = {"x": {"orders": {0, 1, 2}}, "y": {"orders": {3, 4, 5}}}


def classic_group(**config: Any) -> tuple[MixedGroupHarness, str, str]:
    """Return a stable classic group of two members, which share 6 partitions, and their ids. Its generation is 2."""
    harness = MixedGroupHarness(**config)
    x, y = harness.start_classic_group(**HALVES).values()
    assert harness.classic.generation_id == 2
    return harness, x, y


def commit(harness: MixedGroupHarness, generation_id: int, member_id: str, offset: int) -> ErrorCode:
    (error,) = commits.commit(harness.coordinator, [("orders", 0, offset)], harness.now_ms, generation_id, member_id)
    return error


def committed(harness: MixedGroupHarness) -> int | None:
    _, ((_, _, offset),) = harness.coordinator.offsets.fetch(GROUP, [("orders", 0)])
    return None if offset is None else offset.offset


def kinds(records: list[KeyedRecord]) -> list[str]:
    """Return the records as their types, with "-" before tombstones, and without repetitions."""
    signs = ["-" * (record.value is None) + type(record.key).__name__ for record in records]
    return [sign for index, sign in enumerate(signs) if index == 0 or sign != signs[index - 1]]


def test_the_history_of_a_group_continues_when_its_kind_changes() -> None:
    harness, x, y = classic_group()
    count = len(harness.moments())
    harness.send("a", owned={})
    harness.send("a", -1)
    found = [(each.state_from, each.state_to, each.joined, each.left) for each in harness.moments()[count:]]
    assert found == [
        ("Stable", "Stable", (), ()),
        ("Stable", "Reconciling", ("a",), ()),
        ("Reconciling", "Stable", (), ("a",)),
        ("Stable", "PreparingRebalance", (), ()),
    ]
    assert set(harness.moments()[count].members) == {x, y}


def test_a_group_without_members_changes_its_kind_in_its_history() -> None:
    harness = MixedGroupHarness()
    harness.send("a")
    harness.send("a", -1)
    harness.append_error = ErrorCode.NOT_ENOUGH_REPLICAS
    harness.join("")
    assert harness.moments()[-1].state_to == "Empty"
    harness.append_error = None
    harness.join("")
    states = [(each.state_from, each.state_to) for each in harness.moments()]
    assert states[:4] == [("Dead", "Stable"), ("Stable", "Empty"), ("Empty", "Empty"), ("Empty", "PreparingRebalance")]


# Upgrade


def test_a_classic_group_is_upgraded_with_its_members_epochs_and_assignments() -> None:
    harness, x, y = classic_group()
    commit(harness, 2, x, 7)
    joined = harness.send("a", owned={})
    assert (joined.error_code, joined.member_epoch, harness.assignment(joined)) == (NONE, 3, {})
    assert kinds(harness.keyed()) == [
        "-GroupMetadataKey",
        "ConsumerGroupMemberMetadataKey",
        "ConsumerGroupMetadataKey",
        "ConsumerGroupTargetAssignmentMemberKey",
        "ConsumerGroupTargetAssignmentMetadataKey",
        "ConsumerGroupCurrentMemberAssignmentKey",
        # Those of the member that joins:
        "ConsumerGroupMemberMetadataKey",
        "ConsumerGroupMetadataKey",
        "ConsumerGroupTargetAssignmentMemberKey",
        "ConsumerGroupTargetAssignmentMetadataKey",
        "ConsumerGroupCurrentMemberAssignmentKey",
    ]
    epochs = [
        each.value.epoch for each in harness.keyed() if isinstance(each.key, ConsumerGroupMetadataKey) and each.value
    ]
    assert epochs == [2, 3]
    assert (harness.is_classic, [*harness.group.members]) == (False, [x, y, "a"])
    member = harness.member(x)
    assert (member.member_epoch, member.previous_epoch, member.state.name) == (2, 2, "STABLE")
    assert member.classic is not None
    assert (member.classic.session_timeout_ms, member.rebalance_timeout_ms) == (
        CLASSIC_SESSION_MS,
        CLASSIC_REBALANCE_MS,
    )
    assert (harness.assigned(x), harness.assigned(y)) == (HALVES["x"], HALVES["y"])
    assert committed(harness) == 7
    harness.fail_over()
    assert harness.beat(x, 2) is REBALANCE, "the group epoch is 3"
    assert commit(harness, 2, x, 8) is NONE
    harness.settle()
    assert [len(harness.assigned(each)["orders"]) for each in (x, y, "a")] == [2, 2, 2]
    assert commit(harness, 3, x, 9) is NONE


def test_sessions_of_classic_members_start_over_with_the_upgrade() -> None:
    harness, _, y = classic_group()
    harness.advance(CLASSIC_SESSION_MS - 1)
    harness.send("a")
    harness.advance(CLASSIC_SESSION_MS - 1)
    harness.beat(y, 2)
    harness.advance(1)
    assert [*harness.group.members] == [y, "a"]


# The policy, the most members of a consumer group, the protocol type of the classic group; why it is not upgraded.
REFUSED = [
    (MigrationPolicy.DISABLED, 1, "connect", "online upgrade is disabled"),
    (MigrationPolicy.DOWNGRADE, 1, "connect", "online upgrade is disabled"),
    (MigrationPolicy.UPGRADE, 0, "connect", "the group does not use the consumer embedded protocol"),
    (MigrationPolicy.BIDIRECTIONAL, 0, "consumer", "the group size exceeds the consumer group maximum size"),
]


@subtest_for_each(("policy", "max_size", "protocol_type", "reason"), REFUSED)
def test_groups_that_are_not_upgraded(policy: MigrationPolicy, max_size: int, protocol_type: str, reason: str) -> None:
    harness = MixedGroupHarness(migration_policy=policy, max_size=max_size)
    joined = harness.joined(protocol_type=protocol_type)
    assert harness.sync(joined.member_id, 1, {joined.member_id: {"orders": {0}}}, protocol_type=None) is not None
    harness.join(client_id="waits", protocol_type=protocol_type)
    result = harness.send("a")
    text = f"Cannot upgrade classic group g to consumer group because {reason}."
    assert (result.error_code, result.error_message, harness.late) == (NOT_FOUND, text, {})
    assert [*harness.classic.parked_joins] == [[*harness.classic.members][-1]], "its requests wait as before"
    assert harness.send("a", 1).error_message == "Group g is not a consumer group."
    assert harness.send("a", -1).error_message == "Group g is not a consumer group."


def test_a_full_group_is_upgraded_but_has_no_room() -> None:
    harness, x, _ = classic_group(max_size=2)
    harness.join(x)
    result = harness.send("a")
    assert result.error_code is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert harness.answers()[x].error_code == REBALANCE
    assert harness.classic.state.value == "PreparingRebalance"
    harness.fail_over()
    assert harness.is_classic


def test_waiting_joins_and_syncs_get_an_error_that_makes_members_rejoin() -> None:
    harness, x, y = classic_group()
    assert harness.join(x) is None, "a rebalance starts, which waits for the other member"
    harness.send("a")
    answers = harness.answers()
    assert (answers[x].error_code, answers[x].member_id) == (REBALANCE, x)
    assert harness.joined(x).generation_id == 3
    assert harness.member(y).member_epoch == 2

    harness, x, y = classic_group()
    assert harness.join(x) is None
    harness.join(y)
    assert harness.classic.state.value == "CompletingRebalance"
    assert harness.sync(y, 3) is None
    harness.send("a")
    assert harness.answers()[y].error_code == REBALANCE
    assert {harness.member(each).member_epoch for each in (x, y)} == {3}
    assert (harness.assigned(x), harness.assigned(y)) == (HALVES["x"], HALVES["y"]), "those of the last generation"


# The metadata and the assignment of a classic member; the error and the reason. A join phase has no assignment yet.
SUBSCRIPTION, ASSIGNMENT = encode_subscription(["orders"]), encode_assignment([("orders", 1)])
CUSTOM = ASSIGNMENT[:-4] + b"\0\0\0\1x"
MALFORMED = "the embedded consumer protocol is malformed"
UNSUPPORTED = (
    "an unsupported custom assignor is in use. "
    "Please refer to the documentation or switch to a default assignor before re-attempting the upgrade"
)
UNEXPECTED = ErrorCode.UNKNOWN_SERVER_ERROR
CONVERSIONS: list[tuple[bytes, bytes, ErrorCode, str | None]] = [
    (SUBSCRIPTION, b"\0", NOT_FOUND, MALFORMED),
    (SUBSCRIPTION, b"\xff\xff", NOT_FOUND, MALFORMED),
    (SUBSCRIPTION, ASSIGNMENT[:-1], NOT_FOUND, MALFORMED),
    (SUBSCRIPTION, b"\0\1\0\0\0\1\0\5ord", UNEXPECTED, None),
    (SUBSCRIPTION, b"\0\1\xff\xff\xff\xff", UNEXPECTED, None),
    (SUBSCRIPTION, CUSTOM, NOT_FOUND, UNSUPPORTED),
    (SUBSCRIPTION, encode_assignment([("orders", 0)]), UNEXPECTED, None),
    (b"", ASSIGNMENT, NOT_FOUND, MALFORMED),
    (b"\xff\xff" + SUBSCRIPTION[2:], ASSIGNMENT, NOT_FOUND, MALFORMED),
    (SUBSCRIPTION[:-1], ASSIGNMENT, NOT_FOUND, MALFORMED),
    (b"\0\1\0\0\0\1\xff\xff", ASSIGNMENT, UNEXPECTED, None),
    (SUBSCRIPTION, b"", NONE, None),
    (SUBSCRIPTION + b"more", ASSIGNMENT + b"more", NONE, None),
    (b"\0\x09" + SUBSCRIPTION[2:], b"\0\x09" + ASSIGNMENT[2:], NONE, None),
    (b"\0\0" + SUBSCRIPTION[2:16] + b"\xff\xff\xff\xff", encode_assignment([("no such topic", 0)]), NONE, None),
]


@subtest_for_each(("metadata", "assignment", "error", "reason"), CONVERSIONS)
def test_malformed_metadata_is_not_upgraded(
    metadata: bytes, assignment: bytes, error: ErrorCode, reason: str | None
) -> None:
    harness = MixedGroupHarness()
    harness.start_classic_group(x={"orders": {0}})
    (member,) = harness.classic.members.values()
    waiting = harness.join(client_id="y", protocols=(("range", metadata),))
    assert waiting is None
    y = [*harness.classic.members][-1]
    harness.join(member.member_id)
    harness.classic.members[y].assignment = assignment
    log = len(harness.log)
    result = harness.send("a")
    text = reason and f"Cannot upgrade classic group g to consumer group because {reason}."
    assert (result.error_code, result.error_message) == (error, text)
    assert harness.is_classic == bool(error)
    assert error == NONE or len(harness.log) == log


def test_a_group_in_its_first_join_phase_fails_unexpectedly_as_in_kafka() -> None:
    harness = MixedGroupHarness()
    harness.config.group_initial_rebalance_delay_ms = 3_000
    assert harness.join("") is None
    result = harness.send("a")
    assert (result.error_code, result.error_message) == (UNEXPECTED, None)
    (answer,) = harness.answers().values()
    assert answer.error_code == REBALANCE
    harness.advance(3_000)
    assert harness.join(answer.member_id) is not None


def test_a_member_that_does_not_support_the_last_protocol_fails_unexpectedly_as_in_kafka() -> None:
    harness = MixedGroupHarness()
    both = ("range", SUBSCRIPTION), ("sticky", SUBSCRIPTION)
    joined = harness.joined(protocols=both)
    harness.sync(joined.member_id, 1, {})
    assert harness.join(client_id="y", protocols=both[1:]) is None
    assert harness.send("a").error_code is UNEXPECTED


def test_a_failed_append_leaves_the_classic_group() -> None:
    harness, x, _ = classic_group()
    harness.append_error = ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert harness.send("a").error_code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert (harness.is_classic, harness.beat(x, 2)) == (True, NONE)
    harness.append_error = None
    assert harness.send("a").error_code is NONE
    assert not harness.is_classic


# Downgrade


def stable_mixed_group(**config: Any) -> tuple[MixedGroupHarness, str, str]:
    """Return a stable consumer group of two classic members, whose ids are returned, and of "a"."""
    harness, x, y = classic_group(**config)
    harness.send("a", instance_id="i")
    harness.settle()
    return harness, x, y


def leave(harness: MixedGroupHarness) -> None:
    harness.send("a", -1, instance_id="i")


def fall_silent(harness: MixedGroupHarness) -> None:
    for _ in range(SESSION_MS // 5_000):
        harness.advance(5_000)
        for member_id in [*harness.group.members] if not harness.is_classic else ():
            if member_id != "a":
                harness.beat(member_id, 3)


def leave_for_a_while_and_expire(harness: MixedGroupHarness) -> None:
    harness.send("a", -2, instance_id="i")
    assert not harness.is_classic, "it may return"
    fall_silent(harness)


def be_removed(harness: MixedGroupHarness) -> None:
    assert harness.leave(("", "i")) == (NONE, [NONE])


@subtest_for_each("departure", [leave, fall_silent, leave_for_a_while_and_expire, be_removed])
def test_without_its_last_consumer_member_a_group_is_downgraded(departure: Any) -> None:
    harness, x, y = stable_mixed_group()
    commit(harness, 3, x, 7)
    target = harness.topics.by_name(harness.group.target[x])
    departure(harness)
    assert harness.is_classic
    group = harness.classic
    assert kinds(harness.keyed()) == [
        "-ConsumerGroupCurrentMemberAssignmentKey",
        "-ConsumerGroupTargetAssignmentMemberKey",
        "-ConsumerGroupTargetAssignmentMetadataKey",
        "-ConsumerGroupMemberMetadataKey",
        "-ConsumerGroupPartitionMetadataKey",
        "-ConsumerGroupMetadataKey",
        "GroupMetadataKey",
    ]
    assert (group.state.value, group.generation_id, group.leader_id) == ("PreparingRebalance", 3, x)
    assert (group.protocol_type, group.protocol_name, [*group.members]) == ("consumer", "range", [x, y])
    assert group.subscribed_topics == frozenset(["orders"])
    assert {"orders": {0, 1}} == target
    assert group.members[x].assignment == encode_assignment([("orders", 0), ("orders", 1)])
    assert (committed(harness), harness.beat(x, 3)) == (7, REBALANCE)
    harness.fail_over()
    assert harness.classic.state.value == "Stable", "a rebalance in progress is not stored"
    assert places(harness.sync(x, 3)) == target
    assert harness.join(x) is None
    answer = harness.join(y)
    assert answer is not None
    assert (answer.generation_id, harness.classic.state.value) == (4, "CompletingRebalance")


def test_timers_that_are_late_expire_in_order() -> None:
    """The session of a classic member ends first: so none is left when that of the other one ends."""
    harness = MixedGroupHarness()
    harness.send("a")
    harness.joined()
    harness.advance(SESSION_MS)
    assert (harness.is_classic, harness.group.state.value) == (False, "Empty")


def test_members_that_do_not_rejoin_are_removed_by_the_downgraded_group() -> None:
    harness, x, y = stable_mixed_group()
    leave(harness)
    harness.join(x)
    harness.advance(CLASSIC_SESSION_MS)
    assert [*harness.classic.members] == [x]
    assert y not in harness.classic.members


@subtest_for_each(
    ("config", "is_classic"),
    [
        ({}, True),
        ({"migration_policy": MigrationPolicy.DOWNGRADE}, True),
        ({"migration_policy": MigrationPolicy.UPGRADE}, False),
        ({"migration_policy": MigrationPolicy.DISABLED, "release": (4, 1)}, False),
        ({"group_max_size": 2}, True),
        ({"group_max_size": 1}, False),
    ],
)
def test_policy_and_size_of_downgrades(config: dict[str, Any], is_classic: bool) -> None:
    harness = MixedGroupHarness(**config)
    harness.send("a")
    x, y = harness.joined().member_id, harness.joined().member_id
    harness.settle()
    harness.send("a", -1)
    assert harness.is_classic == is_classic
    if not is_classic:
        group_epoch = 4 if config.get("release") else 5
        assert (harness.group.group_epoch, [*harness.group.members]) == (group_epoch, [x, y])
        harness.joined(x)  # Since 4.3, heartbeats ask members to rejoin only when there is a new target.
        harness.settle()
        harness.leave((x, None), (y, None))
        assert harness.group.state.value == "Empty"


def test_a_group_of_classic_members_is_downgraded_when_any_leaves() -> None:
    harness = MixedGroupHarness()
    harness.send("a")
    harness.joined("a")
    harness.joined("b")
    assert (harness.group.classic_count, harness.is_classic) == (2, False)
    harness.leave(("b", None))
    assert (harness.is_classic, [*harness.classic.members]) == (True, ["a"])


def test_the_last_member_leaves_an_empty_consumer_group() -> None:
    harness = MixedGroupHarness()
    harness.send("a")
    harness.send("a", -1)
    assert (harness.is_classic, harness.group.state.value) == (False, "Empty")


def static_pair(**config: Any) -> tuple[MixedGroupHarness, str]:
    """Return a stable group of the classic member "x", whose id is returned, and of "a" with instance id "i"."""
    harness = MixedGroupHarness(**config)
    harness.send("a", instance_id="i")
    x = harness.joined().member_id
    harness.settle()
    return harness, x


def test_a_static_classic_member_replaces_the_last_consumer_member_without_a_rebalance() -> None:
    harness, x = static_pair()
    mine = harness.assigned("a")
    joined = harness.joined(instance_id="i")
    assert (harness.is_classic, joined.generation_id, joined.leader) == (True, 3, "")
    group, new = harness.classic, joined.member_id
    assert kinds(harness.keyed()) == [
        # The replacement,
        "-ConsumerGroupCurrentMemberAssignmentKey",
        "-ConsumerGroupTargetAssignmentMemberKey",
        "-ConsumerGroupMemberMetadataKey",
        "ConsumerGroupMemberMetadataKey",
        "ConsumerGroupTargetAssignmentMemberKey",
        "ConsumerGroupCurrentMemberAssignmentKey",
        # what the member reports, its epoch,
        "ConsumerGroupMemberMetadataKey",
        "ConsumerGroupCurrentMemberAssignmentKey",
        # and the downgrade.
        "-ConsumerGroupCurrentMemberAssignmentKey",
        "-ConsumerGroupTargetAssignmentMemberKey",
        "-ConsumerGroupTargetAssignmentMetadataKey",
        "-ConsumerGroupMemberMetadataKey",
        "-ConsumerGroupPartitionMetadataKey",
        "-ConsumerGroupMetadataKey",
        "GroupMetadataKey",
    ]
    deleted = [
        each.key.member_id
        for each in harness.keyed()
        if isinstance(each.key, ConsumerGroupTargetAssignmentMemberKey) and each.value is None
    ]
    assert deleted == ["a", new, x]
    assert (group.state.value, group.generation_id, [*group.members]) == ("Stable", 3, [x, new])
    assert places(harness.sync(new, 3, instance_id="i")) == mine
    assert (harness.beat(new, 3, "i"), harness.beat(x, 3)) == (NONE, NONE)
    harness.fail_over()
    assert places(harness.sync(new, 3, instance_id="i")) == mine
    assert harness.classic.static_members == {"i": new}


def test_a_static_classic_member_with_another_subscription_starts_a_rebalance() -> None:
    harness, x = static_pair()
    harness.topics.create("news", 1)
    joined = harness.joined("", ("news",), instance_id="i")
    assert (harness.is_classic, harness.classic.state.value) == (True, "PreparingRebalance")
    assert (joined.generation_id, harness.classic.generation_id) == (0, 3), "it has to rejoin in any case"
    assert harness.beat(x, 3) is REBALANCE
    harness.fail_over()


def test_a_static_classic_member_takes_over_without_the_regular_expression() -> None:
    harness = MixedGroupHarness(compile_regex=lambda pattern: lambda name: name.startswith(pattern))
    harness.send("a", instance_id="i", subscribed_topic_names=None, subscribed_topic_regex="ord")
    harness.joined()
    harness.settle()
    joined = harness.joined(instance_id="i")
    deleted = [
        each.key.regular_expression
        for each in harness.keyed()
        if isinstance(each.key, ConsumerGroupRegularExpressionKey) and each.value is None
    ]
    assert deleted == ["ord", "ord"], "as in Kafka: with the member, and with the group"
    assert (harness.is_classic, harness.classic.state.value, joined.generation_id) == (True, "PreparingRebalance", 0)
    harness.fail_over()


def test_a_static_replacement_in_a_larger_group_or_against_the_policy_is_no_downgrade() -> None:
    for config in ({"group_max_size": 1}, {"migration_policy": MigrationPolicy.UPGRADE}):
        harness, _ = static_pair(**config)
        assert harness.joined(instance_id="i").generation_id == 3
        assert (harness.is_classic, harness.group.classic_count) == (False, 2)
    harness, _ = static_pair()
    harness.send("b")
    harness.joined(instance_id="i")
    assert not harness.is_classic


def test_the_same_static_member_can_downgrade_under_its_id() -> None:
    harness, _ = static_pair()
    joined = harness.joined("a", instance_id="i")
    assert (joined.member_id, harness.is_classic, harness.classic.state.value) == ("a", True, "Stable")
    harness.fail_over()


def test_a_failed_append_leaves_the_consumer_group() -> None:
    harness, x = static_pair()
    before = contents(harness.group)
    harness.append_error = ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert harness.send("a", -1, instance_id="i").error_code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    answer = harness.join(instance_id="i")
    assert answer is not None
    assert answer.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert (harness.is_classic, contents(harness.group)) == (False, before)
    harness.append_error = None
    leave(harness)
    assert [*harness.classic.members] == [x]


def test_members_without_a_common_protocol_stay_in_the_consumer_group() -> None:
    """A protocol that a member names twice counts twice, so a classic group of its members has none."""
    harness = MixedGroupHarness()
    harness.send("a")
    harness.joined(protocols=(("range", SUBSCRIPTION), ("range", SUBSCRIPTION)))
    assert harness.send("a", -1).error_code is UNEXPECTED
    assert not harness.is_classic
    assert harness.leave(("a", None)) == (UNEXPECTED, [])
    harness.advance(CLASSIC_SESSION_MS)
    assert "a" in harness.group.members


def test_metadata_without_a_version_is_not_downgraded() -> None:
    harness = MixedGroupHarness()
    harness.send("a")
    both = ("range", SUBSCRIPTION), ("sticky", b"")
    harness.joined("m", protocols=both)
    harness.joined("n", protocols=(("sticky", SUBSCRIPTION),))
    assert (harness.send("a", -1).error_code, harness.is_classic) == (NOT_FOUND, False)


# Both ways, with a failover at every step


def test_a_failover_after_any_batch_of_a_migration_and_back_loses_nothing() -> None:
    harness, x, y = classic_group()
    commit(harness, 2, x, 7)
    harness.send("a", instance_id="i")
    harness.settle()
    harness.leave((x, None))
    harness.send("b")
    harness.settle()
    harness.leave((y, None))
    harness.settle()
    z = harness.joined().member_id
    harness.settle()
    leave(harness)
    harness.send("b", -1)
    assert harness.is_classic
    assert harness.join(z) is not None
    harness.sync(z, harness.classic.generation_id, {z: {"orders": {0, 1, 2, 3, 4, 5}}})
    for end in range(1, len(harness.batches) + 1):
        log = [record for batch in range(end) for record in harness.keyed(batch)]
        other = MixedGroupHarness(harness.topics)
        other.coordinator.resign(0, other.now_ms)
        other.coordinator.start_loading(0)
        other.coordinator.finish_loading(0, log, other.now_ms)
        other.check()
        groups = [record for record in log if isinstance(record.key, (GroupMetadataKey, ConsumerGroupMetadataKey))]
        is_classic = isinstance(groups[-1].key, GroupMetadataKey) if groups[-1].value is not None else None
        if is_classic is not None:
            assert other.is_classic == is_classic
        assert committed(other) == (7 if any(isinstance(record.key, OffsetCommitKey) for record in log) else None)


def test_records_of_a_group_can_be_compacted() -> None:
    """Only the last record of a key counts, also over changes of the kind of group."""
    harness, x, _ = stable_mixed_group()
    leave(harness)
    harness.send("c")
    harness.settle()
    last = {_key(record): number for number, record in enumerate(harness.log)}
    compacted = [harness.log[number] for number in sorted(last.values())]
    assert len(compacted) < len(harness.log)
    before = contents(harness.group)
    harness.log = compacted
    harness.fail_over()
    assert contents(harness.group) == before
    assert x in harness.group.members


@subtest_for_each("fails_over", [False, True])
def test_offsets_of_open_transactions_stay_with_the_group(fails_over: bool) -> None:
    harness, x, _ = classic_group()
    results: list[list[ErrorCode]] = []

    def commit_pending(generation_id: int, producer_id: int, offset: int) -> None:
        wanted = harness.coordinator, [("orders", 0, offset)], harness.now_ms, generation_id, x
        results.append(commits.commit_in_transaction(*wanted, producer_id=producer_id))

    def end(producer_id: int) -> None:
        harness.coordinator.offsets.end_transaction(0, TransactionEnd(producer_id, 0, True, 0))

    commit_pending(2, 1, 7)
    harness.send("a", instance_id="i")
    if fails_over:
        harness.fail_over()
    assert (committed(harness), len(harness.coordinator.offsets.unstable_partitions(GROUP))) == (None, 1)
    end(1)
    assert committed(harness) == 7
    commit_pending(2, 2, 8)
    leave(harness)
    if fails_over:
        harness.fail_over()
    assert (harness.is_classic, committed(harness)) == (True, 7)
    end(2)
    assert (committed(harness), results) == (8, [[NONE], [NONE]])


def test_instances_cannot_be_registered_in_a_consumer_group() -> None:
    harness = MixedGroupHarness()
    harness.send("a")
    request = BatchJoinGroupRequest(
        group_id=GROUP,
        session_timeout_ms=CLASSIC_SESSION_MS,
        rebalance_timeout_ms=CLASSIC_REBALANCE_MS,
        protocol_type="consumer",
        join_group_members=[expected_member("i")],
    )
    join_batch(harness.coordinator, request, ClassicContext("token", 10), harness.now_ms)
    (result,) = harness.answers()["token"].member_join_response_list
    assert (result.error_code, harness.is_classic) == (ErrorCode.INCONSISTENT_GROUP_PROTOCOL, False)


def _key(record: Any) -> tuple[object, ...]:
    return (type(record.key), getattr(record.key, "member_id", None), getattr(record.key, "partition", None))


def test_deleted_topics_are_not_in_the_assignments_of_a_downgraded_group() -> None:
    harness = MixedGroupHarness(FakeTopics(orders=2, news=1))
    harness.send("a", subscribed_topic_names=())
    x = harness.joined("", ("news", "orders")).member_id
    harness.topics.delete("news")
    harness.send("a", -1)
    assert harness.classic.members[x].assignment == encode_assignment([("orders", 0), ("orders", 1)])
