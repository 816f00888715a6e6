"""Computations in steps. Steps that run without interruption form a piece, whose duration is limited."""

from itertools import count

import pytest

from fakebroker.control import steps
from fakebroker.control.steps import Pieces, Steps, next_piece, run

STEP_S = 0.002


@pytest.fixture
def slow_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    times_s = count()
    monkeypatch.setattr(steps, "perf_counter", lambda: next(times_s) * STEP_S)  # Each call advances by one step.


def computation() -> Steps[str]:
    for _ in range(20):
        yield
    return "result"


@pytest.mark.usefixtures("slow_steps")
def test_a_piece_is_bounded_by_time() -> None:
    pieces = Pieces(computation())
    assert not any(pieces.run() for _ in range(9))
    assert pieces.run() or pieces.run()
    assert pieces.result == "result"


@pytest.mark.usefixtures("slow_steps")
def test_items_of_an_iterator_are_returned_in_pieces() -> None:
    items = iter(range(5))
    assert [next_piece(items) for _ in range(4)] == [[0, 1], [2, 3], [4], []]


def test_run_completes_a_computation_at_once() -> None:
    assert run(computation()) == "result"
