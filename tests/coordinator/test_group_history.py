"""The history of a group: its changes with their causes, and the limits of its length."""

import tracemalloc
from itertools import pairwise

import pytest

from fakebroker.coordinator.context import OwnContext
from fakebroker.coordinator.group_history import (
    Change,
    ChangedGroup,
    History,
    Moment,
    RecordedMoment,
    Timer,
    Timers,
)
from fakebroker.coordinator.history import MAX_MOMENTS, MAX_MOMENTS_OF_ONE, MAX_WITHOUT_MOMENTS, DroppedMoments
from fakebroker.errors import ErrorCode
from tests.support.coordinator.coordinator_harness import (
    DELAY_MS,
    RANGE,
    REBALANCE_MS,
    SESSION_MS,
    CoordinatorHarness,
    protocols,
)
from tests.support.coordinator.group_messages import offered
from tests.support.group_requests import join_request, sync_request
from tests.support.subtests import subtest_for_each

A, B = "client-uuid1", "client-uuid2"


def harness_with_history(**config: int | bool) -> CoordinatorHarness:
    return CoordinatorHarness(history=History(), **config)


def transition(moment: Moment) -> tuple[str, str, str]:
    return moment.state_from, moment.state_to, moment.cause


def test_moments_from_the_first_join_to_stable() -> None:
    harness = harness_with_history(group_initial_rebalance_delay_ms=0)
    harness.create_stable_group(1)
    assert [transition(moment) for moment in harness.moments()] == [
        ("Dead", "Empty", "first JoinGroup"),
        ("Empty", "PreparingRebalance", f"JoinGroup of {A}, a new member"),
        ("PreparingRebalance", "CompletingRebalance", f"JoinGroup of {A}, a new member"),
        ("CompletingRebalance", "Stable", f"SyncGroup of the leader {A}"),
    ]
    created, joined, completing, stable = harness.moments()
    assert (created.members, joined.members, joined.joined, completing.joined) == ((), (A,), (A,), ())
    assert [moment.generation_id for moment in (joined, completing, stable)] == [0, 1, 1]
    assert (completing.parked_joins, stable.parked_syncs, stable.leader_id) == ((A,), (A,), A)
    assert (stable.at_ms, stable.coordinator_id) == (harness.now_ms, 1)
    # Only the last moment of a request has timers.
    assert joined.timers == ()
    assert completing.timers == (Timer(f"session of {A}", SESSION_MS), Timer("sync", REBALANCE_MS))


def test_moments_of_members_within_a_state() -> None:
    harness = harness_with_history()
    a, b = harness.create_stable_group(2)
    count = len(harness.moments())
    harness.join(instance_id="i", session_ms=20_000)
    harness.now_ms += 100
    harness.join(client_id="late", session_ms=20_000)
    harness.leave((b, None))
    harness.join(a)
    first, late, left, last = harness.moments()[count:]
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


def test_moment_of_an_expired_session() -> None:
    harness = harness_with_history()
    a, b = harness.create_stable_group(2)
    harness.now_ms += 5_000
    harness.heartbeat(a, 1)
    count = len(harness.moments())
    harness.advance(5_000)
    (moment,) = harness.moments()[count:]
    assert transition(moment) == ("Stable", "PreparingRebalance", f"session of {b} expired")
    assert (moment.members, moment.left) == ((a,), (b,))


def test_moment_of_the_join_timer() -> None:
    harness = harness_with_history()
    a, _ = harness.create_stable_group(2, session_ms=100_000)
    count = len(harness.moments())
    harness.join(a, session_ms=100_000)
    harness.advance(REBALANCE_MS)
    rejoined, ended = harness.moments()[count:]
    assert rejoined.cause == f"JoinGroup of {a}, the leader"
    assert (ended.cause, ended.left, ended.state_to) == ("join timer expired", (B,), "CompletingRebalance")


def test_moment_of_the_initial_delay() -> None:
    harness = harness_with_history()
    harness.join()
    harness.advance(DELAY_MS)
    harness.advance(DELAY_MS)
    assert harness.moments()[1].timers[0] == Timer("join", DELAY_MS)
    assert transition(harness.moments()[2]) == ("PreparingRebalance", "CompletingRebalance", "initial delay is over")


