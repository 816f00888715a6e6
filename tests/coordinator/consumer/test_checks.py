"""The checks of ConsumerGroupHeartbeat: their order, errors and messages are those of Kafka 4.4."""

from typing import Any

from fakebroker.coordinator.consumer.assignors import ASSIGNORS, Assignment, GroupSpec, PartitionAssignorError
from fakebroker.errors import ErrorCode
from tests.support.coordinator.consumer_group_harness import ConsumerGroupHarness, FakeTopics
from tests.support.subtests import subtest_for_each

EMPTY_ID = "MemberId can't be empty."
JOIN_SUBSCRIPTION = "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining."

# Member id, epoch and other fields of a request, and its message. Each request also has the faults of later checks.
INVALID: list[tuple[str, int, dict[str, Any], str]] = [
    ("", 1, {"group_id": ""}, EMPTY_ID),
    (" ", -1, {"group_id": ""}, EMPTY_ID),
    ("", 0, {"requires_member_id": True, "group_id": ""}, EMPTY_ID),
    ("", -2, {"requires_member_id": True}, EMPTY_ID),
    ("a", 1, {"group_id": " \t", "instance_id": ""}, "GroupId can't be empty."),
    ("a", 1, {"instance_id": "", "rack_id": ""}, "InstanceId can't be empty."),
    ("a", 0, {"rack_id": " ", "rebalance_timeout_ms": -1}, "RackId can't be empty."),
    (
        "a",
        0,
        {"rebalance_timeout_ms": -1, "reported": None},
        "RebalanceTimeoutMs must be provided in first request.",
    ),
    (
        "a",
        0,
        {"reported": None, "subscribed_topic_names": None},
        "TopicPartitions must be empty when (re-)joining.",
    ),
    ("a", 0, {"reported": {b"t" * 16: frozenset()}}, "TopicPartitions must be empty when (re-)joining."),
    ("a", 0, {"subscribed_topic_names": None, "server_assignor": "none"}, JOIN_SUBSCRIPTION),
    ("a", -2, {"server_assignor": "none"}, "InstanceId can't be null."),
    ("a", -3, {"server_assignor": "none"}, "MemberEpoch is invalid."),
]


@subtest_for_each(("member_id", "epoch", "fields", "message"), INVALID)
def test_invalid_requests(member_id: str, epoch: int, fields: dict[str, Any], message: str) -> None:
    harness = ConsumerGroupHarness()
    result = harness.send(member_id, epoch, **fields)
    assert (result.error_code, result.error_message) == (ErrorCode.INVALID_REQUEST, message)
    assert (result.member_id, result.member_epoch, result.heartbeat_interval_ms, result.assignment) == (
        None,
        0,
        0,
        None,
    )
    assert harness.log == []


def test_an_unknown_assignor_and_without_a_library_a_regular_expression_are_rejected() -> None:
    harness = ConsumerGroupHarness()
    result = harness.send("a", server_assignor="sticky", subscribed_topic_regex="o.*")
    assert result.error_code is ErrorCode.UNSUPPORTED_ASSIGNOR
    assert result.error_message == "ServerAssignor sticky is not supported. Supported assignors: uniform, range."
    result = harness.send("a", subscribed_topic_names=None, subscribed_topic_regex="o.*")
    assert result.error_code is ErrorCode.INVALID_REGULAR_EXPRESSION
    assert result.error_message == "SubscribedTopicRegex `o.*` is not supported: only names of topics are."
    assert harness.log == []
    assert harness.send("a", subscribed_topic_names=None, subscribed_topic_regex="").error_code is ErrorCode.NONE


def test_missing_groups_and_unknown_members() -> None:
    harness = ConsumerGroupHarness()
    for epoch, message in ((1, "Consumer group g not found."), (-1, "Group g not found.")):
        result = harness.send("a", epoch)
        assert (result.error_code, result.error_message) == (ErrorCode.GROUP_ID_NOT_FOUND, message)
    harness.send("a")
    for epoch in (1, -1):
        result = harness.send("b", epoch)
        assert (result.error_code, result.error_message) == (
            ErrorCode.UNKNOWN_MEMBER_ID,
            "Member b is not a member of group g.",
        )
        result = harness.send("b", epoch, instance_id="i")
        assert (result.error_code, result.error_message) == (ErrorCode.UNKNOWN_MEMBER_ID, "Instance id i is unknown.")


