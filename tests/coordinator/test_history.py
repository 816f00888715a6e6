"""What a group went through: every change with its cause, and no more of it than is allowed."""

from itertools import pairwise

import pytest

from fakebroker.coordinator.group.coordinator import Coordinator
from fakebroker.coordinator.group.history import History, Moment, Timer
from fakebroker.errors import ErrorCode
from tests.support.coordinator.coordinator_harness import (
    DELAY_MS,
    REBALANCE_MS,
    SESSION_MS,
    CoordinatorHarness,
    protocols,
    result_of,
)

A, B = "client-uuid1", "client-uuid2"


class Noted(CoordinatorHarness):
    """A coordinator whose groups have a history; each one that takes over is another broker."""

    def __init__(self, *, moments_of_a_group: int = 256, moments: int = 20_000, **config: int | bool) -> None:
        self.past = History(moments_of_a_group, moments)
        self.brokers = 0
        super().__init__(**config)

    def new_coordinator(self) -> Coordinator:
        self.brokers += 1
        broker = self.brokers
        coordinator = super().new_coordinator()
        coordinator._on_change = lambda group, now_ms: self.past.record(group, now_ms, broker)
        return coordinator

    def since(self, count: int, group_id: str = "g") -> list[Moment]:
        return list(self.past.of(group_id))[count:]

    def seen(self, group_id: str = "g") -> int:
        return len(self.past.of(group_id))


def told(moment: Moment) -> tuple[str, str, str]:
    return moment.state_from, moment.state_to, moment.cause


def test_from_the_first_join_to_stable() -> None:
    driver = Noted(group_initial_rebalance_delay_ms=0)
    driver.stable(1)
    assert [told(moment) for moment in driver.since(0)] == [
        ("Dead", "Empty", "first JoinGroup"),
        ("Empty", "PreparingRebalance", f"JoinGroup of {A}, a new member"),
        ("PreparingRebalance", "CompletingRebalance", f"JoinGroup of {A}, a new member"),
        ("CompletingRebalance", "Stable", f"SyncGroup of the leader {A}"),
    ]
    created, joined, completing, stable = driver.since(0)
    assert (created.members, joined.members, joined.joined, completing.joined) == ((), (A,), (A,), ())
    assert [moment.generation_id for moment in (joined, completing, stable)] == [0, 1, 1]
    assert (completing.parked_joins, stable.parked_syncs, stable.leader_id) == ((A,), (A,), A)
    assert (stable.at_ms, stable.coordinator_id) == (driver.now_ms, 1)
    # Of what one request does the end alone has timers.
    assert joined.timers == ()
    assert completing.timers == (Timer(f"session of {A}", SESSION_MS), Timer("sync", REBALANCE_MS))


def test_members_that_come_and_go_within_a_state() -> None:
    driver = Noted()
    a, b = driver.stable(2)
    count = driver.seen()
    driver.join(instance_id="i", session_ms=20_000)
    driver.now_ms += 100
    driver.join(client_id="late", session_ms=20_000)
    driver.leave((b, None))
    driver.join(a)
    first, late, left, last = driver.since(count)
    assert (first.state_from, first.state_to, first.joined) == ("Stable", "PreparingRebalance", ("i-uuid3",))
    assert (late.is_transition, late.joined, late.cause) == (
        False, ("late-uuid4",), "JoinGroup of late-uuid4, a new member",
    )  # fmt: skip
    assert (left.is_transition, left.left, left.cause) == (False, (b,), f"LeaveGroup of {b}")
    assert (last.state_to, last.rejoined, last.parked_joins) == (
        "CompletingRebalance", (a,), ("i-uuid3", "late-uuid4", a),
    )  # fmt: skip
    assert late.timers == (Timer("join", REBALANCE_MS - 100),)
    assert first.timers == (Timer(f"session of {a}", SESSION_MS), Timer("join", REBALANCE_MS))