def test_moment_of_the_sync_timer() -> None:
    harness = harness_with_history()
    a, b = harness.create_completing_group(2, session_ms=100_000)
    harness.sync(a, harness.group().generation_id, [])
    count = len(harness.moments())
    harness.advance(REBALANCE_MS)
    (moment,) = harness.moments()[count:]
    assert transition(moment) == ("Stable", "PreparingRebalance", "sync timer expired")
    assert moment.left == (b,)


def test_moment_of_an_expired_pending_id() -> None:
    harness = harness_with_history()
    harness.create_stable_group(1)
    pending = harness.request_member_id(session_ms=6_000)
    harness.join(instance_id="i")
    harness.join(A)
    assert harness.state() == "PreparingRebalance"
    harness.advance(6_000)
    assert harness.moments()[-1].cause == f"pending id {pending} expired"
    assert harness.moments()[-3].timers[0] == Timer(f"pending {pending}", 6_000)


def test_moment_of_changed_protocols() -> None:
    harness = harness_with_history()
    _, b = harness.create_stable_group(2)
    harness.join(b, protocols=protocols("range", metadata=b"other"))
    assert harness.moments()[-1].cause == f"JoinGroup of {b}, with changed protocols"


def test_moment_of_a_static_replacement() -> None:
    harness = harness_with_history()
    harness.create_stable_group(0, ("i",))
    harness.join(instance_id="i")
    moment = harness.moments()[-1]
    assert transition(moment) == ("Stable", "Stable", "JoinGroup of i-uuid2, which replaces i-uuid1")
    assert (moment.joined, moment.left, moment.members) == (("i-uuid2",), ("i-uuid1",), ("i-uuid2",))


def test_reverted_static_replacement_has_no_joined_or_left_members() -> None:
    harness = harness_with_history()
    harness.create_stable_group(0, ("i",))
    count = len(harness.moments())
    harness.append_error = ErrorCode.COORDINATOR_NOT_AVAILABLE
    harness.join(instance_id="i")
    assert [(moment.joined, moment.left, moment.members) for moment in harness.moments()[count:]] == [
        ((), (), ("i-uuid1",))
    ]


def test_moments_of_a_group_above_max_size() -> None:
    harness = harness_with_history()
    a, b = harness.create_stable_group(2)
    harness.fail_over(group_max_size=1)
    assert harness.moments()[-1].cause == "loaded with more members than it may have"
    harness.join(a)
    harness.join(b)
    assert harness.moments()[-1].cause == f"JoinGroup of {b}, but the group is full"
    assert harness.moments()[-1].left == (b,)


def test_moment_of_an_assignment_that_cannot_be_stored() -> None:
    harness = harness_with_history()
    (a,) = harness.create_completing_group(1)
    harness.append_error = ErrorCode.NOT_COORDINATOR
    harness.sync(a, 1, [])
    assert transition(harness.moments()[-1]) == (
        "CompletingRebalance",
        "PreparingRebalance",
        f"assignment of the leader {a} could not be stored: NOT_COORDINATOR",
    )


def test_moment_of_a_new_group_that_cannot_be_stored() -> None:
    harness = harness_with_history()
    harness.append_error = ErrorCode.COORDINATOR_NOT_AVAILABLE
    harness.join()
    assert harness.moments()[-1].state_to == "Dead"
    assert harness.moments()[-1].cause == "it could not be stored: COORDINATOR_NOT_AVAILABLE"


def test_moments_of_a_failover() -> None:
    harness = harness_with_history()
    a, b = harness.create_stable_group(2)
    count = len(harness.moments())
    harness.fail_over()
    gone, loaded = harness.moments()[count:]
    assert transition(gone) == ("Stable", "Dead", "its coordinator resigned")
    assert transition(loaded) == ("Dead", "Stable", "loaded from the log")
    assert (gone.coordinator_id, loaded.coordinator_id) == (1, 2)
    assert (gone.members, gone.left, gone.timers) == ((), (a, b), ())
    assert (loaded.members, loaded.joined, loaded.generation_id) == ((a, b), (a, b), 1)


def test_deleted_group_keeps_its_history() -> None:
    harness = harness_with_history()
    (a,) = harness.create_stable_group(1)
    harness.leave((a, None))
    harness.delete_group()
    assert harness.state() == "-"
    assert transition(harness.moments()[-2])[1:] == ("Empty", f"LeaveGroup of {a}")
    assert transition(harness.moments()[-1]) == ("Empty", "Dead", "DeleteGroups")


