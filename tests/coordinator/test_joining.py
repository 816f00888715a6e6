"""JoinGroup: what each answer carries, member ids told in two steps (KIP-394), and the size limit."""

from typing import Any

import pytest

from fakebroker.coordinator.group.api import JoinedMember, JoinResult
from fakebroker.errors import ErrorCode
from fakebroker.protocol.consumer_protocol import encode_subscription
from tests.support.coordinator.coordinator_harness import (
    DELAY_MS,
    REBALANCE_MS,
    SESSION_MS,
    CoordinatorHarness,
    protocols,
)

CHANGED = protocols("range", "roundrobin")
META = encode_subscription(["t"])


# Fields of the answers


def test_a_complete_round_tells_the_leader_everybody_and_the_others_nobody() -> None:
    driver = CoordinatorHarness()
    first = driver.join(client_id="a")
    second = driver.join(client_id="b", protocols=protocols("range", metadata=b"own"))
    static = driver.join(instance_id="i")
    driver.advance(2 * DELAY_MS)
    everybody = (
        JoinedMember("a-uuid1", None, META),
        JoinedMember("b-uuid2", None, b"own"),
        JoinedMember("i-uuid3", "i", META),
    )
    assert first.result == JoinResult(ErrorCode.NONE, 1, "consumer", "range", "a-uuid1", "a-uuid1", everybody)
    assert second.result == JoinResult(ErrorCode.NONE, 1, "consumer", "range", "a-uuid1", "b-uuid2")
    assert static.result == JoinResult(ErrorCode.NONE, 1, "consumer", "range", "a-uuid1", "i-uuid3")


def test_an_unchanged_rejoin_tells_the_leader_everybody_only_before_it_has_synced() -> None:
    driver = CoordinatorHarness()
    leader, follower = driver.complete()
    for member_id in (leader, follower):
        joined = driver.join(member_id).joined
        assert (joined.generation_id, joined.leader, joined.member_id) == (1, leader, member_id)
        assert [member.member_id for member in joined.members] == ([leader, follower] if member_id == leader else [])
    driver.sync_all([leader, follower])
    assert driver.join(follower).result == JoinResult(ErrorCode.NONE, 1, "consumer", "range", leader, follower)


def test_a_member_id_to_come_back_with() -> None:
    assert CoordinatorHarness().join(two_step=True).result == JoinResult(
        ErrorCode.MEMBER_ID_REQUIRED, member_id="client-uuid1"
    )


@pytest.mark.parametrize("member_id", ["", "x"])
def test_refusals_before_the_group_echo_the_member_id(member_id: str) -> None:
    driver = CoordinatorHarness()
    call = driver.join(member_id, group_id="")
    assert call.result == JoinResult(ErrorCode.INVALID_GROUP_ID, member_id=member_id)
    for session_ms in (5_999, 1_800_001):
        call = driver.join(member_id, session_ms=session_ms)
        assert call.result == JoinResult(ErrorCode.INVALID_SESSION_TIMEOUT, member_id=member_id)
    assert driver.state() == "-"


@pytest.mark.parametrize("session_ms", [6_000, 1_800_000])
def test_the_bounds_of_session_timeouts_are_allowed(session_ms: int) -> None:
    assert CoordinatorHarness().join(session_ms=session_ms).is_parked


def test_refusals_by_the_group_echo_the_member_id() -> None:
    driver = CoordinatorHarness()
    _, follower = driver.stable(1, static=("i",))
    inconsistent = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert driver.join("x").result == JoinResult(ErrorCode.UNKNOWN_MEMBER_ID, member_id="x")
    assert driver.join("x", instance_id="i").result == JoinResult(ErrorCode.FENCED_INSTANCE_ID, member_id="x")
    assert driver.join(follower, protocols=()).result == JoinResult(inconsistent, member_id=follower)
    assert driver.join(protocols=protocols("x")).result == JoinResult(inconsistent)


def test_another_brokers_group_is_refused_without_the_member_id() -> None:
    driver = CoordinatorHarness()
    for partition in range(50):
        driver.coordinator.resign(partition, driver.now_ms)
    assert driver.join("x").result == JoinResult(ErrorCode.NOT_COORDINATOR)


@pytest.mark.parametrize("options", [{"protocol_type": ""}, {"protocols": ()}])
def test_an_empty_group_wants_a_protocol_type_and_a_protocol(options: dict[str, Any]) -> None:
    driver = CoordinatorHarness()
    assert driver.join(**options).error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert driver.state() == "Empty"  # Created all the same.


def test_the_protocol_type_of_an_empty_group_may_change() -> None:
    driver = CoordinatorHarness()
    driver.leave((driver.stable(1)[0], None))
    call = driver.join(protocol_type="connect", protocols=protocols("v1"))
    driver.advance(DELAY_MS)
    assert (call.joined.protocol_type, call.joined.protocol_name) == ("connect", "v1")


