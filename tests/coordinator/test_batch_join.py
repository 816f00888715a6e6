"""Several members that join with one request (KAFKA-8397), and what a failover leaves of who is expected."""

from fakebroker.coordinator.group.api import JoinResult
from fakebroker.coordinator.group.batch_join.batch import BatchJoin
from fakebroker.coordinator.group.batch_join.batch_join_extension import expected_instances
from fakebroker.coordinator.group.batch_join.join_batch import join_batch
from fakebroker.coordinator.group.classic.extension import no_extension
from fakebroker.errors import ErrorCode
from tests.support.coordinator.batch_joins import batch, expected, joining, register
from tests.support.coordinator.coordinator_harness import RANGE, REBALANCE_MS, SESSION_MS, CoordinatorHarness, protocols

NONE = ErrorCode.NONE
FENCED = ErrorCode.FENCED_INSTANCE_ID
UNKNOWN = ErrorCode.UNKNOWN_MEMBER_ID
STICKY = protocols("sticky")


def waiting(driver: CoordinatorHarness) -> list[str]:
    return list(expected_instances(driver.group()).waiting)


def expected_ids(driver: CoordinatorHarness) -> list[str]:
    return list(expected_instances(driver.group()).instances)


# Batches


def test_a_batch_joins_in_one_round_and_has_one_answer() -> None:
    driver = CoordinatorHarness()
    (a,) = driver.stable(1)
    call = batch(driver, joining(), joining(), joining(instance_id="s"))
    assert call.is_parked
    assert driver.state() == "PreparingRebalance"
    driver.join(a)
    assert call.errors == [NONE] * 3
    assert call.member_ids == ["batcher-uuid2", "batcher-uuid3", "s-uuid4"]
    assert (call.generation_id, call.batch.generation.leader) == (2, a)
    assert call.batch.generation.members == (), "its leader is not in the batch"
    assert list(driver.group().members) == [a, *call.member_ids]


def test_a_batch_with_the_leader_is_told_the_members() -> None:
    driver = CoordinatorHarness(group_initial_rebalance_delay_ms=0)
    call = batch(driver, joining(), joining())
    assert call.generation_id == 1
    assert [member.member_id for member in call.batch.generation.members] == call.member_ids


def test_a_batch_may_register_and_join() -> None:
    driver = CoordinatorHarness(group_initial_rebalance_delay_ms=0)
    call = batch(driver, expected("x"), joining(), expected("y"))
    assert call.errors == [NONE] * 3
    assert (call.generation_id, expected_ids(driver)) == (1, ["x", "y"])
    assert list(driver.group().members) == [call.member_ids[1]]


def test_a_batch_that_joins_for_all_who_are_expected_is_one_round() -> None:
    driver = CoordinatorHarness()
    (a,) = driver.stable(1)
    x_id, y_id = register(driver, "x", "y")
    call = batch(driver, joining(instance_id="x"), joining(instance_id="y"), joining())
    driver.join(a)
    assert (call.generation_id, call.member_ids[:2]) == (2, [x_id, y_id])


def test_a_batch_with_somebody_expected_waits_as_a_whole() -> None:
    driver = CoordinatorHarness()
    (a,) = driver.stable(1)
    register(driver, "x", "y")
    call = batch(driver, joining(instance_id="x"), joining(), joining(a))
    assert (driver.state(), driver.heartbeat(a, 1)) == ("Stable", NONE)
    driver.join(instance_id="y")
    assert (call.errors, call.generation_id) == ([NONE] * 3, 2)


def test_the_session_of_a_member_that_waits_with_a_batch_does_not_end() -> None:
    driver = CoordinatorHarness()
    (a,) = driver.stable(1)
    register(driver, "x", "y")
    call = batch(driver, joining(instance_id="x"), joining(a, protocols=STICKY))
    driver.advance(2 * SESSION_MS)
    assert list(driver.group().members) == [a]
    driver.join(instance_id="y")
    driver.advance(SESSION_MS)
    assert call.errors == [NONE, ErrorCode.INCONSISTENT_GROUP_PROTOCOL]
    assert a not in driver.group().members, "its session has begun anew, and has ended"


def test_a_member_that_joins_again_does_not_wait_with_its_batch_any_more() -> None:
    driver = CoordinatorHarness()
    (a,) = driver.stable(1)
    register(driver, "x", "y")
    call = batch(driver, joining(instance_id="x"), joining(a))
    assert driver.join(a).joined.generation_id == 2
    driver.sync_all([a])
    driver.join(instance_id="y")
    driver.join(a)
    assert call.errors == [NONE, ErrorCode.REBALANCE_IN_PROGRESS]


