"""JoinGroup: the fields of its answers, MEMBER_ID_REQUIRED (KIP-394), and group.max.size."""

from typing import Any

from fakebroker.errors import ErrorCode
from fakebroker.protocol.consumer_protocol import encode_subscription
from tests.support.coordinator.coordinator_harness import (
    DELAY_MS,
    REBALANCE_MS,
    SESSION_MS,
    CoordinatorHarness,
    protocols,
)
from tests.support.coordinator.group_messages import join_response, joined_member
from tests.support.subtests import subtest_for_each

CHANGED = protocols("range", "roundrobin")
META = encode_subscription(["t"])


# Fields of the answers


def test_only_the_leader_gets_the_members() -> None:
    harness = CoordinatorHarness()
    first = harness.join(client_id="a")
    second = harness.join(client_id="b", protocols=protocols("range", metadata=b"own"))
    static = harness.join(instance_id="i")
    harness.advance(2 * DELAY_MS)
    members = (
        joined_member("a-uuid1", None, META),
        joined_member("b-uuid2", None, b"own"),
        joined_member("i-uuid3", "i", META),
    )
    assert first.result == join_response(ErrorCode.NONE, 1, "consumer", "range", "a-uuid1", "a-uuid1", members)
    assert second.result == join_response(ErrorCode.NONE, 1, "consumer", "range", "a-uuid1", "b-uuid2")
    assert static.result == join_response(ErrorCode.NONE, 1, "consumer", "range", "a-uuid1", "i-uuid3")


def test_unchanged_rejoin_is_answered_at_once() -> None:
    harness = CoordinatorHarness()
    leader, follower = harness.create_completing_group()
    for member_id in (leader, follower):
        joined = harness.join(member_id).joined
        assert (joined.generation_id, joined.leader, joined.member_id) == (1, leader, member_id)
        assert [member.member_id for member in joined.members] == ([leader, follower] if member_id == leader else [])
    harness.sync_all([leader, follower])
    assert harness.join(follower).result == join_response(ErrorCode.NONE, 1, "consumer", "range", leader, follower)


def test_new_dynamic_member_gets_member_id_required() -> None:
    assert CoordinatorHarness().join(two_step=True).result == join_response(
        ErrorCode.MEMBER_ID_REQUIRED, member_id="client-uuid1"
    )


@subtest_for_each("member_id", ["", "x"])
def test_rejected_joins_return_the_member_id_and_create_no_group(member_id: str) -> None:
    harness = CoordinatorHarness()
    call = harness.join(member_id, group_id="")
    assert call.result == join_response(ErrorCode.INVALID_GROUP_ID, member_id=member_id)
    for session_ms in (5_999, 1_800_001):
        call = harness.join(member_id, session_ms=session_ms)
        assert call.result == join_response(ErrorCode.INVALID_SESSION_TIMEOUT, member_id=member_id)
    assert harness.state() == "-"


@subtest_for_each("session_ms", [6_000, 1_800_000])
def test_session_timeouts_at_the_bounds_are_allowed(session_ms: int) -> None:
    assert CoordinatorHarness().join(session_ms=session_ms).is_parked


def test_rejections_by_the_group_return_the_member_id() -> None:
    harness = CoordinatorHarness()
    _, follower = harness.create_stable_group(1, static=("i",))
    inconsistent = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert harness.join("x").result == join_response(ErrorCode.UNKNOWN_MEMBER_ID, member_id="x")
    assert harness.join("x", instance_id="i").result == join_response(ErrorCode.FENCED_INSTANCE_ID, member_id="x")
    assert harness.join(follower, protocols=()).result == join_response(inconsistent, member_id=follower)
    assert harness.join(protocols=protocols("x")).result == join_response(inconsistent)


@subtest_for_each("options", [{"protocol_type": ""}, {"protocols": ()}])
def test_first_member_needs_a_protocol_type_and_a_protocol(options: dict[str, Any]) -> None:
    harness = CoordinatorHarness()
    assert harness.join(**options).error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert harness.state() == "Empty"  # The group is created although the join is rejected.


def test_protocol_type_of_an_empty_group_can_change() -> None:
    harness = CoordinatorHarness()
    harness.leave((harness.create_stable_group(1)[0], None))
    call = harness.join(protocol_type="connect", protocols=protocols("v1"))
    harness.advance(DELAY_MS)
    assert (call.joined.protocol_type, call.joined.protocol_name) == ("connect", "v1")


def test_member_cannot_drop_the_last_common_protocol() -> None:
    harness = CoordinatorHarness()
    calls = [harness.join(protocols=protocols("range", "sticky")) for _ in range(2)]
    harness.advance(2 * DELAY_MS)
    first, second = (call.joined.member_id for call in calls)
    assert harness.join(first, protocols=protocols("sticky")).is_parked
    assert harness.join(second, protocols=protocols("range")).error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert harness.join(second, protocols=protocols("range", "sticky")).joined.protocol_name == "sticky"


