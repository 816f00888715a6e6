"""EndTxn: the answer in every state, with and without KIP-890; markers; what is stored."""

from typing import Any

import pytest

from fakebroker.coordinator.transaction.transaction import (
    EMPTY,
    EXHAUSTED_EPOCH,
    ONGOING,
    PREPARE_ABORT,
    PREPARE_COMMIT,
    ProducerResult,
    TransactionState,
    TransactionValue,
)
from fakebroker.errors import ErrorCode
from tests.support.coordinator.transaction_lab import FIRST_PRODUCER_ID, ID, P0, P1, TransactionLab

E = 3
"""The epoch of the producer before the request under test."""

ENDED = "ended"
"""The request decides the outcome."""

TABLE_V4 = {
    "Empty": ("INVALID_TXN_STATE", "INVALID_TXN_STATE"),
    "Ongoing": (ENDED, ENDED),
    "PrepareCommit": ("CONCURRENT_TRANSACTIONS", "INVALID_TXN_STATE"),
    "PrepareAbort": ("INVALID_TXN_STATE", "CONCURRENT_TRANSACTIONS"),
    "CompleteCommit": ("NONE", "INVALID_TXN_STATE"),
    "CompleteAbort": ("INVALID_TXN_STATE", "NONE"),
}
"""The results of a commit and an abort in versions 0-4, by state."""

TABLE_V5 = {
    "Empty": ("INVALID_TXN_STATE", "PRODUCER_FENCED", ENDED, "PRODUCER_FENCED"),
    "Ongoing": (ENDED, "PRODUCER_FENCED", ENDED, "PRODUCER_FENCED"),
    "PrepareCommit": ("PRODUCER_FENCED", "CONCURRENT_TRANSACTIONS", "PRODUCER_FENCED", "INVALID_TXN_STATE"),
    "PrepareAbort": ("PRODUCER_FENCED", "INVALID_TXN_STATE", "PRODUCER_FENCED", "CONCURRENT_TRANSACTIONS"),
    "CompleteCommit": ("INVALID_TXN_STATE", "NONE", ENDED, "INVALID_TXN_STATE"),
    "CompleteAbort": ("INVALID_TXN_STATE", "INVALID_TXN_STATE", ENDED, "NONE"),
}
"""The results of a commit in the current epoch and in the one before, and of an abort in both (KIP-890), by state."""


def states(lab: TransactionLab) -> list[str]:
    """Return the states of ids in the log."""
    return [TransactionValue.of(record.value).state.value for record in lab.log if record.value is not None]


def in_state(state: str, epoch: int = E, producer_id: int = FIRST_PRODUCER_ID) -> TransactionLab:
    """Return a coordinator with an id in a state, without a pending transition."""
    lab = TransactionLab()
    for _ in range(2):
        lab.init()
    transaction = lab.transaction
    partitions = (P0,) if state in ("Ongoing", "PrepareCommit", "PrepareAbort") else ()
    transaction.value = TransactionValue(
        producer_id=producer_id,
        previous_producer_id=producer_id,
        epoch=epoch,
        timeout_ms=60_000,
        state=TransactionState(state),
        partitions=partitions,
        last_update_ms=0,
        start_ms=-1 if state == "Empty" else 0,
    )
    lab.holds_markers = True
    return lab


def check(lab: TransactionLab, result: ProducerResult, expected: str, *, commit: bool, raises_epoch: bool) -> None:
    epoch = lab.value.epoch
    if expected != ENDED:
        assert result.error.name == expected
        assert (result.producer_id, result.epoch) == ((-1, -1) if result.error else (FIRST_PRODUCER_ID, epoch))
        return
    assert epoch == E + raises_epoch
    assert result == ProducerResult(ErrorCode.NONE, FIRST_PRODUCER_ID, epoch)
    is_empty = not lab.value.partitions
    assert states(lab)[-1 - is_empty] == ("PrepareCommit" if commit else "PrepareAbort")


