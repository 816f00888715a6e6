"""Batch joins (KAFKA-8397): requests for many members, and expected instances after a failover."""

from fakebroker.coordinator.classic.extension import no_extension
from fakebroker.coordinator.context import OwnContext
from fakebroker.errors import ErrorCode
from fakebroker.proposals.batch_join.join_batch import join_batch
from fakebroker.proposals.batch_join.messages import BatchJoinGroupRequest
from tests.support.coordinator.coordinator_harness import (
    RANGE,
    REBALANCE_MS,
    SESSION_MS,
    CoordinatorHarness,
    expected_member,
    joining_member,
    protocols,
)

NONE = ErrorCode.NONE
FENCED = ErrorCode.FENCED_INSTANCE_ID
UNKNOWN = ErrorCode.UNKNOWN_MEMBER_ID
STICKY = protocols("sticky")


# Requests


def test_batch_joins_in_one_rebalance_and_gets_one_response() -> None:
    harness = CoordinatorHarness()
    (a,) = harness.create_stable_group(1)
    call = harness.join_batch(joining_member(), joining_member(), joining_member(instance_id="s"))
    assert call.is_parked
    assert harness.state() == "PreparingRebalance"
    harness.join(a)
    assert call.errors == [NONE] * 3
    assert call.member_ids == ["batcher-uuid2", "batcher-uuid3", "s-uuid4"]
    assert (call.generation_id, call.batch.leader) == (2, a)
    assert call.batch.members == [], "only a batch with the leader gets the members"
    assert list(harness.group().members) == [a, *call.member_ids]


def test_batch_with_the_leader_gets_the_members_of_the_generation() -> None:
    harness = CoordinatorHarness(group_initial_rebalance_delay_ms=0)
    call = harness.join_batch(joining_member(), joining_member())
    assert call.generation_id == 1
    assert [member.member_id for member in call.batch.members] == call.member_ids


def test_batch_can_register_instances_and_join() -> None:
    harness = CoordinatorHarness(group_initial_rebalance_delay_ms=0)
    call = harness.join_batch(expected_member("x"), joining_member(), expected_member("y"))
    assert call.errors == [NONE] * 3
    assert (call.generation_id, harness.expected_instance_ids()) == (1, ["x", "y"])
    assert list(harness.group().members) == [call.member_ids[1]]


def test_batch_with_all_expected_instances_joins_in_one_rebalance() -> None:
    harness = CoordinatorHarness()
    (a,) = harness.create_stable_group(1)
    x_id, y_id = harness.register("x", "y")
    call = harness.join_batch(joining_member(instance_id="x"), joining_member(instance_id="y"), joining_member())
    harness.join(a)
    assert (call.generation_id, call.member_ids[:2]) == (2, [x_id, y_id])


def test_whole_batch_waits_for_missing_instances_if_it_has_an_expected_one() -> None:
    harness = CoordinatorHarness()
    (a,) = harness.create_stable_group(1)
    harness.register("x", "y")
    call = harness.join_batch(joining_member(instance_id="x"), joining_member(), joining_member(a))
    assert (harness.state(), harness.heartbeat(a, 1)) == ("Stable", NONE)
    harness.join(instance_id="y")
    assert (call.errors, call.generation_id) == ([NONE] * 3, 2)


def test_session_does_not_expire_while_the_member_waits_with_its_batch() -> None:
    harness = CoordinatorHarness()
    (a,) = harness.create_stable_group(1)
    harness.register("x", "y")
    call = harness.join_batch(joining_member(instance_id="x"), joining_member(a, protocols=STICKY))
    harness.advance(2 * SESSION_MS)
    assert list(harness.group().members) == [a]
    harness.join(instance_id="y")
    harness.advance(SESSION_MS)
    assert call.errors == [NONE, ErrorCode.INCONSISTENT_GROUP_PROTOCOL]
    assert a not in harness.group().members, "the session has restarted and expired"


def test_member_that_rejoins_alone_leaves_its_waiting_batch() -> None:
    harness = CoordinatorHarness()
    (a,) = harness.create_stable_group(1)
    harness.register("x", "y")
    call = harness.join_batch(joining_member(instance_id="x"), joining_member(a))
    assert harness.join(a).joined.generation_id == 2
    harness.sync_all([a])
    harness.join(instance_id="y")
    harness.join(a)
    assert call.errors == [NONE, ErrorCode.REBALANCE_IN_PROGRESS]


def test_session_runs_again_when_the_member_leaves_its_waiting_batch() -> None:
    harness = CoordinatorHarness()
    leader, follower = harness.create_stable_group(2)
    harness.register("x", "y")
    harness.join_batch(joining_member(follower), joining_member(instance_id="x"), rebalance_ms=10 * SESSION_MS)
    for _ in range(4):
        harness.heartbeat(leader, 1)
        harness.advance(SESSION_MS / 2)
    assert harness.join(follower).joined.generation_id == 1
    for _ in range(3):
        harness.heartbeat(leader, 1)
        harness.advance(SESSION_MS / 2)
    assert list(harness.group().members) == [leader]


