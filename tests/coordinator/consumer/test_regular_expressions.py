"""Subscriptions by regular expression: when they are resolved, what that changes, and what a failover keeps."""

from collections import Counter
from typing import Any

from fakebroker.cluster.regular_expressions import compile_regex
from fakebroker.coordinator.consumer.member import ConsumerGroupMember
from fakebroker.coordinator.consumer.records import regex_record
from fakebroker.coordinator.consumer.subscriptions import ResolvedRegex, Subscriptions
from fakebroker.coordinator.records import CoordinatorRecord, Record
from fakebroker.errors import ErrorCode
from fakebroker.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatResponse
from fakebroker.protocol.messages.consumer_group_records import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMetadataKey,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMetadataKey,
)
from tests.support.coordinator.consumer_group_harness import (
    GROUP,
    SESSION_MS,
    START_MS,
    ConsumerGroupHarness,
    FakeTopics,
)
from tests.support.subtests import subtest_for_each

MIN_REFRESH_MS = 10_000
REFRESH_MS = 600_000


class Harness(ConsumerGroupHarness):
    """A coordinator with RE2, whose appends of resolved regular expressions can fail.

    Attributes:
        fails_to_resolve: Whether they fail.
    """

    def __init__(self, **topics: int) -> None:
        self.fails_to_resolve = False
        super().__init__(FakeTopics(**(topics or {"orders": 2, "payments": 2})), compile_regex=compile_regex)

    def _append(self, partition: int, records: tuple[Record, ...]) -> ErrorCode:
        first = records[0]
        is_resolved = isinstance(first, CoordinatorRecord) and isinstance(first.key, ConsumerGroupRegularExpressionKey)
        if self.fails_to_resolve and is_resolved:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        return super()._append(partition, records)

    def join(self, member_id: str, regex: str = "o.*", *names: str, **fields: Any) -> ConsumerGroupHeartbeatResponse:
        return self.send(member_id, subscribed_topic_regex=regex, subscribed_topic_names=names, **fields)

    def joined(self, member_id: str, regex: str = "o.*", *names: str) -> "Harness":
        """Let a member join, and get its assignment."""
        self.join(member_id, regex, *names)
        self.settle()
        return self

    def last_batch(self) -> list[Any]:
        return [type(record.key) for record in self.keyed()]

    def matched(self, regex: str = "o.*") -> set[str]:
        return set(self.group.subscriptions.resolved[regex].topics)


def test_a_new_regular_expression_is_resolved_after_the_heartbeat() -> None:
    harness = Harness()
    joined = harness.join("a")
    assert (joined.error_code, joined.member_epoch, harness.assignment(joined)) == (ErrorCode.NONE, 1, {})
    first, second = harness.keyed(0), harness.keyed(1)
    assert [type(record.key) for record in first] == [
        ConsumerGroupMemberMetadataKey,
        ConsumerGroupCurrentMemberAssignmentKey,
    ]
    found = ResolvedRegex(frozenset(("orders",)), harness.topics.version, int(START_MS))
    assert second[0] == regex_record(GROUP, "o.*", found)
    assert isinstance(second[1].key, ConsumerGroupMetadataKey)
    assert second[1].value is not None
    assert (second[1].value.epoch, second[1].value.metadata_hash != 0) == (2, True)
    stayed = harness.stay("a")
    assert (stayed.member_epoch, harness.assignment(stayed)) == (2, {"orders": {0, 1}})
    assert harness.group.is_subscribed_to("orders")
    assert not harness.group.is_subscribed_to("payments")


def test_a_regular_expression_without_topics_changes_no_epoch() -> None:
    harness = Harness()
    harness.join("a", "x.*")
    assert harness.last_batch() == [ConsumerGroupRegularExpressionKey]
    assert (harness.group.group_epoch, harness.matched("x.*")) == (1, set())


def test_a_member_whose_regular_expression_is_not_resolved_has_topics_of_others_in_its_target_but_gets_none() -> None:
    harness = Harness()
    for member_id in ("a", "b"):
        harness.send(member_id)
    harness.send("b", -1)
    joined = harness.join("c", "x.*")  # Its heartbeat runs the assignor, because b has left.
    assert [len(partitions) for partitions in harness.group.target["c"].values()] == [1]
    assert harness.assignment(joined) == {}
    harness.settle()
    assert len(harness.assigned("a")["orders"]) == 1
    assert harness.assigned("c") == {}


def test_a_resolved_regular_expression_is_used_at_once() -> None:
    harness = Harness().joined("a")
    batches = len(harness.batches)
    joined = harness.join("b")
    assert joined.member_epoch == 3, "the group epoch rises with the heartbeat"
    assert len(harness.batches) == batches + 1, "it is not resolved again"
    harness.settle()
    assert [len(harness.assigned(each)["orders"]) for each in "ab"] == [1, 1]
    assert harness.group.subscriptions.regexes == {"o.*": 2}


