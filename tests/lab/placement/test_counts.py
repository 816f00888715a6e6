"""Counts of groups give the same figures as named groups, and known figures in simple cases."""

from collections import Counter
from random import Random

import numpy as np
import pytest

from fakebroker.coordinator.partitions import partition_for
from fakebroker.lab.placement.counts import ElectedGroups, EvenGroups, HashedGroups, Sample
from fakebroker.lab.placement.offsets_leaders import OffsetsLeaders, striped_replicas
from tests.support.lab.named_placements import EvenPlacement, HashPlacement, Placement

GROUPS = {f"group-{number}": 1 + number * number % 37 for number in range(200)}
MEMBERS = sum(GROUPS.values())


def _values(samples: list[Sample], **about: object) -> dict[str, float]:
    (found,) = [dict(values) for identity, values in samples if about.items() <= identity.items()]
    return found


def _worst(placement: Placement, nodes: list[int], weights: dict[str, int]) -> float:
    loads = Counter(dict.fromkeys(nodes, 0))
    for group_id, weight in weights.items():
        loads[placement.coordinator(group_id) or 0] += weight
    return max(loads.values()) * len(nodes) / sum(loads.values())


def _hashed(seed: int, brokers: int, partitions: int) -> tuple[HashPlacement, HashedGroups]:
    nodes = range(1, brokers + 1)
    random = Random(f"striped {partitions} {brokers} {seed}")
    named = HashPlacement(GROUPS, OffsetsLeaders(striped_replicas(partitions, 3, nodes, random), nodes))
    groups, members = np.zeros(partitions, np.int64), np.zeros(partitions, np.int64)
    for group_id, size in GROUPS.items():
        groups[partition_for(group_id, partitions)] += 1
        members[partition_for(group_id, partitions)] += size
    return named, HashedGroups(groups, members, brokers, 3, seed)


def test_hashed_counts_are_those_of_named_groups() -> None:
    nodes = [1, 2, 3, 4]
    named, counted = _hashed(5, 4, 10)
    _, values = counted.balance(3_000)
    assert values["members"] == MEMBERS
    assert values["worst_groups"] == pytest.approx(_worst(named, nodes, dict.fromkeys(GROUPS, 1)))
    assert values["worst_members"] == pytest.approx(_worst(named, nodes, GROUPS))
    assert values["worst_heartbeats_per_s"] == pytest.approx(_worst(named, nodes, GROUPS) * MEMBERS / 4 / 3)
    moves = list(counted.moves())
    shares, worst = [], []
    for node_id in nodes:
        dying, _ = _hashed(5, 4, 10)
        shares.append(sum(GROUPS[group_id] for group_id in dying.stop(node_id)) / MEMBERS)
        worst.append(_worst(dying, [each for each in nodes if each != node_id], GROUPS))
    died = _values(moves, change="dies", replicas="striped")
    assert (died["moved_members"], died["worst_members"]) == pytest.approx((np.mean(shares), np.mean(worst)))
    assert sum(shares) == pytest.approx(1)
    assert _values(moves, change="added")["moved_groups"] == 0
    named.start(5)
    moved = named.reassign(5)
    reassigned = _values(moves, change="reassigned")
    assert reassigned["moved_groups"] == pytest.approx(len(moved) / len(GROUPS))
    assert reassigned["worst_members"] == pytest.approx(_worst(named, [*nodes, 5], GROUPS))
    restarted = _values(moves, change="rolling restart")
    assert restarted["moved_groups"] == restarted["moved_members"] == 2  # each group moves away and back
    assert restarted["worst_members"] == values["worst_members"]


def test_even_counts_are_those_of_named_groups() -> None:
    nodes = [1, 2, 3]
    by_size = np.bincount(list(GROUPS.values()))[1:]
    counted = EvenGroups(by_size, 3)
    named = EvenPlacement(GROUPS, nodes)
    _, values = counted.balance(3_000)
    assert values["worst_members"] == pytest.approx(_worst(named, nodes, GROUPS))
    moves = list(counted.moves())
    moved = named.stop(1)
    died = _values(moves, change="dies")
    assert died["moved_groups"] == pytest.approx(len(moved) / len(GROUPS))
    assert died["worst_members"] == pytest.approx(_worst(named, [2, 3], GROUPS))
    named = EvenPlacement(GROUPS, nodes)
    moved = named.start(4)
    added = _values(moves, change="reassigned")
    assert added["moved_groups"] == pytest.approx(len(moved) / len(GROUPS))
    assert added["moved_members"] == pytest.approx(sum(GROUPS[group_id] for group_id in moved) / MEMBERS)
    assert added["worst_members"] == pytest.approx(_worst(named, [*nodes, 4], GROUPS))


def test_two_brokers_take_over_all_groups_of_each_other() -> None:
    elected = ElectedGroups(np.array([[3, 0, 1], [1, 0, 0]]), seed=1)  # sizes 1 and 3
    _, values = elected.balance(1_000, asked=2)
    assert values == {"members": 7, "worst_groups": 4 * 2 / 5, "worst_members": 6 * 2 / 7, "worst_heartbeats_per_s": 6}
    moves = list(elected.moves())
    assert _values(moves, change="dies") == {"moved_groups": 4 / 5, "moved_members": 6 / 7, "worst_members": 1}
    assert _values(moves, change="added") == {"moved_groups": 0, "moved_members": 0, "worst_members": 6 * 3 / 7}
    # The first broker's groups move to the second one; then all groups move to the first one.
    assert _values(moves, change="rolling restart") == {
        "moved_groups": (4 + 5) / 5,
        "moved_members": (6 + 7) / 7,
        "worst_members": 2,
    }


def test_after_a_rolling_restart_the_last_broker_has_no_groups() -> None:
    """A group moves (1 + 1 / (n - 1)) ** k / n times at restart k of n, and the first broker has waited for longest."""
    brokers = 8
    moves = list(ElectedGroups(np.full((brokers, 1), 1_000_000), seed=3).moves())
    found = _values(moves, change="rolling restart")
    growth = brokers / (brokers - 1)
    assert found["moved_groups"] == pytest.approx(sum(growth**k for k in range(brokers)) / brokers, rel=0.002)
    first = sum(growth**k for k in range(1, brokers)) / (brokers - 1)
    assert found["worst_members"] == pytest.approx(first, rel=0.002)
