"""Consumer groups beside classic ones: offsets, deletion, expiration, LeaveGroup, replacement by the other kind."""

from typing import Any

from fakebroker.coordinator.records import CoordinatorRecord, group_tombstone
from fakebroker.errors import ErrorCode
from fakebroker.protocol.consumer_protocol import encode_subscription
from fakebroker.protocol.messages.consumer_group_records import (
    ConsumerGroupMetadataKey,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupPartitionMetadataValue,
    TopicMetadata,
)
from fakebroker.protocol.messages.join_group import JoinGroupResponse
from tests.support.coordinator import commits
from tests.support.coordinator.consumer_group_harness import GROUP, SESSION_MS, ConsumerGroupHarness
from tests.support.coordinator.group_messages import identities, leave_errors, offered
from tests.support.coordinator.mixed_group_harness import ClassicContext, MixedGroupHarness
from tests.support.group_requests import join_request
from tests.support.subtests import subtest_for_each

RETENTION_MS = 7 * 24 * 3_600_000


def commit(harness: ConsumerGroupHarness, epoch: int, member_id: str, offset: int = 7) -> ErrorCode:
    (error,) = commits.commit(harness.coordinator, [("orders", 0, offset)], harness.now_ms, epoch, member_id)
    return error


def commit_in_transaction(harness: ConsumerGroupHarness, epoch: int, member_id: str) -> ErrorCode:
    offsets = [("orders", 0, 7)]
    (error,) = commits.commit_in_transaction(harness.coordinator, offsets, harness.now_ms, epoch, member_id)
    return error


def committed(harness: ConsumerGroupHarness) -> int | None:
    error, ((_, _, offset),) = harness.coordinator.offsets.fetch(GROUP, [("orders", 0)])
    assert error is ErrorCode.NONE
    return None if offset is None else offset.offset


def delete(harness: ConsumerGroupHarness) -> ErrorCode:
    results = [harness.coordinator.delete_groups([GROUP], harness.now_ms)[GROUP]]
    return results[0]


def join(harness: ConsumerGroupHarness, member_id: str = "", **fields: Any) -> JoinGroupResponse | None:
    request = join_request(
        GROUP,
        member_id,
        session_timeout_ms=10_000,
        protocols=offered([("range", encode_subscription(["orders"]))]),
    )
    harness.coordinator.join_group(request, ClassicContext("token"), harness.now_ms)
    answers, harness.coordinator.answers = harness.coordinator.answers, []
    return None if not answers else answers[0][1]  # type: ignore[return-value]  # the only request


# Epoch, member id, and the errors of OffsetCommit, TxnOffsetCommit and OffsetFetch; the epoch of "a" is 2.
COMMITS = [
    (2, "a", ErrorCode.NONE, ErrorCode.NONE, ErrorCode.NONE),
    (1, "a", ErrorCode.STALE_MEMBER_EPOCH, ErrorCode.ILLEGAL_GENERATION, ErrorCode.STALE_MEMBER_EPOCH),
    (3, "a", ErrorCode.STALE_MEMBER_EPOCH, ErrorCode.ILLEGAL_GENERATION, ErrorCode.STALE_MEMBER_EPOCH),
    (-1, "a", ErrorCode.STALE_MEMBER_EPOCH, ErrorCode.ILLEGAL_GENERATION, ErrorCode.STALE_MEMBER_EPOCH),
    (2, "b", ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.UNKNOWN_MEMBER_ID),
    (-1, "", ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID),
]


@subtest_for_each(("epoch", "member_id", "error", "in_transaction", "of_fetch"), COMMITS)
def test_commits_and_fetches_are_checked_by_member_epoch(
    epoch: int, member_id: str, error: ErrorCode, in_transaction: ErrorCode, of_fetch: ErrorCode
) -> None:
    harness = ConsumerGroupHarness()
    harness.send("a")
    assert commit(harness, epoch, member_id) is error
    assert committed(harness) == (None if error else 7)
    assert commit_in_transaction(harness, epoch, member_id) is in_transaction
    assert harness.coordinator.offsets.check_fetch(GROUP, member_id, epoch) is of_fetch
    assert harness.coordinator.offsets.check_fetch(GROUP, None, -1) is ErrorCode.NONE


