"""Groups of consumers in virtual time: after any sequence of events all records are consumed."""

from functools import partial

import pytest
from hypothesis import given, settings, strategies as st

from fakebroker.client.member.assignors import ASSIGNORS
from fakebroker.client.member.consumer.states import ConsumerMemberState
from fakebroker.client.member.states import MemberState
from tests.support.client.consumer_simulation import ConsumerSimulation
from tests.support.soak import examples, soak

SIZE = 3
EVENTS_MS = 20_000
QUIET_MS = 60_000
"""Time after the last event until the group is stable; longer than a rebalance that waits for expiring sessions."""

EVENTS = {
    "start": ConsumerSimulation.start,
    "leave": ConsumerSimulation.leave,
    "crash": ConsumerSimulation.crash,
    "disconnect": ConsumerSimulation.disconnect,
    "stall": ConsumerSimulation.stall,
    "move coordinator": lambda simulation, _: simulation.move_coordinator(simulation.random.choice([0.0, 1_500.0])),
    "move leader": lambda simulation, _: simulation.move_leader(),
    "add partition": lambda simulation, _: simulation.add_partition(),
    "produce": lambda simulation, _: simulation.produce(),
}


@soak
@pytest.mark.parametrize("assignor", [*ASSIGNORS, "uniform"])
@given(
    seed=st.integers(0, 2**32),
    events=st.lists(
        st.tuples(
            st.integers(0, EVENTS_MS),
            st.sampled_from([*EVENTS, "start", "disconnect"]),  # These two are drawn twice as often.
            st.integers(0, SIZE - 1),
        ),
        max_size=12,
    ),
)
@settings(max_examples=examples(3, soak=300))
def test_all_records_are_consumed_once_there_are_no_more_events(
    assignor: str, seed: int, events: list[tuple[int, str, int]]
) -> None:
    simulation = ConsumerSimulation(
        seed, assignor, SIZE, {"t": 4, "u": 1}, uses_consumer_protocol=assignor == "uniform"
    )
    simulation.produce()
    simulation.start(0)
    for at_ms, event, index in events:
        simulation.call_in(at_ms, partial(EVENTS[event], simulation, index))
    simulation.call_in(EVENTS_MS, partial(simulation.start, 1))
    simulation.run(EVENTS_MS + QUIET_MS / 2)
    simulation.produce()
    simulation.run(QUIET_MS / 2)

    consumers = [app.core for app in simulation.apps if app is not None]
    assert {consumer.member.state for consumer in consumers} == {
        ConsumerMemberState.STABLE if assignor == "uniform" else MemberState.PART_OF_GROUP
    }
    partitions = sorted((topic, index) for topic, size in simulation.topics().items() for index in range(size))
    assert sorted(partition for consumer in consumers for partition in consumer.assigned) == partitions
    log_ends = {
        (topic.name, partition.index): partition.log.log_end_offset
        for topic in simulation.cluster.topics
        for partition in topic.partitions
    }
    processed = {partition: simulation.processed.get(partition, set()) for partition in partitions}
    assert processed == {partition: set(range(log_ends[partition])) for partition in partitions}
