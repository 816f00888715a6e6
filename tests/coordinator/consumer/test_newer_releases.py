"""What Kafka 4.3 and 4.4 changed in consumer groups, beside the releases before."""

from typing import Any

from fakebroker.coordinator.consumer.records import assignment_epoch_record
from fakebroker.coordinator.consumer.states import STABLE, UNREVOKED_PARTITIONS
from fakebroker.errors import ErrorCode
from fakebroker.protocol.messages.consumer_group_records import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMetadataKey,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMetadataKey,
)
from fakebroker.protocol.schema import Message
from tests.support.coordinator import commits
from tests.support.coordinator.consumer_group_harness import GROUP, START_MS, ConsumerGroupHarness, FakeTopics
from tests.support.coordinator.mixed_group_harness import MixedGroupHarness, places
from tests.support.subtests import subtest_for_each

NONE, STALE, ILLEGAL = ErrorCode.NONE, ErrorCode.STALE_MEMBER_EPOCH, ErrorCode.ILLEGAL_GENERATION
FULL, REBALANCE = ErrorCode.GROUP_MAX_SIZE_REACHED, ErrorCode.REBALANCE_IN_PROGRESS
TOO_LONG = ErrorCode.OFFSET_METADATA_TOO_LARGE
EVERYTHING = {"orders": set(range(6))}
INTERVAL_MS = 1_000
KAFKA_4_2, KAFKA_4_3, KAFKA_4_4 = (4, 2), (4, 3), (4, 4)

Release = tuple[int, int]


# First epochs (KAFKA-20268)

WITH_TARGET = [
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMetadataKey,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupCurrentMemberAssignmentKey,
]


@subtest_for_each(
    ("release", "names", "epoch", "kinds"),
    [
        (KAFKA_4_2, ("orders",), 1, WITH_TARGET),
        (KAFKA_4_2, (), 1, WITH_TARGET),
        (KAFKA_4_3, ("orders",), 2, WITH_TARGET),
        (KAFKA_4_3, (), 1, [ConsumerGroupMemberMetadataKey, ConsumerGroupCurrentMemberAssignmentKey]),
        (KAFKA_4_4, ("orders",), 2, WITH_TARGET),
        (KAFKA_4_4, (), 1, [ConsumerGroupMemberMetadataKey, ConsumerGroupCurrentMemberAssignmentKey]),
    ],
)
def test_first_epochs(release: Release, names: tuple[str, ...], epoch: int, kinds: list[type[Message]]) -> None:
    harness = ConsumerGroupHarness(release=release)
    joined = harness.send("a", subscribed_topic_names=names)
    assert (joined.error_code, joined.member_epoch) == (NONE, epoch)
    assert harness.assignment(joined) == (EVERYTHING if names else {})
    assert (harness.group.group_epoch, harness.group.assignment_epoch) == (epoch, epoch)
    assert [type(record.key) for record in harness.keyed(0)] == kinds
    harness.fail_over()
    assert harness.send("b").member_epoch == epoch + 1


def test_a_group_of_classic_members_keeps_its_number_and_does_not_begin_with_1() -> None:
    harness = MixedGroupHarness()
    harness.start_classic_group(x=EVERYTHING)
    generation_id = harness.classic.generation_id
    assert harness.send("a").member_epoch == generation_id + 1


# The assignment interval (KIP-1263)


def at(harness: ConsumerGroupHarness, ms: int) -> None:
    """Let the time be this long after the start."""
    harness.advance(START_MS + ms - harness.now_ms)


def waiting(**config: Any) -> ConsumerGroupHarness:
    """Return a group of "a", which joined at once, and of "b", which joined 300 ms later."""
    harness = ConsumerGroupHarness(**{"assignment_interval_ms": INTERVAL_MS, **config})
    assert harness.assignment(harness.send("a")) == EVERYTHING
    at(harness, 300)
    harness.send("b")
    return harness


