"""Placement of replicas and elections of leaders, as in Kafka."""

from collections import Counter
from collections.abc import Callable, Sequence
from random import Random

import pytest

from fakebroker.lab.placement.offsets_leaders import OffsetsLeaders, Replicas, shifted_replicas, striped_replicas

Place = Callable[[int, int, Sequence[int], Random], Replicas]


class _Fixed(Random):
    """Returns 0 for each random index."""

    def randrange(self, start: int, stop: int | None = None, step: int = 1) -> int:
        return 0


def test_shifted_replicas_are_those_of_the_example_in_admin_utils() -> None:
    """The example is for five brokers, ten partitions and three replicas."""
    assert shifted_replicas(10, 3, range(5), _Fixed(1)) == [
        (0, 1, 2),
        (1, 2, 3),
        (2, 3, 4),
        (3, 4, 0),
        (4, 0, 1),
        (0, 2, 3),
        (1, 3, 4),
        (2, 4, 0),
        (3, 0, 1),
        (4, 1, 2),
    ]


def test_striped_replicas_follow_the_leader_and_are_shuffled_after_each_broker_has_led() -> None:
    placed = striped_replicas(9, 2, (3, 1, 2), _Fixed(1))
    assert placed[:3] == [(1, 2), (2, 3), (3, 1)]
    for first in (0, 3, 6):
        assert sorted(leader for leader, _ in placed[first : first + 3]) == [1, 2, 3]
    order = [leader for leader, _ in placed[3:6]]
    assert [follower for _, follower in placed[3:6]] == [*order[1:], order[0]]


@pytest.mark.parametrize("place", [striped_replicas, shifted_replicas])
@pytest.mark.parametrize("brokers", [1, 2, 5])
def test_replicas_are_on_different_brokers_and_leaders_are_even(place: Place, brokers: int) -> None:
    placed = place(17, 3, range(1, brokers + 1), Random(7))
    assert all(len(set(each)) == len(each) == min(3, brokers) for each in placed)
    led = Counter(each[0] for each in placed)
    assert max(led.values()) - min(led.values()) <= 1


def test_the_first_live_replica_leads_and_preferred_leaders_return() -> None:
    topic = OffsetsLeaders([(1, 2), (2, 3), (3, 1), (1, 3)], (1, 2, 3))
    assert topic.stop(1) == {0: 2, 3: 3}
    assert topic.stop(3) == {2: None, 3: None}
    assert topic.leaders == [2, 2, None, None]
    assert topic.start(1) == {0: 1, 2: 1, 3: 1}
    assert topic.start(3) == {2: 3}
    assert topic.leaders == [1, 2, 3, 1]


def test_a_new_broker_leads_nothing_until_partitions_are_reassigned() -> None:
    topic = OffsetsLeaders([(1, 2), (2, 1), (1, 2), (2, 1), (1, 2), (1, 2)], (1, 2))
    assert topic.start(3) == {}
    assert topic.reassign(3) == {5: 3, 4: 3}  # the last partitions of the broker that leads most
    assert topic.leaders == [1, 2, 1, 2, 3, 3]
    assert topic.stop(3) == {5: 1, 4: 1}