def test_moments_of_a_group_without_members() -> None:
    harness = harness_with_history(offsets_retention_ms=1_000)
    harness.commit()
    harness.commit()
    harness.advance(harness.config.offsets_retention_check_interval_ms)
    assert [transition(moment) for moment in harness.moments()] == [
        ("Dead", "Empty", "first OffsetCommit"),
        ("Empty", "Dead", "its offsets expired"),
    ]


@subtest_for_each("is_before_kip_848", [False, True])
def test_requests_that_change_nothing_add_no_moment(is_before_kip_848: bool) -> None:
    harness = harness_with_history(is_before_kip_848=is_before_kip_848)
    a, b = harness.create_stable_group(2)
    count = len(harness.moments())
    harness.heartbeat(a, 1)
    harness.commit(a, 1)
    harness.sync(b, 1)
    harness.join(b)
    harness.join("unknown")
    harness.request_member_id()
    harness.leave(("unknown", None))
    harness.advance(1)
    assert harness.moments()[count:] == []


def test_moments_are_continuous() -> None:
    harness = harness_with_history()
    a, b = harness.create_stable_group(2)
    harness.join(client_id="c")
    harness.join(a)
    harness.advance(SESSION_MS)
    harness.fail_over()
    harness.leave((b, None))
    harness.advance(10 * REBALANCE_MS)
    moments = harness.moments()
    assert moments[-1].state_to == "Dead"
    for before, after in pairwise(moments):
        assert before.state_to == after.state_from
        assert before.at_ms <= after.at_ms
        assert set(after.members) == {*before.members, *after.joined} - {*after.left}


def test_oldest_moments_of_a_group_are_dropped() -> None:
    harness = CoordinatorHarness(history=History(3))
    harness.create_stable_group(1)
    assert [moment.state_to for moment in harness.moments()] == ["PreparingRebalance", "CompletingRebalance", "Stable"]


def test_oldest_moments_of_the_group_unchanged_for_longest_are_dropped() -> None:
    history = History(max_moments=6)
    harness = CoordinatorHarness(history, group_initial_rebalance_delay_ms=0)
    harness.create_stable_group(1, group_id="quiet")
    harness.create_stable_group(1, group_id="busy")
    assert (len(history), len(harness.moments("quiet")), len(harness.moments("busy"))) == (6, 2, 4)
    for _ in range(3):
        harness.join(harness.group("busy").leader_id or "", group_id="busy")
        harness.sync_all(harness.group("busy").members, "busy")
    assert (len(history), len(harness.moments("quiet")), len(harness.moments("busy"))) == (6, 0, 6)
    assert history.newest(5) == ["busy"]


def test_nothing_is_collected_without_a_history() -> None:
    harness = CoordinatorHarness()
    harness.create_stable_group(2)
    assert harness.group().pending_change is None


def test_moments_since_a_count() -> None:
    harness = CoordinatorHarness(history=History(max_moments_of_one=3), group_initial_rebalance_delay_ms=0)
    history = harness.history
    assert history is not None
    assert (history.count_of("g"), history.since("g", 0)) == (0, ())
    harness.create_stable_group(1)
    assert history.count_of("g") == 4
    moments = history.of("g")
    assert len(moments) == 3
    assert [history.since("g", count) for count in (4, 3, 1, 0)] == [(), moments[2:], moments, moments]
    # All moments have been dropped since, and the count starts again.
    assert history.since("g", 9) == moments


class RecordedGroup(ChangedGroup):
    """A group with members whose changes are recorded."""

    def __init__(self, history: History, group_id: str, members: int = 1) -> None:
        self.group_id = group_id
        self.pending_change: Change | None = None
        self._history = history
        self._members = tuple(f"{group_id}-{number}" for number in range(members))

    def record(self, now_ms: float) -> None:
        """Record one moment in which all members have a parked join."""
        ids, size = self._members, 2 * len(self._members)
        moment = RecordedMoment(now_ms, "test", "Stable", "PreparingRebalance", 1, None, ids, (), (), (), ids, (), size)
        self.pending_change = Change(moments=[moment])
        self._history.record(self, now_ms, 1)

    def end_moment(self, now_ms: float) -> None:
        """Add nothing: `record` has added the moment."""

    def timers(self, *, with_members: bool) -> Timers:
        return ()


