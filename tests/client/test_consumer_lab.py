"""Whole groups of consumers in virtual time: whatever happens on the way, once it is quiet all records are consumed.

What holds at every step is checked in the lab: the coordinator's invariants, and that nothing is committed that no
application was done with.
"""

from collections.abc import Callable
from functools import partial

import pytest
from hypothesis import given, settings, strategies as st

from fakebroker.client.member.assignors import ASSIGNORS
from fakebroker.client.member.states import MemberState
from tests.support.client.consumer_simulation import ConsumerSimulation

SIZE = 3
HAPPENING_MS = 20_000
QUIET_MS = 60_000  # more than some rounds may take in which members have to expire first

happenings = st.lists(
    st.tuples(
        st.integers(0, HAPPENING_MS),
        st.sampled_from(
            ["start", "start", "leave", "crash", "cut", "cut", "stall", "coordinator", "leader", "grow", "produce"]
        ),
        st.integers(0, SIZE - 1),
    ),
    max_size=12,
)


def schedule(lab: ConsumerSimulation, delay_ms: float, kind: str, index: int) -> None:
    acts: dict[str, Callable[[], None]] = {
        "start": partial(lab.start, index),
        "leave": partial(lab.leave, index),
        "crash": partial(lab.crash, index),
        "cut": partial(lab.cut, index),
        "stall": partial(lab.stall, index),
        "coordinator": lambda: lab.move_coordinator(lab.random.choice([0.0, 1_500.0])),
        "leader": lab.move_leader,
        "grow": lab.grow,
        "produce": lab.produce,
    }
    lab.at(delay_ms, acts[kind])


@pytest.mark.parametrize("assignor", ASSIGNORS)
@given(seed=st.integers(0, 2**32), happenings=happenings)
@settings(max_examples=8, deadline=None)
def test_once_it_is_quiet_everything_is_consumed(
    assignor: str, seed: int, happenings: list[tuple[int, str, int]]
) -> None:
    consume_all(assignor, seed, happenings)


@pytest.mark.slow
@pytest.mark.parametrize("assignor", ASSIGNORS)
@given(seed=st.integers(0, 2**32), happenings=happenings)
@settings(max_examples=15, deadline=None)
def test_once_it_is_quiet_everything_is_consumed_for_long(
    assignor: str, seed: int, happenings: list[tuple[int, str, int]]
) -> None:
    consume_all(assignor, seed, happenings)


def consume_all(assignor: str, seed: int, happenings: list[tuple[int, str, int]]) -> None:
    lab = ConsumerSimulation(seed, assignor, SIZE, {"t": 4, "u": 1})
    lab.produce()
    lab.start(0)
    for happening in happenings:
        schedule(lab, *happening)
    lab.at(HAPPENING_MS, lambda: lab.start(1))
    lab.run(HAPPENING_MS + QUIET_MS / 2)
    lab.produce()
    lab.run(QUIET_MS / 2)

    running = [app.core for app in lab.apps if app is not None]
    assert {core.member.state for core in running} == {MemberState.PART_OF_GROUP}
    everything = sorted((topic, index) for topic, size in lab.topics().items() for index in range(size))
    assert sorted(place for core in running for place in core.assigned) == everything
    ends = {
        (topic.name, each.index): each.log.log_end_offset for topic in lab.cluster.topics for each in topic.partitions
    }
    processed = {place: lab.processed.get(place, set()) for place in everything}
    assert processed == {place: set(range(ends[place])) for place in everything}