def test_versions_without_kip_890(subtests: pytest.Subtests) -> None:
    for state, results in TABLE_V4.items():
        for commit, expected in zip((True, False), results, strict=True):
            with subtests.test(state=state, commit=commit):
                lab = in_state(state)
                check(lab, lab.end(commit=commit, epoch=E), expected, commit=commit, raises_epoch=False)


def test_versions_with_kip_890(subtests: pytest.Subtests) -> None:
    cases = ((True, E), (True, E - 1), (False, E), (False, E - 1))
    for state, results in TABLE_V5.items():
        for (commit, epoch), expected in zip(cases, results, strict=True):
            with subtests.test(state=state, commit=commit, epoch=epoch - E):
                lab = in_state(state)
                result = lab.end(commit=commit, epoch=epoch, raises_epoch=True)
                check(lab, result, expected, commit=commit, raises_epoch=True)


def test_faulty_requests(subtests: pytest.Subtests) -> None:
    for raises_epoch in (False, True):
        for name, request, error in (
            ("empty id", {"name": ""}, "INVALID_REQUEST"),
            ("unknown id", {"name": "other"}, "INVALID_PRODUCER_ID_MAPPING"),
            ("other producer id", {"producer_id": 1}, "INVALID_PRODUCER_ID_MAPPING"),
            ("higher epoch", {"epoch": E + 1}, "PRODUCER_FENCED"),
            ("much lower epoch", {"epoch": E - 2}, "PRODUCER_FENCED"),
        ):
            with subtests.test(name, raises_epoch=raises_epoch):
                lab = in_state("Ongoing")
                assert (
                    lab.end(**{"epoch": E, "raises_epoch": raises_epoch, **dict[str, Any](request)}).error.name == error
                )


def test_requests_while_a_transition_is_pending(subtests: pytest.Subtests) -> None:
    """With KIP-890 the pending transition comes before the producer id and the epoch; without it, after them."""
    for raises_epoch, error in ((False, "INVALID_PRODUCER_ID_MAPPING"), (True, "CONCURRENT_TRANSACTIONS")):
        with subtests.test(raises_epoch=raises_epoch):
            lab = in_state("Ongoing")
            lab.end(epoch=E, raises_epoch=raises_epoch)
            assert lab.transaction.pending is TransactionState.COMPLETE_COMMIT
            assert lab.end(epoch=lab.value.epoch, raises_epoch=raises_epoch).error.name == "CONCURRENT_TRANSACTIONS"
            assert lab.end(epoch=E, producer_id=1, raises_epoch=raises_epoch).error.name == error


def test_markers_complete_the_transaction() -> None:
    lab = TransactionLab(holds_markers=True)
    lab.init()
    lab.add(P0, P1)
    assert lab.end() == ProducerResult(ErrorCode.NONE, FIRST_PRODUCER_ID, 0)
    markers, transaction = lab.sent[0], lab.transaction
    assert (markers.transactional_id, markers.producer_id, markers.epoch) == (ID, FIRST_PRODUCER_ID, 0)
    assert (markers.is_commit, markers.coordinator_epoch, markers.version) == (True, 5, 0)
    assert markers.partitions == (P0, P1)
    lab.write_markers(P1)
    assert (transaction.state.value, transaction.awaits_markers) == ("PrepareCommit", {P0: None})
    lab.write_markers(P1)  # a second time, as after a lost response
    assert transaction.state.value == "PrepareCommit"
    lab.write_markers(P0)
    assert (transaction.state.value, transaction.pending) == ("CompleteCommit", None)
    assert states(lab) == [*("Empty", "Ongoing", "PrepareCommit", "CompleteCommit")]
    assert lab.value.partitions == ()
    assert lab.add(P0) is ErrorCode.NONE