def test_a_session_that_ends() -> None:
    driver = Noted()
    a, b = driver.stable(2)
    driver.now_ms += 5_000
    driver.heartbeat(a, 1)
    count = driver.seen()
    driver.advance(5_000)
    (moment,) = driver.since(count)
    assert told(moment) == ("Stable", "PreparingRebalance", f"session of {b} expired")
    assert (moment.members, moment.left) == ((a,), (b,))


def test_the_join_timer() -> None:
    driver = Noted()
    a, _ = driver.stable(2, session_ms=100_000)
    count = driver.seen()
    driver.join(a, session_ms=100_000)
    driver.advance(REBALANCE_MS)
    rejoined, ended = driver.since(count)
    assert rejoined.cause == f"JoinGroup of {a}, the leader"
    assert (ended.cause, ended.left, ended.state_to) == ("join timer expired", (B,), "CompletingRebalance")


def test_the_initial_delay() -> None:
    driver = Noted()
    driver.join()
    driver.advance(DELAY_MS)
    driver.advance(DELAY_MS)
    assert driver.since(0)[1].timers[0] == Timer("join", DELAY_MS)
    assert told(driver.since(0)[2]) == ("PreparingRebalance", "CompletingRebalance", "initial delay is over")


def test_the_sync_timer() -> None:
    driver = Noted()
    a, b = driver.complete(2, session_ms=100_000)
    driver.sync(a, driver.group().generation_id, [])
    count = driver.seen()
    driver.advance(REBALANCE_MS)
    (moment,) = driver.since(count)
    assert told(moment) == ("Stable", "PreparingRebalance", "sync timer expired")
    assert moment.left == (b,)


def test_an_id_that_is_never_joined_with() -> None:
    driver = Noted()
    driver.stable(1)
    pending = driver.pend(session_ms=6_000)
    driver.join(instance_id="i")
    driver.join(A)
    assert driver.state() == "PreparingRebalance"
    driver.advance(6_000)
    assert driver.since(0)[-1].cause == f"pending id {pending} expired"
    assert driver.since(0)[-3].timers[0] == Timer(f"pending {pending}", 6_000)


def test_other_protocols() -> None:
    driver = Noted()
    _, b = driver.stable(2)
    driver.join(b, protocols=protocols("range", metadata=b"other"))
    assert driver.since(0)[-1].cause == f"JoinGroup of {b}, with changed protocols"


def test_a_static_member_that_is_replaced() -> None:
    driver = Noted()
    driver.stable(0, ("i",))
    driver.join(instance_id="i")
    moment = driver.since(0)[-1]
    assert told(moment) == ("Stable", "Stable", "JoinGroup of i-uuid2, which replaces i-uuid1")
    assert (moment.joined, moment.left, moment.members) == (("i-uuid2",), ("i-uuid1",), ("i-uuid2",))


def test_a_replacement_that_is_taken_back_is_none() -> None:
    driver = Noted()
    driver.stable(0, ("i",))
    count = driver.seen()
    driver.append_error = ErrorCode.COORDINATOR_NOT_AVAILABLE
    driver.join(instance_id="i")
    assert [(moment.joined, moment.left, moment.members) for moment in driver.since(count)] == [((), (), ("i-uuid1",))]


def test_no_room() -> None:
    driver = Noted()
    a, b = driver.stable(2)
    driver.hand_over(group_max_size=1)
    assert driver.since(0)[-1].cause == "loaded with more members than it may have"
    driver.join(a)
    driver.join(b)
    assert driver.since(0)[-1].cause == f"JoinGroup of {b}, but the group is full"
    assert driver.since(0)[-1].left == (b,)


def test_an_assignment_that_cannot_be_stored() -> None:
    driver = Noted()
    (a,) = driver.complete(1)
    driver.append_error = ErrorCode.NOT_COORDINATOR
    driver.sync(a, 1, [])
    assert told(driver.since(0)[-1]) == (
        "CompletingRebalance",
        "PreparingRebalance",
        f"assignment of the leader {a} could not be stored: NOT_COORDINATOR",
    )


