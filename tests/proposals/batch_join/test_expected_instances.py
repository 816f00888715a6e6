"""Expected instances (KAFKA-8397): their registration, the wait for all of them, and LeaveGroup.

A join of an expected instance waits, without a change of the group's state, until all expected instances have joined.
Registrations and waits last `REBALANCE_MS` by default.
"""

from fakebroker.coordinator.committed_offsets import expired_records
from fakebroker.errors import ErrorCode
from tests.support.coordinator.coordinator_harness import (
    RANGE,
    REBALANCE_MS,
    CoordinatorHarness,
    SentRequest,
    expected_member,
    joining_member,
    protocols,
)
from tests.support.subtests import subtest_for_each

NONE = ErrorCode.NONE
FENCED = ErrorCode.FENCED_INSTANCE_ID
UNKNOWN = ErrorCode.UNKNOWN_MEMBER_ID
STICKY = protocols("sticky")


def rejoin(harness: CoordinatorHarness, member_ids: list[str]) -> list[SentRequest]:
    return [harness.join(member_id) for member_id in member_ids]


# Registration


def test_registration_returns_member_ids_and_leaves_the_group_unchanged() -> None:
    harness = CoordinatorHarness()
    a, b = harness.create_stable_group(2)
    call = harness.join_batch(expected_member("x"), expected_member("y"))
    assert call.errors == [NONE, NONE]
    assert call.member_ids == ["x-uuid3", "y-uuid4"]
    assert (call.generation_id, call.batch.members) == (-1, [])
    assert (harness.state(), harness.group().generation_id, list(harness.group().members)) == ("Stable", 1, [a, b])
    assert harness.heartbeat(a, 1) is NONE
    assert harness.heartbeat("x-uuid3", 1, "x") is UNKNOWN


def test_registration_creates_a_missing_group() -> None:
    harness = CoordinatorHarness()
    harness.register("x")
    assert harness.state() == "Empty"
    assert harness.expected_instance_ids() == ["x"]


def test_registrations_of_several_requests_add_up() -> None:
    harness = CoordinatorHarness()
    harness.register("x")
    harness.register("y")
    assert harness.expected_instance_ids() == ["x", "y"]
    assert harness.join(instance_id="x").is_parked
    assert harness.state() == "Empty"
    harness.join(instance_id="y")
    assert harness.state() == "PreparingRebalance"


@subtest_for_each("instance_id", [None, "", ".", "..", "a b", "ä", "x\n", "x" * 250])
def test_illegal_instance_ids_are_rejected(instance_id: str | None) -> None:
    harness = CoordinatorHarness()
    assert harness.join_batch(expected_member(instance_id), expected_member("ok")).errors == [
        ErrorCode.INVALID_REQUEST,
        NONE,
    ]
    assert harness.expected_instance_ids() == ["ok"]


@subtest_for_each("instance_id", ["...", "x" * 249, "A-z_0.9"])
def test_legal_instance_ids_are_accepted(instance_id: str) -> None:
    assert CoordinatorHarness().join_batch(expected_member(instance_id)).errors == [NONE]


def test_registering_a_known_instance_returns_duplicate_resource_and_its_id() -> None:
    harness = CoordinatorHarness()
    _, member_id = harness.create_stable_group(1, static=("m",))
    (expected_id,) = harness.register("x")
    call = harness.join_batch(expected_member("x"), expected_member("m"), expected_member("x2"))
    assert call.errors == [ErrorCode.DUPLICATE_RESOURCE, ErrorCode.DUPLICATE_RESOURCE, NONE]
    assert call.member_ids[:2] == [expected_id, member_id]


def test_instance_that_is_twice_in_a_batch_is_fenced() -> None:
    harness = CoordinatorHarness()
    assert harness.join_batch(expected_member("x"), expected_member("y"), expected_member("x")).errors == [
        FENCED,
        NONE,
        FENCED,
    ]
    assert harness.join_batch(joining_member(instance_id="z"), expected_member("z")).errors == [FENCED, FENCED]
    assert harness.expected_instance_ids() == ["y"]


