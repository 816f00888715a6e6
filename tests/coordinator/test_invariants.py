"""Broken invariants of groups are reported, and only the transitions in `TRANSITIONS` are possible.

A new rule in `fakebroker/coordinator/invariants.py` needs a case in `BROKEN`.
"""

from collections.abc import Callable
from math import inf

import pytest

from fakebroker.coordinator.classic.group import Group
from fakebroker.coordinator.classic.states import TRANSITIONS, GroupState
from fakebroker.coordinator.context import OwnContext
from fakebroker.coordinator.invariants import InvariantError, StepChecker, check
from fakebroker.coordinator.snapshot_dict import SnapshotDict
from fakebroker.proposals.batch_join.batch_join_extension import BatchJoinExtension, expected_instances
from fakebroker.proposals.batch_join.expected_instances import ExpectedInstance, WaitingJoin
from tests.support.coordinator.coordinator_harness import START_MS, CoordinatorHarness, protocols
from tests.support.group_requests import join_request
from tests.support.subtests import subtest_for_each

LEADER, FOLLOWER, STATIC = "client-uuid1", "client-uuid2", "i-uuid3"


def group_in(state: str) -> Group:
    """Return a group in a state. Unless it is Empty, its members are `LEADER`, `FOLLOWER` and `STATIC`."""
    harness = CoordinatorHarness()
    if state == "Empty":
        harness.commit()
        return harness.group()
    ids = harness.create_completing_group(2, static=("i",))
    assert ids == [LEADER, FOLLOWER, STATIC]
    if state != "CompletingRebalance":
        harness.sync_all(ids)
    if state == "PreparingRebalance":
        harness.join(LEADER)
    if state == "CompletingRebalance":
        harness.sync(FOLLOWER, 1)
    check(harness.group())
    return harness.group()


def set_field(attribute: str, value: object) -> Callable[[Group], None]:
    return lambda group: setattr(group, attribute, value)


def add_entry(attribute: str, key: str, value: object) -> Callable[[Group], None]:
    def change(group: Group) -> None:
        setattr(group, attribute, SnapshotDict([*getattr(group, attribute).items(), (key, value)]))

    return change


def drop_common_protocol(group: Group) -> None:
    group.members[LEADER].protocols = protocols("x")
    add_entry("protocol_counts", "range", 2)(group)
    add_entry("protocol_counts", "x", 1)(group)


def park_too_many_joins(group: Group) -> None:
    group.config.group_max_size = 1
    add_entry("parked_joins", FOLLOWER, None)(group)


def waiting_join(member_id: str) -> WaitingJoin:
    return WaitingJoin(join_request(member_id=member_id), OwnContext(9, "", ""), "")


def park_a_waiting_join(group: Group) -> None:
    BatchJoinExtension.of(group).expect("x", "x-1", 1, START_MS)
    expected_instances(group).waiting[LEADER] = waiting_join(LEADER)
    expected_instances(group).waiting_deadline_ms = 1.0


def expect_under_another_key(group: Group) -> None:
    expected_instances(group).instances["x"] = ExpectedInstance("y", "y-1", 1, 1.0)


def wait_without_missing_instance(group: Group) -> None:
    expected_instances(group).waiting["x"] = waiting_join("x")