def test_members_with_changed_protocols_rejoin_in_one_rebalance() -> None:
    harness = CoordinatorHarness()
    a, b = harness.create_stable_group(2)
    call = harness.join_batch(
        joining_member(a, protocols=RANGE + STICKY), joining_member(b, protocols=RANGE + STICKY), joining_member()
    )
    assert (call.errors, call.generation_id) == ([NONE] * 3, 2)
    assert harness.group().generation_id == 2


def test_all_members_of_a_batch_rebalance_if_one_needs_it() -> None:
    harness = CoordinatorHarness()
    a, b = harness.create_stable_group(2)
    call = harness.join_batch(joining_member(b), joining_member())
    assert call.is_parked
    harness.join(a)
    assert (call.errors, call.generation_id) == ([NONE, NONE], 2)


def test_unchanged_followers_are_answered_without_a_rebalance() -> None:
    harness = CoordinatorHarness()
    leader, b, static_id = harness.create_stable_group(2, static=("s",))
    call = harness.join_batch(joining_member(b), joining_member(instance_id="s"))
    assert (call.errors, call.generation_id, harness.state()) == ([NONE, NONE], 1, "Stable")
    assert call.batch.leader == leader
    assert call.member_ids[1] != static_id, "a static member is replaced"


def test_replaced_leader_in_a_batch_gets_the_former_leader_id() -> None:
    harness = CoordinatorHarness()
    follower_id, leader_id = harness.create_stable_group(1, static=("s",))[::-1]
    harness.leave((leader_id, None))
    former = harness.group().leader_id
    harness.join(follower_id, instance_id="s")
    harness.sync_all([follower_id])
    call = harness.join_batch(joining_member(instance_id="s"))
    assert (call.batch.leader, call.batch.members) == (former, [])
    assert call.member_ids == [harness.group().leader_id]


def test_static_members_in_a_batch_are_fenced_and_replaced_as_in_single_joins() -> None:
    harness = CoordinatorHarness()
    (_, s_id) = harness.create_stable_group(1, static=("s",))
    call = harness.join_batch(
        joining_member("wrong", "s"), joining_member("unknown"), joining_member(instance_id="bad id")
    )
    assert call.errors == [FENCED, UNKNOWN, ErrorCode.INVALID_REQUEST]
    assert harness.state() == "Stable"
    parked = harness.join(s_id, instance_id="s", protocols=RANGE + STICKY)
    harness.join_batch(joining_member(instance_id="s"))
    assert parked.error is FENCED


def test_parked_join_in_a_batch_is_superseded_by_a_single_join() -> None:
    harness = CoordinatorHarness()
    harness.create_stable_group(1)
    pending = harness.request_member_id()
    call = harness.join_batch(joining_member(pending), joining_member())
    alone = harness.join(pending)
    assert alone.is_parked
    harness.advance(REBALANCE_MS)
    assert call.errors == [ErrorCode.REBALANCE_IN_PROGRESS, NONE]
    assert alone.joined.generation_id == call.generation_id == 2


def test_incompatible_and_excess_members_of_a_batch_are_rejected_and_the_others_join() -> None:
    harness = CoordinatorHarness(group_max_size=2)
    (a,) = harness.create_stable_group(1)
    call = harness.join_batch(joining_member(protocols=STICKY), joining_member(), joining_member())
    harness.join(a)
    too_many = ErrorCode.GROUP_MAX_SIZE_REACHED
    assert call.errors == [ErrorCode.INCONSISTENT_GROUP_PROTOCOL, NONE, too_many]
    assert call.generation_id == 2


def test_session_timeout_is_checked_for_joining_members_only() -> None:
    call = CoordinatorHarness().join_batch(joining_member(), expected_member("x"), session_ms=1)
    assert call.errors == [ErrorCode.INVALID_SESSION_TIMEOUT, NONE]


def test_pending_id_with_an_instance_id_is_rejected() -> None:
    harness = CoordinatorHarness()
    pending = harness.request_member_id()
    assert harness.join_batch(joining_member(pending, "s")).errors == [ErrorCode.UNKNOWN_SERVER_ERROR]


def test_errors_of_the_whole_request_are_repeated_for_each_member() -> None:
    harness = CoordinatorHarness()
    assert (
        harness.join_batch(joining_member(), expected_member("x"), group_id="").errors
        == [ErrorCode.INVALID_GROUP_ID] * 2
    )
    assert harness.join_batch(joining_member("who"), expected_member("x", "who")).errors == [UNKNOWN, FENCED]
    assert harness.state() == "-"
    harness.fail_over(lambda: check_refused(harness, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))
    for partition in harness.partitions:
        harness.coordinator.resign(partition, harness.now_ms)
    check_refused(harness, ErrorCode.NOT_COORDINATOR)