def test_targets_are_an_interval_apart() -> None:
    harness = waiting()
    assert (harness.group.group_epoch, harness.group.assignment_epoch) == (3, 2)
    assert (harness.member("b").member_epoch, harness.member("b").state, harness.assigned("b")) == (2, STABLE, {})
    assert harness.group.state.value == "Assigning"
    for ms in (500, 999):
        at(harness, ms)
        for member_id in "ab":
            stayed = harness.stay(member_id)
            assert (stayed.error_code, stayed.member_epoch, stayed.assignment) == (NONE, 2, None)
    assert harness.group.state.value == "Assigning"

    at(harness, 1_000)
    assert harness.group.state.value == "Assigning", "no timer runs"
    assert harness.assignment(harness.stay("a")) == {"orders": {0, 1, 2}}
    assert (harness.group.assignment_epoch, harness.group.state.value) == (3, "Reconciling")
    harness.settle()
    assert harness.assigned("b") == {"orders": {3, 4, 5}}

    at(harness, 1_999)
    assert harness.send("c").member_epoch == 3, "the last target was computed 999 ms ago"
    at(harness, 5_000)
    assert harness.stay("c").member_epoch == 4
    assert harness.log[-2] == assignment_epoch_record(GROUP, 4, int(START_MS) + 5_000)


def test_changes_in_the_interval_are_in_one_target() -> None:
    harness = waiting()
    for member_id in "cd":
        assert harness.send(member_id).member_epoch == 2
    harness.send("d", -1)
    assert (harness.group.group_epoch, harness.group.assignment_epoch) == (6, 2)
    at(harness, 1_000)
    harness.stay("b")
    assert (harness.group.assignment_epoch, {*harness.group.target}) == (6, {*"abc"})


@subtest_for_each(
    "config",
    [
        {"assignment_interval_ms": 0},
        {"release": KAFKA_4_2},
        {"group_config": lambda group_id, name: 0 if name == "consumer.assignment.interval.ms" else None},
    ],
)
def test_without_an_interval_each_change_has_a_target(config: dict[str, Any]) -> None:
    harness = waiting(**config)
    assert harness.group.assignment_epoch == harness.group.group_epoch == harness.member("b").member_epoch
    assert harness.group.state.value == "Reconciling"


def test_a_group_has_an_interval_of_its_own() -> None:
    own = {"consumer.assignment.interval.ms": 5_000}
    harness = waiting(group_config=lambda group_id, name: own.get(name) if group_id == GROUP else None)
    at(harness, 4_999)
    assert harness.stay("b").member_epoch == 2
    own.clear()
    assert harness.stay("b").member_epoch == 3, "a change takes effect with the next heartbeat"


def test_a_failover_keeps_the_time_of_the_last_target() -> None:
    harness = waiting()
    harness.fail_over()
    at(harness, 999)
    harness.stay("a")
    assert harness.group.assignment_epoch == 2
    harness.fail_over()
    at(harness, 1_000)
    harness.stay("a")
    assert harness.group.assignment_epoch == 3


@subtest_for_each("fails_over", [False, True])
@subtest_for_each(
    ("release", "epoch", "assignment", "state"),
    [(KAFKA_4_2, 3, EVERYTHING, "Stable"), (KAFKA_4_3, 2, {}, "Assigning"), (KAFKA_4_4, 4, EVERYTHING, "Stable")],
)
def test_a_member_that_joins_a_group_without_members_gets_a_target_at_once_except_in_4_3(
    release: Release, epoch: int, assignment: dict[str, set[int]], state: str, fails_over: bool
) -> None:
    harness = ConsumerGroupHarness(release=release, assignment_interval_ms=INTERVAL_MS)
    harness.send("a")
    harness.send("a", -1)
    writes_epoch = ConsumerGroupTargetAssignmentMetadataKey in (type(each.key) for each in harness.keyed())
    assert writes_epoch == (release == KAFKA_4_4), "KAFKA-20442"
    if fails_over:
        harness.fail_over()
    at(harness, 300)
    joined = harness.send("b")
    assert (joined.member_epoch, harness.assignment(joined)) == (epoch, assignment)
    assert harness.group.state.value == state


def test_a_classic_group_that_is_upgraded_has_no_target_to_wait_after() -> None:
    harness = MixedGroupHarness(assignment_interval_ms=INTERVAL_MS)
    harness.start_classic_group(x=EVERYTHING)
    harness.send("a")
    assert harness.group.assignment_epoch == harness.group.group_epoch
    harness.send("b")
    assert harness.group.assignment_epoch == harness.group.group_epoch - 1