def test_an_empty_group_accepts_commits_of_administrators_and_keeps_offsets_over_failovers() -> None:
    harness = ConsumerGroupHarness()
    assert commit(harness, -1, "") is ErrorCode.NONE, "creates a simple group, which is classic"
    assert harness.coordinator.groups.classic.get(GROUP) is not None
    harness.send("a")
    assert harness.coordinator.groups.classic.get(GROUP) is None
    assert committed(harness) == 7
    harness.send("a", -1)
    assert commit(harness, -1, "", 8) is ErrorCode.NONE
    harness.fail_over()
    assert committed(harness) == 8
    assert harness.group.state.value == "Empty"


def test_groups_without_members_are_deleted() -> None:
    harness = ConsumerGroupHarness()
    harness.send("a")
    commit(harness, 2, "a")
    assert delete(harness) is ErrorCode.NON_EMPTY_GROUP
    harness.send("a", -1)
    assert delete(harness) is ErrorCode.NONE
    assert delete(harness) is ErrorCode.GROUP_ID_NOT_FOUND
    assert committed(harness) is None
    assert harness.log[-1] == CoordinatorRecord(ConsumerGroupMetadataKey(group_id=GROUP), None)
    harness.coordinator.resign(0, harness.now_ms)
    harness.coordinator.start_loading(0)
    harness.coordinator.finish_loading(0, harness.log, harness.now_ms)
    assert harness.coordinator.groups.consumer.get(GROUP) is None
    assert list(harness.coordinator.groups.classic.values()) == []


def test_offsets_expire_unless_a_member_is_subscribed() -> None:
    harness = ConsumerGroupHarness(session_timeout_ms=10 * RETENTION_MS)
    harness.send("a")
    commit(harness, 2, "a")
    harness.advance(2 * RETENTION_MS)
    assert committed(harness) == 7
    harness.send("a", -1)
    harness.advance(RETENTION_MS)
    assert harness.coordinator.groups.consumer.get(GROUP) is None
    assert committed(harness) is None


def test_an_administrator_removes_members() -> None:
    harness = ConsumerGroupHarness()
    harness.send("a", instance_id="i")
    harness.send("b")
    leaving = identities([("", "i"), ("b", None), ("c", None), ("", "j"), ("b", "i")])
    results = leave_errors(harness.coordinator.leave_group(GROUP, leaving, harness.now_ms))
    unknown = ErrorCode.UNKNOWN_MEMBER_ID
    errors = [ErrorCode.NONE, ErrorCode.NONE, unknown, unknown, ErrorCode.FENCED_INSTANCE_ID]
    assert results == (ErrorCode.NONE, errors)
    assert (harness.group.members, harness.group.group_epoch) == ({}, 4), "one epoch for the request"


def test_an_empty_consumer_group_becomes_a_classic_one_and_keeps_its_offsets() -> None:
    harness = ConsumerGroupHarness()
    harness.send("a")
    commit(harness, 2, "a")
    harness.send("a", -1)
    assert join(harness) is None, "the first join waits for the initial delay"
    assert GROUP not in harness.coordinator.groups.consumer
    assert committed(harness) == 7
    harness.coordinator.queue.run(harness.now_ms + 3_000)
    harness.coordinator.resign(0, harness.now_ms)
    harness.coordinator.start_loading(0)
    harness.coordinator.finish_loading(0, harness.log, harness.now_ms)
    assert (committed(harness), len(harness.coordinator.groups.consumer)) == (7, 0)


def test_an_empty_consumer_group_is_forgotten_when_an_unknown_member_joins_but_not_by_the_log() -> None:
    harness = ConsumerGroupHarness()
    harness.send("a")
    commit(harness, 2, "a")
    harness.send("a", -1)
    written = len(harness.log)

    answer = join(harness, "m")

    assert answer is not None
    assert answer.error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert GROUP not in harness.coordinator.groups.consumer
    assert len(harness.log) == written
    assert harness.send("b").member_epoch == 2
    assert committed(harness) == 7


def test_a_forgotten_consumer_group_is_loaded_by_its_next_coordinator() -> None:
    harness = ConsumerGroupHarness()
    harness.send("a")
    harness.send("a", -1)
    join(harness, "m")

    harness.coordinator.resign(0, harness.now_ms)
    harness.coordinator.start_loading(0)
    harness.coordinator.finish_loading(0, harness.log, harness.now_ms)

    assert harness.send("b").member_epoch == 4