def test_registration_with_another_member_id_is_fenced() -> None:
    harness = CoordinatorHarness()
    assert harness.join_batch(expected_member("new", "wrong")).errors == [FENCED]
    assert harness.state() == "-"
    _, member_id = harness.create_stable_group(1, static=("m",))
    (expected_id,) = harness.register("x")
    call = harness.join_batch(
        expected_member("m", "wrong"), expected_member("x", "wrong"), expected_member("new", "wrong")
    )
    assert call.errors == [FENCED] * 3
    assert harness.join_batch(expected_member("m", member_id)).errors == [ErrorCode.DUPLICATE_RESOURCE]
    assert harness.join_batch(expected_member("x", expected_id)).errors == [ErrorCode.DUPLICATE_RESOURCE]


def test_group_max_size_counts_members_and_expected_instances() -> None:
    harness = CoordinatorHarness(group_max_size=3)
    harness.create_stable_group(1)
    assert harness.join_batch(expected_member("x"), expected_member("y"), expected_member("z")).errors == [
        NONE,
        NONE,
        ErrorCode.GROUP_MAX_SIZE_REACHED,
    ]
    assert harness.join().error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert harness.join(instance_id="x").is_parked
    assert harness.join(instance_id="y").is_parked
    assert harness.state() == "PreparingRebalance"


def test_group_max_size_counts_expected_instances_of_an_empty_group() -> None:
    harness = CoordinatorHarness(group_max_size=1)
    harness.register("x")
    assert harness.join().error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert harness.join(instance_id="x").is_parked


# The wait for all instances


def test_joins_wait_until_the_last_expected_instance_has_joined() -> None:
    harness = CoordinatorHarness()
    a, b = harness.create_stable_group(2)
    x_id, y_id, z_id = harness.register("x", "y", "z")
    x, y = harness.join(instance_id="x"), harness.join(y_id, instance_id="y")
    assert x.is_parked
    assert y.is_parked
    assert (harness.state(), harness.group().generation_id) == ("Stable", 1)
    assert harness.heartbeat(a, 1) is NONE
    assert harness.commit(a, 1) is NONE
    z = harness.join(instance_id="z")
    assert harness.state() == "PreparingRebalance"
    assert harness.heartbeat(a, 1) is ErrorCode.REBALANCE_IN_PROGRESS
    rejoin(harness, [a, b])
    assert [call.joined.member_id for call in (x, y, z)] == [x_id, y_id, z_id]
    assert {call.joined.generation_id for call in (x, y, z)} == {2}
    assert list(harness.group().members) == [a, b, x_id, y_id, z_id]
    assert not harness.expected_instance_ids()
    harness.sync_all([a, b, x_id, y_id, z_id])


def test_wait_ends_after_the_rebalance_timeout_of_the_first_join() -> None:
    harness = CoordinatorHarness()
    (a,) = harness.create_stable_group(1)
    harness.register("x", "y", "z")
    harness.advance(5_000)
    harness.heartbeat(a, 1)
    x = harness.join(instance_id="x", rebalance_ms=8_000)
    harness.advance(5_000)
    harness.heartbeat(a, 1)
    y = harness.join(instance_id="y", rebalance_ms=30_000)
    harness.advance(2_999)
    assert harness.state() == "Stable"
    harness.advance(1)
    assert harness.state() == "PreparingRebalance"
    rejoin(harness, [a])
    assert x.joined.generation_id == y.joined.generation_id == 2
    assert harness.expected_instance_ids() == []
    z = harness.join(instance_id="z")
    assert harness.state() == "PreparingRebalance", "a late instance joins like any other member"
    harness.join(a), harness.join(x.joined.member_id), harness.join(y.joined.member_id)
    assert z.joined.generation_id == 3


def test_each_registration_has_its_own_deadline_while_no_join_waits() -> None:
    harness = CoordinatorHarness()
    harness.register("x", rebalance_ms=5_000)
    harness.advance(1_000)
    harness.register("y", rebalance_ms=5_000)
    harness.advance(4_000)
    assert harness.expected_instance_ids() == ["y"]
    harness.advance(999)
    assert harness.expected_instance_ids() == ["y"]
    harness.advance(1)
    assert harness.expected_instance_ids() == []
    assert harness.group().generation_id == 0


