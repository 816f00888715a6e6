"""The scheduler of simulations makes all calls in order, also those that are scheduled by other calls."""

from math import inf

from hypothesis import given, strategies as st

from fakebroker.replay.simulation.scheduler import ACTION, EVENT, START_MS, Position, Scheduler, VirtualClock

_DELAYS_MS = st.sampled_from([0.0, 0.25, 1.0, 1_023.75, 1_024.0, 5_000.0, 600_000.0, inf])
_CALLS = st.tuples(_DELAYS_MS, st.integers(EVENT, ACTION), st.integers(0, 3))
"""Delay, kind and number of a call."""


@given(st.lists(st.tuples(_CALLS, st.lists(_CALLS, max_size=2)), max_size=12), st.sampled_from([700.0, 2_000.0, 1e7]))
def test_each_call_is_the_first_of_those_that_are_scheduled(
    planned: list[tuple[tuple[float, int, int], list[tuple[float, int, int]]]], until_ms: float
) -> None:
    """Calls of the same position are made in the order of scheduling."""
    scheduler = Scheduler(VirtualClock(START_MS))
    pending: set[tuple[Position, int]] = set()
    count = 0

    def schedule(call: tuple[float, int, int], then: list[tuple[float, int, int]]) -> None:
        nonlocal count
        count += 1
        position = (scheduler.clock.moment_ms + call[0], *call[1:])
        pending.add((position, count))
        scheduler.schedule(*position, make, position, count, then)

    def make(position: Position, number: int, then: list[tuple[float, int, int]]) -> None:
        assert (position, number) == min(pending)
        assert scheduler.position == position
        assert scheduler.clock.moment_ms == position[0]
        pending.remove((position, number))
        for call in then:
            schedule(call, [])

    for call, then in planned:
        schedule(call, then)
    while scheduler.step(START_MS + until_ms):
        pass
    assert all(at_ms > START_MS + until_ms for (at_ms, _, _), _ in pending)
