"""When offsets and groups expire: which are kept for whom, from when on, and the tombstones that are written."""

from collections.abc import Callable
from typing import Any

import pytest

from fakebroker.coordinator.group.records import GroupRecord, GroupValue, OffsetRecord, Record
from fakebroker.errors import ErrorCode
from tests.support.coordinator.coordinator_harness import START_MS, CoordinatorHarness, protocols

CHECK_MS = 600_000
RETENTION_MS = 2 * CHECK_MS
LONG: dict[str, Any] = {"session_ms": 1_800_000, "rebalance_ms": 2**31 - 1}
TOMBSTONE = OffsetRecord("g", "t", 0, None)
OTHER = OffsetRecord("g", "u", 0, None)
GONE = GroupRecord("g", None)

Start = Callable[[], CoordinatorHarness]


def new_driver() -> CoordinatorHarness:
    return CoordinatorHarness(offsets_retention_ms=RETENTION_MS)


def pass_checks(driver: CoordinatorHarness, number: int) -> None:
    """Lets the coordinator look for what has expired this many times, while members send heartbeats."""
    for _ in range(number):
        driver.advance(CHECK_MS - (driver.now_ms - START_MS) % CHECK_MS)
        for member_id in list(driver.group().members) if driver.state() != "-" else []:
            driver.heartbeat(member_id, driver.group().generation_id)


def simple(**fields: Any) -> Start:
    def start() -> CoordinatorHarness:
        driver = new_driver()
        driver.commit(**fields)
        return driver

    return start


def stable(topic: str, **options: Any) -> Start:
    def start() -> CoordinatorHarness:
        """A stable group, 3 s after the start, that has committed to `topic`; consumers subscribe to "t"."""
        driver = new_driver()
        leader, _ = driver.stable(2, **{**LONG, **options})
        driver.commit(leader, 1, topic=topic)
        return driver

    return start


def rebalancing() -> CoordinatorHarness:
    driver = stable("u")()
    driver.join(next(iter(driver.group().members)), **LONG)
    assert driver.state() == "PreparingRebalance"
    return driver


def completing() -> CoordinatorHarness:
    driver = stable("u")()
    for member_id in list(driver.group().members):
        driver.join(member_id, **LONG)
    assert driver.state() == "CompletingRebalance"
    return driver


def emptied(protocol_type: str) -> Start:
    def start() -> CoordinatorHarness:
        """A group that has become empty after two checks."""
        driver = stable("t", protocol_type=protocol_type)()
        pass_checks(driver, 2)
        driver.leave(*((member_id, None) for member_id in driver.group().members))
        return driver

    return start


def pending() -> CoordinatorHarness:
    driver = new_driver()
    driver.pend(**LONG)
    return driver


START = int(START_MS)
NEVER = 0
ROWS: list[tuple[str, Start, int, tuple[Record, ...]]] = [
    # What, at which check (counted from the start) it expires, and what is written.
    ("simple group", simple(), 2, (TOMBSTONE, GONE)),
    ("commit with a timestamp of its own", simple(commit_timestamp_ms=START - CHECK_MS), 1, (TOMBSTONE, GONE)),
    ("expiry of its own, early", simple(expire_timestamp_ms=START + CHECK_MS), 1, (TOMBSTONE, GONE)),
    ("expiry of its own, just missed", simple(expire_timestamp_ms=START + CHECK_MS + 1), 2, (TOMBSTONE, GONE)),
    ("expiry of its own, late", simple(expire_timestamp_ms=START + 5 * CHECK_MS), 5, (TOMBSTONE, GONE)),
    ("group that never had offsets", pending, 1, (GONE,)),
    ("consumer group, emptied at the second check", emptied("consumer"), 4, (TOMBSTONE, GONE)),
    ("other group, emptied at the second check", emptied("connect"), 4, (TOMBSTONE, GONE)),
    ("consumer group, topic that nobody reads", stable("u"), 3, (OTHER,)),
    ("consumer group, topic that is read", stable("t"), NEVER, ()),
    ("consumer group, unknown topics", stable("u", protocols=protocols("range", metadata=b"?")), NEVER, ()),
    ("other group with members", stable("u", protocol_type="connect"), NEVER, ()),
    ("consumer group that prepares a rebalance", rebalancing, NEVER, ()),
    ("consumer group that completes a rebalance", completing, NEVER, ()),
]