def test_registrations_do_not_expire_while_joins_wait() -> None:
    harness = CoordinatorHarness()
    harness.register("x", "y", rebalance_ms=5_000)
    harness.advance(4_000)
    x = harness.join(instance_id="x", rebalance_ms=60_000)
    harness.advance(59_999)
    assert x.is_parked
    assert harness.expected_instance_ids() == ["x", "y"]
    harness.advance(1)
    assert not harness.expected_instance_ids()


def test_registrations_whose_deadline_passed_expire_when_the_last_waiting_join_ends() -> None:
    harness = CoordinatorHarness()
    harness.register("x", "y", rebalance_ms=5_000)
    harness.join(instance_id="x")
    harness.advance(20_000)
    assert harness.expected_instance_ids() == ["x", "y"]
    assert harness.leave(("", "x")) == [NONE]
    harness.advance(0)
    assert harness.expected_instance_ids() == [], "the deadline of y passed while x waited"


def test_join_of_an_expected_instance_with_another_member_id_is_fenced() -> None:
    harness = CoordinatorHarness()
    harness.register("x", "y")
    assert harness.join("wrong", instance_id="x").error is FENCED
    assert harness.waiting_member_ids() == []


def test_repeated_join_without_member_id_fences_the_older_one() -> None:
    harness = CoordinatorHarness()
    x_id, _ = harness.register("x", "y")
    older = harness.join(instance_id="x")
    newer = harness.join(instance_id="x")
    assert older.error is FENCED
    assert newer.is_parked
    assert harness.waiting_member_ids() == [x_id]
    harness.join(instance_id="y")
    harness.advance(3_000)
    assert newer.joined.member_id == x_id


def test_repeated_join_does_not_extend_the_wait() -> None:
    harness = CoordinatorHarness()
    harness.register("x", "y")
    harness.join(instance_id="x")
    harness.advance(REBALANCE_MS - 1)
    harness.join(instance_id="x")
    harness.advance(1)
    assert harness.state() == "PreparingRebalance"


def test_repeated_join_with_member_id_supersedes_the_older_one() -> None:
    harness = CoordinatorHarness()
    x_id, _ = harness.register("x", "y")
    older, newer = harness.join(x_id, instance_id="x"), harness.join(x_id, instance_id="x")
    harness.join(instance_id="y")
    harness.advance(3_000)
    assert older.is_parked, "never answered, as in Kafka"
    assert newer.joined.member_id == x_id


@subtest_for_each("others", ["members", "waiting instances", "none"])
def test_incompatible_protocols_are_rejected_at_once(others: str) -> None:
    harness = CoordinatorHarness()
    if others == "members":
        harness.create_stable_group(1)
    harness.register("x", "y")
    if others == "waiting instances":
        harness.join(instance_id="x")
        assert harness.join(instance_id="y", protocol_type="connect").error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    wanted = () if others == "none" else STICKY
    assert harness.join(instance_id="y", protocols=wanted).error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert harness.join(instance_id="y", protocols=STICKY + RANGE).is_parked


def test_join_that_became_incompatible_is_rejected_at_the_end_of_the_wait() -> None:
    harness = CoordinatorHarness()
    (a,) = harness.create_stable_group(1, protocols=RANGE + STICKY)
    harness.register("x", "y")
    x = harness.join(instance_id="x", protocols=STICKY)
    assert harness.join(a, protocols=RANGE).joined.generation_id == 2
    harness.sync_all([a])
    harness.join(instance_id="y", protocols=STICKY + RANGE)
    assert x.error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert harness.state() == "PreparingRebalance"


def test_other_members_rebalance_while_joins_wait() -> None:
    harness = CoordinatorHarness()
    (a,) = harness.create_stable_group(1)
    harness.register("x", "y")
    x = harness.join(instance_id="x")
    b = harness.join()
    harness.join(a)
    assert b.joined.generation_id == 2
    harness.sync_all([a, b.joined.member_id])
    assert x.is_parked
    harness.join(instance_id="y")
    rejoin(harness, [a, b.joined.member_id])
    assert x.joined.generation_id == 3


def test_last_expected_instance_joins_a_rebalance_in_progress() -> None:
    harness = CoordinatorHarness()
    a, b = harness.create_stable_group(2)
    harness.register("x")
    harness.join(a)
    x = harness.join(instance_id="x")
    assert x.is_parked
    harness.join(b)
    assert x.joined.generation_id == 2


