"""Groups of members in virtual time: after any sequence of events each partition ends up with exactly one owner."""

from functools import partial

import pytest
from hypothesis import given, settings, strategies as st

from fakebroker.client.member.assignors import ASSIGNORS
from fakebroker.client.member.consumer.consumer_member import ConsumerMember
from fakebroker.client.member.consumer.consumer_member_settings import ConsumerMemberSettings
from fakebroker.client.member.consumer.states import ConsumerMemberState
from fakebroker.client.member.effects import GroupRequest, Send
from fakebroker.client.member.group_member import GroupMember
from fakebroker.client.member.member import Member
from fakebroker.client.member.member_settings import MemberSettings
from fakebroker.client.member.states import MemberState
from fakebroker.errors import ErrorCode
from fakebroker.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatResponse,
    HeartbeatAssignment,
    HeartbeatTopicPartitions,
)
from tests.support.client.group_simulation import (
    GroupSimulation,
    consumer_protocol_simulation,
    group_simulation,
    migrating_simulation,
)
from tests.support.group_responses import error_response
from tests.support.soak import examples, soak
from tests.support.virtual_time import START_MS

SIZE = 4
EVENTS_MS = 12_000
QUIET_MS = 40_000
"""Time after the last event until the group is stable; longer than a rebalance that waits for expiring sessions."""

EVENTS = {
    "start": GroupSimulation.start,
    "leave": GroupSimulation.leave,
    "crash": GroupSimulation.crash,
    "disconnect": GroupSimulation.disconnect,
    "move coordinator": lambda simulation, _: simulation.move_coordinator(1_000.0),
    "add partition": lambda simulation, _: simulation.add_partition("t"),
}
EVENT_LISTS = st.lists(
    st.tuples(
        st.integers(0, EVENTS_MS),
        st.sampled_from([*EVENTS, "start", "disconnect"]),  # These two are drawn twice as often.
        st.integers(0, SIZE - 1),
    ),
    max_size=12,
)
"""Events: the time, the name and the index of the member."""


def consume(simulation: GroupSimulation) -> None:
    """Advance every position by one, again and again."""
    for member in simulation.members:
        for partition in member.positions:
            member.positions[partition] += 1
    simulation.call_in(500.0, partial(consume, simulation))


SIMULATIONS = {
    **{assignor: partial(group_simulation, assignor=assignor) for assignor in ASSIGNORS},
    **{f"consumer {each}": partial(consumer_protocol_simulation, assignor=each) for each in ("uniform", "range")},
    **{f"migrating {each}": partial(migrating_simulation, assignor=each) for each in ("range", "cooperative-sticky")},
}
"""Simulations by protocol and assignor: classic members, members with the consumer protocol, and members of both."""


@soak
@pytest.mark.parametrize("kind", SIMULATIONS)
@given(seed=st.integers(0, 2**32), events=EVENT_LISTS)
@settings(max_examples=examples(15, soak=2_000))
def test_each_partition_has_one_owner_once_there_are_no_more_events(
    kind: str, seed: int, events: list[tuple[int, str, int]]
) -> None:
    simulation = SIMULATIONS[kind](seed, size=SIZE, partition_counts={"t": 5, "u": 2})
    simulation.start(0)
    consume(simulation)
    for at_ms, event, index in events:
        simulation.call_in(at_ms, partial(EVENTS[event], simulation, index))
    simulation.run(EVENTS_MS + QUIET_MS)
    up = [member for member in simulation.members if not member.is_down]
    assert {member.member_id for member in up} == simulation.known - simulation.on_leave
    assert {member.state for member in up} <= {MemberState.PART_OF_GROUP, ConsumerMemberState.STABLE}
    assert {member.generation_id for member in up} <= {simulation.generation_id}
    owned = sorted(partition for member in up for partition in member.assigned)
    all_partitions = [(topic, index) for topic, count in simulation.partition_counts.items() for index in range(count)]
    assert owned == (sorted(all_partitions) if up else [])
    assert all(set(member.positions) == set(member.assigned) for member in up)


def test_the_next_owner_starts_at_the_committed_offsets(subtests: pytest.Subtests) -> None:
    for assignor in ASSIGNORS:
        with subtests.test(assignor=assignor):
            simulation = group_simulation(1, assignor, 2, {"t": 2})
            simulation.start(0)
            simulation.run(10_000)
            simulation.members[0].positions.update({("t", 0): 70, ("t", 1): 80})
            simulation.leave(0)
            simulation.start(1)
            simulation.run(10_000)
            assert simulation.members[1].positions == {("t", 0): 70, ("t", 1): 80}


