"""The vote for a protocol."""

import pytest

from fakebroker.coordinator.group.classic.protocol_selection import java_hash_map_order, most_voted
from tests.support.coordinator.coordinator_harness import CoordinatorHarness, protocols


def test_order_of_the_usual_names() -> None:
    names = ["cooperative-sticky", "roundrobin", "range", "sticky", "eager"]
    assert java_hash_map_order(names) == ["eager", "sticky", "range", "roundrobin", "cooperative-sticky"]


def test_names_of_one_bucket_keep_their_order() -> None:
    assert java_hash_map_order(["default", "compatible"]) == ["default", "compatible"]
    assert java_hash_map_order(["compatible", "default"]) == ["compatible", "default"]


def test_the_map_grows_with_the_thirteenth_name() -> None:
    # "A" hashes to 65 and "Q" to 81: one bucket of 16, two of 32.
    twelve = [chr(code) for code in range(ord("A"), ord("A") + 11)] + ["Q"]
    assert java_hash_map_order(twelve)[:3] == ["A", "Q", "B"]
    assert java_hash_map_order([*twelve, "L"])[:2] == ["A", "B"]
    assert java_hash_map_order([*twelve, "L"])[-1] == "Q"


@pytest.mark.parametrize(
    ("votes", "winner"),
    [
        (["roundrobin", "range"], "range"),
        (["sticky", "range"], "sticky"),
        (["roundrobin", "range", "roundrobin"], "roundrobin"),
        (["cooperative-sticky", "roundrobin"], "roundrobin"),
    ],
)
def test_most_votes_win_and_ties_go_by_hash(votes: list[str], winner: str) -> None:
    assert most_voted(votes) == winner


@pytest.mark.parametrize(
    ("first", "second", "chosen"),
    [
        (("range", "roundrobin"), ("roundrobin", "range"), "range"),
        (("range", "roundrobin"), ("roundrobin",), "roundrobin"),
        (("sticky", "range", "roundrobin"), ("roundrobin", "range"), "range"),
        (("cooperative-sticky", "range"), ("range", "cooperative-sticky"), "range"),
    ],
)
def test_a_member_votes_for_its_favorite_among_what_all_support(
    first: tuple[str, ...], second: tuple[str, ...], chosen: str
) -> None:
    driver = CoordinatorHarness()
    driver.join(protocols=protocols(*first))
    driver.join(protocols=protocols(*second))
    driver.advance(6_000)
    assert driver.group().protocol_name == chosen


def test_a_name_offered_twice_counts_once() -> None:
    driver = CoordinatorHarness()
    driver.join(protocols=protocols("range", "range"))
    driver.join(protocols=protocols("range"))
    driver.advance(6_000)
    assert driver.group().protocol_name == "range"
