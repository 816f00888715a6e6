"""The clusters of a control server: snapshots, names, listeners, and long views that give way to the brokers."""

from collections.abc import Iterator

import pytest
import trio
import trio.testing

from fakebroker import FakeCluster
from fakebroker.cluster.snapshot import Snapshot
from fakebroker.control import clusters as clusters_module, steps as steps_module
from fakebroker.control.clusters import MAX_SNAPSHOTS, Clusters, ServedCluster
from fakebroker.control.problems import Problem
from fakebroker.control.steps import Steps, run
from fakebroker.server.fake_cluster import internals
from tests.support.trio_runner import in_trio_with_sockets


@pytest.fixture(name="cluster", scope="module")
def _cluster() -> Iterator[FakeCluster]:
    with FakeCluster(1) as cluster:
        yield cluster


def test_the_number_of_snapshots_is_limited(cluster: FakeCluster) -> None:
    served, taken = ServedCluster("s", cluster), 0

    def take() -> Snapshot:
        nonlocal taken
        taken += 1
        return cluster.snapshot()

    ids = [served.store_snapshot(take) for _ in range(MAX_SNAPSHOTS)]
    with pytest.raises(Problem, match=r"^there are 100 snapshots: expected at most 100; delete one first") as caught:
        served.store_snapshot(take)
    assert (caught.value.status, taken) == (409, MAX_SNAPSHOTS)
    del served.snapshots[ids[0]]
    assert served.store_snapshot(take) not in ids


@in_trio_with_sockets
async def test_waits_that_timed_out_are_kept_for_a_minute_up_to_a_maximum(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clusters_module, "MAX_KEPT_WAITS", 3)
    async with FakeCluster(1) as cluster:
        served, local = ServedCluster("s", cluster), internals(cluster)
        now_s = served._now_s()
        monkeypatch.setattr(served, "_now_s", lambda: now_s)
        first, *others = [local.watch(cluster.group("g").stable()) for _ in range(4)]
        oldest, *kept = [served.keep_wait(watch) for watch in (first, *others)]
        with pytest.raises(Problem, match=rf"^no wait '{oldest}': expected one that has timed out") as caught:
            served.kept_wait(oldest)
        assert caught.value.status == 404
        now_s += 60
        served.sample()
        assert served.kept_wait(kept[0]) is others[0]
        now_s += 0.1
        served.sample()
        with pytest.raises(Problem, match=rf"^no wait '{kept[1]}': expected "):
            served.kept_wait(kept[1])
        others[0].close()
        await trio.testing.wait_all_tasks_blocked()
        assert local.watches == []


def test_names_that_are_not_valid_in_a_path_are_rejected(cluster: FakeCluster, subtests: pytest.Subtests) -> None:
    for name in (".", "..", "", "a/b", "größe", "a\n", "x" * 101):
        with subtests.test(name=name):
            with pytest.raises(Problem, match="expected 1 to 100 of the characters") as caught:
                Clusters(cluster).check_new(name)
            assert caught.value.status == 422


@in_trio_with_sockets
async def test_listeners_are_removed_when_control_ends() -> None:
    async with FakeCluster(1, {"orders": 1}) as cluster:
        clusters = Clusters(cluster)
        meter = clusters.get("default").meter
        async with clusters.running():
            cluster.group("g").seed(1, topics=["orders"])
            assert meter.changes > 0
            served = clusters.get("default")
            served.keep_wait(served.local.watch(cluster.group("g").state("Empty")))
        await trio.testing.wait_all_tasks_blocked()
        assert internals(cluster).cluster.history.listeners == []
        cluster.group("h").seed(1, topics=["orders"])
        assert internals(cluster).server.reactor.watchers == []


@in_trio_with_sockets
async def test_two_control_servers_of_a_cluster_count_the_same_changes() -> None:
    async with FakeCluster(1) as cluster:
        first, second = Clusters(cluster), Clusters(cluster)
        async with first.running():
            async with second.running():
                cluster.group("g").seed(1)
                both = [each.get("default").meter for each in (first, second)]
                assert [set(meter.changed_since(0)) for meter in both] == [{"g"}, {"g"}]
            cluster.group("h").seed(1)
            assert [set(meter.changed_since(0)) for meter in both] == [{"g", "h"}, {"g"}]
            assert [run(each.get("default").index.counts()).members for each in (first, second)] == [
                {"classic": 2},
                {"classic": 2},
            ]
        assert internals(cluster).cluster.history.listeners == []


class TurnCounter(trio.abc.Instrument):
    """Counts the turns of trio's loop."""

    turns = 0

    def after_io_wait(self, timeout: float) -> None:
        self.turns += 1


@in_trio_with_sockets
async def test_at_most_one_piece_of_a_view_runs_in_each_turn_of_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps_module, "_PIECE_S", 0.0)
    counter, turns_of_pieces = TurnCounter(), list[int]()

    def view() -> Steps[None]:
        for _ in range(5):
            turns_of_pieces.append(counter.turns)
            yield

    async with FakeCluster(1) as cluster:
        cluster.journal.view()
        served = ServedCluster("s", cluster)
        trio.lowlevel.add_instrument(counter)
        async with trio.open_nursery() as nursery:
            for run_steps in (served.read_in_steps, served.run_in_steps):
                for _ in range(5):
                    nursery.start_soon(run_steps, view())
            for _ in range(5):
                nursery.start_soon(served.read_piece, lambda: turns_of_pieces.append(counter.turns))
        trio.lowlevel.remove_instrument(counter)
    assert len(turns_of_pieces) == len(set(turns_of_pieces)) == 55


@in_trio_with_sockets
async def test_waiting_for_a_deleted_cluster_is_an_error() -> None:
    async with FakeCluster(1) as cluster:
        served = ServedCluster("s", cluster)
        served.end_waits()
        with pytest.raises(Problem, match="cluster 's' was deleted during the request"), served.waiting():
            await trio.sleep_forever()
