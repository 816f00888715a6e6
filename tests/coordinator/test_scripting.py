"""Rebalances by hand: holds, forced rounds, members that are taken out, leaders that are chosen."""

from typing import Any

import pytest

from fakebroker.coordinator.group import controls
from fakebroker.coordinator.group.classic.states import GroupState
from fakebroker.coordinator.group.coordinator import Coordinator
from fakebroker.coordinator.group.group_controls import GroupControls
from fakebroker.coordinator.group.records import GroupRecord
from fakebroker.errors import ConfigError, ErrorCode
from tests.support.coordinator.coordinator_harness import REBALANCE_MS, SESSION_MS, CoordinatorHarness, protocols

PREPARING = GroupState.PREPARING_REBALANCE
COMPLETING = GroupState.COMPLETING_REBALANCE
DAY_MS = 24 * 3600 * 1000


class Stage(CoordinatorHarness):
    """A driver whose coordinators obey the controls of a test."""

    def __init__(self, **config: Any) -> None:
        self.controls: dict[str, GroupControls] = {}
        super().__init__(**config)

    def new_coordinator(self) -> Coordinator:
        return Coordinator(self.config, lambda: f"uuid{next(self._numbers)}", self._append, controls=self.controls)

    def hold(self, state: GroupState, group_id: str = "g") -> None:
        controls.hold(self.coordinator, group_id, self.controls.setdefault(group_id, GroupControls()), state)
        self.settle()

    def release(self, group_id: str = "g") -> None:
        self.controls[group_id].held_states.clear()
        controls.release(self.coordinator, self.group(group_id), self.now_ms)
        self.settle()

    def force_rebalance(self) -> None:
        controls.force_rebalance(self.coordinator, self.group(), self.now_ms)
        self.settle()

    def evict(self, name: str) -> None:
        controls.evict(self.coordinator, self.group(), name, self.now_ms)
        self.settle()

    def expire(self, name: str) -> None:
        controls.expire(self.coordinator, self.group(), name, self.now_ms)
        self.settle()

    def fence(self, instance_id: str) -> None:
        controls.fence(self.coordinator, self.group(), instance_id, self.now_ms)
        self.settle()

    def choose_leader(self, name: str) -> None:
        controls.choose_leader(self.group(), self.controls.setdefault("g", GroupControls()), name)
        self.settle()

    @property
    def last_record(self) -> GroupRecord:
        record = self.batches[-1][1][-1]
        assert isinstance(record, GroupRecord)
        return record


# Holding the join phase


def test_a_hold_may_be_set_before_the_group_is_there() -> None:
    stage = Stage(group_initial_rebalance_delay_ms=0)
    stage.hold(PREPARING)
    first = stage.join()
    assert (stage.state(), first.is_parked) == ("PreparingRebalance", True)
    second = stage.join()
    stage.release()
    assert stage.state() == "CompletingRebalance"
    assert first.joined.generation_id == second.joined.generation_id == 1
    assert [member.member_id for member in first.joined.members] == [first.joined.member_id, second.joined.member_id]


def test_everybody_is_in_and_nothing_happens_until_the_release() -> None:
    stage = Stage()
    ids = stage.stable()
    stage.hold(PREPARING)
    assert stage.state() == "Stable"
    calls = [stage.join(member_id) for member_id in ids]
    assert stage.state() == "PreparingRebalance"
    assert all(call.is_parked for call in calls)
    assert stage.heartbeat(ids[0], 1) is ErrorCode.REBALANCE_IN_PROGRESS
    assert stage.sync(ids[0], 1).error is ErrorCode.REBALANCE_IN_PROGRESS
    stage.release()
    assert [call.joined.generation_id for call in calls] == [2, 2]
    stage.sync_all(ids)


def test_the_join_timer_does_not_end_a_held_phase() -> None:
    stage = Stage()
    ids = stage.stable()
    stage.hold(PREPARING)
    call = stage.join(ids[0])
    for _ in range(10):
        stage.heartbeat(ids[1], 1)
        stage.advance(REBALANCE_MS / 10)
    stage.heartbeat(ids[1], 1)
    assert (stage.state(), list(stage.group().members)) == ("PreparingRebalance", ids)
    stage.release()
    assert [member.member_id for member in call.joined.members] == [ids[0]]
    assert stage.heartbeat(ids[1], 2) is ErrorCode.UNKNOWN_MEMBER_ID


