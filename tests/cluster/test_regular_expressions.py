"""Subscriptions by regular expression on the wire, and without the package that matches them."""

import re
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from fakebroker.cluster.inspect.explain import explain
from fakebroker.cluster.logs.coordinator_records import read_records
from fakebroker.cluster.regular_expressions import compile_regex
from fakebroker.coordinator.consumer.subscriptions import InvalidRegexError
from fakebroker.coordinator.records import CoordinatorRecord
from fakebroker.errors import ErrorCode
from fakebroker.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from fakebroker.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from fakebroker.protocol.messages.consumer_group_records import ConsumerGroupRegularExpressionKey
from tests.support.cluster.cluster_harness import ClusterHarness


def join(harness: ClusterHarness, regex: str, member_id: str = "a") -> Any:
    request = ConsumerGroupHeartbeatRequest(
        group_id="g",
        member_id=member_id,
        member_epoch=0,
        rebalance_timeout_ms=60_000,
        subscribed_topic_regex=regex,
        topic_partitions=[],
    )
    return harness.ask(request, 1)


def stay(harness: ClusterHarness, epoch: int) -> Any:
    return harness.ask(ConsumerGroupHeartbeatRequest(group_id="g", member_id="a", member_epoch=epoch), 1)


def test_topics_are_assigned_described_and_stored() -> None:
    harness = ClusterHarness({"news": 2, "orders": 1})
    joined = join(harness, "^n.*")
    assert (joined.error_code, joined.member_epoch, joined.assignment.topic_partitions) == (ErrorCode.NONE, 1, [])
    (assigned,) = stay(harness, 1).assignment.topic_partitions
    assert (assigned.topic_id, assigned.partitions) == (harness.topic("news").topic_id, [0, 1])
    (group,) = harness.ask(ConsumerGroupDescribeRequest(group_ids=["g"], include_authorized_operations=False), 1).groups
    (member,) = group.members
    assert (member.subscribed_topic_names, member.subscribed_topic_regex) == ([], "^n.*")
    partition = harness.cluster.offsets_partition_of("g")
    records = read_records(partition.log, partition.index)
    (stored,) = [
        record
        for record in records
        if isinstance(record, CoordinatorRecord) and isinstance(record.key, ConsumerGroupRegularExpressionKey)
    ]
    assert stored.value is not None
    assert (stored.key.regular_expression, stored.value.topics) == ("^n.*", ["news"])


def test_topics_that_are_internal_to_kafka_match_too() -> None:
    harness = ClusterHarness({"news": 2})
    join(harness, ".*")
    topics = [each.topic_id for each in stay(harness, 1).assignment.topic_partitions]
    assert set(topics) == {harness.topic("news").topic_id, harness.cluster.topics.offsets_topic.topic_id}


def test_explanations_say_when_regular_expressions_are_resolved() -> None:
    harness = ClusterHarness({"news": 2})
    join(harness, "^n.*")
    stay(harness, 1)
    assert "resolve" not in explain(harness.cluster, "g", harness.now_ms)
    harness.advance(4_000)
    harness.cluster.add_topic("new", [[1]])
    waits = (
        "A topic was created since the regular expressions of members were resolved: the first heartbeat after 6.0 s"
    )
    assert waits in explain(harness.cluster, "g", harness.now_ms)
    harness.advance(6_001)
    assert "resolved: the next heartbeat resolves all of them." in explain(harness.cluster, "g", harness.now_ms)
    stay(harness, 2)
    join(harness, "^o.*", "b")
    assert "The topics of '^o.*' are not known yet: the first heartbeat after 10.0 s resolves all of them." in explain(
        harness.cluster, "g", harness.now_ms
    )


@pytest.fixture
def without_re2(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    compile_regex.cache_clear()
    monkeypatch.setitem(sys.modules, "re2", None)
    yield
    compile_regex.cache_clear()


@pytest.mark.usefixtures("without_re2")
def test_without_the_extra_the_error_says_what_to_install() -> None:
    refused = join(ClusterHarness({"news": 2}), "^n.*")
    assert refused.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
    assert refused.error_message == (
        "SubscribedTopicRegex `^n.*` requires the extra 'regex': pip install 'fakebroker[regex]'."
    )


def test_errors_write_nothing_to_standard_error(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(InvalidRegexError, match=re.escape("`(?P<n` is not a valid regular expression: invalid named")):
        compile_regex("(?P<n")
    assert capfd.readouterr().err == ""
