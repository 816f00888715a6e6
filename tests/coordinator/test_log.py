"""Which records are written, when, and what they hold; and what reading them back makes of them."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from fakebroker.coordinator.group.api import OffsetToCommit
from fakebroker.coordinator.group.classic.group import Group
from fakebroker.coordinator.group.coordinator import Coordinator
from fakebroker.coordinator.group.offsets import CommittedOffset
from fakebroker.coordinator.group.persistence import replay
from fakebroker.coordinator.group.records import GroupRecord, GroupValue, MemberValue, OffsetRecord, Record
from fakebroker.coordinator.runtime.placement import partition_for
from fakebroker.protocol.consumer_protocol import encode_subscription
from tests.support.coordinator.coordinator_harness import (
    DELAY_MS,
    REBALANCE_MS,
    SESSION_MS,
    START_MS,
    CoordinatorHarness,
    protocols,
    result_of,
)

PARTITION = partition_for("g", 50)
NOW_MS = int(START_MS)
TWO = protocols("sticky", "range")


def offset(value: int, timestamp_ms: int = NOW_MS) -> CommittedOffset:
    return CommittedOffset(offset=value, commit_timestamp_ms=timestamp_ms)


def written(driver: CoordinatorHarness, act: Callable[[], object]) -> list[tuple[Record, ...]]:
    """The batches that an action appends, all to the partition of "g"."""
    before = len(driver.batches)
    act()
    batches = driver.batches[before:]
    assert {partition for partition, _ in batches} <= {PARTITION}
    return [records for _, records in batches]


# What is written


@pytest.mark.parametrize(
    "options",
    [{}, {"two_step": True}, {"instance_id": "i"}, {"protocols": ()}],
    ids=["parked", "told its id", "static", "refused"],
)
def test_a_join_that_creates_a_group_writes_an_empty_one(options: dict[str, Any]) -> None:
    driver = CoordinatorHarness()
    empty = GroupRecord("g", GroupValue("", 0, None, None, NOW_MS, ()))
    assert written(driver, lambda: driver.join(**options)) == [(empty,)]
    assert written(driver, lambda: driver.join(**options)) == []


def test_a_first_member_without_a_delay_writes_an_empty_group_too() -> None:
    driver = CoordinatorHarness(group_initial_rebalance_delay_ms=0)
    empty = GroupRecord("g", GroupValue("", 0, None, None, NOW_MS, ()))
    assert written(driver, driver.join) == [(empty,)]
    assert driver.state() == "CompletingRebalance"


def test_the_leaders_sync_writes_the_whole_group() -> None:
    driver = CoordinatorHarness()
    leader, static = driver.complete(1, static=("i",), protocols=TWO)
    joined_ms = int(driver.now_ms)
    driver.advance(100)
    assert written(driver, lambda: driver.sync(static, 1)) == []

    def member(member_id: str, instance_id: str | None, assignment: bytes) -> MemberValue:
        times = (REBALANCE_MS, SESSION_MS)
        return MemberValue(
            member_id, instance_id, "client", "/127.0.0.1", *times, encode_subscription(["t"]), assignment
        )

    members = member(leader, None, b"a"), member(static, "i", b"")
    value = GroupValue("consumer", 1, "sticky", leader, joined_ms, members)
    sync = partial(driver.sync, leader, 1, [(leader, b"a"), ("unknown", b"?")])
    assert written(driver, sync) == [(GroupRecord("g", value),)]
    assert written(driver, sync) == []


def emptied(generation_id: int, timestamp_ms: float) -> list[tuple[Record, ...]]:
    return [(GroupRecord("g", GroupValue("consumer", generation_id, None, None, int(timestamp_ms), ())),)]


def test_the_last_member_that_leaves_writes_an_empty_generation() -> None:
    driver = CoordinatorHarness()
    first, last = driver.stable()
    assert written(driver, lambda: driver.leave((first, None))) == []
    assert written(driver, lambda: driver.leave((last, None))) == emptied(2, driver.now_ms)


def test_the_last_session_that_ends_writes_an_empty_generation() -> None:
    driver = CoordinatorHarness()
    driver.stable(1)
    batches = written(driver, lambda: driver.advance(SESSION_MS))
    assert batches == emptied(2, driver.now_ms)


def test_a_join_phase_without_members_writes_an_empty_generation() -> None:
    driver = CoordinatorHarness()
    call = driver.join(session_ms=SESSION_MS)
    member_id = next(iter(driver.group().members))
    driver.leave((member_id, None))
    assert not call.is_parked
    assert written(driver, lambda: driver.advance(DELAY_MS)) == emptied(1, driver.now_ms)


def test_a_static_member_replaced_without_a_round_writes_the_group() -> None:
    driver = CoordinatorHarness()
    leader, old_id = driver.stable(1, static=("i",))
    ((record,),) = written(driver, lambda: driver.join(instance_id="i", protocols=protocols("range", metadata=b"?")))
    assert isinstance(record, GroupRecord)
    assert record.value is not None
    assert (record.value.generation_id, record.value.leader) == (1, leader)
    _, member = record.value.members
    assert (member.member_id, member.instance_id, member.subscription) == ("i-uuid3", "i", b"?")
    assert member.assignment == old_id.encode()


def test_a_commit_writes_one_batch_of_what_is_accepted() -> None:
    driver = CoordinatorHarness()
    offsets = [
        OffsetToCommit(topic="t", partition=0, offset=1),
        OffsetToCommit(topic="t", partition=1, offset=2, metadata="m" * 4097),
        OffsetToCommit(topic="u", partition=0, offset=3, leader_epoch=4, metadata="m", expire_timestamp_ms=9),
    ]
    full = CommittedOffset(offset=3, leader_epoch=4, metadata="m", commit_timestamp_ms=NOW_MS, expire_timestamp_ms=9)
    assert written(
        driver, lambda: result_of(driver.coordinator.commit_offsets, "g", -1, "", None, offsets, START_MS)
    ) == [(OffsetRecord("g", "t", 0, offset(1)), OffsetRecord("g", "u", 0, full))]
    assert written(driver, lambda: driver.commit(metadata="m" * 4097)) == []


def test_deleted_offsets_write_tombstones_where_there_were_any() -> None:
    driver = CoordinatorHarness()
    for topic in "tu":
        driver.commit(topic=topic)
    partitions = [("u", 0), ("u", 1), ("t", 0)]
    tombstones = OffsetRecord("g", "u", 0, None), OffsetRecord("g", "t", 0, None)
    assert written(driver, lambda: result_of(driver.coordinator.delete_offsets, "g", partitions)) == [tombstones]
    assert written(driver, lambda: result_of(driver.coordinator.delete_offsets, "g", partitions)) == []


def test_a_deleted_topic_writes_one_batch_for_each_partition_of_the_log() -> None:
    driver = CoordinatorHarness()
    for group_id, topic, partition in [("g", "t", 0), ("g", "t", 3), ("g", "u", 0), ("a", "t", 1), ("group", "t", 2)]:
        driver.commit(group_id=group_id, topic=topic, partition=partition)
    driver.commit(group_id="h", topic="u")
    driver.batches.clear()
    driver.coordinator.delete_topic_offsets("t")
    assert driver.batches == [
        (PARTITION, (OffsetRecord("g", "t", 0, None), OffsetRecord("g", "t", 3, None))),
        (47, (OffsetRecord("a", "t", 1, None), OffsetRecord("group", "t", 2, None))),
    ]


def test_a_deleted_group_writes_tombstones_for_its_offsets_and_then_its_own() -> None:
    driver = CoordinatorHarness()
    for partition in range(2):
        driver.commit(partition=partition)
    tombstones = OffsetRecord("g", "t", 0, None), OffsetRecord("g", "t", 1, None), GroupRecord("g", None)
    assert written(driver, lambda: result_of(driver.coordinator.delete_group, "g", START_MS)) == [tombstones]


def test_a_round_that_is_not_synced_writes_nothing() -> None:
    driver = CoordinatorHarness()
    leader, follower = driver.stable()

    def act() -> None:
        driver.heartbeat(leader, 1)
        driver.pend()
        driver.join(follower, protocols=TWO)
        driver.join(leader)
        driver.join(instance_id="i")
        driver.advance(SESSION_MS)
        driver.sync(follower, 2)

    assert written(driver, act) == []
    assert driver.state() == "CompletingRebalance"


# Reading


def group_value(generation_id: int) -> GroupValue:
    return GroupValue("consumer", generation_id, None, None, NOW_MS, ())


COMMITTED, DELETED = OffsetRecord("g", "t", 0, offset(1)), OffsetRecord("g", "t", 0, None)
SIMPLE = GroupValue("", 0, None, None, -1, ())
REPLAYED: list[tuple[str, list[Record], list[tuple[str, GroupValue, list[int]]]]] = [
    ("nothing", [], []),
    ("a group", [GroupRecord("g", group_value(1))], [("g", group_value(1), [])]),
    (
        "the last value wins",
        [GroupRecord("g", group_value(2)), GroupRecord("g", group_value(1))],
        [("g", group_value(1), [])],
    ),
    ("offsets alone are a simple group", [COMMITTED], [("g", SIMPLE, [1])]),
    ("the last offset wins", [OffsetRecord("g", "t", 0, offset(5)), COMMITTED], [("g", SIMPLE, [1])]),
    ("a simple group outlives its offsets", [COMMITTED, DELETED], [("g", SIMPLE, [])]),
    ("a tombstone alone makes no group", [DELETED], []),
    ("offsets before the group", [COMMITTED, GroupRecord("g", group_value(3))], [("g", group_value(3), [1])]),
    ("offsets after the group", [GroupRecord("g", group_value(3)), COMMITTED], [("g", group_value(3), [1])]),
    ("a deleted group", [COMMITTED, GroupRecord("g", group_value(3)), DELETED, GroupRecord("g", None)], []),
    ("a group that was deleted in part", [COMMITTED, GroupRecord("g", None)], []),
    ("a tombstone of nothing", [GroupRecord("g", None)], []),
    (
        "a group that came again",
        [GroupRecord("g", group_value(9)), GroupRecord("g", None), COMMITTED],
        [("g", SIMPLE, [1])],
    ),
    (
        "two groups",
        [OffsetRecord("h", "t", 0, offset(7)), COMMITTED, OffsetRecord("h", "t", 0, offset(8))],
        [("h", SIMPLE, [8]), ("g", SIMPLE, [1])],
    ),
]


@pytest.mark.parametrize(("records", "expected"), [row[1:] for row in REPLAYED], ids=[row[0] for row in REPLAYED])
def test_replay(records: list[Record], expected: list[tuple[str, GroupValue, list[int]]]) -> None:
    replayed = replay(records)
    assert [
        (group_id, value, [committed.offset for _, _, committed in offsets])
        for group_id, (value, offsets) in replayed.items()
    ] == expected


def loaded(driver: CoordinatorHarness) -> Group:
    driver.hand_over()
    return driver.group()


def test_subscriptions_are_known_after_loading() -> None:
    driver = CoordinatorHarness()
    driver.stable(1, protocols=protocols("range", metadata=encode_subscription(["u", "v"])))
    assert loaded(driver).subscribed_topics == frozenset("uv")


def test_subscriptions_that_cannot_be_read_are_still_unknown_after_loading() -> None:
    driver = CoordinatorHarness()
    driver.stable(1, protocols=protocols("range", metadata=b"?"))
    assert loaded(driver).subscribed_topics is None


@pytest.mark.parametrize("is_simple", [True, False])
def test_an_empty_group_keeps_the_time_since_when_it_is_empty(is_simple: bool) -> None:
    driver = CoordinatorHarness()
    if is_simple:
        driver.commit()
    else:
        driver.leave((driver.stable(1)[0], None))
    since_ms = driver.now_ms
    driver.advance(100)
    assert loaded(driver).state_since_ms == (-1 if is_simple else since_ms)


def test_records_that_cannot_be_read_leave_the_partition_as_it_was() -> None:
    driver = CoordinatorHarness()
    coordinator: Coordinator = driver.new_coordinator()
    coordinator.start_loading(PARTITION)
    with pytest.raises(AttributeError):
        coordinator.finish_loading(PARTITION, [COMMITTED, None], driver.now_ms)  # type: ignore[list-item] # on purpose
    assert list(coordinator.groups()) == []
    coordinator.finish_loading(PARTITION, [COMMITTED], driver.now_ms)
    assert [group.group_id for group in coordinator.groups()] == ["g"]