def test_what_was_not_due_goes_on_after_the_release() -> None:
    stage = Stage()
    ids = stage.stable()
    stage.hold(PREPARING)
    call = stage.join(ids[0])
    stage.release()
    assert call.is_parked
    stage.join(ids[1])
    assert call.joined.generation_id == 2


def test_sessions_run_on_while_the_group_is_held() -> None:
    stage = Stage()
    ids = stage.stable()
    stage.hold(PREPARING)
    call = stage.join(ids[0])
    stage.advance(SESSION_MS)
    assert list(stage.group().members) == [ids[0]]
    assert call.is_parked
    stage.release()
    assert call.joined.generation_id == 2


def test_a_held_group_that_everybody_leaves_is_empty_at_the_release() -> None:
    stage = Stage()
    ids = stage.stable()
    stage.hold(PREPARING)
    stage.leave(*((member_id, None) for member_id in ids))
    assert (stage.state(), list(stage.group().members)) == ("PreparingRebalance", [])
    stage.advance(DAY_MS)
    assert stage.state() == "PreparingRebalance"
    stage.release()
    assert (stage.state(), stage.group().generation_id) == ("Empty", 2)
    assert stage.last_record.value is not None
    assert stage.last_record.value.members == ()


def test_a_held_group_that_everybody_left_takes_new_members() -> None:
    stage = Stage()
    (member_id,) = stage.stable(1)
    stage.hold(PREPARING)
    stage.leave((member_id, None))
    call = stage.join()
    stage.release()
    assert call.joined.leader == call.joined.member_id


@pytest.mark.parametrize("is_before_kip_848", [False, True])
def test_an_initial_delay_that_ends_in_a_hold(is_before_kip_848: bool) -> None:
    stage = Stage(group_initial_rebalance_delay_ms=3_000, is_before_kip_848=is_before_kip_848)
    stage.hold(PREPARING)
    call = stage.join()
    stage.advance(REBALANCE_MS)
    assert call.is_parked
    stage.release()
    assert call.joined.generation_id == 1


def test_an_initial_delay_that_outlasts_the_hold() -> None:
    stage = Stage(group_initial_rebalance_delay_ms=3_000)
    stage.hold(PREPARING)
    call = stage.join()
    stage.advance(1_000)
    stage.release()
    assert call.is_parked
    stage.advance(2_000)
    assert call.joined.generation_id == 1


def test_a_hold_goes_with_the_group_to_another_coordinator() -> None:
    stage = Stage()
    ids = stage.stable()
    stage.hold(PREPARING)
    parked = stage.join(ids[0])
    stage.hand_over()
    assert parked.error is ErrorCode.NOT_COORDINATOR
    calls = [stage.join(member_id) for member_id in ids]
    assert stage.state() == "PreparingRebalance"
    stage.release()
    assert [call.joined.generation_id for call in calls] == [2, 2]


# Holding the leader's sync


def test_the_leaders_sync_waits() -> None:
    stage = Stage()
    leader, follower = stage.complete()
    stage.hold(COMPLETING)
    follower_sync = stage.sync(follower, 1)
    leader_sync = stage.sync(leader, 1, [(leader, b"L"), (follower, b"F")])
    batches = len(stage.batches)
    assert (stage.state(), leader_sync.is_parked, follower_sync.is_parked) == ("CompletingRebalance", True, True)
    assert stage.heartbeat(leader, 1) is ErrorCode.NONE
    assert stage.commit(leader, 1) is ErrorCode.REBALANCE_IN_PROGRESS
    stage.release()
    assert (stage.state(), leader_sync.synced.assignment, follower_sync.synced.assignment) == ("Stable", b"L", b"F")
    assert len(stage.batches) == batches + 1


def test_a_member_that_waits_in_a_hold_keeps_its_session() -> None:
    stage = Stage()
    leader, follower = stage.complete()
    stage.hold(COMPLETING)
    stage.sync(follower, 1)
    sync = stage.sync(leader, 1)
    stage.advance(DAY_MS)
    assert (stage.state(), sync.is_parked) == ("CompletingRebalance", True)
    stage.release()
    assert sync.error is ErrorCode.NONE


def test_a_round_that_begins_in_a_hold_answers_the_held_sync() -> None:
    stage = Stage()
    leader, follower = stage.complete()
    stage.hold(COMPLETING)
    syncs = [stage.sync(follower, 1), stage.sync(leader, 1)]
    stage.join()
    assert stage.state() == "PreparingRebalance"
    assert [sync.error for sync in syncs] == [ErrorCode.REBALANCE_IN_PROGRESS] * 2


