"""Committed offsets are stored, fetched and deleted. The checks of members are in `test_requests_in_each_state.py`."""

from fakebroker.coordinator.offset_store import CommittedOffset
from fakebroker.errors import ErrorCode
from tests.support.coordinator.commits import commit
from tests.support.coordinator.coordinator_harness import START_MS, CoordinatorHarness
from tests.support.subtests import subtest_for_each

NONE = ErrorCode.NONE


def fetch(
    harness: CoordinatorHarness, *partitions: tuple[str, int], group_id: str = "g"
) -> list[CommittedOffset | None]:
    error, offsets = harness.coordinator.offsets.fetch(group_id, partitions)
    assert error is NONE
    assert [(topic, partition) for topic, partition, _ in offsets] == list(partitions)
    return [committed for _, _, committed in offsets]


def fetch_all(harness: CoordinatorHarness, group_id: str = "g") -> list[tuple[str, int, int]]:
    error, offsets = harness.coordinator.offsets.fetch(group_id, None)
    assert error is NONE
    return [(topic, partition, committed.offset) for topic, partition, committed in offsets if committed is not None]


def test_committed_offset_can_be_fetched() -> None:
    harness = CoordinatorHarness()
    assert harness.commit(offset=7, committed_leader_epoch=3, metadata="note") is NONE
    expected = CommittedOffset(offset=7, leader_epoch=3, metadata="note", commit_timestamp_ms=int(START_MS))
    assert fetch(harness, ("t", 0), ("t", 1), ("u", 0)) == [expected, None, None]


def test_defaults_of_a_commit() -> None:
    harness = CoordinatorHarness()
    harness.commit(offset=-1)
    assert fetch(harness, ("t", 0)) == [CommittedOffset(offset=-1, commit_timestamp_ms=int(START_MS))]


def test_timestamps_of_older_versions_are_kept() -> None:
    harness = CoordinatorHarness()
    harness.commit(commit_timestamp=5, retention_ms=9)
    expected = CommittedOffset(offset=1, commit_timestamp_ms=5, expire_timestamp_ms=int(START_MS) + 9)
    assert fetch(harness, ("t", 0)) == [expected]


def test_last_commit_is_valid() -> None:
    harness = CoordinatorHarness()
    harness.commit(offset=9)
    harness.commit(offset=4)
    assert harness.committed() == 4


@subtest_for_each(
    ("metadata", "error"),
    [
        ("m" * 4096, NONE),
        ("m" * 4097, ErrorCode.OFFSET_METADATA_TOO_LARGE),
        ("🚀" * 2048, NONE),
        ("🚀" * 2048 + "m", ErrorCode.OFFSET_METADATA_TOO_LARGE),
        ("é" * 4096, NONE),
    ],
)
def test_metadata_size_is_counted_in_utf_16_units(metadata: str, error: ErrorCode) -> None:
    assert CoordinatorHarness().commit(metadata=metadata) is error


def test_rejected_partition_does_not_affect_the_other_partitions_of_a_commit() -> None:
    harness = CoordinatorHarness()
    offsets = [("t", 0, 1, ""), ("t", 1, 2, "m" * 4097), ("u", 0, 3, "")]
    errors = commit(harness.coordinator, offsets, harness.now_ms)
    assert errors == [NONE, ErrorCode.OFFSET_METADATA_TOO_LARGE, NONE]
    assert fetch_all(harness) == [("t", 0, 1), ("u", 0, 3)]


def test_error_of_the_request_is_repeated_for_each_partition() -> None:
    harness = CoordinatorHarness()
    errors = commit(harness.coordinator, [("t", 0, 1), ("t", 1, 1)], harness.now_ms, 1, "x")
    assert errors == [ErrorCode.GROUP_ID_NOT_FOUND] * 2


def test_fetch_of_all_offsets_returns_them_topic_by_topic() -> None:
    harness = CoordinatorHarness()
    for topic, partition in [("u", 1), ("t", 0), ("u", 0)]:
        harness.commit(topic=topic, partition=partition)
    assert fetch_all(harness) == [("u", 1, 1), ("u", 0, 1), ("t", 0, 1)]
    assert fetch_all(harness, "missing") == []


def test_empty_group_id_is_legal_for_offsets_only() -> None:
    harness = CoordinatorHarness()
    assert harness.commit(group_id="") is NONE
    assert harness.committed(group_id="") == 1
    for error in (harness.heartbeat("x", 0, group_id=""), harness.join(group_id="").error):
        assert error is ErrorCode.INVALID_GROUP_ID
    assert harness.coordinator.leave_group("", [], harness.now_ms).error_code == ErrorCode.INVALID_GROUP_ID
    assert harness.coordinator.offsets.delete("", [])[0] is ErrorCode.INVALID_GROUP_ID
    assert harness.delete_group("") is NONE


def test_group_with_offsets_keeps_them_when_members_join() -> None:
    harness = CoordinatorHarness()
    harness.commit()
    assert harness.group().protocol_type is None
    harness.leave((harness.create_stable_group(1)[0], None))
    assert harness.committed() == 1


def test_offsets_of_a_deleted_topic_are_deleted_in_all_groups() -> None:
    harness = CoordinatorHarness()
    for group_id in "gh":
        for topic in "tu":
            harness.commit(group_id=group_id, topic=topic)
    harness.coordinator.offsets.delete_topic("t")
    assert fetch_all(harness, "g") == fetch_all(harness, "h") == [("u", 0, 1)]


def test_offset_delete_rejects_subscribed_topics() -> None:
    harness = CoordinatorHarness()
    for topic in "tu":
        harness.commit(topic=topic)
    harness.create_stable_group()
    partitions = [("t", 0), ("u", 0), ("u", 5)]
    error, errors = harness.coordinator.offsets.delete("g", partitions)
    assert (error, errors) == (NONE, [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, NONE, NONE])
    assert fetch_all(harness) == [("t", 0, 1)]


def test_offset_delete_rejects_all_topics_before_the_first_generation() -> None:
    harness = CoordinatorHarness()
    harness.join()
    assert harness.delete_offsets(("u", 0)) == (
        NONE,
        [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC],
    )


def test_offsets_and_pending_ids_are_deleted_with_their_group() -> None:
    harness = CoordinatorHarness()
    harness.commit()
    pending_id = harness.request_member_id()
    assert harness.delete_group() is NONE
    assert harness.state() == "-"
    assert harness.committed() is None
    assert harness.join(pending_id).error is ErrorCode.UNKNOWN_MEMBER_ID
    harness.advance(1_000_000)
    assert harness.coordinator.queue.next_deadline() is None
