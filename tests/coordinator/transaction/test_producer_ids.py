"""InitProducerId with a transactional id: epochs, fencing, producer ids, timeouts and expiry (KIP-98, KIP-360)."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from fakebroker.coordinator.transaction.transaction import EXHAUSTED_EPOCH, MAX_EPOCH, ProducerResult, TransactionConfig
from fakebroker.errors import ErrorCode
from tests.coordinator.transaction.test_end_of_transactions import in_state
from tests.support.coordinator.transaction_lab import FIRST_PRODUCER_ID, ID, P0, P1, TransactionLab

DAY_S = 86_400


def good(epoch: int, producer_id: int = FIRST_PRODUCER_ID) -> ProducerResult:
    return ProducerResult(ErrorCode.NONE, producer_id, epoch)


def test_each_producer_gets_the_next_epoch() -> None:
    lab = TransactionLab()
    assert [lab.init(), lab.init(), lab.init(name="other")] == [good(0), good(1), good(0, FIRST_PRODUCER_ID + 1)]
    assert [record.key.transactional_id for record in lab.log] == [ID, ID, "other"]


def test_requests_with_an_epoch_in_each_state(subtests: pytest.Subtests) -> None:
    for state in ("Empty", "CompleteCommit", "CompleteAbort"):
        for sent, expected in ((5, good(6)), (4, "PRODUCER_FENCED"), (6, "PRODUCER_FENCED")):
            with subtests.test(state=state, epoch=5, sent=sent):
                lab = in_state(state, epoch=5)
                result = lab.init(FIRST_PRODUCER_ID, sent)
                assert expected in (result, result.error.name)
    with subtests.test("repeated, because the response was lost"):
        lab = in_state("Empty", epoch=5)
        assert [lab.init(FIRST_PRODUCER_ID, 5) for _ in range(3)] == [good(6)] * 3
        assert lab.init(FIRST_PRODUCER_ID, 6) == good(7)
    with subtests.test("repeated after the request of another producer"):
        lab = in_state("Empty", epoch=5)
        assert [lab.init(FIRST_PRODUCER_ID, 5), lab.init()] == [good(6), good(7)]
        assert lab.init(FIRST_PRODUCER_ID, 5).error is ErrorCode.PRODUCER_FENCED
    for state in ("PrepareCommit", "PrepareAbort"):
        for producer_id, epoch in ((-1, -1), (FIRST_PRODUCER_ID, 5)):
            with subtests.test(state=state, sent=epoch):
                lab = in_state(state, epoch=5)
                assert lab.init(producer_id, epoch).error is ErrorCode.CONCURRENT_TRANSACTIONS


def test_an_exhausted_epoch_gives_another_producer_id(subtests: pytest.Subtests) -> None:
    new = good(0, FIRST_PRODUCER_ID + 1)
    for producer_id, epoch in ((-1, -1), (FIRST_PRODUCER_ID, EXHAUSTED_EPOCH)):
        with subtests.test(sent=epoch):
            lab = in_state("Empty", EXHAUSTED_EPOCH)
            assert lab.init(producer_id, epoch) == new
    with subtests.test("repeated with the old producer id"):
        assert lab.init(FIRST_PRODUCER_ID, EXHAUSTED_EPOCH) == new
    with subtests.test("another epoch"):
        lab = in_state("Empty", EXHAUSTED_EPOCH)
        assert lab.init(FIRST_PRODUCER_ID, 5).error is ErrorCode.UNKNOWN_SERVER_ERROR
        assert lab.init() == new


@pytest.mark.parametrize("epoch", [EXHAUSTED_EPOCH, MAX_EPOCH])
def test_a_fence_gives_another_producer_id(epoch: int) -> None:
    lab = in_state("Ongoing", epoch)
    assert lab.init().error is ErrorCode.CONCURRENT_TRANSACTIONS
    assert (lab.value.state.value, lab.value.producer_id, lab.value.epoch) == (
        "PrepareAbort",
        FIRST_PRODUCER_ID,
        MAX_EPOCH,
    )
    lab.write_markers()
    assert (lab.value.state.value, lab.value.producer_id, lab.value.epoch) == (
        "CompleteAbort",
        FIRST_PRODUCER_ID + 1,
        0,
    )
    assert lab.init() == good(1, FIRST_PRODUCER_ID + 1)


@pytest.mark.parametrize(("version", "rotates"), [(0, True), (2, False)])
def test_a_fence_does_not_give_another_producer_id(version: int, rotates: bool) -> None:
    """Up to Kafka 4.2, and without KIP-890; the InitProducerId after it gives another one."""
    lab = in_state("Ongoing", EXHAUSTED_EPOCH)
    lab.coordinator.config = TransactionConfig(version=version, rotates_when_fenced=rotates)
    assert lab.init().error is ErrorCode.CONCURRENT_TRANSACTIONS
    lab.write_markers()
    assert lab.value.state.value == "CompleteAbort"
    assert (lab.value.producer_id, lab.value.epoch) == (FIRST_PRODUCER_ID, MAX_EPOCH)
    assert lab.init() == good(0, FIRST_PRODUCER_ID + 1)


def test_a_transaction_in_the_highest_epoch_ends_only_in_versions_that_keep_the_epoch() -> None:
    """As in Kafka up to 4.2, where a producer gets that epoch if it repeats the abort that fenced it."""
    lab = in_state("Ongoing", EXHAUSTED_EPOCH)
    lab.coordinator.config = TransactionConfig(rotates_when_fenced=False)
    assert lab.init().error is ErrorCode.CONCURRENT_TRANSACTIONS
    lab.write_markers()
    assert lab.end(commit=False, epoch=EXHAUSTED_EPOCH, raises_epoch=True) == good(MAX_EPOCH)
    lab.add(P0, epoch=MAX_EPOCH)
    for result in (lab.end(epoch=MAX_EPOCH, raises_epoch=True), lab.init()):
        assert result.error is ErrorCode.UNKNOWN_SERVER_ERROR
    lab.advance(200)
    assert (lab.value.state.value, lab.transaction.pending) == ("Ongoing", None)
    assert lab.end(epoch=MAX_EPOCH) == good(MAX_EPOCH)
    lab.write_markers()
    assert lab.value.state.value == "CompleteCommit"


def test_faulty_requests(subtests: pytest.Subtests) -> None:
    lab = TransactionLab()
    lab.init()
    cases: tuple[tuple[str, dict[str, Any], str], ...] = (
        ("empty id", {"name": ""}, "INVALID_REQUEST"),
        ("timeout 0", {"timeout_ms": 0}, "INVALID_TRANSACTION_TIMEOUT"),
        ("negative timeout", {"timeout_ms": -1}, "INVALID_TRANSACTION_TIMEOUT"),
        ("timeout above the maximum", {"timeout_ms": 900_001}, "INVALID_TRANSACTION_TIMEOUT"),
        ("other producer id", {"producer_id": 1, "epoch": 0}, "PRODUCER_FENCED"),
    )
    for name, request, error in cases:
        with subtests.test(name):
            assert lab.init(**request).error.name == error
    assert lab.init(timeout_ms=900_000) == good(1)


def test_an_unknown_id_takes_any_producer_id() -> None:
    lab = TransactionLab()
    assert lab.init(producer_id=77, epoch=5) == good(0)


def test_requests_to_other_coordinators(subtests: pytest.Subtests) -> None:
    lab = TransactionLab()
    partition = lab.coordinator.partition_for(ID)
    changes: tuple[tuple[str, Callable[[], None], ErrorCode], ...] = (
        ("not led", partial(lab.coordinator.resign, partition, 0), ErrorCode.NOT_COORDINATOR),
        ("loading", partial(lab.coordinator.start_loading, partition), ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
        ("not loaded", partial(lab.coordinator.fail_loading, partition), ErrorCode.NOT_COORDINATOR),
    )
    for name, change, error in changes:
        with subtests.test(name):
            change()
            assert (lab.init().error, lab.add(P0), lab.end().error) == (error, error, error)
            assert lab.coordinator.verify_partitions(ID, FIRST_PRODUCER_ID, 0, [P0]) == (error, [])


@pytest.mark.parametrize(("version", "last_epoch"), [(2, 0), (1, -1), (0, -1)])
def test_a_new_producer_aborts_the_transaction_of_the_old_one(version: int, last_epoch: int) -> None:
    lab = TransactionLab(TransactionConfig(version=version), holds_markers=True)
    lab.init()
    lab.add(P0, P1)
    assert lab.init().error is ErrorCode.CONCURRENT_TRANSACTIONS
    assert (lab.value.state.value, lab.value.epoch, lab.transaction.last_epoch) == ("PrepareAbort", 1, last_epoch)
    markers = lab.sent[-1]
    assert (markers.epoch, markers.is_commit, markers.version) == (1, False, 2 if version == 2 else 0)
    assert lab.init().error is ErrorCode.CONCURRENT_TRANSACTIONS
    lab.write_markers()
    assert lab.init() == good(2)


@pytest.mark.parametrize("version", [0, 2])
def test_after_a_fence_an_earlier_request_cannot_be_repeated(version: int) -> None:
    lab = TransactionLab(TransactionConfig(version=version))
    lab.init()
    assert lab.init(FIRST_PRODUCER_ID, 0) == good(1)
    lab.add(P0, epoch=1)
    lab.init()
    assert lab.value.state.value == "CompleteAbort"
    assert lab.init(FIRST_PRODUCER_ID, 0).error is ErrorCode.PRODUCER_FENCED


@pytest.mark.parametrize("version", [0, 2])
def test_an_epoch_that_could_not_be_stored_is_not_raised_again(version: int) -> None:
    lab = TransactionLab(TransactionConfig(version=version))
    lab.init()
    lab.add(P0)
    lab.append_error = ErrorCode.NOT_ENOUGH_REPLICAS
    assert [lab.init().error.name for _ in range(3)] == ["COORDINATOR_NOT_AVAILABLE"] * 3
    assert lab.value.state.value == "Ongoing"
    lab.append_error = ErrorCode.NONE
    assert lab.init().error is ErrorCode.CONCURRENT_TRANSACTIONS
    assert lab.value.epoch == 1
    assert lab.init() == good(2)


@pytest.mark.parametrize("version", [0, 2])
def test_a_transaction_that_times_out_is_aborted_at_the_next_check(version: int) -> None:
    lab = TransactionLab(TransactionConfig(version=version))
    lab.init(timeout_ms=30_000)
    lab.advance(1)
    lab.add(P0)  # times out at 31 s; checks are at 30 s and at 40 s
    lab.advance(38.9)
    assert lab.value.state.value == "Ongoing"
    lab.advance(0.1)
    assert (lab.value.state.value, lab.value.epoch) == ("CompleteAbort", 1)
    assert lab.end(epoch=0).error is ErrorCode.PRODUCER_FENCED
    assert lab.end(epoch=0, raises_epoch=True).error is ErrorCode.INVALID_TXN_STATE
    repeated = lab.end(epoch=0, raises_epoch=True, commit=False)
    assert repeated == good(1)


def test_a_check_at_the_time_of_the_timeout_does_not_abort() -> None:
    lab = TransactionLab()
    lab.init(timeout_ms=30_000)
    lab.add(P0)  # times out at 30 s, at a check
    lab.advance(39.9)
    assert lab.value.state.value == "Ongoing"
    lab.advance(0.1)
    assert lab.value.state.value == "CompleteAbort"


@pytest.mark.parametrize("age_s", [0, 1])
def test_an_unused_id_expires_at_the_first_check_at_which_it_is_old_enough(age_s: int) -> None:
    lab = TransactionLab()
    lab.advance(age_s)
    lab.init()
    check_s = 7 * DAY_S + (3600 if age_s else 0)
    lab.advance(check_s - age_s - 1)
    assert lab.coordinator.transaction(ID) is not None
    lab.advance(1)
    assert lab.coordinator.transaction(ID) is None
    assert (lab.log[-1].key.transactional_id, lab.log[-1].value) == (ID, None)
    assert lab.add(P0) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert lab.init() == good(0, FIRST_PRODUCER_ID + 1)


def test_an_id_with_a_transaction_does_not_expire() -> None:
    lab = TransactionLab(TransactionConfig(max_timeout_ms=2**31 - 1))
    lab.init(timeout_ms=2**31 - 1)
    lab.add(P0)
    lab.advance(20 * DAY_S)
    assert lab.value.state.value == "Ongoing"


def test_an_expired_id_whose_tombstone_is_refused_expires_at_the_next_check() -> None:
    lab = TransactionLab()
    lab.init()
    lab.append_error = ErrorCode.NOT_ENOUGH_REPLICAS
    lab.advance(7 * DAY_S + 3600)
    assert lab.coordinator.transaction(ID) is not None
    lab.append_error = ErrorCode.NONE
    lab.advance(3600)
    assert lab.coordinator.transaction(ID) is None


# Failover


def test_a_new_coordinator_continues(subtests: pytest.Subtests) -> None:
    with subtests.test("Empty: the last epoch is not stored"):
        lab = TransactionLab()
        lab.init()
        lab.init(FIRST_PRODUCER_ID, 0)
        lab.fail_over()
        assert lab.init(FIRST_PRODUCER_ID, 0).error is ErrorCode.PRODUCER_FENCED
        assert lab.init(FIRST_PRODUCER_ID, 1) == good(2)
    with subtests.test("Ongoing: the timeout counts from the stored start"):
        lab = TransactionLab()
        lab.init()
        lab.add(P0)
        lab.advance(45)
        lab.fail_over()
        lab.advance(24.9)
        assert lab.value.state.value == "Ongoing"
        lab.advance(0.1)
        assert lab.value.state.value == "CompleteAbort"
    with subtests.test("PrepareCommit: all markers are written again"):
        lab = TransactionLab(holds_markers=True)
        lab.init()
        lab.add(P0, P1)
        lab.end()
        lab.write_markers(P0)
        old, late = lab.coordinator, lab.sent[-1]
        lab.fail_over()
        assert (lab.value.state.value, lab.sent[-1].partitions) == ("PrepareCommit", (P0, P1))
        stored = len(lab.log)
        for coordinator in (old, lab.coordinator):  # the response is late
            coordinator.marker_written(late, P1, ErrorCode.NONE, lab.now_ms)
        assert len(lab.log) == stored
        lab.write_markers(P0)
        assert lab.value.state.value == "PrepareCommit"
        lab.write_markers(P1)
        assert lab.value.state.value == "CompleteCommit"
    with subtests.test("expired"):
        lab = TransactionLab()
        lab.init()
        lab.advance(8 * DAY_S)
        lab.fail_over()
        assert lab.coordinator.transaction(ID) is None