# Rejoins


def test_rejoin_replaces_protocols_timeouts_and_the_parked_join() -> None:
    harness = CoordinatorHarness()
    leader, follower = harness.create_stable_group()
    old = harness.join(leader)
    new = harness.join(leader, protocols=CHANGED, session_ms=7_000, rebalance_ms=8_000)
    harness.join(follower)
    assert old.is_parked
    assert new.joined.generation_id == 2
    member = harness.group().members[leader]
    assert (member.protocols, member.session_timeout_ms, member.rebalance_timeout_ms) == (CHANGED, 7_000, 8_000)


def test_joins_are_answered_in_order_of_arrival() -> None:
    harness = CoordinatorHarness()
    ids = harness.create_stable_group(3)
    calls = [harness.join(ids[index]) for index in (0, 2, 1)]
    assert harness.answered[-3:] == calls


def test_repeated_join_is_answered_in_order_of_its_arrival() -> None:
    harness = CoordinatorHarness()
    ids = harness.create_stable_group(3)
    calls = [harness.join(ids[index]) for index in (0, 1, 0, 2)]
    assert harness.answered[-3:] == calls[1:]


@subtest_for_each("new", [CHANGED, protocols("range", metadata=b"other"), protocols("range", "range")])
def test_changes_of_protocol_order_names_and_metadata_start_a_rebalance(new: tuple[tuple[str, bytes], ...]) -> None:
    harness = CoordinatorHarness()
    _, follower = harness.create_stable_group()
    assert harness.join(follower, protocols=new).is_parked


# MEMBER_ID_REQUIRED


def test_rebalance_waits_for_ids_that_became_pending_during_it() -> None:
    harness = CoordinatorHarness()
    (leader,) = harness.create_stable_group(1)
    parked = harness.join()
    pending_id = harness.request_member_id()
    harness.join(leader)
    assert parked.is_parked
    assert harness.join(pending_id, two_step=True).joined.generation_id == 2
    assert not parked.is_parked


def test_pending_id_survives_a_rebalance() -> None:
    harness = CoordinatorHarness()
    pending_id = harness.request_member_id(session_ms=20_000)
    harness.create_stable_group(1)
    assert harness.state() == "Stable"
    assert harness.join(pending_id).is_parked
    assert harness.group().state.value == "PreparingRebalance"


def test_a_join_with_a_pending_id_outlives_the_session_timeout() -> None:
    harness = CoordinatorHarness(group_initial_rebalance_delay_ms=60_000)
    call = harness.join(harness.request_member_id())
    harness.advance(SESSION_MS)
    assert call.is_parked


# group.max.size


def test_full_group_rejects_joins_and_drops_their_pending_ids() -> None:
    harness = CoordinatorHarness(group_max_size=2)
    pending_id = harness.request_member_id(session_ms=60_000)
    harness.create_stable_group(2)
    for member_id in (pending_id, "x", ""):
        assert harness.join(member_id).result == join_response(ErrorCode.GROUP_MAX_SIZE_REACHED)
    assert harness.group().pending_members == {}
    assert harness.state() == "Stable"


def test_pending_ids_do_not_count_for_max_size() -> None:
    harness = CoordinatorHarness(group_max_size=1)
    ids = [harness.request_member_id(), harness.request_member_id()]
    assert harness.join(ids[0]).is_parked
    assert harness.join(ids[1]).error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert harness.group().pending_members == {}


def test_in_a_rebalance_the_first_joins_get_the_places() -> None:
    harness = CoordinatorHarness(group_max_size=2)
    first, second = harness.create_stable_group(2)
    harness.join(first)
    newcomer = harness.join()
    again = harness.join(first)
    assert again.is_parked
    assert harness.join(second).result == join_response(ErrorCode.GROUP_MAX_SIZE_REACHED)
    assert second not in harness.group().members
    # All members have joined now, but as in Kafka the join phase only ends when the join timer expires.
    assert newcomer.is_parked
    harness.advance(REBALANCE_MS)
    assert newcomer.joined.generation_id == again.joined.generation_id == 2


def test_member_of_a_full_group_can_rejoin() -> None:
    harness = CoordinatorHarness(group_max_size=2)
    first, second = harness.create_completing_group(2)
    assert harness.join(second).error is ErrorCode.NONE
    assert harness.join(first, protocols=CHANGED).is_parked


def test_static_member_without_its_id_cannot_rejoin_a_full_group() -> None:
    harness = CoordinatorHarness(group_max_size=2)
    harness.create_stable_group(1, static=("i",))
    assert harness.join(instance_id="i").result == join_response(ErrorCode.GROUP_MAX_SIZE_REACHED)
    assert "i" in harness.group().static_members
