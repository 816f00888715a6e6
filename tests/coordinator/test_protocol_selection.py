"""The protocol that the votes of the members select."""

from fakebroker.coordinator.group.classic.protocol_selection import java_hash_map_order, most_voted
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


def test_repeated_protocol_name_counts_once() -> None:
    harness = CoordinatorHarness()
    harness.join(protocols=protocols("range", "range"))
    harness.join(protocols=protocols("range"))
    harness.advance(6_000)
    assert harness.group().protocol_name == "range"