BROKEN: list[tuple[str, Callable[[Group], object], str]] = [
    ("Stable", set_field("state", GroupState.DEAD), "a group of the coordinator is not Dead"),
    ("Stable", set_field("state", GroupState.EMPTY), "Empty group has no members"),
    ("Empty", set_field("state", GroupState.STABLE), "a generation has members"),
    ("Stable", lambda g: setattr(g.members[LEADER], "member_id", "x"), "the key of a member is its id"),
    ("Stable", set_field("leader_id", "x"), "the leader is a member"),
    ("Stable", set_field("leader_id", None), "the leader is a member"),
    ("Stable", lambda g: g.static_members.clear(), "are mapped to their member ids"),
    ("Stable", add_entry("static_members", "j", LEADER), "are mapped to their member ids"),
    ("Stable", add_entry("pending_members", LEADER, 1.0), "a pending id is not a member"),
    ("Stable", set_field("protocol_type", None), "members have a protocol type"),
    ("Stable", add_entry("protocol_counts", "range", 2), "counts of supported protocols"),
    (
        "PreparingRebalance",
        drop_common_protocol,
        "some protocol is supported by all",
    ),
    ("Stable", set_field("protocol_name", "x"), "protocol of a generation"),
    ("Stable", set_field("protocol_type", "connect"), "has subscribed topics"),
    ("Stable", add_entry("parked_joins", LEADER, None), "joins are parked while"),
    ("PreparingRebalance", add_entry("parked_joins", "x", None), "a parked join belongs to a member"),
    ("PreparingRebalance", park_too_many_joins, "no more joins"),
    ("Stable", lambda g: setattr(g.members[LEADER], "is_new", True), "members are new while a rebalance is prepared"),
    ("Stable", add_entry("parked_syncs", LEADER, None), "syncs are parked while"),
    ("CompletingRebalance", add_entry("awaiting_sync", FOLLOWER, None), "is no longer awaited"),
    ("CompletingRebalance", lambda g: g.awaiting_sync.pop(LEADER), "as soon as the leader has synced"),
    ("PreparingRebalance", add_entry("awaiting_sync", LEADER, None), "awaited within a generation"),
    ("CompletingRebalance", add_entry("awaiting_sync", "x", None), "an awaited sync belongs to a member"),
    ("PreparingRebalance", set_field("join_deadline_ms", inf), "the join timer runs"),
    ("Stable", set_field("join_deadline_ms", START_MS), "the join timer runs"),
    ("CompletingRebalance", set_field("sync_deadline_ms", inf), "while a sync is awaited"),
    ("PreparingRebalance", set_field("sync_deadline_ms", START_MS), "within a generation only"),
    ("Stable", lambda g: setattr(g.members[LEADER], "deadline_ms", inf), "or an answer to the member is pending"),
    ("Stable", lambda g: BatchJoinExtension.of(g).expect("x", LEADER, 1, START_MS), "instance is not a member"),
    ("Stable", lambda g: BatchJoinExtension.of(g).expect("i", "i-2", 1, START_MS), "instance is not a member"),
    ("Stable", expect_under_another_key, "the key of an expected instance"),
    ("Stable", wait_without_missing_instance, "only while an expected instance is missing"),
    ("Stable", lambda g: setattr(BatchJoinExtension.of(g).expected, "waiting_deadline_ms", 1.0), "timer of wait"),
    ("PreparingRebalance", park_a_waiting_join, "is not parked in the group"),
    ("Stable", set_field("stored_generation_id", 9), "is not newer than the group's"),
    ("Stable", set_field("scheduled_ms", inf), "scheduled no later than its earliest deadline"),
]  # fmt: skip


@subtest_for_each(("state", "break_rule", "rule"), BROKEN, ids=[f"{state}: {rule}" for state, _, rule in BROKEN])
def test_broken_invariants_are_reported(state: str, break_rule: Callable[[Group], object], rule: str) -> None:
    group = group_in(state)
    break_rule(group)
    with pytest.raises(InvariantError, match=f"group 'g' in state .* breaks a rule: .*{rule}"):
        check(group)


def test_decreasing_generation_is_reported() -> None:
    group, history = group_in("Stable"), StepChecker()
    history.check_step(group)
    group.generation_id = 0
    with pytest.raises(InvariantError, match="group 'g': generation_id=0: expected at least 1"):
        history.check_step(group)


def test_changed_protocol_within_a_generation_is_reported() -> None:
    group, history = group_in("Stable"), StepChecker()
    history.check_step(group)
    group.protocol_name = "other"
    with pytest.raises(InvariantError, match="group 'g': generation 1 has changed its protocol"):
        history.check_step(group)


@subtest_for_each("new", list(GroupState))
@subtest_for_each("old", list(GroupState))
def test_transitions_outside_of_the_table_raise(old: GroupState, new: GroupState) -> None:
    group = group_in("Empty")
    group.state = old
    if new in TRANSITIONS[old]:
        group.transition_to(new, START_MS + 1)
        assert (group.state, group.state_since_ms) == (new, START_MS + 1)
        assert group.is_initial_rebalance == ((old, new) == (GroupState.EMPTY, GroupState.PREPARING_REBALANCE))
    else:
        with pytest.raises(RuntimeError, match=f"group 'g': no transition from {old.value} to {new.value}"):
            group.transition_to(new, START_MS + 1)
