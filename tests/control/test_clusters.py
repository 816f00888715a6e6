"""The clusters that are controlled: what is kept of each, and what is left of it when control ends."""

from collections.abc import Iterator

import pytest
import trio

from fakebroker import FakeCluster
from fakebroker.cluster.snapshot import Snapshot
from fakebroker.control import steps as steps_module
from fakebroker.control.clusters import MAX_SNAPSHOTS, Clusters, Served
from fakebroker.control.problems import Problem
from fakebroker.control.steps import Steps, run
from tests.support.trio_runner import in_trio_with_sockets


@pytest.fixture(name="cluster", scope="module")
def _cluster() -> Iterator[FakeCluster]:
    with FakeCluster(1) as cluster:
        yield cluster


def test_snapshots_are_so_many_at_most(cluster: FakeCluster) -> None:
    served, taken = Served("s", cluster), 0

    def take() -> Snapshot:
        nonlocal taken
        taken += 1
        return cluster.snapshot()

    ids = [served.keep(take) for _ in range(MAX_SNAPSHOTS)]
    with pytest.raises(Problem, match=r"^there are 100 snapshots: expected at most 100; ") as caught:
        served.keep(take)
    assert (caught.value.status, taken) == (409, MAX_SNAPSHOTS)
    del served.snapshots[ids[0]]
    assert served.keep(take) not in ids


@pytest.mark.parametrize("name", [".", "..", "", "a/b", "größe", "a\n", "x" * 101])
def test_what_no_address_can_have_is_no_name(cluster: FakeCluster, name: str) -> None:
    with pytest.raises(Problem, match="expected 1 to 100 of the characters") as caught:
        Clusters(cluster).check_new(name)
    assert caught.value.status == 422


@in_trio_with_sockets
async def test_nobody_looks_any_more_when_control_has_ended() -> None:
    async with FakeCluster(1, {"orders": 1}) as cluster:
        clusters = Clusters(cluster)
        meter = clusters.get("default").meter
        async with clusters.watched():
            cluster.seed_group("g", 1, topics=["orders"])
            assert meter.changes > 0
        assert cluster.cluster.history.listeners == []
        cluster.seed_group("h", 1, topics=["orders"])
        assert cluster._server.reactor.watchers == []


@in_trio_with_sockets
async def test_two_that_control_a_cluster_hear_of_the_same() -> None:
    async with FakeCluster(1) as cluster:
        first, second = Clusters(cluster), Clusters(cluster)
        async with first.watched():
            async with second.watched():
                cluster.seed_group("g", 1)
                both = [each.get("default").meter for each in (first, second)]
                assert [set(meter.changed_since(0)) for meter in both] == [{"g"}, {"g"}]
            cluster.seed_group("h", 1)
            assert [set(meter.changed_since(0)) for meter in both] == [{"g", "h"}, {"g"}]
            assert [run(each.get("default").census.counts()).members for each in (first, second)] == [2, 2]
        assert cluster.cluster.history.listeners == []


class Rounds(trio.abc.Instrument):
    """Counts the rounds of trio's scheduler."""

    count = 0

    def after_io_wait(self, timeout: float) -> None:
        self.count += 1


@in_trio_with_sockets
async def test_there_is_one_piece_between_two_turns_of_the_brokers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps_module, "_PIECE_S", 0.0)
    rounds, seen = Rounds(), list[int]()

    def view() -> Steps[None]:
        for _ in range(5):
            seen.append(rounds.count)
            yield

    async with FakeCluster(1) as cluster:
        cluster.journal_view()
        served = Served("s", cluster)
        trio.lowlevel.add_instrument(rounds)
        async with trio.open_nursery() as nursery:
            for look in (served.look_in_steps, served.ask_in_steps):
                for _ in range(5):
                    nursery.start_soon(look, view())
            for _ in range(5):
                nursery.start_soon(served.look_in_turn, lambda: seen.append(rounds.count))
        trio.lowlevel.remove_instrument(rounds)
    assert len(seen) == len(set(seen)) == 55


@in_trio_with_sockets
async def test_nothing_waits_for_a_cluster_that_has_been_deleted() -> None:
    async with FakeCluster(1) as cluster:
        served = Served("s", cluster)
        served.end_waits()
        with pytest.raises(Problem, match="expected one that is not deleted meanwhile"), served.waiting():
            await trio.sleep_forever()