def test_the_session_of_a_member_that_does_not_wait_with_its_batch_any_more_runs_again() -> None:
    driver = CoordinatorHarness()
    leader, follower = driver.stable(2)
    register(driver, "x", "y")
    batch(driver, joining(follower), joining(instance_id="x"), rebalance_ms=10 * SESSION_MS)
    for _ in range(4):
        driver.heartbeat(leader, 1)
        driver.advance(SESSION_MS / 2)
    assert driver.join(follower).joined.generation_id == 1
    for _ in range(3):
        driver.heartbeat(leader, 1)
        driver.advance(SESSION_MS / 2)
    assert list(driver.group().members) == [leader]


def test_known_members_that_rejoin_with_other_protocols_are_one_round() -> None:
    driver = CoordinatorHarness()
    a, b = driver.stable(2)
    call = batch(driver, joining(a, protocols=RANGE + STICKY), joining(b, protocols=RANGE + STICKY), joining())
    assert (call.errors, call.generation_id) == ([NONE] * 3, 2)
    assert driver.group().generation_id == 2


def test_a_batch_whose_one_member_needs_a_round_takes_the_unchanged_along() -> None:
    driver = CoordinatorHarness()
    a, b = driver.stable(2)
    call = batch(driver, joining(b), joining())
    assert call.is_parked
    driver.join(a)
    assert (call.errors, call.generation_id) == ([NONE, NONE], 2)


def test_unchanged_followers_are_told_again_without_a_round() -> None:
    driver = CoordinatorHarness()
    leader, b, static_id = driver.stable(2, static=("s",))
    call = batch(driver, joining(b), joining(instance_id="s"))
    assert (call.errors, call.generation_id, driver.state()) == ([NONE, NONE], 1, "Stable")
    assert call.batch.generation.leader == leader
    assert call.member_ids[1] != static_id, "a static member is replaced"


def test_a_replaced_leader_is_told_the_former_one() -> None:
    driver = CoordinatorHarness()
    follower_id, leader_id = driver.stable(1, static=("s",))[::-1]
    driver.leave((leader_id, None))
    former = driver.group().leader_id
    driver.join(follower_id, instance_id="s")
    driver.sync_all([follower_id])
    call = batch(driver, joining(instance_id="s"))
    assert (call.batch.generation.leader, call.batch.generation.members) == (former, ())
    assert call.member_ids == [driver.group().leader_id]


def test_static_members_in_a_batch_are_fenced_and_replaced_as_alone() -> None:
    driver = CoordinatorHarness()
    (_, s_id) = driver.stable(1, static=("s",))
    call = batch(driver, joining("wrong", "s"), joining("unknown"), joining(instance_id="bad id"))
    assert call.errors == [FENCED, UNKNOWN, ErrorCode.INVALID_REQUEST]
    assert driver.state() == "Stable"
    parked = driver.join(s_id, instance_id="s", protocols=RANGE + STICKY)
    batch(driver, joining(instance_id="s"))
    assert parked.error is FENCED


def test_a_member_that_joins_alone_has_left_its_batch() -> None:
    driver = CoordinatorHarness()
    driver.stable(1)
    pending = driver.pend()
    call = batch(driver, joining(pending), joining())
    alone = driver.join(pending)
    assert alone.is_parked
    driver.advance(REBALANCE_MS)
    assert call.errors == [ErrorCode.REBALANCE_IN_PROGRESS, NONE]
    assert alone.joined.generation_id == call.generation_id == 2


def test_who_does_not_fit_or_finds_no_room_is_told_and_the_others_join() -> None:
    driver = CoordinatorHarness(group_max_size=2)
    (a,) = driver.stable(1)
    call = batch(driver, joining(protocols=STICKY), joining(), joining())
    driver.join(a)
    too_many = ErrorCode.GROUP_MAX_SIZE_REACHED
    assert call.errors == [ErrorCode.INCONSISTENT_GROUP_PROTOCOL, NONE, too_many]
    assert call.generation_id == 2


def test_a_session_timeout_is_only_that_of_who_joins() -> None:
    call = batch(CoordinatorHarness(), joining(), expected("x"), session_ms=1)
    assert call.errors == [ErrorCode.INVALID_SESSION_TIMEOUT, NONE]


def test_a_pending_id_is_not_a_static_members() -> None:
    driver = CoordinatorHarness()
    pending = driver.pend()
    assert batch(driver, joining(pending, "s")).errors == [ErrorCode.UNKNOWN_SERVER_ERROR]


def test_errors_of_the_whole_request_stand_at_every_member() -> None:
    driver = CoordinatorHarness()
    assert batch(driver, joining(), expected("x"), group_id="").errors == [ErrorCode.INVALID_GROUP_ID] * 2
    assert batch(driver, joining("who"), expected("x", "who")).errors == [UNKNOWN, FENCED]
    assert driver.state() == "-"
    driver.hand_over(lambda: check_refused(driver, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))
    for partition in driver.partitions:
        driver.coordinator.resign(partition, driver.now_ms)
    check_refused(driver, ErrorCode.NOT_COORDINATOR)


