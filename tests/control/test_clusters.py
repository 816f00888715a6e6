"""The clusters that are controlled: what is kept of each, and what is left of it when control ends."""

from collections.abc import Iterator

import pytest

from fakebroker import FakeCluster
from fakebroker.cluster.snapshots import Snapshot
from fakebroker.control.clusters import MAX_SNAPSHOTS, Clusters, Served
from fakebroker.control.problems import Problem
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
        assert cluster.cluster.history.listener is None
        cluster.seed_group("h", 1, topics=["orders"])
        assert cluster._reactor.watchers == []


@in_trio_with_sockets
async def test_who_listens_after_it_goes_on_when_control_ends() -> None:
    async with FakeCluster(1) as cluster:
        heard = []
        async with Clusters(cluster).watched():
            cluster.cluster.history.listener = lambda group_id, _: heard.append(group_id)
        cluster.seed_group("g", 1)
        assert heard == ["g"]
