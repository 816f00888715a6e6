"""Pending deadlines: every kind, with exact times and in order."""

from typing import Any

from fakebroker.cluster.controller import Failover
from fakebroker.cluster.inspect.deadlines import Deadline, pending_deadlines
from fakebroker.coordinator.group.classic.states import GroupState
from fakebroker.coordinator.group.group_controls import GroupControls
from fakebroker.protocol.messages.heartbeat import HeartbeatRequest
from fakebroker.protocol.messages.sync_group import SyncGroupRequest
from tests.support.cluster.cluster_harness import START_MS
from tests.support.cluster.group_admin import Groups

EXPIRY_LOOK = (600.0, "offsets_expiry", None, ())


def deadlines(groups: Groups) -> list[Deadline]:
    return pending_deadlines(groups.harness.cluster, groups.harness.now_ms)


def pending(groups: Groups) -> list[Any]:
    """Return the pending deadlines in a short form."""
    return [(each.in_s, each.kind, each.group_id, each.member_ids) for each in deadlines(groups)]


def members(groups: Groups) -> list[str]:
    (group,) = groups.coordinator.groups()
    return list(group.members)


def move(groups: Groups, to: int, **how: Any) -> None:
    cluster = groups.harness.cluster
    cluster.controller.set_leader(cluster.offsets_partition(0), to, groups.harness.now_ms, Failover(**how))


def test_nothing_is_pending_without_groups() -> None:
    assert deadlines(Groups()) == []


def test_a_deadline_has_time_broker_group_and_members() -> None:
    groups = Groups()
    member_ids = (groups.stable(),)
    assert deadlines(groups) == [
        Deadline(at_ms=START_MS + 10_000, in_s=10.0, kind="session", node_id=1, group_id="g", member_ids=member_ids),
        Deadline(at_ms=START_MS + 600_000, in_s=600.0, kind="offsets_expiry", node_id=1, partition=0),
    ]


def test_a_session_is_exact_after_a_heartbeat() -> None:
    groups = Groups()
    member = groups.stable()
    groups.harness.advance(4_000)
    assert pending(groups)[0] == (6.0, "session", "g", (member,))
    groups.harness.ask(HeartbeatRequest(group_id="g", generation_id=1, member_id=member), 4)
    assert groups.harness.cluster.next_deadline() == START_MS + 10_000, "the heap is early"
    assert pending(groups)[0] == (10.0, "session", "g", (member,))


def test_a_join_deadline_names_the_missing_members() -> None:
    groups = Groups()
    first = groups.stable()
    assert groups.join() is None
    told = groups.join(version=4)
    _, second = members(groups)
    assert pending(groups) == [
        (10.0, "session", "g", (first,)),
        (10.0, "pending_member", "g", (told,)),
        (60.0, "join", "g", (first, told)),
        (300.0, "session", "g", (second,)),
        EXPIRY_LOOK,
    ]


def test_a_session_deadline_without_effect_is_not_listed() -> None:
    groups = Groups()
    leader = groups.stable()
    assert groups.join() is None
    assert groups.join(member_id=leader) == leader
    _, follower = members(groups)
    sync = SyncGroupRequest(group_id="g", generation_id=2, member_id=follower, assignments=[])
    assert groups.harness.send(sync, 3).response is None
    expected = [(10.0, "session", "g", (leader,)), (60.0, "sync", "g", (leader,)), EXPIRY_LOOK]
    assert pending(groups) == expected, "the follower is owed an answer, and its session will begin anew with it"


def test_a_held_group_has_no_join_or_sync_deadline() -> None:
    groups = Groups(group_initial_rebalance_delay_ms=3_000)
    assert groups.join() is None
    (group,) = groups.coordinator.groups()
    group.controls = GroupControls(held_states={GroupState.PREPARING_REBALANCE: None})
    assert pending(groups) == [(300.0, "session", "g", tuple(members(groups))), EXPIRY_LOOK]


def test_delayed_responses() -> None:
    groups = Groups()
    member = groups.join()
    assert member is not None
    groups.harness.cluster.sync_delays.delay(("g", member), 5_000)
    sync = SyncGroupRequest(group_id="g", generation_id=1, member_id=member, assignments=[])
    assert groups.harness.send(sync, 3).response is None
    assert deadlines(groups)[0] == Deadline(at_ms=START_MS + 5_000, in_s=5.0, kind="late_answer")


def test_the_sync_phase() -> None:
    groups = Groups()
    member = groups.join()
    assert pending(groups) == [(10.0, "session", "g", (member,)), (60.0, "sync", "g", (member,)), EXPIRY_LOOK]


def test_the_initial_delay() -> None:
    groups = Groups(group_initial_rebalance_delay_ms=3_000)
    assert groups.join() is None
    assert pending(groups)[0] == (3.0, "initial_delay", "g", ())


def test_loads_and_stale_lookups() -> None:
    groups = Groups()
    groups.stable()
    move(groups, 2, load_ms=5_000, stale_ms=2_000)
    assert deadlines(groups) == [
        Deadline(at_ms=START_MS + 2_000, in_s=2.0, kind="stale_lookup", node_id=1, partition=0),
        Deadline(at_ms=START_MS + 5_000, in_s=5.0, kind="load", node_id=2, partition=0),
    ]
    groups.harness.advance(2_000)
    assert [each.kind for each in deadlines(groups)] == ["load"]
    move(groups, 1, load_ms=None)
    assert deadlines(groups) == [], "a load that the test ends has no deadline"


def test_deadlines_at_the_same_time_are_ordered() -> None:
    groups = Groups()
    first, second = groups.stable("a"), groups.stable("b")
    assert [each.member_ids for each in deadlines(groups)][:2] == [(first,), (second,)]