def test_a_static_member_that_returns_within_its_session_timeout_keeps_its_partitions_without_a_rebalance() -> None:
    simulation = group_simulation(1, "range", 3, {"t": 3})
    for index in range(3):
        simulation.start(index)
    simulation.run(20_000)
    group = simulation.coordinator.groups.classic.get("g")
    assert group is not None
    generation_id, assigned = group.generation_id, [member.assigned for member in simulation.members]
    simulation.crash(2)
    simulation.run(2_000)
    simulation.start(2)
    simulation.run(10_000)
    assert (group.generation_id, [member.assigned for member in simulation.members]) == (generation_id, assigned)


def test_a_cooperative_rebalance_does_not_revoke_partitions_that_do_not_move() -> None:
    simulation = group_simulation(1, "cooperative-sticky", 2, {"t": 4})
    simulation.start(0)
    simulation.run(10_000)
    simulation.start(1)
    assigned: list[set[tuple[str, int]]] = []
    for _ in range(100):
        simulation.run(100)
        assigned.append(set(simulation.members[0].assigned))
    assert len(simulation.members[0].assigned) == len(simulation.members[1].assigned) == 2
    assert all(each >= assigned[-1] for each in assigned)


CALLS = (
    "start",
    "leave",
    "crash",
    "commit",
    "expire",
    "revoked",
    "connection_lost",
    "discovery_failed",
    "metadata",
    *["discovered"] * 3,
    *["tick"] * 2,
    *["answered"] * 8,
)
"""Methods of a member. A method that is listed several times is drawn more often."""


def draw_heartbeat(response: ConsumerGroupHeartbeatResponse, data: st.DataObject) -> None:
    """Draw the epoch and the assignment of a response; the name of one of two topics is not known at first."""
    response.member_epoch = data.draw(st.integers(0, 3))
    response.heartbeat_interval_ms = 3_000
    topics = data.draw(st.none() | st.dictionaries(st.sampled_from([bytes(16), b"u" * 16]), st.just([0, 1])))
    if topics is not None:
        response.assignment = HeartbeatAssignment(
            topic_partitions=[HeartbeatTopicPartitions(topic_id=each, partitions=some) for each, some in topics.items()]
        )


@soak
@given(st.data())
@settings(max_examples=examples(40, soak=5_000))
def test_no_sequence_of_calls_leads_to_an_undefined_transition(data: st.DataObject) -> None:
    """Includes calls that no driver makes: any error for any request, late responses, two responses to one request."""
    kind = data.draw(st.sampled_from([*sorted(ASSIGNORS), "consumer"]))
    waits = data.draw(st.booleans())
    member: GroupMember
    if kind == "consumer":
        member = ConsumerMember(
            ConsumerMemberSettings(group_id="g", client_id="c", topics=("t",), awaits_revocation=waits), lambda: "m"
        )
    else:
        member = Member(
            MemberSettings(group_id="g", client_id="c", topics=("t",), assignor=kind, awaits_revocation=waits)
        )
    sent: list[GroupRequest] = []
    now_ms = START_MS
    for _ in range(data.draw(st.integers(1, 40))):
        now_ms += data.draw(st.sampled_from([0, 1, 100, 3_000, 50_000]))
        match data.draw(st.sampled_from(CALLS)):
            case "discovery_failed":
                member.discovery_failed(ErrorCode.NETWORK_EXCEPTION, now_ms)
            case "metadata":
                member.metadata({"t": data.draw(st.integers(0, 3))}, now_ms, topic_ids={"t": bytes(16)})
            case "answered":
                if sent:
                    request = data.draw(st.sampled_from(sent))
                    error = data.draw(st.sampled_from([0, 0, 0, *ErrorCode, 999]))
                    response = error_response(request, error)
                    if isinstance(response, ConsumerGroupHeartbeatResponse) and not error:
                        draw_heartbeat(response, data)
                    member.answered(request, response, now_ms)
            case name:
                getattr(member, name)(now_ms)
        sent += [effect.request for effect in member.effects if isinstance(effect, Send)]
        member.effects.clear()
        assert member.next_deadline() is None or not member.is_down
        assert set(member.positions) <= set(member.assigned)
