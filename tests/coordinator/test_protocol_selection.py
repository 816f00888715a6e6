"""The protocol that the votes of the members select."""

from fakebroker.coordinator.classic.group import java_hash_map_order, most_voted
from fakebroker.coordinator.classic.rebalance import NEW_MEMBER_JOIN_TIMEOUT_MS
from fakebroker.errors import ErrorCode
from tests.support.coordinator.coordinator_harness import CoordinatorHarness, protocols
from tests.support.subtests import subtest_for_each


def test_hash_map_order_of_common_names() -> None:
    names = ["cooperative-sticky", "roundrobin", "range", "sticky", "eager"]
    assert java_hash_map_order(names) == ["eager", "sticky", "range", "roundrobin", "cooperative-sticky"]


def test_names_in_one_bucket_keep_their_order() -> None:
    assert java_hash_map_order(["default", "compatible"]) == ["default", "compatible"]
    assert java_hash_map_order(["compatible", "default"]) == ["compatible", "default"]


def test_hash_map_grows_with_the_thirteenth_name() -> None:
    # "A" hashes to 65 and "Q" to 81: the same bucket in a table of 16 buckets, different buckets in a table of 32.
    twelve = [chr(code) for code in range(ord("A"), ord("A") + 11)] + ["Q"]
    assert java_hash_map_order(twelve)[:3] == ["A", "Q", "B"]
    assert java_hash_map_order([*twelve, "L"])[:2] == ["A", "B"]
    assert java_hash_map_order([*twelve, "L"])[-1] == "Q"


@subtest_for_each(
    ("votes", "winner"),
    [
        (["roundrobin", "range"], "range"),
        (["sticky", "range"], "sticky"),
        (["roundrobin", "range", "roundrobin"], "roundrobin"),
        (["cooperative-sticky", "roundrobin"], "roundrobin"),
    ],
)
def test_most_votes_win_and_ties_are_resolved_by_hash_order(votes: list[str], winner: str) -> None:
    assert most_voted(votes) == winner


@subtest_for_each(
    ("first", "second", "chosen"),
    [
        (("range", "roundrobin"), ("roundrobin", "range"), "range"),
        (("range", "roundrobin"), ("roundrobin",), "roundrobin"),
        (("sticky", "range", "roundrobin"), ("roundrobin", "range"), "range"),
        (("cooperative-sticky", "range"), ("range", "cooperative-sticky"), "range"),
    ],
)
def test_members_vote_for_their_most_preferred_common_protocol(
    first: tuple[str, ...], second: tuple[str, ...], chosen: str
) -> None:
    harness = CoordinatorHarness()
    harness.join(protocols=protocols(*first))
    harness.join(protocols=protocols(*second))
    harness.advance(6_000)
    assert harness.group().protocol_name == chosen


def test_a_repeated_protocol_name_counts_twice() -> None:
    """As in Kafka's `ClassicGroup.incrementSupportedProtocols`: no protocol has as many votes as there are members."""
    harness = CoordinatorHarness()
    first = harness.join(protocols=protocols("range", "range"))
    assert harness.join(protocols=protocols("range")).error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    harness.advance(6_000)
    assert (harness.state(), harness.group().generation_id, first.is_parked) == ("PreparingRebalance", 1, True)
    assert harness.join(protocols=protocols("range")).error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    harness.advance(NEW_MEMBER_JOIN_TIMEOUT_MS)
    assert (harness.state(), first.error) == ("Empty", ErrorCode.UNKNOWN_MEMBER_ID)
    harness.join(protocols=protocols("range"))
    harness.advance(6_000)
    assert (harness.state(), harness.group().protocol_name) == ("CompletingRebalance", "range")


def test_another_protocol_is_selected_beside_a_repeated_one() -> None:
    harness = CoordinatorHarness()
    harness.join(protocols=protocols("range", "range", "sticky"))
    harness.advance(6_000)
    assert (harness.state(), harness.group().protocol_name) == ("CompletingRebalance", "sticky")


def test_a_repeated_protocol_can_be_elected_without_being_supported_by_all() -> None:
    """It has as many counts as there are members. Kafka then fails, because a member has no metadata for it."""
    harness = CoordinatorHarness()
    calls = [harness.join(protocols=protocols("range", "range", "eager")), harness.join(protocols=protocols("eager"))]
    harness.advance(6_000)
    assert harness.group().protocol_name == "eager"
    harness = CoordinatorHarness()
    calls = [harness.join(protocols=protocols("a", "a", "b")), harness.join(protocols=protocols("b"))]
    harness.advance(6_000)
    assert (harness.state(), [call.is_parked for call in calls]) == ("PreparingRebalance", [True, True])
