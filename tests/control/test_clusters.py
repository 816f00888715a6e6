"""The clusters that are controlled: what is kept of each, and what is left of it when control ends."""

from collections.abc import Iterator

import pytest

from fakebroker import FakeCluster
from fakebroker.cluster.snapshot import Snapshot
from fakebroker.control.clusters import MAX_SNAPSHOTS, Clusters, Served
from fakebroker.control.problems import Problem
from fakebroker.control.steps import run
from tests.client.trio_runner import in_trio_with_sockets


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