def check_refused(harness: CoordinatorHarness, error: ErrorCode) -> None:
    assert harness.join_batch(joining_member(), expected_member("x")).errors == [error] * 2


def test_empty_batch_is_answered_at_once() -> None:
    harness = CoordinatorHarness()
    assert harness.join_batch().errors == []
    assert harness.state() == "-"


def test_batch_that_nobody_waits_for_is_not_answered() -> None:
    harness = CoordinatorHarness()
    request = BatchJoinGroupRequest(
        group_id="g",
        session_timeout_ms=1,
        rebalance_timeout_ms=REBALANCE_MS,
        protocol_type="consumer",
        join_group_members=[expected_member("x")],
    )
    join_batch(harness.coordinator, request, OwnContext(10, "c", "h"), harness.now_ms)
    assert harness.coordinator.answers == []
    assert harness.expected_instance_ids() == ["x"]


# Failover


def test_expected_instances_survive_a_failover() -> None:
    harness = CoordinatorHarness()
    (a,) = harness.create_stable_group(1)
    x_id, y_id = harness.register("x", "y", rebalance_ms=20_000)
    x = harness.join(instance_id="x")
    harness.advance(15_000)
    harness.heartbeat(a, 1)
    harness.fail_over()
    assert x.error is ErrorCode.NOT_COORDINATOR
    assert harness.expected_instance_ids() == ["x", "y"]
    harness.advance(19_999)
    assert harness.expected_instance_ids() == ["x", "y"], "the timers of registrations restart"
    x, y = harness.join(instance_id="x"), harness.join(y_id, instance_id="y")
    harness.advance(3_000)
    assert [x.joined.member_id, y.joined.member_id] == [x_id, y_id]
    harness.fail_over()
    assert harness.expected_instance_ids() == []


def test_registration_during_a_rebalance_does_not_store_the_rebalance() -> None:
    harness = CoordinatorHarness()
    a, b = harness.create_stable_group(2)
    harness.join(a, protocols=STICKY + RANGE)
    harness.register("x")
    harness.join(b)
    harness.register("y")
    harness.fail_over()
    group = harness.group()
    assert (harness.state(), group.generation_id, group.members[b].assignment) == ("Stable", 1, b.encode())
    assert harness.expected_instance_ids() == ["x", "y"]


def test_expired_and_removed_registrations_are_not_restored() -> None:
    harness = CoordinatorHarness()
    harness.register("x", rebalance_ms=5_000)
    harness.register("y")
    harness.advance(5_000)
    harness.leave(("", "y"))
    harness.fail_over()
    assert harness.expected_instance_ids() == []


def test_registration_of_a_stored_member_is_not_restored() -> None:
    harness = CoordinatorHarness()
    harness.create_stable_group(1, static=("i",))
    harness.leave(("", "i"))
    harness.register("i", "x")
    harness.fail_over()
    assert "i" in harness.group().static_members
    assert harness.expected_instance_ids() == ["x"]


def test_coordinator_without_the_extension_ignores_stored_registrations() -> None:
    harness = CoordinatorHarness()
    harness.register("x")
    harness.fail_over(extension=no_extension)
    assert harness.expected_instance_ids() == []


def test_registrations_beyond_the_group_size_are_not_restored() -> None:
    harness = CoordinatorHarness()
    harness.create_stable_group(1)
    harness.register("x", "y", "z")
    harness.fail_over(group_max_size=3)
    assert harness.expected_instance_ids() == ["x", "y"]


def test_registration_that_cannot_be_stored_is_rejected() -> None:
    harness = CoordinatorHarness()
    harness.append_error = ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert (
        harness.join_batch(expected_member("x"), joining_member()).errors == [ErrorCode.COORDINATOR_NOT_AVAILABLE] * 2
    )
    assert harness.state() == "-"
    harness.append_error = NONE
    harness.create_stable_group(1)
    harness.append_error = ErrorCode.NOT_COORDINATOR
    assert harness.join_batch(expected_member("x")).errors == [ErrorCode.NOT_COORDINATOR]
    assert harness.expected_instance_ids() == []


def test_batch_gets_the_error_of_storing_its_new_group() -> None:
    harness = CoordinatorHarness()
    harness.append_error = ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert harness.join_batch(joining_member(), joining_member()).errors == [ErrorCode.COORDINATOR_NOT_AVAILABLE] * 2
    assert harness.state() == "-"


def test_parked_batch_gets_not_coordinator_in_a_failover() -> None:
    harness = CoordinatorHarness()
    (a,) = harness.create_stable_group(1)
    call = harness.join_batch(joining_member(), joining_member())
    harness.fail_over()
    assert call.errors == [ErrorCode.NOT_COORDINATOR] * 2
    assert list(harness.group().members) == [a]