def test_an_empty_classic_group_becomes_a_consumer_group() -> None:
    harness = ConsumerGroupHarness()
    join(harness)
    harness.now_ms += 3_000 + SESSION_MS
    harness.coordinator.queue.run(harness.now_ms)
    harness.coordinator.queue.run(harness.now_ms + 60_000)
    classic = harness.coordinator.groups.classic.get(GROUP)
    assert classic is not None
    assert classic.state.value == "Empty"
    harness.append_error = ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert harness.send("a").error_code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert harness.coordinator.groups.classic.get(GROUP) is classic
    harness.append_error = None
    harness.send("a")
    assert harness.batches[-1][0] == group_tombstone(GROUP)
    assert harness.coordinator.groups.classic.get(GROUP) is None
    harness.fail_over()


def test_topics_that_kafka_4_0_stored_are_deleted_with_the_next_epoch() -> None:
    harness = ConsumerGroupHarness()
    harness.send("a")
    topic = TopicMetadata(topic_id=bytes(16), topic_name="orders", num_partitions=6, partition_metadata=[])
    key = ConsumerGroupPartitionMetadataKey(group_id=GROUP)
    harness.log.append(CoordinatorRecord(key, ConsumerGroupPartitionMetadataValue(topics=[topic])))
    harness.coordinator.resign(0, harness.now_ms)
    harness.coordinator.start_loading(0)
    harness.coordinator.finish_loading(0, harness.log, harness.now_ms)
    harness.send("b")
    assert CoordinatorRecord(key, None) in harness.batches[-1]
    harness.fail_over()
    assert not harness.group.has_subscribed_topics_record


def test_a_heartbeat_that_changes_only_the_session_takes_the_short_path() -> None:
    harness = ConsumerGroupHarness()

    def is_short(member_id: str, epoch: int, **fields: Any) -> bool:
        deadlines, appends = dict(harness.group.session_deadlines), len(harness.batches)
        response = harness.extend_session(member_id, epoch, **fields)
        extended = {**deadlines, member_id: harness.now_ms + SESSION_MS} if response is not None else deadlines
        assert (harness.group.session_deadlines, len(harness.batches)) == (extended, appends)
        assert response is None or response.heartbeat_interval_ms == 5_000
        return response is not None

    harness.send("a")
    harness.now_ms += 1_000
    assert is_short("a", 2)
    assert [is_short("a", 1), is_short("a", 3), is_short("b", 2)] == [False] * 3, "errors"
    assert not is_short("a", 2, client_id="other"), "something to store"
    assert not is_short("a", 2, instance_id="i"), "an error"
    harness.send("s", instance_id="i")
    assert [is_short("a", 2), is_short("s", 3)] == [False] * 2, "partitions have to move"
    harness.settle()
    assert [is_short("a", 3), is_short("s", 3), is_short("s", 3, instance_id="i")] == [True] * 3
    harness.topics.create("news", 1)
    assert not is_short("a", 3), "the subscribed topics may have changed"
    harness.stay("a")
    assert is_short("a", 3), "they have not"
    harness.topics.grow("orders", 7)
    harness.stay("a")
    assert not is_short("s", 3), "there is a new target"


def test_a_session_timeout_that_was_shortened_takes_effect_with_the_next_heartbeat() -> None:
    own = {"consumer.session.timeout.ms": SESSION_MS, "consumer.heartbeat.interval.ms": 5_000}
    harness = ConsumerGroupHarness(group_config=lambda group_id, name: own.get(name))
    harness.send("a")
    own["consumer.session.timeout.ms"] = SESSION_MS // 3
    assert harness.extend_session("a", 2) is None
    harness.stay("a")
    harness.advance(SESSION_MS // 3)
    assert harness.group.members == {}


def test_a_classic_member_that_sends_a_heartbeat_of_the_consumer_protocol_uses_it_from_then_on() -> None:
    harness = MixedGroupHarness()
    harness.send("a")
    joined = harness.joined("b", client_id="client")
    harness.stay("a")
    harness.stay("a", harness.assigned("a"))
    harness.joined("b", owned={}, client_id="client")
    assert harness.member("b").classic is not None
    assert harness.group.state.value == "Stable"
    epoch = joined.generation_id
    assert harness.extend_session("b", epoch) is None
    assert harness.send("b", epoch).error_code is ErrorCode.NONE
    assert harness.member("b").classic is None


def test_a_coordinator_that_resigns_drops_its_pending_offsets() -> None:
    harness = ConsumerGroupHarness()
    harness.send("a")
    assert commit_in_transaction(harness, 2, "a") is ErrorCode.NONE
    assert list(harness.coordinator.offsets.unstable_partitions(GROUP)) == [("orders", 0)]
    harness.coordinator.resign(0, harness.now_ms)
    assert not harness.coordinator.offsets.has_pending
