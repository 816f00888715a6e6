"""The records of groups and offsets: when they are stored, their contents, and the groups restored from them."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from fakebroker.coordinator.classic.group import Group
from fakebroker.coordinator.group_coordinator import Coordinator
from fakebroker.coordinator.partitions import partition_for
from fakebroker.coordinator.persistence import replay
from fakebroker.coordinator.records import Record, TransactionEnd
from fakebroker.protocol.consumer_protocol import encode_subscription
from fakebroker.protocol.messages.consumer_offsets import (
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
    OffsetCommitValue,
)
from fakebroker.protocol.releases import NEWEST
from tests.support.coordinator.commits import commit
from tests.support.coordinator.coordinator_harness import (
    DELAY_MS,
    REBALANCE_MS,
    SESSION_MS,
    START_MS,
    CoordinatorHarness,
    protocols,
)
from tests.support.coordinator.records import group_record, group_value, offset_record, offset_value
from tests.support.subtests import subtest_for_each

PARTITION = partition_for("g", 50)
NOW_MS = int(START_MS)
TWO = protocols("sticky", "range")


def offset(value: int) -> OffsetCommitValue:
    return offset_value(value, NOW_MS)


def written(harness: CoordinatorHarness, act: Callable[[], object]) -> list[tuple[Record, ...]]:
    """Return the batches that an action appends; all must be in the partition of "g"."""
    before = len(harness.batches)
    act()
    batches = harness.batches[before:]
    assert {partition for partition, _ in batches} <= {PARTITION}
    return [records for _, records in batches]


# Stored records


@subtest_for_each(
    "options",
    [{}, {"two_step": True}, {"instance_id": "i"}, {"protocols": ()}],
    ids=["parked", "member id required", "static", "rejected"],
)
def test_join_that_creates_a_group_stores_an_empty_group(options: dict[str, Any]) -> None:
    harness = CoordinatorHarness()
    empty = group_record("g", group_value("", 0, NOW_MS))
    assert written(harness, lambda: harness.join(**options)) == [(empty,)]
    assert written(harness, lambda: harness.join(**options)) == []


def test_join_without_delay_stores_an_empty_group() -> None:
    harness = CoordinatorHarness(group_initial_rebalance_delay_ms=0)
    empty = group_record("g", group_value("", 0, NOW_MS))
    assert written(harness, harness.join) == [(empty,)]
    assert harness.state() == "CompletingRebalance"


def test_sync_of_the_leader_stores_the_group() -> None:
    harness = CoordinatorHarness()
    leader, static = harness.create_completing_group(1, static=("i",), protocols=TWO)
    joined_ms = int(harness.now_ms)
    harness.advance(100)
    assert written(harness, lambda: harness.sync(static, 1)) == []

    def member(member_id: str, instance_id: str | None, assignment: bytes) -> MemberMetadata:
        return MemberMetadata(
            member_id=member_id,
            group_instance_id=instance_id,
            client_id="client",
            client_host="/127.0.0.1",
            rebalance_timeout=REBALANCE_MS,
            session_timeout=SESSION_MS,
            subscription=encode_subscription(["t"]),
            assignment=assignment,
        )

    members = member(leader, None, b"a"), member(static, "i", b"")
    value = group_value("consumer", 1, joined_ms, *members, protocol="sticky", leader=leader)
    sync = partial(harness.sync, leader, 1, [(leader, b"a"), ("unknown", b"?")])
    assert written(harness, sync) == [(group_record("g", value),)]
    assert written(harness, sync) == []


def emptied(generation_id: int, timestamp_ms: float) -> list[tuple[Record, ...]]:
    return [(group_record("g", group_value("consumer", generation_id, int(timestamp_ms))),)]


def test_leave_group_of_the_last_member_stores_an_empty_generation() -> None:
    harness = CoordinatorHarness()
    first, last = harness.create_stable_group()
    assert written(harness, lambda: harness.leave((first, None))) == []
    assert written(harness, lambda: harness.leave((last, None))) == emptied(2, harness.now_ms)


def test_expiry_of_the_last_session_stores_an_empty_generation() -> None:
    harness = CoordinatorHarness()
    harness.create_stable_group(1)
    batches = written(harness, lambda: harness.advance(SESSION_MS))
    assert batches == emptied(2, harness.now_ms)


def test_join_phase_without_members_stores_an_empty_generation() -> None:
    harness = CoordinatorHarness()
    call = harness.join(session_ms=SESSION_MS)
    member_id = next(iter(harness.group().members))
    harness.leave((member_id, None))
    assert not call.is_parked
    assert written(harness, lambda: harness.advance(DELAY_MS)) == emptied(1, harness.now_ms)


def test_static_replacement_without_rebalance_stores_the_group() -> None:
    harness = CoordinatorHarness()
    leader, old_id = harness.create_stable_group(1, static=("i",))
    ((record,),) = written(harness, lambda: harness.join(instance_id="i", protocols=protocols("range", metadata=b"?")))
    assert not isinstance(record, TransactionEnd)
    assert isinstance(record.key, GroupMetadataKey)
    assert record.value is not None
    assert (record.value.generation, record.value.leader) == (1, leader)
    _, member = record.value.members
    assert (member.member_id, member.group_instance_id, member.subscription) == ("i-uuid3", "i", b"?")
    assert member.assignment == old_id.encode()


def test_commit_stores_accepted_offsets_in_one_batch() -> None:
    harness = CoordinatorHarness()
    offsets = [("t", 0, 1, "a"), ("t", 1, 2, "m" * 4097), ("u", 0, 3, "b")]
    first, second = (
        OffsetCommitValue(
            offset=offset, leader_epoch=4, metadata=metadata, commit_timestamp=NOW_MS, expire_timestamp=NOW_MS + 9
        )
        for offset, metadata in ((1, "a"), (3, "b"))
    )
    assert written(
        harness,
        lambda: commit(harness.coordinator, offsets, START_MS, retention_ms=9, committed_leader_epoch=4),
    ) == [(offset_record("g", "t", 0, first), offset_record("g", "u", 0, second))]
    assert written(harness, lambda: harness.commit(metadata="m" * 4097)) == []


def test_offset_delete_stores_tombstones_for_existing_offsets() -> None:
    harness = CoordinatorHarness()
    for topic in "tu":
        harness.commit(topic=topic)
    partitions = [("u", 0), ("u", 1), ("t", 0)]
    tombstones = offset_record("g", "u", 0, None), offset_record("g", "t", 0, None)
    assert written(harness, lambda: harness.coordinator.offsets.delete("g", partitions)) == [tombstones]
    assert written(harness, lambda: harness.coordinator.offsets.delete("g", partitions)) == []


def test_deleted_topic_stores_one_batch_for_each_offsets_partition() -> None:
    harness = CoordinatorHarness()
    for group_id, topic, partition in [("g", "t", 0), ("g", "t", 3), ("g", "u", 0), ("a", "t", 1), ("group", "t", 2)]:
        harness.commit(group_id=group_id, topic=topic, partition=partition)
    harness.commit(group_id="h", topic="u")
    harness.batches.clear()
    harness.coordinator.offsets.delete_topic("t")
    assert harness.batches == [
        (PARTITION, (offset_record("g", "t", 0, None), offset_record("g", "t", 3, None))),
        (47, (offset_record("a", "t", 1, None), offset_record("group", "t", 2, None))),
    ]


def test_deleted_group_stores_tombstones_for_its_offsets_and_then_the_group() -> None:
    harness = CoordinatorHarness()
    for partition in range(2):
        harness.commit(partition=partition)
    tombstones = offset_record("g", "t", 0, None), offset_record("g", "t", 1, None), group_record("g", None)
    assert written(harness, lambda: harness.delete_group()) == [tombstones]


def test_rebalance_without_the_leaders_sync_stores_nothing() -> None:
    harness = CoordinatorHarness()
    leader, follower = harness.create_stable_group()

    def act() -> None:
        harness.heartbeat(leader, 1)
        harness.request_member_id()
        harness.join(follower, protocols=TWO)
        harness.join(leader)
        harness.join(instance_id="i")
        harness.advance(SESSION_MS)
        harness.sync(follower, 2)

    assert written(harness, act) == []
    assert harness.state() == "CompletingRebalance"


# Restored groups


def consumers(generation: int) -> GroupMetadataValue:
    return group_value("consumer", generation, NOW_MS)


COMMITTED, DELETED = offset_record("g", "t", 0, offset(1)), offset_record("g", "t", 0, None)
SIMPLE = group_value("", 0, -1)
REPLAYED: list[tuple[str, list[Record], list[tuple[str, GroupMetadataValue, list[int]]]]] = [
    ("no records", [], []),
    ("a group", [group_record("g", consumers(1))], [("g", consumers(1), [])]),
    (
        "the last value is valid",
        [group_record("g", consumers(2)), group_record("g", consumers(1))],
        [("g", consumers(1), [])],
    ),
    ("offsets without a group record are a simple group", [COMMITTED], [("g", SIMPLE, [1])]),
    ("the last offset is valid", [offset_record("g", "t", 0, offset(5)), COMMITTED], [("g", SIMPLE, [1])]),
    ("a simple group remains without its offsets", [COMMITTED, DELETED], [("g", SIMPLE, [])]),
    ("a tombstone of an offset creates no group", [DELETED], []),
    ("offsets before the group", [COMMITTED, group_record("g", consumers(3))], [("g", consumers(3), [1])]),
    ("offsets after the group", [group_record("g", consumers(3)), COMMITTED], [("g", consumers(3), [1])]),
    ("a deleted group", [COMMITTED, group_record("g", consumers(3)), DELETED, group_record("g", None)], []),
    ("a deleted group with an offset that was not deleted", [COMMITTED, group_record("g", None)], []),
    ("a tombstone of a missing group", [group_record("g", None)], []),
    (
        "a deleted group with new offsets",
        [group_record("g", consumers(9)), group_record("g", None), COMMITTED],
        [("g", SIMPLE, [1])],
    ),
    (
        "two groups",
        [offset_record("h", "t", 0, offset(7)), COMMITTED, offset_record("h", "t", 0, offset(8))],
        [("h", SIMPLE, [8]), ("g", SIMPLE, [1])],
    ),
]


@subtest_for_each(("records", "expected"), [row[1:] for row in REPLAYED], ids=[row[0] for row in REPLAYED])
def test_replay_of_records(records: list[Record], expected: list[tuple[str, GroupMetadataValue, list[int]]]) -> None:
    replayed = replay(records, 0, NEWEST)
    assert [
        (group_id, value, [committed.offset for _, _, committed in offsets])
        for group_id, (value, offsets) in replayed.groups.items()
    ] == expected


def loaded(harness: CoordinatorHarness) -> Group:
    harness.fail_over()
    return harness.group()


def test_subscribed_topics_are_restored() -> None:
    harness = CoordinatorHarness()
    harness.create_stable_group(1, protocols=protocols("range", metadata=encode_subscription(["u", "v"])))
    assert loaded(harness).subscribed_topics == frozenset("uv")


def test_unknown_subscribed_topics_are_restored_as_unknown() -> None:
    harness = CoordinatorHarness()
    harness.create_stable_group(1, protocols=protocols("range", metadata=b"?"))
    assert loaded(harness).subscribed_topics is None


@subtest_for_each("is_simple", [True, False])
def test_time_of_the_last_transition_is_restored(is_simple: bool) -> None:
    harness = CoordinatorHarness()
    if is_simple:
        harness.commit()
    else:
        harness.leave((harness.create_stable_group(1)[0], None))
    since_ms = harness.now_ms
    harness.advance(100)
    assert loaded(harness).state_since_ms == (-1 if is_simple else since_ms)


def test_partition_is_still_loading_after_an_invalid_record() -> None:
    harness = CoordinatorHarness()
    coordinator: Coordinator = harness.new_coordinator()
    coordinator.start_loading(PARTITION)
    with pytest.raises(AttributeError):
        coordinator.finish_loading(PARTITION, [COMMITTED, None], harness.now_ms)  # type: ignore[list-item] # on purpose
    assert list(coordinator.groups.classic.values()) == []
    coordinator.finish_loading(PARTITION, [COMMITTED], harness.now_ms)
    assert [group.group_id for group in coordinator.groups.classic.values()] == ["g"]