def test_who_has_not_synced_in_time_goes_at_the_release() -> None:
    stage = Stage()
    leader, follower = stage.complete(session_ms=2 * REBALANCE_MS)
    stage.hold(COMPLETING)
    sync = stage.sync(leader, 1)
    stage.advance(REBALANCE_MS)
    assert list(stage.group().members) == [leader, follower]
    stage.release()
    assert sync.error is ErrorCode.NONE
    assert (stage.state(), list(stage.group().members)) == ("PreparingRebalance", [leader])


def test_a_leader_that_has_not_synced_in_time_goes_at_the_release() -> None:
    stage = Stage()
    _, follower = stage.complete(session_ms=2 * REBALANCE_MS)
    stage.hold(COMPLETING)
    sync = stage.sync(follower, 1)
    stage.advance(REBALANCE_MS)
    stage.release()
    assert sync.error is ErrorCode.REBALANCE_IN_PROGRESS
    assert list(stage.group().members) == [follower]


@pytest.mark.parametrize("how", ["hand over", "replaced", "left"])
def test_a_held_leader_that_is_lost(how: str) -> None:
    stage = Stage()
    _, leader = stage.complete(1, static=("i",))
    assert stage.group().leader_id != leader
    stage.choose_leader("i")
    stage.force_rebalance()
    stage.join(stage.group().leader_id or "")
    stage.join(leader, instance_id="i")
    assert stage.group().leader_id == leader
    stage.hold(COMPLETING)
    sync = stage.sync(leader, 2)
    if how == "hand over":
        stage.hand_over()
        assert sync.error is ErrorCode.NOT_COORDINATOR
    elif how == "replaced":
        stage.join(instance_id="i")
        assert sync.error is ErrorCode.FENCED_INSTANCE_ID
    else:
        stage.leave((leader, None))
        assert sync.is_parked  # As Kafka leaves it.
    assert stage.group().state is not COMPLETING


def test_the_last_sync_of_a_held_leader_counts() -> None:
    stage = Stage()
    (leader,) = stage.complete(1)
    stage.hold(COMPLETING)
    first = stage.sync(leader, 1, [(leader, b"1")])
    second = stage.sync(leader, 1, [(leader, b"2")])
    stage.release()
    assert first.is_parked  # As Kafka leaves it.
    assert second.synced.assignment == b"2"


# Rounds


def test_a_forced_round() -> None:
    stage = Stage()
    ids = stage.stable()
    stage.force_rebalance()
    assert stage.heartbeat(ids[1], 1) is ErrorCode.REBALANCE_IN_PROGRESS
    calls = [stage.join(member_id) for member_id in ids]
    assert [call.joined.generation_id for call in calls] == [2, 2]


def test_a_forced_round_ends_by_its_timer() -> None:
    stage = Stage()
    stage.stable(session_ms=2 * REBALANCE_MS)
    stage.force_rebalance()
    stage.advance(REBALANCE_MS)
    assert stage.state() == "Empty"


def test_a_round_is_forced_while_another_is_completed() -> None:
    stage = Stage()
    _, follower = stage.complete()
    sync = stage.sync(follower, 1)
    stage.force_rebalance()
    assert sync.error is ErrorCode.REBALANCE_IN_PROGRESS


@pytest.mark.parametrize("is_empty", [True, False])
def test_no_round_can_be_forced_without_members_or_twice(is_empty: bool) -> None:
    stage = Stage()
    (member_id,) = stage.stable(1)
    stage.leave((member_id, None)) if is_empty else stage.force_rebalance()
    state = "Empty" if is_empty else "PreparingRebalance"
    with pytest.raises(ConfigError, match=f"group_id='g': expected a group that is .*, it is {state}"):
        stage.force_rebalance()


def test_the_next_leader_is_chosen() -> None:
    stage = Stage()
    ids = stage.stable(3)
    stage.choose_leader(ids[2])
    assert stage.group().leader_id == ids[0]
    stage.force_rebalance()
    calls = [stage.join(member_id) for member_id in ids]
    assert {call.joined.leader for call in calls} == {ids[2]}
    assert [len(call.joined.members) for call in calls] == [0, 0, 3]
    stage.sync_all(ids)
    stage.force_rebalance()
    stage.leave((ids[2], None))
    assert [stage.join(member_id) for member_id in ids[:2]][1].joined.leader == ids[0]


def test_a_chosen_leader_that_does_not_join_does_not_lead() -> None:
    stage = Stage()
    ids = stage.stable(2)
    stage.choose_leader(ids[1])
    stage.force_rebalance()
    call = stage.join(ids[0])
    stage.evict(ids[1])
    assert call.joined.leader == ids[0]
    assert stage.controls["g"].next_leader == ""


