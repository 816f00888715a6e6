"""Instances that are to come together (KAFKA-8397): registering, waiting, leaving."""

import pytest

from fakebroker.coordinator.group.batch_join.batch_join_extension import expected_instances
from fakebroker.coordinator.group.offset_requests import expired_records
from fakebroker.errors import ErrorCode
from tests.support.coordinator.batch_joins import batch, expected, joining, register
from tests.support.coordinator.coordinator_harness import (
    RANGE,
    REBALANCE_MS,
    Call,
    CoordinatorHarness,
    protocols,
    result_of,
)

NONE = ErrorCode.NONE
FENCED = ErrorCode.FENCED_INSTANCE_ID
UNKNOWN = ErrorCode.UNKNOWN_MEMBER_ID
STICKY = protocols("sticky")


def waiting(driver: CoordinatorHarness) -> list[str]:
    return list(expected_instances(driver.group()).waiting)


def expected_ids(driver: CoordinatorHarness) -> list[str]:
    return list(expected_instances(driver.group()).instances)


def rejoin(driver: CoordinatorHarness, member_ids: list[str]) -> list[Call]:
    return [driver.join(member_id) for member_id in member_ids]


# Registering


def test_a_registration_is_answered_at_once_with_ids_and_changes_nothing_else() -> None:
    driver = CoordinatorHarness()
    a, b = driver.stable(2)
    call = batch(driver, expected("x"), expected("y"))
    assert call.errors == [NONE, NONE]
    assert call.member_ids == ["x-uuid3", "y-uuid4"]
    assert (call.generation_id, call.batch.generation.members) == (-1, ())
    assert (driver.state(), driver.group().generation_id, list(driver.group().members)) == ("Stable", 1, [a, b])
    assert driver.heartbeat(a, 1) is NONE
    assert driver.heartbeat("x-uuid3", 1, "x") is UNKNOWN


def test_a_registration_makes_the_group_if_there_is_none() -> None:
    driver = CoordinatorHarness()
    register(driver, "x")
    assert driver.state() == "Empty"
    assert expected_ids(driver) == ["x"]


def test_registrations_add_up() -> None:
    driver = CoordinatorHarness()
    register(driver, "x")
    register(driver, "y")
    assert expected_ids(driver) == ["x", "y"]
    assert driver.join(instance_id="x").is_parked
    assert driver.state() == "Empty"
    assert not driver.join(instance_id="y").is_parked or driver.state() == "PreparingRebalance"


@pytest.mark.parametrize("instance_id", [None, "", ".", "..", "a b", "ä", "x\n", "x" * 250])
def test_an_instance_id_has_to_be_legal(instance_id: str | None) -> None:
    driver = CoordinatorHarness()
    assert batch(driver, expected(instance_id), expected("ok")).errors == [ErrorCode.INVALID_REQUEST, NONE]
    assert expected_ids(driver) == ["ok"]


@pytest.mark.parametrize("instance_id", ["...", "x" * 249, "A-z_0.9"])
def test_legal_instance_ids(instance_id: str) -> None:
    assert batch(CoordinatorHarness(), expected(instance_id)).errors == [NONE]


def test_who_is_expected_or_a_member_already_is_a_duplicate_and_told_its_id() -> None:
    driver = CoordinatorHarness()
    _, member_id = driver.stable(1, static=("m",))
    (expected_id,) = register(driver, "x")
    call = batch(driver, expected("x"), expected("m"), expected("x2"))
    assert call.errors == [ErrorCode.DUPLICATE_RESOURCE, ErrorCode.DUPLICATE_RESOURCE, NONE]
    assert call.member_ids[:2] == [expected_id, member_id]


def test_the_same_instance_twice_is_fenced_each_time() -> None:
    driver = CoordinatorHarness()
    assert batch(driver, expected("x"), expected("y"), expected("x")).errors == [FENCED, NONE, FENCED]
    assert batch(driver, joining(instance_id="z"), expected("z")).errors == [FENCED, FENCED]
    assert expected_ids(driver) == ["y"]