def test_the_moments_of_many_generations_are_limited_and_the_dropped_ones_are_counted() -> None:
    harness = harness_with_history(group_initial_rebalance_delay_ms=0)
    (member_id,) = harness.create_stable_group(1)
    history = harness.history
    assert history is not None
    before, generations = len(harness.moments()), 10_000
    nobody = OwnContext(9, "client", "/127.0.0.1")
    join = join_request("g", member_id, session_timeout_ms=SESSION_MS, protocols=offered(RANGE))
    for _ in range(generations):
        harness.coordinator.join_group(join, nobody, harness.now_ms)
        harness.coordinator.sync_group(
            sync_request(member_id, "g", harness.group().generation_id), nobody, harness.now_ms
        )
        harness.now_ms += 1
    assert harness.group().generation_id == generations + 1
    kept = len(history)
    assert MAX_MOMENTS_OF_ONE * 15 // 16 <= kept <= MAX_MOMENTS_OF_ONE
    assert len(harness.moments()) == kept
    # Each generation has three moments.
    dropped = history.dropped_of("g")
    assert dropped.count == history.dropped == before + 3 * generations - kept
    assert dropped.is_exact
    assert dropped.until_ms is not None
    assert dropped.until_ms <= harness.moments()[0].at_ms
    assert history.count_of("g") == before + 3 * generations
    assert history.is_complete_since("g", dropped.count)
    assert not history.is_complete_since("g", dropped.count - 1)


def test_the_moments_of_large_groups_are_limited_by_their_members() -> None:
    history = History(max_size_of_one=1_000, max_size=2_500)
    large = RecordedGroup(history, "large", members=100)
    for now_ms in range(20):
        large.record(now_ms)
    assert len(history.of("large")) == 5, "each moment has the ids of 100 members and of 100 parked joins"
    assert history.dropped_of("large") == DroppedMoments(15, 14.0)
    huge = RecordedGroup(history, "huge", members=600)
    huge.record(30)
    assert len(history.of("huge")) == 1, "the newest moment is kept although it is above the limit of one group"
    huge.record(31)
    assert history.dropped_of("huge") == DroppedMoments(1, 30.0)
    RecordedGroup(history, "other", members=400).record(40)
    assert [len(history.of(each)) for each in ("large", "huge", "other")] == [2, 1, 1], "at most 2,500 ids in all"
    assert history.dropped_of("large") == DroppedMoments(18, 17.0)


def test_of_groups_without_moments_it_is_known_for_some_how_many_were_dropped() -> None:
    history = History(max_moments=2, max_without_moments=1)
    a, b, c, d = (RecordedGroup(history, group_id) for group_id in "abcd")
    for now_ms, group in enumerate((a, b, c, c)):
        group.record(now_ms)
    assert history.of("b") == ()
    assert history.dropped_of("b") == DroppedMoments(1, 1.0)
    unknown = DroppedMoments(0, 0.0, is_exact=False)
    assert (history.dropped_of("a"), history.dropped_of("never")) == (unknown, unknown)
    assert str(unknown) == "earlier changes may have been dropped"
    b.record(5)
    assert (history.count_of("b"), history.dropped_of("b")) == (2, DroppedMoments(1, 1.0))
    a.record(6)
    assert history.dropped_of("a") == unknown, "recorded again, but how many were dropped is no longer known"
    d.record(7)
    d.record(8)
    d.record(9)
    assert str(history.dropped_of("d")) == "1 earlier change was dropped from the history, or more"


def record_groups(history: History, groups: int) -> None:
    """Record a moment of each of many groups."""
    for number in range(groups):
        RecordedGroup(history, f"group-{number}").record(number)


@pytest.mark.slow
def test_the_history_of_many_groups_is_limited() -> None:
    history, groups = History(), 100_000
    record_groups(history, groups)
    assert MAX_MOMENTS * 15 // 16 <= len(history) <= MAX_MOMENTS
    assert history.dropped == groups - len(history)
    known = [group for group in range(groups) if history.dropped_of(f"group-{group}").count]
    assert len(known) == MAX_WITHOUT_MOMENTS


def test_the_history_of_many_groups_needs_limited_memory() -> None:
    """A tenth of the limits needs at most 6.4 MiB; the limits of a cluster, 64 MiB."""
    history = History(max_moments=MAX_MOMENTS // 10, max_without_moments=MAX_WITHOUT_MOMENTS // 10)
    tracemalloc.start()
    try:
        record_groups(history, 8_000)
        size_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert MAX_MOMENTS // 10 * 15 // 16 <= len(history) <= MAX_MOMENTS // 10
    assert size_bytes < 6.4 * 1024 * 1024