# Members


def test_an_evicted_member() -> None:
    stage = Stage()
    ids = stage.stable()
    stage.evict(ids[1])
    assert stage.heartbeat(ids[1], 1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert stage.heartbeat(ids[0], 1) is ErrorCode.REBALANCE_IN_PROGRESS


def test_the_last_member_is_evicted() -> None:
    stage = Stage()
    (member_id,) = stage.stable(1)
    stage.evict(member_id)
    assert stage.state() == "Empty"
    assert stage.last_record.value is not None
    assert stage.last_record.value.generation_id == 2


def test_a_parked_join_of_an_evicted_member_is_answered() -> None:
    stage = Stage()
    ids = stage.stable()
    call = stage.join(ids[0])
    stage.evict(ids[0])
    assert call.error is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_session_ends_now() -> None:
    stage = Stage()
    ids = stage.stable()
    stage.expire(ids[0])
    assert (stage.state(), list(stage.group().members)) == ("PreparingRebalance", [ids[1]])


def test_a_session_does_not_end_while_an_answer_is_owed() -> None:
    stage = Stage()
    ids = stage.stable()
    call = stage.join(ids[0])
    stage.expire(ids[0])
    assert call.is_parked
    assert stage.join(ids[1]).error is ErrorCode.NONE
    assert call.error is ErrorCode.NONE


def test_a_fenced_instance_in_a_stable_group() -> None:
    stage = Stage()
    ids = stage.stable(1, static=("i",))
    stage.fence("i")
    assert stage.state() == "Stable"
    assert stage.heartbeat(ids[1], 1, "i") is ErrorCode.FENCED_INSTANCE_ID
    assert stage.group().static_members["i"] != ids[1]
    assert stage.last_record.value is not None
    assert stage.last_record.value.members[1].member_id == stage.group().static_members["i"]
    stage.heartbeat(ids[0], 1)
    stage.advance(SESSION_MS)
    assert "i" not in stage.group().static_members


def test_a_fenced_instance_whose_join_is_parked() -> None:
    stage = Stage()
    ids = stage.stable(1, static=("i",))
    stage.force_rebalance()
    call = stage.join(ids[1], instance_id="i")
    stage.fence("i")
    assert call.error is ErrorCode.FENCED_INSTANCE_ID
    assert stage.join(ids[0]).joined.generation_id == 2


# Names


def test_members_go_by_three_names() -> None:
    stage = Stage()
    stage.complete(1, client_id="a")
    stage.join(instance_id="i", client_id="b")
    group = stage.group()
    first, second = group.members.values()
    assert controls.member_of(group, first.member_id) is controls.member_of(group, "a") is first
    assert controls.member_of(group, "i") is controls.member_of(group, "b") is second


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("nobody", "group 'g': member='nobody': expected one of client-uuid1, client-uuid2"),
        (
            "client",
            "group 'g': member='client': expected the id of one of the 2 members with this client id, one of "
            "client-uuid1, client-uuid2",
        ),
    ],
)
def test_names_that_say_nothing(name: str, sentence: str) -> None:
    stage = Stage()
    stage.complete(1)
    stage.join()
    with pytest.raises(ConfigError, match=sentence):
        controls.member_of(stage.group(), name)


def test_unknown_groups_states_and_instance_ids() -> None:
    stage = Stage()
    with pytest.raises(ConfigError, match="group_id='g': expected an existing group; its coordinator has none"):
        controls.group_of(stage.coordinator, "g")
    for number in range(22):
        stage.complete(1, group_id=f"g{number}")
    with pytest.raises(
        ConfigError, match=r"^group_id='h': expected a group of its coordinator, one of g0, .*g19 and 2 more$"
    ):
        controls.group_of(stage.coordinator, "h")
    with pytest.raises(ConfigError, match="state='Stable': expected one of PreparingRebalance, CompletingRebalance"):
        controls.holdable_state("Stable")
    with pytest.raises(ConfigError, match="group 'g0': instance_id='i': expected a static member; the group has none"):
        controls.fence(stage.coordinator, stage.group("g0"), "i", stage.now_ms)


def test_everybody_joins_again() -> None:
    stage = Stage()
    ids = stage.stable(2, protocols=protocols("range", "sticky"))
    stage.force_rebalance()
    controls.rejoin_all(stage.coordinator, stage.group(), stage.now_ms)
    stage.settle()
    assert (stage.state(), list(stage.group().members)) == ("CompletingRebalance", ids)