def test_a_member_id_has_to_be_the_instances() -> None:
    driver = CoordinatorHarness()
    assert batch(driver, expected("new", "wrong")).errors == [FENCED]
    assert driver.state() == "-"
    _, member_id = driver.stable(1, static=("m",))
    (expected_id,) = register(driver, "x")
    call = batch(driver, expected("m", "wrong"), expected("x", "wrong"), expected("new", "wrong"))
    assert call.errors == [FENCED] * 3
    assert batch(driver, expected("m", member_id)).errors == [ErrorCode.DUPLICATE_RESOURCE]
    assert batch(driver, expected("x", expected_id)).errors == [ErrorCode.DUPLICATE_RESOURCE]


def test_members_and_expectations_count_for_the_size() -> None:
    driver = CoordinatorHarness(group_max_size=3)
    driver.stable(1)
    assert batch(driver, expected("x"), expected("y"), expected("z")).errors == [
        NONE,
        NONE,
        ErrorCode.GROUP_MAX_SIZE_REACHED,
    ]
    assert driver.join().error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert driver.join(instance_id="x").is_parked
    assert driver.join(instance_id="y").is_parked
    assert driver.state() == "PreparingRebalance"


def test_in_an_empty_group_expectations_count_too() -> None:
    driver = CoordinatorHarness(group_max_size=1)
    register(driver, "x")
    assert driver.join().error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert driver.join(instance_id="x").is_parked


# Waiting


def test_joins_are_parked_and_the_group_stays_as_it_is_until_the_last_has_come() -> None:
    driver = CoordinatorHarness()
    a, b = driver.stable(2)
    x_id, y_id, z_id = register(driver, "x", "y", "z")
    x, y = driver.join(instance_id="x"), driver.join(y_id, instance_id="y")
    assert x.is_parked
    assert y.is_parked
    assert (driver.state(), driver.group().generation_id) == ("Stable", 1)
    assert driver.heartbeat(a, 1) is NONE
    assert driver.commit(a, 1) is NONE
    z = driver.join(instance_id="z")
    assert driver.state() == "PreparingRebalance"
    assert driver.heartbeat(a, 1) is ErrorCode.REBALANCE_IN_PROGRESS
    rejoin(driver, [a, b])
    assert [call.joined.member_id for call in (x, y, z)] == [x_id, y_id, z_id]
    assert {call.joined.generation_id for call in (x, y, z)} == {2}
    assert list(driver.group().members) == [a, b, x_id, y_id, z_id]
    assert not expected_ids(driver)
    driver.sync_all([a, b, x_id, y_id, z_id])


def test_after_the_rebalance_timeout_since_the_first_one_round_takes_all_that_are_there() -> None:
    driver = CoordinatorHarness()
    (a,) = driver.stable(1)
    register(driver, "x", "y", "z")
    driver.advance(5_000)
    driver.heartbeat(a, 1)
    x = driver.join(instance_id="x", rebalance_ms=8_000)
    driver.advance(5_000)
    driver.heartbeat(a, 1)
    y = driver.join(instance_id="y", rebalance_ms=30_000)
    driver.advance(2_999)
    assert driver.state() == "Stable"
    driver.advance(1)
    assert driver.state() == "PreparingRebalance"
    rejoin(driver, [a])
    assert x.joined.generation_id == y.joined.generation_id == 2
    assert expected_ids(driver) == []
    z = driver.join(instance_id="z")
    assert driver.state() == "PreparingRebalance", "a latecomer joins as usual"
    driver.join(a), driver.join(x.joined.member_id), driver.join(y.joined.member_id)
    assert z.joined.generation_id == 3


def test_an_expectation_that_nobody_meets_expires_by_itself() -> None:
    driver = CoordinatorHarness()
    register(driver, "x", rebalance_ms=5_000)
    driver.advance(1_000)
    register(driver, "y", rebalance_ms=5_000)
    driver.advance(4_000)
    assert expected_ids(driver) == ["y"]
    driver.advance(999)
    assert expected_ids(driver) == ["y"]
    driver.advance(1)
    assert expected_ids(driver) == []
    assert driver.group().generation_id == 0