def test_a_deleted_partition_needs_no_marker() -> None:
    lab = TransactionLab(holds_markers=True)
    lab.init()
    lab.add(P0, P1)
    lab.end(commit=False)
    lab.write_markers(P0, error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    lab.write_markers(P1)
    assert lab.value.state.value == "CompleteAbort"


def test_a_refused_marker_stops_the_transaction_until_it_is_loaded_again(subtests: pytest.Subtests) -> None:
    for error in (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED):
        with subtests.test(error.name):
            lab = TransactionLab(holds_markers=True)
            lab.init()
            lab.add(P0, P1)
            lab.end()
            lab.write_markers(P0, error=error)
            lab.write_markers(P1)
            assert (lab.value.state.value, lab.transaction.refused_markers) == ("PrepareCommit", (P0,))
            assert lab.init().error is ErrorCode.CONCURRENT_TRANSACTIONS
            lab.holds_markers = False
            lab.fail_over()
            assert lab.value.state.value == "CompleteCommit"
            assert lab.sent[-1].coordinator_epoch == 6


def test_the_epoch_after_each_end_with_kip_890() -> None:
    lab = TransactionLab()
    lab.init()
    lab.add(P0)
    assert lab.end(raises_epoch=True) == ProducerResult(ErrorCode.NONE, FIRST_PRODUCER_ID, 1)
    assert lab.sent[-1].epoch == 1
    assert lab.end(raises_epoch=True) == ProducerResult(ErrorCode.NONE, FIRST_PRODUCER_ID, 1)  # repeated
    assert len(lab.sent) == 1
    lab.add(P0, epoch=1)
    assert lab.end(commit=False, epoch=1, raises_epoch=True).epoch == 2
    lab.now_ms = 7_000.0
    assert lab.end(commit=False, epoch=2, raises_epoch=True).epoch == 3  # without partitions
    assert lab.value.start_ms == 7_000
    assert (lab.value.state.value, len(lab.sent)) == ("CompleteAbort", 2)


def test_an_exhausted_epoch_gives_another_producer_id() -> None:
    lab = in_state("Ongoing", EXHAUSTED_EPOCH)
    new = ProducerResult(ErrorCode.NONE, FIRST_PRODUCER_ID + 1, 0)
    assert lab.end(epoch=EXHAUSTED_EPOCH, raises_epoch=True) == new
    assert (lab.sent[-1].producer_id, lab.sent[-1].epoch) == (FIRST_PRODUCER_ID, 32767)
    assert (lab.value.producer_id, lab.value.epoch) == (FIRST_PRODUCER_ID, 32767)
    lab.write_markers()
    value = lab.value
    assert (value.producer_id, value.previous_producer_id, value.epoch) == (new.producer_id, FIRST_PRODUCER_ID, 0)
    assert lab.end(epoch=EXHAUSTED_EPOCH, raises_epoch=True) == new  # repeated
    assert lab.add(P0, producer_id=new.producer_id) is ErrorCode.NONE


@pytest.mark.parametrize("raises_epoch", [False, True])
def test_a_failed_append_leaves_the_transaction_open(raises_epoch: bool, subtests: pytest.Subtests) -> None:
    for error, answer in (
        ("UNKNOWN_TOPIC_OR_PARTITION", "COORDINATOR_NOT_AVAILABLE"),
        ("NOT_ENOUGH_REPLICAS", "COORDINATOR_NOT_AVAILABLE"),
        ("NOT_ENOUGH_REPLICAS_AFTER_APPEND", "COORDINATOR_NOT_AVAILABLE"),
        ("REQUEST_TIMED_OUT", "COORDINATOR_NOT_AVAILABLE"),
        ("NOT_LEADER_OR_FOLLOWER", "NOT_COORDINATOR"),
        ("KAFKA_STORAGE_ERROR", "NOT_COORDINATOR"),
        ("MESSAGE_TOO_LARGE", "UNKNOWN_SERVER_ERROR"),
        ("RECORD_LIST_TOO_LARGE", "UNKNOWN_SERVER_ERROR"),
    ):
        with subtests.test(error):
            lab = in_state("Ongoing")
            lab.append_error = ErrorCode[error]
            assert lab.end(epoch=E, raises_epoch=raises_epoch).error.name == answer
            assert (lab.value.state.value, lab.value.epoch, lab.transaction.pending) == ("Ongoing", E, None)
            assert lab.sent == []
            lab.append_error = ErrorCode.NONE
            assert lab.end(epoch=E, raises_epoch=raises_epoch).error is ErrorCode.NONE


def test_the_end_is_stored_again_after_an_error() -> None:
    lab = in_state("Ongoing")
    lab.end(epoch=E)
    lab.append_error = ErrorCode.NOT_ENOUGH_REPLICAS
    lab.write_markers()
    assert lab.value.state.value == "PrepareCommit"
    lab.advance(1)
    assert lab.value.state.value == "PrepareCommit"
    failures = [cause for cause in lab.causes if "CompleteCommit could not be stored" in cause]
    assert len(failures) == 1, "only the first of many attempts is recorded"
    lab.append_error = ErrorCode.NONE
    lab.advance(1)
    assert (lab.value.state.value, len(lab.sent)) == ("CompleteCommit", 1)


def test_the_answer_waits_for_the_release() -> None:
    lab = in_state("Ongoing")
    lab.holds[ID] = [PREPARE_COMMIT]
    assert (lab.end(epoch=E), lab.value.state.value) == (None, "Ongoing")
    assert lab.end(epoch=E).error is ErrorCode.CONCURRENT_TRANSACTIONS
    assert lab.add(P1, epoch=E) is ErrorCode.CONCURRENT_TRANSACTIONS
    assert lab.init().error is ErrorCode.CONCURRENT_TRANSACTIONS
    lab.coordinator.release(ID, lab.now_ms)
    assert lab.coordinator.answers == []
    assert lab.release() == ProducerResult(ErrorCode.NONE, FIRST_PRODUCER_ID, E)
    assert (lab.value.state.value, len(lab.sent)) == ("PrepareCommit", 1)


def test_a_held_request_gets_the_error_of_the_append() -> None:
    for state, request, expected in (
        (EMPTY, TransactionLab.init, ProducerResult(ErrorCode.COORDINATOR_NOT_AVAILABLE)),
        (PREPARE_ABORT, TransactionLab.init, ProducerResult(ErrorCode.COORDINATOR_NOT_AVAILABLE)),
        (ONGOING, lambda lab: lab.add(P1, epoch=E), ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (PREPARE_COMMIT, lambda lab: lab.end(epoch=E), ProducerResult(ErrorCode.COORDINATOR_NOT_AVAILABLE)),
    ):
        lab = in_state("Empty" if state is EMPTY else "Ongoing")
        before = lab.value.state
        lab.holds[ID] = [state]
        assert request(lab) is None
        lab.append_error = ErrorCode.NOT_ENOUGH_REPLICAS
        assert (lab.release(), lab.value.state) == (expected, before)


def test_an_init_that_aborts_is_answered_when_the_abort_is_released() -> None:
    lab = in_state("Ongoing")
    lab.holds[ID] = [PREPARE_ABORT]
    assert lab.init() is None
    assert lab.release() == ProducerResult(ErrorCode.CONCURRENT_TRANSACTIONS)
    assert (lab.value.state.value, len(lab.sent)) == ("PrepareAbort", 1)


def test_a_held_request_is_refused_when_its_coordinator_resigns() -> None:
    lab = in_state("Ongoing")
    lab.holds[ID] = [PREPARE_COMMIT]
    assert lab.end(epoch=E) is None
    lab.coordinator.resign(lab.coordinator.partition_for(ID), lab.now_ms)
    assert lab.answer() == ProducerResult(ErrorCode.NOT_COORDINATOR)
    assert lab.sent == []


def test_an_init_producer_id_may_be_repeated_with_the_epoch_before_the_end() -> None:
    """The coordinator has aborted the transaction, which raised the epoch; the producer comes back with the old one."""
    lab = TransactionLab()
    lab.init()
    lab.add(P0)
    lab.advance(70)
    assert (lab.value.state.value, lab.value.epoch, lab.transaction.last_epoch) == ("CompleteAbort", 1, 0)
    assert lab.init(producer_id=FIRST_PRODUCER_ID, epoch=0) == ProducerResult(ErrorCode.NONE, FIRST_PRODUCER_ID, 1)
