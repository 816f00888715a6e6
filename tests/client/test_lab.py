"""Whole groups in virtual time: whatever happens on the way, once it is quiet every partition has one owner.

What holds at every step is checked in the lab: the coordinator's invariants, no partition owned twice, one round at a
time, and acknowledged commits found by whoever owns the partition next.
"""

from collections.abc import Callable
from functools import partial

import pytest
from hypothesis import given, settings, strategies as st

from fakebroker.client.member.assignors import ASSIGNORS
from fakebroker.client.member.effects import GroupRequest, GroupResponse, Send
from fakebroker.client.member.member import Member
from fakebroker.client.member.member_settings import MemberSettings
from fakebroker.client.member.states import MemberState
from fakebroker.errors import ErrorCode
from tests.support.client.group_simulation import GroupSimulation
from tests.support.client.member_harness import START_MS, refusal

SIZE = 4
QUIET_MS = 40_000  # more than some rounds may take in which members have to expire first

events = st.lists(
    st.tuples(
        st.integers(0, 12_000),
        st.sampled_from(["start", "start", "leave", "crash", "cut", "cut", "move", "grow"]),
        st.integers(0, SIZE - 1),
    ),
    max_size=12,
)


def schedule(lab: GroupSimulation, delay_ms: float, kind: str, index: int) -> None:
    def grow() -> None:
        lab.partition_counts["t"] += 1
        for member in lab.members:
            member.metadata(lab.partition_counts, lab.now_ms)

    acts: dict[str, Callable[[], None]] = {
        "start": partial(lab.start, index),
        "leave": partial(lab.leave, index),
        "crash": partial(lab.crash, index),
        "cut": partial(lab.cut, index),
        "move": partial(lab.move, 1_000.0),
        "grow": grow,
    }
    lab.at(delay_ms, acts[kind])


def consume(lab: GroupSimulation) -> None:
    """The application: every position moves on, over and over."""
    for member in lab.members:
        for owned in member.positions:
            member.positions[owned] += 1
    lab.at(500.0, partial(consume, lab))


@pytest.mark.parametrize("assignor", ASSIGNORS)
@given(seed=st.integers(0, 2**32), happenings=events)
@settings(max_examples=60)
def test_once_it_is_quiet_every_partition_has_one_owner(
    assignor: str, seed: int, happenings: list[tuple[int, str, int]]
) -> None:
    lab = GroupSimulation(seed, assignor, SIZE, {"t": 5, "u": 2})
    lab.start(0)
    consume(lab)
    for happening in happenings:
        schedule(lab, *happening)
    lab.run(12_000 + QUIET_MS)
    alive = [member for member in lab.members if member.state is not MemberState.DOWN]
    group = lab.coordinator.group("g")
    assert {member.member_id for member in alive} == set(group.members if group else ())
    assert {member.state for member in alive} <= {MemberState.PART_OF_GROUP}
    assert {member.generation_id for member in alive} <= {group.generation_id if group else -1}
    owned = sorted(owned for member in alive for owned in member.assigned)
    everything = [(topic, index) for topic, count in lab.partition_counts.items() for index in range(count)]
    assert owned == (sorted(everything) if alive else [])
    assert all(set(member.positions) == set(member.assigned) for member in alive)


@pytest.mark.parametrize("assignor", ASSIGNORS)
def test_the_next_owner_takes_up_where_the_last_one_committed(assignor: str) -> None:
    lab = GroupSimulation(1, assignor, 2, {"t": 2})
    lab.start(0)
    lab.run(10_000)
    lab.members[0].positions.update({("t", 0): 70, ("t", 1): 80})
    lab.leave(0)
    lab.start(1)
    lab.run(10_000)
    assert lab.members[1].positions == {("t", 0): 70, ("t", 1): 80}


def test_a_static_member_that_comes_back_in_time_has_its_partitions_without_a_rebalance() -> None:
    lab = GroupSimulation(1, "range", 3, {"t": 3})
    for index in range(3):
        lab.start(index)
    lab.run(20_000)
    group = lab.coordinator.group("g")
    assert group is not None
    before, owned = group.generation_id, [member.assigned for member in lab.members]
    lab.crash(2)
    lab.run(2_000)
    lab.start(2)
    lab.run(10_000)
    assert (group.generation_id, [member.assigned for member in lab.members]) == (before, owned)


def test_a_cooperative_rebalance_leaves_what_does_not_move_where_it_is() -> None:
    lab = GroupSimulation(1, "cooperative-sticky", 2, {"t": 4})
    lab.start(0)
    lab.run(10_000)
    lab.start(1)
    kept: list[set[tuple[str, int]]] = []
    for _ in range(100):
        lab.run(100)
        kept.append(set(lab.members[0].assigned))
    assert len(lab.members[0].assigned) == len(lab.members[1].assigned) == 2
    assert all(owned >= kept[-1] for owned in kept)


# Any input in any order


@given(st.data())
@settings(max_examples=150)
def test_no_input_brings_a_member_off_its_table(data: st.DataObject) -> None:
    """Also none that makes no sense: any error to any request, late answers, answers twice."""
    assignor = data.draw(st.sampled_from(sorted(ASSIGNORS)))
    member = Member(MemberSettings(group_id="g", client_id="c", topics=("t",), assignor=assignor))
    asked: list[GroupRequest] = []
    now_ms = START_MS
    for _ in range(data.draw(st.integers(1, 40))):
        now_ms += data.draw(st.sampled_from([0, 1, 100, 3_000, 50_000]))
        data.draw(st.sampled_from(INPUTS))(member, asked, now_ms, data)
        asked += [effect.request for effect in member.effects if isinstance(effect, Send)]
        member.effects.clear()
        due_ms = member.next_deadline()
        assert due_ms is None or member.state is not MemberState.DOWN
        assert set(member.positions) <= set(member.assigned)


Input = Callable[[Member, list[GroupRequest], float, st.DataObject], None]


def answer_anything(member: Member, asked: list[GroupRequest], now_ms: float, data: st.DataObject) -> None:
    if asked:
        request = data.draw(st.sampled_from(asked))
        error = data.draw(st.sampled_from([0, 0, 0, *ErrorCode, 999]))
        response: GroupResponse = refusal(request, error)
        member.answered(request, response, now_ms)


INPUTS: list[Input] = [
    lambda member, asked, now_ms, data: member.start(now_ms),
    lambda member, asked, now_ms, data: member.leave(now_ms),
    lambda member, asked, now_ms, data: member.crash(now_ms),
    lambda member, asked, now_ms, data: member.commit(now_ms),
    lambda member, asked, now_ms, data: member.connection_lost(now_ms),
    *[lambda member, asked, now_ms, data: member.discovered(now_ms)] * 3,
    lambda member, asked, now_ms, data: member.discovery_failed(ErrorCode.NETWORK_EXCEPTION, now_ms),
    lambda member, asked, now_ms, data: member.metadata({"t": data.draw(st.integers(0, 3))}, now_ms),
    *[lambda member, asked, now_ms, data: member.tick(now_ms)] * 2,
    *[answer_anything] * 8,
]