def test_no_expectation_expires_while_somebody_waits() -> None:
    driver = CoordinatorHarness()
    register(driver, "x", "y", rebalance_ms=5_000)
    driver.advance(4_000)
    x = driver.join(instance_id="x", rebalance_ms=60_000)
    driver.advance(59_999)
    assert x.is_parked
    assert expected_ids(driver) == ["x", "y"]
    driver.advance(1)
    assert not expected_ids(driver)


def test_who_waits_no_more_leaves_the_others_their_own_time() -> None:
    driver = CoordinatorHarness()
    register(driver, "x", "y", rebalance_ms=5_000)
    driver.join(instance_id="x")
    driver.advance(20_000)
    assert expected_ids(driver) == ["x", "y"]
    assert driver.leave(("", "x")) == [NONE]
    driver.advance(0)
    assert expected_ids(driver) == [], "its time was up long ago"


def test_a_wrong_member_id_is_fenced() -> None:
    driver = CoordinatorHarness()
    register(driver, "x", "y")
    assert driver.join("wrong", instance_id="x").error is FENCED
    assert waiting(driver) == []


def test_a_repeated_join_without_id_takes_the_place_of_the_older() -> None:
    driver = CoordinatorHarness()
    x_id, _ = register(driver, "x", "y")
    older = driver.join(instance_id="x")
    newer = driver.join(instance_id="x")
    assert older.error is FENCED
    assert newer.is_parked
    assert waiting(driver) == [x_id]
    driver.join(instance_id="y")
    driver.advance(3_000)
    assert newer.joined.member_id == x_id


def test_a_repeated_join_does_not_make_the_others_wait_longer() -> None:
    driver = CoordinatorHarness()
    register(driver, "x", "y")
    driver.join(instance_id="x")
    driver.advance(REBALANCE_MS - 1)
    driver.join(instance_id="x")
    driver.advance(1)
    assert driver.state() == "PreparingRebalance"


def test_a_repeated_join_with_its_id_is_the_same_member_asking_again() -> None:
    driver = CoordinatorHarness()
    x_id, _ = register(driver, "x", "y")
    older, newer = driver.join(x_id, instance_id="x"), driver.join(x_id, instance_id="x")
    driver.join(instance_id="y")
    driver.advance(3_000)
    assert older.is_parked, "never answered, as in Kafka"
    assert newer.joined.member_id == x_id


@pytest.mark.parametrize("others", ["members", "those who wait", "nobody"])
def test_protocols_that_do_not_fit_are_refused_at_once(others: str) -> None:
    driver = CoordinatorHarness()
    if others == "members":
        driver.stable(1)
    register(driver, "x", "y")
    if others == "those who wait":
        driver.join(instance_id="x")
        assert driver.join(instance_id="y", protocol_type="connect").error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    wanted = () if others == "nobody" else STICKY
    assert driver.join(instance_id="y", protocols=wanted).error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert driver.join(instance_id="y", protocols=STICKY + RANGE).is_parked


def test_who_does_not_fit_any_more_is_told_in_the_end() -> None:
    driver = CoordinatorHarness()
    (a,) = driver.stable(1, protocols=RANGE + STICKY)
    register(driver, "x", "y")
    x = driver.join(instance_id="x", protocols=STICKY)
    assert driver.join(a, protocols=RANGE).joined.generation_id == 2
    driver.sync_all([a])
    driver.join(instance_id="y", protocols=STICKY + RANGE)
    assert x.error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert driver.state() == "PreparingRebalance"


def test_other_rebalances_go_on_without_those_who_wait() -> None:
    driver = CoordinatorHarness()
    (a,) = driver.stable(1)
    register(driver, "x", "y")
    x = driver.join(instance_id="x")
    b = driver.join()
    driver.join(a)
    assert b.joined.generation_id == 2
    driver.sync_all([a, b.joined.member_id])
    assert x.is_parked
    driver.join(instance_id="y")
    rejoin(driver, [a, b.joined.member_id])
    assert x.joined.generation_id == 3


def test_they_join_a_round_that_is_being_prepared() -> None:
    driver = CoordinatorHarness()
    a, b = driver.stable(2)
    register(driver, "x")
    driver.join(a)
    x = driver.join(instance_id="x")
    assert x.is_parked
    driver.join(b)
    assert x.joined.generation_id == 2


