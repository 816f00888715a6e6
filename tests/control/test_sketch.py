"""Sketches of durations: quantiles, histograms and differences against exact ones on random distributions."""

from bisect import bisect_right
from collections.abc import Callable
from math import ceil, inf
from random import Random

import pytest
from hypothesis import given, strategies as st

from fakebroker.control.stats.sketch import MAX_RELATIVE_ERROR, Sketch, merged

SHARES = (0.001, 0.01, 0.25, 0.5, 0.9, 0.99, 0.999, 1.0)
BOUNDS_MS = (0.0, 0.0625, 1.0, 512.0, 2.0**19, inf)


def sketch_of(*batches: list[float]) -> Sketch:
    sketch = Sketch()
    for batch in batches:
        sketch.add(batch)
    return sketch


def exact_quantile(durations: list[float], share: float) -> float:
    return sorted(durations)[ceil(len(durations) * share) - 1]


def assert_right(sketch: Sketch, durations: list[float]) -> None:
    """Assert that a sketch has the count, the sum, the quantiles and the histogram of durations."""
    assert sketch.count == len(durations)
    assert sketch.sum_ms == pytest.approx(sum(durations))
    for share in SHARES:
        # The guarantee is stricter than what users are promised, 2 %.
        assert sketch.quantile(share) == pytest.approx(exact_quantile(durations, share), rel=MAX_RELATIVE_ERROR + 1e-9)
    ordered = sorted(durations)
    assert list(sketch.counts_up_to(BOUNDS_MS)) == [bisect_right(ordered, bound) for bound in BOUNDS_MS]


def test_the_relative_error_is_below_2_percent() -> None:
    assert MAX_RELATIVE_ERROR < 0.01


# From a nanosecond to eleven days; 0 for responses at once.
times_ms = st.floats(min_value=1e-6, max_value=1e9) | st.just(0.0) | st.integers(0, 600_000).map(float)


@given(st.lists(times_ms, min_size=1, max_size=200), st.lists(times_ms, max_size=200))
def test_any_durations(first: list[float], second: list[float]) -> None:
    sketch = sketch_of(first)
    assert_right(sketch, first)
    earlier = sketch.copy()
    sketch.add(second)
    assert_right(sketch, first + second)
    assert_right(merged([sketch_of(second), earlier]), first + second)
    assert_right(earlier, first)
    since = sketch.since(earlier)
    assert since.count == len(second)
    for share in SHARES if second else ():
        assert since.quantile(share) == pytest.approx(exact_quantile(second, share), rel=MAX_RELATIVE_ERROR + 1e-9)


DISTRIBUTIONS: dict[str, Callable[[Random], float]] = {
    "a heavy tail": lambda random: random.paretovariate(0.7),
    "a log-normal one from microseconds to minutes": lambda random: random.lognormvariate(0, 4),
    "a constant": lambda random: 500.0,
    "two values": lambda random: random.choice((0.02, 45_000.0)),
    "an exponential one": lambda random: random.expovariate(1 / 3),
    "mostly zeros": lambda random: random.choice((0.0,) * 9 + (250.0,)),
    "powers of two, the bounds of buckets": lambda random: 2.0 ** random.randint(-10, 20),
}


def test_usual_distributions(subtests: pytest.Subtests) -> None:
    for name, draw in DISTRIBUTIONS.items():
        with subtests.test(name):
            random = Random(name)
            durations = [draw(random) for _ in range(5_000)]
            assert_right(sketch_of(durations[:2_000], durations[2_000:]), durations)


def test_no_durations() -> None:
    assert (Sketch().count, Sketch().quantile(0.5), list(Sketch().counts_up_to((0.0, inf)))) == (0, None, [0, 0])
    zeros = Sketch()
    zeros.add_zeros(3)
    assert (zeros.count, zeros.quantile(0.99), zeros.sum_ms) == (3, 0.0, 0.0)
    assert Sketch().since(None).count == 0
