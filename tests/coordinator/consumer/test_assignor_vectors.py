"""Server-side assignors against results that were recorded from Kafka's own classes."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fakebroker.coordinator.consumer.assignors import ASSIGNORS, Assignment, GroupSpec, MemberSpec
from tests.support.coordinator.assignors_of_4_0_0 import ASSIGNORS_OF_4_0_0

Case = dict[str, Any]
Recorded = dict[str, dict[str, list[int]]]

CASES: list[Case] = json.loads(Path(__file__).with_name("assignor_vectors.json").read_text())["cases"]


def name_of(case: Case) -> str:
    return f"{case['n']}-{case['kind']}-{case['assignor']}"


def topic_id(name: str) -> bytes:
    return int(name.removeprefix("t")).to_bytes(16, "big")


def group_of(case: Case, order: list[int]) -> GroupSpec:
    members = {}
    for member in (case["members"][position] for position in order):
        existing = {topic_id(name) for name in member["subscribed"] if name in case["topics"]}
        previous = {topic_id(name): frozenset(partitions) for name, partitions in member["previous"].items()}
        members[member["id"]] = MemberSpec(member["instance"], frozenset(existing), previous)
    counts = {topic_id(name): count for name, count in case["topics"].items()}
    return GroupSpec(members, counts, case["subscription_type"] == "homogeneous")


def runs_of(case: Case) -> Iterator[tuple[GroupSpec, Recorded]]:
    """Yield the group in each order of its members that was recorded, with the result."""
    in_file_order = [{"orders": [list(range(len(case["members"])))], "result": case["result"]}]
    for run in [*in_file_order, {"orders": case.get("orders", []), "result": case["result"]}, *case.get("others", [])]:
        for order in run["orders"]:
            yield group_of(case, order), run["result"]


def comparable(assigned: dict[str, Assignment]) -> Recorded:
    """Return a result as it was recorded; members without partitions are left out."""
    return {
        member_id: {f"t{int.from_bytes(topic, 'big')}": sorted(partitions) for topic, partitions in assignment.items()}
        for member_id, assignment in assigned.items()
        if assignment
    }


def not_idle(result: Recorded) -> Recorded:
    return {member_id: assignment for member_id, assignment in result.items() if assignment}


def has_remainder(case: Case) -> bool:
    """Tell whether the quotas of members differ: only such results have changed since 4.0.0 (KAFKA-18688)."""
    group = group_of(case, [0])
    total = sum(group.partition_counts[topic] for member in group.members.values() for topic in member.topic_ids)
    return case["assignor"] == "uniform" and group.homogeneous and total % len(case["members"]) > 0


@pytest.mark.parametrize("case", CASES, ids=name_of)
def test_4_0_0_assigns_as_recorded(case: Case) -> None:
    for group, expected in runs_of(case):
        assigned = ASSIGNORS_OF_4_0_0[case["assignor"]](group)
        assert comparable(assigned) == not_idle(expected), list(group.members)
        assert list(assigned) == list(group.members)


@pytest.mark.parametrize("case", [case for case in CASES if not has_remainder(case)], ids=name_of)
def test_newer_releases_assign_as_recorded_without_a_remainder(case: Case) -> None:
    for group, expected in runs_of(case):
        assert comparable(ASSIGNORS[case["assignor"]](group)) == not_idle(expected), list(group.members)


@pytest.mark.parametrize("case", [case for case in CASES if "taken_away" in case], ids=name_of)
def test_newer_releases_take_away_fewer_partitions(case: Case) -> None:
    group = group_of(case, list(range(len(case["members"]))))
    for assignors, expected in (ASSIGNORS_OF_4_0_0, case["taken_away"]), (ASSIGNORS, case["taken_away_least"]):
        assigned = assignors["uniform"](group)
        taken = [
            (topic, partition)
            for member_id, member in group.members.items()
            for topic in member.assignment.keys() & member.topic_ids
            for partition in member.assignment[topic] - assigned[member_id].get(topic, frozenset())
        ]
        assert len(taken) == expected
