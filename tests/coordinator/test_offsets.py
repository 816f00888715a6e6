"""Committed offsets: what is stored, fetched and deleted. Who may commit is in the matrix."""

import pytest

from fakebroker.coordinator.group.api import OffsetToCommit
from fakebroker.coordinator.group.offsets import CommittedOffset
from fakebroker.errors import ErrorCode
from tests.support.coordinator.coordinator_harness import START_MS, CoordinatorHarness, result_of

NONE = ErrorCode.NONE


def fetch(
    driver: CoordinatorHarness, *partitions: tuple[str, int], group_id: str = "g"
) -> list[CommittedOffset | None]:
    error, offsets = driver.coordinator.fetch_offsets(group_id, partitions, driver.now_ms)
    assert error is NONE
    assert [(topic, partition) for topic, partition, _ in offsets] == list(partitions)
    return [committed for _, _, committed in offsets]


def fetch_all(driver: CoordinatorHarness, group_id: str = "g") -> list[tuple[str, int, int]]:
    error, offsets = driver.coordinator.fetch_offsets(group_id, None, driver.now_ms)
    assert error is NONE
    return [(topic, partition, committed.offset) for topic, partition, committed in offsets if committed is not None]


def test_what_is_committed_can_be_fetched() -> None:
    driver = CoordinatorHarness()
    assert driver.commit(offset=7, leader_epoch=3, metadata="note") is NONE
    expected = CommittedOffset(offset=7, leader_epoch=3, metadata="note", commit_timestamp_ms=int(START_MS))
    assert fetch(driver, ("t", 0), ("t", 1), ("u", 0)) == [expected, None, None]


def test_the_defaults_of_a_commit() -> None:
    driver = CoordinatorHarness()
    driver.commit(offset=-1)
    assert fetch(driver, ("t", 0)) == [CommittedOffset(offset=-1, commit_timestamp_ms=int(START_MS))]


def test_timestamps_of_old_versions() -> None:
    driver = CoordinatorHarness()
    driver.commit(commit_timestamp_ms=5, expire_timestamp_ms=9)
    assert fetch(driver, ("t", 0)) == [CommittedOffset(offset=1, commit_timestamp_ms=5, expire_timestamp_ms=9)]


def test_the_last_commit_counts() -> None:
    driver = CoordinatorHarness()
    driver.commit(offset=9)
    driver.commit(offset=4)
    assert driver.committed() == 4


@pytest.mark.parametrize(
    ("metadata", "error"),
    [
        ("m" * 4096, NONE),
        ("m" * 4097, ErrorCode.OFFSET_METADATA_TOO_LARGE),
        ("🚀" * 2048, NONE),
        ("🚀" * 2048 + "m", ErrorCode.OFFSET_METADATA_TOO_LARGE),
        ("é" * 4096, NONE),
    ],
)
def test_metadata_is_counted_in_utf_16_units(metadata: str, error: ErrorCode) -> None:
    assert CoordinatorHarness().commit(metadata=metadata) is error


def test_one_bad_partition_does_not_keep_the_others_from_being_committed() -> None:
    driver = CoordinatorHarness()
    offsets = [
        OffsetToCommit(topic="t", partition=0, offset=1),
        OffsetToCommit(topic="t", partition=1, offset=2, metadata="m" * 4097),
        OffsetToCommit(topic="u", partition=0, offset=3),
    ]
    errors = result_of(driver.coordinator.commit_offsets, "g", -1, "", None, offsets, driver.now_ms)
    assert errors == [NONE, ErrorCode.OFFSET_METADATA_TOO_LARGE, NONE]
    assert fetch_all(driver) == [("t", 0, 1), ("u", 0, 3)]


def test_an_error_of_the_request_is_repeated_for_each_partition() -> None:
    driver = CoordinatorHarness()
    offsets = [OffsetToCommit(topic="t", partition=partition, offset=1) for partition in range(2)]
    errors = result_of(driver.coordinator.commit_offsets, "g", 1, "x", None, offsets, driver.now_ms)
    assert errors == [ErrorCode.GROUP_ID_NOT_FOUND] * 2


def test_all_offsets_come_topic_by_topic() -> None:
    driver = CoordinatorHarness()
    for topic, partition in [("u", 1), ("t", 0), ("u", 0)]:
        driver.commit(topic=topic, partition=partition)
    assert fetch_all(driver) == [("u", 1, 1), ("u", 0, 1), ("t", 0, 1)]
    assert fetch_all(driver, "missing") == []


def test_the_empty_group_id_may_keep_offsets_but_have_no_members() -> None:
    driver = CoordinatorHarness()
    assert driver.commit(group_id="") is NONE
    assert driver.committed(group_id="") == 1
    for error in (driver.heartbeat("x", 0, group_id=""), driver.join(group_id="").error):
        assert error is ErrorCode.INVALID_GROUP_ID
    assert result_of(driver.coordinator.leave_group, "", [], driver.now_ms)[0] is ErrorCode.INVALID_GROUP_ID
    assert result_of(driver.coordinator.delete_offsets, "", [])[0] is ErrorCode.INVALID_GROUP_ID
    assert result_of(driver.coordinator.delete_group, "", driver.now_ms) is NONE


def test_a_group_of_offsets_only_may_get_members_and_keeps_its_offsets() -> None:
    driver = CoordinatorHarness()
    driver.commit()
    assert driver.group().protocol_type is None
    driver.leave((driver.stable(1)[0], None))
    assert driver.committed() == 1


def test_deleted_topics_are_forgotten_in_all_groups() -> None:
    driver = CoordinatorHarness()
    for group_id in "gh":
        for topic in "tu":
            driver.commit(group_id=group_id, topic=topic)
    driver.coordinator.delete_topic_offsets("t")
    assert fetch_all(driver, "g") == fetch_all(driver, "h") == [("u", 0, 1)]


def test_offsets_are_deleted_unless_the_group_is_subscribed() -> None:
    driver = CoordinatorHarness()
    for topic in "tu":
        driver.commit(topic=topic)
    driver.stable()
    partitions = [("t", 0), ("u", 0), ("u", 5)]
    error, errors = result_of(driver.coordinator.delete_offsets, "g", partitions)
    assert (error, errors) == (NONE, [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, NONE, NONE])
    assert fetch_all(driver) == [("t", 0, 1)]


def test_before_its_first_generation_a_consumer_group_counts_as_subscribed_to_everything() -> None:
    driver = CoordinatorHarness()
    driver.join()
    assert result_of(driver.coordinator.delete_offsets, "g", [("u", 0)]) == (
        NONE,
        [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC],
    )


def test_a_deleted_group_takes_its_offsets_and_pending_ids_along() -> None:
    driver = CoordinatorHarness()
    driver.commit()
    pending_id = driver.pend()
    assert result_of(driver.coordinator.delete_group, "g", driver.now_ms) is NONE
    assert driver.state() == "-"
    assert driver.committed() is None
    assert driver.join(pending_id).error is ErrorCode.UNKNOWN_MEMBER_ID
    driver.advance(1_000_000)
    assert driver.coordinator.next_deadline() is None