def test_last_expected_instance_ends_completing_rebalance() -> None:
    harness = CoordinatorHarness()
    a, b = harness.create_completing_group(2)
    follower = harness.sync(b, 1)
    harness.register("x")
    x = harness.join(instance_id="x")
    assert follower.error is ErrorCode.REBALANCE_IN_PROGRESS
    rejoin(harness, [a, b])
    assert x.joined.generation_id == 2


@subtest_for_each("delay_ms", [0, 3_000])
def test_expected_instances_of_an_empty_group_form_the_first_generation(delay_ms: int) -> None:
    harness = CoordinatorHarness(group_initial_rebalance_delay_ms=delay_ms)
    harness.register("x", "y", "z")
    calls = [harness.join(instance_id=instance_id) for instance_id in ("z", "x", "y")]
    assert all(call.is_parked for call in calls) is bool(delay_ms)
    harness.advance(delay_ms)
    assert [call.joined.generation_id for call in calls] == [1, 1, 1]
    assert calls[0].joined.leader == calls[0].joined.member_id, "the first member leads"
    assert len(calls[0].joined.members) == 3


# LeaveGroup and deletion


@subtest_for_each("how", ["instance", "member", "both"])
def test_leave_group_removes_an_expected_instance(how: str) -> None:
    harness = CoordinatorHarness()
    (a,) = harness.create_stable_group(1)
    x_id, _ = harness.register("x", "y")
    x = harness.join(instance_id="x")
    identity = {"instance": ("", "x"), "member": (x_id, None), "both": (x_id, "x")}[how]
    assert harness.leave(identity) == [NONE]
    assert x.error is UNKNOWN
    assert harness.expected_instance_ids() == ["y"]
    assert (harness.state(), harness.heartbeat(a, 1)) == ("Stable", NONE)
    assert harness.leave(identity) == [UNKNOWN]


def test_leave_group_of_an_expected_instance_with_another_member_id_is_fenced() -> None:
    harness = CoordinatorHarness()
    harness.register("x")
    assert harness.leave(("wrong", "x")) == [FENCED]
    assert harness.expected_instance_ids() == ["x"]


def test_leave_group_of_the_last_missing_instance_ends_the_wait() -> None:
    harness = CoordinatorHarness()
    a, b = harness.create_stable_group(2)
    harness.register("x", "y")
    x = harness.join(instance_id="x")
    assert harness.leave(("", "y"), (b, None)) == [NONE, NONE]
    assert harness.state() == "PreparingRebalance"
    harness.join(a)
    assert x.joined.generation_id == 2, "one rebalance for both"


def test_leave_group_of_a_member_and_the_missing_instance_starts_a_rebalance() -> None:
    harness = CoordinatorHarness()
    a, b, c = harness.create_stable_group(3)
    harness.register("x", "y")
    batch = harness.join_batch(joining_member(b), joining_member(instance_id="x"))
    assert harness.leave((c, None), ("", "x"), ("", "y")) == [NONE] * 3
    assert batch.errors == [NONE, UNKNOWN]
    assert harness.state() == "PreparingRebalance"
    for call in rejoin(harness, [a, b]):
        assert call.error is NONE
    assert list(harness.group().members) == [a, b]


def test_group_with_waiting_joins_cannot_be_deleted() -> None:
    harness = CoordinatorHarness()
    harness.register("x", "y")
    harness.join(instance_id="x")
    assert harness.delete_group() is ErrorCode.NON_EMPTY_GROUP


def test_expected_instances_are_deleted_with_their_group() -> None:
    harness = CoordinatorHarness()
    harness.register("x")
    assert harness.delete_group() is NONE
    harness.fail_over()
    assert harness.state() == "-"


def test_group_with_expected_instances_does_not_expire() -> None:
    harness = CoordinatorHarness()
    harness.register("x", rebalance_ms=700_000_000)
    assert expired_records(harness.group(), harness.now_ms) == []
    harness.advance(650_000_000)
    assert harness.state() == "Empty"
    harness.advance(51_000_000)
    assert harness.state() == "-"