def test_a_group_that_cannot_be_stored() -> None:
    driver = Noted()
    driver.append_error = ErrorCode.COORDINATOR_NOT_AVAILABLE
    driver.join()
    assert driver.since(0)[-1].state_to == "Dead"
    assert driver.since(0)[-1].cause == "it could not be stored: COORDINATOR_NOT_AVAILABLE"


def test_a_move() -> None:
    driver = Noted()
    a, b = driver.stable(2)
    count = driver.seen()
    driver.hand_over()
    gone, loaded = driver.since(count)
    assert told(gone) == ("Stable", "Dead", "its coordinator resigned")
    assert told(loaded) == ("Dead", "Stable", "loaded from the log")
    assert (gone.coordinator_id, loaded.coordinator_id) == (1, 2)
    assert (gone.members, gone.left, gone.timers) == ((), (a, b), ())
    assert (loaded.members, loaded.joined, loaded.generation_id) == ((a, b), (a, b), 1)


def test_a_group_that_is_deleted_keeps_its_history() -> None:
    driver = Noted()
    (a,) = driver.stable(1)
    driver.leave((a, None))
    result_of(driver.coordinator.delete_group, "g", driver.now_ms)
    assert driver.state() == "-"
    assert told(driver.since(0)[-2])[1:] == ("Empty", f"LeaveGroup of {a}")
    assert told(driver.since(0)[-1]) == ("Empty", "Dead", "DeleteGroups")


def test_a_group_of_offsets_alone() -> None:
    driver = Noted(offsets_retention_ms=1_000)
    driver.commit()
    driver.commit()
    driver.advance(driver.config.offsets_retention_check_interval_ms)
    assert [told(moment) for moment in driver.since(0)] == [
        ("Dead", "Empty", "first OffsetCommit"),
        ("Empty", "Dead", "its offsets expired"),
    ]


@pytest.mark.parametrize("is_before_kip_848", [False, True])
def test_what_changes_nothing_leaves_no_trace(is_before_kip_848: bool) -> None:
    driver = Noted(is_before_kip_848=is_before_kip_848)
    a, b = driver.stable(2)
    count = driver.seen()
    driver.heartbeat(a, 1)
    driver.commit(a, 1)
    driver.sync(b, 1)
    driver.join(b)
    driver.join("unknown")
    driver.pend()
    driver.leave(("unknown", None))
    driver.advance(1)
    assert driver.since(count) == []


def test_each_moment_begins_where_the_last_one_ended() -> None:
    driver = Noted()
    a, b = driver.stable(2)
    driver.join(client_id="c")
    driver.join(a)
    driver.advance(SESSION_MS)
    driver.hand_over()
    driver.leave((b, None))
    driver.advance(10 * REBALANCE_MS)
    moments = driver.since(0)
    assert moments[-1].state_to == "Dead"
    for before, after in pairwise(moments):
        assert before.state_to == after.state_from
        assert before.at_ms <= after.at_ms
        assert set(after.members) == {*before.members, *after.joined} - {*after.left}


def test_a_group_keeps_its_newest_moments() -> None:
    driver = Noted(moments_of_a_group=3)
    driver.stable(1)
    assert [moment.state_to for moment in driver.since(0)] == ["PreparingRebalance", "CompletingRebalance", "Stable"]


def test_of_all_groups_the_quietest_loses_first() -> None:
    driver = Noted(moments=6, group_initial_rebalance_delay_ms=0)
    driver.stable(1, group_id="quiet")
    driver.stable(1, group_id="busy")
    assert (len(driver.past), driver.seen("quiet"), driver.seen("busy")) == (6, 2, 4)
    for _ in range(3):
        driver.join(driver.group("busy").leader_id or "", group_id="busy")
        driver.sync_all(driver.group("busy").members, "busy")
    assert (len(driver.past), driver.seen("quiet"), driver.seen("busy")) == (6, 0, 6)
    assert driver.past.group_ids(5) == ["busy"]


def test_without_a_note_nothing_is_collected() -> None:
    driver = CoordinatorHarness()
    driver.stable(2)
    change = driver.group().change
    assert (change.cause, change.moments, change.joined, change.rejoined, change.left) == ("", [], [], [], [])