def test_names_and_regular_expressions_add_up() -> None:
    harness = Harness().joined("a", "o.*", "payments", "orders")
    assert harness.assigned("a") == {"orders": {0, 1}, "payments": {0, 1}}
    harness.advance(MIN_REFRESH_MS + 1)
    harness.joined("b", "p.*")
    assert [harness.assigned(each) for each in "ab"] == [{"orders": {0, 1}}, {"payments": {0, 1}}]


def test_regular_expressions_match_whole_names() -> None:
    harness = Harness(orders=1, reorders=1, orders2=1)
    for regex, names in {
        "orders": {"orders"},
        "^orders.*$": {"orders", "orders2"},
        ".*": set(harness.topics.names()),
    }.items():
        harness.join("a", regex)
        assert harness.matched(regex) == names, regex
        harness.send("a", -1)


def test_new_topics_are_found_at_most_every_10_seconds() -> None:
    harness = Harness().joined("a")
    harness.topics.create("offers", 1)
    harness.advance(MIN_REFRESH_MS)
    harness.stay("a")
    assert harness.matched() == {"orders"}
    harness.advance(1)
    harness.stay("a")
    assert harness.matched() == {"orders", "offers"}
    harness.settle()
    assert harness.assigned("a") == {"orders": {0, 1}, "offers": {0}}
    harness.topics.create("news", 1)
    harness.advance(MIN_REFRESH_MS + 1)
    epoch = harness.group.group_epoch
    harness.stay("a")
    assert harness.last_batch() == [ConsumerGroupRegularExpressionKey], "it is stored again, with another version"
    assert harness.group.subscriptions.resolved["o.*"].version == harness.topics.version
    assert harness.group.group_epoch == epoch


def test_deleted_topics_leave_the_assignment_at_once_and_the_regular_expression_later() -> None:
    harness = Harness().joined("a")
    harness.topics.delete("orders")
    harness.stay("a", {})
    assert harness.assigned("a") == {}
    assert harness.matched() == {"orders"}
    epoch = harness.group.group_epoch
    for waited_ms in range(30_000, REFRESH_MS, 30_000):
        harness.advance(30_000)
        harness.stay("a")
        assert harness.matched() == {"orders"}, waited_ms
    harness.advance(30_000)
    harness.stay("a")
    assert harness.matched() == {"orders"}, "the interval is over after it"
    harness.advance(1)
    harness.stay("a")
    assert (harness.matched(), harness.group.group_epoch) == (set(), epoch + 1)


def test_another_regular_expression_takes_the_topics_of_the_former_away() -> None:
    harness = Harness().joined("a")
    changed = harness.stay("a", {"orders": {0, 1}}, subscribed_topic_regex="p.*")
    assert harness.assignment(changed) == {}
    assert tuple(harness.last_batch()) == (
        ConsumerGroupMemberMetadataKey,
        ConsumerGroupRegularExpressionKey,
        ConsumerGroupCurrentMemberAssignmentKey,
    )
    assert regex_record(GROUP, "o.*", None) in harness.batches[-1]
    assert harness.group.group_epoch == 2, "it will rise when the new one is resolved, 10 s after the former"
    assert harness.pending("a") == {"orders": {0, 1}}
    harness.stay("a", {})
    assert harness.matched("p.*") == {"payments"}, "the former is gone, and with it the time when it was resolved"
    harness.settle()
    assert harness.assigned("a") == {"payments": {0, 1}}


def test_a_regular_expression_beside_others_waits_until_they_are_10_seconds_old() -> None:
    harness = Harness().joined("a")
    harness.join("b", "p.*")
    assert "p.*" not in harness.group.subscriptions.resolved
    harness.advance(MIN_REFRESH_MS + 1)
    harness.stay("a")
    assert harness.matched("p.*") == {"payments"}
    assert {found.timestamp_ms for found in harness.group.subscriptions.resolved.values()} == {int(harness.now_ms)}


def test_the_last_member_takes_its_regular_expression_with_it() -> None:
    harness = Harness().joined("a").joined("b")
    harness.send("b", -1)
    assert ConsumerGroupRegularExpressionKey not in harness.last_batch()
    assert harness.group.subscriptions.regexes == {"o.*": 1}
    harness.advance(SESSION_MS)
    assert harness.last_batch() == [
        ConsumerGroupCurrentMemberAssignmentKey,
        ConsumerGroupTargetAssignmentMemberKey,
        ConsumerGroupMemberMetadataKey,
        ConsumerGroupRegularExpressionKey,
        ConsumerGroupMetadataKey,
        ConsumerGroupTargetAssignmentMetadataKey,
    ]
    assert harness.group.subscriptions == Subscriptions()
    assert harness.group.metadata_hash == 0


