"""How many randomly drawn cases a test runs: a sample in `make test`, all of them in `make soak`."""

import os

import pytest

IS_SOAK = os.environ.get("FAKEBROKER_SOAK") == "1"
"""Whether this is the run of `make soak`."""

soak = pytest.mark.soak
"""Marks a test that runs more cases in `make soak`, which runs the marked tests only."""


def examples(sample: int, *, soak: int) -> int:
    """Return the number of cases to run: `sample`, or `soak` in `make soak`."""
    return soak if IS_SOAK else sample


def cases(sample: int, *, soak: int) -> range:
    """Return the seeds of the cases to run: `sample` of them, or `soak` in `make soak`; both start at 0."""
    return range(examples(sample, soak=soak))
