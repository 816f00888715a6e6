"""The cases that a test runs: a sample in `make test`, all of them in `make soak`."""

import os
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

import pytest

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., object])

IS_SOAK = os.environ.get("FAKEBROKER_SOAK") == "1"
"""Whether this is the run of `make soak`."""

soak = pytest.mark.soak
"""Marks a test that runs more cases in `make soak`, which runs the marked tests only."""


def soak_only(reason: str) -> Callable[[F], F]:
    """Return a decorator of a test that only `make soak` runs; the reason is what `make test` says instead."""
    skipped = pytest.mark.skipif(not IS_SOAK, reason=f"{reason}: make soak")
    return lambda test: soak(skipped(test))


@dataclass
class Progress:
    """Cases of the running test; `soak_report` resets it before each test and reads it afterwards.

    Attributes:
        examples: Number of cases that the test requested from `examples`.
        begun: Number of cases that it began in loops over `cases`.
        seed: Seed of the current case in such a loop.
    """

    examples: int = 0
    begun: int = 0
    seed: int | None = None

    def reset(self) -> None:
        """Forget the previous test."""
        self.examples, self.begun, self.seed = 0, 0, None


progress = Progress()
"""Progress of the running test of this process."""


class Seeds(Collection[int]):
    """The seeds 0, 1, 2 ...; a loop over them in a test updates `progress`."""

    def __init__(self, count: int) -> None:
        self._seeds = range(count)

    def __len__(self) -> int:
        return len(self._seeds)

    def __contains__(self, seed: object) -> bool:
        return seed in self._seeds

    def __iter__(self) -> Iterator[int]:
        for seed in self._seeds:
            progress.begun += 1
            progress.seed = seed
            yield seed
        progress.seed = None


def examples(sample: int, *, soak: int) -> int:
    """Return the number of cases to run: `sample`, or `soak` in `make soak`."""
    count = soak if IS_SOAK else sample
    progress.examples += count
    return count


def cases(sample: int, *, soak: int) -> Seeds:
    """Return the seeds of the cases to run: `sample` of them, or `soak` in `make soak`; both start at 0."""
    return Seeds(soak if IS_SOAK else sample)


def sampled(items: Sequence[T], every: int) -> Sequence[T]:
    """Return the cases of a list to run: the first of each `every` ones, or all in `make soak`."""
    found = items if IS_SOAK else items[::every]
    progress.examples += len(found)
    return found
