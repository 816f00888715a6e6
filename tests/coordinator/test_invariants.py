"""The invariants notice what they say they do, and the transition table is what Kafka allows."""

from collections.abc import Callable
from math import inf

import pytest

from fakebroker.coordinator.group.api import JoinGroup
from fakebroker.coordinator.group.batch_join.batch_join_extension import BatchJoinExtension, expected_instances
from fakebroker.coordinator.group.batch_join.expected_instances import ExpectedInstance, WaitingJoin
from fakebroker.coordinator.group.classic.group import Group
from fakebroker.coordinator.group.classic.states import TRANSITIONS, GroupState
from fakebroker.coordinator.group.invariants import InvariantError, StepChecker, check
from tests.support.coordinator.coordinator_harness import START_MS, CoordinatorHarness, protocols

LEADER, FOLLOWER, STATIC = "client-uuid1", "client-uuid2", "i-uuid3"


def group_in(state: str) -> Group:
    """Leader, follower and static member."""
    driver = CoordinatorHarness()
    if state == "Empty":
        driver.commit()
        return driver.group()
    ids = driver.complete(2, static=("i",))
    assert ids == [LEADER, FOLLOWER, STATIC]
    if state != "CompletingRebalance":
        driver.sync_all(ids)
    if state == "PreparingRebalance":
        driver.join(LEADER)
    if state == "CompletingRebalance":
        driver.sync(FOLLOWER, 1)
    check(driver.group())
    return driver.group()


def spoil(attribute: str, value: object) -> Callable[[Group], None]:
    return lambda group: setattr(group, attribute, value)


def give_up_common_protocol(group: Group) -> None:
    group.members[LEADER].protocols = protocols("x")
    group.protocol_counts.update(range=2, x=1)


def park_one_too_many(group: Group) -> None:
    group.config.group_max_size = 1
    group.parked_joins[FOLLOWER] = None


def arrival(member_id: str) -> WaitingJoin:
    request = JoinGroup(
        member_id=member_id,
        instance_id=None,
        client_id="c",
        client_host="h",
        session_timeout_ms=1,
        rebalance_timeout_ms=1,
        protocol_type="consumer",
        protocols=(),
        requires_member_id=False,
        supports_skip_assignment=False,
    )
    return WaitingJoin(request, None, "")


def wait_and_be_parked(group: Group) -> None:
    BatchJoinExtension.of(group).expect("x", "x-1", 1, START_MS)
    expected_instances(group).waiting[LEADER] = arrival(LEADER)
    expected_instances(group).waiting_deadline_ms = 1.0


def expect_under_another_id(group: Group) -> None:
    expected_instances(group).instances["x"] = ExpectedInstance("y", "y-1", 1, 1.0)


def wait_for_nobody(group: Group) -> None:
    expected_instances(group).waiting["x"] = arrival("x")