def test_a_member_may_give_up_a_protocol_but_not_the_last_common_one() -> None:
    driver = CoordinatorHarness()
    calls = [driver.join(protocols=protocols("range", "sticky")) for _ in range(2)]
    driver.advance(2 * DELAY_MS)
    first, second = (call.joined.member_id for call in calls)
    assert driver.join(first, protocols=protocols("sticky")).is_parked
    assert driver.join(second, protocols=protocols("range")).error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert driver.join(second, protocols=protocols("range", "sticky")).joined.protocol_name == "sticky"


# Rejoining


def test_a_rejoin_replaces_protocols_timeouts_and_the_parked_join() -> None:
    driver = CoordinatorHarness()
    leader, follower = driver.stable()
    old = driver.join(leader)
    new = driver.join(leader, protocols=CHANGED, session_ms=7_000, rebalance_ms=8_000)
    driver.join(follower)
    assert old.is_parked
    assert new.joined.generation_id == 2
    member = driver.group().members[leader]
    assert (member.protocols, member.session_timeout_ms, member.rebalance_timeout_ms) == (CHANGED, 7_000, 8_000)


def test_joins_are_answered_in_order_of_arrival() -> None:
    driver = CoordinatorHarness()
    ids = driver.stable(3)
    calls = [driver.join(ids[index]) for index in (0, 2, 1)]
    assert driver.answered[-3:] == calls


def test_a_join_that_replaces_a_parked_one_goes_to_the_end() -> None:
    driver = CoordinatorHarness()
    ids = driver.stable(3)
    calls = [driver.join(ids[index]) for index in (0, 1, 0, 2)]
    assert driver.answered[-3:] == calls[1:]


@pytest.mark.parametrize("new", [CHANGED, protocols("range", metadata=b"other"), protocols("range", "range")])
def test_order_names_and_bytes_of_protocols_make_a_change(new: tuple[tuple[str, bytes], ...]) -> None:
    driver = CoordinatorHarness()
    _, follower = driver.stable()
    assert driver.join(follower, protocols=new).is_parked


# Two steps


def test_a_pending_id_is_waited_for_once_a_round_is_under_way() -> None:
    driver = CoordinatorHarness()
    (leader,) = driver.stable(1)
    parked = driver.join()
    pending_id = driver.pend()
    driver.join(leader)
    assert parked.is_parked
    assert driver.join(pending_id, two_step=True).joined.generation_id == 2
    assert not parked.is_parked


def test_a_pending_id_survives_a_round_it_took_no_part_in() -> None:
    driver = CoordinatorHarness()
    pending_id = driver.pend(session_ms=20_000)
    driver.stable(1)
    assert driver.state() == "Stable"
    assert driver.join(pending_id).is_parked
    assert driver.group().state.value == "PreparingRebalance"


def test_a_pending_id_that_has_joined_has_a_new_members_time() -> None:
    driver = CoordinatorHarness(group_initial_rebalance_delay_ms=60_000)
    call = driver.join(driver.pend())
    driver.advance(SESSION_MS)
    assert call.is_parked


# group.max.size


def test_a_full_group_takes_no_more_and_forgets_the_id_that_asked() -> None:
    driver = CoordinatorHarness(group_max_size=2)
    pending_id = driver.pend(session_ms=60_000)
    driver.stable(2)
    for member_id in (pending_id, "x", ""):
        assert driver.join(member_id).result == JoinResult(ErrorCode.GROUP_MAX_SIZE_REACHED)
    assert driver.group().pending_members == {}
    assert driver.state() == "Stable"


def test_pending_ids_do_not_count_and_the_empty_group_takes_anybody() -> None:
    driver = CoordinatorHarness(group_max_size=1)
    ids = [driver.pend(), driver.pend()]
    assert driver.join(ids[0]).is_parked
    assert driver.join(ids[1]).error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert driver.group().pending_members == {}


def test_while_members_join_the_first_ones_have_the_places() -> None:
    driver = CoordinatorHarness(group_max_size=2)
    first, second = driver.stable(2)
    driver.join(first)
    newcomer = driver.join()
    again = driver.join(first)
    assert again.is_parked
    assert driver.join(second).result == JoinResult(ErrorCode.GROUP_MAX_SIZE_REACHED)
    assert second not in driver.group().members
    # Everybody is in now, but Kafka only sees it when the join timer runs out.
    assert newcomer.is_parked
    driver.advance(REBALANCE_MS)
    assert newcomer.joined.generation_id == again.joined.generation_id == 2


def test_a_member_of_a_full_group_may_join_again() -> None:
    driver = CoordinatorHarness(group_max_size=2)
    first, second = driver.complete(2)
    assert driver.join(second).error is ErrorCode.NONE
    assert driver.join(first, protocols=CHANGED).is_parked


def test_a_static_member_without_its_id_counts_as_one_more() -> None:
    driver = CoordinatorHarness(group_max_size=2)
    driver.stable(1, static=("i",))
    assert driver.join(instance_id="i").result == JoinResult(ErrorCode.GROUP_MAX_SIZE_REACHED)
    assert "i" in driver.group().static_members