def test_classic_members_rejoin_when_there_is_a_target() -> None:
    """KAFKA-20272: before, the group epoch counted."""
    harness = MixedGroupHarness(assignment_interval_ms=INTERVAL_MS)
    harness.send("a")
    at(harness, 300)
    assert harness.joined("m").generation_id == 2
    assert places(harness.sync("m", 2)) == {}
    assert harness.beat("m", 2) is NONE
    at(harness, 1_000)
    assert harness.beat("m", 2) is NONE, "it does not compute a target"
    harness.stay("a")
    assert harness.beat("m", 2) is REBALANCE
    answer = harness.sync("m", 2)
    assert answer is not None
    assert answer.error_code == REBALANCE
    assert harness.joined("m").generation_id == 3


@subtest_for_each(
    ("release", "state", "has_generation"),
    [(KAFKA_4_2, "Stable", True), (KAFKA_4_3, "PreparingRebalance", False), (KAFKA_4_4, "PreparingRebalance", False)],
)
def test_a_downgrade_with_an_old_target_rebalances(release: Release, state: str, has_generation: bool) -> None:
    """KAFKA-20273."""
    harness = MixedGroupHarness(release=release)
    harness.send("a", instance_id="i")
    harness.joined()
    harness.settle()
    harness.topics.grow("orders", 7)
    joined = harness.joined(instance_id="i")
    assert (harness.is_classic, harness.classic.state.value) == (True, state)
    assert (joined.generation_id > 0) == has_generation
    harness.fail_over()


# Commits in older epochs (KIP-1251)


def commit(
    harness: ConsumerGroupHarness, member_id: str, epoch: int, *indexes: int, topic: str = "orders", long: int = -1
) -> list[ErrorCode]:
    """Commit offsets of some partitions, one of them with metadata that is too long; return the errors."""
    offsets = [(topic, each, 7, "x" * 4_097 if each == long else "") for each in indexes]
    return commits.commit(harness.coordinator, offsets, harness.now_ms, epoch, member_id)


def commit_in_transaction(
    harness: ConsumerGroupHarness, member_id: str, epoch: int, index: int, *, has_newer_errors: bool
) -> ErrorCode:
    (error,) = commits.commit_in_transaction(
        *(harness.coordinator, [("orders", index, 7)], harness.now_ms, epoch, member_id),
        has_newer_errors=has_newer_errors,
    )
    return error


def moved(**config: Any) -> ConsumerGroupHarness:
    """Return a group of which "a" was in epoch 2 and is in epoch 3. It has orders-0 and orders-1, gives up orders-2,
    and has given up orders-3 to "b", which has it since epoch 3.
    """
    harness = ConsumerGroupHarness(FakeTopics(orders=6, news=1), **config)
    harness.send("a")
    harness.send("b")
    harness.settle()
    harness.send("c")
    harness.stay("a")
    assert (harness.member("a").member_epoch, harness.member("a").state) == (3, UNREVOKED_PARTITIONS)
    assert (harness.assigned("a"), harness.pending("a")) == ({"orders": {0, 1}}, {"orders": {2}})
    return harness


# The member, the epoch and the partitions; the error of all of them.
OLDER: list[tuple[str, int, tuple[int, ...], ErrorCode]] = [
    ("a", 3, (0, 1, 2, 3, 9), NONE),  # In its epoch, it may commit everything.
    ("a", 2, (0, 1), NONE),
    ("a", 2, (2,), NONE),
    ("a", 2, (3,), STALE),
    ("a", 2, (0, 9), STALE),
    ("a", 1, (0,), STALE),
    ("a", 0, (0,), STALE),
    ("a", -1, (0,), STALE),
    ("a", 4, (0,), STALE),
    ("b", 3, (3,), NONE),
    ("b", 2, (3,), STALE),
    ("gone", 2, (0,), ErrorCode.UNKNOWN_MEMBER_ID),
]