SPOILED: list[tuple[str, Callable[[Group], object], str]] = [
    ("Stable", spoil("state", GroupState.DEAD), "a group of the coordinator is not Dead"),
    ("Stable", spoil("state", GroupState.EMPTY), "Empty group has no members"),
    ("Empty", spoil("state", GroupState.STABLE), "a generation has members"),
    ("Stable", lambda g: setattr(g.members[LEADER], "member_id", "x"), "the key of a member is its id"),
    ("Stable", spoil("leader_id", "x"), "the leader is a member"),
    ("Stable", spoil("leader_id", None), "the leader is a member"),
    ("Stable", lambda g: g.static_members.clear(), "are mapped to their member ids"),
    ("Stable", lambda g: g.static_members.update(j=LEADER), "are mapped to their member ids"),
    ("Stable", lambda g: g.pending_members.update({LEADER: 1.0}), "a pending id is not a member"),
    ("Stable", spoil("protocol_type", None), "members have a protocol type"),
    ("Stable", lambda g: g.protocol_counts.update(range=2), "counts of supported protocols"),
    (
        "PreparingRebalance",
        give_up_common_protocol,
        "some protocol is supported by all",
    ),
    ("Stable", spoil("protocol_name", "x"), "protocol of a generation"),
    ("Stable", spoil("protocol_type", "connect"), "has subscribed topics"),
    ("Stable", lambda g: g.parked_joins.update({LEADER: None}), "joins are parked while"),
    ("PreparingRebalance", lambda g: g.parked_joins.update(x=None), "a parked join is a member's"),
    ("PreparingRebalance", park_one_too_many, "no more joins"),
    ("Stable", lambda g: setattr(g.members[LEADER], "is_new", True), "a new member's join is parked"),
    ("Stable", lambda g: g.parked_syncs.update({LEADER: None}), "syncs are parked while"),
    ("CompletingRebalance", lambda g: g.awaiting_sync.update({FOLLOWER: None}), "is no longer awaited"),
    ("CompletingRebalance", lambda g: g.awaiting_sync.pop(LEADER), "as soon as the leader has synced"),
    ("PreparingRebalance", lambda g: g.awaiting_sync.update({LEADER: None}), "awaited within a generation"),
    ("CompletingRebalance", lambda g: g.awaiting_sync.update(x=None), "an awaited sync is a member's"),
    ("PreparingRebalance", spoil("join_deadline_ms", inf), "the join timer runs"),
    ("Stable", spoil("join_deadline_ms", START_MS), "the join timer runs"),
    ("CompletingRebalance", spoil("sync_deadline_ms", inf), "while a sync is awaited"),
    ("PreparingRebalance", spoil("sync_deadline_ms", START_MS), "within a generation only"),
    ("Stable", lambda g: setattr(g.members[LEADER], "deadline_ms", inf), "or an answer to the member is pending"),
    ("Stable", lambda g: BatchJoinExtension.of(g).expect("x", LEADER, 1, START_MS), "expected instance is not a member"),
    ("Stable", lambda g: BatchJoinExtension.of(g).expect("i", "i-2", 1, START_MS), "expected instance is not a member"),
    ("Stable", expect_under_another_id, "the key of an expected instance"),
    ("Stable", wait_for_nobody, "only while an expected instance is missing"),
    ("Stable", lambda g: setattr(BatchJoinExtension.of(g).expected, "waiting_deadline_ms", 1.0), "timer of waiting joins"),
    ("PreparingRebalance", wait_and_be_parked, "is not parked in the group"),
    ("Stable", lambda g: setattr(g.stored, "generation_id", 9), "is not newer than the group's"),
    ("Stable", spoil("scheduled_ms", inf), "scheduled no later than its earliest deadline"),
]  # fmt: skip


@pytest.mark.parametrize(("state", "spoil_it", "rule"), SPOILED)
def test_a_spoiled_group_is_noticed(state: str, spoil_it: Callable[[Group], object], rule: str) -> None:
    group = group_in(state)
    spoil_it(group)
    with pytest.raises(InvariantError, match=f"group 'g' in state .* breaks a rule: .*{rule}"):
        check(group)


def test_history_notices_a_generation_that_goes_back() -> None:
    group, history = group_in("Stable"), StepChecker()
    history.check_step(group)
    group.generation_id = 0
    with pytest.raises(InvariantError, match="group 'g': generation_id=0: expected at least 1"):
        history.check_step(group)


def test_history_notices_a_protocol_that_changes_within_a_generation() -> None:
    group, history = group_in("Stable"), StepChecker()
    history.check_step(group)
    group.protocol_name = "other"
    with pytest.raises(InvariantError, match="group 'g': generation 1 has changed its protocol"):
        history.check_step(group)


@pytest.mark.parametrize("old", GroupState)
@pytest.mark.parametrize("new", GroupState)
def test_only_transitions_of_the_table_are_made(old: GroupState, new: GroupState) -> None:
    group = group_in("Empty")
    group.state = old
    if new in TRANSITIONS[old]:
        group.transition_to(new, START_MS + 1)
        assert (group.previous_state, group.state, group.state_since_ms) == (old, new, START_MS + 1)
    else:
        with pytest.raises(RuntimeError, match=f"group 'g': no transition from {old.value} to {new.value}"):
            group.transition_to(new, START_MS + 1)
