"""Offsets of open transactions at a group coordinator: their order, appends that are pending or fail, deletions."""

from collections.abc import Callable

from fakebroker.coordinator.pending_offsets import PendingOffsets
from fakebroker.coordinator.records import TransactionEnd
from fakebroker.errors import ErrorCode
from tests.support.coordinator.coordinator_harness import CoordinatorHarness
from tests.support.coordinator.records import group_record, offset_record, offset_value, pending_record

NONE = ErrorCode.NONE


def unstable(harness: CoordinatorHarness) -> list[tuple[str, int]]:
    return list(harness.coordinator.offsets.unstable_partitions("g"))


def test_the_pending_offsets_of_several_producers() -> None:
    harness = CoordinatorHarness()
    harness.commit_in_transaction(1, offset=10)
    harness.commit_in_transaction(2, offset=20)
    harness.commit_in_transaction(1, offset=11)  # replaces its first one, and is now the last one in the log
    found = [(each.producer_id, each.committed.offset) for each in harness.coordinator.offsets.pending_of("g")]
    assert found == [(2, 20), (1, 11)]
    harness.end_transaction(1)
    assert (harness.committed(), unstable(harness)) == (11, [("t", 0)])
    harness.end_transaction(2)
    assert (harness.committed(), unstable(harness)) == (11, [])
    assert not harness.coordinator.offsets.has_pending


def test_the_order_in_the_log_decides_and_not_the_order_of_the_commits() -> None:
    for kinds, expected in (("pq", 20), ("qp", 10), ("p-q", 20), ("pq-", 30), ("-pq", 20)):
        harness = CoordinatorHarness()
        for kind in kinds:
            if kind == "-":
                harness.commit(offset=30)
            else:
                harness.commit_in_transaction({"p": 1, "q": 2}[kind], offset={"p": 10, "q": 20}[kind])
        for producer_id in (2, 1):
            harness.end_transaction(producer_id)
        assert harness.committed() == expected, kinds
        harness.fail_over()
        assert harness.committed() == expected, kinds


def test_the_log_of_a_transaction() -> None:
    harness = CoordinatorHarness()
    harness.commit_in_transaction(7, offset=10)
    harness.end_transaction(7)
    stored = offset_value(10, int(harness.now_ms))
    assert [batch for _, batch in harness.batches] == [
        (pending_record("g", "t", 0, stored, 7),),
        (TransactionEnd(7, 0, True, 0),),
    ]


def test_failed_appends_change_nothing() -> None:
    harness = CoordinatorHarness()
    harness.append_error = ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert harness.commit_in_transaction(offset=5) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert (harness.coordinator.groups.classic.get("g"), unstable(harness)) == (None, [])
    harness.append_error = NONE
    harness.commit_in_transaction(offset=5)
    harness.append_error = ErrorCode.NOT_ENOUGH_REPLICAS
    assert harness.end_transaction() is ErrorCode.NOT_ENOUGH_REPLICAS
    assert (harness.committed(), unstable(harness)) == (None, [("t", 0)])


def test_a_coordinator_that_resigns_drops_its_pending_offsets() -> None:
    harness = CoordinatorHarness()
    harness.commit_in_transaction(offset=5)
    former = harness.coordinator
    harness.fail_over()
    assert not former.offsets.has_pending
    assert unstable(harness) == [("t", 0)]
    harness.end_transaction()
    assert harness.committed() == 5


def test_tombstones_of_offsets_that_are_only_pending() -> None:
    ways: tuple[tuple[Callable[[CoordinatorHarness], object], int], ...] = (
        (lambda harness: harness.delete_offsets(("t", 0)), 1),
        (lambda harness: harness.delete_group(), 2),
        (lambda harness: harness.coordinator.offsets.delete_topic("t"), 1),
    )
    for delete, count in ways:
        harness = CoordinatorHarness()
        harness.commit_in_transaction(offset=5)
        delete(harness)
        assert harness.batches[-1][1][0] == offset_record("g", "t", 0, None)
        assert len(harness.batches[-1][1]) == count
        assert not harness.coordinator.offsets.has_pending


def test_one_tombstone_for_a_stored_and_several_pending_offsets() -> None:
    harness = CoordinatorHarness()
    harness.commit(offset=3)
    for producer_id in (1, 2):
        harness.commit_in_transaction(producer_id, offset=5)
    harness.commit_in_transaction(1, offset=5, partition=1)
    harness.delete_group()
    tombstones = [offset_record("g", "t", 0, None), offset_record("g", "t", 1, None), group_record("g", None)]
    assert list(harness.batches[-1][1]) == tombstones
    assert not harness.coordinator.offsets.has_pending


def test_the_state_is_empty_when_nothing_is_pending() -> None:
    """Whatever order producers, groups and partitions are dropped in."""
    pending = PendingOffsets()
    value = offset_value(1)
    for group_id, index, producer_id in (("g", 0, 1), ("g", 0, 2), ("g", 1, 1), ("h", 0, 1), ("i", 0, 2)):
        pending.add(pending_record(group_id, "t", index, value, producer_id))
    assert pending.end(3, is_commit=True) == []
    pending.apply(offset_record("g", "t", 0, None))
    pending.apply(offset_record("g", "unknown", 0, None))
    pending.drop_group("h")
    pending.drop_group("unknown")
    assert [(each.key.group, each.key.partition) for each in pending.end(1, is_commit=True)] == [("g", 1)]
    assert pending
    assert pending.end(2, is_commit=False) == []
    assert not pending