@subtest_for_each("fails_over", [False, True])
@subtest_for_each(("member_id", "epoch", "indexes", "error"), OLDER)
def test_commits_in_older_epochs(
    member_id: str, epoch: int, indexes: tuple[int, ...], error: ErrorCode, fails_over: bool
) -> None:
    harness = moved()
    if fails_over:
        harness.fail_over()
    assert commit(harness, member_id, epoch, *indexes) == [error] * len(indexes)
    for has_newer_errors in (True, False):
        expected = ILLEGAL if error is STALE and not has_newer_errors else error
        index = indexes[-1]  # The one that is wrong, if any is.
        found = commit_in_transaction(harness, member_id, epoch, index, has_newer_errors=has_newer_errors)
        assert found is expected


def test_partitions_of_other_topics_are_not_those_of_the_member() -> None:
    harness = moved()
    assert commit(harness, "a", 2, 0, topic="news") == commit(harness, "a", 2, 0, topic="no such topic") == [STALE]


def test_offsets_that_are_refused_anyway_are_not_checked() -> None:
    harness = moved()
    assert commit(harness, "a", 2, 0, 3, long=3) == [NONE, TOO_LONG]
    assert commit(harness, "a", 2, 0, 3, long=0) == [STALE, STALE]


def test_before_4_3_members_commit_in_their_epoch() -> None:
    harness = ConsumerGroupHarness(release=KAFKA_4_2)
    harness.send("a")
    harness.send("b")
    harness.settle()
    for epoch, error in ((2, NONE), (1, STALE), (3, STALE)):
        assert commit(harness, "a", epoch, 0) == [error]
        found = commit_in_transaction(harness, "a", epoch, 0, has_newer_errors=False)
        assert found is (ILLEGAL if error else NONE)


def test_older_epochs_of_classic_members() -> None:
    harness = MixedGroupHarness()
    harness.send("a")
    m = harness.joined().member_id
    harness.settle()
    harness.send("b")
    harness.settle()
    assert harness.member(m).member_epoch == 4
    (kept, *_), since = sorted(harness.assigned(m)["orders"]), 3
    for epoch, index, error in ((4, kept, NONE), (since, kept, NONE), (since - 1, kept, ILLEGAL), (since, 0, ILLEGAL)):
        assert commit(harness, m, epoch, index) == [error], (epoch, index)
        for has_newer_errors in (True, False):
            assert commit_in_transaction(harness, m, epoch, index, has_newer_errors=has_newer_errors) is error


def test_a_static_member_that_returns_has_its_partitions_since_it_got_them() -> None:
    harness = ConsumerGroupHarness()
    harness.send("a", instance_id="i")
    harness.send("a", -2, instance_id="i")
    harness.fail_over()
    harness.send("b")
    back = harness.send("a2", instance_id="i")
    assert back.member_epoch == 3
    kept, given_up = {0, 1, 2}, {3, 4, 5}
    harness.settle()
    assert harness.assigned("a2") == {"orders": kept}
    assert commit(harness, "a2", 2, *kept) == [NONE] * 3
    assert commit(harness, "a2", 2, *given_up) == [STALE] * 3


# Static members


@subtest_for_each(("release", "error"), [(KAFKA_4_3, FULL), (KAFKA_4_4, NONE)])
def test_a_static_member_rejoins_a_full_group(release: Release, error: ErrorCode) -> None:
    """KAFKA-20601."""
    harness = ConsumerGroupHarness(release=release, max_size=1)
    harness.send("a", instance_id="i")
    harness.send("a", -2, instance_id="i")
    assert harness.send("b", instance_id="j").error_code is FULL
    assert harness.send("b").error_code is FULL
    assert harness.send("b", instance_id="i").error_code is error
    assert [*harness.group.members] == (["a"] if error else ["b"])


@subtest_for_each(("release", "error"), [(KAFKA_4_3, FULL), (KAFKA_4_4, NONE)])
def test_a_static_classic_member_rejoins_a_full_group(release: Release, error: ErrorCode) -> None:
    harness = MixedGroupHarness(release=release, max_size=2)
    harness.send("a")
    m = harness.joined(instance_id="i").member_id
    again = harness.join(instance_id="i")
    assert again is not None
    assert again.error_code == error
    assert (m in harness.group.members, len(harness.group.members)) == (bool(error), 2)


