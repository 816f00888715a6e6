"""Consumers of the rewrite design with its coordinators in virtual time: after all failures they own all partitions."""

import pytest

from fakebroker.client.member.rewrite.states import RewriteMemberState
from fakebroker.proposals.consumer_rewrite.states import STEADY
from tests.support.client.rewrite_simulation import SESSION_MS, RewriteSimulation
from tests.support.soak import cases, soak


def check_recovery(seed: int) -> None:
    simulation = RewriteSimulation(seed, size=4)
    simulation.fail_until(60_000)
    simulation.run(60_000 + 20 * SESSION_MS)
    lab = simulation.lab
    members = [consumer.member for consumer in simulation.consumers]
    assert lab.state is STEADY, f"seed={seed}"
    assert sorted(lab.group.consumers) == sorted(member.member_id for member in members), f"seed={seed}"
    assert {member.generation_id for member in members} == {lab.group.generation_id}, f"seed={seed}"
    assert all(member.state is RewriteMemberState.PART_OF_GROUP for member in members), f"seed={seed}"
    owned = sorted(partition for member in members for partition in member.assigned)
    assert owned == [("t", index) for index in range(lab.topics["t"])], f"seed={seed}"


@soak
def test_consumers_recover_from_all_failures() -> None:
    for seed in cases(50, soak=2_000):
        check_recovery(seed)


@pytest.mark.parametrize("seed", [0])
def test_equal_seeds_give_equal_histories(seed: int) -> None:
    def history() -> list[tuple[str, str, str]]:
        simulation = RewriteSimulation(seed, size=3)
        simulation.fail_until(20_000)
        return simulation.lab.changes

    first = history()
    assert first == history()
    assert len(first) > 10
