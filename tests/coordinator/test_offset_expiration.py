"""The expiration of offsets and groups: the retention, the periodic checks, and the tombstones."""

from collections.abc import Callable
from typing import Any

from fakebroker.coordinator.records import Record
from fakebroker.errors import ErrorCode
from tests.support.coordinator.coordinator_harness import START_MS, CoordinatorHarness, protocols
from tests.support.coordinator.records import group_record, group_value, offset_record
from tests.support.subtests import subtest_for_each

CHECK_MS = 600_000
RETENTION_MS = 2 * CHECK_MS
LONG_TIMEOUTS: dict[str, Any] = {"session_ms": 1_800_000, "rebalance_ms": 2**31 - 1}
OFFSET_TOMBSTONE = offset_record("g", "t", 0, None)
OTHER_OFFSET_TOMBSTONE = offset_record("g", "u", 0, None)
GROUP_TOMBSTONE = group_record("g", None)

Start = Callable[[], CoordinatorHarness]


def new_harness() -> CoordinatorHarness:
    return CoordinatorHarness(offsets_retention_ms=RETENTION_MS)


def pass_checks(harness: CoordinatorHarness, number: int) -> None:
    """Advance the clock by this many checks for expired offsets, while members send heartbeats."""
    for _ in range(number):
        harness.advance(CHECK_MS - (harness.now_ms - START_MS) % CHECK_MS)
        for member_id in list(harness.group().members) if harness.state() != "-" else []:
            harness.heartbeat(member_id, harness.group().generation_id)


def simple(**fields: Any) -> Start:
    def start() -> CoordinatorHarness:
        harness = new_harness()
        harness.commit(**fields)
        return harness

    return start


def stable(topic: str, **options: Any) -> Start:
    def start() -> CoordinatorHarness:
        """Create a Stable group, 3 s after the start, that has committed to `topic` and is subscribed to "t"."""
        harness = new_harness()
        leader, _ = harness.create_stable_group(2, **{**LONG_TIMEOUTS, **options})
        harness.commit(leader, 1, topic=topic)
        return harness

    return start


def rebalancing() -> CoordinatorHarness:
    harness = stable("u")()
    harness.join(next(iter(harness.group().members)), **LONG_TIMEOUTS)
    assert harness.state() == "PreparingRebalance"
    return harness


def completing() -> CoordinatorHarness:
    harness = stable("u")()
    for member_id in list(harness.group().members):
        harness.join(member_id, **LONG_TIMEOUTS)
    assert harness.state() == "CompletingRebalance"
    return harness


def emptied(protocol_type: str) -> Start:
    def start() -> CoordinatorHarness:
        """Create a group that has become Empty after two checks."""
        harness = stable("t", protocol_type=protocol_type)()
        pass_checks(harness, 2)
        harness.leave(*((member_id, None) for member_id in harness.group().members))
        return harness

    return start


def pending() -> CoordinatorHarness:
    harness = new_harness()
    harness.request_member_id(**LONG_TIMEOUTS)
    return harness


START = int(START_MS)
NEVER = 0
ROWS: list[tuple[str, Start, int, tuple[Record, ...]]] = [
    # Description, setup, the check at which the offset expires (1 is the first after the start), the records.
    ("simple group", simple(), 2, (OFFSET_TOMBSTONE, GROUP_TOMBSTONE)),
    ("commit with a timestamp", simple(commit_timestamp=START - CHECK_MS), 1, (OFFSET_TOMBSTONE, GROUP_TOMBSTONE)),
    (
        "commit with an early expiry",
        simple(retention_ms=CHECK_MS),
        1,
        (OFFSET_TOMBSTONE, GROUP_TOMBSTONE),
    ),
    (
        "commit with an expiry just after a check",
        simple(retention_ms=CHECK_MS + 1),
        2,
        (OFFSET_TOMBSTONE, GROUP_TOMBSTONE),
    ),
    (
        "commit with a late expiry",
        simple(retention_ms=5 * CHECK_MS),
        5,
        (OFFSET_TOMBSTONE, GROUP_TOMBSTONE),
    ),
    ("group that never had offsets", pending, 1, (GROUP_TOMBSTONE,)),
    ("consumer group, emptied at the second check", emptied("consumer"), 4, (OFFSET_TOMBSTONE, GROUP_TOMBSTONE)),
    ("other group, emptied at the second check", emptied("connect"), 4, (OFFSET_TOMBSTONE, GROUP_TOMBSTONE)),
    ("consumer group, topic that is not subscribed", stable("u"), 3, (OTHER_OFFSET_TOMBSTONE,)),
    ("consumer group, subscribed topic", stable("t"), NEVER, ()),
    ("consumer group, unknown topics", stable("u", protocols=protocols("range", metadata=b"?")), NEVER, ()),
    ("other group with members", stable("u", protocol_type="connect"), NEVER, ()),
    ("consumer group that prepares a rebalance", rebalancing, NEVER, ()),
    ("consumer group that completes a rebalance", completing, NEVER, ()),
]