def test_they_end_a_generation_that_is_being_completed() -> None:
    driver = CoordinatorHarness()
    a, b = driver.complete(2)
    follower = driver.sync(b, 1)
    register(driver, "x")
    x = driver.join(instance_id="x")
    assert follower.error is ErrorCode.REBALANCE_IN_PROGRESS
    rejoin(driver, [a, b])
    assert x.joined.generation_id == 2


@pytest.mark.parametrize("delay_ms", [0, 3_000])
def test_in_an_empty_group_all_are_in_the_first_generation(delay_ms: int) -> None:
    driver = CoordinatorHarness(group_initial_rebalance_delay_ms=delay_ms)
    register(driver, "x", "y", "z")
    calls = [driver.join(instance_id=instance_id) for instance_id in ("z", "x", "y")]
    assert all(call.is_parked for call in calls) is bool(delay_ms)
    driver.advance(delay_ms)
    assert [call.joined.generation_id for call in calls] == [1, 1, 1]
    assert calls[0].joined.leader == calls[0].joined.member_id, "the first to come leads"
    assert len(calls[0].joined.members) == 3


# Leaving and deleting


@pytest.mark.parametrize("how", ["instance", "member", "both"])
def test_leaving_takes_an_expectation_back(how: str) -> None:
    driver = CoordinatorHarness()
    (a,) = driver.stable(1)
    x_id, _ = register(driver, "x", "y")
    x = driver.join(instance_id="x")
    identity = {"instance": ("", "x"), "member": (x_id, None), "both": (x_id, "x")}[how]
    assert driver.leave(identity) == [NONE]
    assert x.error is UNKNOWN
    assert expected_ids(driver) == ["y"]
    assert (driver.state(), driver.heartbeat(a, 1)) == ("Stable", NONE)
    assert driver.leave(identity) == [UNKNOWN]


def test_leaving_with_a_wrong_member_id_is_fenced() -> None:
    driver = CoordinatorHarness()
    register(driver, "x")
    assert driver.leave(("wrong", "x")) == [FENCED]
    assert expected_ids(driver) == ["x"]


def test_leaving_may_be_what_completes_the_others() -> None:
    driver = CoordinatorHarness()
    a, b = driver.stable(2)
    register(driver, "x", "y")
    x = driver.join(instance_id="x")
    assert driver.leave(("", "y"), (b, None)) == [NONE, NONE]
    assert driver.state() == "PreparingRebalance"
    driver.join(a)
    assert x.joined.generation_id == 2, "one round for who left and who came"


def test_who_leaves_is_missed_also_when_those_left_waiting_need_no_round() -> None:
    driver = CoordinatorHarness()
    a, b, c = driver.stable(3)
    register(driver, "x", "y")
    waiting_too = batch(driver, joining(b), joining(instance_id="x"))
    assert driver.leave((c, None), ("", "x"), ("", "y")) == [NONE] * 3
    assert waiting_too.errors == [NONE, UNKNOWN]
    assert driver.state() == "PreparingRebalance"
    for call in rejoin(driver, [a, b]):
        assert call.error is NONE
    assert list(driver.group().members) == [a, b]


def test_a_group_with_waiting_joins_cannot_be_deleted() -> None:
    driver = CoordinatorHarness()
    register(driver, "x", "y")
    driver.join(instance_id="x")
    assert result_of(driver.coordinator.delete_group, "g", driver.now_ms) is ErrorCode.NON_EMPTY_GROUP


def test_mere_expectations_go_with_the_group() -> None:
    driver = CoordinatorHarness()
    register(driver, "x")
    assert result_of(driver.coordinator.delete_group, "g", driver.now_ms) is NONE
    driver.hand_over()
    assert driver.state() == "-"


def test_a_group_that_has_expectations_does_not_expire() -> None:
    driver = CoordinatorHarness()
    register(driver, "x", rebalance_ms=700_000_000)
    assert expired_records(driver.group(), driver.now_ms) == []
    driver.advance(650_000_000)
    assert driver.state() == "Empty"
    driver.advance(51_000_000)
    assert driver.state() == "-"