@pytest.mark.parametrize(("start", "at", "records"), [row[1:] for row in ROWS], ids=[row[0] for row in ROWS])
def test_what_expires_and_when(start: Start, at: int, records: tuple[Record, ...]) -> None:
    driver = start()
    state = driver.state()
    passed = round((driver.now_ms - START_MS) // CHECK_MS)
    before = len(driver.batches)
    pass_checks(driver, (at or 8) - passed - 1)
    assert driver.batches[before:] == []
    pass_checks(driver, 1)
    assert [batch for _, batch in driver.batches[before:]] == ([records] if records else [])
    assert driver.state() == ("-" if GONE in records else state)
    assert driver.committed("t") is None or at == NEVER
    pass_checks(driver, 1)
    assert len(driver.batches) == before + bool(records)


def test_one_batch_for_all_groups_of_a_partition() -> None:
    driver = new_driver()
    for group_id in ("a", "group", "g"):  # The first two share a partition.
        driver.commit(group_id=group_id)
    driver.advance(RETENTION_MS)
    tombstones = {i: (OffsetRecord(i, "t", 0, None), GroupRecord(i, None)) for i in ("a", "group", "g")}
    assert [batch for _, batch in driver.batches[3:]] == [tombstones["a"] + tombstones["group"], tombstones["g"]]
    assert driver.coordinator.next_deadline() is None


def test_what_is_younger_stays_and_keeps_the_group() -> None:
    driver = new_driver()
    driver.commit()
    driver.advance(1)
    driver.commit(topic="u")
    driver.advance(RETENTION_MS - 1)
    assert (driver.committed("t"), driver.committed("u")) == (None, 1)
    assert driver.batches[-1][1] == (TOMBSTONE,)
    assert driver.state() == "Empty"


def test_pending_ids_go_with_an_expired_group() -> None:
    driver = new_driver()
    pending_id = driver.pend(**LONG)
    driver.advance(CHECK_MS)
    assert driver.join(pending_id).error is ErrorCode.UNKNOWN_MEMBER_ID


def test_checks_are_counted_from_loading_and_retention_is_not() -> None:
    driver = new_driver()
    driver.leave((driver.stable(1)[0], None))
    driver.commit()
    driver.advance(RETENTION_MS - CHECK_MS / 2)
    driver.hand_over()
    driver.advance(CHECK_MS - 1)
    assert driver.committed() == 1
    driver.advance(1)
    assert driver.state() == "-"


def test_a_partition_that_comes_back_is_not_checked_at_the_times_of_before() -> None:
    driver = new_driver()
    driver.commit(expire_timestamp_ms=START + CHECK_MS)
    (partition,) = [index for index, _ in driver.batches]
    driver.advance(CHECK_MS / 2)
    driver.coordinator.resign(partition, driver.now_ms)
    driver.coordinator.start_loading(partition)
    driver.coordinator.finish_loading(partition, driver.records(partition), driver.now_ms)
    driver.advance(CHECK_MS - 1)
    assert driver.committed() == 1
    driver.advance(1)
    assert driver.state() == "-"


def test_an_empty_group_of_unknown_age_is_as_old_as_its_commits() -> None:
    driver = new_driver()
    driver.commit()
    ((partition, (record,)),) = driver.batches
    group = GroupRecord("g", GroupValue("consumer", 5, None, None, -1, ()))
    driver.batches = [(partition, (group, record))]
    driver.hand_over()
    driver.advance(RETENTION_MS - 1)
    assert driver.committed() == 1
    driver.advance(1)
    assert driver.state() == "-"


def test_a_check_that_cannot_be_stored_changes_nothing_and_is_made_again() -> None:
    driver = new_driver()
    driver.commit()
    driver.append_error = ErrorCode.COORDINATOR_NOT_AVAILABLE
    driver.advance(RETENTION_MS)
    assert (driver.state(), driver.committed()) == ("Empty", 1)
    driver.append_error = ErrorCode.NONE
    driver.advance(CHECK_MS - 1)
    assert driver.state() == "Empty"
    driver.advance(1)
    assert driver.state() == "-"


def test_a_late_check_does_not_shift_those_that_follow() -> None:
    driver = new_driver()
    driver.commit(expire_timestamp_ms=START + 2 * CHECK_MS)
    driver.advance_at_once(1.5 * CHECK_MS)
    assert driver.coordinator.next_deadline() == START_MS + 2 * CHECK_MS


def test_nobody_looks_for_what_another_coordinator_has() -> None:
    driver = new_driver()
    driver.commit()
    for partition in driver.partitions:
        driver.coordinator.resign(partition, driver.now_ms)
    driver.advance(RETENTION_MS)
    assert len(driver.batches) == 1
    assert driver.coordinator.next_deadline() is None