@subtest_for_each(("start", "at", "records"), [row[1:] for row in ROWS], ids=[row[0] for row in ROWS])
def test_offsets_and_groups_expire_at_a_check(start: Start, at: int, records: tuple[Record, ...]) -> None:
    harness = start()
    state = harness.state()
    passed = round((harness.now_ms - START_MS) // CHECK_MS)
    before = len(harness.batches)
    pass_checks(harness, (at or 8) - passed - 1)
    assert harness.batches[before:] == []
    pass_checks(harness, 1)
    assert [batch for _, batch in harness.batches[before:]] == ([records] if records else [])
    assert harness.state() == ("-" if GROUP_TOMBSTONE in records else state)
    assert harness.committed("t") is None or at == NEVER
    pass_checks(harness, 1)
    assert len(harness.batches) == before + bool(records)


def test_tombstones_of_all_groups_of_a_partition_are_one_batch() -> None:
    harness = new_harness()
    for group_id in ("a", "group", "g"):  # The first two share a partition.
        harness.commit(group_id=group_id)
    harness.advance(RETENTION_MS)
    tombstones = {i: (offset_record(i, "t", 0, None), group_record(i, None)) for i in ("a", "group", "g")}
    assert [batch for _, batch in harness.batches[3:]] == [tombstones["a"] + tombstones["group"], tombstones["g"]]
    assert harness.coordinator.queue.next_deadline() is None


def test_offset_that_has_not_expired_keeps_the_group() -> None:
    harness = new_harness()
    harness.commit()
    harness.advance(1)
    harness.commit(topic="u")
    harness.advance(RETENTION_MS - 1)
    assert (harness.committed("t"), harness.committed("u")) == (None, 1)
    assert harness.batches[-1][1] == (OFFSET_TOMBSTONE,)
    assert harness.state() == "Empty"


def test_pending_ids_are_lost_with_an_expired_group() -> None:
    harness = new_harness()
    pending_id = harness.request_member_id(**LONG_TIMEOUTS)
    harness.advance(CHECK_MS)
    assert harness.join(pending_id).error is ErrorCode.UNKNOWN_MEMBER_ID


def test_intervals_of_checks_start_at_loading_but_retention_does_not() -> None:
    harness = new_harness()
    harness.leave((harness.create_stable_group(1)[0], None))
    harness.commit()
    harness.advance(RETENTION_MS - CHECK_MS / 2)
    harness.fail_over()
    harness.advance(CHECK_MS - 1)
    assert harness.committed() == 1
    harness.advance(1)
    assert harness.state() == "-"


def test_intervals_of_checks_start_over_when_a_partition_is_led_again() -> None:
    harness = new_harness()
    harness.commit(retention_ms=CHECK_MS)
    (partition,) = [index for index, _ in harness.batches]
    harness.advance(CHECK_MS / 2)
    harness.coordinator.resign(partition, harness.now_ms)
    harness.coordinator.start_loading(partition)
    harness.coordinator.finish_loading(partition, harness.records(partition), harness.now_ms)
    harness.advance(CHECK_MS - 1)
    assert harness.committed() == 1
    harness.advance(1)
    assert harness.state() == "-"


def test_retention_counts_from_the_commit_if_the_time_of_the_transition_is_unknown() -> None:
    harness = new_harness()
    harness.commit()
    ((partition, (record,)),) = harness.batches
    group = group_record("g", group_value("consumer", 5, -1))
    harness.batches = [(partition, (group, record))]
    harness.fail_over()
    harness.advance(RETENTION_MS - 1)
    assert harness.committed() == 1
    harness.advance(1)
    assert harness.state() == "-"


def test_check_whose_append_fails_is_repeated_after_an_interval() -> None:
    harness = new_harness()
    harness.commit()
    harness.append_error = ErrorCode.COORDINATOR_NOT_AVAILABLE
    harness.advance(RETENTION_MS)
    assert (harness.state(), harness.committed()) == ("Empty", 1)
    harness.append_error = ErrorCode.NONE
    harness.advance(CHECK_MS - 1)
    assert harness.state() == "Empty"
    harness.advance(1)
    assert harness.state() == "-"


def test_late_check_does_not_shift_later_ones() -> None:
    harness = new_harness()
    harness.commit(retention_ms=2 * CHECK_MS)
    harness.advance_in_one_tick(1.5 * CHECK_MS)
    assert harness.coordinator.queue.next_deadline() == START_MS + 2 * CHECK_MS


def test_resigned_partition_is_not_checked() -> None:
    harness = new_harness()
    harness.commit()
    for partition in harness.partitions:
        harness.coordinator.resign(partition, harness.now_ms)
    harness.advance(RETENTION_MS)
    assert len(harness.batches) == 1
    assert harness.coordinator.queue.next_deadline() is None


@subtest_for_each("is_before", [True, False])
def test_offsets_of_members_expire_before_kip_211(is_before: bool) -> None:
    harness = CoordinatorHarness(offsets_retention_ms=RETENTION_MS, is_before_kip_211=is_before)
    member_id, _ = harness.create_stable_group(2, **LONG_TIMEOUTS)
    harness.commit(member_id, 1)
    pass_checks(harness, 1 + RETENTION_MS // CHECK_MS)
    assert harness.committed() == (None if is_before else 1)
    assert harness.state() == "Stable"
