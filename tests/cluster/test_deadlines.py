"""Pending deadlines: every kind, at its exact time, in the order in which they will be reached."""

from typing import Any

from fakebroker.cluster.inspect.deadlines import Deadline, pending_deadlines
from fakebroker.cluster.replication.coordinator_moves import Failover
from fakebroker.coordinator.classic.states import GroupState
from fakebroker.coordinator.group_controls import GroupControls
from fakebroker.protocol.messages.heartbeat import HeartbeatRequest
from fakebroker.protocol.messages.sync_group import SyncGroupRequest
from tests.support.cluster.cluster_harness import START_MS
from tests.support.cluster.group_admin_harness import GroupAdminHarness

OFFSETS_EXPIRY = (600.0, "offsets_expiry", None, ())
"""The next check for expired offsets, as returned by `pending`. Every offsets partition with groups has a check."""


def deadlines(groups: GroupAdminHarness) -> list[Deadline]:
    return pending_deadlines(groups.cluster, groups.cluster_harness.now_ms)


def pending(groups: GroupAdminHarness) -> list[Any]:
    """Return the pending deadlines as tuples: seconds until then, kind, group id, member ids."""
    return [(each.in_s, each.kind, each.group_id, each.member_ids) for each in deadlines(groups)]


def members(groups: GroupAdminHarness) -> list[str]:
    """Return the member ids of the only group."""
    (group,) = groups.coordinator.groups.classic.values()
    return list(group.members)


def move_coordinator(groups: GroupAdminHarness, to: int, **options: Any) -> None:
    partition = groups.cluster.offsets_partition(0)
    groups.cluster.controller.set_leader(partition, to, groups.cluster_harness.now_ms, Failover(**options))


def test_no_deadline_is_pending_without_groups() -> None:
    assert deadlines(GroupAdminHarness()) == []


def test_a_deadline_has_a_time_a_broker_and_the_group_or_partition() -> None:
    groups = GroupAdminHarness()
    member_ids = (groups.create_stable_group(),)
    assert deadlines(groups) == [
        Deadline(
            at_ms=START_MS + 10_000,
            in_s=10.0,
            kind="session",
            node_id=1,
            group_id="g",
            member_ids=member_ids,
            removes=member_ids,
            state="Empty",
            restarts_with_requests=True,
        ),
        Deadline(at_ms=START_MS + 600_000, in_s=600.0, kind="offsets_expiry", node_id=1, partition=0),
    ]


def test_the_deadline_of_a_session_is_exact_after_a_heartbeat() -> None:
    groups = GroupAdminHarness()
    member = groups.create_stable_group()
    groups.cluster_harness.advance(4_000)
    assert pending(groups)[0] == (6.0, "session", "g", (member,))
    groups.cluster_harness.ask(HeartbeatRequest(group_id="g", generation_id=1, member_id=member), 4)
    assert groups.cluster.next_deadline() == START_MS + 10_000, "the timer queue still has the earlier deadline"
    assert pending(groups)[0] == (10.0, "session", "g", (member,))


def test_the_deadline_of_a_join_phase_has_the_members_that_have_not_joined() -> None:
    groups = GroupAdminHarness()
    first = groups.create_stable_group()
    assert groups.join() is None
    pending_member = groups.join(version=4)
    _, second = members(groups)
    assert pending(groups) == [
        (10.0, "session", "g", (first,)),
        (10.0, "pending_member", "g", (pending_member,)),
        (60.0, "join", "g", (first,)),  # It ends the wait for the new member, too, whose timer does not expire then.
        OFFSETS_EXPIRY,
    ]
    assert second not in {each for deadline in deadlines(groups) for each in deadline.removes}


def test_a_session_without_effect_is_not_pending() -> None:
    groups = GroupAdminHarness()
    leader = groups.create_stable_group()
    assert groups.join() is None
    assert groups.join(member_id=leader) == leader
    _, follower = members(groups)
    sync = SyncGroupRequest(group_id="g", generation_id=2, member_id=follower, assignments=[])
    assert groups.cluster_harness.send(sync, 3).response is None
    expected = [(10.0, "session", "g", (leader,)), (60.0, "sync", "g", (leader,)), OFFSETS_EXPIRY]
    assert pending(groups) == expected, "the follower's session starts again with the response to its sync"


def test_a_held_group_has_no_deadline_of_its_phase() -> None:
    groups = GroupAdminHarness(group_initial_rebalance_delay_ms=3_000)
    assert groups.join() is None
    (group,) = groups.coordinator.groups.classic.values()
    group.controls = GroupControls(held_states={GroupState.PREPARING_REBALANCE: None})
    assert pending(groups) == [(300.0, "session", "g", tuple(members(groups))), OFFSETS_EXPIRY]


def test_a_delayed_response_has_a_deadline() -> None:
    groups = GroupAdminHarness()
    member = groups.join()
    assert member is not None
    groups.cluster.sync_delays.delay(("g", member), 5_000)
    sync = SyncGroupRequest(group_id="g", generation_id=1, member_id=member, assignments=[])
    assert groups.cluster_harness.send(sync, 3).response is None
    assert deadlines(groups)[0] == Deadline(
        at_ms=START_MS + 5_000, in_s=5.0, kind="late_answer", node_id=1, group_id="g", member_ids=(member,)
    )


def test_the_sync_phase_has_a_deadline() -> None:
    groups = GroupAdminHarness()
    member = groups.join()
    assert pending(groups) == [(10.0, "session", "g", (member,)), (60.0, "sync", "g", (member,)), OFFSETS_EXPIRY]


def test_the_initial_delay_has_a_deadline() -> None:
    groups = GroupAdminHarness(group_initial_rebalance_delay_ms=3_000)
    assert groups.join() is None
    assert pending(groups)[0] == (3.0, "initial_delay", "g", ())


def test_loading_and_stale_lookups_have_deadlines() -> None:
    groups = GroupAdminHarness()
    groups.create_stable_group()
    move_coordinator(groups, 2, load_ms=5_000, stale_ms=2_000)
    assert deadlines(groups) == [
        Deadline(at_ms=START_MS + 2_000, in_s=2.0, kind="stale_lookup", node_id=1, partition=0),
        Deadline(at_ms=START_MS + 5_000, in_s=5.0, kind="load", node_id=2, partition=0),
    ]
    groups.cluster_harness.advance(2_000)
    assert [each.kind for each in deadlines(groups)] == ["load"]
    move_coordinator(groups, 1, load_ms=None)
    assert deadlines(groups) == [], "loading until `finish_loading` has no deadline"


def test_deadlines_at_the_same_time_are_in_the_order_of_creation() -> None:
    groups = GroupAdminHarness()
    first, second = groups.create_stable_group("a"), groups.create_stable_group("b")
    assert [each.member_ids for each in deadlines(groups)][:2] == [(first,), (second,)]