@subtest_for_each(
    ("release", "instances", "error"),
    [(KAFKA_4_3, {"i": "a", "j": "a"}, ErrorCode.UNRELEASED_INSTANCE_ID), (KAFKA_4_4, {"j": "a"}, NONE)],
)
def test_a_member_that_takes_another_instance_id(release: Release, instances: dict[str, str], error: ErrorCode) -> None:
    """KAFKA-20747: its first instance id is free."""
    harness = ConsumerGroupHarness(release=release)
    harness.send("a", instance_id="i")
    harness.send("a", instance_id="j")
    assert harness.group.static_members == instances
    harness.fail_over()
    assert harness.send("b", instance_id="i").error_code is error
    assert harness.stay("a", instance_id="j").error_code is NONE


# Assignors


@subtest_for_each(("release", "raises_epoch"), [(KAFKA_4_2, 0), (KAFKA_4_3, 0), (KAFKA_4_4, 1)])
def test_another_assignor_of_most_members_starts_an_epoch(release: Release, raises_epoch: int) -> None:
    """KAFKA-20434."""
    harness = ConsumerGroupHarness(release=release)
    for member_id in "abc":
        harness.send(member_id)
    harness.settle()
    before = harness.group.group_epoch
    # Who votes for what, and by how much the epoch has risen since the beginning.
    for member_id, assignor, rises in (
        ("a", "uniform", 0),  # It is the default.
        ("b", "uniform", 0),
        ("c", "uniform", 0),
        ("a", "range", 0),
        ("b", "range", 1),
        ("c", "range", 1),
        ("a", "uniform", 1),
        ("a", "range", 1),
    ):
        harness.stay(member_id, server_assignor=assignor)
        harness.settle()
        assert harness.group.group_epoch == before + rises * raises_epoch, (member_id, assignor)


def test_with_one_vote_each_the_second_member_begins_epochs() -> None:
    """As on a running Kafka 4.4: Describe's preferred assignor is uniform, that of the heartbeat is its own."""
    harness = ConsumerGroupHarness()
    harness.send("a", server_assignor="uniform")
    harness.send("b", server_assignor="range")
    harness.stay("a", {})
    epoch = harness.group.group_epoch
    for number in range(1, 4):
        harness.stay("a")
        assert harness.group.group_epoch == epoch + number - 1
        harness.stay("b")
        assert harness.group.group_epoch == epoch + number
    for member_id, assignor in (("c", "uniform"), ("d", "range")):
        harness.send(member_id, server_assignor=assignor)
    epoch = harness.group.group_epoch
    for member_id in "abcd":
        harness.stay(member_id)
    assert harness.group.group_epoch == epoch, "with two votes each, uniform is the first of the hash map"


def test_another_assignor_runs_with_the_heartbeat_that_votes_for_it() -> None:
    harness = ConsumerGroupHarness(FakeTopics(orders=3, news=3))
    for member_id in "ab":
        harness.send(member_id, subscribed_topic_names=("orders", "news"), server_assignor="uniform")
    harness.settle()
    sizes = sorted(sum(map(len, harness.assigned(each).values())) for each in "ab")
    assert sizes == [3, 3]
    for member_id in "ab":
        harness.stay(member_id, server_assignor="range")
    harness.settle()
    sizes = sorted(sum(map(len, harness.assigned(each).values())) for each in "ab")
    assert sizes == [2, 4], "the first member has two partitions of each topic"


# Malformed subscriptions


@subtest_for_each(
    ("release", "error"),
    [
        ((4, 1), ErrorCode.UNKNOWN_SERVER_ERROR),
        (KAFKA_4_2, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        (KAFKA_4_3, ErrorCode.UNKNOWN_SERVER_ERROR),
        (KAFKA_4_4, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
    ],
)
def test_malformed_subscriptions_of_classic_members(release: Release, error: ErrorCode) -> None:
    harness = MixedGroupHarness(release=release)
    harness.send("a")
    answer = harness.join("m", protocols=(("range", b"\0\3\0\0"),))
    assert answer is not None
    assert (answer.error_code, [*harness.group.members]) == (error, ["a"])
