"""Computations that run a few milliseconds at a time, so that requests to the brokers do not have to wait for them."""

from collections.abc import Generator, Iterator
from time import perf_counter
from typing import Generic, TypeVar

T = TypeVar("T")

Steps = Generator[None, None, T]
"""A computation that yields between its steps, and returns its result.

A step takes less than a millisecond or so. The cluster may change where it yields.
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
    """Return the next items that can be produced in some milliseconds, at least one; none at the end."""
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
        """Run steps for some milliseconds; returns whether the computation is complete."""
        end_s = perf_counter() + _PIECE_S
        try:
            next(self._steps)
            while perf_counter() < end_s:
                next(self._steps)
        except StopIteration as end:
            self.result = end.value
            return True
        return False
