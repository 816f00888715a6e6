"""AddPartitionsToTxn and AddOffsetsToTxn, and the verification of partitions (KIP-890)."""

from typing import Any

import pytest

from fakebroker.coordinator.transaction.transaction import ONGOING, TransactionConfig
from fakebroker.errors import ErrorCode
from tests.coordinator.transaction.test_end_of_transactions import in_state
from tests.support.coordinator.transaction_lab import FIRST_PRODUCER_ID, ID, P0, P1, TransactionLab

E = 3
STATES = ("Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort")


def test_partitions_begin_or_extend_a_transaction(subtests: pytest.Subtests) -> None:
    for state in STATES:
        with subtests.test(state):
            lab = in_state(state)
            lab.now_ms = 500.0
            if state.startswith("Prepare"):
                assert lab.add(P1, epoch=E) is ErrorCode.CONCURRENT_TRANSACTIONS
                continue
            assert lab.add(P1, epoch=E) is ErrorCode.NONE
            value = lab.value
            began = (0, (P0, P1)) if state == "Ongoing" else (500, (P1,))
            assert (value.state.value, (value.start_ms, value.partitions)) == ("Ongoing", began)
            assert (value.last_update_ms, value.epoch) == (500, E)


def test_repeated_partitions_are_not_stored_again() -> None:
    lab = TransactionLab()
    lab.init()
    assert [lab.add(P0, P1), lab.add(P1), lab.add()] == [ErrorCode.NONE] * 3
    assert len(lab.log) == 2


def test_no_partitions_begin_a_transaction() -> None:
    lab = TransactionLab()
    lab.init()
    assert lab.add() is ErrorCode.NONE
    assert (lab.value.state.value, lab.value.partitions) == ("Ongoing", ())


FAULTS: tuple[tuple[str, dict[str, Any], str], ...] = (
    ("empty id", {"name": ""}, "INVALID_REQUEST"),
    ("unknown id", {"name": "other"}, "INVALID_PRODUCER_ID_MAPPING"),
    ("other producer id", {"producer_id": 1}, "INVALID_PRODUCER_ID_MAPPING"),
    ("older epoch", {"epoch": E - 1}, "PRODUCER_FENCED"),
    ("newer epoch", {"epoch": E + 1}, "PRODUCER_FENCED"),
)


def test_faulty_requests(subtests: pytest.Subtests) -> None:
    for name, request, error in FAULTS:
        with subtests.test(name):
            lab = in_state("Ongoing")
            sent: dict[str, Any] = {"name": ID, "producer_id": FIRST_PRODUCER_ID, "epoch": E, **request}
            assert lab.add(P0, **sent).name == error
            verified = lab.coordinator.verify_partitions(sent["name"], sent["producer_id"], sent["epoch"], [P0])
            assert (verified[0].name, verified[1]) == (error, [])


def test_the_order_of_checks_while_a_transition_is_pending(subtests: pytest.Subtests) -> None:
    """Since 4.0 the pending transition is checked first."""
    for first, error in ((True, "CONCURRENT_TRANSACTIONS"), (False, "PRODUCER_FENCED")):
        with subtests.test(checks_pending_first=first):
            lab = TransactionLab(TransactionConfig(checks_pending_first=first), holds_markers=True)
            lab.init()
            lab.add(P0)
            lab.end()
            assert lab.add(P1, epoch=5).name == error
            assert lab.add(P1) is ErrorCode.CONCURRENT_TRANSACTIONS


def test_verification_tells_which_partitions_are_in_the_transaction(subtests: pytest.Subtests) -> None:
    for state in STATES:
        with subtests.test(state):
            lab = in_state(state)
            found = lab.coordinator.verify_partitions(ID, FIRST_PRODUCER_ID, E, [P0, P1])
            if state.startswith("Prepare"):
                assert found == (ErrorCode.CONCURRENT_TRANSACTIONS, [])
            else:
                of_first = ErrorCode.NONE if state == "Ongoing" else ErrorCode.TRANSACTION_ABORTABLE
                assert found == (ErrorCode.NONE, [of_first, ErrorCode.TRANSACTION_ABORTABLE])


def test_verification_does_not_look_at_pending_transitions() -> None:
    lab = in_state("Ongoing")
    lab.holds[ID] = [ONGOING]
    assert lab.add(P1, epoch=E) is None
    found = lab.coordinator.verify_partitions(ID, FIRST_PRODUCER_ID, E, [P0, P1])
    assert found == (ErrorCode.NONE, [ErrorCode.NONE, ErrorCode.TRANSACTION_ABORTABLE])