def test_a_full_group_rejects_new_members_only() -> None:
    harness = ConsumerGroupHarness(max_size=1)
    harness.send("a")
    for member_id in ("b", ""):
        result = harness.send(member_id)
        assert result.error_code is ErrorCode.GROUP_MAX_SIZE_REACHED
        assert result.error_message == "The consumer group has reached its maximum capacity of 1 members."
    assert harness.stay("a").error_code is ErrorCode.NONE


# The epoch and the owned partitions that "a" sends, whose epoch is 4 and was 3 before; the message.
SMALLER = (
    "The consumer group member has a smaller member epoch (%d) than the one known by the group coordinator (4). "
    "The member must abandon all its partitions and rejoin."
)
EPOCHS: list[tuple[int, dict[str, set[int]] | None, str | None]] = [
    (4, None, None),
    (4, {"orders": {5}}, None),
    (3, {}, None),
    (3, {"orders": {0}}, None),
    (3, {"orders": {0, 5}}, SMALLER % 3),
    (3, {"news": set()}, SMALLER % 3),
    (3, None, SMALLER % 3),
    (2, {}, SMALLER % 2),
    (0, {}, None),  # It joins again (KAFKA-19233).
    (5, {}, SMALLER.replace("smaller", "greater") % 5),
]


@subtest_for_each(("epoch", "owned", "message"), EPOCHS)
def test_member_epochs(epoch: int, owned: dict[str, set[int]] | None, message: str | None) -> None:
    harness = ConsumerGroupHarness(FakeTopics(orders=6, news=1))
    harness.send("a")
    for member_id in ("b", "c"):
        harness.send(member_id)
        harness.settle()
    assert (harness.member("a").member_epoch, harness.member("a").previous_epoch) == (4, 3)
    assert harness.assigned("a") == {"orders": {0, 1}}
    result = harness.send("a", epoch, owned)
    expected = ErrorCode.NONE if message is None else ErrorCode.FENCED_MEMBER_EPOCH
    assert (result.error_code, result.error_message) == (expected, message)


def test_before_4_2_a_member_may_not_join_again() -> None:
    harness = ConsumerGroupHarness(FakeTopics(orders=6), release=(4, 1))
    harness.send("a")
    harness.send("b")
    harness.settle()
    assert harness.send("a", 0, {}).error_code is ErrorCode.FENCED_MEMBER_EPOCH


def test_a_member_in_its_first_epoch_may_join_again_because_the_response_may_be_lost() -> None:
    harness = ConsumerGroupHarness()
    first = harness.send("a")
    again = harness.send("a")
    assert (again.error_code, again.member_epoch, again.assignment) == (ErrorCode.NONE, 2, first.assignment)


def test_a_coordinator_without_the_partition_refuses() -> None:
    harness = ConsumerGroupHarness()
    harness.send("a")
    harness.coordinator.resign(0, harness.now_ms)
    assert harness.send("a", 1).error_code is ErrorCode.NOT_COORDINATOR
    harness.coordinator.start_loading(0)
    assert harness.send("a", 1).error_code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert harness.send("a", 1, rack_id="").error_code is ErrorCode.INVALID_REQUEST, "checked before"


def test_an_assignor_that_fails_changes_nothing() -> None:
    failing = False

    def assign(group: GroupSpec) -> dict[str, Assignment]:
        if failing:
            raise PartitionAssignorError("expected fewer partitions")
        return ASSIGNORS["uniform"](group)

    harness = ConsumerGroupHarness(assignors={"uniform": assign})
    harness.send("a")
    failing = True
    result = harness.send("b")
    assert (result.error_code, result.error_message) == (ErrorCode.UNKNOWN_SERVER_ERROR, None)
    assert (len(harness.batches), list(harness.group.members)) == (1, ["a"])
    failing = False
    assert harness.send("b").error_code is ErrorCode.NONE