def check_refused(driver: CoordinatorHarness, error: ErrorCode) -> None:
    assert batch(driver, joining(), expected("x")).errors == [error] * 2


def test_a_batch_of_nobody_is_answered() -> None:
    driver = CoordinatorHarness()
    assert batch(driver).results == ()
    assert driver.state() == "-"


def test_nobody_may_take_the_answer() -> None:
    driver = CoordinatorHarness()
    join_batch(driver.coordinator, "g", a_registration(), None, driver.now_ms)
    assert driver.coordinator.answers == []
    assert expected_ids(driver) == ["x"]


def a_registration() -> BatchJoin:
    return BatchJoin(
        client_id="c",
        client_host="h",
        session_timeout_ms=1,
        rebalance_timeout_ms=REBALANCE_MS,
        protocol_type="consumer",
        members=(expected("x"),),
    )


# Failover


def test_expectations_survive_a_failover_and_parked_joins_come_again() -> None:
    driver = CoordinatorHarness()
    (a,) = driver.stable(1)
    x_id, y_id = register(driver, "x", "y", rebalance_ms=20_000)
    x = driver.join(instance_id="x")
    driver.advance(15_000)
    driver.heartbeat(a, 1)
    driver.hand_over()
    assert x.error is ErrorCode.NOT_COORDINATOR
    assert expected_ids(driver) == ["x", "y"]
    driver.advance(19_999)
    assert expected_ids(driver) == ["x", "y"], "their time has begun anew"
    x, y = driver.join(instance_id="x"), driver.join(y_id, instance_id="y")
    driver.advance(3_000)
    assert [x.joined.member_id, y.joined.member_id] == [x_id, y_id]
    driver.hand_over()
    assert expected_ids(driver) == []


def test_a_registration_during_a_round_does_not_store_the_round() -> None:
    driver = CoordinatorHarness()
    a, b = driver.stable(2)
    driver.join(a, protocols=STICKY + RANGE)
    register(driver, "x")
    driver.join(b)
    register(driver, "y")
    driver.hand_over()
    group = driver.group()
    assert (driver.state(), group.generation_id, group.members[b].assignment) == ("Stable", 1, b.encode())
    assert expected_ids(driver) == ["x", "y"]


def test_what_expired_or_left_does_not_come_back() -> None:
    driver = CoordinatorHarness()
    register(driver, "x", rebalance_ms=5_000)
    register(driver, "y")
    driver.advance(5_000)
    driver.leave(("", "y"))
    driver.hand_over()
    assert expected_ids(driver) == []


def test_an_instance_that_the_log_has_as_a_member_is_not_expected() -> None:
    driver = CoordinatorHarness()
    driver.stable(1, static=("i",))
    driver.leave(("", "i"))
    register(driver, "i", "x")
    driver.hand_over()
    assert "i" in driver.group().static_members
    assert expected_ids(driver) == ["x"]


def test_a_coordinator_without_the_proposal_expects_nobody() -> None:
    driver = CoordinatorHarness()
    register(driver, "x")
    driver.hand_over(extension=no_extension)
    assert expected_ids(driver) == []


def test_only_as_many_are_expected_as_there_are_places_for() -> None:
    driver = CoordinatorHarness()
    driver.stable(1)
    register(driver, "x", "y", "z")
    driver.hand_over(group_max_size=3)
    assert expected_ids(driver) == ["x", "y"]


def test_a_registration_that_cannot_be_stored_has_not_happened() -> None:
    driver = CoordinatorHarness()
    driver.append_error = ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert batch(driver, expected("x"), joining()).errors == [ErrorCode.COORDINATOR_NOT_AVAILABLE] * 2
    assert driver.state() == "-"
    driver.append_error = NONE
    driver.stable(1)
    driver.append_error = ErrorCode.NOT_COORDINATOR
    assert batch(driver, expected("x")).errors == [ErrorCode.NOT_COORDINATOR]
    assert expected_ids(driver) == []


def test_a_batch_whose_group_cannot_be_stored_is_told_so() -> None:
    driver = CoordinatorHarness()
    driver.append_error = ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert batch(driver, joining(), joining()).errors == [ErrorCode.COORDINATOR_NOT_AVAILABLE] * 2
    assert driver.state() == "-"


def test_the_parked_joins_of_a_batch_get_not_coordinator() -> None:
    driver = CoordinatorHarness()
    (a,) = driver.stable(1)
    call = batch(driver, joining(), joining())
    driver.hand_over()
    assert call.errors == [ErrorCode.NOT_COORDINATOR] * 2
    assert isinstance(call.results[0], JoinResult)
    assert list(driver.group().members) == [a]