def test_static_members_keep_their_regular_expression_while_they_are_away() -> None:
    harness = Harness()
    harness.join("a", instance_id="i")
    harness.settle()
    harness.send("a", -2, instance_id="i")
    back = harness.join("b", instance_id="i")
    assert harness.assignment(back) == {"orders": {0, 1}}
    assert harness.group.subscriptions.regexes == {"o.*": 1}
    assert harness.group.group_epoch == 2


def test_invalid_regular_expressions_are_rejected() -> None:
    harness = Harness()
    for pattern, description in (
        ("(", "missing closing )"),
        ("[a", "missing closing ]"),
        ("a)", "regexp/syntax: internal error"),
        ("*", "missing argument to repetition operator"),
        ("a**", "invalid nested repetition operator"),
        ("a{1001}", "invalid repeat count"),
        ("(?=a)", "invalid or unsupported Perl syntax"),
        ("[b-a]", "invalid character class range"),
        ("\\8", "invalid escape sequence"),
        ("a\\", "trailing backslash at end of expression"),
        ("(?P<n", "invalid named capture"),
    ):
        result = harness.join("a", pattern)
        assert result.error_code is ErrorCode.INVALID_REGULAR_EXPRESSION
        text = f"SubscribedTopicRegex `{pattern}` is not a valid regular expression: {description}."
        assert result.error_message == text
    assert harness.log == []
    harness.joined("a")
    assert harness.stay("a", subscribed_topic_regex="(").error_code is ErrorCode.INVALID_REGULAR_EXPRESSION
    assert harness.member("a").subscribed_topic_regex == "o.*"


def test_a_resolution_that_cannot_be_stored_is_repeated_by_the_next_heartbeat() -> None:
    harness = Harness()
    harness.fails_to_resolve = True
    harness.join("a")
    assert harness.group.subscriptions.resolved == {}
    harness.fails_to_resolve = False
    harness.stay("a")
    assert harness.matched() == {"orders"}


def test_a_failover_keeps_what_was_resolved() -> None:
    harness = Harness().joined("a").joined("b", "p.*", "orders")
    harness.advance(MIN_REFRESH_MS + 1)
    harness.stay("a")
    harness.fail_over()
    assert harness.group.subscriptions.regexes == {"o.*": 1, "p.*": 1}
    assert (harness.matched(), harness.matched("p.*")) == ({"orders"}, {"payments"})
    batches = len(harness.batches)
    harness.advance(MIN_REFRESH_MS + 1)
    harness.stay("a")
    kinds = [type(record.key) for batch in range(batches, len(harness.batches)) for record in harness.keyed(batch)]
    assert ConsumerGroupRegularExpressionKey not in kinds
    harness.send("a", -1)
    harness.send("b", -1)
    harness.fail_over()
    assert harness.group.subscriptions == Subscriptions()


def member(member_id: str, regex: str, *names: str) -> ConsumerGroupMember:
    return ConsumerGroupMember(
        member_id=member_id, subscribed_topic_regex=regex, subscribed_topic_names=frozenset(names)
    )


# The subscriptions of the members, and whether all are the same (`ConsumerGroup.subscriptionType`).
SAME: list[tuple[list[ConsumerGroupMember], bool]] = [
    ([], True),
    ([member("a", "", "t"), member("b", "", "t")], True),
    ([member("a", "", "t"), member("b", "", "t", "u")], False),
    ([member("a", "", "t"), member("b", "")], False),
    ([member("a", "t"), member("b", "t")], True),
    ([member("a", "t"), member("b", "u")], False),
    ([member("a", "t"), member("b", "")], False),
    ([member("a", "t", "t"), member("b", "t", "t")], False),
]


@subtest_for_each(("members", "expected"), SAME)
def test_homogeneous_groups(members: list[ConsumerGroupMember], expected: bool) -> None:
    subscriptions = Subscriptions().after([], members)
    assert subscriptions.is_homogeneous(len(members)) is expected


def test_subscriptions_after_a_change_are_those_of_the_members_then() -> None:
    a, b = member("a", "r", "t"), member("b", "s", "t", "u")
    before = Subscriptions().after([], [a, b])
    before.resolved = {"r": ResolvedRegex(frozenset(("x",)), 1, 1), "s": ResolvedRegex(frozenset(("y",)), 1, 1)}
    assert before.topics() == {"t", "u", "x", "y"}
    after = before.after([b], [member("b", "r")])
    assert after.names == Counter(("t",))
    assert after.regexes == Counter(r=2)
    assert after.topics() == {"t", "x"}
    assert before.topics() == {"t", "u", "x", "y"}
