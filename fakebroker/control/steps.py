"""Computations in steps, run in pieces of a few milliseconds so that the loop handles requests to the brokers between.

A step is what a generator does between two yields; a piece is as many steps as fit into 3 ms.
"""

from collections.abc import Generator, Iterator
from time import perf_counter
from typing import Generic, TypeVar

T = TypeVar("T")

Steps = Generator[None, None, T]
"""A computation that yields between its steps and returns its result.

A step should take less than a millisecond. The cluster may change at each yield.
"""

_PIECE_S = 0.003


def run(steps: Steps[T]) -> T:
    """Run a computation at once, and return its result."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]  # a generator's result


def next_piece(items: Iterator[T]) -> list[T]:
    """Return the items that an iterator produces in one piece, at least one; an empty list at its end."""
    piece, end_s = [], perf_counter() + _PIECE_S
    for item in items:
        piece.append(item)
        if perf_counter() >= end_s:
            break
    return piece


class Pieces(Generic[T]):
    """Runs a computation piece by piece.

    Args:
        steps: The computation.

    Attributes:
        result: Its result, once `run` has returned True.
    """

    def __init__(self, steps: Steps[T]) -> None:
        self._steps = steps
        self.result: T

    def run(self) -> bool:
        """Run one piece; return whether the computation is complete."""
        end_s = perf_counter() + _PIECE_S
        try:
            next(self._steps)
            while perf_counter() < end_s:
                next(self._steps)
        except StopIteration as end:
            self.result = end.value
            return True
        return False
